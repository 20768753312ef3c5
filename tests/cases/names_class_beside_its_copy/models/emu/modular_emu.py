from ..llama.modeling_llama import LlamaError, LlamaKind, LlamaMLP


class EmuError(LlamaError):
    pass


class EmuMLP(LlamaMLP):
    kind = LlamaKind.HALF

    def check(self):
        raise EmuError
