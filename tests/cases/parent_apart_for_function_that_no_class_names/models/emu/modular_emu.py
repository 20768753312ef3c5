from typing import get_args

from ..llama.modeling_llama import LlamaBox


class EmuBox(LlamaBox[int]):
    pass


def item_of(cls):
    return get_args(cls.__orig_bases__[0])


__all__ = ["EmuBox", "item_of"]
