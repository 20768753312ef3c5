"""Random flat models, made by converting random modular files: are they modularized, and does the result come back?"""

from __future__ import annotations

import enum
import subprocess
import sys
from pathlib import Path

from modular_converter.authoring.flat_model import FlatFile, read_flat_model
from modular_converter.authoring.library_index import read_index
from modular_converter.authoring.modularize import modularize
from modular_converter.convert.batch import Run
from modular_converter.convert.source.library import Library
from modular_converter.model.module import Role
from tests.oracle.programs import Program
from tests.oracle.verdict import MODULAR, settings


class Return(enum.Enum):
    """What became of a program."""

    NOT_CONVERTED = "not converted"
    SHORTER = "comes back from fewer lines"
    NOT_SHORTER = "comes back from as many lines as it has"
    NOT_FORMATTED = "the formatter changes its own output, which therefore cannot come back"
    UNUSED = "stays for a definition that nothing in it uses, left by a class that gave way to another"
    STAYED = "does not come back"


def _formatted_by_ruff(path: str) -> str:
    """A generated file as ruff writes it once more: it takes one of several pairs of parentheses at a time."""
    text = Path(path).read_text(encoding="utf-8")
    config = Path(path).with_name("ruff.toml")
    config.write_text(settings("ruff").ruff_config, encoding="utf-8")
    for command in (["check", "--fix", "--exit-zero", "--quiet"], ["format"]):
        words = [sys.executable, "-m", "ruff", *command, "--no-cache", "--config", str(config), "-"]
        text = subprocess.run(words, input=text, capture_output=True, check=True, encoding="utf-8").stdout
    return text


def _has_unused_definition(file: FlatFile) -> bool:
    """Whether no statement of a file uses one of its functions or constants: only classes and their needs come back."""
    return any(
        one.role is not Role.CLASS
        and not any(name in other.uses for other in file.module.statements if other is not one)
        for name, one in file.module.definitions.items()
    )


def go_back(program: Program, folder: Path) -> tuple[Return, str]:
    """Convert a program, modularize the flat model that it gives, and tell how that went, with the reason.

    Args:
        folder: an empty folder, into which the program is written.
    """
    for name, text in program.modules.items():
        path = folder / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    modular = folder / f"{MODULAR.replace('.', '/')}.py"
    (conversion,) = Run(settings("ruff"), workers=1).convert([str(modular)])
    if not conversion.files:
        return Return.NOT_CONVERTED, ""
    for place, text in conversion.files.items():
        Path(place).write_text(text, encoding="utf-8")
    library = Library(settings("ruff"))
    flat = read_flat_model(str(modular.parent), "emu", library)
    result = modularize(flat, read_index(str(folder / "models"), library, cached=False), library)
    if result.proof is None or result.left:
        if any(_formatted_by_ruff(file.path) != file.text for file in flat.files):
            return Return.NOT_FORMATTED, ""
        if any(map(_has_unused_definition, flat.files)):
            return Return.UNUSED, ""
        return Return.STAYED, "; ".join(result.left.values())
    assert result.proof.conversion.files == {file.path: file.text for file in flat.files}
    return (Return.SHORTER if result.proof.lines < flat.lines else Return.NOT_SHORTER), ""
