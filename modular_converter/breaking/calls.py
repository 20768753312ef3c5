"""What names mean in bodies, and the calls of functions and classes, with the objects that they make: see `interpret`."""

from __future__ import annotations

import abc
import ast
import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from modular_converter.breaking import layers
from modular_converter.breaking.names import Assigned, Frame, Names, given_to_heirs
from modular_converter.breaking.values import (
    CONFIG_BASES,
    NONE,
    POST_INIT,
    UNKNOWN,
    ClassValue,
    Either,
    Expression,
    External,
    FunctionValue,
    HeldTensor,
    Items,
    Layer,
    ObjectValue,
    Partial,
    Slot,
    Value,
    either,
    is_configuration,
    is_module,
    numbered,
    sequence,
)
from modular_converter.model.bindings import FUNCTIONS, Function
from modular_converter.model.class_blocks import Method
from modular_converter.model.nodes import decorators_of


MOST_DEPTH = 60
"""Calls within calls that are followed."""


class CallInterpreter(abc.ABC):
    """Follows the calls of functions and classes of one tree."""

    def __init__(self, names: Names, models: str, files_in: Callable[[str], Sequence[str]]) -> None:
        """`models` is the folder of models; `files_in` gives the files of a model's folder."""
        self.names = names
        self.models = models
        self.files_in = files_in
        self._made: dict[tuple[object, ...], ObjectValue] = {}
        self._kept: list[object] = []
        """The arguments of objects that were made: they are told apart by their identity."""
        self._constants: dict[tuple[str, str], Value] = {}
        self._active: list[tuple[ast.AST, str, Value]] = []
        """The functions whose bodies are being followed, with their files (files with equal texts share their nodes), and
        the first thing that each was given.
        """
        self._doubts: list[str] = []
        """The conditions around the statement whose values are not known, by their words; "" for one that has none."""
        self.given_to_unknown = 0
        """How often something was held by what the text does not tell, such as a layer of a table."""
        self.changes: dict[ClassValue, dict[str, Value]] = {}
        """What decorators of a class, and the statements below it, have given it."""

    @property
    def in_doubt(self) -> bool:
        """Whether the statement that is followed stands below a condition whose value is not known."""
        return bool(self._doubts)

    def kept(self, value: object) -> None:
        """Keep an object whose identity stands in a key."""
        self._kept.append(value)

    # names

    def name(self, name: str, frame: Frame) -> Value:
        """What a name means in a body."""
        if name in frame.names:
            return frame.names[name]
        return self.constant(frame.path, name)

    def constant(self, path: str, name: str) -> Value:
        """What a name means at the top level of a file."""
        key = path, name
        if key not in self._constants:
            self._constants[key] = Expression(name)
            self._constants[key] = self.meant(name, self.names.meaning(path, name))
        return self._constants[key]

    def meant(self, name: str, found: Value | Assigned | None) -> Value:
        """The value of a name that is defined, assigned or imported somewhere."""
        if isinstance(found, tuple):
            where, node, above = found
            found = self.of_assignment(where, name, node, above)
            found = replace(found, text=name) if isinstance(found, Expression) else found
        return Expression(name) if found is None else found

    def of_assignment(self, path: str, name: str, node: ast.expr, above: int) -> Value:
        """The value that an assignment at the top level of a file gives a name. `above` is the line above it."""
        return self.evaluate(node, Frame(path, above))

    def attribute(self, value: Value, name: str) -> Value:
        """`value.name`."""
        if isinstance(value, External):
            if value.name.startswith("file:"):
                return self.constant(value.name.removeprefix("file:"), name)
            return External(f"{value.name}.{name}")
        if isinstance(value, ObjectValue):
            return value.cls if name == "__class__" else self.of_instance(value, name)
        if isinstance(value, ClassValue):
            if name in self.changes.get(value, {}):
                return self.changes[value][name]
            found = self.of_class(self.names.ancestors(value), name, None)
            return found if found is not None else Expression(f"{value.name}.{name}")
        if isinstance(value, Layer) and (found := layers.of_layer(value, name)) is not None:
            return found
        if isinstance(value, Either):
            return functools.reduce(either, [self.attribute(one, name) for one in value.options])
        return Expression(f"{value.text}.{name}")

    def of_instance(self, instance: ObjectValue, name: str) -> Value:
        """The attribute of an object."""
        layers.own_parts(instance)
        if name in instance.attributes:
            return instance.attributes[name]
        if (made := numbered(name)) in instance.attributes:  # `self.part_0`, made in a loop
            return instance.attributes[made]
        found = self.of_class(instance.ancestors, name, instance)
        return found if found is not None else Expression(f"self.{name}")

    def of_class(
        self, ancestors: Sequence[ClassValue | External], name: str, instance: ObjectValue | None
    ) -> Value | None:
        """A method or variable of a class, looked up in its bases, unless one of these gives its heirs another one."""
        for cls in ancestors[1:]:
            own = cls.source if isinstance(cls, ClassValue) and cls.name not in CONFIG_BASES else ""  # theirs is known
            if name in (given := given_to_heirs(own)):
                return Expression(f"{name} of {given[name]}", may_be_module=True)
        for cls in ancestors:
            if not isinstance(cls, ClassValue):
                continue
            node, is_getter = cls.methods.get(name, (None, False))
            if node is not None:
                function = FunctionValue(cls.path, node, cls.above, instance, cls)
                return self.call_function(function, [], {}) if is_getter and instance is not None else function
            if name in cls.imports and name not in cls.deleted:
                found = self.meant(name, self.names.imported(cls.path, *cls.imports[name]))
            elif name in cls.variables:
                found = self.evaluate(cls.variables[name], Frame(cls.path, cls.above))
            else:
                continue
            if isinstance(found, FunctionValue) and isinstance(found.node, FUNCTIONS):
                return replace(found, instance=instance, owner=cls)
            return found
        return None

    @abc.abstractmethod
    def evaluate(self, node: ast.expr, frame: Frame) -> Value:
        """The value of an expression."""

    # calls

    def call(self, function: Value, arguments: list[Value], named: dict[str, Value], text: str) -> Value:
        """The value of a call."""
        if isinstance(function, ClassValue):
            return self.instantiate(function, arguments, named, text)
        if isinstance(function, FunctionValue):
            return self.call_function(function, arguments, named)
        if isinstance(function, Partial):
            return self.call(function.function, [*function.arguments, *arguments], {**function.named, **named}, text)
        if isinstance(function, External):
            return self.call_external(function.name, arguments, named, text)
        if isinstance(function, Either):
            return functools.reduce(either, [self.call(one, arguments, named, text) for one in function.options])
        return self.not_followed((*arguments, *named.values()), text)

    def not_followed(self, given: Iterable[Value], text: str) -> Expression:
        """The value of a call that is not followed. Modules that it is given may hold anything from then on."""
        for one in given:
            if is_module(one):
                layers.may_hold_anything(one, text)
        return Expression(text, may_be_module=True)

    @abc.abstractmethod
    def call_external(self, name: str, arguments: list[Value], named: dict[str, Value], text: str) -> Value:
        """The value of a call of something that is not of the tree."""

    def call_function(self, function: FunctionValue, arguments: Sequence[Value], named: Mapping[str, Value]) -> Value:
        """The value that a function of the tree returns."""
        node = function.node
        is_again = (
            isinstance(node, (*FUNCTIONS, ast.Lambda))
            and function.text != "__init__"
            and self._is_active(node, function.path, arguments)
        )
        if not isinstance(node, (*FUNCTIONS, ast.Lambda)) or is_again or len(self._active) > MOST_DEPTH:
            return self.not_followed((*arguments, *named.values()), f"{function.text}()")
        instance = function.instance
        if instance is None and function.owner is not None and arguments and isinstance(arguments[0], ObjectValue):
            instance = arguments[0]  # `Base.__init__(self)`
        frame = Frame(function.path, function.above, dict(function.closure), instance, function.owner)
        if isinstance(node, ast.Lambda):
            return self._call_lambda(node, arguments, named, frame)
        first = Method(node).instance if function.owner is not None else ""
        given = list(arguments)
        is_of_class = "classmethod" in decorators_of(node)
        if first and (function.instance is not None or is_of_class):
            given.insert(0, function.owner if function.instance is None and function.owner else function.instance)  # type: ignore[arg-type]
        self._bind(node.args, given, named, frame)
        self.names.followed.add(node.name)
        self._active.append((node, function.path, arguments[0] if arguments else NONE))
        try:
            self.body(node.body, frame)
        finally:
            self._active.pop()
        if frame.yielded:
            return sequence(frame.yielded)
        return functools.reduce(either, frame.returned) if frame.returned else NONE

    def _call_lambda(
        self, node: ast.Lambda, arguments: Sequence[Value], named: Mapping[str, Value], frame: Frame
    ) -> Value:
        self._bind(node.args, arguments, named, frame)
        self._active.append((node, frame.path, NONE))
        try:
            return self.evaluate(node.body, frame)
        finally:
            self._active.pop()

    def _is_active(self, node: ast.AST, path: str, arguments: Sequence[Value]) -> bool:
        """Whether a function calls itself. It may, for the parts of the module that it was called for: they are few."""
        given = [first for active, where, first in self._active if active is node and where == path]
        return bool(given) and (not arguments or not is_module(arguments[0]) or arguments[0] in given)

    def _bind(self, args: ast.arguments, given: Sequence[Value], named: Mapping[str, Value], frame: Frame) -> None:
        """Give the parameters of a function their values."""
        positional = [*args.posonlyargs, *args.args]
        defaults = dict(zip([one.arg for one in positional][::-1], args.defaults[::-1]))
        defaults |= {one.arg: value for one, value in zip(args.kwonlyargs, args.kw_defaults) if value is not None}
        home = Frame(frame.path, frame.above)
        rest = dict(named)
        for position, parameter in enumerate(positional):
            if position < len(given):
                frame.names[parameter.arg] = given[position]
                rest.pop(parameter.arg, None)
        for parameter in [*positional[len(given) :], *args.kwonlyargs]:
            name = parameter.arg
            if name in rest:
                frame.names[name] = rest.pop(name)
            elif name in defaults:
                frame.names[name] = self.evaluate(defaults[name], home)
            else:
                frame.names[name] = Expression(name)
        if args.vararg is not None:
            frame.names[args.vararg.arg] = sequence(given[len(positional) :])
        if args.kwarg is not None:
            frame.names[args.kwarg.arg] = Items(list(rest.items()), is_mapping=True)

    def instantiate(
        self, cls: ClassValue, arguments: Sequence[Value], named: Mapping[str, Value], text: str = ""
    ) -> Value:
        """An object of a class, after its `__init__`."""
        key = (cls, *map(self.key, arguments), *((name, self.key(one)) for name, one in sorted(named.items())))
        known = self._made.get(key)
        if known is None and len(self._active) > MOST_DEPTH:
            return Expression(text or cls.name, may_be_module=True)
        if known is None:
            given = frozenset(id(one) for one in (*arguments, *named.values()) if is_module(one))
            known = ObjectValue(cls, self.names.ancestors(cls), text or cls.name, given=given)
            self._made[key] = known
            self._kept.append((arguments, named))
            known.attributes |= {} if known.is_module else named
            with self.certain():
                self.initialise(known, 0, arguments, named)
        return known.alike()

    @contextlib.contextmanager
    def certain(self) -> Iterator[None]:
        """A time in which no condition stands around what is followed."""
        outer, self._doubts = self._doubts, []
        try:
            yield
        finally:
            self._doubts = outer

    @contextlib.contextmanager
    def doubtful(self, condition: str = "") -> Iterator[None]:
        """A time in which a condition that is not known stands around what is followed."""
        self._doubts.append(condition)
        try:
            yield
        finally:
            self._doubts.pop()

    def key(self, value: Value) -> object:
        """What two arguments must share so that they make the same object."""
        return (value.text, repr(value.value)) if isinstance(value, Expression) else id(value)

    def initialise(
        self,
        instance: ObjectValue,
        start: int,
        arguments: Sequence[Value],
        named: Mapping[str, Value],
        method: str = "__init__",
    ) -> None:
        """Run the first `__init__` among the ancestors of an object, from a position on; of a configuration `method`."""
        for cls in instance.ancestors[start:]:
            if self.is_known_base(instance, cls, method, arguments, named):
                return
            if isinstance(cls, External):
                if made := layers.layer(cls.name, arguments, named):
                    for name, (shape, present) in made.tensors.items():
                        if present is not False:
                            slot = Slot(HeldTensor(shape, True), instance.cls.place(), present is True)
                            instance.slots.setdefault(name, [slot])
                    return
                if cls.name.startswith("torch.nn"):
                    self._begin(instance)
                    self._container(cls.name, instance, arguments)
                    return
                continue
            if isinstance(own := self.exchanged(cls, instance).get(method), FunctionValue):
                self.call_function(own, [instance, *arguments], named)
                return
            if method in cls.members.by_name:
                self._call_own(cls, cls.members.by_name[method].node, instance, arguments, named)
                return

    def _call_own(
        self,
        cls: ClassValue,
        node: Function,
        instance: ObjectValue,
        arguments: Sequence[Value],
        named: Mapping[str, Value],
    ) -> None:
        """Run an `__init__` as its decorators make it; one that gives back something unknown may do anything beside it."""
        bound = FunctionValue(cls.path, node, cls.above, instance, cls)
        if not node.decorator_list or is_configuration(instance):
            self.call_function(bound, arguments, named)
            return
        frame, undecorated = Frame(cls.path, cls.above), replace(bound, instance=None)
        made: Value = undecorated
        for decorator in reversed(node.decorator_list):
            made = self.call(self.evaluate(decorator, frame), [made], {}, ast.unparse(decorator))
        if isinstance(made, FunctionValue) and made is not undecorated:
            self.call_function(made, [instance, *arguments], named)
            return
        self.call_function(bound, arguments, named)
        if made is not undecorated:
            self.not_followed([instance], f"{cls.name}.{ast.unparse(node.decorator_list[0])}")

    def _begin(self, instance: ObjectValue) -> None:
        """Take from an object what it holds, as the `__init__` of `torch.nn.Module` does with one that has begun before."""
        self.take_away(instance, [name for name in instance.slots if name != UNKNOWN])

    @abc.abstractmethod
    def exchanged(self, cls: ClassValue, instance: ObjectValue) -> Mapping[str, Value]:
        """What decorators of a class, and the statements below it, give it. Where that is not known, the object may hold
        anything.
        """

    @abc.abstractmethod
    def is_known_base(
        self,
        instance: ObjectValue,
        cls: ClassValue | External,
        method: str,
        arguments: Sequence[Value],
        named: Mapping[str, Value],
    ) -> bool:
        """Whether what a class does in its `method` is known without following it; it is done then."""

    def _container(self, name: str, instance: ObjectValue, arguments: Sequence[Value]) -> None:
        if name in layers.CONTAINERS:
            made = self.call_external(name, list(arguments), {}, name)
            if isinstance(made, Items):
                for key, value in made.items:
                    instance.slots.setdefault(key, []).append(Slot(value, instance.cls.place(), True))

    def call_super(self, name: str, frame: Frame, arguments: list[Value], named: dict[str, Value]) -> Value | None:
        """`super().name(…)`; None where no class of the tree has the method."""
        instance, owner = frame.instance, frame.owner
        if instance is None or owner is None:
            return None
        start = next((n for n, one in enumerate(instance.ancestors) if one is owner), len(instance.ancestors)) + 1
        if name == "__init__" or (name == POST_INIT and is_configuration(instance)):
            self.initialise(instance, start, arguments, named, name)
            return NONE
        found = self.of_class(instance.ancestors[start:], name, instance)
        return self.call_function(found, arguments, named) if isinstance(found, FunctionValue) else None

    # statements

    @abc.abstractmethod
    def body(self, statements: Iterable[ast.stmt], frame: Frame) -> None:
        """Follow statements until one of them certainly leaves the body."""

    @abc.abstractmethod
    def take_away(self, holder: ObjectValue, names: Iterable[str], *, in_doubt: bool = False) -> None:
        """Take attributes from an object."""
