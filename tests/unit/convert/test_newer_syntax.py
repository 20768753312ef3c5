"""Syntax that the running Python parses, and libcst or ruff does not yet: a finding says so, never an internal error.

No released libcst lacks anything that the Pythons of the tests parse, so its failure is forced.
"""

from __future__ import annotations

import pathlib

import libcst
import pytest

from modular_converter.convert.batch import Run
from modular_converter.convert.emit import format_ruff
from modular_converter.settings.load import profile_settings


NEIGHBOUR = """\
class OldMLP:
    def forward(self, x):
        return old_act(x)


def old_act(x):
    return x
"""
HEAD = "from ..old.modeling_old import OldMLP\nfrom ..old.modeling_old import old_act as act\n\n\n"
NEEDS_LIBCST = {
    "a body with other indentation": (
        "class NewMLP(OldMLP):\n  size = 1\n\n  def more(self):\n    return 1\n",
        (5, "MC101"),
    ),
    "a name with two meanings": (
        "class NewMLP(OldMLP):\n    def more(self, act=None):\n        return act\n\n    def most(self, x):\n"
        "        return act(x)\n",
        (5, "MC101"),
    ),
}


def convert(folder: pathlib.Path, modular: str):
    for name, text in {"old/modeling_old.py": NEIGHBOUR, "new/modular_new.py": modular}.items():
        path = folder / "models" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    (conversion,) = Run(profile_settings(), workers=1).convert([str(path)])
    return conversion


@pytest.mark.parametrize(("body", "expected"), NEEDS_LIBCST.values(), ids=NEEDS_LIBCST)
def test_what_libcst_cannot_parse_is_named(body, expected, tmp_path, monkeypatch):
    def fail(*arguments, **named):
        raise libcst.ParserSyntaxError("unknown statement", lines=["?"], raw_line=1, raw_column=0)

    monkeypatch.setattr(libcst, "parse_module", fail)
    conversion = convert(tmp_path, HEAD + body)
    assert [(one.location.line, one.code) for one in conversion.findings] == [expected]
    assert "libcst" in conversion.findings[0].message and not conversion.files


def test_what_needs_no_libcst_is_converted_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(libcst, "parse_module", None)
    body = "    def forward(self, x):\n        x = x + 1\n        return super().forward(x)\n"
    body += "\n    def more(self, x):\n        return object.__eq__(self, x)\n"
    assert convert(tmp_path, HEAD + f"class NewMLP(OldMLP):\n    size = 1\n\n{body}").files


def test_what_ruff_cannot_parse_is_named(tmp_path, monkeypatch):
    ruff = tmp_path / "ruff"
    ruff.write_text("#!/bin/sh\necho 'error: Failed to parse at 5:1: Expected a statement' >&2\nexit 2\n")
    ruff.chmod(0o755)
    monkeypatch.setattr(format_ruff, "find_ruff", lambda settings: str(ruff))
    conversion = convert(tmp_path, HEAD + "class NewMLP(OldMLP):\n    size = 1\n")
    assert "Expected a statement" in conversion.findings[0].message
    assert {one.code for one in conversion.findings} == {"MC115"} and not conversion.files
