from ..llama.modeling_llama import LlamaNorm, LlamaRotary


class NewRotary(LlamaRotary):
    pass


# In docstrings and comments `New` becomes `NewVision` for this one.
class NewVisionRotary(LlamaRotary):
    pass


class NewNorm(LlamaNorm):
    """The child's."""

    def forward(self, x):
        """Child's."""
        return super().forward(x)
