"""A class as its members: its methods as syntax trees, and the names that it binds."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from modular_converter.model.bindings import FUNCTIONS, Bindings, Function, bindings_in, instance_of
from modular_converter.model.nodes import dotted, parse, super_attribute, walk


SUPER_KWARGS = "super_kwargs"
"""The parameter `**super_kwargs` stands for the parent's parameters."""


class SuperCall(NamedTuple):
    """A call `super().method(…)`."""

    node: ast.Call
    method: str


@dataclass(frozen=True)
class Method:
    """A method of a class."""

    node: Function

    @property
    def name(self) -> str:
        """The name after `def`."""
        return self.node.name

    @cached_property
    def instance(self) -> str:
        """See `instance_of`."""
        return instance_of(self.node)

    @cached_property
    def bindings(self) -> Bindings:
        """What it does with names."""
        return bindings_in(self.node)

    @property
    def super_kwargs(self) -> ast.arg | None:
        """The parameter `**super_kwargs`, which stands for the parameters of the parent's method."""
        parameter = self.node.args.kwarg
        return parameter if parameter is not None and parameter.arg == SUPER_KWARGS else None

    @cached_property
    def super_calls(self) -> tuple[SuperCall, ...]:
        """All calls `super().method(…)`, those in nested functions included."""
        calls = ((node, super_method(node)) for node in walk(self.node) if isinstance(node, ast.Call))
        return tuple(SuperCall(node, method) for node, method in calls if method)

    @cached_property
    def _super_statement(self) -> int | None:
        statements = enumerate(self.node.body)
        return next((number for number, node in statements if super_method(statement_value(node)) == self.name), None)

    @property
    def replaced_call(self) -> ast.expr | None:
        """The call `super().<this method>(…)` that the converter replaces by the parent's body.

        It is the first one that is a whole statement, or all that a statement returns.
        """
        return None if self._super_statement is None else statement_value(self.node.body[self._super_statement])

    @property
    def is_stub(self) -> bool:
        """Whether it only raises an `AttributeError`. Such a property serves `hasattr` and is no stub."""
        if self.node.decorator_list:
            return False
        first, *rest = self.node.body
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and rest:
            first, *rest = rest
        return isinstance(first, ast.Raise) and not rest and makes_attribute_error(first.exc)

    @property
    def deletions(self) -> Iterator[ast.Attribute]:
        """The targets of `del self.x` behind the replaced call: the converter removes the parent's `self.x = …`."""
        if self._super_statement is None:
            return
        for node in self.node.body[self._super_statement + 1 :]:
            targets = node.targets if isinstance(node, ast.Delete) else []
            yield from (target for target in targets if isinstance(target, ast.Attribute) and self.owns(target))

    @property
    def only_raises(self) -> bool:
        """Whether its body begins with `raise`, as that of a stub which removes the parent's method does."""
        return isinstance(self.node.body[0], ast.Raise)

    @property
    def assigned(self) -> set[str]:
        """The attributes of the instance that statements at the top level of the body assign first."""
        return set().union(*map(self.assigned_by, self.node.body))

    def owns(self, node: ast.Attribute) -> bool:
        """Whether this is an attribute of the instance: `self.x`."""
        return self.instance != "" and dotted(node.value) == self.instance

    def assigned_by(self, node: ast.stmt) -> set[str]:
        """The attribute of the instance that a statement assigns first, if any."""
        return {one.attr for one in _targets(node)[:1] if isinstance(one, ast.Attribute) and self.owns(one)}

    def reads(self, attribute: str) -> bool:
        """Whether it reads an attribute of the instance."""
        return f"{self.instance}.{attribute}" in self.bindings.read_paths

    def calls(self, method: str) -> bool:
        """Whether it calls another method of the instance."""
        path = f"{self.instance}.{method}"
        return any(dotted(call.func) == path for scope in self.bindings.everywhere for call in scope.calls)

    def binds(self, attribute: str) -> bool:
        """Whether it sets an attribute of the instance, which it need not have before as `self.x += 1` does."""
        path = f"{self.instance}.{attribute}"
        return any(dotted(node) == path for scope in self.bindings.everywhere for node in scope.sets)


