"""`__init__` followed as a text: which modules, parameters and buffers an object holds under which names.

Statements are followed one by one with the values that the defaults of the configuration give. A condition whose value
is not known is followed both ways, and what it makes is not certain. A loop is followed once, and names with a number
have `*` in its place. What the text does not tell stays an expression with its words, so that two versions of it can be
compared.
"""

from __future__ import annotations

import abc
import ast
import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from modular_converter.breaking import layers
from modular_converter.breaking.bounds import NOT_KNOWN, one_text
from modular_converter.breaking.layers import exchange
from modular_converter.breaking.names import EXCHANGED, Frame, Names, given_to_heirs
from modular_converter.breaking.values import (
    CONFIG_BASES,
    EMPTY_BUFFER,
    NONE,
    POST_INIT,
    UNKNOWN,
    ClassValue,
    CodePlace,
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
    is_any_name,
    is_configuration,
    is_module,
    key_text,
    numbered,
    plain,
    sequence,
    truth,
)
from modular_converter.model.bindings import FUNCTIONS, Function
from modular_converter.model.class_blocks import Method
from modular_converter.model.nodes import decorators_of, targets_of, walk


MOST_DEPTH = 60
"""Calls within calls that are followed."""
MOST_TURNS = 24
"""Items of a list that a loop is followed for; a longer one is followed once, unless it has texts or modules."""
ANY = Expression("*", is_count=True)
"""An item of something that a loop is followed once for."""


