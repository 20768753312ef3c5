"""Overrides of random programs: a method of a child that calls `super()`, or does not, in many ways."""

from __future__ import annotations

import textwrap
from random import Random

from tests.oracle.bodies import ATTRIBUTES, IN_BLOCKS, UNSEEN, Scope, chance, computation, expression, pick


INITS = (
    ("self, config=3, size=2, flag=False", ("config, size, flag=flag", "config, size=size, flag=flag")),
    (
        "self, config=3, size=2, flag=False, depth=2",
        ("config, size, flag=flag", "config=config, size=size, flag=flag"),
    ),
    ("self, config=5, *args, **kwargs", ("config, *args, **kwargs",)),
    ("self, size=3, **super_kwargs", ("size=size, **super_kwargs", "**super_kwargs")),
    ("self, **super_kwargs", ("**super_kwargs",)),
    ("self", ("", "5, 1", "flag=True")),
)
ALTERED = ("config + 1, size, flag=flag", "size, config", "config", "config, flag=not flag", "4, size")


def draw_init(draw: Random, name: str, scope: Scope) -> str:
    """An `__init__` with or without a call of the parent's."""
    parameters, calls = pick(draw, INITS)
    arguments = pick(draw, calls)
    if "config" in parameters and "flag" in parameters and chance(draw, 8):
        arguments = pick(draw, ALTERED)
    known = tuple(word for word in ("config", "size") if f"{word}=" in parameters)
    own = scope.with_names(*known)
    before: list[str] = []
    latest = "config" if "config" in known else "SIZE"
    if chance(draw, 4):
        before = pick(
            draw, (f"inner = {expression(draw, own)}", "self.early = 1", "config = 9", f"self.late = lambda: {latest}")
        ).split("\n")
    after = _after_init(draw, own)
    if before and before[0].startswith("inner") and chance(draw, 2):
        after.append("self.inside = inner")
    call = _super(draw, name, f".__init__({arguments})")
    if chance(draw, 10):
        return _method("__init__", parameters, ["Root.__init__(self)", "self.up = 3", "self.down = 1", *after])
    return _method("__init__", parameters, [*before, call, *after])


def _super(draw: Random, name: str, rest: str) -> str:
    return f"super({name}, self){rest}" if chance(draw, 8) else f"super(){rest}"


def _after_init(draw: Random, scope: Scope) -> list[str]:
    """The statements behind `super().__init__(…)`."""
    lines: list[str] = []
    inherited = scope.with_names(*ATTRIBUTES)
    for _ in range(draw.randint(0, 3)):
        target = pick(draw, (*ATTRIBUTES, "self.own", "self.items", "self.inner", "self.rooted"))
        plain = target in ATTRIBUTES or target == "self.own"
        value = expression(draw, scope if chance(draw, 2) else inherited)
        shapes = (
            [f"{target} = {value}"] * 4 if plain else [f"{target} = [4]" if "items" in target else f"{target} = 7"]
        )
        if target in ATTRIBUTES:
            shapes += [
                f"{target} = {target} * 2",
                f"{target} += 1",
                f"del {target}",
                f"del {target}\n{target} = {value}",
            ]
            shapes += [
                f"{target} = self.twin = {value}",
                f"{target} = self.total()",
                f"{target} = self.high + 1",
                f"{target} = max([self], key=id).down",
                f"if self.up > 6:\n    return\n{target} = {value}",
                f"if flag_of(self):\n    {target} = {value}",
                f"{target}: int = {value}",
            ]
            shapes += [
                f"{target}, self.own = {value}, 2",
                f"{target} = {value}; self.late = 3",
                f"{target} = 1\n{target} += {value}",
            ]
        shapes += [
            "del self.items[0]",
            "self.items.append(9)",
            "self.post_init()",
            f"self.fill({value})",
            "config = 8\nself.own = config",
            f"local = {value}\nself.own = local",
            "self.items = [1, 2, 3]",
        ]
        shapes += UNSEEN if chance(draw, 4) else ()
        shapes = [shape.replace("{v}", value) for shape in shapes]
        shapes = [shape.replace("flag_of(self)", "self.up > 2") for shape in shapes]
        lines += pick(draw, shapes).split("\n")
    return lines


FORWARD_CALLS = {
    "x": ("x", "x", "x", "x=x", "x + 1", "2"),
    "x, y=1": ("x, y", "x, y", "x, y=y", "x", "y, x", "x * 10, y"),
    "x, *, y=1": ("x, y=y", "x, y=y", "x", "x, y=2"),
    "x, y=1, **kwargs": ("x, y, **kwargs", "x, y=y, **kwargs", "x, **kwargs", "x"),
}


