"""Imports are followed to the definitions that Python itself finds."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from modular_converter.convert.source.library import Library
from modular_converter.model.resolver import MOST_STEPS, Definition
from modular_converter.settings.load import profile_settings


FILES = {
    "one.py": "import os\nimport package.numbers\nimport package.numbers as short\nfrom .package import limit as bound\n\n\n"
    "def own(): ...\n\n\nleft, (right, *rest) = 1, (2, 3)\nfor turned in rest:\n    last = turned\n",
    "package/__init__.py": "from . import numbers, missing, circle as named\nfrom .numbers import limit\nfrom .circle import turn\n",
    "package/numbers.py": "limit = 3\n",
    "package/circle.py": "from . import turn\n",
    "bad.py": "def (:\n",
    "bare/part.py": "from ..one import *\nfrom .other import *\n",
    "bare/other.py": "from .part import *\nfrom ..package.numbers import *\n_hidden = 1\n",
    "lazy/__init__.py": "from typing import TYPE_CHECKING\nimport sys\n\n_file = 0\nif TYPE_CHECKING:\n    from .tools import *\n"
    "    from .tools import _named\nelse:\n    _file = 1\n    sys.modules[__name__] = _file\n",
    "lazy/rasp.py": "teeth = 1\n",
    "lazy/tools.py": "__all__ = ['saw']\n__all__ += ['rasp']\n\n\ndef saw(): ...\n\n\ndef _named(): ...\n\n\ndef plane(): ...\n\n\ndef rasp(): ...\n",
    "guarded.py": "try:\n    from .package import limit\nexcept ImportError:\n    limit = None\n\n"
    "try:\n    from .one import own\nexcept ImportError:\n    from .lazy import saw as own\n\n"
    "if own:\n    from .lazy import saw\nelse:\n    from .lazy import saw\n\nfrom .lazy import saw as own_too\nown_too = saw(own_too)\n",
    "aliases.py": "from . import lazy, one\nfrom .package import limit\n\nSaw = lazy.saw\nOwn = one.own\nAgain = Own\nLimit = limit\n"
    "Early = Late\nLate = 1\nCircle = Circle\nDeep = limit.real\nNumber = int\nAdded = Late + 1\n",
}


@pytest.mark.parametrize(
    ("module", "name", "found"),
    [
        (".one", "own", ("one.py", "own")),
        (".one", "bound", ("package/numbers.py", "limit")),
        (".one", "left", ("one.py", "left")),
        (".one", "rest", ("one.py", "rest")),
        (".one", "last", ("one.py", "last")),
        (".one", "", ("one.py", None)),
        (".package", "", ("package/__init__.py", None)),
        (".package", "numbers", ("package/numbers.py", None)),
        (".", "package", ("package/__init__.py", None)),
        (".", "bare", None),
        (".bare", "part", ("bare/part.py", None)),
        (".bare.part", "own", ("one.py", "own")),
        (".bare.part", "limit", ("package/numbers.py", "limit")),
        (".bare.part", "_hidden", None),
        (".package.numbers", "limit", ("package/numbers.py", "limit")),
        (".package", "circle", ("package/circle.py", None)),
        (".package", "named", ("package/circle.py", None)),
        (".package", "missing", None),
        (".package", "turn", None),
        (".lazy", "saw", ("lazy/tools.py", "saw")),
        (".lazy", "_named", ("lazy/tools.py", "_named")),
        (".lazy", "plane", None),
        (".lazy", "rasp", ("lazy/rasp.py", None)),  # what runs, where the star is for type checkers
        (".lazy", "tools", ("lazy/tools.py", None)),
        (".guarded", "limit", ("package/numbers.py", "limit")),
        (".guarded", "own", ("guarded.py", "own")),
        (".guarded", "saw", ("lazy/tools.py", "saw")),
        (".guarded", "own_too", ("guarded.py", "own_too")),
        (".aliases", "Saw", ("lazy/tools.py", "saw")),
        (".aliases", "Own", ("one.py", "own")),
        (".aliases", "Again", ("one.py", "own")),
        (".aliases", "Limit", ("package/numbers.py", "limit")),
        (".aliases", "lazy.saw", ("lazy/tools.py", "saw")),
        (".aliases", "lazy.tools.saw", ("lazy/tools.py", "saw")),
        (".aliases", "limit.real", None),
        *((".aliases", name, ("aliases.py", name)) for name in ["Early", "Late", "Circle", "Deep", "Number", "Added"]),
        (".one", "unknown", None),
        (".missing", "x", None),
        (".bad", "x", None),
        ("not_installed_at_all.x", "x", None),
    ],
)
def test_definitions(tmp_path: pathlib.Path, module: str, name: str, found: tuple[str, str | None] | None) -> None:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    place = Library(profile_settings()).resolver.definition(module, name, str(tmp_path))
    assert place == (found and (str(tmp_path / found[0]), found[1]))


@pytest.mark.parametrize(
    ("dotted", "path"),
    [
        (".a", "/x/y/a.py"),
        ("..a.b", "/x/a/b.py"),
        ("...a", "/a.py"),
        ("lib", "/lib.py"),
        ("lib.a.b", "/lib/a/b.py"),
        ("other.a", None),
    ],
)
def test_the_file_of_a_module(dotted: str, path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(profile_settings())
    monkeypatch.setattr(library, "find_package", lambda name, beside: "/lib" if name == "lib" else None)
    assert library.resolver.path(dotted, "/x/y") == path


def test_a_name_is_followed_through_some_modules(tmp_path: pathlib.Path) -> None:
    for number in range(MOST_STEPS + 2):
        (tmp_path / f"m{number}.py").write_text(f"from .m{number + 1} import x\n")
    (tmp_path / f"m{MOST_STEPS + 1}.py").write_text("x = 1\n")
    resolver = Library(profile_settings()).resolver
    assert resolver.definition(".m1", "x", str(tmp_path)) == (str(tmp_path / f"m{MOST_STEPS + 1}.py"), "x")
    assert resolver.definition(".m0", "x", str(tmp_path)) is None


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ("from .a import *\nx = one, two", [["one", "two"]]),
        ("from .a import *\none = 1\nx = one, two", [["two"]]),
        ("one = 1\nfrom .a import *\nx = one", [["one"]]),
        ("from .a import *\nfrom .b import *\nx = one, two", [["one"], ["two"]]),
        ("from .missing import *\nx = one", [["*"]]),
        ("from .a import *\nx = 1", [["*"]]),
    ],
)
def test_a_star_becomes_the_names_in_use_that_nothing_below_binds(
    tmp_path: pathlib.Path, lines: str, named: list[list[str]]
) -> None:
    for name, text in (("a", "one = two = three = 1\n"), ("b", "two = 2\n"), ("m", lines)):
        (tmp_path / f"{name}.py").write_text(text)
    library = Library(profile_settings())
    module = library.resolver.with_named_imports(library.module(str(tmp_path / "m.py")))
    assert [[one.name for one in statement.imports] for statement in module.statements if statement.imports] == named


PACKAGES = ["asyncio", "concurrent.futures", "email", "html", "json", "logging", "unittest", "urllib"]
PACKAGES += ["xml.dom", "xml.etree"]


UNKNOWN = {
    *("asyncio.SelectorEventLoop", "asyncio.DefaultEventLoopPolicy", "asyncio.EventLoop"),
    *("urllib.request.pathname2url", "urllib.request.url2pathname"),
    "email.feedparser.deque",
}
"""Names that a module has from one place on Windows and from another one elsewhere, or from C where that is there."""
MADE_ON_CONDITION = {"urllib.request.getproxies", "urllib.request.proxy_bypass"}
"""Names with a definition for each system: defined where the condition stands, whichever of them this system takes."""


ORACLE = """
import importlib, inspect, json, pkgutil, sys

