"""Expressions, statements and function bodies of random programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar


T = TypeVar("T")


def pick(draw: Random, options: Sequence[T]) -> T:
    """One of some options."""
    return options[int(draw.random() * len(options))]


def chance(draw: Random, one_in: int) -> bool:
    """True once in about `one_in` draws."""
    return draw.random() * one_in < 1


@dataclass(frozen=True)
class Scope:
    """What an expression may use."""

    names: tuple[str, ...] = ()
    """Expressions that stand for an integer: constants, parameters, local variables, `self.up`."""
    calls: tuple[str, ...] = ()
    """Functions from integer to integer."""

    def with_names(self, *names: str) -> Scope:
        """The scope with more names."""
        return replace(self, names=tuple(dict.fromkeys((*self.names, *names))))

    def with_calls(self, *calls: str) -> Scope:
        """The scope with more functions."""
        return replace(self, calls=tuple(dict.fromkeys((*self.calls, *calls))))


def expression(draw: Random, scope: Scope, depth: int = 2) -> str:
    """An expression that gives an integer."""
    shapes = ["{constant}", "{name}", "{name}", "{name}"]
    if depth:
        shapes += ["{a} + {b}", "{a} * 2", "({a} - {b})", "{call}({a})", "{call}({a})"]
        shapes += ["sum(i + {a} for i in range(2))", "(lambda v: v + {a})({b})", "max({a}, {b})", "sum([{a}, {b}])"]
        shapes += ["({a} if {b} > 3 else {c})", "[k * {a} for k in (1, 2)][1]"]
    shape = pick(draw, shapes)
    parts: dict[str, str] = {}
    if "{constant}" in shape or not scope.names:
        parts["constant"] = parts["name"] = str(draw.randint(0, 9))
    elif "{name}" in shape:
        parts["name"] = pick(draw, scope.names)
    if "{call}" in shape:
        parts["call"] = pick(draw, scope.calls) if scope.calls else "abs"
    for letter in "abc":
        if f"{{{letter}}}" in shape:
            parts[letter] = expression(draw, scope, depth - 1)
    return shape.format(**parts)


ATTRIBUTES = ("self.up", "self.down", "self.width")


def constructor(draw: Random, scope: Scope) -> list[str]:
    """The statements of a parent's `__init__`. `config` and `size` are parameters."""
    call = "super().__init__(config)" if chance(draw, 4) else "super().__init__()"
    scope = scope.with_names("config", "size")
    lines: list[str] = []
    for target in ATTRIBUTES:
        lines += _assignment(draw, target, scope)
        scope = scope.with_names(target)
    lines.append("self.items = [1, 2, 3]")
    if chance(draw, 3):
        lines += _twist(draw, scope)
    if chance(draw, 3):
        lines += [f"inner = {expression(draw, scope)}", "self.inner = inner + 1"]
    if chance(draw, 8):
        lines.append("self.post_init()")
    return ["self.rooted = 5", *lines, call] if chance(draw, 12) else [call, *lines]


def _assignment(draw: Random, target: str, scope: Scope) -> list[str]:
    value = expression(draw, scope)
    shapes = ["{t} = {v}"] * 6
    shapes += ["{t}: int = {v}", "{t} = self.twin = {v}", "self.twin = {t} = {v}", "{t} = {v}; self.late = 2"]
    shapes += ["{t}, self.twin = {v}, 4", "if flag:\n    {t} = {v}\nelse:\n    {t} = 1", "{t} = {v}\n{t} += 1"]
    shapes += ["{t} = 1\n{t} = {t} + {v}", "# Copied from somewhere\n{t} = {v}  # as llama", "({t}) = (\n    {v}\n)"]
    shapes += ["with_it = {v}\n{t} = with_it", "for i in range(2):\n    {t} = i + {v}"]
    return pick(draw, shapes).format(t=target, v=value).split("\n")


def _twist(draw: Random, scope: Scope) -> list[str]:
    shapes = [
        "if size > 4:\n    return",
        "self.items.append({v})",
        "def inside(v):\n    return v + {v}\nself.up = inside(2)",
    ]
    shapes += ["self.by_name = {{'llama': {v}}}", "del self.items[0]", 'self.label = f"llama {{self.up}} Llama"']
    shapes += ["self.fill({v})", "self.up = self.total()", "config = config + {v}\nself.after = config"]
    shapes += [
        "self.run = lambda v: v + config",
        "try:\n    self.up = {v}\nfinally:\n    self.down = 2",
        "self.up = self.down",
    ]
    return pick(draw, shapes).format(v=expression(draw, scope)).split("\n")


