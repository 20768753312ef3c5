"""Inputs for one forward, made from the signature: text, vision, audio, encoder-decoder, two towers.

Text ids, never special tokens where that can be avoided; sizes come from the configuration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from modular_converter.parallel.tiny.sizes import BATCH, SEQUENCE
from modular_converter.parallel.tiny.table import SEQUENCE_LENGTHS


def make_inputs(model: torch.nn.Module, seed: int = 0) -> dict[str, Any]:
    """Keyword arguments for ``model.forward``; the same for the same seed.

    Returns:
        Tensors on the CPU: ids ``[batch, sequence]`` int64, images ``[batch, channels, height, width]`` float32,
        audio ``[batch, samples]`` or ``[batch, mels, frames]`` float32.
    """
    generator = torch.Generator().manual_seed(seed)
    config: Any = model.config
    parameters = inspect.signature(model.forward).parameters
    values: dict[str, Any] = {}
    for name, make in _MAKERS.items():
        if name in parameters:
            value = make(config, generator)
            if value is not None:
                values[name] = value
    if "use_cache" in parameters:
        values["use_cache"] = False
    if "return_dict" in parameters:
        values["return_dict"] = True
    _place_images(model, values, generator)
    return values


def sub(config: Any, *names: str) -> Any:
    """The first sub-configuration that exists, or the configuration itself."""
    for name in names:
        found = getattr(config, name, None)
        if found is not None and hasattr(found, "model_type"):
            return found
    return config


def integer(config: Any, names: tuple[str, ...], default: int) -> int:
    """The first of the named fields that holds an integer (a pair gives its first entry)."""
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], int):
            return value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def _ids(config: Any, generator: torch.Generator) -> torch.Tensor:
    text = sub(config, "text_config", "language_config", "thinker_config", "decoder")
    vocabulary = integer(text, ("vocab_size", "vocabulary_size", "char_vocab_size"), 32)
    length = SEQUENCE_LENGTHS.get(config.model_type, SEQUENCE)
    high = max(min(vocabulary, 140), 8)
    low = 5 if high > 16 else 1
    return torch.randint(low, high, (BATCH, length), generator=generator)


def _vision(config: Any) -> Any:
    return sub(config, "vision_config", "image_config", "vit_config", "encoder", "backbone_config")


def _pixels(config: Any, generator: torch.Generator) -> torch.Tensor:
    vision = _vision(config)
    size = integer(vision, ("image_size", "img_size", "input_size"), 64)
    channels = integer(vision, ("num_channels", "in_channels", "in_chans", "channels"), 3)
    return torch.randn(BATCH, channels, size, size, generator=generator)


def _waveform(config: Any, generator: torch.Generator) -> torch.Tensor:
    audio = sub(config, "audio_config", "audio_encoder", "encoder")
    if integer(audio, ("num_mel_bins", "max_length"), 0) and hasattr(audio, "frequency_stride"):
        return torch.randn(BATCH, integer(audio, ("max_length",), 64), audio.num_mel_bins, generator=generator)
    channels = integer(audio, ("audio_channels",), 0)
    shape = (BATCH, channels, 2000) if channels else (BATCH, 2000)
    return torch.randn(*shape, generator=generator)


def _features(config: Any, generator: torch.Generator) -> torch.Tensor:
    audio = sub(config, "audio_config", "encoder_config", "encoder")
    mels = integer(audio, ("num_mel_bins", "feature_projection_input_dim", "input_channels", "n_mels"), 80)
    positions = integer(audio, ("max_source_positions",), 0)
    if positions and audio.model_type in ("whisper", "qwen2_audio_encoder", "voxtral_encoder"):
        return torch.randn(BATCH, mels, 2 * positions, generator=generator)
    if hasattr(audio, "input_feat_per_channel"):
        return torch.randn(BATCH, 40, integer(audio, ("input_feat_per_channel",), mels), generator=generator)
    return torch.randn(BATCH, 40, mels, generator=generator)


def _boxes(config: Any, generator: torch.Generator) -> torch.Tensor:
    corners = torch.randint(0, 40, (BATCH, SEQUENCE, 2), generator=generator)
    return torch.cat([corners, corners + 10], dim=-1)


def _decoder_ids(config: Any, generator: torch.Generator) -> torch.Tensor | None:
    return _ids(config, generator)[:, :8] if getattr(config, "is_encoder_decoder", False) else None


def _visual_features(config: Any, generator: torch.Generator) -> torch.Tensor | None:
    width = integer(config, ("visual_feat_dim", "visual_embedding_dim"), 0)
    return torch.randn(BATCH, 6, width, generator=generator) if width else None


def _visual_positions(config: Any, generator: torch.Generator) -> torch.Tensor | None:
    width = integer(config, ("visual_pos_dim",), 0)
    return torch.rand(BATCH, 6, width, generator=generator) if width else None


def _videos(config: Any, generator: torch.Generator) -> torch.Tensor | None:
    vision = _vision(config)
    if not hasattr(vision, "num_frames") and not hasattr(vision, "tubelet_size"):
        return None
    size = integer(vision, ("image_size", "crop_size"), 32)
    frames = integer(vision, ("num_frames", "frames_per_clip"), 4)
    return torch.randn(
        BATCH, frames, integer(vision, ("num_channels", "in_chans"), 3), size, size, generator=generator
    )


_MAKERS: Mapping[str, Callable[[Any, torch.Generator], Any]] = {
    "input_ids": _ids,
    "decoder_input_ids": _decoder_ids,
    "pixel_values": _pixels,
    "input_values": _waveform,
    "input_features": _features,
    "bbox": _boxes,
    "visual_feats": _visual_features,
    "visual_pos": _visual_positions,
    "pixel_values_videos": _videos,
}


def _place_images(model: torch.nn.Module, values: dict[str, Any], generator: torch.Generator) -> None:
    """Put as many placeholder tokens into the ids as the model's own tower returns features for one image."""
    config: Any = model.config
    if "pixel_values" not in values or "input_ids" not in values:
        return
    token = integer(config, ("image_token_id", "image_token_index"), -1)
    getter = getattr(model, "get_image_features", None)
    if token < 0 or getter is None:
        return
    with torch.no_grad():
        features = getter(pixel_values=values["pixel_values"], return_dict=True)
    rows = getattr(features, "pooler_output", features)
    rows = torch.cat(list(rows)) if isinstance(rows, (list, tuple)) else rows
    count = rows.numel() // rows.shape[-1] // BATCH
    ids = values["input_ids"]
    ids = torch.where(ids == token, torch.full_like(ids, 5), ids)
    image = torch.full((BATCH, count), token)
    values["input_ids"] = torch.cat([ids[:, :4], image, ids[:, 4:]], dim=1)
