"""A long expression in one file ends no run, and the files beside it are converted."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.api import convert_paths


DEEP = {
    "a sum": "x" + " + x" * 900,
    "a chain": "x" + ".real" * 900,
    "calls": "str(x)" + ".strip()" * 400,
    "lambdas": "lambda: " * 80 + "x",
}


@pytest.mark.parametrize("where", ["modular file", "neighbour"])
@pytest.mark.parametrize("expression", DEEP.values(), ids=DEEP)
def test_a_deep_expression_ends_no_run(tmp_path: Path, expression: str, where: str) -> None:
    constant = f"x = 1\nTOTAL = {expression}\n"
    head = "from ..llama.modeling_llama import LlamaMLP\n\n\n"
    texts = {
        "llama/modeling_llama.py": "class LlamaMLP:\n    def f(self):\n        return 1\n",
        "old/modeling_old.py": f"{constant}\n\nclass OldMLP:\n    t = TOTAL\n",
        "ok/modular_ok.py": f"{head}class OkMLP(LlamaMLP):\n    t = 1\n",
        "emu/modular_emu.py": "from ..old.modeling_old import OldMLP\n\n\nclass EmuMLP(OldMLP):\n    pass\n"
        if where == "neighbour"
        else f"{head}{constant}\n\nclass EmuMLP(LlamaMLP):\n    t = TOTAL\n",
    }
    for name, text in texts.items():
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    emu, ok = convert_paths([tmp_path / "models/emu/modular_emu.py", tmp_path / "models/ok/modular_ok.py"])
    assert ok.files and not ok.findings
    assert emu.files or emu.failed
