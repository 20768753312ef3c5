"""Write a plan into the source of a model: into its modular file if there is one, else into the files of its classes."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modular_converter.api import convert_source
from modular_converter.convert.emit.banner import is_generated
from modular_converter.convert.schedule import required_files
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import discover
from modular_converter.files.atomic_write import write_atomically
from modular_converter.files.read import is_installed
from modular_converter.findings import ConversionError
from modular_converter.parallel.errors import WriteError
from modular_converter.parallel.plans.class_settings import Setting
from modular_converter.parallel.source.edit_class import BOM, set_dictionary
from modular_converter.parallel.tiny.target import ModelingFile
from modular_converter.settings.layout import models_folder_of
from modular_converter.settings.load import load_settings


@dataclass(frozen=True)
class SourceChange:
    """A file and its new text; ``old`` is None for a new file."""

    path: str
    old: str | None
    new: str


def changes(file: ModelingFile, settings: Sequence[Setting], convert: bool = True) -> list[SourceChange]:
    """The changes of files that give the classes their settings; edited files come before generated files.

    Args:
        convert: whether to include the generated files of the modular file.

    Raises ``WriteError`` if a class is defined elsewhere, cannot be edited, or the edited modular file does not
    convert.
    """
    texts: dict[str, str] = {}
    for setting in settings:
        if setting.is_current:
            continue
        path = _source_of(file, setting)
        texts[path] = set_dictionary(
            texts.get(path) or _read(path), setting.owner.__name__, setting.attribute, setting.entries
        )
    found = [SourceChange(path, _read(path), text) for path, text in texts.items()]
    if file.modular and convert:
        found += _generated(file.modular, texts.get(file.modular) or _read(file.modular))
    return [change for change in found if change.old != change.new]


def write_changes(found: Sequence[SourceChange]) -> None:
    """Write the changes, each file atomically and none outside its folder.

    Raises ``WriteError`` if a file belongs to an installed package or cannot be written.
    """
    for change in found:
        refuse_installed(change.path)
        try:
            write_atomically(change.path, change.new, os.path.dirname(change.path))
        except ConversionError as error:
            raise WriteError("\n".join(map(str, error.findings))) from error


def refuse_installed(path: str) -> None:
    """Raise ``WriteError`` for a file of an installed package."""
    if is_installed(path):
        raise WriteError(f"{path}: it belongs to an installed package; give the file of a checkout, or --json FILE")


def heirs(file: ModelingFile, found: Sequence[SourceChange]) -> list[str]:
    """The other modular files of the models folder that import from a changed file, sorted."""
    changed = {change.path for change in found}
    settings = load_settings(os.path.dirname(file.path))
    library = Library(settings)
    everything = discover([models_folder_of(file.path, settings)], None).paths
    return [
        path for path in everything if path != file.modular and not changed.isdisjoint(required_files(path, library))
    ]


def _source_of(file: ModelingFile, setting: Setting) -> str:
    """The file to edit for a class: the modular file if the class is generated, else the class's own file."""
    name = setting.owner.__name__
    place = os.path.realpath(sys.modules[setting.owner.__module__].__file__ or "")
    folder = os.path.realpath(os.path.dirname(file.path))
    if os.path.dirname(place) != folder:
        raise WriteError(
            f"{name}.{setting.attribute}: the class is defined in {_shown(place)}, which other models use as well; "
            f"write the plan there, or give this model a configuration class of its own"
        )
    path = os.path.join(os.path.dirname(file.path), os.path.basename(place))
    if file.modular:
        if name in _classes(_read(file.modular)):
            return file.modular
        if not os.path.isfile(path) or is_generated(_read(path)):
            raise WriteError(
                f"{name}.{setting.attribute}: {_shown(file.modular)} does not define {name}, it comes from a "
                f"neighbour; add a class {name} that inherits from the neighbour's, then write again"
            )
    return path


def _classes(text: str) -> set[str]:
    return {node.name for node in ast.parse(text.removeprefix(BOM)).body if isinstance(node, ast.ClassDef)}


def _generated(modular: str, text: str) -> Iterator[SourceChange]:
    conversion = convert_source(text.removeprefix(BOM), modular)
    errors = [str(finding) for finding in conversion.findings if finding.is_error]
    if errors:
        raise WriteError(f"{_shown(modular)}: with the plan it cannot be converted\n  " + "\n  ".join(errors))
    for path, made in conversion.files.items():
        yield SourceChange(path, _read(path) if os.path.isfile(path) else None, made)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise WriteError(f"{_shown(path)}: it cannot be read ({error})") from error


def _shown(path: str) -> str:
    return os.path.relpath(path)
