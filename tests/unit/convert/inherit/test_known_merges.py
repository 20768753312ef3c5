"""A class that was merged before is taken as it was, as long as nothing that its merge looks at has changed."""

from __future__ import annotations

from modular_converter.convert.inherit.build import Merged, merge_class, merge_once
from modular_converter.facts import Surroundings
from modular_converter.model.module import Role, Statement
from tests.unit.convert.inherit.merging import NAMES, SETTINGS, child_text, class_text


CHILD = "size = 3\ndef forward(self, x):\n    return nn.Module.forward(self, x)"
PARENT = "def forward(self, x):\n    return x"


def merge_with(child: str, module_names: frozenset[str] = frozenset(), bound: frozenset[str] | None = None) -> Merged:
    own = Statement(Role.CLASS, "NewMLP", child_text(child), 1, bases=("OldMLP",))
    parent = Statement(Role.CLASS, "NewMLP", class_text("class NewMLP(nn.Module):", PARENT), 1, bases=("nn.Module",))
    around = Surroundings(module_names=module_names, binds=lambda base: bound)
    return merge_once(own, parent, "OldMLP", NAMES, SETTINGS, around)


def test_the_same_classes_are_merged_once() -> None:
    first = merge_with(CHILD)
    assert merge_with(CHILD) is first
    parent = class_text("class NewMLP(nn.Module):", PARENT)
    assert first == merge_class(child_text(CHILD), parent, "NewMLP", "OldMLP", NAMES, SETTINGS)
    assert merge_with(CHILD.replace("3", "4")).text == first.text.replace("3", "4")


def test_only_names_in_the_classes_count() -> None:
    first = merge_with(CHILD)
    assert merge_with(CHILD, frozenset({"elsewhere"})) is first
    assert merge_with(CHILD, frozenset({"size"})) is not first


def test_another_answer_means_another_merge() -> None:
    first = merge_with(CHILD)
    other = merge_with(CHILD, bound=frozenset({"forward"}))
    assert other is not first
    assert merge_with(CHILD, bound=frozenset({"forward"})) is other
    assert merge_with(CHILD) is first
