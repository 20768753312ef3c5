"""Modules below no base of all models, and names that stand for a class no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.breaking.test_followed_code import facts, messages


NET = """\
from torch import nn
import abc
import other


class Block(nn.Module):
    def __init__(self, size, bias=True):
        super().__init__()
        self.dense = nn.Linear(size, 2 * size, bias=bias)


class Net(nn.Module):
    def __init__(self, size: int = 4, depth: int = 2):
        super().__init__()
        self.blocks = nn.ModuleList([Block(size) for _ in range(depth)])


class Table:
    def __init__(self):
        self.dense = nn.Linear(2, 2)


__all__ = ["Net", "Table"]
"""
BLOCK = "class Block(nn.Module):\n"
UNKNOWN = ["what `blocks.*` holds is not known"]
EDITS = {
    "a rename": ("self.dense = nn.Linear(size", "self.out = nn.Linear(size", ["renames `dense` to `out`"]),
    "a layer more": (
        "        self.blocks",
        "        self.norm = nn.LayerNorm(size)\n        self.blocks",
        ["adds `norm`"],
    ),
    "a shape": ("2 * size", "3 * size", ["changes the shape of `dense.weight`", "changes the shape of `dense.bias`"]),
    "a bias that is off": ("bias=True", "bias=False", ["removes `dense.bias`"]),
    "other words": ("2 * size", "size * 2", []),
    "an object of another class": (
        BLOCK,
        BLOCK + "    def __new__(cls, size, bias=True):\n        return None\n\n",
        UNKNOWN,
    ),
    "attributes by other names": (BLOCK, BLOCK + "    def __setattr__(self, name, value):\n        pass\n\n", UNKNOWN),
    "a metaclass": (BLOCK, "class Block(nn.Module, metaclass=other.Meta):\n", UNKNOWN),
    "a metaclass that leaves objects": (BLOCK, "class Block(nn.Module, metaclass=abc.ABCMeta):\n", []),
    "heirs with another init": (
        BLOCK,
        BLOCK + "    def __init_subclass__(cls):\n        cls.__init__ = other.init\n\n",
        UNKNOWN,
    ),
    "heirs with another method": (
        BLOCK,
        BLOCK + "    def __init_subclass__(cls):\n        cls.forward = None\n\n",
        [],
    ),
    "no module": ("self.dense = nn.Linear(2", "self.out = nn.Linear(2", []),
    "a class by a call": (
        "class Net(nn.Module):",
        "Net = other.wrap(Block)\n\n\nclass Rest(nn.Module):",
        ["what `Net` is now is not known"],
    ),
    "another class": (
        "class Net(nn.Module):",
        "Net = Block\n\n\nclass Rest(nn.Module):",
        ["removes `blocks`", "adds `dense`", "`__init__` needs `size`", "`__init__` renames the parameter `depth`"],
    ),
    "a class that is handed to another package": (
        "class Table:",
        "other.wrap(Net)\n\n\nclass Table:",
        ["what `*` holds is not known"],
    ),
}


@pytest.mark.parametrize("case", EDITS)
def test_modules_are_read_whatever_their_base_is(case: str, tmp_path: Path) -> None:
    old, new, wanted = EDITS[case]
    assert old in NET
    found = messages(facts(tmp_path / "old", model=NET), facts(tmp_path / "new", model=NET.replace(old, new)))
    assert len(found) == len(wanted)
    assert all(one.startswith(begin) for one, begin in zip(found, wanted))


GIVEN = NET.replace(
    "class Block(nn.Module):\n",
    "class Given(nn.Module):\n    layer = nn.Linear\n\n    def __init_subclass__(cls):\n        cls.layer = nn.Identity\n"
    '        setattr(cls, "_no_split_modules", ["a"])\n\n\nclass Block(Given):\n',
).replace("self.dense = nn.Linear(size, 2 * size, bias=bias)", "self.dense = self.layer(size, 2)")
GIVES = {
    "another layer": ("cls.layer = nn.Identity", "cls.layer = nn.Bilinear", ["what `dense` holds is not known"]),
    "no layer": ("cls.layer = nn.Identity", "cls.other = 1", ["what `dense` holds is not known"]),
    "a method that nothing calls": ("cls.layer = nn.Identity", "cls.layer = nn.Identity", []),
    "a list of the model": ('["a"]', '["b"]', ["what `dense` holds is not known", "changes `_no_split_modules`"]),
}


@pytest.mark.parametrize("case", GIVES)
def test_what_a_base_gives_its_heirs_is_not_silent(case: str, tmp_path: Path) -> None:
    old, new, wanted = GIVES[case]
    texts = (
        GIVEN.replace('["Net", "Table"]', '["Block"]'),
        GIVEN.replace(old, new).replace('["Net", "Table"]', '["Block"]'),
    )
    found = messages(*(facts(tmp_path / str(number), model=text) for number, text in enumerate(texts)))
    assert [any(one.startswith(begin) for one in found) for begin in wanted] == [True] * len(wanted)
    assert len(found) >= len(wanted) and (wanted or not found)


def test_a_class_that_is_moved_and_handed_on_is_not_gone(tmp_path: Path) -> None:
    text = NET.replace('\n\n__all__ = ["Net", "Table"]\n', "")
    block = text[text.index("class Block") : text.index("class Net")]
    moved = text.replace(block, "").replace("import abc\n", "import abc\nfrom .blocks import Block\n")
    sides = []
    for name, model, blocks in (
        ("old", text, ""),
        ("new", moved, block),
        ("other", moved, block.replace("2 *", "3 *")),
    ):
        path = tmp_path / name / "zoo/models/net/blocks.py"
        path.parent.mkdir(parents=True)
        path.write_text(f"from torch import nn\n\n\n{blocks}")
        sides.append(facts(tmp_path / name, model=model))
    assert messages(*sides[:2]) == []
    assert any("changes the shape of `dense.weight`" in one for one in messages(sides[0], sides[2]))
