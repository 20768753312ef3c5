"""Kinds of file: of a class by its name, of a file by its name."""

from __future__ import annotations

import pytest

from modular_converter.settings.load import profile_settings
from modular_converter.settings.values import kind_of


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
