"""Images and videos: the layouts that models use, each with its grids, sizes, positions and masks.

A layout is a function of the request. ``image_layouts`` orders them by the forward's arguments; the first that runs is
used.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from modular_converter.parallel.tiny.fields import VISION, integer, pair, sub
from modular_converter.parallel.tiny.request import InputLayout, Request, Values, per_sample
from modular_converter.parallel.tiny.sizes import BATCH, SEQUENCE


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


def image(request: Request) -> Values:
    """``[batch, channels, height, width]``."""
    vision = vision_of(request)
    height, width = _size(request, vision)
    shape = (BATCH, _channels(vision), height, width)
    values: Values = {"pixel_values": request.normal(*shape), "image_sizes": per_sample((height, width))}
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
    vision = vision_of(request)
    height, width = _size(request, vision)
    pixels = request.normal(BATCH, 2, _channels(vision), height, width)
    values: Values = {"pixel_values": pixels, "image_sizes": per_sample((height, width))}
    values["pixel_attention_mask"] = torch.ones(BATCH, 2, height, width, dtype=torch.bool)
    return values


def views(request: Request) -> Values:
    """As ``tiles``, with a mask of the views in use."""
    return tiles(request) | {"pixel_attention_mask": torch.ones(BATCH, 2, dtype=torch.bool)}


def frames(request: Request) -> Values:
    """``[batch, frames, channels, height, width]``, in the argument for images or for videos."""
    vision = vision_of(request)
    height, width = _size(request, vision)
    count = integer(vision, _FRAMES, 0) or integer(request.config, _FRAMES, 2 * integer(vision, ("tubelet_size",), 2))
    pixels = request.normal(BATCH, count, _channels(vision), height, width)
    return {"pixel_values" if request.takes("pixel_values") else "pixel_values_videos": pixels}


def pinpoints(request: Request) -> Values:
    """A base view and tiles, for images of the first resolution in ``image_grid_pinpoints``."""
    vision = vision_of(request)
    height, width = _size(request, vision)
    best = (getattr(request.config, "image_grid_pinpoints", None) or [[height, 2 * width]])[0]
    count = (best[0] // height) * (best[1] // width) + 1
    pixels = request.normal(BATCH, count, _channels(vision), height, width)
    return {"pixel_values": pixels, "image_sizes": per_sample(best)}


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
    vision = vision_of(request)
    height, width = _size(request, vision)
    count = integer(vision, ("max_num_tiles",), 4)
    pixels = request.normal(BATCH, 1, count, _channels(vision), height, width)
    ids = torch.ones(BATCH, 1, dtype=torch.long)
    return {
        "pixel_values": pixels,
        "aspect_ratio_ids": ids,
        "aspect_ratio_mask": torch.ones(BATCH, 1, count, dtype=torch.long),
    }


def rows_of_patches(request: Request) -> Values:
    """Patches side by side, ``[1, channels, patch, patch * patches of all images]``, and each image's grid."""
    vision = vision_of(request)
    patch = integer(vision, ("patch_size",), 8)
    rows, columns = 4, 8
    pixels = request.normal(1, _channels(vision), patch, patch * rows * columns * BATCH)
    return {"pixel_values": pixels, "target_sizes": per_sample((rows, columns))}
