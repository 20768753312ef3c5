"""A stranger's code asks for more memory or time than there is, and classes are exchanged after their body."""

from __future__ import annotations

import operator
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modular_converter.breaking.bounds import MOST, NOT_KNOWN, computed
from modular_converter.breaking.states import Node, keys_of
from tests.unit.breaking.test_followed_code import HEAD, PLAIN, UnknownParts, facts, messages, unknown_parts


__all__ = ["unknown_parts"]
HUGE = 10**9
LARGE: dict[str, tuple[Any, ...]] = {
    "a text many times": (operator.mul, "x", HUGE),
    "many times a text": (operator.mul, HUGE, "x"),
    "bytes many times": (operator.mul, b"x", HUGE),
    "a tuple many times": (operator.mul, (1,), HUGE),
    "a width": (operator.mod, "%900000000d", 5),
    "a width that is given": (operator.mod, "%*d", (900000000, 5)),
    "digits": (operator.mod, "%.900000000f", 5.0),
    "a power": (operator.pow, 10, 10**9),
    "a shift": (operator.lshift, 1, 10**10),
    "a list of numbers": (list, range(HUGE)),
    "a set of numbers": (set, range(HUGE)),
    "the sum of numbers": (sum, range(10**12)),
    "the largest number": (max, range(10**12)),
    "what is not in a range": (operator.contains, range(10**12), "a"),
    "a list to itself": (operator.add, [1] * MOST, [1] * MOST),
    "a number of places": (round, 5, -HUGE),
    "many bytes": (bytes, HUGE),
    "a text on the left": (str.ljust, "x", HUGE),
    "a text in the middle": (str.center, "x", HUGE),
    "zeros": (str.zfill, "x", HUGE),
    "tabs": (str.expandtabs, "\t", HUGE),
    "a replaced letter": (str.replace, "x" * MOST, "x", "y" * MOST),
    "a joined text": (str.join, "x" * MOST, ["y"] * MOST),
    "a format": (format, 5, f"{HUGE}d"),
    "a format by name": ("{0:{1}}".format, 5, HUGE),
    "a product of large numbers": (operator.mul, 1 << 30, 1 << 30),
}


@pytest.fixture
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("case", LARGE)
@pytest.mark.usefixtures("little_memory")
def test_what_would_be_large_is_not_computed(case: str) -> None:
    compute, *values = LARGE[case]
    assert computed(compute, *values) is NOT_KNOWN


@pytest.mark.parametrize(
    "compute, values, wanted",
    (
        (operator.mul, (151936, 4096), 151936 * 4096),
        (operator.mul, ("ab", 3), "ababab"),
        (operator.mul, (["full_attention"], 61), ["full_attention"] * 61),
        (operator.mod, ("layer_%02d", 7), "layer_07"),
        (operator.add, ("a" * 3000, "b" * 3000), "a" * 3000 + "b" * 3000),
        (max, (151936, 4096), 151936),
        (list, (range(5),), [0, 1, 2, 3, 4]),
        (range, (10**12,), range(10**12)),
        (round, (2.5,), 2),
        (operator.mod, (5, 0), NOT_KNOWN),
        (operator.add, (1, NOT_KNOWN), NOT_KNOWN),
    ),
)
def test_what_is_small_is_computed(compute: Any, values: tuple[object, ...], wanted: object) -> None:
    assert computed(compute, *values) == wanted


MANY = "\n".join
BOMBS = {
    "a list that doubles": "x = [1, 2]\n" + MANY(["x = x + x"] * 60),
    "a list that holds itself twice": "x = [1, 2]\n" + MANY(["x = [x, x]"] * 60) + "\ny = x * 2",
    "a list that is extended by itself": "x = [1, 2]\n" + MANY(["x.extend(x)"] * 60),
    "a dict that doubles": "x = {'a': 1}\n" + MANY(["x = {'a': x, 'b': x}"] * 60) + "\ny = x == 1",
    "modules in modules": "x = nn.ModuleDict({'a': Block()})\n" + MANY(["x = nn.ModuleDict({'a': x, 'b': x})"] * 60) + "\nself.x = x",
    "a partial of itself": "x = functools.partial(Block, 1)\n" + MANY(["x = functools.partial(x, x)"] * 60) + "\nself.x = x()",
    "a loop in a loop": MANY(f"{'    ' * n}for v{n} in (1, 2, 3, 4, 5, 6, 7, 8, 9, 0):" for n in range(6)) + f"\n{'    ' * 6}x = 1",
    "a comprehension in a comprehension": f"x = [1 {' '.join(f'for v{n} in (1, 2, 3, 4, 5, 6, 7, 8)' for n in range(15))}]",
    "a long sum": "x = " + " + ".join(["self.size"] * 600),
}  # fmt: skip


