"""The objects behind imports, through packages that export the names of their modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.authoring.draft import import_line
from modular_converter.authoring.flat_model import choose_models, import_origin, in_portable_words, read_flat_model
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError
from modular_converter.model.index import index_module
from modular_converter.model.module import ImportedName
from modular_converter.settings.load import load_settings


@pytest.mark.parametrize(
    "text, is_exported",
    [
        ("class Feed: ...\n\n\n__all__ = ['Feed']\n", True),
        ("__all__ = ['Other']\n\n\nclass Feed: ...\n\n\n__all__ += ['Feed']\n", True),
        ('__all__ = ["Feed"]\nclass Feed:\n    """About\n__all__\n    """\n', True),
        ('"""About\n__all__ of this\n"""\n\n\nclass Feed: ...\n\n\n__all__ = ["Feed"]\n', True),
        ("class Feed: ...\n\n\n__all__ = ['Other']\n", False),
        ("class Feed: ...\n", True),
    ],
)
def test_a_package_exports_what_its_modules_list(text: str, is_exported: bool, tmp_path: Path) -> None:
    """Not only what stands in the last lines: some of these cannot be cut before `__all__`."""
    package = tmp_path / "models" / "old"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .modeling_old import *\n")
    (package / "modeling_old.py").write_text(text)
    library = Library(load_settings(str(tmp_path / "models")))
    found = import_origin(
        ImportedName("..old", "Feed", ""), str(tmp_path / "models" / "new" / "modeling_new.py"), library
    )
    assert found == ((str(package / "modeling_old.py"), "Feed") if is_exported else "..old.Feed")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    for name in ("old/modeling_old.py", "new/modeling_new.py", "plain/tokenization_plain.py", "auto/modeling_auto.py"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("class Feed: ...\n")
    (folder / "old/notes.py").touch()
    return folder


CHOSEN = {
    "all": ("all", ["new", "old", "plain"]),
    "a file": ("models/old/modeling_old.py", ["old"]),
    "a file of another kind": ("models/plain/tokenization_plain.py", ["plain"]),
    "a folder": ("models/new", ["new"]),
    "a name": ("old", ["old"]),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_what_an_argument_means(case: str, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models.parent)
    argument, wanted = CHOSEN[case]
    found = choose_models([argument], None, str(models) if "/" not in argument else None)
    assert found.models == str(models)
    assert found.named == tuple((str(models / name), name) for name in wanted)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [("models/old/notes.py", "its name is not that of a flat file"), ("models", "holds no file of a model"), ("models/old/modeling_older.py", "older.py"), ("unheard", "unheard")],
)  # fmt: skip
def test_what_means_no_model_is_told(
    argument: str, reason: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models.parent)
    with pytest.raises(ConversionError) as told:
        choose_models([argument], None, str(models))
    assert reason in str(told.value.findings[0])


PORTABLE = {
    "from the package itself": ("from transformers import helper", "from ...utils.tools import helper"),
    "under another name": ("from transformers import helper as own", "from ...utils.tools import helper as own"),
    "from a neighbour that imports it": ("from ..old.modeling_old import helper", "from ...utils.tools import helper"),
    "from a neighbour's package": ("from ..old.modeling_old import Feed", "from ..old.layers import Feed"),
    "what this folder has": ("from transformers import Own", "from .layers import Own"),
    "what the neighbour defines": ("from ..old.modeling_old import OldModel", ""),
    "from a package that is no neighbour": ("from transformers.utils import helper", ""),
    "from elsewhere": ("from torch.nn import Module", ""),
    "what nothing defines": ("from transformers import unheard", ""),
    "all of it": ("from transformers import *", ""),
    "a module": ("import transformers", ""),
}


def test_imports_that_a_conversion_refuses_are_of_the_file_that_defines_them(tmp_path: Path) -> None:
    top = tmp_path / "transformers"
    for name, text in {
        "__init__.py": "from .utils import helper\nfrom .models.new.layers import Own\n",
        "utils/__init__.py": "from .tools import helper\n",
        "utils/tools.py": "def helper(): ...\n",
        "models/__init__.py": "",
        "models/old/layers.py": "class Feed: ...\n",
        "models/old/modeling_old.py": "from ...utils import helper\nfrom .layers import Feed\n\n\nclass OldModel: ...\n",
        "models/new/layers.py": "class Own: ...\n",
        "models/new/modeling_new.py": "",
    }.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    library, path = Library(load_settings(str(top / "models"))), str(top / "models/new/modeling_new.py")
    for case, (written, wanted) in PORTABLE.items():
        module = in_portable_words(index_module(f"{written}\n", path), path, library)
        found = [import_line(name) for one in module.statements for name in one.imports]
        assert (case, found) == (case, [wanted or written])


def test_a_file_that_is_no_python_is_told_at_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "models" / "old" / "modeling_old.py"
    path.parent.mkdir(parents=True)
    path.write_text("# Copied from models.new.modeling_new.Feed\nclass Feed: ...\n\n\ndef (:\n")
    with pytest.raises(ConversionError) as error:
        read_flat_model(str(path.parent), "old", Library(load_settings(str(tmp_path / "models"))))
    assert [(one.code, one.location.line) for one in error.value.findings] == [("MC101", 5)]