package = sys.argv[1]
for one in pkgutil.iter_modules(importlib.import_module(package).__path__):
    try:
        importlib.import_module(f"{package}.{one.name}" if one.name != "__main__" else package)
    except ImportError:
        pass  # of another system
found = []
for own, module in sorted(sys.modules.items()):
    if not f"{own}.".startswith(f"{package}.") or not str(module.__file__).endswith(".py"):
        continue
    for name, value in vars(module).items():
        home = sys.modules.get(getattr(value, "__module__", ""))
        is_one = inspect.isclass(value) or inspect.isfunction(value)
        if not is_one or home is None or "." not in f"{home.__name__}{getattr(home, '__path__', '') and '.'}":
            continue  # modules that are no packages and lie in none are not searched for
        if vars(home).get(value.__name__) is value:
            found.append((own, str(module.__file__), name, str(home.__file__), value.__name__))
print(json.dumps(found))
"""
"""What the modules of a package have, in a Python of its own: other tests' imports put names into modules that are made
when they are asked for.
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_python_finds_the_same_definitions(package: str) -> None:
    """Every function and class that a module of Python's library has, with the module that it says it is from."""
    resolver = Library(profile_settings()).resolver
    done = subprocess.run([sys.executable, "-c", ORACLE, package], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    for module, file, name, home, defined in found:
        full = f"{module}.{name}"
        place = Definition(file, name) if full in MADE_ON_CONDITION else Definition(home, defined)
        wanted = None if full in UNKNOWN else place
        assert resolver.definition(module, name, os.path.dirname(file)) == wanted, full
    assert found
