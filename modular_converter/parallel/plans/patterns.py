"""Patterns of paths: ``*`` stands for the number of a layer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


_LAYER = re.compile(r"(^|\.)\d+(?=\.|$)")


def wildcard(path: str) -> str:
    """``layers.0.mlp`` -> ``layers.*.mlp``, the same for paths that differ only in numbers of layers."""
    return _LAYER.sub(r"\1*", path)


def first_number_wild(path: str) -> str:
    """``h.0.ffn.2`` -> ``h.*.ffn.2``, the same for one place in all layers, but not for members of a sequence."""
    return _LAYER.sub(r"\1*", path, count=1)


def matches(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that match a pattern, in which ``*`` stands for a number."""
    if "*" not in pattern:
        return [name for name in names if name == pattern]
    expression = re.compile(re.escape(pattern).replace(r"\*", r"\d+"))
    return [name for name in names if expression.fullmatch(name)]


def is_inside(name: str, part: str) -> bool:
    """Whether a path is a part or inside of it; the empty path is the whole model."""
    return not part or name == part or name.startswith(f"{part}.")


def names_of_parts(model: Any) -> list[str]:
    """The paths of a model's modules and the names of its parameters, which patterns can match."""
    modules = [path for path, _ in model.named_modules()]
    return modules + [name for name, _ in model.named_parameters(remove_duplicate=False)]


def entries_for(entries: Mapping[str, str], model: Any) -> dict[str, str]:
    """The entries of a transformers plan whose patterns match a part of the model."""
    names = names_of_parts(model)
    return {pattern: style for pattern, style in entries.items() if matches(pattern, names)}


@dataclass(frozen=True)
class SomeLayers:
    """Parts of a model that were changed, and similar parts that were not."""

    paths: tuple[str, ...]
    others: tuple[str, ...]

    @staticmethod
    def of(paths: Collection[str], model: Any) -> SomeLayers:
        """The parts at ``paths`` among the modules of a model."""
        patterns = {wildcard(path) for path in paths}
        known = (path for path, _ in model.named_modules() if wildcard(path) in patterns)
        return SomeLayers(tuple(paths), tuple(path for path in known if path not in paths))

    def same_in(self, model: Any) -> list[str]:
        """The parts of a small instance to change in the same way.

        These are parts with the names of changed parts, and parts in layers that the model lacks; if a pattern matches none
        of these, all its matches.
        """
        patterns = {wildcard(path) for path in self.paths}
        like = [path for path, _ in model.named_modules() if wildcard(path) in patterns]
        found = {path for path in like if path not in self.others}
        missing = patterns - {wildcard(path) for path in found}
        return [path for path in like if path in found or wildcard(path) in missing]
