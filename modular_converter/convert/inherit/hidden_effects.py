"""What a statement does to attributes by the methods and properties of its class that it uses."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from modular_converter.convert.inherit.effects import Effects, effects_of
from modular_converter.convert.inherit.scopes import Function, dotted
from modular_converter.facts.nodes import walk


NOTHING = Effects(frozenset(), frozenset(), frozenset())


class HiddenEffects:
    """The effects of the methods of one class, with those of the methods that they use. Methods of bases are not seen."""

    def __init__(self, methods: Mapping[str, Sequence[Function]], instance: str) -> None:
        """`methods` has the functions behind each name: the child's and the parent's."""
        self._methods = methods
        self._instance = instance
        self._known: dict[str, Effects] = {}

    def of(self, effects: Effects) -> Effects:
        """What a statement with these effects reads and changes by the methods that it uses, as paths of the instance."""
        used = {path.split(".")[1] for path in effects.reads if path.startswith(f"{self._instance}.")}
        return _together([self._of_method(name) for name in sorted(used & self._methods.keys())])

    def _of_method(self, name: str) -> Effects:
        """The effects of a method and of all that it uses."""
        if name not in self._known:
            found: dict[str, Effects] = {}
            todo = [name]
            while todo:
                one = todo.pop()
                if one not in found:
                    found[one] = _together([self._own(function) for function in self._methods[one]])
                    used = {path.split(".")[1] for path in found[one].reads}
                    todo += sorted(used & self._methods.keys())
            self._known[name] = _together(list(found.values()))
        return self._known[name]

    def _own(self, function: Function) -> Effects:
        """What the body of one method does to attributes of its instance, under the name that the instance has here."""
        arguments = [*function.args.posonlyargs, *function.args.args]
        if not arguments:
            return NOTHING
        start = f"{arguments[0].arg}."

        def attributes(paths: frozenset[str]) -> frozenset[str]:
            return frozenset(f"{self._instance}.{path[len(start) :]}" for path in paths if path.startswith(start))

        return Effects(*map(attributes, effects_of(*function.body)))


def _together(some: Sequence[Effects]) -> Effects:
    return Effects(*(frozenset().union(*paths) for paths in zip(*some))) if some else NOTHING


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
