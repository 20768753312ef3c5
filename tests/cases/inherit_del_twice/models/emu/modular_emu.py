from ..llama.modeling_llama import LlamaMLP

class EmuMLP(LlamaMLP):

    def __init__(self, config=3):
        super().__init__(config)
        del self.down
        self.down = 2
        del self.down
