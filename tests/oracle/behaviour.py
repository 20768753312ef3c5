"""The behaviour of classes: modules are executed, classes are built and called, and the results are plain values.

Executed code is that of our own random programs, never a stranger's.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


Observation = dict[str, object]
"""What was asked of a class -> the answer, as a plain value that can be compared."""

MODEL = re.compile(r"(?i)emu_?text|emu|llama|bert")
PRIVATE = re.compile(r"^_[^\W_]\w*?__(?:parents\d*_)?(?=\w)")
MISSING = ("missing",)
CONSTRUCTIONS: tuple[dict[str, object], ...] = ({}, {"config": 7, "size": 1}, {"config": 1, "size": 6, "flag": True})
ARGUMENTS = (4, 2, 8, 6)
SPECIAL = frozenset({"__call__", "__len__", "__eq__"})
"""The special methods that programs define, and that are called as other methods are."""


def neutral(text: str) -> str:
    """A text in which every model is called the same, since the conversion renames them."""
    return MODEL.sub("~", text)


@contextmanager
def executed(package: str, modules: Mapping[str, str]) -> Iterator[dict[str, types.ModuleType | Exception]]:
    """Modules, executed in order as parts of a package; one that raises is its exception.

    Args:
        modules: dotted name below the package -> text.
    """
    loaded: dict[str, types.ModuleType | Exception] = {}
    names: list[str] = []
    try:
        for dotted, text in modules.items():
            name = f"{package}.{dotted}"
            parents = [name[: match.start()] for match in re.finditer(r"\.", name)]
            for parent in (one for one in parents if one not in sys.modules):
                sys.modules[parent] = types.ModuleType(parent)
                sys.modules[parent].__path__ = []
                names.append(parent)
            loaded[dotted] = _execute(name, text)
            names.append(name)
        yield loaded
    finally:
        for name in names:
            sys.modules.pop(name, None)


def _execute(name: str, text: str) -> types.ModuleType | Exception:
    module = types.ModuleType(name)
    module.__package__ = name.rpartition(".")[0]
    sys.modules[name] = module
    try:
        exec(compile(text, f"<{name}>", "exec"), vars(module))
    except Exception as error:
        sys.modules.pop(name)
        return error
    return module


def observe(cls: type, like: type) -> Observation:
    """The behaviour of a class, asked of it as of the class `like`, whose members and signatures count."""
    seen: Observation = {}
    for arguments in CONSTRUCTIONS:
        accepted = _accepted(like, arguments)
        seen[f"{{}}({_words(accepted)})"] = plain(_outcome(lambda given=accepted: cls(**given)))
    for name in sorted(public_names(like)):
        found = inspect.getattr_static(like, name)
        if isinstance(found, (property, functools.cached_property)):
            seen[f".{name}"] = _on_instance(cls, lambda one, name=name: getattr(one, name))
            seen[f".{name} = 3"] = _on_instance(cls, lambda one, name=name: setattr(one, name, 3))
        elif callable(getattr(like, name, None)) and not isinstance(found, type):
            for call, positional, named in _calls(like, name):
                seen[f".{name}({call})"] = _on_instance(cls, _caller(name, positional, named))
        else:
            seen[name] = plain(_outcome(lambda name=name: getattr(cls, name)))
    return seen


def public_names(cls: type) -> set[str]:
    """The members that the program gave the class or its bases, but for slots: they are there for instances alone."""
    members = [(name, value) for base in cls.__mro__[:-1] for name, value in vars(base).items()]
    asked = (one for one in members if not isinstance(one[1], types.MemberDescriptorType))
    return {name for name, _ in asked if not name.startswith("_") or name in SPECIAL}


class _Removed:
    """A class attribute without that of the parent: what the parent's own bases have shows again."""

    def __init__(self, name: str, cls: type) -> None:
        self.name, self.cls = name, cls

    def __get__(self, instance: object, owner: type) -> object:
        behind = itertools.islice(owner.__mro__, owner.__mro__.index(self.cls) + 1, None)
        parents = [base for base in self.cls.__bases__ if ".modeling_" in base.__module__]
        found = [base for base in behind if self.name in vars(base) and base not in parents]
        if not found:
            raise AttributeError(self.name)
        value = vars(found[0])[self.name]
        return value.__get__(instance, owner) if hasattr(value, "__get__") else value


def carry_out_removals(cls: type) -> None:
    """Take away what `x = AttributeError()` says is removed, which Python does not know: inherited code misses it too."""
    for name, value in [*vars(cls).items()]:
        if isinstance(value, AttributeError):
            setattr(cls, name, _Removed(name, cls))


