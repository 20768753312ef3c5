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
