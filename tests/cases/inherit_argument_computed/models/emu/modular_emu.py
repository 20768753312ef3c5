from ..llama.modeling_llama import LlamaLayer, LlamaMLP, half


class EmuMLP(LlamaMLP):
    def forward(self, x, mask=None, *, scale=1):
        return super().forward(half(x), mask=self.norm(mask), scale=scale)

    # `x` is read behind the call.
    def twice(self, x):
        super().twice(self.norm(x))
        return x

    def build(self, size, depth=2, **options):
        return super().build(size, depth=depth, **options)


class EmuLayer(LlamaLayer):
    def __init__(self, size, groups=2):
        super().__init__(size * groups)
        self.inner = size


# As in the corpus, a constant beside `**options` has no effect.
class EmuConstantMLP(LlamaMLP):
    def build(self, size, **options):
        return super().build(size, depth=3, **options)


__all__ = ["EmuMLP", "EmuConstantMLP", "EmuLayer"]
