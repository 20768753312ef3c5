from ..llama.modeling_llama import LlamaError, LlamaLayer, LlamaModel


class EmuError(LlamaError):
    pass


class EmuLayer(LlamaLayer):
    def forward(self, x):
        if isinstance(x, LlamaLayer):
            raise EmuError("a layer")
        return x


# Inherited code asks for `EmuLayer`, which this one is not: the author is told.
class EmuWideLayer(LlamaLayer):
    def is_same(self, other):
        return issubclass(type(other), (int, LlamaLayer)) and type(other) is not LlamaLayer


class EmuModel(LlamaModel):
    def attempt(self, x):
        try:
            return [layer(x) for layer in self.children() if isinstance(layer, (LlamaLayer, EmuLayer))]
        except LlamaError:
            return []


# Another class of this name, and one that the heirs are not added to.
def is_one_of(x, LlamaLayer=int):
    return isinstance(x, LlamaLayer)


class EmuHead(LlamaModel):
    def attempt(self, x):
        return is_one_of(x) or isinstance(x, LlamaLayer | int)


__all__ = ["EmuModel", "EmuHead"]
