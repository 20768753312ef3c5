"""What is told of methods, bases and parts that change, in a small model."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.unit.breaking.test_followed_code import CONFIG, HEAD, facts, messages


RUN = "x, size=SIZE, width=2 * 4"
METHODS = {
    "nothing": (RUN, RUN, []),
    "a parameter more": (RUN, f"{RUN}, more=1", []),
    "one more that is needed, by its name": (RUN, f"{RUN}, *, more", ["`run` needs the new parameter `more`"]),
    "one more that is needed": ("x", "x, more", ["`run` needs the new parameter `more`"]),
    "a parameter more in front": ("x", "more, x", ["`run` needs the new parameter `more`", "`run` has other parameters by position, from `more` on"]),
    "another order": ("x, y", "y, x", ["`run` has other parameters by position, from `y` on"]),
    "a parameter less": ("x, y", "x", ["`run` has no parameter `y`"]),
    "less, but any": ("x, y", "x, **rest", ["`run` has no parameter `y` (`**` takes the old one, unread)"]),
    "any no more": ("x, **rest", "x", []),
    "another name": ("x, y=1", "x, z=1", ["`run` renames the parameter `y` to `z`"]),
    "two other names": ("x, y", "z, w", ["`run` renames the parameter `x` to `z`", "`run` renames the parameter `y` to `w`"]),
    "a name in another place": ("x, y", "z, x", ["`run` has no parameter `y`", "`run` needs the new parameter `z`", "`run` has other parameters by position, from `z` on"]),
    "a default less": ("x=1", "x", ["`run` needs `x`, which had a default"]),
    "a default more": ("x", "x=1", []),
    "by its name only": ("x, y", "x, *, y", ["`run` takes `y` by its name only"]),
    "by its position, too": ("x, *, y", "x, y", []),
    "a long default": ("x=1", f"x={'a' * 70!r}", [f"`run` changes the default of `x` from `1` to `'{'a' * 59}…`"]),
}  # fmt: skip


@pytest.mark.parametrize("case", METHODS)
def test_what_is_told_of_parameters(case: str, tmp_path: Path) -> None:
    old, new, wanted = METHODS[case]
    sides = [facts(tmp_path / name, model=HEAD.replace(RUN, given)) for name, given in (("old", old), ("new", new))]
    assert messages(*sides) == wanted


PLACES = {
    "under a condition": "if SIZE:\n    def run(self, y): ...\nelse:\n    def run(self, z): ...",
    "in a try": "try:\n    def run(self, y): ...\nexcept NameError:\n    def run(self, z): ...",
    "by another name": "def walk(self, y): ...\nrun = walk",
    "a function": "run = walk",
    "a function that its body imports": "from .modeling_net import walk as run",
    "one that it imports, by another name": "from .modeling_net import walk as step\nrun = step\ndel step",
    "another one than that of its file": "from .modeling_net import walk as jump\nrun = jump",
    "a method, where a function has its name": "def jump(self, y): ...\nrun = jump",
    "a function that it gets below": "pass\n\n\nNetModel.run = walk",
}


@pytest.mark.parametrize("case", PLACES)
def test_a_method_is_read_wherever_it_is_bound(case: str, tmp_path: Path) -> None:
    model = HEAD.replace("class NetModel", "def walk(self, y): ...\n\n\ndef jump(self, z): ...\n\n\nclass NetModel")
    method = f"    def run(self, {RUN}):\n        pass\n"
    body, _, below = PLACES[case].partition("\n\n\n")
    texts = ("    def run(self, x): ...\n", f"{textwrap.indent(body, '    ')}\n\n\n{below}\n")
    sides = [facts(tmp_path / str(number), model=model.replace(method, one)) for number, one in enumerate(texts)]
    assert messages(*sides) == ["`run` renames the parameter `x` to `y`"]


@pytest.mark.parametrize("given", ["from .modeling_net import build as step", "step = build"])
def test_a_function_that_a_class_gets_is_followed_as_its_method(given: str, tmp_path: Path) -> None:
    build = "def build(self, size): self.extra = nn.Linear(size, size)\n\n\nclass NetModel"
    model = HEAD.replace("class NetModel", build).replace(
        "    config: NetConfig\n", f"    config: NetConfig\n    {given}\n"
    )
    sides = [facts(tmp_path / name, f"self.step({name})", model=model) for name in ("2", "3")]
    assert messages(*sides) == [
        "changes the shape of `extra.weight` from `(2, 2)` to `(3, 3)`",
        "changes the shape of `extra.bias` from `(2)` to `(3)`",
    ]


TAKEN_AWAY = {
    "a method": ("del run", ["no longer defines `run`"]),
    "a method under a condition": ("if SIZE:\n    del run", ["no longer defines `run`"]),
    "a method that comes again": ("del run\ndef run(self, x, size=SIZE, width=8): ...", []),
    "a method with another name": ("walk = run\ndel run", ["no longer defines `run`"]),
    "a variable": ("del _no_split_modules", ["removes `_no_split_modules`"]),
}


@pytest.mark.parametrize("case", TAKEN_AWAY)
def test_what_the_body_of_a_class_takes_away_is_told(case: str, tmp_path: Path) -> None:
    text, wanted = TAKEN_AWAY[case]
    old = HEAD.replace("    config: NetConfig\n", "    config: NetConfig\n    _no_split_modules = ['Block']\n")
    new = old.replace("\n\n\n__all__", f"\n{textwrap.indent(text, '    ')}\n\n\n__all__")
    assert messages(*(facts(tmp_path / name, model=one) for name, one in (("old", old), ("new", new)))) == wanted


SETTINGS = {
    "a setting less": ("    width: int = DEFAULT\n", "", ["removes the setting `width`"]),
    "another name": ("    depth: int = 2\n", "    net_depth: int = 2\n", ["renames the setting `depth` to `net_depth`"]),
    "another name and value": ("    depth: int = 2\n", "    net_depth: int = 3\n", ["removes the setting `depth`"]),
    "a name without a word of it": ("    depth: int = 2\n", "    layers: int = 2\n", ["removes the setting `depth`"]),
    "two such names": ("    depth: int = 2\n", "    a_depth: int = 2\n    b_depth: int = 2\n", ["removes the setting `depth`"]),
    "a variable of the class": ("    depth: int = 2\n", "    depth: ClassVar[int] = 3\n", ["removes the setting `depth`"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SETTINGS)
def test_what_is_told_of_settings(case: str, tmp_path: Path) -> None:
    old, new, wanted = SETTINGS[case]
    assert old in CONFIG
    assert messages(facts(tmp_path / "old"), facts(tmp_path / "new", config=CONFIG.replace(old, new))) == wanted


MIXED = "class Mixin:\n    pass\n\n\nclass _Hidden:\n    pass\n\n\nclass NetModel(PreTrainedModel, Mixin, _Hidden):\n"


def test_a_base_that_is_gone_is_told_unless_it_is_private(tmp_path: Path) -> None:
    old = HEAD.replace("class NetModel(PreTrainedModel):\n", MIXED)
    assert old != HEAD
    sides = [facts(tmp_path / name, model=model) for name, model in (("old", old), ("new", HEAD))]
    assert messages(*sides) == ["no longer is a `Mixin`"]
    assert messages(*sides[::-1]) == []


PLAIN = "self.proj = nn.Linear(2, 2, bias=False)"
SURE = f"{PLAIN}\nself.norm = nn.LayerNorm(2)"
PARTS = {
    "a part that is perhaps there": (SURE, f"{PLAIN}\nif config.other:\n    self.norm = nn.LayerNorm(2)", ["whether it has `norm` is not known"]),
    "a part that is there now": (f"{PLAIN}\nif config.other:\n    self.norm = nn.LayerNorm(2)", SURE, []),
    "a part on another condition": ("for n in range(3):\n    if n % 2:\n        self.a = Block()", "for n in range(3):\n    if n % 3:\n        self.a = Block()", ["whether it has `a` depends on another condition, which is not known"]),
    "one or the other on another condition": ("self.a = Block() if config.other else nn.ReLU()", "self.a = Block() if config.another else nn.ReLU()", ["whether it has `a` depends on another condition, which is not known"]),
    "a list on another condition": ("self.a = nn.ModuleList([Block() for n in range(3) if n in config.other])", "self.a = nn.ModuleList([Block() for n in range(3) if n in config.another])", ["whether it has `a.*` depends on another condition, which is not known"]),
    "another case": ("match config.other:\n    case 1:\n        self.a = Block()", "match config.other:\n    case 2:\n        self.a = Block()", ["whether it has `a` depends on another condition, which is not known"]),
    "the other way round": ("if config.other:\n    self.a = Block()", "if config.other:\n    pass\nelse:\n    self.a = Block()", ["whether it has `a` depends on another condition, which is not known"]),
    "a condition in other places": ("if config.other:\n    self.a = Block()", "if config.other:\n    x = 1\n    self.a = Block()", []),
    "two parts of other names": ("self.a = nn.Linear(2, 2)\nself.b = nn.Linear(2, 2)", "self.c = nn.Linear(2, 2)\nself.d = nn.Linear(2, 2)", ["renames `a` to `c`", "renames `b` to `d`"]),
    "one of two alike": ("self.a = nn.Linear(2, 2)\nself.b = nn.Linear(2, 2)", "self.c = nn.Linear(2, 2)", ["removes `a`", "removes `b`", "adds `c`"]),
    "a module for a parameter": ("self.part = nn.Parameter(torch.ones(2))", "self.part = nn.Linear(2, 2, bias=False)", ["removes entries of `part`", "adds entries of `part`"]),
    "entries of one or the other": ("self.part = Block() if config.other else nn.Linear(2, 2)", "self.part = Block()", ["removes entries of `part`"]),
    "the shape of a parameter": ("self.part = nn.Parameter(torch.ones(2))", "self.part = nn.Parameter(torch.ones(3))", ["changes the shape of `part` from `(2)` to `(3)`"]),
    "a shape in other words": ("self.part = nn.Parameter(torch.ones(config.depth))", "self.part = nn.Parameter(torch.ones(2))", []),
    "a shape that is not known": ("self.part = nn.Parameter(torch.ones(config.other))", "self.part = nn.Parameter(torch.ones(config.another))", ["changes the shape of `part` from `(config.other)` to `(config.another)`"]),
    "a part without entries": ("self.part = nn.ReLU()", "", []),
    "another item": ("self.parts = nn.ModuleList([Block()])", "self.parts = nn.ModuleList([nn.Linear(2, 2)])", ["removes `parts.*.dense`", "adds `parts.*.weight`", "adds `parts.*.bias`"]),
}  # fmt: skip


@pytest.mark.parametrize("case", PARTS)
def test_what_is_told_of_parts(case: str, tmp_path: Path) -> None:
    sides = [facts(tmp_path / str(number), body or "pass") for number, body in enumerate(PARTS[case][:2])]
    assert messages(*sides) == PARTS[case][2]


def test_a_shape_that_follows_from_a_setting_is_told_by_the_setting(tmp_path: Path) -> None:
    body = "self.part = nn.Parameter(torch.ones(config.depth))"
    sides = [facts(tmp_path / str(depth), body, CONFIG.replace("= 2", f"= {depth}")) for depth in (2, 3)]
    assert messages(*sides) == ["changes the default of `depth` from `2` to `3`"]


TABLES = {
    "an entry": ('T = {"net": ["a"]}', 'T = {"net": ["b"]}', True),
    "one that is set": ('T["net"] = ["a"]', 'T["net"] = ["b"]', True),
    "one that is added to": ('T["net"] += ["a"]', 'T["net"] += ["b"]', True),
    "that of another type that it names": ('T = {"net": "llama", "llama": ["a"]}', 'T = {"net": "llama", "llama": ["b"]}', True),
    "that of its own name": ('T = {"net": "net"}', 'T = {"net": "net"}', False),
    "that of another type": ('T = {"llama": ["a"]}', 'T = {"llama": ["b"]}', False),
    "what is no name": ('T = {**R, 1: "a"}\nT[0], R = 1, 2', 'T = {**R, 1: "b"}\nT[0], R = 1, 3', False),
    "a damaged table": ('T = {"net": ["a"]}', 'T = {"net": [', True),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLES)
def test_what_is_told_of_the_renaming_of_checkpoints(case: str, tmp_path: Path) -> None:
    sides = []
    for number, text in enumerate(TABLES[case][:2]):
        path = tmp_path / str(number) / "zoo/conversion_mapping.py"
        path.parent.mkdir(parents=True)
        path.write_text(f"{text}\n")
        sides.append(facts(tmp_path / str(number)))
    told = ["changes how entries of checkpoints of `net` are renamed"]
    assert messages(*sides) == (told if TABLES[case][2] else [])
