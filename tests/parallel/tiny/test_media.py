"""Images and audio for signatures and configurations as models have them: which layouts are tried, and what each makes."""

from __future__ import annotations

import types
from dataclasses import dataclass

import pytest
import torch

from modular_converter.parallel.tiny.media import Request, audio_layouts, image_layouts


@dataclass
class Part:
    """A configuration with any fields."""

    model_type: str = "part"


def config(**fields):
    made = Part()
    vars(made).update(fields)
    return made


def request(takes, given=None, weights=None):
    """The request of a forward whose first argument is required; weights by name and shape."""
    first, *more = takes.split()
    held = {name: torch.zeros(shape) for name, shape in (weights or {}).items()}
    model = types.SimpleNamespace(named_parameters=held.items, parameters=held.values)
    generator = torch.Generator().manual_seed(0)
    return Request(model, given or config(), frozenset({first}), frozenset(more), generator)


def seen(asked, layouts):
    """Layout -> argument that is taken -> shape of numbers, or the values of integers and masks where all rows are alike."""
    return {
        one.__name__: {name: _seen(value) for name, value in asked.only_taken(one(asked)).items()} for one in layouts
    }


def _seen(value):
    if value.is_floating_point():
        return tuple(value.shape)
    same = value.unique()
    assert value.dim() < 2 or torch.equal(value[0], value[-1])  # each sample has the same
    return f"{tuple(value.shape)} of {same.item()}" if len(same) == 1 else value[0].tolist()


