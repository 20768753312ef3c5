from ..sound.feature_extraction_sound import SoundFeatureExtractor


class NewFeatureExtractor(SoundFeatureExtractor):
    pass
