"""The form of marks: which comments are marks, and which are meant to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.marks.units import Replacement, find_marks
from tests.unit.marks.test_marks import COPY, copy_of, judged, marks, verdict, write


def test_all_casing_means_three_replacements() -> None:
    assert Replacement("Base", "New", True).apply("Base base BASE", 20) == "New new NEW"
    (mark,) = find_marks(
        "# Copied from transformers.a.b.C with X->Y, Base->New all-casing\nclass C:\n    pass\n",
        "Copied from",
        "transformers",
    )
    assert mark.replacements == (Replacement("X", "Y"), Replacement("Base", "New", True))


def test_a_replacement_with_blanks_is_passed_over() -> None:
    (mark,) = find_marks(
        "# Copied from transformers.a.b.C with Big X->Y,Z->Q\nclass C:\n    pass\n", "Copied from", "transformers"
    )
    assert mark.replacements == (Replacement("Z", "Q"),) and not mark.flaw


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("# TODO: Copied from transformers.models.base.modeling_base.BaseLayer", "words stand before"),
        ("# copied from transformers.models.base.modeling_base.BaseLayer", "not spelt"),
        ("# Copied from BaseLayer", "does not begin with"),
        ("# Copied from transformer.models.base.modeling_base.BaseLayer", "does not begin with"),
        ("# Copied from transformers.models.base.modeling_base.BaseLayer Base->New", "without `with`"),
        ("# Copied from transformers.models.base.modeling_base.BaseLayer\n", "not stand directly above"),
        ("# Copied from transformers.models.base.modeling_base.BaseLayer\n@decorate", "above a decorator"),
        ("x = 1  # Copied from transformers.models.base.modeling_base.BaseLayer", "behind code"),
    ],
)
def test_a_mark_of_another_form_is_invisible(comment: str, reason: str, library: Path) -> None:
    path = write(library, "new", copy_of(COPY, comment))
    assert verdict(path) == "invisible"
    found = marks(library)
    assert found.exit_code == 0 and "MC393" in found.stderr and reason in found.stderr
    assert marks(library, "--strict").exit_code == 1


def test_a_mark_that_names_its_own_definition_is_invisible(library: Path) -> None:
    mark = "# Copied from transformers.models.new.modeling_new.NewLayer"
    assert verdict(write(library, "new", copy_of(COPY, mark))) == "invisible"
    assert "names the definition below it" in marks(library).stderr


@pytest.mark.parametrize(
    "text",
    [
        'x = """\n# Copied from transformers.models.none.modeling_none.None_\n"""\n',
        "# The following is copied from https://example.net/a.b.c\nx = 1\n",
        "# Message copied from the documentation\nx = 1\n",
        "# Copied from BERT\nx = 1\n",
        "# Copied from BaseLayer with care\nx = 1\n",
    ],
)
def test_other_texts_are_no_marks(text: str, library: Path) -> None:
    assert judged(write(library, "new", text)) == []


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("models.base.modeling_base.BaseLayr", "Did you mean `BaseLayer`?"),
        ("models.base.modeling_base.BaseLayer.none", "has no `BaseLayer.none`"),
        ("models.none.modeling_none.X", "there is no such module"),
    ],
)
def test_a_mark_without_a_source_is_dangling(source: str, hint: str, library: Path) -> None:
    write(library, "new", copy_of(COPY, f"# Copied from transformers.{source}"))
    found = marks(library)
    assert found.exit_code == 1 and "MC412" in found.stderr and hint in found.stderr