@dataclass(frozen=True)
class Members:
    """A class as its members."""

    node: ast.ClassDef

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """The methods in order; a property and its setter are two methods of one name."""
        return tuple(Method(node) for node in self.node.body if isinstance(node, Function))

    @cached_property
    def hidden_super_calls(self) -> tuple[SuperCall, ...]:
        """The calls `super().method(…)` outside of `methods`: in a method under `if`, or in a lambda."""
        todo: list[ast.AST] = [node for node in self.node.body if not isinstance(node, Function)]
        found: list[SuperCall] = []
        while todo:
            node = todo.pop()
            if not isinstance(node, ast.ClassDef):  # inside of an inner class `super()` means the bases of that class
                found += (
                    [SuperCall(node, method)] if isinstance(node, ast.Call) and (method := super_method(node)) else []
                )
                todo += ast.iter_child_nodes(node)
        return tuple(sorted(found, key=lambda call: (call.node.lineno, call.node.col_offset)))

    @cached_property
    def by_name(self) -> Mapping[str, Method]:
        """The methods by name; of several with one name the last."""
        return {method.name: method for method in self.methods}

    @cached_property
    def bindings(self) -> Bindings:
        """What its body does with names."""
        return bindings_in(self.node)

    @property
    def names(self) -> frozenset[str]:
        """The names that the statements of the class bind or declare, on some condition or on none."""
        return self.bindings.binds | self.bindings.declares

    @cached_property
    def base_names(self) -> frozenset[str]:
        """The names that occur in its bases."""
        return frozenset(node.id for base in self.node.bases for node in walk(base) if isinstance(node, ast.Name))

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing but `pass`."""
        return all(isinstance(node, ast.Pass) for node in self.node.body)

    @property
    def removals(self) -> Iterator[ast.Name]:
        """The targets of `x = AttributeError(…)`, which removes the parent's `x`."""
        return self._names_assigned(makes_attribute_error)

    @property
    def named_exceptions(self) -> Iterator[ast.Name]:
        """The targets of `x = AttributeError`, which removes nothing."""
        return self._names_assigned(lambda value: getattr(value, "id", "") == "AttributeError")

    def _names_assigned(self, wanted: Callable[[ast.AST | None], bool]) -> Iterator[ast.Name]:
        """The first targets of the assignments of some values, where they are plain names."""
        for node in self.node.body:
            if wanted(getattr(node, "value", None)):
                yield from (target for target in _targets(node)[:1] if isinstance(target, ast.Name))

    def binds(self, attribute: str) -> bool:
        """Whether instances have an attribute from this class: assigned, defined, or registered under its name."""
        if attribute in self.names:
            return True
        functions = (one.node for one in self.bindings.inner if isinstance(one.node, FUNCTIONS))
        if any(Method(node).binds(attribute) for node in functions):
            return True
        return any(_registers(call, attribute) for scope in self.bindings.everywhere for call in scope.calls)


def makes_attribute_error(value: ast.AST | None) -> bool:
    """Whether this is `AttributeError(…)`: assigned or raised in a child, it takes a member of the parent away."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "AttributeError"


@functools.lru_cache(maxsize=128)
def class_node(text: str) -> ast.ClassDef:
    """The syntax tree of a class, which must not be changed: the merge and the checks of rules share it."""
    node = parse(text).body[0]  # changes of the class may stand below it
    assert isinstance(node, ast.ClassDef)
    return node


@functools.lru_cache(maxsize=128)
def names_in_class(text: str) -> frozenset[str]:
    """The names that the statements of a class bind: many classes have the same ancestors."""
    return Members(class_node(text)).names


def super_method(node: ast.AST | None) -> str:
    """The method that `super().method(…)` calls; "" for any other expression."""
    return super_attribute(node.func) if isinstance(node, ast.Call) else ""


def statement_value(node: ast.stmt) -> ast.expr | None:
    """The value of an expression or a `return`, without its `await` or `yield from`."""
    value = node.value if isinstance(node, (ast.Expr, ast.Return)) else None
    return value.value if isinstance(value, (ast.Await, ast.YieldFrom)) else value


def _targets(node: ast.stmt) -> list[ast.expr]:
    """The targets of an assignment; none of any other statement."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def _registers(node: ast.Call, attribute: str) -> bool:
    """Whether this is a call such as `self.register_buffer("x", …)` or `setattr(self, "x", …)`."""
    return any(isinstance(one, ast.Constant) and one.value == attribute for one in node.args[:2])
