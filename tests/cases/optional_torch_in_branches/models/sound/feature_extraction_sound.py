from ...feature_extraction_utils import SequenceFeatureExtractor
from ...utils import is_torch_available


if is_torch_available():
    import torch
else:
    torch = None

if is_torch_available():
    import torchaudio

    if torchaudio.is_fast():
        import torchaudio.functional as audioF


class SoundFeatureExtractor(SequenceFeatureExtractor):
    def __call__(self, raw):
        return audioF.gain(torchaudio.load(raw)) if torch is None else torch.stft(raw, 400)
