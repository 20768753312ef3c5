"""What a statement does to attributes by the methods and properties of its class that it uses."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from modular_converter.convert.inherit.calls import super_attribute
from modular_converter.convert.inherit.effects import Effects, effects_of
from modular_converter.convert.inherit.scopes import Function, dotted
from modular_converter.facts.nodes import walk


NOTHING = Effects(frozenset(), frozenset(), frozenset())


class HiddenEffects:
    """The effects of the methods of one class, with those of the methods that they use.

    What methods of bases do is not known: it may concern every attribute.
    """

    def __init__(self, methods: Mapping[str, Sequence[Function]], instance: str, is_init: bool = False) -> None:
        """`methods` has the functions behind each name: the child's and the parent's.

        Only of `__init__` is it said what calls of unknown methods do: elsewhere `self.mlp(x)` mostly calls a module.
        """
        self._methods = methods
        self._is_init = is_init
        self._instance = instance
        self._known: dict[str, Effects] = {}

    def of(self, effects: Effects) -> Effects:
        """What a statement with these effects reads and changes by the methods that it uses, as paths of the instance."""
        used = {path.split(".")[1] for path in effects.reads if path.startswith(f"{self._instance}.")}
        return _together([self._of_method(name) for name in sorted(used & self._methods.keys())])

    def may_set_any(self, node: ast.AST, effects: Effects) -> bool:
        """Whether a statement, or a method that it uses, may set any attribute: `setattr(self, key, value)`."""
        if hands_over(node, self._instance) or _sets_any(node, self._instance):
            return True
        return any(
            _sets_any(function, argument)
            for name in self._used(effects)
            for function in self._methods[name]
            for argument in _instance_of(function)
        )

    def may_read_any(self, node: ast.AST, effects: Effects) -> bool:
        """Whether a statement, or a method that it uses, may read any attribute: `count(self)`, `self.__dict__`."""
        if _reads_any(node, self._instance) or (self._is_init and self._calls_base(node)):
            return True
        return any(
            _reads_any(part, argument)
            for name in self._used(effects)
            for function in self._methods[name]
            for argument in _instance_of(function)
            for part in function.body
        )

    def _calls_base(self, node: ast.AST) -> bool:
        """Whether a statement calls a method that only a base can have, or one of a base: `super().parameters()`."""
        return any(
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and (
                super_attribute(part.func) not in ("", "__init__")
                or (dotted(part.func.value) == self._instance and part.func.attr not in self._methods)
            )
            for part in walk(node)
        )

    def _used(self, effects: Effects) -> set[str]:
        """The methods that a statement uses, with those that these use."""
        found: set[str] = set()
        todo = [path.split(".")[1] for path in effects.reads if path.startswith(f"{self._instance}.")]
        while todo:
            name = todo.pop()
            if name in self._methods and name not in found:
                found.add(name)
                own = (self._own(function) for function in self._methods[name])
                todo += (path.split(".")[1] for one in own for path in one.reads)
        return found

    def _of_method(self, name: str) -> Effects:
        """The effects of a method and of all that it uses."""
        if name not in self._known:
            reads = frozenset((f"{self._instance}.{name}",))
            used = sorted(self._used(Effects(reads, frozenset(), frozenset())))
            self._known[name] = _together([self._own(function) for one in used for function in self._methods[one]])
        return self._known[name]

    def _own(self, function: Function) -> Effects:
        """What the body of one method does to attributes of its instance, under the name that the instance has here."""
        start = next((f"{argument}." for argument in _instance_of(function)), "")
        if not start:
            return NOTHING

        def attributes(paths: frozenset[str]) -> frozenset[str]:
            return frozenset(f"{self._instance}.{path[len(start) :]}" for path in paths if path.startswith(start))

        return Effects(*map(attributes, effects_of(*function.body)))


def _together(some: Sequence[Effects]) -> Effects:
    return Effects(*(frozenset().union(*paths) for paths in zip(*some))) if some else NOTHING


def _instance_of(function: Function) -> list[str]:
    """The first parameter, as a list of one or none."""
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args)][:1]


def _reads_any(node: ast.AST, instance: str) -> bool:
    if hands_over(node, instance):
        return True
    return any(isinstance(part, ast.Attribute) and dotted(part) == f"{instance}.__dict__" for part in walk(node))


def _sets_any(node: ast.AST, instance: str) -> bool:
    """Whether code sets attributes of an instance whose names it does not say."""
    holders = (f"{instance}.__dict__", f"vars({instance})")
    for part in walk(node):
        if isinstance(part, ast.Call) and dotted(part.func) == "setattr" and len(part.args) == 3:
            if dotted(part.args[0]) == instance and not isinstance(part.args[1], ast.Constant):
                return True
        elif isinstance(part, (ast.Attribute, ast.Subscript)) and ast.unparse(part.value) in holders:
            return True
    return False


def hands_over(node: ast.AST, name: str) -> bool:
    """Whether a statement gives an object away as a whole, as in `count(self)`; not by `super(New, self)`."""
    parts = list(walk(node))
    held = {id(part.value) for part in parts if isinstance(part, ast.Attribute)}
    held |= {
        id(one) for part in parts if isinstance(part, ast.Call) and dotted(part.func) == "super" for one in part.args
    }
    return any(_is_read(part, name) and id(part) not in held for part in parts)


def _is_read(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
