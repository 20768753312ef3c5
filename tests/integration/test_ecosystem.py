"""Other people's libraries: what the tool makes of two small ones is what it made of them before. All of them run by
schedule (`utils/ecosystem.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest


UTILS = Path(__file__).parents[2] / "utils"
MODULARIZED, FIRST = "flash-linear-attention", "abc"
"""A library, and its first model: what it inherits depends on no other one's modular file."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of the small libraries."""
    folder = tmp_path_factory.mktemp("wheels")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(UTILS))
        import other_libraries

        try:
            for library in other_libraries.LIBRARIES:
                for wheel in library.wheels if library.is_small or library.name == MODULARIZED else ():
                    other_libraries.downloaded(wheel, folder)
        except SystemExit:
            pytest.skip("there is no package index")
    return folder


@pytest.mark.slow
def test_what_a_library_repeats_is_counted_as_before(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(UTILS))
    import ecosystem

    known = json.loads(ecosystem.KNOWN.read_text(encoding="utf-8"))
    for library in filter(lambda one: one.is_small, ecosystem.LIBRARIES):
        assert ecosystem.count(library, tmp_path / library.name, cache) == known[library.name]["figures"]


def test_a_model_comes_back_as_before(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that changes the files is seen here: look at them, then run `utils/ecosystem.py --update`."""
    monkeypatch.syspath_prepend(str(UTILS))
    import ecosystem

    known = json.loads(ecosystem.KNOWN.read_text(encoding="utf-8"))
    library = next(one for one in ecosystem.LIBRARIES if one.name == MODULARIZED)
    outcome = ecosystem.modularize(library, tmp_path, cache, FIRST)
    assert not outcome.wrong
    assert len(outcome.hashes) == 3, "a modular file, and both files that it gives"
    modular = next(path for path in outcome.hashes if path.endswith(f"modular_{FIRST}.py"))
    assert outcome.hashes[modular] == known[library.name]["hashes"][modular]
