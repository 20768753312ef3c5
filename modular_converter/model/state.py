"""Objects that code changes while it runs: what it fills, and values that remember something from one use to the next."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from modular_converter.model.bindings import (
    MUTATORS,
    Function,
    attributes_set,
    bindings_in,
    instance_of,
    object_of,
    own_nodes,
    parameters_of,
    signature_of,
)
from modular_converter.model.nodes import decorator_path, dotted, walk, written


IMMUTABLE = frozenset(
    ["bool", "bytes", "complex", "float", "frozenset", "int", "property", "range", "slice", "str", "tuple"]
)
"""The calls whose result nothing can change."""
CACHES = frozenset({"cache", "lru_cache"})
"""The decorators that keep results."""
_MAKING = frozenset(["__init__", "__init_subclass__", "__new__", "__post_init__", "__set_name__"])
"""The methods that set up an object or a class."""

Find = Callable[[str], ast.AST | None]
"""Gives the function or class that a module has under a name."""


def is_mutable(value: object) -> bool:
    """Whether an expression makes an object that can be changed."""
    if isinstance(value, ast.Call):
        return written(value.func).rpartition(".")[2] not in IMMUTABLE
    return isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp))


def filled(nodes: Sequence[ast.AST], *, with_given: bool = False) -> Iterator[ast.expr]:
    """The objects that nodes change by an index or as a list, a dictionary or a set, and iterators that they take from: this is
    more than setting the object up, as `self.places.requires_grad_(False)` does.

    Args:
        with_given: also what such a method is given: `list.append(rows, 1)` changes it, `found.append(rows)` lets it be changed.
    """
    for part in nodes:
        match part:
            case ast.Subscript(owner, _, ast.Store() | ast.Del()):
                yield object_of(owner)
            case ast.Call(ast.Attribute(owner, name), given) if name in MUTATORS:
                yield from map(object_of, (owner, *given) if with_given else (owner,))
            case ast.Call(ast.Name("next"), [owner, *_]):
                yield object_of(owner)


def fills(node: ast.AST, path: str) -> bool:
    """Whether code changes what the object at a path holds, or lets others do so: see `filled`."""
    return any(dotted(one) == path for one in filled(walk(node), with_given=True))


def _changed(function: Function | ast.Lambda) -> set[str]:
    """The names whose objects a function changes or gives attributes, and those around it that it sets."""
    nodes = walk(*(function.body if isinstance(function.body, list) else [function.body]))
    stores = (one.value for one in nodes if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load))
    around = (name for one in nodes if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names)
    return {dotted(object_of(one)).partition(".")[0] for one in (*filled(nodes), *stores)}.union(around) - {""}


def changes_state(function: Function) -> bool:
    """Whether a function, or a method without an instance, sets or fills something other than its local names."""
    return bool(_changed(function) - (bindings_in(function).local - {instance_of(function)}))


def returned(function: Function) -> list[Function | ast.Lambda]:
    """The functions within one that it names or writes in what it returns."""
    nodes = own_nodes(function)
    given = walk(*(one for one in nodes if isinstance(one, ast.Return)))
    names = {one.id for one in given if isinstance(one, ast.Name)}
    inner = [one for one in nodes if isinstance(one, Function) and one.name in names]
    return [*inner, *(one for one in given if isinstance(one, ast.Lambda))]


def filled_defaults(function: Function | ast.Lambda) -> Iterator[str]:
    """The parameters whose default is an object that a function changes."""
    effects = bindings_in(function).effects
    for one in signature_of(function.args).parameters.values() if effects.objects_changed else ():
        if one.name in effects.objects_changed - effects.binds and is_mutable(one.default):
            yield one.name


def remembers(value: ast.AST | None, find: Find) -> bool:
    """Whether a value, as an expression or a definition, keeps something from one use to the next that is not seen where it is used:
    a counter, a table of results.
    """
    match value:
        case ast.Lambda():
            return any(filled_defaults(value))
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return any(filled_defaults(value)) or any(_keeps_calls(one, value, find) for one in value.decorator_list)
        case ast.Attribute(owner, "__next__"):
            return is_mutable(owner)
        case ast.Call(function, given):
            functions = (find(dotted(one)) for one in given if dotted(one))  # `partial(put, [])`
            fills_given = any(isinstance(one, Function) and _changed(one) & parameters_of(one) for one in functions)
            return (
                _makes_what_remembers(find(dotted(function)))
                or (fills_given and any(map(is_mutable, given)))
                or any(remembers(one, find) for one in given)
            )
    return False


def _keeps_calls(decorator: ast.expr, function: Function, find: Find) -> bool:
    """Whether what a decorator makes of a function remembers its calls: a cache only matters where results can be told apart."""
    path = decorator_path(decorator)
    if path.rpartition(".")[2] not in CACHES:
        return _makes_what_remembers(find(path))
    results = (one.value for one in own_nodes(function) if isinstance(one, ast.Return))
    return changes_state(function) or any(map(is_mutable, results))


def _makes_what_remembers(made: ast.AST | None) -> bool:
    """Whether the instances of a class change in their methods, or the functions that a function returns change what is its."""
    if isinstance(made, ast.ClassDef):
        methods = (one for one in made.body if isinstance(one, Function) and one.name not in _MAKING)
        return any(attributes_set(one) or instance_of(one) in _changed(one) for one in methods)
    if not isinstance(made, Function):
        return False
    own = bindings_in(made).local
    return any(
        _changed(one) & (own - bindings_in(one).local) or (isinstance(one, Function) and _makes_what_remembers(one))
        for one in returned(made)
    )
