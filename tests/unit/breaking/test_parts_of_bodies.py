"""Which parts a body makes by its calls: of heirs of layers, of containers, and behind questions about what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.breaking.states import keys_of
from tests.unit.breaking.test_followed_code import CONFIG, HEAD, PERHAPS, SURE, UnknownParts, facts, unknown_parts


__all__ = ["unknown_parts"]
MODEL = HEAD.replace(
    "\n\nclass NetModel(",
    """

class Wide(nn.Linear):
    def __init__(self):
        super().__init__(2, 2, bias=False)


class Norm(nn.LayerNorm):
    pass


class Parts(nn.ModuleList):
    def __init__(self, number):
        super().__init__([Block() for _ in range(number)])


class Maker(nn.Module):
    def made(self):
        return Block()


class Heir(Maker):
    def __init__(self):
        super().__init__()
        self.one = self.made()

    def made(self):
        return nn.Sequential(super().made())


class Sized(nn.Module):
    def __init__(self, config):
        super().__init__()
        if config.depth == 2:
            self.dense = nn.Linear(2, 2, bias=False)


def adding(init):
    def made(self):
        init(self)
        self.added = nn.Linear(2, 2, bias=False)

    return made


class Decorated(nn.Module):
    @adding
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(2, 2, bias=False)


class Wrapped(nn.Module):
    @other.wrap
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(2, 2, bias=False)


class Outer(nn.Module):
    def __init__(self, given=None):
        super().__init__()
        self.inner = Block()
        self.given = given


