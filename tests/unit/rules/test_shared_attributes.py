"""Objects of a parent's body that several heirs shared (MC339)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modular_converter.convert.batch import Run
from modular_converter.settings.load import profile_settings


def of_texts(old: str, new: str) -> list[str]:
    path = "/shared/models/new/modular_new.py"
    texts = {"/shared/models/old/modeling_old.py": old, path: new}
    [conversion] = Run(replace(profile_settings(), formatter="none"), texts, workers=1).convert([path])
    assert not conversion.failed, conversion.findings
    return [one.message.split("`")[1] for one in conversion.findings if one.code == "MC339"]


def told(parent: str, first: str = "pass", second: str = "pass", above: str = "", below: str = "") -> list[str]:
    old = "class Store:\n    size = 0\n\n\ndef old_note(cls):\n    cls.seen.append(1)\n    return cls\n\n\n"
    new = f"from ..old.modeling_old import OldMLP, old_note\n\n\n{above}class NewMLP(OldMLP):\n    {first}\n\n\n"
    return of_texts(f"{old}class OldMLP:\n    {parent}\n", f"{new}class NewGate(OldMLP):\n    {second}\n{below}")


PUT = "def put(self, x):\n        "


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        (f"seen = []\n    {PUT}self.seen.append(x)", ["seen"]),
        (f"seen = dict(a=1)\n    @classmethod\n    {PUT.replace('self', 'cls')}cls.seen[x] = 1", ["seen"]),
        ("ids = iter(range(9))\n    def __init__(self):\n        self.id = next(self.ids)", ["ids"]),
        (f"count = 0\n    {PUT}OldMLP.count += x", ["count"]),
        (f"{PUT.replace('self, x', 'self, x, seen=[]')}seen.append(x)", ["seen"]),
        ("seen = []\n    def __init_subclass__(cls):\n        OldMLP.seen.append(cls)", ["seen"]),
        (f"seen = Store()\n    {PUT}self.seen.put(x)", ["seen"]),
        (f"class State:\n        seen = []\n\n    {PUT}self.State.seen.append(x)", ["State.seen"]),
        (f"{PUT}OldMLP.put.calls = x", ["put"]),
        (f"{PUT.replace('self, x', 'self, x, seen=Store()')}seen.size += 1", ["seen"]),
        (f"seen = tuple([1])\n    {PUT}self.seen.index(x)", []),
        (f"class State:\n        seen = []\n\n    {PUT}return self.State.seen", []),
        (f"seen = []\n    {PUT}type(self).seen.append(x)", ["seen"]),
        (f"seen = []\n    {PUT}self.__class__.seen[0] = x", ["seen"]),
        (f"seen = []\n    {PUT}seen = self.seen\n        seen.append(x)", ["seen"]),
        (f"seen = []\n    {PUT}getattr(self, 'seen').append(x)", ["seen"]),
        (f"seen = []\n    {PUT}self.seen += [x]", ["seen"]),
        (f"{PUT.replace('self, x', 'self, x, seen=[]')}seen = [*seen, x]", []),
        (f"seen = ()\n    {PUT}self.seen += (x,)", []),
        (f"seen = []\n    {PUT}return x in self.seen", []),
        (f"seen = []\n    {PUT}self.seen = []\n        self.seen.append(x)", []),
        (f"def __init__(self):\n        self.seen = []\n    {PUT}self.seen.append(x)", []),
    ],
)
def test_what_heirs_share(parent: str, expected: list[str]) -> None:
    assert told(parent) == expected


def test_an_object_of_its_own_is_not_shared() -> None:
    parent = f"seen = []\n    {PUT}self.seen.append(x)"
    assert not told(parent, "seen = []") and not told(parent, "pass", "seen = []")


def test_a_copy_beside_an_heir_has_an_object_of_its_own() -> None:
    parent = f"seen = []\n    {PUT}self.seen.append(x)\n\n\nclass OldGate(OldMLP):\n    pass"
    modular = "from ..old.modeling_old import OldGate, OldMLP\n\n\nclass {}(OldMLP):\n    pass\n\n\nclass NewGate(OldGate):\n    pass\n"
    assert of_texts(f"class OldMLP:\n    {parent}\n", modular.format("NewTextMLP")) == ["seen"]
    assert not of_texts(f"class OldMLP:\n    {parent}\n", modular.format("NewMLP"))


def test_code_outside_of_methods_changes_what_is_shared() -> None:
    assert told("seen = []", below="NewMLP.seen.append(1)\n") == ["seen"]
    assert told("seen = []", first="OldMLP.seen.append(1)") == ["seen"]
    assert told("seen = []", above="@old_note\n") == ["seen"]
    for holder in ("one", "type(one)", "one.__class__"):
        note = f"def note(one):\n    {holder}.seen.append(1)\n\n\n"
        assert told("seen = []", first="def put(self):\n        note(self)", above=note) == ["seen"]
        trainer = f"class Trainer:\n    def step(self, one):\n        {holder}.seen.append(1)\n"
        assert told("seen = []", below=f"\n\n{trainer}") == ["seen"]
    other = "class Other:\n    def step(self):\n        self.seen.append(1)\n"
    assert not told("seen = []", below=f"\n\n{other}")
    reader = "class Reader:\n    def f(self):\n        NewMLP.seen.append(1)\n        return NewGate.seen\n"
    assert told("seen = []", below=f"\n\n{reader}") == ["seen"]
    assert not told("seen = []", below="NewMLP.size = len(NewMLP.seen)\n")


MAKE = """import functools
import itertools


