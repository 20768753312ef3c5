from ..llama.modeling_llama import LlamaNorm


class EmuNorm(LlamaNorm):
    def __init__(self, bias=False, **super_kwargs):
        """With a bias."""
        # The parent sets the sizes.
        super().__init__(**super_kwargs)
        self.bias = bias  # of the norm

    # Not the decorators of the parent.
    @no_inherit_decorator
    def forward(self, **super_kwargs):
        return super().forward(**super_kwargs) + self.bias


__all__ = ["EmuNorm"]
