"""The objects behind imports, through packages that export the names of their modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.authoring.flat_model import import_origin
from modular_converter.convert.source.library import Library
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
