import numpy as np
import torch

from ...feature_extraction_utils import SequenceFeatureExtractor
from ...utils import TensorType, logging


class SoundFeatureExtractor(SequenceFeatureExtractor):
    def __call__(self, raw, return_tensors: TensorType | None = None):
        return torch.stft(np.asarray(raw), 400)