OTHERS_NAMES = (
    "h = {v}\nlate = lambda: h + x\n{c}\nreturn late()",
    "h = {v}\nlate = (h + n for n in (x, 1))\n{c}\nreturn list(late)",
    "def late():\n    nonlocal x\n    x += 1\n    return x\n{c}\nreturn late()",
    "try:\n    [][0]\nexcept IndexError as {n}:\n    pass\n{c}",
    "match x:\n    case {n}:\n        h = {n}\n{c}",
    "{n}: int\n{c}\nreturn x",
    "global CALLS\nCALLS = x\n{c}\nreturn CALLS",
)
"""Names that the parent may have otherwise: in inner functions, of the module, or as local ones."""


def draw_forward(draw: Random, name: str, parent: str, signature: str, scope: Scope) -> str:
    """A `forward`: the parent's call as a statement, returned, within an expression, not at all, or on a class."""
    parameters = tuple(word for word in ("x", "y") if word in signature)
    own = scope.with_names(*parameters, "self.up", "self.down")
    header = f"self, {signature}"
    if chance(draw, 3):
        return _method("forward", header, computation(draw, own, parameters))
    arguments = pick(draw, FORWARD_CALLS[signature])
    if chance(draw, 10):
        header, arguments = "self, x, **super_kwargs", "x, **super_kwargs"
        own = scope.with_names("x", "self.up")
    call = _super(draw, name, f".forward({arguments})")
    before = _around(draw, own) if chance(draw, 3) else []
    shapes = ["return {c}"] * 6 + ["{c}", "{c}\nreturn x * 100", "{c}\nh = {v}\nreturn h", "h = {c}\nreturn h"]
    shapes += [
        "{c}\nself.calls = 1\nreturn x",
        "return ({c}, {v})",
        "if x > 2:\n    return {c}\nreturn {v}",
        "return [{c} for _ in 'ab']",
    ]
    shapes += [
        "run = super().forward\nreturn run({a})",
        "return list(map(super().forward, [x]))",
        "h = {v}; return {c}",
    ]
    shapes += [
        "{c}\ndel h",
        "return (lambda: {c})()",
        f"return {parent}.forward(self, {{a}})",
        "return Root.forward(self, x)",
    ]
    shapes += [
        "{c}\nx = x + 1\nreturn x",
        "{c}\nself.up = {v}\nself.down = self.up\nreturn self.down",
        "{c}\nself.up += 1\nreturn self.up",
        "def run(n):\n    return n + {v}\nreturn run(x)",
        "h = {v}\n{c}\nreturn h",
        "{c}\nreturn [x for x in (1, x)]",
        "if (n := {v}) > 3:\n    x = n\n{c}",
    ]
    shapes += OTHERS_NAMES if chance(draw, 6) else ()
    shapes += IN_BLOCKS if chance(draw, 6) else ()
    shapes += ["return [Root.forward(self, v) for v in (x, 1)]", "try:\n    return {c}\nfinally:\n    self.done = 1"]
    shape = pick(draw, shapes).format(
        c=call, v=expression(draw, own), a=arguments, n=pick(draw, [one for one in own.names if one.isidentifier()])
    )
    if "for _ in" in shape or "lambda" in shape:
        shape = shape.replace("super()", f"super({name}, self)")
    return _method("forward", header, [*before, *shape.split("\n")])


def _around(draw: Random, scope: Scope) -> list[str]:
    value = expression(draw, scope)
    return pick(draw, (f"x = {value}", f"h = {value}", f"self.up = {value}", "if x > 7:\n    return 0")).split("\n")