class Deep(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.inner = Deep(number + 1)


class Hidden(nn.Module):
    def __init__(self, SIZE):
        super().__init__()
        if SIZE > 3:
            self.dense = nn.Linear(2, 2, bias=False)


def again(number):
    return again(number)


Layer = nn.Linear


class NetModel(""",
).replace("import torch\n", "import copy\n\nimport torch\n")
SETTINGS = CONFIG.replace(
    "    depth: int = 2\n",
    '    depth: int = 2\n    names: tuple = ("x", "y")\n    sizes: list = field(default_factory=lambda: [1, 2])\n    parts: list = field(default_factory=list)\n',
)
BODIES = {
    "an heir of a layer": ("self.wide = Wide()\nself.norm = Norm(2)", {"wide.weight": SURE, "norm.weight": SURE, "norm.bias": SURE}),
    "an heir of a list": ("self.parts = Parts(3)", {"parts.*.dense.weight": SURE}),
    "a base's method": ("self.heir = Heir()", {"heir.one.*.dense.weight": SURE}),
    "an argument with the name of a constant": ("self.one = Hidden()\nself.two = Hidden(SIZE)", {"one.dense.weight": PERHAPS, "two.dense.weight": SURE}),
    "another name of a layer": ("self.proj = Layer(2, 2, bias=False)", {"proj.weight": SURE}),
    "a method that gives the same": ("self.proj = nn.Linear(2, 2, bias=False).half().eval()", {"proj.weight": SURE}),
    "the class of an object": ("first = Block()\nself.one = first.__class__()\nkind = first.__class__\nself.two = kind()", {"one.dense.weight": SURE, "two.dense.weight": SURE}),
    "what has been filled": ("self.one = Block()\nself.post_init()", {"one.dense.weight": SURE}),
    "a setting of all models": ("if config.tied:\n    self.one = Block()\nelse:\n    self.two = Block()", {"one.dense.weight": SURE}),
    "a try": ("try:\n    self.one = Block()\nexcept ValueError:\n    self.two = Block()\nelse:\n    self.three = Block()", {"one.dense.weight": SURE, "three.dense.weight": SURE}),
    "lists in a list": ("self.parts = nn.ModuleList([*[Block()], nn.ReLU()])\nfor name in [*config.names]:\n    self.add_module(name, Block())", {"parts.*.dense.weight": SURE, "x.dense.weight": SURE, "y.dense.weight": SURE}),
    "an item of a setting": ("_, name = config.names\nself.add_module(name, Block())", {"y.dense.weight": SURE}),
    "an item by its key": ('self.one = {"a": nn.ReLU(), "b": Block()}["b"]', {"one.dense.weight": SURE}),
    "an item by a key that is not known": ('self.one = {"a": nn.ReLU(), "b": Block()}[config.other]', {"one.dense.weight": PERHAPS}),
    "an item of what a loop has made": ("parts = nn.ModuleList([Block() for _ in range(config.depth)])\nself.one = parts[1]", {"one.dense.weight": SURE}),
    "the last item": ("self.one = nn.ModuleList([nn.ReLU(), Block()])[-1]", {"one.dense.weight": SURE}),
    "a slice of what a loop has made": ("self.parts = nn.ModuleList([Block() for _ in range(config.depth)])[1:]", {"parts.*.dense.weight": PERHAPS}),
    "a slice that is not known": ("self.parts = nn.ModuleList([Block(), nn.ReLU()])[config.other :]", {"parts.*.dense.weight": PERHAPS}),
    "a slice that is an error": ("self.parts = nn.ModuleList([Block()])[config.act :]\nself.rest = nn.ModuleList([Block()])[::0]", {"parts.*.dense.weight": PERHAPS, "rest.*.dense.weight": PERHAPS}),
    "every second item": ("self.parts = nn.ModuleList([nn.ReLU(), Block(), nn.ReLU()])[1::2]", {"parts.*.dense.weight": SURE}),
    "names by a slice": ("for name in config.names[1:]:\n    self.add_module(name, Block())\nfor name in [1, 2][2:]:\n    self.none = Block()", {"y.dense.weight": SURE}),
    "an inserted part": ("self.parts = nn.ModuleList()\nself.parts.insert(0, Block())", {"parts.*.dense.weight": SURE}),
    "more parts": ("self.parts = nn.ModuleList()\nself.parts.extend([Block()])", {"parts.*.dense.weight": SURE}),
    "the entries of a dict": ('for name, part in {"a": Block(), "b": nn.ReLU()}.items():\n    self.add_module(name, part)\nfor part in {"a": Block()}.values():\n    self.last = part', {"a.dense.weight": SURE, "last.dense.weight": SURE}),
    "an entry or another one": ('found = {"a": Block()}\nself.one = found.get("a")\nself.two = found.get("b", Block())\nself.three = found.get("c")', {"one.dense.weight": SURE, "two.dense.weight": SURE}),
    "a dict of pairs": ('self.parts = nn.ModuleDict([("one", Block())])', {"parts.one.dense.weight": SURE}),
    "a registered parameter": ('self.register_parameter("scale", nn.Parameter(torch.ones(2)))\nself.register_module("one", Block())', {"scale": SURE, "one.dense.weight": SURE}),
    "an attribute by its name": ('self.one = Block()\nself.two = getattr(self, "one")\nself.three = getattr(self, "none", Block())\nself.four = getattr(self, "one", None)', {f"{name}.dense.weight": SURE for name in ("one", "two", "three", "four")}),
    "whether there is an attribute": ('self.one = Block()\nif hasattr(self, "one"):\n    self.two = Block()\nif hasattr(self, "none"):\n    self.three = Block()\nif hasattr(torch, "compile"):\n    self.four = Block()', {f"{name}.dense.weight": SURE for name in ("one", "two", "four")}),
    "whether it is a dict": ('if isinstance({"a": 1}, dict):\n    self.one = Block()\nif isinstance(config.act, dict):\n    self.two = Block()\nif isinstance([], dict):\n    self.three = Block()\nif isinstance(config.other, dict):\n    self.four = Block()\nif isinstance({"a": config.other}, dict):\n    self.five = Block()', {"one.dense.weight": SURE, "four.dense.weight": PERHAPS, "five.dense.weight": SURE}),
    "a setting that is changed": ("config.depth = 0\nif config.depth:\n    self.one = Block()", {}),
    "a copy that is changed": ("other = copy.deepcopy(config)\nother.depth = 0\nif config.depth:\n    self.one = Block()\nif other.depth:\n    self.two = Block()", {"one.dense.weight": SURE}),
    "a list for a setting": ("if config.sizes == [1, 2] and len(config.parts) == 0:\n    self.one = Block()", {"one.dense.weight": SURE}),
    "parts before and after a change": ("self.one = Sized(config)\nconfig.depth = 1\nself.two = Sized(config)", {"one.dense.weight": SURE}),
    "a part of one or the other": ("first = Block() if config.other else Wide()\nself.one = first.dense", {"one.weight": PERHAPS}),
    "a call of one or the other": ("make = Block if config.other else nn.ReLU\nself.one = make()", {"one.dense.weight": PERHAPS}),
    "a tensor in a layer": ("self.one = nn.Linear(2, 2, bias=False)\nself.one.bias = nn.Parameter(torch.ones(2))", {"one.weight": SURE, "one.bias": SURE}),
    "a tensor in a layer, perhaps": ("self.one = nn.Linear(2, 2, bias=False)\nif config.other:\n    self.one.bias = nn.Parameter(torch.ones(2))", {"one.weight": SURE, "one.bias": PERHAPS}),
    "a number between two": ("if 1 < config.depth < 3:\n    self.one = Block()", {"one.dense.weight": PERHAPS}),
    "a name that is not made": ('self.add_module("a_{}_{}".format(1), Block())', {}),
    "a name that a loop counts": ("for number in range(config.depth):\n    self.add_module(str(number), Block())", {"*.dense.weight": SURE}),
    "names in a set": ('for name in sorted({"a"} | {"b"}):\n    setattr(self, name, Block())', {"a.dense.weight": SURE, "b.dense.weight": SURE}),
    "an `__init__` that begins again": ("self.one = Block()\nnn.Module.__init__(self)\nself.two = Block()", {"two.dense.weight": SURE}),
    "what a generator gives": ("def parts():\n    yield Block()\n    yield from [nn.ReLU(), nn.Linear(2, 2, bias=False)]\nself.parts = nn.ModuleList(parts())", {"parts.*.dense.weight": SURE, "parts.*.weight": SURE}),
    "a function for all modules": ("self.one = Block()\nself.apply(lambda part: part.register_buffer('mark', torch.zeros(1)))", {"one.dense.weight": SURE, "one.dense.mark": SURE, "one.mark": SURE, "mark": SURE}),
    "a function for many modules": ("self.parts = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.ReLU()] * 20)\nfor n in 'abcdefghijklmnopqrstuvwxyz':\n    self.add_module(n, nn.ReLU())\nself.z = nn.Linear(2, 2, bias=False)\nself.apply(lambda part: part.register_buffer('mark', torch.zeros(1)) if isinstance(part, nn.Linear) else None)", {"parts.*.weight": SURE, "parts.*.mark": SURE, "z.weight": SURE, "z.mark": SURE}),
    "many names": ("for n in [f'{a}{b}' for a in 'abcdef' for b in 'uvwxyz']:\n    self.add_module(n, Block() if n == 'fz' else nn.ReLU())", {"fz.dense.weight": SURE}),
    "a part of one of two that are alike": ("self.a, self.b = Outer(), Outer()\nself.a.inner.more = nn.Linear(2, 2, bias=False)", {"a.inner.dense.weight": SURE, "a.inner.more.weight": SURE, "b.inner.dense.weight": SURE}),
    "a layer of one of two that are alike": ("self.a, self.b = Outer(), Outer()\nself.a.inner.dense.register_buffer('mark', torch.zeros(1))", {"a.inner.dense.weight": SURE, "a.inner.dense.mark": SURE, "b.inner.dense.weight": SURE}),
    "a part of a module with two names": ("self.a = self.b = Outer()\nself.a.inner.more = nn.Linear(2, 2, bias=False)", {f"{name}.inner.{part}.weight": SURE for name in "ab" for part in ("dense", "more")}),
    "a part that two modules are given": ("part = Block()\nself.a, self.b = Outer(part), Outer(part)\nself.a.given.more = nn.Linear(2, 2, bias=False)", {f"{name}.{part}.weight": SURE for name in "ab" for part in ("inner.dense", "given.dense", "given.more")}),
    "a part of a layer": ("self.one = nn.Linear(2, 2, bias=False)\nself.one.more = Block()\nself.one.more.dense.most = nn.Linear(2, 2, bias=False)", {"one.weight": SURE, "one.more.dense.weight": SURE, "one.more.dense.most.weight": SURE}),
    "a bias that is perhaps taken away": ("self.one = nn.Linear(2, 2)\nif config.other:\n    self.one.bias = None", {"one.weight": SURE, "one.bias": PERHAPS}),
    "a bias that is there": ("self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2, bias=False)\nfor part in (self.one, self.two):\n    if getattr(part, 'bias', None) is not None:\n        part.more = Block()", {"one.weight": SURE, "one.bias": SURE, "one.more.dense.weight": SURE, "two.weight": SURE}),
    "names that are not known, of what is not kept": ("for name in config.other:\n    self.register_buffer(f'{name}_steps', torch.zeros(1), persistent=False)\n    setattr(self, f'{name}_scale', 2)", {}),
    "a number of parts that is not known": ("for n in range(int(config.other)):\n    self.add_module(f'part_{n}', Block())", {"part_*.dense.weight": SURE}),
    "a parameter of a list": ("self.parts = nn.ModuleList([Block()])\nself.parts.weight = nn.Parameter(torch.ones(1))", {"parts.*.dense.weight": SURE, "parts.weight": SURE}),
    "a parameter for each child": ("self.one = nn.Linear(2, 2, bias=False)\nfor part in self.children():\n    part.register_parameter('gain', nn.Parameter(torch.ones(1)))", {"one.weight": SURE, "one.gain": SURE}),
    "names of all modules": ("self.one = Block()\nfor name, part in list(self.named_modules()):\n    if isinstance(part, nn.Linear):\n        setattr(self, name.replace('.', '_'), nn.Linear(2, 2, bias=False))", {"one.dense.weight": SURE, "one_dense.weight": SURE}),
    "a part by its path": ("self.one = Block()\nself.get_submodule('one').more = nn.Linear(2, 2, bias=False)", {"one.dense.weight": SURE, "one.more.weight": SURE}),
    "an attribute of one or the other": ("self.one, self.two = Block(), Block()\npart = self.one if config.other else self.two\npart.more = nn.Linear(2, 2, bias=False)", {"one.dense.weight": SURE, "two.dense.weight": SURE, "one.more.weight": PERHAPS, "two.more.weight": PERHAPS}),
    "an `__init__` with a decorator": ("self.one = Decorated()", {"one.dense.weight": SURE, "one.added.weight": SURE}),
    "names in reverse": ("for number, name in enumerate(reversed(config.names)):\n    self.add_module(f'{name}_{number}', Block())", {"y_0.dense.weight": SURE, "x_1.dense.weight": SURE}),
    "one or the other by `or`": ("self.one = config.other or Block()\nself.two = config.depth and Block()", {"one.dense.weight": PERHAPS, "two.dense.weight": SURE}),
}  # fmt: skip


@pytest.mark.parametrize("case", BODIES)
def test_the_parts_of_a_body(case: str, tmp_path: Path) -> None:
    body, wanted = BODIES[case]
    state = facts(tmp_path, body, SETTINGS, MODEL).files["modeling_net.py"].classes["NetModel"].state
    assert state is not None
    assert {name: key.is_certain for name, key in keys_of(state).items()} == wanted


IS_A = {
    SURE: (
        "Block(), nn.Module",
        "Block(), Block",
        "Wide(), nn.Linear",
        "Norm(2), nn.Module",
        "nn.Linear(2, 2), nn.Linear",
        "nn.Linear(2, 2), (nn.Conv2d, nn.Linear)",
        "nn.ReLU(), nn.ReLU",
        "nn.Linear(2, 2) if config.other else Wide(), nn.Module",
    ),
    PERHAPS: (
        "Wide(), nn.Conv2d",
        "config.other, nn.Linear",
        "Block(), config.other",
        "Block() if config.other else Wide(), Block",
        "Block(), ()",
    ),
    None: (
        "Block(), nn.Linear",
        "Block(), Wide",
        "nn.Linear(2, 2), Block",
        "nn.Linear(2, 2), nn.Conv2d",
        "nn.Linear(2, 2), (nn.Conv2d, Block)",
        "nn.ReLU(), nn.Linear",
        "nn.ReLU(), (nn.Conv2d, nn.Linear)",
        "nn.ModuleList(), nn.Linear",
        "Block() if config.other else nn.Linear(2, 2), Wide",
    ),
}  # fmt: skip


def test_whether_a_part_is_of_a_class(tmp_path: Path) -> None:
    asked = [one for several in IS_A.values() for one in several]
    lines = (f"if isinstance({one}):\n    self.part{chr(97 + number)} = Wide()" for number, one in enumerate(asked))
    state = facts(tmp_path, "\n".join(lines), SETTINGS, MODEL).files["modeling_net.py"].classes["NetModel"].state
    assert state is not None
    found = {asked[ord(name[4]) - 97]: key.is_certain for name, key in keys_of(state).items()}
    for answer, several in IS_A.items():
        assert {one: found.get(one) for one in several} == dict.fromkeys(several, answer)


UNKNOWN = {
    "a list of parts that is not known": ("import timm\nself.parts = nn.ModuleList(timm.parts(config))", ["parts.*"]),
    "a class within itself": ("self.deep = Deep(1)", None),
    "a function that calls itself": ("self.one = again(1)", ["one"]),
    "another method of a dict": ('self.one = {"a": Block()}.setdefault("b", Block())', ["one"]),
    "a module that another package is given": ("import timm\nself.one = Block()\ntimm.prune(self.one)", ["one.*"]),
    "a model that another package is given": ("import timm\nself.one = Block()\ntimm.prune(self)", ["*"]),
    "a layer that another package is given": (
        "import timm\nself.one = nn.Linear(2, 2)\ntimm.prune(self.one)",
        ["one.*"],
    ),
    "a list that another package is given": (
        "import timm\nself.one = nn.ModuleList([Block()])\ntimm.prune(self.one)",
        ["one.*"],
    ),
    "a module that another package wraps": ("self.one = torch.compile(Block())", ["one"]),
    "a method of torch that nobody knows": ("self.one = Block()\nself.one.set_parts(3)", ["one.*"]),
    "names by a product with itself": (
        'import itertools\nfor a, b in itertools.product("xy", repeat=2):\n    self.add_module(f"{a}_{b}", Block())',
        ["*"],
    ),
    "a part of a dict by a name that is not known": ("self._modules[config.other] = Block()", ["*"]),
    "names of parameters": (
        "self.one = Block()\nfor name, _ in self.named_parameters():\n    self.register_buffer('of_' + name.replace('.', '_'), torch.zeros(1))",
        ["*"],
    ),
    "a part that is taken out of a dict": ("self.one = Block()\nself._modules.pop('one')", ["*"]),
    "a part that is deleted from a dict": ("self.one = Block()\ndel self._modules['one']", ["*"]),
    "parts of a dict that grows": ("self._modules.update(one=Block())", ["*"]),
    "a part of what a table has": (
        "from transformers import ACT2FN\nself.act = ACT2FN[config.act]\nself.act.beta = nn.Parameter(torch.ones(1))",
        ["act"],
    ),
    "a function for what a table has": (
        "from transformers import ACT2FN\nself.act = ACT2FN[config.act]\nself.apply(lambda part: setattr(part, 'tag', nn.Parameter(torch.ones(1))))",
        ["act"],
    ),
    "a function that registers something for what a table has": (
        "from transformers import ACT2FN\nself.act = ACT2FN[config.act]\nself.apply(lambda part: part.register_buffer('tag', torch.ones(1)))",
        ["act"],
    ),
    "a buffer of what a table has": (
        "from transformers import ACT2FN\nself.act = ACT2FN[config.act]\nself.act.register_buffer('gain', torch.ones(1))",
        ["act"],
    ),
    "a name that is filled up": ('setattr(self, "a".zfill(10 ** 9), Block())', ["*"]),
    "a name that is not known": ("setattr(self, config.other, Block())", ["*"]),
    "a parameter by a name that is not known": (
        "self.register_parameter(config.other, nn.Parameter(torch.ones(1)))",
        ["*"],
    ),
    "an `__init__` with a decorator of another package": ("self.one = Wrapped()", ["one.*"]),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_parts_that_are_not_known_are_told(case: str, tmp_path: Path, unknown_parts: UnknownParts) -> None:
    body, wanted = UNKNOWN[case]
    state = facts(tmp_path, body, SETTINGS, MODEL).files["modeling_net.py"].classes["NetModel"].state
    assert state is not None
    found = [*unknown_parts(state)]
    assert found == wanted if wanted else found


def test_a_setting_that_one_model_changes_is_as_before_for_the_next(tmp_path: Path) -> None:
    more = MODEL.replace("\n\n__all__", "\n\nclass NetOther(PreTrainedModel):\n    config_class = NetConfig\n\n    def __init__(self, config):\n        super().__init__(config)\n        self.one = Sized(config)\n\n\n__all__")  # fmt: skip
    more = more.replace('["NetModel"]', '["NetModel", "NetOther"]')
    classes = facts(tmp_path, "config.depth = 1\nself.one = Sized(config)", SETTINGS, more).files["modeling_net.py"].classes  # fmt: skip
    states = {name: one.state for name, one in classes.items()}
    assert {name: [*keys_of(one)] for name, one in states.items() if one is not None} == {
        "NetModel": [],
        "NetOther": ["one.dense.weight"],
    }
