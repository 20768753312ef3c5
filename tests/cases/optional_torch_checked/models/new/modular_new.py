import torch.nn.functional as F

from ..sound.feature_extraction_sound import SoundFeatureExtractor


class NewFeatureExtractor(SoundFeatureExtractor):
    def pad(self, raw):
        return F.pad(raw, (1, 1))
