"""Changes of a model's settings between calls, so that the ranks make them too."""

from __future__ import annotations

import functools
import pickle
import types
from collections.abc import Iterator, Mapping
from typing import Any

from modular_converter.parallel.errors import ApplyError


# For an object in the settings: the attributes that lead to it, its new values by name, the names that it lost.
Change = tuple[tuple[str, ...], dict[str, Any], list[str]]


def settings_of(model: Any) -> types.SimpleNamespace:
    """The settings that a caller may change between calls: ``config`` and ``generation_config``, if there are any."""
    names = ("config", "generation_config")
    return types.SimpleNamespace(**{name: model.__dict__[name] for name in names if name in model.__dict__})


def pickled(settings: Any) -> bytes:
    try:
        return pickle.dumps(settings, protocol=5)
    except Exception as error:  # pickle raises what the object's own code raises
        raise ApplyError(f"the model's settings cannot be sent to the ranks: {error}") from error


def settings_changes(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[Change]:
    """The differences of settings, by object in them."""
    before, after = vars(old), vars(new)
    values = {}
    for name, value in after.items():
        known = before.get(name)
        if type(known) is type(value) and _is_config(value):
            yield from settings_changes(known, value, (*path, name))
        elif name not in before or pickled(known) != pickled(value):
            values[name] = value
    gone = [name for name in before if name not in after]
    if values or gone:
        yield path, values, gone


def _is_config(value: Any) -> bool:
    return "Config" in type(value).__name__ and hasattr(value, "__dict__") and not isinstance(value, Mapping)


def apply_changes(model: Any, copies: list[tuple[Any, Any]], changes: list[Change]) -> None:
    """Make changes of settings in a rank's model.

    Args:
        copies: objects in the settings, and the copies that modules have instead, with some numbers of a share.
    """
    for path, values, gone in changes:
        scope = functools.reduce(getattr, path, model)
        same = [vars(made) for was, made in copies if was is scope]
        for name in (*values, *gone):
            old = vars(scope).get(name)
            for target in (*(made for made in same if made.get(name) == old), vars(scope)):
                target.pop(name, None)
                if name in values:
                    target[name] = values[name]
