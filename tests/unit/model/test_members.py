"""The members of a class, whatever the name of the first parameter and however deep a name is bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.api import convert_source
from modular_converter.model.class_blocks import Members, changes_below, class_node


PARENT = """\
import os


class LlamaMLP:
    if os.name == "posix":
        dropout = 0.5
    else:
        dropout = 0.1

    def __init__({me}, config):
        {me}.dropout = config.dropout
        {me}.up_proj = config.size

    def forward({me}, x):
        return x * {me}.dropout + {me}.up_proj
"""
CHILD = """\
from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def __init__({me}, config):
        super().__init__(config)
        del {me}.{attribute}
"""


@pytest.mark.parametrize("me", ["self", "this"])
@pytest.mark.parametrize(("attribute", "codes"), [("dropout", []), ("up_proj", ["MC304"])])
def test_a_deleted_attribute_that_is_still_read(tmp_path: Path, me: str, attribute: str, codes: list[str]) -> None:
    neighbour = tmp_path / "models/llama/modeling_llama.py"
    neighbour.parent.mkdir(parents=True)
    neighbour.write_text(PARENT.format(me=me), "utf-8")
    path = tmp_path / "models/emu/modular_emu.py"
    result = convert_source(CHILD.format(me=me, attribute=attribute), path)
    assert [one.rule.code for one in result.findings] == codes


def test_names_of_a_class_in_blocks() -> None:
    text = """\
class A:
    try:
        import b as c
    except ImportError as d:
        c = None
    for e in range(3):
        with open(e) as f:
            (g := 1)
    match e:
        case {"x": h, **i}: pass
    def j(self): k = self.l = 1
    m: int
    def n(self): del self.o; self.p += 1
"""
    members = Members(class_node(text))
    assert members.names == set("cdefghijmn")
    assert [name for name in "klop" if members.binds(name)] == ["l"]


STUBS = {
    "raise AttributeError()": True,
    "'Text.'; raise AttributeError('no')": True,
    "f(); raise AttributeError()": False,
    "x = 1; raise AttributeError()": False,
    "raise ValueError()": False,
    "raise AttributeError(); return 1": False,
}


@pytest.mark.parametrize("body", STUBS)
def test_a_stub_only_raises_an_attribute_error(body: str) -> None:
    assert Members(class_node(f"class A:\n    def f(self): {body}\n")).methods[0].is_stub is STUBS[body]


def test_the_statements_below_a_class_and_whether_they_bind_its_name_anew() -> None:
    found = changes_below("class A:\n    x = 1\n\n\nA.y = 2\nA = marked(A)\n")
    assert [(one.binds_anew, one.text.strip()) for one in found] == [(False, "A.y = 2"), (True, "A = marked(A)")]
