"""What a class needs and in which order it is emitted: plain names, no texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from modular_converter.convert.inline.needed import OWN, Needs, Positions, Scope, Symbol, emission_order
from modular_converter.model.module import Role


LLAMA = "..llama.modeling_llama"


def function(name: str, *uses: str, source: str = LLAMA) -> Symbol:
    return Symbol(name, source, Role.FUNCTION, uses)


def assignment(name: str, *uses: str, source: str = LLAMA, is_overriding: bool = False) -> Symbol:
    return Symbol(name, source, Role.ASSIGNMENT, uses, is_overriding)


def a_class(name: str, *uses: str) -> Symbol:
    return Symbol(name, LLAMA, Role.CLASS, uses)


def by_name(*symbols: Symbol) -> Mapping[str, Symbol]:
    return {symbol.name: symbol for symbol in symbols}


def needs(
    parent: Collection[Symbol],
    table: Collection[Symbol],
    uses: Collection[str],
    child_uses: Collection[str] = (),
    own_classes: Collection[str] = (),
    elsewhere: Collection[str] = (),
) -> Needs:
    return Scope(by_name(*parent), by_name(*table), own_classes, lambda name: name in elsewhere).needs(
        "C", uses, child_uses
    )


def test_functions_are_followed_and_classes_noted() -> None:
    parent = [function("f", "g", "A"), function("g", "X", "f"), assignment("X"), a_class("A", "h"), function("h")]
    found = needs(parent, [], ["f", "unknown"])
    assert sorted(found.functions) == ["X", "f", "g"]
    assert sorted(found.classes) == ["A"]


def test_an_own_function_replaces_the_inherited_one_with_what_it_needs() -> None:
    parent = [function("f", "g"), function("g", "helper"), function("helper")]
    table = [function("g", "own", source=OWN), function("own", source=OWN)]
    found = needs(parent, table, ["f"])
    assert sorted(found.functions) == ["f", "g", "own"]
    assert found.functions["g"].source == OWN


def test_an_own_assignment_replaces_the_inherited_one_only_when_it_overrides() -> None:
    names = ["SIZE", "CHECKPOINT", "ALONE"]
    parent = [assignment(name) for name in names if name != "ALONE"]
    table = [assignment(name, source=OWN, is_overriding=name == "CHECKPOINT") for name in names]
    found = needs(parent, table, names)
    own = [name for name in names if found.functions[name].source == OWN]
    assert own == ["CHECKPOINT", "ALONE"]


def test_own_classes_are_never_pulled() -> None:
    found = needs([a_class("A")], [], ["A"], own_classes=["A"])
    assert not found.classes and not found.other_kinds


def test_classes_of_another_kind_become_imports() -> None:
    found = needs(
        [a_class("NewConfig")],
        [],
        ["NewConfig", "OwnConfig"],
        own_classes=["OwnConfig"],
        elsewhere=["NewConfig", "OwnConfig"],
    )
    assert found.other_kinds == {"NewConfig", "OwnConfig"}
    assert not found.classes


def order(symbols: list[Symbol], own: Mapping[str, int], *uses: str, table: Collection[Symbol] = ()) -> list[str]:
    parent = by_name(*symbols)
    scope = Scope(parent, by_name(*table), (), lambda name: False)
    positions = Positions({name: place for place, name in enumerate(parent)}, own, [], (), ())
    wanted = scope.needs("C", uses, uses)
    found = emission_order("C", wanted, lambda one: scope.needs(one.name, one.uses, ()), lambda one: (), positions)
    return [symbol.name for symbol in found]


def test_the_parents_module_keeps_its_order_class_by_class() -> None:
    symbols = [
        assignment("X"),
        a_class("A"),
        function("f", "X"),
        a_class("B", "A", "f"),
        a_class("D"),
        function("late"),
    ]
    assert order(symbols, {}, "late", "B", "D") == ["A", "X", "f", "B", "D", "late"]


def test_a_class_stands_behind_the_classes_that_it_needs() -> None:
    assert order([a_class("A", "B"), a_class("B", "D"), a_class("D")], {}, "A") == ["D", "B", "A"]


def test_cycles_end() -> None:
    assert sorted(order([a_class("A", "B"), a_class("B", "A")], {}, "A")) == ["A", "B"]


def test_own_functions_come_last_in_their_own_order() -> None:
    table = [function("second", source=OWN), function("first", source=OWN)]
    assert order(
        [function("f"), a_class("A")], {"first": 1, "second": 2}, "second", "first", "f", "A", table=table
    ) == [
        "A",
        "f",
        "first",
        "second",
    ]


@pytest.mark.parametrize(
    ("parent", "table", "elsewhere", "imports", "copied"),
    [
        ([], [], "", "", "A helper"),  # a class that this file lacks, with what it needs
        (["A"], [], "", "", ""),
        (["A"], [], "A", "", "A helper"),
        ([], ["A"], "", "", ""),
        (["helper"], [], "", "", "A"),
        (["A"], [], "", "f", "f helper"),  # a function only where it is imported from there
        (["A", "f"], [], "", "f", ""),
        (["A"], ["f"], "", "f", ""),
    ],
)
def test_what_a_file_copies_from_its_sibling(
    parent: list[str], table: list[str], elsewhere: str, imports: str, copied: str
) -> None:
    siblings = by_name(a_class("A", "helper"), function("f", "helper"), function("helper"))
    own = {name: siblings[name] for name in parent}
    listed = {name: Symbol(name, OWN, siblings[name].role, ()) for name in table}
    scope = Scope(own, listed, (), lambda name: name in elsewhere.split(), siblings, imports.split())
    assert scope.needs("C", ["A", "f"], ()).siblings == set(copied.split())


def test_who_finds_an_entry_of_the_table() -> None:
    other = "..other.modeling_other"
    table = [
        function("f", "g", source=other),
        function("g", source=other),
        function("h", "k"),
        function("k", source=other),
    ]
    assert sorted(needs([], table, ["f", "h"]).functions) == ["f", "g", "h"]
    assert sorted(needs([], table, ["f", "h"], child_uses=["h"]).functions) == ["f", "g", "h", "k"]
    scope = Scope({}, by_name(*table, function("own", source=OWN)), (), lambda name: False, imported=["f", "own"])
    assert sorted(scope.needs("C", ["f", "own"], ()).functions) == ["own"]


def test_positions() -> None:
    places = Positions({"p": 4}, {"o": 5}, [{"a": 3, "b": 9}, {"b": 1, "c": 2}], {"b"}, {1})
    symbols = [function("p"), function("o", source=OWN), *map(function, "abcx")]
    assert [places.key(one) for one in symbols] == [
        (0, 0, False, 4),
        (2, 0, False, 5),
        (1, 0, False, 3),
        (1, 1, True, 1),
        (1, 1, False, 2),
        (1, 2, False, 0),
    ]
    alone = replace(places, parent={})
    assert [alone.key(function(name)) for name in "abc"] == [(1, 2, False, 0), (1, 1, False, 1), (1, 1, False, 2)]
