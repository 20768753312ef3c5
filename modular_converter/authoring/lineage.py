"""The models that a model comes from, as comments on copies, imports and modular files tell."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping


_IN_COMMENT = re.compile(r"^[ \t]*#.*\bfrom (?:[\w.]+\.)?models\.(\w+)\.", re.MULTILINE)
"""`# Copied from transformers.models.bert.modeling_bert.BertLayer`, or `# Adapted from …`."""
_IN_IMPORT = re.compile(r"^[ \t]*from \.\.(?:\.models\.)?(\w+)(?:\.\w+)* import\b", re.MULTILINE)
"""`from ..superpoint import SuperPointConfig`: a model is built on those that it imports."""


def models_named(text: str) -> list[str]:
    """The folders of the models that a file names as the origin of its code, or imports from; sorted."""
    return sorted({*_IN_COMMENT.findall(text), *_IN_IMPORT.findall(text)})


def ancestors(named: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
    """For each model the models that it comes from, directly or not. Models that name each other, directly or not, tell
    nothing about their age.

    Args:
        named: model -> the models that its own files name.
    """
    reached = {model: _reached(model, named) for model in named}
    return {
        model: frozenset(other for other in found if model not in reached.get(other, ()))
        for model, found in reached.items()
    }


def _reached(model: str, named: Mapping[str, Collection[str]]) -> set[str]:
    found: set[str] = set()
    todo: list[str] = [model]
    while todo:
        new: Iterable[str] = [other for other in named.get(todo.pop(), ()) if other not in found]
        found.update(new)
        todo += new
    return found