OTHERS = {
    "scale": (
        "def scale(self, v):\n    v = v + 1\n    return super().scale(v)",
        "def scale(self, v):\n    return super().scale(v) * 2",
        "def scale(self, v, w=1):\n    return v * w",
        'def scale(self, v):\n    raise AttributeError("gone")',
        'def scale(self, v):\n    raise NotImplementedError("gone")',
        "@doubled\ndef scale(self, v):\n    return super().scale(v)",
        "def scale(self, v):\n    self.up = v\n    super().scale(v)\n    return self.up",
    ),
    "size_of": (
        "@property\ndef size_of(self):\n    return super().size_of * 2",
        "@property\ndef size_of(self):\n    return 11",
        "@property\ndef size_of(self):\n    return 12\n\n@size_of.setter\ndef size_of(self, v):\n    self.down = v",
    ),
    "make": (
        "@classmethod\ndef make(cls, v):\n    return super().make(v + 1)",
        "@classmethod\ndef make(cls, v):\n    return v",
    ),
    "double": ("@staticmethod\ndef double(v):\n    return v * 4",),
    "describe": (
        'def describe(self):\n    return ["child", *super().describe()]',
        "def describe(self):\n    return super().describe()",
    ),
    "show": ("@no_inherit_decorator\ndef show(self, v):\n    return 'own'",),
    "later": (
        "async def later(self, v):\n    return await super().later(v)",
        "async def later(self, v):\n    return v + 5",
    ),
    "wrapped": (
        "@no_inherit_decorator\ndef wrapped(self, v):\n    return v + 1",
        "@doubled\ndef wrapped(self, v):\n    return v + 2",
        "@doubled\ndef wrapped(self, v):\n    return super().wrapped(v)",
    ),
    "timed": (
        "def timed(self, v=2):\n    return super().timed(v)",
        "@times(4)\ndef timed(self, v=5):\n    return v",
        "@times(2)\ndef timed(self, v=2):\n    return super().timed(v)",
    ),
    "__call__": (
        "def __call__(self, v, *more):\n    return super().__call__(v, *more)",
        "def __call__(self, v, *more):\n    self.down = v\n    return super().__call__(v, 7)",
        "def __call__(self, v):\n    return super().__call__(v)",
    ),
    "__len__": ("def __len__(self):\n    return super().__len__() + 1", "def width_or(self, v):\n    return 5"),
    "__eq__": ("def __eq__(self, other):\n    return super().__eq__(other) is True",),
    "variadic": (
        "def variadic(self, *xs, **named):\n    return super().variadic(*xs, **named)",
        "def variadic(self, *xs, **named):\n    return super().variadic(0, *xs, more=1, **named)",
        "def variadic(self, first=1, *xs):\n    return super().variadic(first, *xs)",
        "def variadic(self, *items, **options):\n    return super().variadic(*items, **options)",
    ),
    "lazy": (
        "@functools.cached_property\ndef lazy(self):\n    return super().lazy + 1",
        "@property\ndef lazy(self):\n    return 5",
        "lazy = 6",
    ),
    "secret": (
        "def secret(self):\n    self.__hidden = 9\n    return super().secret()",
        "def __twice(self):\n    return 70",
    ),
    "own_class": ("def own_class(self):\n    return super().own_class()",),
    "through": ("def through(self, v):\n    v = v + 1\n    return super().through(v)",),
    "keyed": (
        "def keyed(self, v, /, w=4, *, z=5):\n    return super().keyed(v, w, z=z)",
        "def keyed(self, v, /, w=4, *, z=5):\n    return super().keyed(v, z=z)",
        "def keyed(self, v, *, w=2, z=3):\n    v = v + 1\n    return super().keyed(v, w, z=z)",
    ),
    "__getattr__": (
        "def __getattr__(self, name):\n    if name == 'other':\n        return 6\n    return super().__getattr__(name)",
        "def __getattr__(self, name):\n    if name == 'dynamic':\n        return 7\n    raise AttributeError(name)",
    ),
    "stored": (
        "def stored(self, v):\n    super().stored(v)\n    self.up = self.up + 1\n    return self.up",
        "def stored(self, v):\n    self.put(v + 1)\n    return super().stored(v)",
    ),
    "by_default": (
        "def by_default(self, v=SIZE, acc=(1,)):\n    return super().by_default(v, acc)",
        "def by_default(self, v=7, **super_kwargs):\n    return super().by_default(v=v, **super_kwargs)",
        "def by_default(self, **super_kwargs):\n    return super().by_default(**super_kwargs)",
    ),
    "generated": (
        "def generated(self, v):\n    yield 0\n    yield from super().generated(v)",
        "def generated(self, v):\n    return super().generated(v)",
        "def generated(self, v):\n    v = v * 2\n    return super().generated(v)",
    ),
}


def draw_others(draw: Random, features: frozenset[str], scope: Scope) -> list[str]:
    """Overrides of the parent's further members."""
    return [pick(draw, shapes) for key, shapes in OTHERS.items() if key in features and chance(draw, 3)]


def _method(name: str, parameters: str, body: list[str]) -> str:
    return f"def {name}({parameters}):\n" + textwrap.indent("\n".join(body), "    ")