def state_of(folder: Path, body: str = PLAIN, model: str = HEAD) -> Node:
    state = facts(folder, body, model=model).files["modeling_net.py"].classes["NetModel"].state
    assert state is not None
    return state


@pytest.mark.parametrize("case", BOMBS)
@pytest.mark.usefixtures("little_memory")
def test_a_class_without_bounds_is_not_known(
    case: str, tmp_path: Path, unknown_parts: UnknownParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modular_converter.breaking.bounds.MOST_STEPS", 50_000)
    monkeypatch.setattr("modular_converter.breaking.states.MOST_KEYS", 1_000)
    body = f"{PLAIN}\n{BOMBS[case]}"
    state = state_of(tmp_path / "old", body)
    assert list(unknown_parts(state)) == ["*"] and not keys_of(state)
    old, other = facts(tmp_path / "old", body), facts(tmp_path / "new", f"{body}\nself.more = Block()")
    assert "what `*` holds is not known, and it is made otherwise" in messages(old, other)
    assert messages(old, facts(tmp_path / "same", body)) == []
    plain = facts(tmp_path / "plain", PLAIN)
    assert messages(plain, old) == messages(old, plain) == ["what `*` holds is not known"]  # and nothing of `proj`


SWAPPED = """
def swapped(cls):
    old = cls.__init__
    def __init__(self, *args, **kwargs):
        old(self, *args, **kwargs)
        self.extra = nn.Linear(2, 2, bias=False)
    {set}
    return {back}


def init(self):
    nn.Module.__init__(self)
    self.other = nn.Linear(2, 2, bias=False)


def named(word):
    def wrapper(cls):
        cls.word = word
        return cls
    return wrapper


"""
SET, OWN, EXTRA = "cls.__init__ = __init__", {"block.dense.weight"}, {"block.dense.weight", "block.extra.weight"}
CHANGES: dict[str, tuple[str, str, str, set[str], list[str]]] = {
    "a decorator": ("@swapped", "", SET, EXTRA, []),
    "a decorator by setattr": ("@swapped", "", 'setattr(cls, "__init__", __init__)', EXTRA, []),
    "a decorator with a subclass": ("@swapped", "", "class New(cls): pass\n    cls = New", OWN, ["block.*"]),
    "a decorator that may exchange": ("@swapped", "", "if flag: cls.__init__ = __init__", OWN, ["block.*"]),
    "a decorator that leaves the class": ('@named("a")', "", SET, OWN, []),
    "a decorator of another package": ("@torch.wrapped", "", SET, OWN, ["block.*"]),
    "a decorator that nobody knows": ("@missing", "", SET, OWN, ["block.*"]),
    "an assignment": ("", "Block = swapped(Block)", SET, EXTRA, []),
    "a call": ("", "swapped(Block)", SET, EXTRA, []),
    "a call that leaves the class": ("", 'named("a")(Block)', SET, OWN, []),
    "an exchanged method": ("", "Block.__init__ = init", SET, {"block.other.weight"}, []),
    "an exchanged method on a condition": ("", "if flag:\n    Block.__init__ = init", SET, OWN, ["block.*"]),
    "another package": ("", "Block = torch.wrapped(Block)", SET, OWN, ["block.*"]),
    "a call of another package": ("", "torch.wrapped(Block)", SET, OWN, ["block.*"]),
    "a call of another package by name": ("", "torch.wrapped(cls=Block)", SET, OWN, ["block.*"]),
    "a call that nobody knows": ("", "missing(Block)", SET, OWN, ["block.*"]),
    "a call that only notes it": ("", "torch.serialization.add_safe_globals([Block])", SET, OWN, []),
    "a list that notes it": ("", "BLOCKS.append(Block)", SET, OWN, []),
    "a setattr": ("", 'setattr(Block, "__init__", init)', SET, {"block.other.weight"}, []),
    "a setattr of another attribute": ("", 'setattr(Block, "word", 1)', SET, OWN, []),
    "a setattr that nothing tells": ("", "setattr(Block, word(), init)", SET, OWN, ["block.*"]),
    "another attribute": ("", "Block.word = 1", SET, OWN, []),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_class_that_is_exchanged_after_its_body(case: str, tmp_path: Path, unknown_parts: UnknownParts) -> None:
    above, behind, done, wanted, unknown = CHANGES[case]
    model = HEAD.replace("class Block", SWAPPED.format(set=done, back="cls").lstrip() + f"{above}\nclass Block")
    model = model.replace("class NetModel", f"{behind}\n\n\nclass NetModel")
    state = state_of(tmp_path, "self.block = Block()", model)
    assert set(keys_of(state)) == wanted
    assert list(unknown_parts(state)) == unknown
