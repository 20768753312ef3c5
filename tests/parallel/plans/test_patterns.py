"""Patterns of paths: the meaning of a star, and similar parts of a model."""

import pytest
from torch import nn

from modular_converter.parallel.plans.text_checks import (
    SomeLayers,
    entries_for,
    first_number_wild,
    is_inside,
    matches,
    names_of_parts,
    wildcard,
)


def test_numbers_of_layers_become_stars():
    assert wildcard("h.0.ffn.2") == "h.*.ffn.*" and first_number_wild("h.0.ffn.2") == "h.*.ffn.2"
    assert wildcard("0.w1.x2") == "*.w1.x2" and wildcard("a.1b") == "a.1b"


@pytest.mark.parametrize(
    "pattern, found",
    [
        ("a.*", ["a.0", "a.12"]),
        ("a.*.b", ["a.1.b"]),
        ("a.0", ["a.0"]),
        ("a", []),
        ("*", []),
        ("a+*", []),
    ],
)
def test_a_star_is_one_number(pattern, found):
    assert matches(pattern, ["a.0", "a.12", "a.x", "a.1.b", "aa0", "ab.0"]) == found


def test_what_lies_inside_a_part():
    assert is_inside("a.b", "a") and is_inside("a", "a") and is_inside("a", "")
    assert not is_inside("ab", "a") and not is_inside("a", "a.b")


def layers(count):
    model = nn.Module()
    model.h = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(count))
    return model


def test_entries_stand_for_parts_that_there_are():
    assert names_of_parts(layers(1)) == ["", "h", "h.0", "h.0.weight"]
    entries = {"h.*": "colwise", "h.0.weight": "rowwise", "h.1": "colwise", "x": "rowwise"}
    assert list(entries_for(entries, layers(1))) == ["h.*", "h.0.weight"]


@pytest.mark.parametrize(
    "paths, number, small, found",
    [
        (["h.0", "h.1"], 2, 3, ["h.0", "h.1", "h.2"]),  # all of them have it, so further ones have it too
        (["h.1"], 3, 2, ["h.1"]),
        (["h.2"], 3, 2, ["h.0", "h.1"]),  # none of the same name is there: all stand for it
        (["h.2"], 3, 4, ["h.2", "h.3"]),
    ],
)
def test_the_same_parts_of_a_small_instance(paths, number, small, found):
    some = SomeLayers.of(paths, layers(number))
    assert some.paths == tuple(paths) and set(some.others) == {f"h.{i}" for i in range(number)} - set(paths)
    assert some.same_in(layers(small)) == found
