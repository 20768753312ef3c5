from ..qwen.modeling_qwen import QwenMLP


class EmuTextMLP(QwenMLP):
    """Qwen has a `QwenTextNorm` beside its `QwenNorm`, so the prefix is `Emu`."""
