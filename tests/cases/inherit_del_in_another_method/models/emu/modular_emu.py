from ..llama.modeling_llama import LlamaCache


class EmuCache(LlamaCache):
    def fill(self, value):
        super().fill(value)
        del self.kept
        del self.last
