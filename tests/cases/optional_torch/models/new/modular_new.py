import torchaudio
from torch import nn
from torchvision.transforms import functional as tvF

from ..sound.feature_extraction_sound import SoundFeatureExtractor


class NewFeatureExtractor(SoundFeatureExtractor):
    def load(self, path):
        return tvF.resize(torchaudio.load(path), 1)


class NewModel(nn.Module):
    pass
