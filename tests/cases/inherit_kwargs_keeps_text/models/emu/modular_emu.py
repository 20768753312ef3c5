from ..llama.modeling_llama import LlamaBase


class EmuBase(LlamaBase):
    def __init__(
        self,
        size=4,  # twice as small
        theta=10_000.,
        **kwargs,  # handed on
    ):
        super().__init__(size, theta=theta, **kwargs)
