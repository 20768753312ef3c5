"""`__init__` followed as a text: which modules, parameters and buffers an object holds under which names.

Statements are followed one by one with the values that the defaults of the configuration give. A condition whose value
is not known is followed both ways, and what it makes is not certain. A loop is followed once, and names with a number
have `*` in its place. What the text does not tell stays an expression with its words, so that two versions of it can be
compared.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Sequence

from modular_converter.breaking import layers
from modular_converter.breaking.bounds import NOT_KNOWN, one_text
from modular_converter.breaking.calls import CallInterpreter
from modular_converter.breaking.layers import exchange
from modular_converter.breaking.names import EXCHANGED, Frame
from modular_converter.breaking.values import (
    EMPTY_BUFFER,
    NONE,
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
    Slot,
    Value,
    either,
    is_any_name,
    is_configuration,
    is_module,
    key_text,
    plain,
    truth,
)
from modular_converter.model.bindings import FUNCTIONS
from modular_converter.model.nodes import targets_of, walk


MOST_TURNS = 24
"""Items of a list that a loop is followed for; a longer one is followed once, unless it has texts or modules."""
ANY = Expression("*", is_count=True)
"""An item of something that a loop is followed once for."""


class StatementInterpreter(CallInterpreter):
    """Follows bodies of one tree: statements, and calls of its functions and classes."""

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
            return not self.in_doubt
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
            frame.has_left = frame.has_left or not self.in_doubt or None
        elif isinstance(node, FUNCTIONS):
            frame.names[node.name] = FunctionValue(frame.path, node, frame.above, closure=dict(frame.names))
        return isinstance(node, (ast.Raise, ast.Break, ast.Continue)) and not self.in_doubt

    def _if(self, node: ast.If, frame: Frame) -> bool:
        found = self.evaluate(node.test, frame)
        test = truth(found)
        if test is not None:
            return self._block(node.body if test else node.orelse, frame)
        for branch, other in ((node.body, node.orelse), (node.orelse, node.body)):
            if any(isinstance(one, ast.Raise) for one in branch[-1:]):  # a check of arguments
                return self._block(other, frame)
        with self.doubtful(f"if {found.text} "):
            self.body(node.body, frame)
        with self.doubtful(f"if not {found.text} "):
            self.body(node.orelse, frame)
        return False

    def _try(self, node: ast.Try, frame: Frame) -> bool:
        """Follow what is tried, and where that may end with an error of its own, its handlers as ways that it may go."""
        has_ended = self._block([*node.body, *node.orelse], frame)
        if has_ended and any(isinstance(one, ast.Raise) for one in walk(*node.body)):
            with self.doubtful():
                self.body((one for handler in node.handlers for one in handler.body), frame)
        return self._block(node.finalbody, frame) or (has_ended and not node.handlers)

    def _match(self, node: ast.Match, frame: Frame) -> bool:
        """Follow the case that holds, where the patterns are constants; else all cases, as ways that it may go."""
        subject = self.evaluate(node.subject, frame)
        value = plain(subject)
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
        for case in node.cases:
            guard = f" if {ast.unparse(case.guard)}" if case.guard is not None else ""
            with self.doubtful(f"if {subject.text} is {ast.unparse(case.pattern)}{guard} "):
                self.body(case.body, frame)
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
            with self.doubtful() if frame.has_left is None else contextlib.nullcontext():
                self.body(node.orelse, frame)
        frame.has_left = outer

    def turns(self, value: Value) -> list[Value]:
        """The values that a loop variable has, as far as they differ."""
        if isinstance(value, Items):
            items = [Expression(repr(name), name) if value.is_mapping else one for name, one in value.items]
            return _different(items)
        if isinstance(value, Expression) and value.is_known:
            known = value.value
            if isinstance(known, range):
                return [ANY] if len(known) else []
            if isinstance(known, set):
                known = sorted(known, key=repr)
            if isinstance(known, (list, tuple, dict, str)):
                return _different([Expression(f"{value.text}[*]", one) for one in known])
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
                    items.take(key_text(self.evaluate(target.slice, frame)), in_doubt=self.in_doubt)
            holder = self.evaluate(target.value, frame) if isinstance(target, ast.Attribute) else None
            if isinstance(target, ast.Attribute) and isinstance(holder, ObjectValue):
                self.take_away(holder, [target.attr], in_doubt=_is_of_item(target))

    def take_away(self, holder: ObjectValue, names: Iterable[str], *, in_doubt: bool = False) -> None:
        """Take attributes from an object."""
        for name in names:
            if not self.in_doubt and not in_doubt:
                holder.attributes.pop(name, None)
                holder.slots.pop(name, None)
            elif name in holder.slots:
                holder.slots[name] = [one._replace(is_certain=False) for one in holder.slots[name]]

    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Give a target its value."""
        if isinstance(target, ast.Name):
            known = frame.names.get(target.id)
            frame.names[target.id] = either(known, value) if self.in_doubt and known is not None else value
        elif isinstance(target, ast.Attribute):
            holder, before = self.evaluate(target.value, frame), self.given_to_unknown
            with self.doubtful() if _is_of_item(target) else contextlib.nullcontext():
                self.give(holder, target.attr, value, self.place(target, frame))
            if self.given_to_unknown > before:
                self.may_be_module(target.value, target, frame)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for one, part in zip(target.elts, self._parts(target.elts, value, frame)):
                self.assign(one.value if isinstance(one, ast.Starred) else one, part, frame)
        elif isinstance(target, ast.Subscript):
            above, key = self.owner_of_held(target.value, frame), self.evaluate(target.slice, frame)
            if above is not None and exchange(above, key_text(key), value, is_certain=not self.in_doubt):
                return
            holder = self.evaluate(target.value, frame) if above is None else above
            if isinstance(holder, Expression) and isinstance(target.value, ast.Attribute):
                owner = self.evaluate(target.value.value, frame)
                if isinstance(owner, ObjectValue) and is_configuration(owner):
                    holder = owner.attributes.get(target.value.attr, holder)
            if isinstance(holder, Items):
                holder.add([(key_text(key), value)])
            elif isinstance(holder, ObjectValue) and holder.is_module:  # of a class that is a `ModuleDict`
                self.give_by(holder, key, value, self.place(target, frame))

    def may_be_module(self, holder: ast.expr, by: ast.expr, frame: Frame) -> None:
        """An attribute whose value the text does not tell may be a module, since code lets it hold something."""
        if isinstance(holder, ast.Attribute):
            outer = self.evaluate(holder.value, frame)
            layers.may_be_module(outer, holder.attr, ast.unparse(by), self.place(by, frame))

    def give(self, holder: Value, name: str, value: Value, place: CodePlace) -> None:
        """`holder.name = value`."""
        if isinstance(holder, ObjectValue):
            self.hold(holder, name, value, place)
        elif isinstance(holder, ClassValue):
            self.exchange(holder, name, value)
        elif isinstance(holder, Layer):
            self._hold_in_layer(holder, name, value)
        elif isinstance(holder, Items) and holder.is_module and _is_held(value):
            holder.add([(name, either(value, NONE) if self.in_doubt else value)])
        elif isinstance(holder, Either):
            for one in holder.options:
                with self.doubtful():
                    self.give(one, name, value, place)
        elif isinstance(holder, Expression):
            self.given_to_unknown += _is_held(value)

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
            self.changes[cls][name] = either(known, value) if self.in_doubt else value

    def _hold_in_layer(self, holder: Layer, name: str, value: Value) -> None:
        """`layer.bias = value`."""
        if isinstance(value, HeldTensor):
            holder.tensors[name] = value.shape, value.is_persistent if not self.in_doubt else None
        elif is_module(value):
            holder.modules[name] = either(value, NONE) if self.in_doubt else value
        elif plain(value) is None and not self.in_doubt:
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
        holder.attributes[name] = either(known, value) if self.in_doubt and known is not None else value
        options = value.options if isinstance(value, Either) else (value,)
        certain = not self.in_doubt and len(options) == 1
        condition = one_text([*self._doubts, value.condition if isinstance(value, Either) else ""])
        slots = [Slot(one, place, certain, condition) for one in options if _is_held(one)]
        if not slots and isinstance(value, Expression) and value.may_be_module:
            slots = [Slot(value, place, False)]  # perhaps a module
        if self.in_doubt:
            slots = [*(one._replace(is_certain=False) for one in holder.slots.get(name, ())), *slots]
        if slots:
            holder.slots[name] = slots
        elif not self.in_doubt:
            holder.slots.pop(name, None)


def _different(items: list[Value]) -> list[Value]:
    """The items of a list that a loop is followed for."""
    return items if len(items) <= MOST_TURNS or any(map(_decides, items)) else items[:1]


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
