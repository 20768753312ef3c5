"""Ways to write modules and defaults, which other words for the same leave as they are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modular_converter.breaking.compare import changes_of_model
from modular_converter.breaking.facts import ModelFacts
from modular_converter.breaking.older import tree_at
from modular_converter.breaking.states import Node, keys_of
from modular_converter.breaking.values import Shape
from modular_converter.settings.load import profile_settings


UnknownParts = Callable[[Node], Iterator[str]]
HEAD = """\
import functools

import torch
from torch import nn

from ...modeling_utils import PreTrainedModel
from .configuration_net import NetConfig


SIZE = 4
OTHER = torch.finfo(torch.float32).bits


class Block(nn.Module):
    def __init__(self, number=0):
        super().__init__()
        self.dense = nn.Linear(2, 2, bias=False)


class NetModel(PreTrainedModel):
    config: NetConfig

    def __init__(self, config):
        super().__init__(config)
{body}

    def run(self, x, size=SIZE, width=2 * 4):
        pass


__all__ = ["NetModel"]
"""
CONFIG = """\
from ...configuration_utils import PreTrainedConfig


DEFAULT = 8


class NetConfig(PreTrainedConfig):
    model_type = "net"
    act: str = "silu"
    depth: int = 2
    width: int = DEFAULT


