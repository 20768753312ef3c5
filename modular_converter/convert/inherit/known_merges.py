"""Merges that have been made before: drafts of a modular file, and its next version, differ in few classes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from modular_converter.convert.inherit.merge import Merged, merge_class
from modular_converter.convert.source.names import ModelNames
from modular_converter.model.module import Statement
from modular_converter.model.overriding import AddedDecorators
from modular_converter.settings.values import Settings


@dataclass(frozen=True)
class _KnownMerge:
    """A generated class, with the questions of its merge about other classes, and the answers."""

    merged: Merged
    set_above: Mapping[tuple[str, str], bool]
    bound: Mapping[str, frozenset[str] | None]


def merge_once(
    child: Statement,
    parent: Statement,
    parent_base: str,
    names: ModelNames,
    ancestors: Mapping[str, frozenset[str]],
    siblings: Mapping[str, str],
    settings: Settings,
    module_names: frozenset[str],
    is_set_above: Callable[[str, str], bool],
    binds: Callable[[str], frozenset[str] | None],
    added: AddedDecorators,
    in_front: Mapping[str, tuple[str, ...] | None],
) -> Merged:
    """`merge_class`, or its result for the same classes where all questions have the same answers still.

    Of the names of the module and of the ancestors only those are looked at that the two classes can ask for.
    """
    named = module_names & (child.uses | parent.uses)
    above = {base: ancestors[base] for base in child.bases if base in ancestors}
    classes = (child.text, parent.text, parent.name, parent_base, names)
    known = _known_merges(
        classes,
        frozenset(above.items()),
        frozenset(siblings.items()),
        settings,
        named,
        added,
        frozenset(in_front.items()),
    )
    for one in known:
        if all(is_set_above(*asked) == told for asked, told in one.set_above.items()) and all(
            binds(base) == told for base, told in one.bound.items()
        ):
            return one.merged
    set_above: dict[tuple[str, str], bool] = {}
    bound: dict[str, frozenset[str] | None] = {}

    def asks_above(method: str, attribute: str) -> bool:
        return set_above.setdefault((method, attribute), is_set_above(method, attribute))

    def asks_bound(base: str) -> frozenset[str] | None:
        return bound.setdefault(base, binds(base))

    merged = merge_class(*classes, above, siblings, settings, named, asks_above, asks_bound, added, in_front)
    known.append(_KnownMerge(merged, set_above, bound))
    return merged


@functools.lru_cache(maxsize=256)
def _known_merges(*key: object) -> list[_KnownMerge]:
    """The merges of one child and one parent."""
    return []
