"""What a neighbour's things are called, from the names of the classes that inherit from it."""

from __future__ import annotations

import pytest

from modular_converter.convert.inherit.rename_neighbours import asked_prefix, choose_prefix
from modular_converter.convert.source.library import common_suffix


@pytest.mark.parametrize(
    ("child", "parent", "asked"),
    [
        ("EmuMLP", "LlamaMLP", "Emu"),
        ("EmuTextMLP", "LlamaMLP", "EmuText"),
        ("EmuLlamaMLP", "LlamaMLP", "EmuLlama"),
        ("EmuDense", "LlamaMLP", "Emu"),
        ("LlamaMLP", "LlamaMLP", None),
    ],
)
def test_what_one_class_asks_for(child: str, parent: str, asked: str | None) -> None:
    assert asked_prefix(child, parent, "Emu", "Llama") == asked


def test_the_longest_common_suffix() -> None:
    assert common_suffix("EmuTextMLP", "LlamaMLP") == "MLP"
    assert common_suffix("A", "B") == ""
    assert common_suffix("MLP", "LlamaMLP") == "MLP"


def chosen(*children: tuple[str, str], classes: tuple[str, ...] = ()) -> str:
    return choose_prefix(children, "Emu", "Llama", classes).cased


def test_the_most_wanted_wins() -> None:
    children = [("EmuMLP", "LlamaMLP"), ("EmuTextNorm", "LlamaNorm"), ("EmuTextModel", "LlamaModel")]
    assert chosen(*children) == "EmuText"
    assert choose_prefix(children, "Emu", "Llama", ()).asked == ("EmuText", "Emu")


def test_a_tie_goes_to_the_model_itself_or_else_to_the_last() -> None:
    assert chosen(("EmuTextMLP", "LlamaMLP"), ("EmuNorm", "LlamaNorm")) == "Emu"
    assert chosen(("EmuTextMLP", "LlamaMLP"), ("EmuVisionNorm", "LlamaNorm")) == "EmuVision"


def test_a_tie_goes_first_to_the_name_with_the_neighbours() -> None:
    assert chosen(("EmuLlamaMLP", "LlamaMLP"), ("EmuNorm", "LlamaNorm")) == "EmuLlama"


def test_nothing_asked_for_is_the_model_itself() -> None:
    assert chosen() == "Emu"


def test_a_prefix_that_collides_falls_back() -> None:
    prefix = choose_prefix([("EmuTextMLP", "LlamaMLP")], "Emu", "Llama", ("LlamaMLP", "LlamaTextNorm"))
    assert (prefix.cased, prefix.collides_with) == ("Emu", "LlamaTextNorm")
