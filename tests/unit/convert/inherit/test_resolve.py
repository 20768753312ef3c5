"""What the imports of a modular file lead to: neighbours, packages, and modules that do not exist."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from modular_converter.convert.inherit.resolve import (
    NeighbourModule,
    ResolvedImports,
    neighbour_module,
    open_target,
    resolve_imports,
)
from modular_converter.convert.pipeline import missing_modules
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError, Location
from modular_converter.rules import input_files
from modular_converter.settings.load import profile_settings


SETTINGS = dataclasses.replace(profile_settings(), package="lib")
NEW = "lib/models/new/modular_new.py"
FILES = {
    "lib/__init__.py": "",
    "lib/models/__init__.py": "",
    "lib/models/new/__init__.py": "",
    "lib/models/old/__init__.py": "",
    "lib/models/old/modeling_old.py": "from .base import OldBase\n\n\nclass OldMLP: ...\n\n\ndef scale(): ...\n",
    "lib/models/new/base.py": "class OldBase: ...\n",
    "lib/models/old/bad.py": "",
    "lib/models/bad/modeling_bad.py": "class (:\n",
    "lib/models/newer/modular_newer.py": "",
    "lib/models/new/package/__init__.py": "",
    "lib/models/new/folder/inner.py": "",
    f"lib/models/new/fast{EXTENSION_SUFFIXES[0]}": "",
    "away/models/old/modeling_old.py": "class OldMLP: ...\n",
    "away/models/old/__init__.py": "",
    "away/models/__init__.py": "",
    "away/__init__.py": "",
}


def lay_out(root: Path, modular: str) -> Library:
    for name, text in {**FILES, NEW: modular}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Library(SETTINGS)


def resolve(root: Path, modular: str) -> ResolvedImports:
    library = lay_out(root, modular)
    return resolve_imports(open_target(str(root / NEW), library), library)


@pytest.mark.parametrize(
    ("dotted", "found"),
    [
        ("..llama.modeling_llama", ("modeling", "llama")),
        ("...models.llama.configuration_llama", ("configuration", "llama")),
        ("lib.models.llama.modeling_llama2", ("modeling", "llama2")),
        ("a.b.models.llama.image_processing_pil_llama", ("image_processing_pil", "llama")),
        (".llama.modeling_llama", None),
        ("...llama.modeling_llama", None),
        ("lib.llama.modeling_llama", None),
        ("lib.models.llama.deep.modeling_llama", None),
        ("..llama.utils", None),
        ("..llama.modeling_", None),
        ("..auto.modeling_auto", None),  # no model
        ("..llama", None),
    ],
)
def test_neighbours_are_told_by_their_names(dotted: str, found: tuple[str, str] | None) -> None:
    assert neighbour_module(dotted, SETTINGS) == (found and NeighbourModule(*found))


def test_neighbours_in_the_order_of_their_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    modular = (
        "import os\nfrom away.models.old.modeling_old import OldMLP as A\nfrom ..old.modeling_old import OldMLP, scale\n"
        "from lib.models.old.modeling_old import OldBase as B\n\n\nclass NewA(os.X, OldMLP): ...\n\n\nclass NewB(B): ...\n"
    )
    found = resolve(tmp_path, modular)
    paths = [str(tmp_path / f"{package}/models/old/modeling_old.py") for package in ("away", "lib", "lib")]
    packages = ["away.models.old", "", ""]  # only another package is named
    assert [(one.path, one.package, one.model) for one in found.neighbours.values()] == [
        (path, package, "old") for path, package in zip(paths, packages, strict=True)
    ]
    assert found.taken.keys() == {"A", "OldMLP", "scale", "B"}
    assert found.definition("scale") is not None and found.definition("B") is None and found.definition("os") is None
    classes = [one for one in found.target.module.statements if one.bases]
    assert [found.parent(one) for one in classes] == ["OldMLP", None]


@pytest.mark.parametrize(
    ("modular", "expected"),
    [
        ("from ..old.modeling_old import OldConfig\n", [("MC106", 1, 32)]),
        ("from lib import nothing\n", [("MC107", 1, 17)]),
        ("from ..old import OldMLP\n\n\nclass A(OldMLP): ...\n", []),  # as published: eurobert of 5.5
        ("import lib\n", []),
        ("from lib.other import nothing\n", []),
        ("from ..bad.modeling_bad import A, B\n", [("MC101", 1, 7)]),
        ("from ..odl.modeling_odl import A, B\n", [("MC104", 1, 6)]),
        ("from away2.models.old.modeling_old import A\n", [("MC104", 1, 6)]),
        ("from .old.modeling_old import A, B\n", [("MC104", 1, 6)]),
        ("from ....old.modeling_old import A\n", [("MC104", 1, 6)]),
        ("from lib.old.modeling_old import A\n", [("MC104", 1, 6)]),
        ("from ...odl.modeling_odl import A\nfrom away.old.modeling_old import B\n", []),  # nobody knows what is meant
        ("from .folder.inner import A\n", []),
        ("try:\n    from ..odl.modeling_odl import A\nexcept ImportError:\n    A = None\n", []),
        ("from ..old.modeling_old import Nothing\n", []),  # only a base has to exist
        ("from ..old.modeling_old import OldBase, Nothing\n\n\nclass A(OldBase, Nothing): ...\n", [("MC105", 4, 18)]),
        ("from ..old.modeling_old import OldMlp\n\n\nclass A(OldMlp): ...\n", [("MC105", 4, 9)]),
        ("from ..old.modeling_old import Oldmlp\n\n\nclass A(Oldmlp): ...\n", [("MC105", 4, 9)]),
        (
            "from ..old.modeling_old import OldMLP, OLDMLP\n\n\nclass A(OldMLP, OLDMLP): ...\n",
            [("MC108", 4, 7)],  # both are OldMLP
        ),
        (
            "from ..old.modeling_old import OLDMLP\n\n\nclass A(OLDMLP): ...\n\n\ndef f(OLDMLP): ...\n",
            [("MC105", 4, 9)],  # the name has another meaning, too
        ),
        (
            "from ..old.modeling_old import OLDMLP\n\n\nclass A(OLDMLP): ...\n\n\nclass OldMLP: ...\n",
            [("MC105", 4, 9)],  # the right name is another class
        ),
        ("class A(make()): ...\n", []),
        ("from ..old.modeling_old import OldMLP\n\n\nclass A(make(OldMLP)): ...\n", [("MC109", 4, 7)]),
        ("from ..old.modeling_old import OldMLP\n\n\nclass A(make(), OldMLP): ...\n", [("MC109", 4, 7)]),
        ("class A(a.b[c, d], e, object): ...\n", []),
        ("from ..old.modeling_old import OldMLP, scale\n\n\nclass A(OldMLP, scale): ...\n", []),
        (
            "from ..old.modeling_old import OldMLP\nfrom lib.models.old.modeling_old import OldMLP as B\n\n\n"
            "class A(OldMLP, B): ...\n",
            [("MC108", 5, 7)],
        ),
    ],
)
def test_what_leads_nowhere_is_told_at_its_place(
    tmp_path: Path, modular: str, expected: list[tuple[str, int, int]]
) -> None:
    found: tuple[object, ...] = ()
    try:
        resolve(tmp_path, modular)
    except ConversionError as error:
        found = tuple((one.code, one.location.line, one.location.column) for one in error.findings)
    assert list(found) == expected


def test_a_model_that_does_not_exist_is_told_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(ConversionError) as caught:
        resolve(tmp_path, "from ..odl.modeling_odl import A\n")
    (found,) = caught.value.findings
    assert "../odl/modeling_odl.py" in found.message and "`..old.modeling_old`" in found.help


@pytest.mark.parametrize("model", ["ew", "zebra"])
def test_neither_the_model_itself_nor_one_with_another_name_is_meant(tmp_path: Path, model: str) -> None:
    with pytest.raises(ConversionError) as caught:
        resolve(tmp_path, f"from ..{model}.modeling_{model} import A\n")
    (found,) = caught.value.findings
    assert "Did you mean" not in found.help


@pytest.mark.parametrize(
    ("dotted", "meant"),
    [("...old.modeling_old", "..old.modeling_old"), ("lib.old.modeling_old", "lib.models.old.modeling_old")],
)
def test_the_neighbour_that_is_meant_is_told(tmp_path: Path, dotted: str, meant: str) -> None:
    with pytest.raises(ConversionError) as caught:
        resolve(tmp_path, f"from {dotted} import A\n")
    (found,) = caught.value.findings
    assert f"Did you mean `{meant}`?" in found.help


@pytest.mark.parametrize(
    ("modular", "kinds", "missing"),
    [
        ("from .missing import a\n", (), [(".missing", "missing.py", 1)]),
        ("import os\nfrom .deep.missing import a, b\n", (), [(".deep.missing", "deep/missing.py", 2)]),
        ("from ..old.missing import a\n", (), [("..old.missing", "../old/missing.py", 1)]),
        ("from .package import a\n", (), []),
        ("from .folder import inner\n", (), []),
        ("from .folder import outer\n", (), [(".folder", "folder.py", 1)]),
        ("from .fast import a\n", (), []),
        ("from ..old.bad import a\n", (), []),
        ("from ..auto.missing import a\n", (), []),  # no model
        ("from ..old.modeling_old import OldMLP\n", (), []),
        ("from ...missing import a\nfrom missing import b\nfrom . import c\nfrom .. import d\n", (), []),
        ("if a:\n    from .missing import a\n", (), []),
        ("def f():\n    if a:\n        from .missing import a\n", (), [(".missing", "missing.py", 1)]),
        ("def f():\n    try:\n        from .missing import a\n    except ImportError:\n        pass\n", (), []),
        ("from .configuration_new import NewConfig\n", ("modeling", "configuration"), []),  # generated with it
        ("from .configuration_new import A\n", ("modeling",), [(".configuration_new", "configuration_new.py", 1)]),
        ("from ..newer.tokenization_newer import A\n", (), []),  # generated from another modular file
        ("from ..newer.other import A\n", (), [("..newer.other", "../newer/other.py", 1)]),
    ],
)
def test_modules_that_do_not_exist(
    tmp_path: Path, modular: str, kinds: Collection[str], missing: list[tuple[str, str, int]]
) -> None:
    library = lay_out(tmp_path, modular)
    target = open_target(str(tmp_path / NEW), library)
    places = [(Location(target.path, line), module, path) for module, path, line in missing]
    assert missing_modules(target, kinds, library) == [input_files.missing_module(*one) for one in places]
