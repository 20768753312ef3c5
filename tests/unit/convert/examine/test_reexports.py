"""Where an imported name is defined: through packages that hand it on."""

from __future__ import annotations

import pathlib

import pytest

from modular_converter.convert.examine.reexports import DEEPEST, place_of
from modular_converter.convert.source.library import Library
from modular_converter.settings.load import profile_settings


FILES = {
    "one.py": "import os\nfrom .package import limit as bound\n\n\ndef own(): ...\n",
    "package/__init__.py": "from . import numbers, missing, circle as named\nfrom .numbers import limit\nfrom .circle import turn\n",
    "package/numbers.py": "limit = 3\n",
    "package/circle.py": "from . import turn\n",
    "bad.py": "def (:\n",
}


@pytest.mark.parametrize(
    ("module", "name", "found"),
    [
        (".one", "own", ("one.py", "own")),
        (".one", "bound", ("package/numbers.py", "limit")),
        (".one", "", ("one.py", "")),
        (".package", "", ("package/__init__.py", "")),
        (".package", "numbers", ("package/numbers.py", "")),
        (".package.numbers", "limit", ("package/numbers.py", "limit")),
        (".package", "circle", ("package/circle.py", "")),
        (".package", "named", ("package/circle.py", "")),
        (".package", "missing", None),
        (".package", "turn", None),
        (".one", "os", None),
        (".one", "unknown", None),
        (".missing", "x", None),
        (".bad", "x", None),
        ("not_installed_at_all.x", "x", None),
    ],
)
def test_places(tmp_path: pathlib.Path, module: str, name: str, found: tuple[str, str] | None) -> None:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    place = place_of(module, name, str(tmp_path), Library(profile_settings()))
    assert place == (found and (str(tmp_path / found[0]), found[1]))


def test_a_name_is_followed_through_some_modules(tmp_path: pathlib.Path) -> None:
    for number in range(DEEPEST + 2):
        (tmp_path / f"m{number}.py").write_text(f"from .m{number + 1} import x\n")
    (tmp_path / f"m{DEEPEST + 1}.py").write_text("x = 1\n")
    library = Library(profile_settings())
    assert place_of(".m1", "x", str(tmp_path), library) == (str(tmp_path / f"m{DEEPEST + 1}.py"), "x")
    assert place_of(".m0", "x", str(tmp_path), library) is None
