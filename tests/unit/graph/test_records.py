"""Ways through the graph, and its parts."""

from __future__ import annotations

import pytest

from modular_converter.graph.build import Edge, Graph, Model


def make(*pairs: tuple[str, str]) -> Graph:
    names = sorted({name for pair in pairs for name in pair})
    edges = tuple(Edge(heir, parent, (), ()) for heir, parent in sorted(pairs))
    return Graph("zoo", {name: Model(name) for name in names}, edges)


def test_the_shortest_way_counts(graph):
    assert graph.all_ancestors("gemma2") == {"gemma": 1, "llama": 1}
    assert graph.all_heirs("llama") == {"gemma": 1, "gemma2": 1, "echo": 2}
    assert graph.heir_counts == {"echo": 0, "gemma": 2, "gemma2": 1, "llama": 3}


def test_a_circle_ends_and_its_members_are_not_their_own_heirs():
    circle = make(("a", "b"), ("b", "c"), ("c", "a"))
    assert circle.all_heirs("a") == {"c": 1, "b": 2}
    assert circle.all_ancestors("a") == {"b": 1, "c": 2}


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["b"], {"a", "b", "c"}),
        (["d"], {"a", "d"}),
        (["c", "d", "c"], {"a", "b", "c", "d"}),
    ],
)
def test_the_part_around_a_model_is_its_ancestors_and_heirs(names, kept):
    part = make(("b", "a"), ("c", "b"), ("d", "a"), ("e", "f")).around(names)
    assert set(part.models) == kept
    assert part.selected == tuple(sorted(set(names)))
    assert {end for edge in part.edges for end in (edge.heir, edge.parent)} == kept
