"""The effects of a statement on attributes through the methods and properties of its class."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence

from modular_converter.model.bindings import Effects, Function, bindings_of, covers, fills
from modular_converter.model.nodes import dotted, super_attribute, walk
from modular_converter.model.overriding import first_parameter


MOST_FOLLOWED = 50
"""The most methods, direct and indirect, that are followed from one: time stays proportional to the input."""
_NO_EFFECTS = Effects(frozenset(), frozenset(), frozenset())
Test = Callable[[ast.AST, str], bool]
"""A question about code in which the instance has some name."""


class HiddenEffects:
    """The effects of the methods of one class, with those of the methods that they use. Methods of bases are unknown
    and may concern every attribute.
    """

    def __init__(self, methods: Mapping[str, Sequence[Function]], instance: str, is_init: bool = False) -> None:
        """`methods` has the functions of each name: the child's and the parent's. Calls of unknown methods count only
        in `__init__`: elsewhere `self.mlp(x)` mostly calls a module.
        """
        self._methods = methods
        self._is_init = is_init
        self._instance = instance
        self._names = {f"{instance}.{name}": name for name in methods}
        self._paths = frozenset(self._names)
        self._reached: dict[str, frozenset[str]] = {}
        self._own: dict[str, Effects] = {}
        self._effects: dict[frozenset[str], Effects] = {}
        self._answers: dict[tuple[Test, str | frozenset[str]], bool] = {}

    def of(self, effects: Effects) -> Effects:
        """The paths of the instance that a statement with these effects reads and changes through the methods that it
        uses.
        """
        return _together(map(self._effects_of, self._used(effects)))

    def are_too_many(self, some: Iterable[Effects]) -> bool:
        """Whether a statement with one of these effects uses more methods than are followed."""
        if len(self._methods) <= MOST_FOLLOWED:
            return False
        return any(len(methods) > MOST_FOLLOWED for effects in some for methods in self._used(effects))

    def may_set_any(self, node: ast.AST, effects: Effects) -> bool:
        """Whether a statement, or a method that it uses, may set any attribute: `setattr(self, key, value)`."""
        if self._instance not in effects.reads:
            return False
        return hands_over(node, self._instance) or self._is_so(_sets_any, node, effects)

    def may_change_any(self, node: ast.AST, effects: Effects) -> bool:
        """Whether a statement may set any attribute, or calls a method of a base: `self.register_buffer("a", a)`."""
        return self.may_set_any(node, effects) or (self._is_init and self._calls_base(node))

    def only_sets_up(self, node: ast.AST, effects: Effects, path: str) -> bool:
        """Whether a statement, or a method that it uses, changes the object of an attribute, but neither puts another
        in its place nor changes what it holds: `self.places.requires_grad_(False)`, `self.tokenizer.decoder = decoder`.
        """
        mine, theirs = effects, self.of(effects)
        attribute = path.removeprefix(f"{self._instance}.")
        return (
            any(covers(path, changed) for changed in mine.objects_changed | theirs.objects_changed)
            and path not in mine.binds | theirs.binds
            and not self._is_so(lambda part, instance: fills(part, f"{instance}.{attribute}"), node, effects)
        )

    def may_read_any(self, node: ast.AST, effects: Effects) -> bool:
        """Whether a statement, or a method that it uses, may read any attribute: `count(self)`, `self.__dict__`."""
        if effects.reads.isdisjoint((self._instance, "super")):
            return False
        return self._is_so(_reads_any, node, effects) or (self._is_init and self._calls_base(node))

    def runs_setter(self, paths: Iterable[str]) -> bool:
        """Whether a method of the class is called where one of some attributes is set, which then counts twice."""
        set_ = [path for path in paths if path.startswith(f"{self._instance}.")]
        if "__setattr__" in self._methods:
            return bool(set_)
        functions = (one for path in set_ if path in self._names for one in self._methods[self._names[path]])
        return any(
            isinstance(by, ast.Attribute) and by.attr == "setter" for one in functions for by in one.decorator_list
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

    def _is_so(self, test: Test, node: ast.AST, effects: Effects) -> bool:
        """Whether a test holds for a statement or for a method that it uses."""
        return test(node, self._instance) or any(self._is_so_in(test, methods) for methods in self._used(effects))

    def _is_so_in(self, test: Test, methods: str | frozenset[str]) -> bool:
        """Whether a test holds for the bodies of the functions of a name, or of one of some names."""
        if (answer := self._answers.get((test, methods))) is None:
            if isinstance(methods, str):
                pairs = ((part, first_parameter(one)) for one in self._methods[methods] for part in one.body)
                answer = any(bool(instance) and test(part, instance) for part, instance in pairs)
            else:
                answer = any(self._is_so_in(test, name) for name in methods)
            self._answers[test, methods] = answer
        return answer

    def _used(self, effects: Effects) -> list[frozenset[str]]:
        """For each method that a statement uses: its name and those of the methods that it uses in turn."""
        return [self._reached_from(self._names[path]) for path in sorted(effects.reads & self._paths)]

    def _reached_from(self, name: str) -> frozenset[str]:
        if name not in self._reached:
            found, todo = {name}, [name]
            while todo and len(found) <= MOST_FOLLOWED:
                reads = self._own_effects(todo.pop()).reads
                todo += sorted({self._names[path] for path in reads & self._paths} - found)
                found.update(todo)
            self._reached[name] = frozenset(found)
        return self._reached[name]

    def _effects_of(self, methods: frozenset[str]) -> Effects:
        if methods not in self._effects:
            self._effects[methods] = _together(map(self._own_effects, sorted(methods)))
        return self._effects[methods]

    def _own_effects(self, name: str) -> Effects:
        """The effects on attributes of the instance of the functions of a name."""
        if name not in self._own:
            self._own[name] = _together(map(self._on_instance, self._methods[name]))
        return self._own[name]

    def _on_instance(self, function: Function) -> Effects:
        """The effects of a method on attributes, under the name that the instance has here."""
        start = f"{first_parameter(function)}."

        def attributes(paths: frozenset[str]) -> frozenset[str]:
            return frozenset(f"{self._instance}.{path[len(start) :]}" for path in paths if path.startswith(start))

        return Effects(*map(attributes, bindings_of(*function.body).effects)) if start != "." else _NO_EFFECTS


def _together(some: Iterable[Effects]) -> Effects:
    first, *others = [*some] or [_NO_EFFECTS]
    return Effects(*(paths.union(*more) for paths, *more in zip(first, *others))) if others else first


def _reads_any(node: ast.AST, instance: str) -> bool:
    """Whether code passes an instance to other code, or reads all its attributes."""
    return hands_over(node, instance) or any(_holds_all(part, instance) for part in walk(node))


def _sets_any(node: ast.AST, instance: str) -> bool:
    """Whether code sets attributes of an instance by computed names."""
    for part in walk(node):
        if isinstance(part, ast.Call) and dotted(part.func) == "setattr" and len(part.args) == 3:
            if dotted(part.args[0]) == instance and not isinstance(part.args[1], ast.Constant):
                return True
        elif (
            isinstance(part, ast.Attribute)
            and part.attr == "__setattr__"
            or isinstance(part, (ast.Attribute, ast.Subscript))
            and _holds_all(part.value, instance)
        ):
            return True
    return False


def _holds_all(node: ast.AST, instance: str) -> bool:
    """Whether this is the dictionary of the attributes: `self.__dict__`, `vars(self)`."""
    if isinstance(node, ast.Call):
        return dotted(node.func) == "vars" and [dotted(one) for one in node.args] == [instance]
    return isinstance(node, ast.Attribute) and node.attr == "__dict__" and dotted(node.value) == instance


def hands_over(node: ast.AST, name: str) -> bool:
    """Whether a statement passes an object to other code, as in `count(self)`; `super(New, self)` does not count."""
    parts = walk(node)
    owners = {id(part.value) for part in parts if isinstance(part, ast.Attribute)}
    owners |= {
        id(one) for part in parts if isinstance(part, ast.Call) and dotted(part.func) == "super" for one in part.args
    }
    return any(_is_read(part, name) and id(part) not in owners for part in parts)


def _is_read(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
