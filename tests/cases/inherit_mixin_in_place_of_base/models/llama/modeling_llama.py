from ...shared import GenerationMixin


class LlamaForCausalLM(GenerationMixin):
    def generate(self):
        return "llama " + super().generate()


class LlamaForPlain(GenerationMixin):
    def generate(self):
        return "llama"


class LlamaForSpeech(GenerationMixin):
    def speak(self):
        return "spoken " + super().generate()


class LlamaForImages(GenerationMixin):
    def draw(self):
        return "drawn " + self.generate()
