import torch

from ..fast.image_processing_fast import FastImageProcessor
from ..fast.image_processing_pil_fast import FastImageProcessorPil


SIZES = (3, 4)


class NewImageProcessor(FastImageProcessor):
    def to_tensor(self, image):
        return torch.tensor(image)


class NewImageProcessorPil(FastImageProcessorPil):
    def to_tensor(self, image):
        return torch.tensor(image)


__all__ = ["NewImageProcessor", "NewImageProcessorPil"]
