"""Changes of a model's settings between calls, which the ranks repeat."""

from __future__ import annotations

import functools
import pickle
import types
from collections.abc import Iterator, Mapping
from typing import Any

from modular_converter.parallel.errors import ApplyError


# For an object in the settings: the attributes that lead to it, its new values by name, its removed names.
Change = tuple[tuple[str, ...], dict[str, Any], list[str]]


def settings_of(model: Any) -> types.SimpleNamespace:
    """The settings that a caller may change between calls: ``config`` and ``generation_config``, if the model has them."""
    names = ("config", "generation_config")
    return types.SimpleNamespace(**{name: model.__dict__[name] for name in names if name in model.__dict__})


def pickled(settings: Any) -> bytes:
    try:
        return pickle.dumps(settings, protocol=5)
    except Exception as error:  # pickle raises what the object's own code raises
        raise ApplyError(f"the model's settings cannot be sent to the ranks: {error}") from error


def settings_changes(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[Change]:
    """The differences between settings, by object in them."""
    before, after = vars(old), vars(new)
    values = {}
    for name, value in after.items():
        known, kind = before.get(name), type(value)
        is_config = "Config" in kind.__name__ and hasattr(value, "__dict__") and not isinstance(value, Mapping)
        if type(known) is kind and is_config:
            yield from settings_changes(known, value, (*path, name))
        elif name not in before or pickled(known) != pickled(value):
            values[name] = value
    gone = [name for name in before if name not in after]
    if values or gone:
        yield path, values, gone


def apply_changes(model: Any, copies: list[tuple[Any, Any]], changes: list[Change]) -> None:
    """Make changes of settings in a rank's model.

    Args:
        copies: (object in the settings, copy with a share's own numbers that a module has instead).
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