def old_counter():
    count = 0

    def tick(self=None):
        nonlocal count
        count += 1
        return count

    return tick


def old_memo(function):
    known = {}

    @functools.wraps(function)
    def wrapper(self, x):
        if x not in known:
            known[x] = function(self, x)
        return known[x]

    return wrapper


def old_told_once(message):
    told = []

    def decorate(function):
        def wrapper(self, x):
            told.append(message)
            return function(self, x)

        return wrapper

    return decorate


def old_collected(function):
    def wrapper(self, x):
        found = []

        def note(one):
            found.append(one)

        note(function(self, x))
        return found

    wrapper.is_old = True
    return wrapper


class Counter:
    size = 0

    def tick(self):
        self.size += 1
        return self.size


class Named:
    def __init__(self):
        self.size = 1

    def __set_name__(self, owner, name):
        self.name = name

    def tick(self):
        return self.size


def put(store, x):
    store.append(x)
    return len(store)


class OldMLP:
    size = 1
    {}
"""


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        ("tick = old_counter()", ["tick"]),
        ("tick = staticmethod(old_counter())", ["tick"]),
        ("tick = itertools.count().__next__", ["tick"]),
        ("put = staticmethod(functools.partial(put, []))", ["put"]),
        ("put = lambda self, x, seen=[]: seen.append(x)", ["put"]),
        ("steps = Counter()\n    def step(self):\n        return self.steps.tick()", ["steps"]),
        ("@old_memo\n    def f(self, x):\n        return x", ["f"]),
        ("@old_told_once('old')\n    def f(self, x):\n        return x", ["f"]),
        ("@staticmethod\n    @functools.lru_cache(maxsize=None)\n    def f(x):\n        return [x]", ["f"]),
        ("@staticmethod\n    @functools.lru_cache(maxsize=None)\n    def f(x):\n        return x + 1", []),
        ("@old_collected\n    def f(self, x):\n        return x", []),
        ("name = Named()", []),
        ("put = staticmethod(functools.partial(put, ()))", []),
        ("put = lambda self, x, seen=(): seen", []),
        ("def __init__(self):\n        self.tick = old_counter()", []),
        ("tick = old_counter()\n    def __init__(self):\n        self.tick = old_counter()", []),
    ],
)
def test_what_heirs_share_that_remembers(member: str, expected: list[str]) -> None:
    modular = "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    pass\n\n\nclass NewGate(OldMLP):\n    pass\n"
    assert of_texts(MAKE.replace("    {}\n", f"    {member}\n"), modular) == expected
