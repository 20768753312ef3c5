"""Kinds of file: of a class by its name, of a file by its name."""

from __future__ import annotations

import dataclasses

import pytest

from modular_converter.settings.load import profile_settings
from modular_converter.settings.values import kind_of, split_stem


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Sam2VideoConfig", "configuration"),
        ("Sam2VideoProcessor", "processing"),
        ("Sam2VideoVideoProcessor", "video_processing"),
        ("Sam2VideoImageProcessorPil", "image_processing_pil"),
        ("Sam2VideoImageProcessorKwargs", "image_processing"),
        ("Sam2VideoTokenizer", "tokenization"),
        ("Sam2VideoFeatureExtractor", "feature_extraction"),
        ("Sam2VideoConfigurable", "modeling"),
    ],
)
def test_the_kind_of_a_class(name: str, kind: str) -> None:
    assert kind_of(name, "Sam2Video", profile_settings()) == kind


@pytest.mark.parametrize(
    ("stem", "found"),
    [
        ("modeling_vit", ("modeling", "vit")),
        ("image_processing_pil_vit", ("image_processing_pil", "vit")),
        ("tokenization_vit_fast", ("tokenization_{model}_fast", "vit")),
        ("tokenization_vit", ("tokenization", "vit")),
        ("tokenization__fast", ("tokenization", "_fast")),
        ("utils", None),
    ],
)
def test_the_kind_and_model_of_a_file_name(stem: str, found: tuple[str, str] | None) -> None:
    kinds = {
        "A": "image_processing",
        "B": "image_processing_pil",
        "C": "tokenization",
        "D": "tokenization_{model}_fast",
    }
    settings = dataclasses.replace(profile_settings(), kinds=kinds)
    assert split_stem(stem, settings.file_kinds) == found
