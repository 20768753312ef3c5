"""Audio: spectral features and raw samples, in the layouts that models use, with masks and lengths."""

from __future__ import annotations

from typing import Any

import torch

from modular_converter.parallel.tiny.fields import AUDIO, integer, raw, sub
from modular_converter.parallel.tiny.request import InputLayout, Request, Values
from modular_converter.parallel.tiny.sizes import BATCH


FRAMES, SAMPLES = 40, 2000
_MELS = ("num_mel_bins", "n_mels", "num_mels", "mel_bins", "feature_size", "input_dim", "input_size", "n_fft_bins")
_WIDTHS = (
    "input_feat_per_channel",
    "feature_projection_input_dim",
    "input_feat_size",
    "input_channels",
    "model_in_dim",
)


def audio_layouts(request: Request) -> list[InputLayout]:
    """The layouts to try, the likeliest first; empty if the forward takes no audio."""
    found: list[InputLayout] = []
    if request.takes("input_features") or request.takes("audio_mel"):
        first, second = (bins_first, frames_first) if _starts_with_convolution(request) else (frames_first, bins_first)
        found = [first, second, spectrogram, stacked_frames, bins_of_weight]
        if request.takes("input_values"):
            found = [both_channels, both, samples, first]
    elif request.takes("input_values"):
        found = [samples, samples_of_channels, spectrum]
        if request.takes("decoder_input_values"):
            found = [vectors]
    return found


def audio_of(request: Request) -> Any:
    """The configuration that sizes the audio."""
    return sub(request.config, *AUDIO)


def _starts_with_convolution(request: Request) -> bool:
    for name, parameter in request.model.named_parameters():
        if ("audio" in name or audio_of(request) is request.config) and parameter.dim() in (2, 3):
            return parameter.dim() == 3 and "conv1" in name
    return False


def _mels(request: Request) -> int:
    audio = audio_of(request)
    return integer(audio, (*_WIDTHS, *_MELS), integer(request.config, (*_WIDTHS, *_MELS), 80))


def _length(audio: Any) -> int:
    """The number of frames: a multiple of the encoder's chunks, as many as its fixed positions need, or a short default."""
    window = integer(audio, ("n_window",), 0)
    if window:
        return 2 * 2 * window
    positions = integer(audio, ("max_source_positions",), 0)
    if positions and not hasattr(audio, "max_target_positions"):
        return 2 * positions
    if positions and integer(audio, _MELS, 0) and raw(audio, "input_feat_per_channel") is None:
        return 2 * positions
    return FRAMES


def _with_masks(request: Request, values: Values, length: int, kind: torch.dtype = torch.long) -> Values:
    mask = torch.ones(BATCH, length, dtype=kind)
    for name in ("input_features_mask", "feature_attention_mask"):
        if name in request.required | request.optional:
            values[name] = mask
    if request.takes("padding_mask") and request.takes("input_features_mask"):
        values["padding_mask"] = mask
    if request.takes("chunk_sample_lengths"):
        values["chunk_sample_lengths"] = torch.full((BATCH,), length)
    return values


def bins_first(request: Request) -> Values:
    """``[batch, mels, frames]``, with as many frames as the encoder's positions require."""
    length = _length(audio_of(request))
    return _with_masks(request, {"input_features": request.normal(BATCH, _mels(request), length)}, length)


def frames_first(request: Request) -> Values:
    """``[batch, frames, mels]``."""
    length = FRAMES
    features = request.normal(BATCH, length, _mels(request))
    mask = torch.ones(BATCH, length, dtype=torch.bool)
    values = {"input_features": features, "audio_mel": features, "audio_mel_mask": ~mask}
    return _with_masks(request, values, length, torch.bool)


def spectrogram(request: Request) -> Values:
    """``[batch, 1, frames, mels]``, for encoders that treat the spectrogram as an image."""
    audio = audio_of(request)
    size = integer(audio, ("spec_size",), 64)
    bins = integer(audio, _MELS, 64)
    count = size * max(1, size // bins)
    pixels = request.normal(BATCH, 1, count, bins)
    return {"input_features": pixels, "is_longer": torch.zeros(BATCH, 1, dtype=torch.bool)}


def stacked_frames(request: Request) -> Values:
    """``[batch, frames, width]``, with the input width of the model's first linear layer."""
    for parameter in request.model.parameters():
        if parameter.dim() == 2:
            features = request.normal(BATCH, FRAMES, parameter.shape[1])
            return _with_masks(request, {"input_features": features}, FRAMES)
    return frames_first(request)


def bins_of_weight(request: Request) -> Values:
    """``[batch, bins, frames]``, with the input channels of the model's first convolution as bins."""
    for parameter in request.model.parameters():
        if parameter.dim() == 3 and parameter.shape[1] > 1:
            return {"input_features": request.normal(BATCH, parameter.shape[1], FRAMES)}
    return bins_first(request)


def vectors(request: Request) -> Values:
    """``[batch, frames, width]``, for the encoder and decoder of a model without the parts before and after them."""
    width = integer(request.config, ("hidden_size", "d_model"), 64)
    return {
        "input_values": request.normal(BATCH, FRAMES, width),
        "decoder_input_values": request.normal(BATCH, 8, width),
    }


def samples(request: Request) -> Values:
    """``[batch, samples]``; ``[batch, channels, samples]`` if the configuration has channels."""
    channels = integer(audio_of(request), ("audio_channels",), 0)
    shape = (BATCH, channels, SAMPLES) if channels else (BATCH, SAMPLES)
    return {"input_values": request.normal(*shape)}


def samples_of_channels(request: Request) -> Values:
    """``[batch, 1, samples]``."""
    return {"input_values": request.normal(BATCH, 1, 2 * SAMPLES)}


def spectrum(request: Request) -> Values:
    """``[batch, frames, mels]`` in the argument for samples."""
    audio = audio_of(request)
    length = integer(audio, ("max_length",), FRAMES)
    return {"input_values": request.normal(BATCH, length, _mels(request))}


def both(request: Request) -> Values:
    """Samples and spectral features of the same sound."""
    return samples_of_channels(request) | frames_first(request)


def both_channels(request: Request) -> Values:
    """Samples and features, both with a channel axis of length 1."""
    features = frames_first(request)["input_features"][:, None]
    return samples_of_channels(request) | {"input_features": features}
