class GenerationMixin:
    def generate(self):
        return "generated"


class FastGenerationMixin(GenerationMixin):
    def generate(self):
        return "fast " + super().generate()


class PlainGenerationMixin(GenerationMixin):
    def generate(self):
        return "plain"


class OtherGenerationMixin:
    def generate(self):
        return "other"
