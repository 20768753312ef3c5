"""The code of a model's classes, and the module-level names that it reads: what other processes import for themselves.

A patched method or a changed constant of this process is not in them.
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from modular_converter.parallel.choice.kept_answers import function_of, hash_of_code, is_model_code, names_in
from modular_converter.parallel.engine.base.watched_state import is_data
from modular_converter.parallel.modules import is_plain, is_same_value


# Put into rewritten assertions by pytest: this code is not that of the file.
_REWRITTEN = "@pytest_ar"

Name = tuple[str, str, str]
"""Module, class (empty for names of the module), and name."""


@dataclass(frozen=True)
class CodeFacts:
    """What a process runs when it runs a model's code.

    Attributes:
        values: name -> plain value.
        code: name -> hash of a function or method.
    """

    values: dict[Name, Any] = field(default_factory=dict)
    code: dict[Name, str] = field(default_factory=dict)


class WatchedCode:
    """The classes of a model's modules, and the names that their methods read in their own modules."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.kinds = {kind: None for module in model.modules() for kind in type(module).__mro__ if is_model_code(kind)}
        names = sorted({(place, name) for kind in self.kinds for place, name in _names_of(kind)})
        self.where = names
        self.scopes = [vars(sys.modules[place]) for place, _ in names]
        self.names = [name for _, name in names]
        # The ranks import torch's own code, too; a patch of it here does not reach them.
        every = {kind: None for module in model.modules() for kind in type(module).__mro__}
        modules = (kind for kind in every if issubclass(kind, torch.nn.Module))
        torchs = [kind for kind in modules if kind.__module__.startswith("torch.nn.")]
        self.of_torch: list[tuple[str, Any]] = [(kind.__qualname__, kind) for kind in torchs]
        self.of_torch.append((torch.nn.functional.__name__, torch.nn.functional))
        self.read = {
            name
            for kind in self.kinds
            for value in vars(kind).values()
            if isinstance(function := function_of(value), FunctionType)
            for name in names_in(function.__code__, texts=True)
        }
        self.later: set[tuple[type[Any], str]] = set()
        self.unsent = False
        self.note()

    def note(self) -> None:
        """Take the code of now as the one to compare with."""
        self.members = [dict(vars(kind)) for kind in self.kinds]
        self.members_of_torch = [dict(vars(scope)) for _, scope in self.of_torch]
        self.values = list(map(dict.get, self.scopes, self.names))
        self.inside = {n: repr(value) for n, value in enumerate(self.values) if not is_plain(value) and is_data(value)}

    def changed(self) -> str:
        """A name that is no longer what it was, with both values if they are plain; empty if there is none.

        A new plain attribute of a class that its own methods do not name, such as one in which a library's base class
        keeps an answer, is no such name: ``unsent`` says that there is one which other processes do not have.
        """
        try:
            same = all(vars(kind) == members for kind, members in zip(self.kinds, self.members))
        except Exception:  # a comparison of arrays
            same = False
        now = list(map(dict.get, self.scopes, self.names))
        if not same and (found := self._changed_member()):
            return found
        for (place, scope), members in zip(self.of_torch, self.members_of_torch):
            if vars(scope) != members and (found := _other_function(vars(scope), members)):
                return f"torch's {place}.{found}"
        if all(map(operator.is_, now, self.values)) and all(repr(now[n]) == text for n, text in self.inside.items()):
            return ""
        for n, (old, new) in enumerate(zip(self.values, now)):
            if not is_same_value(old, new) or n in self.inside and repr(new) != self.inside[n]:
                return f"{'.'.join(self.where[n])}{_in_words(old, new)}"
        return ""

    def _changed_member(self) -> str:
        for kind, members in zip(self.kinds, self.members):
            for name in [*members, *(vars(kind).keys() - members.keys())]:
                old, new = members.get(name), vars(kind).get(name)
                if ((kind, name) in self.later or name not in members) and is_plain(new) and name not in self.read:
                    if name not in vars(kind):
                        del members[name]
                    elif old is not new:
                        members[name], self.unsent = new, True
                        self.later.add((kind, name))
                    continue
                if not _is_pythons(name) and not is_same_value(old, new):
                    return f"{kind.__module__}.{kind.__qualname__}.{name}{_in_words(old, new)}"
        return ""

    def facts(self) -> CodeFacts:
        """Plain values, and hashes of functions, for other processes."""
        found = CodeFacts()
        members = [((k.__module__, k.__qualname__, name), v) for k in self.kinds for name, v in vars(k).items()]
        globals_ = [((place, "", name), vars(sys.modules[place]).get(name)) for place, name in self.where]
        for where, value in members + globals_:
            if _is_pythons(where[2]):
                continue
            if is_data(value, tensors=False):
                found.values[where] = value
            elif mark := _mark(value):
                found.code[where] = mark
        return found


def take_over(facts: CodeFacts) -> list[str]:
    """Set this process's plain values as in ``facts``. Returns the names of functions that differ."""
    for where, value in facts.values.items():
        scope = _scope(where)
        if scope is not None and not is_same_value(getattr(scope, where[2], None), value):
            setattr(scope, where[2], value)
    scopes = {where: _scope(where) for where in facts.code}
    own = {where: vars(scope).get(where[2]) for where, scope in scopes.items() if scope is not None}
    return [
        ".".join(filter(None, where))
        for where, value in own.items()
        if (mark := _mark(value)) != facts.code[where] and (mark or value is None)
    ]


def _other_function(now: Any, before: dict[str, Any]) -> str:
    """The name of a function of torch that has one of others, or none, in its place; empty if there is none.

    Torch changes some itself: its compiler, when it is imported.
    """
    changed = (name for name, old in before.items() if now.get(name) is not old and not _is_pythons(name))
    other = (name for name in changed if callable(before[name]) or callable(now.get(name)))
    return next((name for name in other if not _is_of_torch(now.get(name))), "")


def _is_of_torch(value: Any) -> bool:
    """Whether torch's own code made a function, also one that bears another one's names."""
    return isinstance(value, FunctionType) and value.__globals__.get("__name__", "").startswith("torch.")


def _scope(where: Name) -> Any:
    try:
        scope: Any = importlib.import_module(where[0])
        for part in where[1].split(".") if where[1] else ():
            scope = getattr(scope, part)
    except Exception:  # the module cannot be imported here; the model's own message is better
        return None
    return scope


def _is_pythons(name: str) -> bool:
    return name.startswith("__") and name not in ("__call__", "__getattr__", "__init__") or name.startswith("_abc_")


def _in_words(old: Any, new: Any) -> str:
    return f" ({old!r} before, now {new!r})" if is_plain(old) and is_plain(new) else ""


def _names_of(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """(Module, name) of the module-level names that a class's methods read, also through functions of the same module."""
    waiting = [function_of(value) for value in vars(kind).values()]
    seen: set[int] = set()
    while waiting:
        function = waiting.pop()
        inner = getattr(function, "__wrapped__", None)
        if inner is not None:
            waiting.append(inner)
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        place, scope = function.__module__, function.__globals__
        module = sys.modules.get(place or "")
        is_models = place == kind.__module__ or place.startswith("transformers.models.")
        if module is None or vars(module) is not scope or not is_models:
            continue
        for name in names_in(function.__code__):
            if name in scope and not name.startswith("__"):
                yield place, name
                if isinstance(scope[name], FunctionType) and scope[name].__module__ == place:
                    waiting.append(scope[name])


def _mark(value: Any) -> str:
    """A hash of a function's code; empty for what is none, or whose code pytest has rewritten."""
    return hash_of_code(value, without=_REWRITTEN)