class StatementInterpreter(abc.ABC):
    """Follows bodies of one tree: statements, and calls of its functions and classes."""

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
        self._doubts = 0
        """The conditions around the statement whose values are not known."""
        self._conditions: list[str] = []
        """The words of those that an `if` has."""
        self.changes: dict[ClassValue, dict[str, Value]] = {}
        """What decorators of a class, and the statements below it, have given it."""

    @property
    def in_doubt(self) -> bool:
        """Whether the statement that is followed stands below a condition whose value is not known."""
        return self._doubts > 0

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
            found = self.names.meaning(path, name)
            if isinstance(found, tuple):
                where, node, above = found
                found = self.of_assignment(where, name, node, above)
                found = replace(found, text=name) if isinstance(found, Expression) else found
            self._constants[key] = Expression(name) if found is None else found
        return self._constants[key]

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
            if name in cls.variables:
                return self.evaluate(cls.variables[name], Frame(cls.path, cls.above))
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
            self._made[key] = known = ObjectValue(cls, self.names.ancestors(cls), text or cls.name)
            self._kept.append((arguments, named))
            known.attributes |= {} if known.is_module else named
            with self.certain():
                self.initialise(known, 0, arguments, named)
        given = frozenset(id(one) for one in (*arguments, *named.values()) if is_module(one))
        slots = dict(known.slots)
        return replace(known, attributes=dict(known.attributes), slots=slots, given=given, has_shared_parts=True)

    @contextlib.contextmanager
    def certain(self) -> Iterator[None]:
        """A time in which no condition stands around what is followed."""
        outer, self._doubts, self._conditions = (self._doubts, self._conditions), 0, []
        try:
            yield
        finally:
            self._doubts, self._conditions = outer

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

    def body(self, statements: Iterable[ast.stmt], frame: Frame) -> None:
        """Follow statements until one of them certainly leaves the body."""
        for node in statements:
            if self._statement(node, frame):
                return

    def _statement(self, node: ast.stmt, frame: Frame) -> bool:
        """Follow a statement; whether the body certainly ends with it."""
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            if node.value is not None:
                value = self.evaluate(node.value, frame)
                for target in targets_of(node):
                    self.assign(target, value, frame)
        elif isinstance(node, ast.AugAssign):
            value = self.evaluate(ast.BinOp(node.target, node.op, node.value), frame)
            self.assign(node.target, value, frame)
        elif isinstance(node, ast.Expr):
            self.evaluate(node.value, frame)
        elif isinstance(node, ast.If):
            return self._if(node, frame)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._for(node, frame)
        elif isinstance(node, (ast.While, ast.With, ast.AsyncWith)):
            outer = frame.has_left
            self.body(node.body, frame)
            frame.has_left = outer if isinstance(node, ast.While) else frame.has_left
        elif isinstance(node, ast.Match):
            return self._match(node, frame)
        elif isinstance(node, ast.Try):
            return self._try(node, frame)
        elif isinstance(node, ast.Return):
            frame.returned.append(NONE if node.value is None else self.evaluate(node.value, frame))
            return self._doubts == 0
        elif isinstance(node, ast.Delete):
            self._delete(node, frame)
        elif isinstance(node, ast.Import):
            for one in node.names:
                bound = one.asname or one.name.partition(".")[0]
                frame.names[bound] = External(one.name if one.asname else bound)
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                found = self.names.imported(frame.path, "." * node.level + (node.module or ""), one.name)
                if isinstance(found, (ClassValue, FunctionValue, External)):
                    frame.names[one.asname or one.name] = found
        elif isinstance(node, ast.Break):
            frame.has_left = frame.has_left or self._doubts == 0 or None
        elif isinstance(node, FUNCTIONS):
            frame.names[node.name] = FunctionValue(frame.path, node, frame.above, closure=dict(frame.names))
        return isinstance(node, (ast.Raise, ast.Break, ast.Continue)) and self._doubts == 0

    def _if(self, node: ast.If, frame: Frame) -> bool:
        found = self.evaluate(node.test, frame)
        test = truth(found)
        if test is not None:
            return self._block(node.body if test else node.orelse, frame)
        for branch, other in ((node.body, node.orelse), (node.orelse, node.body)):
            if any(isinstance(one, ast.Raise) for one in branch[-1:]):  # a check of arguments
                return self._block(other, frame)
        self._doubts += 1
        self._conditions.append(f"if {found.text} ")
        self.body(node.body, frame)
        self._conditions[-1] = f"if not {found.text} "
        self.body(node.orelse, frame)
        self._conditions.pop()
        self._doubts -= 1
        return False

    def _try(self, node: ast.Try, frame: Frame) -> bool:
        """Follow what is tried, and where that may end with an error of its own, its handlers as ways that it may go."""
        has_ended = self._block([*node.body, *node.orelse], frame)
        if has_ended and any(isinstance(one, ast.Raise) for one in walk(*node.body)):
            self._doubts += 1
            self.body((one for handler in node.handlers for one in handler.body), frame)
            self._doubts -= 1
        return self._block(node.finalbody, frame) or (has_ended and not node.handlers)

    def _match(self, node: ast.Match, frame: Frame) -> bool:
        """Follow the case that holds, where the patterns are constants; else all cases, as ways that it may go."""
        value = plain(self.evaluate(node.subject, frame))
        tests = [case.pattern.value if isinstance(case.pattern, ast.MatchValue) else None for case in node.cases]
        for case, test in zip(node.cases, tests):
            rest = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            known = plain(self.evaluate(test, frame)) if test is not None else value if rest else NOT_KNOWN
            if case.guard is not None or value is NOT_KNOWN or known is NOT_KNOWN:
                break
            if known == value:
                return self._block(case.body, frame)
        else:
            return False
        self._doubts += 1
        for case in node.cases:
            self.body(case.body, frame)
        self._doubts -= 1
        return False

    def _block(self, statements: Sequence[ast.stmt], frame: Frame) -> bool:
        return any(self._statement(one, frame) for one in statements)

    def _for(self, node: ast.For | ast.AsyncFor, frame: Frame) -> None:
        outer, frame.has_left = frame.has_left, False
        for item in self.turns(self.evaluate(node.iter, frame)):
            self.assign(node.target, item, frame)
            self.body(node.body, frame)
            if frame.has_left:
                break
        else:
            self._doubts += (in_doubt := frame.has_left is None)
            self.body(node.orelse, frame)
            self._doubts -= in_doubt
        frame.has_left = outer

    def turns(self, value: Value) -> list[Value]:
        """The values that a loop variable has, as far as they differ."""
        if isinstance(value, Items):
            items = [Expression(repr(name), name) if value.is_mapping else one for name, one in value.items]
            return items if len(items) <= MOST_TURNS or any(map(_decides, items)) else items[:1]
        if isinstance(value, Expression) and value.is_known:
            known = value.value
            if isinstance(known, range):
                return [ANY] if len(known) else []
            if isinstance(known, set):
                known = sorted(known, key=repr)
            if isinstance(known, (list, tuple, dict, str)):
                turns: list[Value] = [Expression(f"{value.text}[*]", one) for one in known]
                return turns if len(turns) <= MOST_TURNS or any(map(_decides, turns)) else turns[:1]
        return [Expression(f"{value.text}[*]", is_count=isinstance(value, Expression) and value.is_count)]

    def owner_of_held(self, node: ast.expr, frame: Frame) -> Value | None:
        """The module of whose `_modules`, `_parameters` or `_buffers` this is; None for anything else."""
        is_held = isinstance(node, ast.Attribute) and node.attr in layers.HELD
        return self.evaluate(node.value, frame) if isinstance(node, ast.Attribute) and is_held else None

    def _delete(self, node: ast.Delete, frame: Frame) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                if (owner := self.owner_of_held(target.value, frame)) is not None:
                    self.not_followed([owner], ast.unparse(node))
                items = self.evaluate(target.value, frame)
                if isinstance(items, Items) and items.is_mapping:
                    items.take(key_text(self.evaluate(target.slice, frame)), in_doubt=self._doubts > 0)
            holder = self.evaluate(target.value, frame) if isinstance(target, ast.Attribute) else None
            if isinstance(target, ast.Attribute) and isinstance(holder, ObjectValue):
                self.take_away(holder, [target.attr], in_doubt=_is_of_item(target))

    def take_away(self, holder: ObjectValue, names: Iterable[str], *, in_doubt: bool = False) -> None:
        """Take attributes from an object."""
        for name in names:
            if self._doubts == 0 and not in_doubt:
                holder.attributes.pop(name, None)
                holder.slots.pop(name, None)
            elif name in holder.slots:
                holder.slots[name] = [one._replace(is_certain=False) for one in holder.slots[name]]

    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Give a target its value."""
        if isinstance(target, ast.Name):
            known = frame.names.get(target.id)
            frame.names[target.id] = either(known, value) if self._doubts and known is not None else value
        elif isinstance(target, ast.Attribute):
            holder = self.evaluate(target.value, frame)
            self._doubts += (is_of_item := _is_of_item(target))
            self.give(holder, target.attr, value, self.place(target, frame))
            self._doubts -= is_of_item
        elif isinstance(target, (ast.Tuple, ast.List)):
            for one, part in zip(target.elts, self._parts(target.elts, value, frame)):
                self.assign(one.value if isinstance(one, ast.Starred) else one, part, frame)
        elif isinstance(target, ast.Subscript):
            holder = self.evaluate(target.value, frame)
            key = self.evaluate(target.slice, frame)
            if (owner := self.owner_of_held(target.value, frame)) is not None:
                holder = owner
                if exchange(holder, key_text(key), value, is_certain=self._doubts == 0):
                    return
            if isinstance(holder, Expression) and isinstance(target.value, ast.Attribute):
                owner = self.evaluate(target.value.value, frame)
                if isinstance(owner, ObjectValue) and is_configuration(owner):
                    holder = owner.attributes.get(target.value.attr, holder)
            if isinstance(holder, Items):
                holder.add([(key_text(key), value)])
            elif isinstance(holder, ObjectValue) and holder.is_module:  # of a class that is a `ModuleDict`
                self.hold(holder, key_text(key), value, self.place(target, frame))

    def give(self, holder: Value, name: str, value: Value, place: CodePlace) -> None:
        """`holder.name = value`."""
        if isinstance(holder, ObjectValue):
            self.hold(holder, name, value, place)
        elif isinstance(holder, ClassValue):
            self.exchange(holder, name, value)
        elif isinstance(holder, Layer):
            self._hold_in_layer(holder, name, value)
        elif isinstance(holder, Either):
            self._doubts += 1
            for one in holder.options:
                self.give(one, name, value, place)
            self._doubts -= 1

    def give_by(self, holder: Value, name: Value, value: Value, place: CodePlace) -> None:
        """`setattr(holder, name, value)`."""
        if not is_any_name(name):
            self.give(holder, key_text(name), value, place)
        elif _is_held(value) or (isinstance(value, Expression) and value.may_be_module):
            self.not_followed([holder], f"setattr({name.text}, {value.text})")

    def _parts(self, targets: Sequence[ast.expr], value: Value, frame: Frame) -> list[Value]:
        """What each of several targets gets."""
        star = next((n for n, one in enumerate(targets) if isinstance(one, ast.Starred)), len(targets))
        found = [self.item(value, number) for number in range(star)]
        frame.names["*"] = value
        for behind in range(len(targets) - star - 1, -1, -1):
            cut = ast.Slice(ast.Constant(star), ast.Constant(-behind) if behind else None)
            key = cut if len(found) == star else ast.Constant(-behind - 1)
            found.append(self.evaluate(ast.Subscript(ast.Name("*"), key), frame))
        return found

    def exchange(self, cls: ClassValue, name: str, value: Value) -> None:
        """`cls.name = value`."""
        if name in EXCHANGED and cls in self.changes:
            known = self.changes[cls].get(name, Expression(name))
            self.changes[cls][name] = either(known, value) if self._doubts else value

    def _hold_in_layer(self, holder: Layer, name: str, value: Value) -> None:
        """`layer.bias = value`."""
        if isinstance(value, HeldTensor):
            holder.tensors[name] = value.shape, value.is_persistent if self._doubts == 0 else None
        elif is_module(value):
            holder.modules[name] = either(value, NONE) if self._doubts else value
        elif plain(value) is None and self._doubts == 0:
            holder.tensors.pop(name, None)
            holder.modules.pop(name, None)
        elif plain(value) is None and name in holder.tensors:
            holder.tensors[name] = holder.tensors[name][0], None

    def item(self, value: Value, number: int) -> Value:
        """An item of a value at a known position."""
        if isinstance(value, Items) and number < len(value.items):
            return value.items[number][1]
        if isinstance(value, Expression) and isinstance(value.value, (list, tuple)) and number < len(value.value):
            return Expression(f"{value.text}[{number}]", value.value[number])
        return Expression(f"{value.text}[{number}]")

    def place(self, node: ast.expr, frame: Frame) -> CodePlace:
        """The line of a node."""
        owner = frame.owner.name if frame.owner is not None else ""
        return CodePlace(frame.path, frame.above + node.lineno, owner)

    def hold(self, holder: ObjectValue, name: str, value: Value, place: CodePlace) -> None:
        """`holder.name = value`: modules, parameters and buffers stand in its state dict under the name."""
        known = holder.attributes.get(name)
        if known is EMPTY_BUFFER and isinstance(value, HeldTensor) and value.is_persistent is False:
            value = layers.held(value, persistent=True)
        holder.attributes[name] = either(known, value) if self._doubts and known is not None else value
        options = value.options if isinstance(value, Either) else (value,)
        certain = self._doubts == 0 and len(options) == 1
        condition = one_text([*self._conditions, value.condition if isinstance(value, Either) else ""])
        slots = [Slot(one, place, certain, condition) for one in options if _is_held(one)]
        if not slots and isinstance(value, Expression) and value.may_be_module:
            slots = [Slot(value, place, False)]  # perhaps a module
        if self._doubts:
            slots = [*(one._replace(is_certain=False) for one in holder.slots.get(name, ())), *slots]
        if slots:
            holder.slots[name] = slots
        elif not self._doubts:
            holder.slots.pop(name, None)


def _decides(item: Value) -> bool:
    """Whether an item of a list may decide what a loop changes, or the names of what it makes."""
    if isinstance(item, Items) and not item.is_module:
        return any(_decides(one) for _, one in item.items)
    return is_module(item) or isinstance(plain(item), str)


def _is_of_item(target: ast.Attribute) -> bool:
    """Whether this is an attribute of an item of a list, where one item may stand for all that a loop has made."""
    return any(isinstance(one, ast.Subscript) for one in walk(target.value))


def _is_held(value: Value) -> bool:
    """Whether a module that has this attribute has it in its state dict."""
    return is_module(value) or (isinstance(value, HeldTensor) and value.is_persistent is not False)