__all__ = ["NetConfig"]
"""
PLAIN = "self.proj = nn.Linear(2, 2, bias=False)"


def facts(folder: Path, body: str = PLAIN, config: str = CONFIG, model: str = HEAD) -> ModelFacts:
    texts = {
        "__init__.py": "",
        "modeling_utils.py": "from torch import nn\n\n\nclass PreTrainedModel(nn.Module):\n    def post_init(self):\n        self.filled = nn.Linear(1, 1)\n",
        "configuration_utils.py": "class PreTrainedConfig:\n    def __init__(self, tied=True, **kwargs):\n        pass\n",
        "models/__init__.py": "",
        "models/net/configuration_net.py": config,
        "models/net/modeling_net.py": model.replace(
            "{body}", "".join(f"        {line}\n" for line in body.split("\n"))
        ),
    }
    for name, text in texts.items():
        path = folder / "zoo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tree_at(str(folder / "zoo" / "models"), profile_settings()).facts("net")


SURE, PERHAPS = True, False
BODIES = {
    "a partial call": ("make = functools.partial(nn.Linear, bias=False)\nself.proj = make(2, 2)", {"proj.weight": SURE}),
    "a partial of a partial": ("make = functools.partial(functools.partial(nn.Linear, 2), bias=False)\nself.proj = make(2)", {"proj.weight": SURE}),
    "a list times a number": ("self.layers = nn.ModuleList([Block()] * config.depth)", {"layers.*.dense.weight": SURE}),
    "a list times nothing": ("self.layers = nn.ModuleList([Block()] * 0)", {}),
    "map": ("self.layers = nn.ModuleList(map(Block, range(config.depth)))", {"layers.*.dense.weight": SURE}),
    "map by a lambda": ("self.layers = nn.ModuleList(map(lambda n: Block(n), range(config.depth)))", {"layers.*.dense.weight": SURE}),
    "a lambda that reads a local name": ("bias = False\nmake = lambda size, *, more=2: nn.Linear(size, more, bias)\nself.proj = make(2)", {"proj.weight": SURE}),
    "a lambda that calls itself": ("make = lambda size: make(size)\nself.proj = nn.Linear(2, 2, bias=False)", {"proj.weight": SURE}),
    "a part with a number": ('for n in range(3):\n    self.add_module(f"part_{n}", Block())\nself.first = self.part_0', {"part_*.dense.weight": SURE, "first.dense.weight": SURE}),
    "a part of one item": ("self.layers = nn.ModuleList([Block() for _ in range(config.depth)])\nself.layers[0].dense = None", {"layers.*.dense.weight": PERHAPS}),
    "a part of one item, taken away": ("self.layers = nn.ModuleList([Block() for _ in range(config.depth)])\ndel self.layers[0].dense", {"layers.*.dense.weight": PERHAPS}),
    "a part of all items": ("self.layers = nn.ModuleList([Block() for _ in range(config.depth)])\nfor layer in self.layers:\n    layer.dense = None", {}),
    "a part taken away": ("self.first = Block()\ndel self.first", {}),
    "a part that may be taken away": ("self.first = Block()\nif config.other:\n    del self.first", {"first.dense.weight": PERHAPS}),
    "a list that grows by +=": ("self.parts = nn.ModuleList()\nself.parts += [Block()]", {"parts.*.dense.weight": SURE}),
    "a list that may grow": ("self.parts = nn.ModuleList()\nif config.other:\n    self.parts.append(Block())", {"parts.*.dense.weight": PERHAPS}),
    "a dict that grows": ('self.parts = nn.ModuleDict()\nself.parts.update({"one": Block()})', {"parts.one.dense.weight": SURE}),
    "a dict that may grow": ('self.parts = nn.ModuleDict()\nif config.other:\n    self.parts.update({"one": Block()})', {"parts.one.dense.weight": PERHAPS}),
    "a dict that shrinks": ('self.parts = nn.ModuleDict({"one": Block(), "two": Block()})\nself.parts.pop("one")', {"parts.two.dense.weight": SURE}),
    "a dict that may shrink": ('self.parts = nn.ModuleDict({"one": Block()})\nif config.other:\n    self.parts.pop("one")', {"parts.one.dense.weight": PERHAPS}),
    "a dict without one": ('self.parts = nn.ModuleDict({"one": Block(), "two": Block()})\ndel self.parts["one"]', {"parts.two.dense.weight": SURE}),
    "a dict that may be without one": ('self.parts = nn.ModuleDict({"one": Block()})\nif config.other:\n    del self.parts["one"]', {"parts.one.dense.weight": PERHAPS}),
    "a dict that is cleared": ('self.parts = nn.ModuleDict({"one": Block()})\nself.parts.clear()', {}),
    "a list that may be cleared": ("self.parts = nn.ModuleList([Block()])\nif config.other:\n    self.parts.clear()", {"parts.*.dense.weight": PERHAPS}),
    "a slice of a list": ("self.parts = nn.ModuleList([nn.ReLU(), Block()])[1:]", {"parts.*.dense.weight": SURE}),
    "a buffer that is filled": ('self.register_buffer("steps", None)\nself.steps = torch.zeros(2)', {"steps": SURE}),
    "a buffer that is filled and not kept": ('self.register_buffer("steps", None, persistent=False)\nself.steps = torch.zeros(2)', {}),
    "a name that is joined": ('self.add_module("_".join(["a", "b"]).upper().replace("B", config.act)[:4], Block())', {"A_si.dense.weight": SURE}),
    "a list of parameters": ("self.scales = nn.ParameterList([torch.ones(2), nn.Parameter(torch.ones(2))])", {"scales.*": SURE}),
    "a case that holds": ('match config.act:\n    case "gelu":\n        self.a = Block()\n    case "silu":\n        self.b = Block()\n    case _:\n        self.c = Block()', {"b.dense.weight": SURE}),
    "a case for the rest": ('match config.act:\n    case "gelu":\n        self.a = Block()\n    case _:\n        self.c = Block()', {"c.dense.weight": SURE}),
    "no case": ('match config.act:\n    case "gelu":\n        self.a = Block()', {}),
    "cases that are not known": ("match config.other:\n    case 1:\n        self.a = Block()\n    case _:\n        self.c = Block()", {"a.dense.weight": PERHAPS, "c.dense.weight": PERHAPS}),
    "a package imported in the body": ("import collections\nself.parts = nn.Sequential(collections.OrderedDict(one=Block()))", {"parts.one.dense.weight": SURE}),
    "a module imported in the body": ("import copy\nimport torch.nn as layers\nself.first = layers.Linear(2, 2, bias=False)\nself.second = copy.deepcopy(self.first)", {"first.weight": SURE, "second.weight": SURE}),
    "layers by a test that is not known": ("self.layers = nn.ModuleList([Block() for n in range(2) if n in config.other])", {"layers.*.dense.weight": PERHAPS}),
    "layers by a test that holds": ("self.layers = nn.ModuleList([Block() for n in range(2) if config.depth])", {"layers.*.dense.weight": SURE}),
    "parts by a test that is not known": ('self.parts = nn.ModuleDict({name: Block() for name in ("one",) if config.other})', {"parts.one.dense.weight": PERHAPS}),
    "a loop that ends": ('for name in ("a", "b", "c"):\n    if name == "b":\n        break\n    self.add_module(name, Block())\nelse:\n    self.rest = Block()', {"a.dense.weight": SURE}),
    "a loop that does not end": ('for name in ("a",):\n    while True:\n        break\n    self.add_module(name, Block())\nelse:\n    self.rest = Block()', {"a.dense.weight": SURE, "rest.dense.weight": SURE}),
    "a loop that may end": ('for name in ("a",):\n    if config.other:\n        break\nelse:\n    self.rest = Block()', {"rest.dense.weight": PERHAPS}),
    "names with numbers of their own": ("self.fc1 = Block()\nself.fc2 = Block()", {"fc1.dense.weight": SURE, "fc2.dense.weight": SURE}),
    "names by a product": ('import itertools\nfor a, b in itertools.product("xy", ("1", "2")):\n    self.add_module(f"{a}_{b}", Block())', {f"{name}.dense.weight": SURE for name in ("x_1", "x_2", "y_1", "y_2")}),
    "names by a chain": ('from itertools import chain\nfor a in chain(["x"], ("y",)):\n    self.add_module(a, Block())', {"x.dense.weight": SURE, "y.dense.weight": SURE}),
    "names that are counted from one": ('for n, a in enumerate("xy", 1):\n    self.add_module(f"{a}_{n}", Block())', {"x_1.dense.weight": SURE, "y_2.dense.weight": SURE}),
    "names that are counted from a number by name": ('for n, a in enumerate("x", start=config.depth):\n    self.add_module(f"{a}_{n}", Block())', {"x_2.dense.weight": SURE}),
    "names that are counted from what is not known": ('for n, a in enumerate("x", config.other):\n    self.add_module(f"{a}_{n}", Block())', {"x_*.dense.weight": SURE}),
    "a name by %": ('for n in range(config.depth):\n    setattr(self, "part_%d" % n, Block())', {"part_*.dense.weight": SURE}),
    "a name by two %": ('for n in range(config.depth):\n    self.add_module("%s_%02d" % (config.act, n), Block())', {"silu_*.dense.weight": SURE}),
    "a name by +": ('for n in range(config.depth):\n    setattr(self, "part" + str(n) + "_a", Block())', {"part*_a.dense.weight": SURE}),
    "a name by format": ('for n in range(config.depth):\n    setattr(self, "part_{:02d}_{}".format(n, config.act), Block())', {"part_*_silu.dense.weight": SURE}),
    "sizes of what is not known": ("first, second = config.other\nself.proj = nn.Linear(first, second, bias=False)", {"proj.weight": SURE}),
    "attention of torch": ("self.mix = nn.MultiheadAttention(config.depth, 1, bias=False)", {"mix.in_proj_weight": SURE, "mix.out_proj.weight": SURE}),
    "a part of a container by its name": ('self.parts = nn.Sequential()\nself.parts.add_module("one", Block())', {"parts.one.dense.weight": SURE}),
    "parts given one by one": ("def chosen(*parts):\n    return nn.ModuleList(parts[1:])\nself.parts = chosen(nn.ReLU(), Block())", {"parts.*.dense.weight": SURE}),
    "a part that is taken out": ('self.parts = nn.ModuleDict({"one": nn.ReLU(), "two": Block()})\nself.first = self.parts.pop("two")', {"first.dense.weight": SURE}),
    "a choice among texts": ('if config.act in ("silu", "gelu"):\n    self.a = Block()\nif config.act not in ("silu", "gelu"):\n    self.b = Block()', {"a.dense.weight": SURE}),
    "a weight in two parts": ("self.proj = nn.utils.weight_norm(nn.Linear(2, 2))", {"proj.weight_g": SURE, "proj.weight_v": SURE, "proj.bias": SURE}),
    "a weight in two parts by a parametrization": ("self.proj = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2, bias=False))", {"proj.parametrizations.weight.original*": SURE}),
    "what is tried ends with an error": ("try:\n    self.a = Block()\n    raise ValueError\nexcept ValueError:\n    self.b = Block()\nfinally:\n    self.c = Block()", {"a.dense.weight": SURE, "b.dense.weight": PERHAPS, "c.dense.weight": SURE}),
    "an error that is not raised": ("try:\n    self.a = Block()\n    if config is None:\n        raise ValueError\nexcept ValueError:\n    self.b = Block()", {"a.dense.weight": SURE}),
    "delattr": ('self.a = Block()\nself.b = Block()\ndelattr(self, "b")', {"a.dense.weight": SURE}),
    "delattr of a name that is not known": ("self.a = Block()\ndelattr(self, config.other)", {"a.dense.weight": PERHAPS}),
    "a name with a star": ("a, *b, self.c = (Block(), Block(), Block(), nn.Linear(2, 2, bias=False))\nself.b = nn.ModuleList(b)", {"c.weight": SURE, "b.*.dense.weight": SURE}),
    "a name with a star of a loop": ("a, *b = (nn.Linear(2, n, bias=False) for n in range(config.depth))\nself.b = nn.ModuleList(b)", {"b.*.weight": PERHAPS}),
    "a case with a guard": ('match config.act:\n    case "silu" if config.other:\n        self.a = Block()', {"a.dense.weight": PERHAPS}),
}  # fmt: skip


@pytest.fixture
def unknown_parts(monkeypatch: pytest.MonkeyPatch) -> UnknownParts:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "utils"))
    found: UnknownParts = importlib.import_module("check_breaking").unknown_parts
    return found


@pytest.mark.parametrize("case", BODIES)
def test_the_entries_of_a_body(case: str, tmp_path: Path, unknown_parts: UnknownParts) -> None:
    body, wanted = BODIES[case]
    classes = facts(tmp_path, body).files["modeling_net.py"].classes
    state = classes["NetModel"].state
    assert state is not None and not any(one.state for name, one in classes.items() if name != "NetModel")
    assert {name: key.is_certain for name, key in keys_of(state).items()} == wanted
    assert not list(unknown_parts(state))


def test_the_static_answer_about_a_release_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "utils"))
    check = importlib.import_module("check_breaking")
    facts(tmp_path / "tree" / "1.0", "self.proj = nn.Linear(2, 2) if config.other else None")
    (tmp_path / "tree" / "1.0" / "zoo").rename(tmp_path / "tree" / "1.0" / "transformers")
    first = check._static("1.0", tmp_path, tmp_path)
    assert first["states"]["transformers.models.net.modeling_net.NetModel"] == {
        "proj.weight": False,
        "proj.bias": False,
    }
    assert check._static("1.0", tmp_path, tmp_path) == first


@pytest.mark.parametrize(
    "made", ('"{0!r:>90000000000}".format(n)', '"{:>90000000000}".format(n)', '"%90000000000d" % n', "name")
)
def test_a_name_needs_no_more_memory_than_its_text(made: str, tmp_path: Path) -> None:
    doubled = "\n".join(["    name = name + name"] * 60)
    body = f'for n in range(config.depth):\n    name = "part" + str(n)\n{doubled}\n    setattr(self, {made}, Block())'
    state = facts(tmp_path, body).files["modeling_net.py"].classes["NetModel"].state
    assert state is not None and all(len(name) < 100 for name in keys_of(state))


@pytest.mark.parametrize("call", ("nn.TransformerEncoderLayer(2, 2)", "timm.create_model(config.act)"))
def test_a_module_that_is_not_known_is_told(call: str, tmp_path: Path, unknown_parts: UnknownParts) -> None:
    model = HEAD.replace("import torch\n", "import timm\nimport torch\n")
    state = facts(tmp_path, f"self.part = {call}", model=model).files["modeling_net.py"].classes["NetModel"].state
    assert state is not None and list(unknown_parts(state)) == ["part"]


def messages(old: ModelFacts, new: ModelFacts) -> list[str]:
    return [one.message for one in changes_of_model("net", old, new)]


DEFAULTS = {
    "a constant of the module": ("SIZE = 4", "SIZE = 5", ["`run` changes the default of `size` from `4` to `5`"]),
    "a constant in other words": ("SIZE = 4", "SIZE = 2 + 2", []),
    "a number for a constant": ("size=SIZE", "size=4", []),
    "a number in other words": ("2 * 4", "8", []),
    "a number with a sign": ("2 * 4", "-(-8)", []),
    "a power": ("2 * 4", "2 ** 2 << 1", []),
    "a number of a call": ("2 * 4", "max(8, 4)", []),
    "another number of a call": ("2 * 4", "int(9)", ["`run` changes the default of `width` from `8` to `9`"]),
    "a call that is not computed": (
        "2 * 4",
        "open(8)",
        ["`run` changes the default of `width` from `8` to `open(8)`"],
    ),
    "a constant that is not computed": (
        "2 * 4",
        "OTHER",
        ["`run` changes the default of `width` from `8` to `OTHER`"],
    ),
    "a power without bounds": (
        "2 * 4",
        "9 ** 9 ** 9",
        ["`run` changes the default of `width` from `8` to `9 ** 9 ** 9`"],
    ),
    "another name of a method": (
        "    def run",
        "    def walk(self):\n        pass\n\n    also = walk\n\n    def run",
        [],
    ),
    "another number": ("2 * 4", "2 * 5", ["`run` changes the default of `width` from `8` to `10`"]),
    "a property": ("    def run", "    @property\n    def run", ["`run` is a property now"]),
}


@pytest.mark.parametrize("case", DEFAULTS)
def test_defaults_are_compared_by_value(case: str, tmp_path: Path) -> None:
    old, new, wanted = DEFAULTS[case]
    before, after = facts(tmp_path / "old"), facts(tmp_path / "new", model=HEAD.replace(old, new))
    assert messages(before, after) == wanted
    if case == "a property":
        assert messages(after, before) == ["`run` is a method now"]
    if case == "another name of a method":
        assert messages(after, before) == ["no longer defines `walk`", "no longer defines `also`"]


@pytest.mark.parametrize(("groups", "shape"), [("1", "2"), ("2", "2 // 2")])
def test_a_convolution_has_entries_for_each_of_its_groups(groups: str, shape: str, tmp_path: Path) -> None:
    inner = 2 // int(groups)
    state = (
        facts(tmp_path, f"self.mix = nn.Conv1d(2, 4, 3, groups={groups})")
        .files["modeling_net.py"]
        .classes["NetModel"]
        .state
    )
    found = keys_of(state)["mix.weight"].part.shape if state is not None else None
    assert found == Shape(f"(4, {shape}, 3)", f"[4, {inner}, 3]")


def test_a_setting_is_compared_by_value(tmp_path: Path) -> None:
    before = facts(tmp_path / "old")
    assert messages(before, facts(tmp_path / "same", config=CONFIG.replace("= DEFAULT", "= 2 * DEFAULT // 2"))) == []
    changed = messages(before, facts(tmp_path / "new", config=CONFIG.replace("DEFAULT = 8", "DEFAULT = 16")))
    assert changed == ["changes the default of `width` from `8` to `16`"]


SETTINGS = """\
from ...configuration_utils import PreTrainedConfig


class NetConfig(PreTrainedConfig):
    model_type = "net"

    def __init__(self, act="silu", depth=2, *, width=8, **kwargs):
        pass


__all__ = ["NetConfig"]
"""


@pytest.mark.parametrize(("name", "value"), [("act", "'silu'"), ("depth", "2"), ("width", "8")])
def test_a_setting_that_a_parameter_sets_is_compared(name: str, value: str, tmp_path: Path) -> None:
    before = facts(tmp_path / "old", config=SETTINGS)
    after = facts(tmp_path / "new", config=SETTINGS.replace(f"{name}={value}".replace("'", '"'), f"{name}=0"))
    assert messages(before, after) == [f"changes the default of `{name}` from `{value}` to `0`"]


def test_a_variable_that_comes_or_goes_is_told_by_its_direction(tmp_path: Path) -> None:
    more = HEAD.replace("    config: NetConfig\n", '    config: NetConfig\n    _no_split_modules = ["Block"]\n')
    before, after = facts(tmp_path / "old"), facts(tmp_path / "new", model=more)
    assert messages(before, after) == ["adds `_no_split_modules`"]
    assert messages(after, before) == ["removes `_no_split_modules`"]
