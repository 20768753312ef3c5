"""Images, videos and audio: the layouts that models use, each with its grids, sizes, positions, masks and lengths.

A layout is a function of the request. ``image_layouts`` and ``audio_layouts`` order them by the forward's arguments; the
first that runs is used.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.tiny.fields import AUDIO, TEXT, VISION, integer, pair, raw, sub
from modular_converter.parallel.tiny.shrink import BATCH, SEQUENCE


Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Request:
    """A set of inputs to make.

    Attributes:
        required: names of the forward's arguments without a default.
        optional: names of its arguments with a default.
    """

    model: torch.nn.Module
    config: Any
    required: frozenset[str]
    optional: frozenset[str]
    generator: torch.Generator

    @staticmethod
    def of(model: torch.nn.Module) -> Request:
        """The request of a model's own forward."""
        taken = [
            parameter
            for parameter in inspect.signature(model.forward).parameters.values()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        required = frozenset(parameter.name for parameter in taken if parameter.default is parameter.empty)
        optional = frozenset(parameter.name for parameter in taken) - required
        return Request(model, model.config, required, optional, torch.Generator().manual_seed(0))

    def takes(self, name: str) -> bool:
        """Whether the forward has an argument of this name."""
        return name in self.required or name in self.optional

    def normal(self, *shape: int) -> torch.Tensor:
        """Normally distributed random numbers, float32."""
        return torch.randn(*shape, generator=self.generator)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Random integers from ``low`` to ``high - 1``, int64."""
        return torch.randint(low, max(high, low + 1), shape, generator=self.generator)

    def only_taken(self, values: Mapping[str, Any]) -> Values:
        """The values whose names the forward takes."""
        return {name: value for name, value in values.items() if self.takes(name)}


InputLayout = Callable[[Request], Values]
"""A function that makes images or audio in one of the layouts that models take."""


def per_sample(rows: Sequence[int]) -> torch.Tensor:
    """The same row of integers for each sample, ``[batch, len(rows)]``."""
    return torch.tensor([list(rows)] * BATCH)


_WIDTH = ("hidden_size", "d_model", "dim", "n_embd", "embed_dim", "d_latents", "width")
_STATES = ("state_dim", "max_state_dim")
_ACTIONS = ("act_dim", "max_action_dim")
_VISUAL = ("visual_feat_dim", "visual_embedding_dim")
# Name -> axes after the batch: the length, or the fields that may give it.
_FLOATS: Mapping[str, tuple[int | tuple[str, ...], ...]] = {
    "inputs_embeds": (SEQUENCE, _WIDTH),
    "hidden_states": (SEQUENCE, _WIDTH),
    "query_embeds": (6, _WIDTH),
    "encoder_hidden_states": (10, ("encoder_hidden_size", "cross_attention_hidden_size", *_WIDTH)),
    "noise_embeds": (6, _WIDTH),
    "context_hidden_states": (10, _WIDTH),
    "action_embeds": (6, _WIDTH),
    "inputs": (SEQUENCE, ("d_model",)),
    "latents": (("hidden_size", "codebook_dim"), 10),
    "states": (6, _STATES),
    "actions": (6, _ACTIONS),
    "rewards": (6, 1),
    "returns_to_go": (6, 1),
    "spectrogram": (40, ("model_in_dim", "num_mel_bins")),
    "visual_feats": (6, _VISUAL),
    "visual_pos": (6, ("visual_pos_dim",)),
}
# Inputs that are left out unless they are required, since a model computes them from others.
_ONLY_REQUIRED = {"inputs_embeds", "hidden_states", "encoder_hidden_states", "query_embeds", "spectrogram", "inputs"}


def floats(request: Request) -> Values:
    """The floating-point inputs of the table that this forward takes and whose sizes the configuration gives."""
    values: Values = {}
    for name, axes in _FLOATS.items():
        needed = name in request.required
        if not needed and (name in _ONLY_REQUIRED or not request.takes(name)):
            continue
        shape = [axis if isinstance(axis, int) else _axis(request.config, axis) for axis in axes]
        if all(shape):
            values[name] = request.normal(BATCH, *shape)
    if "states" in values:
        values["timesteps"] = torch.arange(6).repeat(BATCH, 1)
    return values


def _axis(config: Any, names: tuple[str, ...]) -> int:
    """The length in a configuration, or in its part for actions or text; 0 if it has none."""
    return integer(config, names, 0) or integer(sub(config, "dit_config", *TEXT), names, 0)


def past(request: Request) -> Values:
    """The past of a time series with its features, and the future, for training losses."""
    if not request.takes("past_values"):
        return {}
    config = request.config
    context = integer(config, ("context_length",), 32)
    channels = integer(config, ("num_input_channels",), 0)
    lags = getattr(config, "lags_sequence", None) or [0]
    length = context + max(lags)
    horizon = integer(config, ("prediction_length",), 8)
    shape = (BATCH, length, channels) if channels else (BATCH, length)
    features = integer(config, ("num_time_features",), 1)
    return {
        "past_values": request.normal(*shape),
        "past_time_features": request.normal(BATCH, length, features),
        "past_observed_mask": torch.ones(*shape),
        "past_values_padding": torch.zeros(BATCH, length),
        "freq": torch.zeros(BATCH, 1, dtype=torch.long),
        "future_values": request.normal(BATCH, horizon, *shape[2:]),
        "future_time_features": request.normal(BATCH, horizon, features),
    }


def other_ids(request: Request) -> Values:
    """Ids of other vocabularies, of languages and of tasks, and boxes of words."""
    config = request.config
    values: Values = {"lang_ids": torch.zeros(BATCH, dtype=torch.long)}
    query = sub(config, "qformer_config")
    values["qformer_input_ids"] = request.integers(5, integer(query, ("vocab_size",), 32), BATCH, 8)
    values["task_inputs"] = request.integers(5, 32, BATCH, integer(config, ("task_seq_len",), 8))
    for kind in ("classes", "tasks"):
        vocabulary = integer(sub(config, *TEXT), ("vocab_size",), 32)
        values[f"{kind}_input_ids"] = request.integers(5, vocabulary, 3 * BATCH if kind == "classes" else BATCH, 8)
        values[f"{kind}_attention_mask"] = torch.ones_like(values[f"{kind}_input_ids"])
    values["classes_structure"] = torch.tensor([3] * BATCH)
    corners = request.integers(0, 40, BATCH, SEQUENCE, 2)
    values["bbox"] = torch.cat([corners, corners + 10], dim=-1)
    if request.takes("context_input_ids"):
        documents = integer(config, ("n_docs",), 5)
        values["context_input_ids"] = request.integers(5, 100, BATCH * documents, SEQUENCE)
        values["context_attention_mask"] = torch.ones_like(values["context_input_ids"])
        values["doc_scores"] = request.normal(BATCH, documents)
    queries = integer(config, ("latent_query_num",), 0)
    if queries and request.takes("image_embeds_position_mask"):
        values["image_embeds_position_mask"] = (torch.arange(SEQUENCE) < queries).long().repeat(BATCH, 1)
    if "codes" in request.required or "audio_codes" in request.required:
        codebooks = integer(config, ("num_quantizers", "num_codebooks"), 4)
        values["codes"] = values["audio_codes"] = request.integers(0, 16, BATCH, codebooks, 10)
    return values


_PATCH_WEIGHT = re.compile(
    r"patch_?(embed|proj|conv)|patch_projection|patchif|input_proj|embedder|embeddings?\.proj", re.IGNORECASE
)
_FRAMES = ("num_frames", "frames_per_clip", "num_frames_per_clip")


def image_layouts(request: Request) -> list[InputLayout]:
    """The layouts to try, the likeliest first; empty if the forward takes no images."""
    takes = request.takes
    grid = takes("grid_thw") or takes("image_grid_thw")
    if grid and (takes("pixel_values") or takes("hidden_states")):
        return [packed, packed_squares, packed_batch, packed_blocks, image]
    if takes("pixel_values_videos") and not takes("pixel_values"):
        return [frames]
    if takes("flattened_patches"):
        return [flattened]
    if not takes("pixel_values") and not takes("image"):
        return []
    if takes("pixel_position_ids") or takes("image_position_ids"):
        return [positioned]
    if takes("spatial_shapes"):
        return [padded]
    if takes("prompt_pixel_values"):
        return [half_image]
    if takes("image_attention_mask"):
        return [attended_tiles]
    if takes("aspect_ratio_ids"):
        return [aspect_tiles]
    vision = vision_of(request)
    if any(hasattr(owner, name) for owner in (vision, request.config) for name in (*_FRAMES, "tubelet_size")):
        return [frames, image]
    if takes("target_sizes"):
        return [rows_of_patches, image]
    if takes("image_sizes"):
        return [image, pinpoints, plain_image, tiles]
    if takes("pixel_attention_mask") or takes("tile_fine_mask"):
        return [tiles, views, image]
    return [image, tiles, large, positioned, patches, packed]


def vision_of(request: Request) -> Any:
    """The configuration that sizes the images."""
    return sub(sub(request.config, *VISION), "vision_config")


def _channels(vision: Any) -> int:
    return integer(vision, ("num_channels", "in_channels", "in_chans", "num_input_channels", "channels"), 3)


def _size(request: Request, vision: Any) -> tuple[int, int]:
    for owner in (vision, request.config):
        found = pair(owner, ("image_size", "img_size", "input_size", "crop_size"), 0)
        if all(found):
            return found
    return 64, 64


def _pixels(request: Request, *outer: int) -> torch.Tensor:
    """``[batch, *outer, channels, height, width]``."""
    vision = vision_of(request)
    return request.normal(BATCH, *outer, _channels(vision), *_size(request, vision))


def image(request: Request) -> Values:
    """``[batch, channels, height, width]``."""
    pixels = _pixels(request)
    values: Values = {"pixel_values": pixels, "image_sizes": per_sample(pixels.shape[-2:])}
    if request.takes("high_res_pixel_values"):
        high = sub(request.config, "high_res_vision_config")
        values["high_res_pixel_values"] = request.normal(BATCH, _channels(high), *_size(request, high))
    if request.takes("image") and not request.takes("pixel_values"):
        values["image"] = values["pixel_values"]
    return values


def half_image(request: Request) -> Values:
    """An image and a prompt with its mask, each half as high as the model's images, since the model stacks them."""
    vision = vision_of(request)
    height, width = _size(request, vision)
    shape = (BATCH, _channels(vision), height // 2, width)
    return {name: request.normal(*shape) for name in ("pixel_values", "prompt_pixel_values", "prompt_masks")}


def attended_tiles(request: Request) -> Values:
    """``[batch, 2, channels, height, width]``, and the mask of images for each token, ``[batch, sequence, 2]``."""
    mask = torch.ones(BATCH, SEQUENCE, 2, dtype=torch.long)
    return {"pixel_values": tiles(request)["pixel_values"], "image_attention_mask": mask}


def plain_image(request: Request) -> Values:
    """Images without their sizes."""
    return {"pixel_values": image(request)["pixel_values"]}


def large(request: Request) -> Values:
    """Images larger than in the configuration, for models that cut or pool them; the sizes are powers of two."""
    return {"pixel_values": request.normal(BATCH, _channels(vision_of(request)), 128, 256)}


def tiles(request: Request) -> Values:
    """``[batch, 2, channels, height, width]``: two tiles, views or images for each sample."""
    pixels = _pixels(request, 2)
    size = pixels.shape[-2:]
    mask = torch.ones(BATCH, 2, *size, dtype=torch.bool)
    return {"pixel_values": pixels, "image_sizes": per_sample(size), "pixel_attention_mask": mask}


def views(request: Request) -> Values:
    """As ``tiles``, with a mask of the views in use."""
    return tiles(request) | {"pixel_attention_mask": torch.ones(BATCH, 2, dtype=torch.bool)}


def frames(request: Request) -> Values:
    """``[batch, frames, channels, height, width]``, in the argument for images or for videos."""
    vision = vision_of(request)
    count = integer(vision, _FRAMES, 0) or integer(request.config, _FRAMES, 2 * integer(vision, ("tubelet_size",), 2))
    return {"pixel_values" if request.takes("pixel_values") else "pixel_values_videos": _pixels(request, count)}


def pinpoints(request: Request) -> Values:
    """A base view and tiles, for images of the first resolution in ``image_grid_pinpoints``."""
    height, width = _size(request, vision_of(request))
    best = (getattr(request.config, "image_grid_pinpoints", None) or [[height, 2 * width]])[0]
    count = (best[0] // height) * (best[1] // width) + 1
    return {"pixel_values": _pixels(request, count), "image_sizes": per_sample(best)}


def _patch_weight(request: Request) -> torch.Tensor | None:
    """The weight that embeds patches; None if no name fits."""
    for name, parameter in request.model.named_parameters():
        if parameter.dim() >= 2 and _PATCH_WEIGHT.search(name) and not re.search(r"pos|audio|text|norm", name):
            return parameter
    return None


def _patch_width(request: Request, vision: Any) -> int:
    weight = _patch_weight(request)
    if weight is not None:
        return weight[0].numel()
    return _channels(vision) * integer(vision, ("patch_size",), 8) ** 2


def _grid(vision: Any) -> tuple[int, int]:
    merge = integer(vision, ("spatial_merge_size", "merge_size", "merge_kernel_size", "pooling_kernel_size"), 2)
    return merge * -(-4 // merge), merge * (-(-4 // merge) + 1)


def _with_grid(request: Request, pixels: torch.Tensor, rows: int, columns: int) -> Values:
    thw = per_sample((1, rows, columns))
    values: Values = {"grid_thw": thw, "image_grid_thw": thw}
    values["pixel_values" if request.takes("pixel_values") else "hidden_states"] = pixels
    merge = integer(vision_of(request), ("spatial_merge_size", "merge_size"), 2)
    values["merge_sizes"] = values["image_merge_sizes"] = torch.tensor([merge] * BATCH)
    values["images_per_sample"] = torch.tensor([1] * BATCH)
    return values


def packed(request: Request) -> Values:
    """All patches of all images in one row, ``[patches, channels * frames * patch * patch]``, and their grids."""
    vision = vision_of(request)
    rows, columns = _grid(vision)
    pixels = request.normal(BATCH * rows * columns, _patch_width(request, vision))
    return _with_grid(request, pixels, rows, columns)


def packed_squares(request: Request) -> Values:
    """All patches of all images, ``[patches, channels, patch, patch]``."""
    vision = vision_of(request)
    rows, columns = _grid(vision)
    patch = integer(vision, ("patch_size",), 8)
    pixels = request.normal(BATCH * rows * columns, _channels(vision), patch, patch)
    return _with_grid(request, pixels, rows, columns)


def packed_batch(request: Request) -> Values:
    """As ``packed_squares``, with a leading axis of length 1."""
    values = packed_squares(request)
    name = "pixel_values" if "pixel_values" in values else "hidden_states"
    return values | {name: values[name][None]}


def packed_blocks(request: Request) -> Values:
    """All merged blocks of patches, ``[blocks, side, side, channels]``; the grid counts blocks."""
    vision = vision_of(request)
    side = integer(vision, ("patch_size",), 8) * integer(vision, ("spatial_merge_size",), 2)
    pixels = request.normal(BATCH * 6, side, side, _channels(vision))
    return _with_grid(request, pixels, 2, 3)


def _positions(rows: int, columns: int) -> torch.Tensor:
    """Column and row of each patch, ``[batch, patches, 2]``."""
    places = [(column, row) for row in range(rows) for column in range(columns)]
    return torch.tensor([places] * BATCH)


def positioned(request: Request) -> Values:
    """``[batch, patches, patch width]`` with the position of each patch."""
    vision = vision_of(request)
    rows, columns = _grid(vision)
    places = _positions(rows, columns)
    pixels = request.normal(BATCH, rows * columns, _patch_width(request, vision))
    return {"pixel_values": pixels, "pixel_position_ids": places, "image_position_ids": places}


def patches(request: Request) -> Values:
    """``[batch, patches, patch width]`` alone."""
    return {"pixel_values": positioned(request)["pixel_values"]}


def padded(request: Request) -> Values:
    """``[batch, patches, patch width]`` with rows and columns of each image's grid, and a mask of the patches in use."""
    vision = vision_of(request)
    rows, columns = _grid(vision)
    count = rows * columns
    pixels = request.normal(BATCH, count, _patch_width(request, vision))
    mask = torch.ones(BATCH, count, dtype=torch.long)
    return {"pixel_values": pixels, "pixel_attention_mask": mask, "spatial_shapes": per_sample((rows, columns))}


def flattened(request: Request) -> Values:
    """``[batch, patches, 2 + patch width]``: row and column (from one) of each patch, then its pixels."""
    vision = vision_of(request)
    rows, columns = _grid(vision)
    places = _positions(rows, columns).flip(-1) + 1
    width = _channels(vision) * integer(vision, ("patch_size",), 8) ** 2
    pixels = request.normal(BATCH, rows * columns, integer(vision, ("patch_embed_hidden_size",), 0) or width)
    weight = _patch_weight(request)
    pixels = pixels if weight is None else request.normal(BATCH, rows * columns, weight.shape[1])
    return {"flattened_patches": torch.cat([places.float(), pixels], dim=-1)}


def aspect_tiles(request: Request) -> Values:
    """``[batch, images, tiles, channels, height, width]`` with the aspect ratio of each image and a mask of tiles."""
    count = integer(vision_of(request), ("max_num_tiles",), 4)
    return {
        "pixel_values": _pixels(request, 1, count),
        "aspect_ratio_ids": torch.ones(BATCH, 1, dtype=torch.long),
        "aspect_ratio_mask": torch.ones(BATCH, 1, count, dtype=torch.long),
    }


def rows_of_patches(request: Request) -> Values:
    """Patches side by side, ``[1, channels, patch, patch * patches of all images]``, and each image's grid."""
    vision = vision_of(request)
    patch = integer(vision, ("patch_size",), 8)
    rows, columns = 4, 8
    pixels = request.normal(1, _channels(vision), patch, patch * rows * columns * BATCH)
    return {"pixel_values": pixels, "target_sizes": per_sample((rows, columns))}


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