def _accepted(cls: type, arguments: dict[str, object]) -> dict[str, object]:
    names = _parameters(cls, "__init__")
    return {name: value for name, value in arguments.items() if name in names}


def _parameters(cls: type, method: str) -> dict[str, inspect.Parameter]:
    """The named parameters of a method, and those of the parents' where it hands on `**super_kwargs` or `**kwargs`."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        function = getattr(vars(base).get(method), "__func__", vars(base).get(method))
        if not inspect.isfunction(function):
            continue
        parameters = inspect.signature(function).parameters.values()
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        found = {**{one.name: one for one in parameters if one.kind in named}, **found}
        if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
            break
    found.pop("self", None)
    found.pop("cls", None)
    return found


def _calls(cls: type, name: str) -> Iterator[tuple[str, tuple[object, ...], dict[str, object]]]:
    parameters = _parameters(cls, name)
    required = [one.name for one in parameters.values() if one.default is inspect.Parameter.empty]
    if not parameters and not inspect.isfunction(inspect.getattr_static(cls, name)):
        required = ["v"]
    values = tuple(ARGUMENTS[: len(required)])
    yield _words(values), values, {}
    if parameters:
        named = dict(zip(parameters, ARGUMENTS, strict=False))
        yield _words(named), (), dict(named)


def _words(arguments: object) -> str:
    if isinstance(arguments, dict):
        return ", ".join(f"{name}={value}" for name, value in arguments.items())
    return ", ".join(map(str, arguments)) if isinstance(arguments, tuple) else ""


def _caller(name: str, positional: tuple[object, ...], named: dict[str, object]) -> Callable[[object], object]:
    return lambda one: getattr(one, name)(*positional, **named)


def _on_instance(cls: type, action: Callable[[object], object]) -> object:
    """What an action on a fresh instance gives, and what the instance is afterwards."""
    instance = _outcome(cls)
    if not isinstance(instance, cls):
        return MISSING
    result = plain(_outcome(lambda: action(instance)))
    return (result, plain(instance))


def _outcome(action: Callable[[], object]) -> object:
    try:
        return action()
    except Exception as error:
        return error


def plain(value: object, depth: int = 6) -> object:
    """A value as something that can be compared between two executions: models neutral, classes by name."""
    if isinstance(value, str):
        return neutral(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not depth:
        return "…"
    if isinstance(value, BaseException):
        # Which of the two it is depends on whether an inner function uses the unbound name, and merging may change that.
        is_unbound = isinstance(value, UnboundLocalError)
        return ("raises", "NameError" if is_unbound else type(value).__name__)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *(plain(item, depth - 1) for item in value))
    if isinstance(value, dict):
        found: dict[object, object] = {}
        for key, item in value.items():
            name, is_second = plain(_unmangled(key)), plain(_unmangled(key)) in found
            found[(name, "again") if is_second else name] = plain(item, depth - 1)
        return found
    if isinstance(value, type):
        return ("class", neutral(value.__name__), *_class_values(value, depth))
    if isinstance(value, types.GeneratorType):
        return ("yields", plain(_outcome(lambda: list(itertools.islice(value, 9))), depth - 1))
    if inspect.iscoroutine(value):
        return ("awaited", plain(_awaited(value), depth - 1))
    if isinstance(value, types.FunctionType) and value.__name__ == "<lambda>":  # it may read what is bound around it
        number = value.__code__.co_argcount
        return ("lambda", number, plain(_outcome(lambda: value(*range(1, number + 1))), depth - 1))
    if callable(value):
        return "callable"
    return ("instance", neutral(type(value).__name__), plain(getattr(value, "__dict__", {}), depth - 1))


def _unmangled(key: object) -> object:
    """A private name without that of its class, which the conversion renames: `__hidden` for `_EmuNorm__hidden`, also for
    that of the parent beside it, `_EmuNorm__parents_hidden`.
    """
    return PRIVATE.sub("__", key) if isinstance(key, str) else key


def _class_values(cls: type, depth: int) -> tuple[object, ...]:
    """The values of a nested class; those of others are looked at by themselves."""
    return (
        (plain({name: item for name, item in vars(cls).items() if name[0] != "_"}, depth - 1),)
        if "." in cls.__qualname__
        else ()
    )


def _awaited(coroutine: types.CoroutineType[object, object, object]) -> object:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    except Exception as error:
        return error
    return "waits"