PLACES = [[column, row] for row in range(4) for column in range(6)]
IMAGES = {
    "a grid for each image": ("pixel_values image_grid_thw grid_thw merge_sizes image_merge_sizes images_per_sample",
        config(vision_config=config(in_channels=1, patch_size=4, spatial_merge_size=3)), {}, {
        "packed": {"grid_thw": [1, 6, 9], "image_grid_thw": [1, 6, 9], "pixel_values": (108, 16), "merge_sizes": "(2,) of 3", "image_merge_sizes": "(2,) of 3", "images_per_sample": "(2,) of 1"},
        "packed_squares": {"grid_thw": [1, 6, 9], "image_grid_thw": [1, 6, 9], "pixel_values": (108, 1, 4, 4), "merge_sizes": "(2,) of 3", "image_merge_sizes": "(2,) of 3", "images_per_sample": "(2,) of 1"},
        "packed_batch": {"grid_thw": [1, 6, 9], "image_grid_thw": [1, 6, 9], "pixel_values": (1, 108, 1, 4, 4), "merge_sizes": "(2,) of 3", "image_merge_sizes": "(2,) of 3", "images_per_sample": "(2,) of 1"},
        "packed_blocks": {"grid_thw": [1, 2, 3], "image_grid_thw": [1, 2, 3], "pixel_values": (12, 12, 12, 1), "merge_sizes": "(2,) of 3", "image_merge_sizes": "(2,) of 3", "images_per_sample": "(2,) of 1"},
        "image": {"pixel_values": (2, 1, 64, 64)},
    }),
    "a tower with a grid": ("hidden_states grid_thw",
        config(num_channels=2, patch_size=4), {"pos.patch_embed": (9, 9), "patch_embed.bias": (7,), "patch_embed.proj": (16, 3, 2, 2)}, {
        "packed": {"grid_thw": [1, 4, 6], "hidden_states": (48, 12)},
        "packed_squares": {"grid_thw": [1, 4, 6], "hidden_states": (48, 2, 4, 4)},
        "packed_batch": {"grid_thw": [1, 4, 6], "hidden_states": (1, 48, 2, 4, 4)},
        "packed_blocks": {"grid_thw": [1, 2, 3], "hidden_states": (12, 8, 8, 2)},
        "image": {},
    }),
    "a grid without pixels": ("grid_thw image", config(image_size=8), {}, {
        "image": {"image": (2, 3, 8, 8)},
        "tiles": {},
        "large": {},
        "positioned": {},
        "patches": {},
        "packed": {"grid_thw": [1, 4, 6]},
    }),
    "videos": ("pixel_values_videos", config(tubelet_size=3, image_size=16), {}, {
        "frames": {"pixel_values_videos": (2, 6, 3, 16, 16)},
    }),
    "frames of a number": ("pixel_values pixel_values_videos",
        config(num_frames=5, tubelet_size=3, image_size=(8, 16)), {}, {
        "frames": {"pixel_values": (2, 5, 3, 8, 16)},
        "image": {"pixel_values": (2, 3, 8, 16)},
    }),
    "frames of the whole": ("pixel_values",
        config(frames_per_clip=3, vision_config=config(image_size={"height": 8, "width": 4})), {}, {
        "frames": {"pixel_values": (2, 3, 3, 8, 4)},
        "image": {"pixel_values": (2, 3, 8, 4)},
    }),
    "frames of a tubelet": ("pixel_values",
        config(tubelet_size=1, vision_config=config(num_frames_per_clip=False, image_size=8)), {}, {
        "frames": {"pixel_values": (2, 4, 3, 8, 8)},
        "image": {"pixel_values": (2, 3, 8, 8)},
    }),
    "flattened": ("flattened_patches", config(patch_size=4, num_channels=1), {}, {
        "flattened": {"flattened_patches": (2, 24, 18)},
    }),
    "flattened with a width": ("flattened_patches", config(vision_config=config(patch_embed_hidden_size=10)), {}, {
        "flattened": {"flattened_patches": (2, 24, 12)},
    }),
    "flattened for a weight": ("flattened_patches", config(), {"patch_projection.weight": (5, 6)}, {
        "flattened": {"flattened_patches": (2, 24, 8)},
    }),
    "text": ("input_ids", config(), {}, {
    }),
    "a grid of defaults": ("pixel_values grid_thw merge_sizes", config(), {}, {
        "packed": {"grid_thw": [1, 4, 6], "pixel_values": (48, 192), "merge_sizes": "(2,) of 2"},
        "packed_squares": {"grid_thw": [1, 4, 6], "pixel_values": (48, 3, 8, 8), "merge_sizes": "(2,) of 2"},
        "packed_batch": {"grid_thw": [1, 4, 6], "pixel_values": (1, 48, 3, 8, 8), "merge_sizes": "(2,) of 2"},
        "packed_blocks": {"grid_thw": [1, 2, 3], "pixel_values": (12, 16, 16, 3), "merge_sizes": "(2,) of 2"},
        "image": {"pixel_values": (2, 3, 64, 64)},
    }),
    "positions": ("pixel_values pixel_position_ids", config(patch_size=2), {}, {
        "positioned": {"pixel_values": (2, 24, 12), "pixel_position_ids": PLACES},
    }),
    "positions of images": ("pixel_values image_position_ids", config(), {"x.patchify": (4, 2, 2)}, {
        "positioned": {"pixel_values": (2, 24, 4), "image_position_ids": PLACES},
    }),
    "shapes": ("pixel_values spatial_shapes pixel_attention_mask", config(patch_size=2, merge_size=5), {}, {
        "padded": {"pixel_values": (2, 50, 12), "pixel_attention_mask": "(2, 50) of 1", "spatial_shapes": [5, 10]},
    }),
    "a prompt": ("pixel_values prompt_pixel_values prompt_masks", config(image_size=(16, 8)), {}, {
        "half_image": {"pixel_values": (2, 3, 8, 8), "prompt_pixel_values": (2, 3, 8, 8), "prompt_masks": (2, 3, 8, 8)},
    }),
    "images of tokens": ("pixel_values image_attention_mask", config(image_size=4), {}, {
        "attended_tiles": {"pixel_values": (2, 2, 3, 4, 4), "image_attention_mask": "(2, 12, 2) of 1"},
    }),
    "aspects": ("pixel_values aspect_ratio_ids aspect_ratio_mask", config(image_size=4, max_num_tiles=3), {}, {
        "aspect_tiles": {"pixel_values": (2, 1, 3, 3, 4, 4), "aspect_ratio_ids": "(2, 1) of 1", "aspect_ratio_mask": "(2, 1, 3) of 1"},
    }),
    "aspects of four": ("pixel_values aspect_ratio_ids", config(image_size=4), {}, {
        "aspect_tiles": {"pixel_values": (2, 1, 4, 3, 4, 4), "aspect_ratio_ids": "(2, 1) of 1"},
    }),
    "sizes of rows": ("pixel_values target_sizes", config(patch_size=2, img_size=4), {}, {
        "rows_of_patches": {"pixel_values": (1, 3, 2, 128), "target_sizes": [4, 8]},
        "image": {"pixel_values": (2, 3, 4, 4)},
    }),
    "sizes of long rows": ("pixel_values target_sizes", config(crop_size=4), {}, {
        "rows_of_patches": {"pixel_values": (1, 3, 8, 512), "target_sizes": [4, 8]},
        "image": {"pixel_values": (2, 3, 4, 4)},
    }),
    "two resolutions": ("pixel_values image_sizes high_res_pixel_values",
        config(image_size=8, high_res_vision_config=config(image_size=32, num_channels=1)), {}, {
        "image": {"pixel_values": (2, 3, 8, 8), "image_sizes": "(2, 2) of 8", "high_res_pixel_values": (2, 1, 32, 32)},
        "pinpoints": {"pixel_values": (2, 3, 3, 8, 8), "image_sizes": [8, 16]},
        "plain_image": {"pixel_values": (2, 3, 8, 8)},
        "tiles": {"pixel_values": (2, 2, 3, 8, 8), "image_sizes": "(2, 2) of 8"},
    }),
    "resolutions": ("pixel_values image_sizes", config(input_size=8, image_grid_pinpoints=[[16, 32]]), {}, {
        "image": {"pixel_values": (2, 3, 8, 8), "image_sizes": "(2, 2) of 8"},
        "pinpoints": {"pixel_values": (2, 9, 3, 8, 8), "image_sizes": [16, 32]},
        "plain_image": {"pixel_values": (2, 3, 8, 8)},
        "tiles": {"pixel_values": (2, 2, 3, 8, 8), "image_sizes": "(2, 2) of 8"},
    }),
    "masks of pixels": ("pixel_values pixel_attention_mask", config(image_size=2), {}, {
        "tiles": {"pixel_values": (2, 2, 3, 2, 2), "pixel_attention_mask": "(2, 2, 2, 2) of True"},
        "views": {"pixel_values": (2, 2, 3, 2, 2), "pixel_attention_mask": "(2, 2) of True"},
        "image": {"pixel_values": (2, 3, 2, 2)},
    }),
    "masks of tiles": ("pixel_values tile_fine_mask", config(image_size=2), {}, {
        "tiles": {"pixel_values": (2, 2, 3, 2, 2)},
        "views": {"pixel_values": (2, 2, 3, 2, 2)},
        "image": {"pixel_values": (2, 3, 2, 2)},
    }),
    "plain": ("pixel_values", config(image_size=8, patch_size=4, pooling_kernel_size=1), {}, {
        "image": {"pixel_values": (2, 3, 8, 8)},
        "tiles": {"pixel_values": (2, 2, 3, 8, 8)},
        "large": {"pixel_values": (2, 3, 128, 256)},
        "positioned": {"pixel_values": (2, 20, 48)},
        "patches": {"pixel_values": (2, 20, 48)},
        "packed": {"pixel_values": (40, 48)},
    }),
    "plain without sizes": ("pixel_values image", config(), {}, {
        "image": {"pixel_values": (2, 3, 64, 64)},
        "tiles": {"pixel_values": (2, 2, 3, 64, 64)},
        "large": {"pixel_values": (2, 3, 128, 256)},
        "positioned": {"pixel_values": (2, 24, 192)},
        "patches": {"pixel_values": (2, 24, 192)},
        "packed": {"pixel_values": (48, 192)},
    }),
}  # fmt: skip
AUDIO = {
    "convolution first": ("input_features input_features_mask feature_attention_mask padding_mask chunk_sample_lengths",
        config(audio_config=config(num_mel_bins=6, max_source_positions=9)), {"audio.conv1": (4, 6, 3), "w": (3, 7)}, {
        "bins_first": {"input_features": (2, 6, 18), "input_features_mask": "(2, 18) of 1", "feature_attention_mask": "(2, 18) of 1", "padding_mask": "(2, 18) of 1", "chunk_sample_lengths": "(2,) of 18"},
        "frames_first": {"input_features": (2, 40, 6), "input_features_mask": "(2, 40) of True", "feature_attention_mask": "(2, 40) of True", "padding_mask": "(2, 40) of True", "chunk_sample_lengths": "(2,) of 40"},
        "spectrogram": {"input_features": (2, 1, 640, 6)},
        "stacked_frames": {"input_features": (2, 40, 7), "input_features_mask": "(2, 40) of 1", "feature_attention_mask": "(2, 40) of 1", "padding_mask": "(2, 40) of 1", "chunk_sample_lengths": "(2,) of 40"},
        "bins_of_weight": {"input_features": (2, 6, 40)},
    }),
    "windows": ("input_features padding_mask",
        config(encoder=config(n_window=3, feature_size=5)), {"text": (2, 2, 2), "audio.norm": (4,), "audio.conv1": (3, 5)}, {
        "frames_first": {"input_features": (2, 40, 5)},
        "bins_first": {"input_features": (2, 5, 12)},
        "spectrogram": {"input_features": (2, 1, 768, 5)},
        "stacked_frames": {"input_features": (2, 40, 5)},
        "bins_of_weight": {"input_features": (2, 2, 40)},
    }),
    "mel alone": ("audio_mel audio_mel_mask",
        config(input_feat_per_channel=7, max_source_positions=9, max_target_positions=8), {"conv2": (3, 1, 2), "conv1": (3, 4, 2)}, {
        "frames_first": {"audio_mel": (2, 40, 7), "audio_mel_mask": "(2, 40) of False"},
        "bins_first": {},
        "spectrogram": {},
        "stacked_frames": {"audio_mel": (2, 40, 7), "audio_mel_mask": "(2, 40) of False"},
        "bins_of_weight": {},
    }),
    "encoder and decoder": ("input_features",
        config(n_mels=7, max_source_positions=9, max_target_positions=8), {"conv1": (3, 1, 2)}, {
        "bins_first": {"input_features": (2, 7, 18)},
        "frames_first": {"input_features": (2, 40, 7)},
        "spectrogram": {"input_features": (2, 1, 576, 7)},
        "stacked_frames": {"input_features": (2, 40, 7)},
        "bins_of_weight": {"input_features": (2, 7, 18)},
    }),
    "widths of features": ("input_features is_longer",
        config(spec_size=48, num_mel_bins=24, max_source_positions=9, max_target_positions=3, input_feat_per_channel=5), {}, {
        "frames_first": {"input_features": (2, 40, 5)},
        "bins_first": {"input_features": (2, 5, 40)},
        "spectrogram": {"input_features": (2, 1, 96, 24), "is_longer": "(2, 1) of False"},
        "stacked_frames": {"input_features": (2, 40, 5)},
        "bins_of_weight": {"input_features": (2, 5, 40)},
    }),
    "spectrograms": ("input_features is_longer", config(spec_size=8), {}, {
        "frames_first": {"input_features": (2, 40, 80)},
        "bins_first": {"input_features": (2, 80, 40)},
        "spectrogram": {"input_features": (2, 1, 8, 64), "is_longer": "(2, 1) of False"},
        "stacked_frames": {"input_features": (2, 40, 80)},
        "bins_of_weight": {"input_features": (2, 80, 40)},
    }),
    "decoder without bins": ("input_features",
        config(max_source_positions=9, max_target_positions=8), {"conv1": (3, 4, 2)}, {
        "bins_first": {"input_features": (2, 80, 40)},
        "frames_first": {"input_features": (2, 40, 80)},
        "spectrogram": {"input_features": (2, 1, 64, 64)},
        "stacked_frames": {"input_features": (2, 40, 80)},
        "bins_of_weight": {"input_features": (2, 4, 40)},
    }),
    "positions alone": ("input_features",
        config(max_source_positions=9), {"w": (3,), "text": (2, 2, 2, 2), "conv1": (3, 4, 2)}, {
        "bins_first": {"input_features": (2, 80, 18)},
        "frames_first": {"input_features": (2, 40, 80)},
        "spectrogram": {"input_features": (2, 1, 64, 64)},
        "stacked_frames": {"input_features": (2, 40, 80)},
        "bins_of_weight": {"input_features": (2, 4, 40)},
    }),
    "audio among others": ("input_features",
        config(audio_config=config(num_mel_bins=6)), {"text.conv1": (4, 6, 3), "audio.w": (3, 7), "audio.conv1": (4, 6, 3)}, {
        "frames_first": {"input_features": (2, 40, 6)},
        "bins_first": {"input_features": (2, 6, 40)},
        "spectrogram": {"input_features": (2, 1, 640, 6)},
        "stacked_frames": {"input_features": (2, 40, 7)},
        "bins_of_weight": {"input_features": (2, 6, 40)},
    }),
    "spectrograms without a size": ("input_features is_longer", config(num_mel_bins=8), {"conv1": (3, 2, 2)}, {
        "bins_first": {"input_features": (2, 8, 40)},
        "frames_first": {"input_features": (2, 40, 8)},
        "spectrogram": {"input_features": (2, 1, 512, 8), "is_longer": "(2, 1) of False"},
        "stacked_frames": {"input_features": (2, 40, 8)},
        "bins_of_weight": {"input_features": (2, 2, 40)},
    }),
    "features and samples": ("input_features input_values", config(num_mel_bins=4), {}, {
        "both_channels": {"input_values": (2, 1, 4000), "input_features": (2, 1, 40, 4)},
        "both": {"input_values": (2, 1, 4000), "input_features": (2, 40, 4)},
        "samples": {"input_values": (2, 2000)},
        "frames_first": {"input_features": (2, 40, 4)},
    }),
    "samples": ("input_values", config(), {}, {
        "samples": {"input_values": (2, 2000)},
        "samples_of_channels": {"input_values": (2, 1, 4000)},
        "spectrum": {"input_values": (2, 40, 80)},
    }),
    "samples of channels": ("input_values", config(audio_channels=2, max_length=9, num_mel_bins=3), {}, {
        "samples": {"input_values": (2, 2, 2000)},
        "samples_of_channels": {"input_values": (2, 1, 4000)},
        "spectrum": {"input_values": (2, 9, 3)},
    }),
    "vectors": ("input_values decoder_input_values", config(d_model=6), {}, {
        "vectors": {"input_values": (2, 40, 6), "decoder_input_values": (2, 8, 6)},
    }),
    "vectors without a width": ("input_values decoder_input_values", config(), {}, {
        "vectors": {"input_values": (2, 40, 64), "decoder_input_values": (2, 8, 64)},
    }),
    "text": ("input_ids", config(), {}, {
    }),
}  # fmt: skip


@pytest.mark.parametrize("case", IMAGES)
def test_images(case):
    takes, given, weights, wanted = IMAGES[case]
    asked = request(takes, given, weights)
    found = seen(asked, image_layouts(asked))
    assert (found, [*found]) == (wanted, [*wanted])  # in this order


@pytest.mark.parametrize("case", AUDIO)
def test_audio(case):
    takes, given, weights, wanted = AUDIO[case]
    asked = request(takes, given, weights)
    found = seen(asked, audio_layouts(asked))
    assert (found, [*found]) == (wanted, [*wanted])


def test_a_flattened_patch_begins_with_its_row_and_column_from_one():
    asked = request("flattened_patches")
    (layout,) = image_layouts(asked)
    made = layout(asked)["flattened_patches"]
    assert made.shape == (2, 24, 2 + 3 * 8 * 8)
    assert made[1, :, :2].tolist() == [[row + 1, column + 1] for column, row in PLACES]
