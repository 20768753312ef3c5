from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def forward(self, x):
        scale = self.scale  # of the layer

        def scaled(y):
            return y * scale

        for max in range(2):
            x = scaled(x) + max
        return super().forward(x)


__all__ = ["EmuMLP"]
