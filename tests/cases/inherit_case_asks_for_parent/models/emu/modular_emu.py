from ..llama.modeling_llama import LlamaBox


class EmuBox(LlamaBox):
    def same(self, other):
        match other:
            case LlamaBox(size=size) as found if size:
                return found
            case [LlamaBox(), *rest] | {"boxes": [LlamaBox(), *rest]}:
                return rest
            case EmuBox(size=0) | LlamaBox(size=0):
                return None


class EmuTwin(LlamaBox):
    def __eq__(self, other):
        match other:
            case LlamaBox():
                return True
