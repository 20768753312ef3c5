import numpy as np

from ...feature_extraction_utils import SequenceFeatureExtractor
from ...utils import is_torch_available, is_torchvision_available, is_vision_available


if is_torch_available():
    import torch

if is_torchvision_available():
    import torchvision
    from torchvision.transforms import functional as tvF

if is_vision_available():
    import PIL


class SoundFeatureExtractor(SequenceFeatureExtractor):
    def __call__(self, raw):
        return torch.stft(np.asarray(raw), 400)

    def show(self, path):
        return tvF.resize(PIL.Image.open(path), 1)
