"""The decorators of an override: its own, the parent's, or the parent's and those that it adds."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from modular_converter.convert.inherit.calls import is_super_statement
from modular_converter.model.bindings import Function, is_generator
from modular_converter.model.nodes import dotted


CONTEXTS = frozenset({"contextmanager", "asynccontextmanager"})
"""The decorators that make context managers of generators."""
NO_DECORATORS = "no_inherit_decorator"
"""The decorator of an override that takes none from the parent."""


@dataclass(frozen=True)
class AddedDecorators:
    """The decorators that an override adds: one with no others keeps those of the parent's method."""

    names: tuple[str, ...] = ()
    """`Settings.added_decorators`."""
    own: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The other names under which the modular file imports functions, each with the function's own."""
    inherited: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The same of the parent's module."""

    def keeps_inherited(self, function: Function) -> bool:
        """Whether an override has no decorators but those that it adds."""
        return all(self._is_one(one, self.own) for one in function.decorator_list)

    def gives_way(self, decorator: ast.expr) -> bool:
        """Whether a decorator of the parent's method is one of these, which its heirs' own take the place of."""
        return self._is_one(decorator, self.inherited)

    def _is_one(self, decorator: ast.expr, aliases: Mapping[str, str]) -> bool:
        path = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        return aliases.get(path, path).rpartition(".")[2] in self.names


NOTHING_ADDED = AddedDecorators()


def inherited_decorators(
    function: Function, parent: Function, added: AddedDecorators = NOTHING_ADDED
) -> list[ast.expr]:
    """The decorators of the parent's method that an override takes over: none if it has others than those it adds.

    Those that its parameters contradict are left out, `@abstractmethod`, since an override is concrete, and
    `@contextmanager` over a method that yields nothing.
    """
    if not parent.decorator_list or not added.keeps_inherited(function):
        return []
    positional = [*function.args.posonlyargs, *function.args.args]
    first = positional[0].arg if positional else ""
    contradicted = {"abstractmethod"}
    if first == "self":
        contradicted |= {"classmethod", "staticmethod"}
    if len(positional) - len(function.args.defaults) > 1:
        contradicted |= {"property", "cached_property"}
    named = [(one, ast.unparse(one).rpartition(".")[2]) for one in parent.decorator_list]
    takes_body = any(is_super_statement(node, function.name) for node in function.body)
    if not (takes_body or CONTEXTS.isdisjoint(dict(named).values()) or is_generator(function)) and is_generator(
        parent
    ):
        contradicted |= CONTEXTS
    return [
        one
        for one, name in named
        if name not in contradicted and not (function.decorator_list and added.gives_way(one))
    ]


def first_parameter(function: Function, parent: Function | None = None, added: AddedDecorators = NOTHING_ADDED) -> str:
    """The parameter that holds the instance or the class; "" for a method in which `super()` has no instance.

    An override may take the decorators of `parent`.
    """
    inherited = inherited_decorators(function, parent, added) if parent is not None else []
    positional = [*function.args.posonlyargs, *function.args.args]
    is_static = any(ast.unparse(one) == "staticmethod" for one in (*inherited, *function.decorator_list))
    return positional[0].arg if positional and not is_static else ""
