"""Random programs as authors write them: each choice is taken as often as published modular files take it.

The numbers are in `shapes.json`, which `utils/mine_shapes.py` writes. What authors of models never write, such as
private names or statements that change a class below its definition, is left to the hostile grammar of `programs.py`.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from random import Random

from tests.oracle import members
from tests.oracle.bodies import ATTRIBUTES, Scope, chance, expression, pick
from tests.oracle.members import METHODS, indent, method


SHAPES: Mapping[str, Mapping[str, int]] = json.loads(
    pathlib.Path(__file__).with_name("shapes.json").read_text("utf-8")
)
IMPORTS = "import contextlib\nimport functools\nfrom ...shared import DescribeMixin, Root, TagExtra, doubled, times, no_inherit_decorator\n"
NEIGHBOUR = """{imports}
{constant} = {number}


def rescale(value):
    return value * 2


def {function}(value):
    return value + {constant}
"""
FEATURES = {
    "property": ("size_of",),
    "classmethod": ("make",),
    "staticmethod": ("double",),
    "decorated": ("wrapped", "timed"),
    "generator": ("generated",),
    "special": ("__call__", "__len__"),
    "variadic": ("variadic",),
    "super elsewhere": ("describe",),
}
"""What the parents of published modular files have -> methods of the grammar."""
FILL = "def fill(self, v):\n    self.down = v\n    if v > 3:\n        self.items.append(v)"
CLASS_ATTRIBUTES = {"width": ("int", 4), "label": ("str", '"llama"'), "names": ("list", '["a"]'), "depth": ("int", 2)}
STATEMENTS = {
    "set new": "self.own = {v}",
    "set override": "{t} = {v}",
    "set from others new": "self.other = self.up + {v}",
    "set from others override": "self.down = self.up + {v}",
    "set from itself": "{t} = {t} * 2",
    "augment": "{t} += {v}",
    "delete": "del {t}",
    "delete other": "del self.rooted",
    "change": "self.items[0] = {v}",
    "call": "rescale({v})",
    "call own": "self.post_init()",
    "local": "inner = {v}\nself.inner = inner + 1",
    "if": "if {n} > 3:\n    self.own = {v}",
    "for": "for i in range(2):\n    self.items.append(i + {v})",
    "with": "with contextlib.nullcontext():\n    self.own = {v}",
    "return": "return",
    "raise": "if {n} is None:\n    raise ValueError",
    "other": "assert {n} is not None",
}
"""A statement for each word of the table."""


def drawn(draw: Random, point: str) -> str:
    """An option of a choice, as often as it was taken."""
    options = SHAPES[point]
    return draw.choices([*options], [*options.values()])[0]


def number(draw: Random, point: str, most: int) -> int:
    """A number of statements or members; larger ones count as `most`."""
    return min(int(drawn(draw, point)), most)


def draw_modules(draw: Random) -> tuple[str, str, str]:
    """The texts of `llama`, `bert` and the modular file of `emu`."""
    texts, parents = dict[str, str](), list[members.Class]()
    for name, helper, stems in (("Llama", "shift", ("Norm", "MLP", "Layer")), ("Bert", "offset", ("Attention",))):
        function = f"{name}_{helper}".lower()
        constant = function.upper()
        text = NEIGHBOUR.format(imports=IMPORTS, constant=constant, function=function, number=draw.randint(1, 3))
        scope = Scope((constant,), ("rescale", function))
        for stem in stems:
            others = tuple(one.name for one in parents if one.name.startswith(name))
            parents.append(draw_parent(draw, name + stem, scope, others))
            text += f"\n\n{parents[-1].text}\n"
        texts[name] = text
    taken = [one for one in parents if chance(draw, 2)] or parents[1:2]
    lines = [IMPORTS + "".join(map(_import, taken)), "SIZE = 6\n\n\ndef own(value):\n    return value + SIZE"]
    for parent in taken:
        stem = parent.name.removeprefix("Llama").removeprefix("Bert")
        lines.append(draw_heir(draw, f"Emu{stem}", parent, Scope(("SIZE",), ("own",))))
    return texts["Llama"], texts["Bert"], "\n\n\n".join(lines) + "\n"


def _import(parent: members.Class) -> str:
    model = "llama" if parent.name.startswith("Llama") else "bert"
    return f"from ..{model}.modeling_{model} import {parent.name}\n"


def draw_parent(draw: Random, name: str, scope: Scope, others: tuple[str, ...]) -> members.Class:
    """A class of a neighbour; `others` are classes above it that it may use."""
    pieces: list[str] = []
    attributes = [one for one in CLASS_ATTRIBUTES if chance(draw, 2)] if _has(draw, "attribute") else []
    for one in attributes:
        kind, value = CLASS_ATTRIBUTES[one]
        pieces.append(f"{one}: {kind} = {value}" if chance(draw, 2) else f"{one} = {value}")
    pieces.append(method("__init__(self, config=3, size=2, flag=False)", _constructor(draw, scope, others)))
    features = ["fill", "scale", *(pick(draw, FEATURES[one]) for one in FEATURES if _has(draw, one))]
    known = scope.with_names("self.up", "self.down")
    within = known.with_names("v")
    for one in features:
        text = FILL if one == "fill" else METHODS[one]
        pieces.append(text.format(body=indent(_body(draw, within if one == "scale" else known))))
    forward = pick(draw, ("x", "x, y=1", "x, y=1, **kwargs"))
    parameters = tuple(one for one in ("x", "y") if one in forward)
    early = ["if x > 7:\n    return 0"] if _has(draw, "early return") else []
    pieces.append(
        method(f"forward(self, {forward})", [*early, *_body(draw, scope.with_names("self.up", *parameters))])
    )
    docstring = f'    """The class {name}."""\n\n' if chance(draw, 2) else ""
    text = f"class {name}(Root):\n{docstring}" + "\n\n".join(indent(piece.split("\n")) for piece in pieces)
    return members.Class(name, text, frozenset((*features, *attributes)), forward)


def _has(draw: Random, feature: str) -> bool:
    return drawn(draw, f"parent.{feature}") == "yes"


def _constructor(draw: Random, scope: Scope, others: tuple[str, ...]) -> list[str]:
    scope = scope.with_names("config", "size")
    lines = ["super().__init__()"]
    lines += [f"{one} = {expression(draw, scope, 1)}" for one in ATTRIBUTES]
    lines.append("self.items = [1, 2, 3]")
    if others and chance(draw, 2):
        lines.append(f"self.part = {pick(draw, others)}()")
    for _ in range(draw.randint(0, 3)):
        lines += _statement(draw, drawn(draw, "parent.statement"), scope)
    return lines


def _statement(draw: Random, word: str, scope: Scope) -> list[str]:
    """A statement that is drawn by its word, with values from a scope."""
    names = [one for one in scope.names if one.isidentifier()]
    values = {"v": expression(draw, scope, 1), "n": pick(draw, names), "t": pick(draw, ATTRIBUTES)}
    return STATEMENTS[word].format(**values).split("\n")


def _body(draw: Random, scope: Scope) -> list[str]:
    """A computation that ends with its result."""
    lines = [f"h = {expression(draw, scope, 1)}"] if chance(draw, 2) else []
    if lines and chance(draw, 3):
        lines.append(f"h = h + {expression(draw, scope, 1)}")
    result = expression(draw, scope, 1)
    return [*lines, f"return h + {result}" if lines else f"return {result}"]


def draw_heir(draw: Random, name: str, parent: members.Class, scope: Scope) -> str:
    """A class of the modular file that inherits from `parent`."""
    order = drawn(draw, "heir.bases")
    other = pick(draw, ("DescribeMixin", "TagExtra"))
    bases = {"alone": parent.name, "first": f"{parent.name}, {other}", "last": f"{other}, {parent.name}"}[order]
    theirs = [one for one in CLASS_ATTRIBUTES if one in parent.features]
    given = dict(_attribute(draw, theirs, scope) for _ in range(number(draw, "heir.attributes", 3)))
    pieces = [*given.values()]
    done: set[str] = set()
    for _ in range(number(draw, "heir.methods", 3)):
        kind = drawn(draw, "heir.method")
        free = sorted({"forward", "fill", *(parent.features & METHODS.keys())} - done)
        chosen = "__init__" if kind == "__init__" else "extra" if kind == "new" or not free else pick(draw, free)
        if chosen not in done:
            done.add(chosen)
            pieces.append(_method(draw, chosen, name, parent, scope))
    pieces = pieces or [pick(draw, ("pass", '"""As its parent."""'))]
    return f"class {name}({bases}):\n" + "\n\n".join(indent(piece.split("\n")) for piece in pieces)


def _attribute(draw: Random, theirs: list[str], scope: Scope) -> tuple[str, str]:
    """A name, and the class attribute or removal of this name."""
    form, _, which = drawn(draw, "heir.attribute").partition(" ")
    one = pick(draw, theirs) if which == "override" and theirs else pick(draw, ("rate", "share", "ratio"))
    kind, value = CLASS_ATTRIBUTES.get(one, ("int", 0))
    value = value if isinstance(value, str) and chance(draw, 2) else expression(draw, scope, 1)
    if form == "removed" and one in theirs:
        return one, f"{one} = AttributeError()"
    return one, {"bare": f"{one}: {kind}", "annotated": f"{one}: {kind} = {value}"}.get(form, f"{one} = {value}")


def _method(draw: Random, chosen: str, name: str, parent: members.Class, scope: Scope) -> str:
    if chosen == "__init__":
        return _draw_init(draw, scope)
    if chosen == "extra":
        decorator = drawn(draw, "new.decorator")
        first = {"classmethod": "cls, v", "staticmethod": "v", "property": "self"}.get(decorator, "self, v")
        above = {"none": "", "other": "@doubled\n"}.get(decorator, f"@{decorator}\n")
        known = scope.with_names("v") if "v" in first else scope
        return above + method(f"extra({first})", _body(draw, known))
    if chosen == "fill":
        return _draw_fill(draw, scope)
    return _draw_override(draw, chosen, parent, scope)


def _draw_init(draw: Random, scope: Scope) -> str:
    known = ["config", "size", "flag"][: pick(draw, (1, 1, 2, 3))]
    defaults = {"config": "3", "size": "2", "flag": "False", "depth": "2"}
    own = scope.with_names(*known, *(["depth"] if (extra := chance(draw, 4)) else []))
    header = ", ".join(["self", *(f"{one}={defaults[one]}" for one in [*known, *(["depth"] if extra else [])])])
    arguments = ", ".join(known)
    form = drawn(draw, "__init__.arguments")
    if form == "super_kwargs":
        header, arguments = "self, config=4, **super_kwargs", "config=config, **super_kwargs"
        own = scope.with_names("config")
    elif form == "unpacked":
        header, arguments, own = (
            "self, config=3, *args, **kwargs",
            "config, *args, **kwargs",
            scope.with_names("config"),
        )
    elif form == "altered":
        arguments = ", ".join([f"{known[0]} + 1", *known[1:]])
    elif form == "nothing":
        arguments = ""
    call = drawn(draw, "__init__.call")
    before = [] if call != "statement" else _lines(draw, "__init__.before", own, 1)
    after = _lines(draw, "__init__.after", own.with_names("self.up") if call == "statement" else own, 3)
    if call == "statement":
        return method(f"__init__({header})", [*before, f"super().__init__({arguments})", *after])
    sets = [f"{one} = {expression(draw, own, 1)}" for one in ATTRIBUTES]
    return method(f"__init__({header})", ["Root.__init__(self)", *sets, "self.items = [1, 2, 3]", *after])


def _lines(draw: Random, point: str, scope: Scope, most: int) -> list[str]:
    words = [drawn(draw, f"{point}.statement") for _ in range(number(draw, point, most))]
    lines = [line for word in words for line in _statement(draw, word, scope)]
    return lines if not point.endswith("before") else [line for line in lines if "self.up" not in line]


def _draw_fill(draw: Random, scope: Scope) -> str:
    """An override of the method that sets things up and returns nothing, as `_init_weights` does."""
    own = scope.with_names("v")
    before, after = _lines(draw, "override.before", own, 1), _lines(draw, "override.after", own, 2)
    if drawn(draw, "override.call") == "none":
        return method("fill(self, v)", [f"self.down = {expression(draw, own, 1)}", *after])
    return method("fill(self, v)", [*before, "super().fill(v)", *after])


def _draw_override(draw: Random, chosen: str, parent: members.Class, scope: Scope) -> str:
    """An override of a method that returns something; shapes with a call are drawn as often as in published files."""
    head, given = _signature(chosen, parent.forward)
    above = {"size_of": "@property\n", "make": "@classmethod\n", "double": "@staticmethod\n"}.get(chosen, "")
    names = [one for one in ("x", "y", "v") if one in given.replace("=", ", ").replace("*", "").split(", ")]
    own = scope.with_names(*names, *(["self.up"] if "self" in head else []))
    call = drawn(draw, "override.call")
    text = f"super().{chosen}" if chosen == "size_of" else f"super().{chosen}({given})"
    if call == "stub" and chosen in ("scale", "make", "describe"):
        return f'\ndef {chosen}({head}):\n    raise AttributeError("gone")'
    if call in ("statement", "return") and chosen not in ("double", "size_of", "generated"):
        before = [f"{names[0]} = {names[0]} + 1"] if names and drawn(draw, "override.before") != "0" else []
        return above + method(f"{chosen}({head})", [*before, f"return {text}"])
    if call in ("value", "inside") and chosen != "double":
        return above + method(f"{chosen}({head})", [f"return ({text}, 1)"])
    if call == "base" and chosen in ("forward", "describe"):
        return method(f"{chosen}({head})", [f"return Root.{chosen}(self{', x' if chosen == 'forward' else ''})"])
    decorated = "@doubled\n" if not above and drawn(draw, "override.decorator") == "other" else above
    return decorated + method(f"{chosen}({head})", _body(draw, own))


def _signature(chosen: str, forward: str) -> tuple[str, str]:
    """The parameters of an override, and the arguments of the call of its parent's."""
    given = {"x": "x", "x, y=1": "x, y", "x, y=1, **kwargs": "x, y, **kwargs"}[forward]
    special = {
        "forward": (f"self, {forward}", given),
        "make": ("cls, v", "v"),
        "double": ("v", "v"),
        "size_of": ("self", ""),
        "describe": ("self", ""),
        "__len__": ("self", ""),
        "__call__": ("self, v, *more", "v, *more"),
        "variadic": ("self, *xs, **named", "*xs, **named"),
        "timed": ("self, v=2", "v"),
    }
    return special.get(chosen, ("self, v", "v"))
