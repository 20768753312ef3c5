from ..llama.modeling_llama import LlamaNorm


class EmuNorm(LlamaNorm):
    def __init__(self, config):
        super().__init__(config)
        del self.down

    @LlamaNorm.size.setter
    def size(self, value):
        self.total = value
