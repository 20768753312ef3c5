"""The sources of all lines of some published models, judged by their words."""

from __future__ import annotations

import os

import pytest

from modular_converter.convert.batch import Run
from modular_converter.convert.source.library import Library
from modular_converter.provenance.generated import line_sources
from modular_converter.settings.load import profile_settings
from tests.corpus.test_published import MODELS
from tests.oracle.line_words import wrong_lines


CHOSEN = ("gemma3", "kyutai_speech_to_text")
"""Several neighbours, prefixes, `super()` calls on named bases, merged signatures, several kinds of file."""


@pytest.mark.parametrize("model", CHOSEN)
def test_every_line_of_a_published_model_has_the_words_of_its_source(model: str) -> None:
    modular = os.path.join(MODELS, model, f"modular_{model}.py")
    (conversion,) = Run(profile_settings(), workers=1).convert([modular])
    names = [model, *(os.path.basename(os.path.dirname(path)) for path in conversion.reads)]
    for path, sources in line_sources(modular, conversion.files, Library(profile_settings())).items():
        assert list(wrong_lines(conversion.files[path], sources, names)) == [], path
