"""Classes of random programs: parents with many kinds of members, and children that override them."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from random import Random

from tests.oracle import overrides
from tests.oracle.bodies import ATTRIBUTES, Scope, chance, computation, constructor, expression, pick


@dataclass(frozen=True)
class Class:
    """A parent, with what a child must know of it."""

    name: str
    text: str
    features: frozenset[str]
    """The members that it has beside `__init__` and `forward`."""
    forward: str
    """The parameters of its `forward`, without `self`."""


PLAIN_ATTRIBUTES = {
    "width": (
        "width = 4",
        "width: int = 4",
        'width = 4\n"""How wide."""',
        "width = height = 4",
        "width, height = 4, 5",
    ),
    "label": ('label = "llama-mlp"', "label = 'Llama'  # of LLAMA", 'label: str = "llama"'),
    "names": ('names = ["a"]', 'names = ["a"]\nnames = names + ["b"]'),
    "base": (
        "base = 2\nderived = base + 1",
        "if True:\n    base = 2\nderived = base + 1",
        "for base in (1, 2):\n    derived = base + 1",
        "try:\n    base = 2\nexcept ValueError:\n    base = 3\nderived = [base] * 2",
        "base = derived = 2\nif base > 1:\n    derived += 1",
    ),
    "side": (
        "side = 3\narea = side * side",
        "side = 3\nareas = [n * 2 for n in (side, 1)]",
        "side = (edge := 3) + 1\narea = {'a': side, 'b': edge}",
    ),
    "rate": ("rate = 2\n\n@times(rate)\ndef rated(self, v):\n    return v",),
    "share": ("share = 4\n\ndef shared(self, v, r=share):\n    return (v, r)",),
    "slotted": ('__slots__ = ("slot",)',),
    "Inner": ("class Inner:\n    depth = 1",),
    "kind": ("kind: str",),
    "shift_by": ("shift_by = lambda self, v: v + 2",),
}
METHODS = {
    "scale": "def scale(self, v):\n{body}",
    "size_of": "@property\ndef size_of(self):\n{body}",
    "make": "@classmethod\ndef make(cls, v):\n    return (cls.__name__, v)",
    "double": "@staticmethod\ndef double(v):\n    return v * 2",
    "describe": 'def describe(self):\n    return ["parent", *super().describe()]',
    "show": (
        "@functools.singledispatchmethod\ndef show(self, v):\n    return 'any'\n\n"
        "@show.register\ndef _(self, v: int):\n    return 'int'\n\n"
        "@show.register\ndef _(self, v: str):\n    return 'str'"
    ),
    "later": "async def later(self, v):\n    return v + 1",
    "wrapped": "@doubled\ndef wrapped(self, v):\n    return v",
    "timed": "@times(3)\ndef timed(self, v=2):\n{body}",
    "__call__": "def __call__(self, v, *more):\n    return (v, more, self.up)",
    "__len__": "def __len__(self):\n    return self.width_or(3)\n\ndef width_or(self, v):\n    return v",
    "__eq__": "def __eq__(self, other):\n    return self.up == other\n\n__hash__ = None",
    "variadic": "def variadic(self, *xs, **named):\n    return (xs, sorted(named))",
    "lazy": "@functools.cached_property\ndef lazy(self):\n    return self.up + 1",
    "secret": (
        "def secret(self):\n    self.__hidden = 3\n    return self.__twice()\n\n"
        "def __twice(self):\n    return self.__hidden * 2"
    ),
    "own_class": "def own_class(self):\n    return (self.__class__.level, [type(self).level for _ in 'a'])",
    "through": "def through(self, v):\n    def inner():\n        return super(__class__, self).forward(v)\n    return inner()",
    "keyed": "def keyed(self, v, /, w=2, *, z=3):\n    return (v, w, z, self.up)",
    "__getattr__": (
        "def __getattr__(self, name):\n    if name == 'dynamic':\n        return 5\n    raise AttributeError(name)\n\n"
        "def dynamic_of(self):\n    return self.dynamic"
    ),
    "stored": "def stored(self, v):\n    self.put(v)\n    return self.up",
    "by_default": "def by_default(self, v=SCALE, acc=()):\n    return (v, *acc)",
    "generated": "def generated(self, v):\n    yield v\n    yield from range(self.up, self.up + 2)",
}
ALWAYS = (
    "def fill(self, v):\n    self.down = v\n    self.items.append(v)",
    "def total(self):\n    return self.up + self.high",
    "@property\ndef high(self):\n    return self.down * 10",
)
"""Methods that every parent has, for statements of `__init__` that use them."""
SETTER = "@size_of.setter\ndef size_of(self, v):\n    self.up = v"
BEHIND_METHODS = (
    "alias = forward",
    "applied = functools.partialmethod(fill, 7)",
    "totals = property(total)",
    "width_of = property(lambda self: self.up)",
    "run = staticmethod(abs)",
)
FORWARDS = (("x", ("x",)), ("x, y=1", ("x", "y")), ("x, *, y=1", ("x", "y")), ("x, y=1, **kwargs", ("x", "y")))
PARENT_INIT = (
    "config=3, size=2, flag=False",
    "config=3, size=2, *, flag=False",
    "config=3, size=2, flag=False, **kwargs",
)


def draw_parent(draw: Random, name: str, base: str, scope: Scope, others: tuple[str, ...]) -> Class:
    """A class of a neighbour; `others` are classes before it that it may use."""
    features = [key for key in PLAIN_ATTRIBUTES if chance(draw, 4)]
    pieces = [pick(draw, PLAIN_ATTRIBUTES[key]) for key in features]
    init = constructor(draw, scope)
    if others and chance(draw, 2):
        init.append(f"self.part = {pick(draw, others)}()")
    pieces.append(method(f"__init__(self, {pick(draw, PARENT_INIT)})", init))
    pieces += ALWAYS
    within = scope.with_names(*ATTRIBUTES)
    methods = [key for key in METHODS if chance(draw, 4)]
    for key in methods:
        own = within.with_names("v") if key == "scale" else within
        pieces.append(METHODS[key].format(body=indent(computation(draw, own, ()))))
        if key == "size_of" and chance(draw, 2):
            pieces.append(SETTER)
            features.append("setter")
    signature, parameters = pick(draw, FORWARDS)
    pieces.append(method(f"forward(self, {signature})", computation(draw, within, parameters)))
    if chance(draw, 8):
        pieces.append(pick(draw, BEHIND_METHODS))
    docstring = f'    """The class {name}."""\n\n' if chance(draw, 3) else ""
    text = f"class {name}({base}):\n{docstring}" + "\n\n".join(indent(piece.split("\n")) for piece in pieces)
    return Class(name, text, frozenset((*features, *methods)), signature)


def draw_child(draw: Random, name: str, parent: Class, scope: Scope) -> str:
    """A class of the modular file that inherits from `parent`."""
    bases = pick(draw, [parent.name] * 8 + [f"DescribeMixin, {parent.name}", f"{parent.name}, TagExtra"])
    pieces = _attributes(draw, parent, scope)
    if chance(draw, 8):
        pieces.append(pick(draw, CHILD_EXTRAS))
    if chance(draw, 2):
        pieces.append(overrides.draw_init(draw, name, scope))
    if chance(draw, 2):
        pieces.append(overrides.draw_forward(draw, name, parent.name, parent.forward, scope))
    pieces += overrides.draw_others(draw, parent.features, scope)
    if chance(draw, 8):
        pieces.append(method("extra(self, v)", computation(draw, scope.with_names("self.up"), ("v",))))
    if not pieces:
        pieces.append(pick(draw, ["pass", '"""As its parent."""', "..."]))
    return f"class {name}({bases}):\n" + "\n\n".join(indent(piece.split("\n")) for piece in pieces)


CHILD_ATTRIBUTES = {
    "width": ("width = 6", "width: int = 6", 'width = 6\n"""Wider than its parent."""', "width = AttributeError()"),
    "label": ('label = "emu"', "label = AttributeError()"),
    "names": ('names = ["c"]', 'names = ["c"]\nnames = names + ["d"]'),
    "base": ("base = 10", "if True:\n    base = 11", "base, derived = 12, 13", "base = 10\nbase += 1"),
    "side": ("side = 5", "side: int = 6", "area = 9", "side = AttributeError()"),
    "rate": (
        "rate = 3",
        "def rated(self, v):\n    return super().rated(v)",
        "rate = 3\n\ndef rated(self, v):\n    return v + 1",
        "rate = 3\n\n@times(rate)\ndef rated(self, v):\n    return v + 2",
    ),
    "share": (
        "share = 5",
        "share = 6\n\ndef shared(self, v, **super_kwargs):\n    return super().shared(v=v, **super_kwargs)",
        "def shared(self, v, r=SIZE):\n    return super().shared(v, r)",
    ),
    "Inner": ("class Inner:\n    depth = 2",),
    "size_of": ("size_of = 8",),
    "scale": ("scale = None", "scale = lambda self, v: v"),
    "shift_by": ("def shift_by(self, v):\n    return v + 20",),
    "kind": ('kind: str = "own"',),
}


CHILD_EXTRAS = (
    "for tag in ('a', 'b'):\n    pass",
    "if True:\n    tag = 4\nelse:\n    tag = 5",
    '__slots__ = ("own_slot",)',
    "def set_secret(self):\n    self.__hidden = 4\n    return self.__hidden",
    "level = 9",
    "def __call__(self, v):\n    return v + 1",
    "def up_by(self, v=SIZE):\n    return self.up + v",
    "@times(2)\ndef tag(self):\n    return self.up",
)


def _attributes(draw: Random, parent: Class, scope: Scope) -> list[str]:
    pieces: list[str] = []
    for key, shapes in CHILD_ATTRIBUTES.items():
        if key in parent.features and chance(draw, 4):
            pieces.append(pick(draw, shapes))
    if chance(draw, 6):
        value = expression(draw, scope)
        pieces.append(
            pick(draw, ["own = {}", "own: int = {}", "own = other = {}", "own, other = {}, 1"]).format(value)
        )
    return pieces


def method(header: str, body: list[str]) -> str:
    """The text of a method."""
    return f"def {header}:\n{indent(body)}"


def indent(lines: list[str]) -> str:
    """Lines one level deeper."""
    return textwrap.indent("\n".join(lines), "    ")
