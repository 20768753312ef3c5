"""Objects of a parent's body that several heirs shared (MC339)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modular_converter.convert.batch import Run
from modular_converter.settings.load import profile_settings


def told(parent: str, first: str = "pass", second: str = "pass") -> list[str]:
    path = "/shared/models/new/modular_new.py"
    texts = {
        "/shared/models/old/modeling_old.py": f"class OldMLP:\n    {parent}\n",
        path: f"from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    {first}\n\n\n"
        f"class NewGate(OldMLP):\n    {second}\n",
    }
    [conversion] = Run(replace(profile_settings(), formatter="none"), texts, workers=1).convert([path])
    assert not conversion.failed, conversion.findings
    return [one.message.split("`")[1] for one in conversion.findings if one.code == "MC339"]


PUT = "def put(self, x):\n        "


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        (f"seen = []\n    {PUT}self.seen.append(x)", ["seen"]),
        (f"seen = dict(a=1)\n    @classmethod\n    {PUT.replace('self', 'cls')}cls.seen[x] = 1", ["seen"]),
        ("ids = iter(range(9))\n    def __init__(self):\n        self.id = next(self.ids)", ["ids"]),
        (f"count = 0\n    {PUT}OldMLP.count += x", ["count"]),
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
