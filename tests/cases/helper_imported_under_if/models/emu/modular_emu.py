from typing import TYPE_CHECKING

from ...utils import is_torch_available, is_torchvision_available
from ..llama.image_processing_llama import LlamaImageProcessor


if is_torchvision_available():
    import torchvision

    from ..llama.image_processing_llama import SIZES, LlamaKwargs, llama_resize, other

if is_torch_available():
    from ..llama.image_processing_llama import half as halve
else:
    halve = None

if TYPE_CHECKING:
    from ..llama.image_processing_llama import other


class EmuImageProcessor(LlamaImageProcessor):
    kwargs: LlamaKwargs

    def resize(self, x: "other"):
        return llama_resize(x) + 1 + SIZES[1] + halve(torchvision.ops(x))


__all__ = ["EmuImageProcessor"]
