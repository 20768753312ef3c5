"""Random flat models come back from modular files; `utils/fuzz_modularize.py` tries as many as you like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.oracle.inverse import Return, go_back
from tests.oracle.programs import program_of


PROGRAMS = 10
SEED = int(os.environ.get("FUZZ_SEED", "0"))


def test_random_models_come_back(tmp_path: Path) -> None:
    results = [go_back(program_of(SEED, number), tmp_path / f"tool{number}") for number in range(PROGRAMS)]
    assert [(number, reason) for number, (result, reason) in enumerate(results) if result is Return.STAYED] == []
    assert any(result is Return.SHORTER for result, _ in results) or SEED, "no program was converted"


@pytest.mark.parametrize("text", ["", "# A licence.\n", "# A licence.\n\n"])
def test_the_line_below_the_licence_comes_back(text: str, tmp_path: Path) -> None:
    for program in (program_of(0, number) for number in range(PROGRAMS)):
        with_licence = type(program)(program.llama, program.bert, text + program.emu.lstrip())
        found = go_back(with_licence, tmp_path / "tool")
        if found[0] is not Return.NOT_CONVERTED:
            break
    assert found == (Return.SHORTER, "")
