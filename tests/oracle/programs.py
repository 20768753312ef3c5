"""Random programs: two neighbours and a modular file that builds on them, in plain Python.

Most programs are drawn as published files are written (`authored.py`), each fourth from a hostile grammar of class bodies:
overrides, `super()`, `del`, properties, mixins, helpers, in shapes that are rare. Expressions have no side effects: the converter puts an override in the
place of the parent's statement, which by design is evaluated at another time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.oracle import authored, bodies, members
from tests.oracle.bodies import chance, pick


SHARED = """
import functools


limit = 50


class Root:
    level = 1

    def __init__(self, rooted=True):
        self.rooted = rooted

    def post_init(self):
        self.ready = True

    def forward(self, x, y=1):
        return ("root", x)

    def describe(self):
        return ["root"]

    def put(self, v):
        self.up = v


class DescribeMixin:
    def describe(self):
        return ["mixin", *super().describe()]

    def forward(self, x, y=1):
        return ("mixin", x)


class TagExtra:
    tag = "extra"

    def describe(self):
        return ["tag", self.tag]


def tune(one):
    one.up = 77
    return 3


def no_inherit_decorator(function):
    return function


def doubled(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return [function(*args, **kwargs)] * 2

    return wrapper


def times(count):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return [function(*args, **kwargs)] * count

        return wrapper

    return decorate
"""
OTHER = "limit = 7\n"

IMPORTS = """
import functools
from ...shared import DescribeMixin, Root, TagExtra, doubled, times, tune, {limit}
"""


@dataclass(frozen=True)
class Program:
    """The modules of a small package, each with its text."""

    llama: str
    bert: str
    emu: str

    @property
    def modules(self) -> Mapping[str, str]:
        """Dotted name below the package -> text, in an order in which they can be imported."""
        return {
            "shared": SHARED,
            "other": OTHER,
            "models.llama.modeling_llama": self.llama,
            "models.bert.modeling_bert": self.bert,
            "models.emu.modular_emu": self.emu,
        }


HOSTILE = 4
"""One program in so many is of the hostile grammar, which draws rare shapes as often as common ones."""


def program_of(seed: int, number: int) -> Program:
    """The program with a number in the campaign of a seed: each can be drawn again without those before it."""
    draw = Random(f"{seed}/{number}")
    return hostile_program(draw) if number % HOSTILE == 0 else Program(*authored.draw_modules(draw))


def hostile_program(draw: Random) -> Program:
    """A neighbour `llama`, sometimes used beside `bert`, and the modular file of `emu`."""
    llama = _neighbour(draw, "Llama", ("Norm", "MLP"), chance(draw, 4))
    bert = _neighbour(draw, "Bert", ("Norm", "Attention"), False)
    return Program(llama.text, bert.text, _modular(draw, llama, bert))


@dataclass(frozen=True)
class _Neighbour:
    name: str
    text: str
    classes: Mapping[str, members.Class]
    functions: tuple[str, ...]
    constants: tuple[str, ...]


def _neighbour(draw: Random, name: str, stems: tuple[str, ...], has_grandparent: bool) -> _Neighbour:
    constants = {"SCALE": draw.randint(2, 4), f"{name.upper()}_SHIFT": draw.randint(1, 3)}
    functions = ("rescale", f"{name.lower()}_shift")
    lines = [IMPORTS.format(limit="limit") if chance(draw, 2) else IMPORTS.replace(", {limit}", "")]
    lines += [f"{constant} = {value}" for constant, value in constants.items()]
    uses = ("SCALE", f"{name.upper()}_SHIFT")
    if chance(draw, 8):
        lines.append(pick(draw, ["LOW, HIGH = 1, 2", "LOW = HIGH = 3", "if True:\n    LOW = 4"]))
        uses += ("LOW",)
    if chance(draw, 8):
        lines.append('TABLE = {"a": 1}')
        lines.append(pick(draw, ['TABLE["b"] = 2', 'TABLE.update({"b": 2})', "TABLE = dict(TABLE, b=2)"]))
        uses += ('TABLE.get("b", 0)',)
    for function, constant in zip(functions, constants, strict=True):
        change = pick(draw, ["value * {}", "value + {}", "value - {}"]).format(constant)
        lines.append(f"def {function}(value):\n    return {change}")
    scope = bodies.Scope(names=uses, calls=functions)
    if "limit\n" in lines[0]:
        scope = scope.with_names("limit")
    if has_grandparent:
        base = members.draw_parent(draw, f"{name}Base", "Root", scope, ())
        lines.append(base.text)
    classes: dict[str, members.Class] = {}
    for stem in stems:
        parent = f"{name}Base" if has_grandparent else "Root"
        one = members.draw_parent(draw, name + stem, parent, scope, tuple(classes))
        classes[one.name] = one
        lines.append(one.text)
    if chance(draw, 10):
        lines.append(f"{name}{stems[-1]}.level = 3")
    return _Neighbour(name, "\n\n\n".join(lines) + "\n", classes, functions, tuple(constants))


def _modular(draw: Random, llama: _Neighbour, bert: _Neighbour) -> str:
    prefix = pick(draw, ["Emu", "Emu", "EmuText"])
    parents = [parent for parent in llama.classes.values() if parent.name != "LlamaNorm" or chance(draw, 2)]
    if chance(draw, 3):
        parents.append(bert.classes[pick(draw, ["BertAttention", "BertNorm"])])
    taken = {parent.name: f"modeling_{_source(parent.name)}" for parent in parents}
    scope = bodies.Scope(names=("SIZE",), calls=("own",))
    for neighbour in (llama, bert):
        if chance(draw, 4):
            function = pick(draw, neighbour.functions)
            if function not in taken:
                taken[function] = f"modeling_{neighbour.name.lower()}"
                scope = scope.with_calls(function)
    lines = [IMPORTS.replace("tune, {limit}", "tune, no_inherit_decorator")]
    if chance(draw, 8):
        lines[0] += "from ...other import limit\n"
        scope = scope.with_names("limit")
    for name, module in taken.items():
        lines[0] += f"from ..{module.removeprefix('modeling_')}.{module} import {name}\n"
    lines.append("SIZE = 6\n\n\ndef own(value):\n    return value + SIZE")
    lines += _own_definitions(draw, taken)
    for parent in parents:
        stem = parent.name.removeprefix("Llama").removeprefix("Bert")
        if f"class {prefix}{stem}(" in "\n".join(lines):
            stem = "Second" + stem
        lines.append(members.draw_child(draw, prefix + stem, parent, scope))
        lines += _statements_below(draw, prefix + stem)
        if chance(draw, 10):
            lines.append(pick(draw, HEIRS).format(f"{prefix}Heir{stem}", prefix + stem))
    return "\n\n\n".join(lines) + "\n"


HEIRS = (
    "class {0}({1}):\n    pass",
    "class {0}({1}):\n    def forward(self, x, **kwargs):\n        return (super().forward(x), 1)",
    "class {0}({1}):\n    def __init__(self):\n        super().__init__()\n        self.up = self.up * 2",
)
"""A class of the modular file that inherits from another one of it: inheritance stays."""


def _source(class_name: str) -> str:
    return "llama" if class_name.startswith("Llama") else "bert"


def _own_definitions(draw: Random, taken: Mapping[str, str]) -> list[str]:
    """Definitions of the modular file that have the name of a neighbour's, after the renaming."""
    own: list[str] = []
    if chance(draw, 8):
        own.append(f"SCALE = {draw.randint(2, 9)}")
    if chance(draw, 8):
        own.append(f"EMU_SHIFT = {draw.randint(1, 9)}")
    if chance(draw, 8) and "rescale" not in taken:
        own.append("def rescale(value):\n    return value * 100")
    return own


def _statements_below(draw: Random, name: str) -> list[str]:
    """Statements of the module that change a class after it was made."""
    if not chance(draw, 12):
        return []
    shapes = (
        "{0}.tag = 5",
        'setattr({0}, "tag", 6)',
        "if True:\n    {0}.tag = 7",
        "for _ in range(1):\n    {0}.tag = 8",
    )
    return [pick(draw, shapes).format(name)]
