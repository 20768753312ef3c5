"""Other people's libraries: what the converter makes of them is proven, and is what it made of them before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


UTILS = Path(__file__).parents[2] / "utils"


def test_a_library_comes_back_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that changes the files is seen here: look at them, then run `utils/ecosystem.py --update`."""
    monkeypatch.syspath_prepend(str(UTILS))
    import ecosystem

    try:
        for library in ecosystem.LIBRARIES:
            for wheel in library.wheels:
                ecosystem.downloaded(wheel, tmp_path)
    except SystemExit:
        pytest.skip("there is no package index")
    known = json.loads(ecosystem.KNOWN.read_text(encoding="utf-8"))
    for library in ecosystem.LIBRARIES:
        tree = tmp_path / library.name
        tree.mkdir()
        outcome = ecosystem.modularize(library, tree, tmp_path)
        assert not outcome.wrong
        assert outcome.hashes == known[library.name]
