from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    """What the child takes by its name is no parameter by position alone."""

    def forward(self, x, y=5, *, z=6, **super_kwargs):
        return super().forward(x, y=y, z=z, **super_kwargs)


class EmuKeptMLP(LlamaMLP):
    def forward(self, x, /, y=5, **super_kwargs):
        return super().forward(x, y=y, **super_kwargs)


__all__ = ["EmuKeptMLP", "EmuMLP"]