def computation(draw: Random, scope: Scope, parameters: tuple[str, ...], returns: bool = True) -> list[str]:
    """The body of a method that computes something from its parameters and, mostly, returns it."""
    scope = scope.with_names(*parameters)
    lines: list[str] = []
    for step in range(draw.randint(0, 3)):
        lines += _step(draw, scope, step > 0)
        scope = scope.with_names("h")
    if not returns or chance(draw, 12):
        return lines or ["pass"]
    value = "h" if "h" in scope.names and chance(draw, 2) else expression(draw, scope)
    shapes = ["return {v}"] * 8
    shapes += ["return ({v}, 'llama')", "return [{v}]", "if {v} > 5:\n    return {v}\nreturn 0", "yield {v}\nyield 1"]
    shapes += [
        "return (\n    {v}\n)  # the end",
        "def close(v):\n    return v + {v}\nreturn close(1)",
        "raise ValueError({v})",
    ]
    return [*lines, *pick(draw, shapes).format(v=value).split("\n")]


def _step(draw: Random, scope: Scope, has_h: bool) -> list[str]:
    value = expression(draw, scope)
    shapes = ["h = {v}"] * 6
    if has_h:
        shapes += ["h = h + {v}", "h += {v}", "h, other = {v}, h"]
    shapes += ["self.up = {v}\nh = self.up", "h: int = {v}", "h = other = {v}", "h = {v}; other = 1"]
    shapes += ["if {v} > 4:\n    h = 1\nelse:\n    h = 2", "h = 0\nfor i in range(2):\n    h += i * {v}"]
    shapes += ["x = {v}\nh = x", "h = [q for q in range(3)][1] + {v}", *INNER_SCOPES]
    names = [one for one in scope.names if one.isidentifier()]
    return pick(draw, shapes).format(v=value, n=names[-1] if names else "CALLS").split("\n")


INNER_SCOPES = (
    "h = (n := {v}) + n",
    "if (n := {v}) > 3:\n    h = n\nelse:\n    h = 0",
    "h = sum([(last := i) for i in range(3)]) + last + {v}",
    "h = 0\ndef add(n):\n    nonlocal h\n    h += n\nadd({v})",
    "h = [(lambda: n + i)() for i, n in enumerate([{v}, 2])][-1]",
    "try:\n    h = 1 // ({v})\nexcept ZeroDivisionError as error:\n    h = len(error.args)",
    "match {v}:\n    case 1:\n        h = 5\n    case other:\n        h = other",
    "first, *rest = [{v}, 2, 3]\nh = first + len(rest)",
    "class Local:\n    h = 3\n    depth = {v}\nh = Local.depth",
    "h = {{i: {v} for i in range(2)}}[1]",
    "h = max(i + 1 for i in (1, {v}))",
    "global CALLS\nCALLS = {v}\nh = CALLS",
    "h = (lambda {n}: {n} + 1)({v}) + {n}",
    "h = [{n} for {n} in (1, {v})][1] + {n}",
)
"""Bindings of `h` with scopes of their own around them."""


UNSEEN = (
    "self.__dict__.update(up={v})",
    "vars(self)['down'] = {v}",
    "setattr(self, 'up', {v})",
    "object.__setattr__(self, 'width', {v})",
    "self.put({v})",
    "super().put({v})",
    "tune(self)",
    "self.own = tune(self)",
    "rows = self.items\nrows.append({v})\nself.own = len(self.items)",
    "for one in (self,):\n    one.up = {v}",
    "me = self\nme.down = {v}",
    "self.up, self.down = self.down, self.up",
    "if (n := {v}) > 3:\n    self.own = n",
    "delattr(self, 'width')",
)
"""Changes of attributes that the statement does not name, or names otherwise."""
IN_BLOCKS = (
    "for _ in range(2):\n    h = {c}\nreturn h",
    "while x < 9:\n    return {c}\nreturn 0",
    "match x:\n    case 4:\n        return {c}\nreturn {v}",
    "assert x is not None\nreturn {c}",
    "try:\n    h = {v}\nexcept ValueError:\n    h = 1\n{c}\nreturn h",
    "{c}\n{c}\nreturn x",
    "return {c} if x > 3 else {v}",
    "self.put({v})\n{c}",
)
"""Overrides of `forward` with the parent's call, `{c}`, in a block, in an expression, or twice."""
