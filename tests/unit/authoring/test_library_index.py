"""Which model comes from which: no model inherits from one that comes from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from modular_converter.authoring.library_index import ancestors, last_word, models_named, places_of_parts
from modular_converter.authoring.modularize import modularize
from tests.unit.authoring.test_modularize import OLD, library_of, modularized, opened


def test_models_named_by_comments_and_imports() -> None:
    text = """\
from ..clip import CLIPModel
from ..auto.modeling_auto import AutoModel
from ...utils import logging
from .configuration_new import NewConfig


# Copied from transformers.models.bert.modeling_bert.BertLayer with Bert->New
class NewLayer:
    # Adapted from transformers.models.vit.modeling_vit.ViTLayer.forward
    text = "from ..nowhere import it"
"""
    assert models_named(text) == ["auto", "bert", "clip", "vit"]


@pytest.mark.parametrize(
    ("name", "last"), [("GemmaTextMLP", "P"), ("RotaryEmbedding", "Embedding"), ("scale", "scale")]
)
def test_the_last_word_of_a_class_tells_its_kind(name: str, last: str) -> None:
    assert last_word(name) == last


def test_models_that_name_each_other_tell_nothing() -> None:
    named = {"a": ["b"], "b": ["c"], "c": ["b"], "d": ["d", "a"]}
    assert ancestors(named) == {"a": {"b", "c"}, "b": set(), "c": set(), "d": {"a", "b", "c"}}


@pytest.mark.parametrize(
    "origin",
    [
        "# Copied from models.new.modeling_new.NewMLP with New->Old\nclass OldMLP",
        "from ..new.modeling_new import NewModel\n\n\nclass OldMLP",
    ],
)
def test_a_model_takes_nothing_from_one_that_comes_from_it(origin: str, tmp_path: Path) -> None:
    """Both are of one year. What a person prefers counts nevertheless."""
    models = library_of(tmp_path, old=OLD.replace("class OldMLP", origin), new=OLD.replace("Old", "New"))
    result = modularized(models, "new")
    assert result.proof is not None and "..old" not in result.proof.text
    asked = modularize(*opened(models, "new"), ["old"])
    assert asked.proof is not None and "..old" in asked.proof.text
    flat, index, library = opened(models, "new")
    of_any_age = modularize(flat, replace(index, any_age=True), library)
    assert of_any_age.proof is not None and "..old" in of_any_age.proof.text


def test_a_text_that_cannot_be_read_has_no_parts() -> None:
    text = (
        "class NewMLP:\n    def forward(self):\n        return 1\n"
        + "    size = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)\n"
    )
    assert [*places_of_parts(text, text)]
    assert not [*places_of_parts(text + "(", text)]
