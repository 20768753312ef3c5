"""The bases and the header of a generated class, and the bases whose methods `super()` reaches."""

from __future__ import annotations

import dataclasses

import pytest

from modular_converter.convert.inherit.bases import ClassMerge, class_header, merge_bases, replaced_base
from modular_converter.facts import Surroundings, TwoClasses
from modular_converter.model.class_blocks import ClassBlock, parse_class
from modular_converter.settings.load import profile_settings
from modular_converter.settings.values import Settings


def merge_of(
    child: ClassBlock, parent: ClassBlock, settings: Settings, around: Surroundings | None = None
) -> ClassMerge:
    classes = TwoClasses(child, parent, "", child.bases, {}, around or Surroundings(), settings.model_base)
    return ClassMerge(classes, settings, [])


def block(name: str, bases: str, body: str = "pass") -> ClassBlock:
    return parse_class(f"class {name}({bases}):\n    {body}\n")


@pytest.mark.parametrize(
    ("child", "parent", "merged"),
    [
        ("OldMLP", "nn.Module", "nn.Module"),
        ("OldMLP, Mixin", "nn.Module", "nn.Module, Mixin"),
        ("Mixin, OldMLP", "nn.Module", "Mixin, nn.Module"),
        ("First, Second, OldMLP, Third", "nn.Module", "First, Second, nn.Module, Third"),
        ("OldMLP, nn.Module", "nn.Module, Mixin", "nn.Module, Mixin"),
        ("OldMLP, NewBase", "Mixin, OldBase, Last", "Mixin, NewBase, Last"),
        ("NewBase, OldMLP", "OldBase", "NewBase"),
        ("OldMLP, NewBase, OtherBase", "OldBase", "NewBase, OtherBase"),  # a base is replaced once
        ("OldMLP, Heir", "nn.Module, Above", "nn.Module, Heir, Above"),
        ("OldMLP, Heir, Mixin", "Above, Above2", "Heir, Above, Above2, Mixin"),
        ("OldMLP, Layer", "nn.Module", "Layer"),  # which inherits from it
        ("OldMLP[int], Mixin", "nn.Module", "nn.Module, Mixin"),
        ("OldMLP[K, int]", "t.Generic[K, V]", "t.Generic[K]"),
        ("OldMLP[V, K]", "Base[K], Generic[K, V]", "Base[V], Generic[V, K]"),
        ("OldMLP[list[int]]", "Base[T], Generic[T]", "Base[list[int]]"),
        ("OldMLP[OwnT]", "Generic[T]", "Generic[T]"),  # perhaps a parameter
    ],
)
def test_the_bases_of_both(child: str, parent: str, merged: str) -> None:
    own, inherited = block("NewMLP", child), block("NewMLP", parent)
    base = next(one for one in own.bases if one.startswith("OldMLP"))
    ancestors = {"Heir": frozenset({"Above", "Above2"}), "Mixin": frozenset({"object"})}
    assert ", ".join(merge_bases(own, inherited, base, ancestors, {"Layer": "nn.Module"})) == merged


@pytest.mark.parametrize(
    ("base", "inherited", "replaced"),
    [
        ("MyPreTrainedModel", ["Mixin", "PreTrainedModel", "OtherModel"], "PreTrainedModel"),
        ("NewBase", ["Database"], ""),  # the common ending is no word
        ("A", ["B"], ""),
        ("A", [], ""),
    ],
)
def test_the_base_that_a_name_resembles(base: str, inherited: list[str], replaced: str) -> None:
    assert replaced_base(base, inherited) == replaced


BOUND = {"Empty": frozenset[str](), "Has": frozenset({"f"}), "NewPreTrainedModel": frozenset({"g"})}


@pytest.mark.parametrize(
    ("bases", "reached"),
    [
        ("First, Second", "First Second"),  # from elsewhere: taken to hide nothing
        ("Empty, Second", "Empty Second"),
        ("Has, Second", "Has"),
        ("First, Has, Third", "First"),  # nobody can tell whether the first has it
        ("Empty, Has", "Empty"),
        ("GradientCheckpointingLayer", "GradientCheckpointingLayer nn.Module"),
        ("NewPreTrainedModel", "NewPreTrainedModel PreTrainedModel"),
        ("Has, GradientCheckpointingLayer", "Has"),
        ("", ""),
    ],
)
def test_the_bases_that_super_reaches(bases: str, reached: str) -> None:
    own = block("NewMLP", bases)
    merge = merge_of(own, block("NewMLP", ""), profile_settings(), Surroundings(binds=BOUND.get))
    assert merge.reached_by("f") == frozenset(reached.split())


@pytest.mark.parametrize(("known", "reached"), [("f", {"First"}), ("g", {"First", "Second"})])
def test_a_base_from_elsewhere_with_the_method_hides_those_behind_it(known: str, reached: set[str]) -> None:
    own = block("NewMLP", "First, Second")
    around = Surroundings(has_method=lambda base, method: (base, method) == ("First", known))
    assert merge_of(own, block("NewMLP", ""), profile_settings(), around).reached_by("f") == reached


def test_without_a_base_of_all_models_no_name_stands_for_another() -> None:
    own = block("NewMLP", "NewPreTrainedModel")
    settings = dataclasses.replace(profile_settings(), model_base="")
    assert merge_of(own, own, settings).reached_by("f") == {"NewPreTrainedModel"}


def test_what_a_class_knows_of_itself() -> None:
    merge = merge_of(block("NewMLP", "A", "a = 1"), block("NewMLP", "B", "b = c = 2"), profile_settings())
    assert merge.attributes == {"a", "b", "c"} and not merge.around.is_set_above("__init__", "a")


@pytest.mark.parametrize(
    ("child", "parent", "bases", "header"),
    [
        ("OldMLP", "nn.Module", ["nn.Module"], "(nn.Module)"),
        ("OldMLP", "", [], ""),
        ("OldMLP", "nn.Module, metaclass=M", ["nn.Module"], "(nn.Module, metaclass=M)"),
        ("OldMLP, metaclass=N", "nn.Module, metaclass=M, flag=1", ["nn.Module"], "(nn.Module, metaclass=N)"),
        ("OldMLP", "metaclass=M", [], "(metaclass=M)"),
    ],
)
def test_the_header(child: str, parent: str, bases: list[str], header: str) -> None:
    assert class_header(block("NewMLP", child), block("NewMLP", parent), bases) == f"class NewMLP{header}:\n"
