from ..llama.modeling_llama import LlamaModel


class NewModel(LlamaModel):
    second: int = 20
    first = AttributeError()
    fourth = 4
    width = 7

    @size.setter  # noqa: F821
    def size(self, value):
        self._size = value + 1

    def removed(self):
        raise NotImplementedError("not in this model")

    def added(self):
        return 1

    def documented(self, x: int = 2):
        return x + 1

    def extended(self, x: int, z: int = 3, w=4, **super_kwargs):
        return x, w
