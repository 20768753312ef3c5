"""What a conversion of a draft gives, compared with the flat model that it should give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modular_converter.authoring.flat_model import FlatFile, FlatModel
from modular_converter.convert.source.index import index_module
from modular_converter.convert.source.module import ImportedName, Module


@dataclass(frozen=True)
class FileDifference:
    """How one generated file differs from the flat file."""

    file: FlatFile
    missing: tuple[str, ...] = ()
    """Definitions that did not come."""
    other: tuple[str, ...] = ()
    """Definitions with another text."""
    extra: tuple[str, ...] = ()
    """Definitions that the flat file does not have."""
    imports: tuple[str, ...] = ()
    """Names that are imported otherwise, or in one of the files only."""
    order: tuple[str, str] | None = None
    """The first place where definitions stand otherwise: the name that should stand there, and the one that does."""
    exports: bool = False
    """Whether `__all__` differs."""
    bytes_differ: bool = False
    """Whether anything differs at all."""

    @property
    def is_same_code(self) -> bool:
        """Whether all definitions, imports and exports are the same."""
        return not (self.missing or self.other or self.extra or self.imports or self.exports)

    @property
    def has_come_back(self) -> bool:
        """Whether the file is proven: byte for byte if it was generated, else definition by definition."""
        return not self.bytes_differ if self.file.is_generated else self.is_same_code


def compare(flat: FlatModel, texts: Mapping[str, str]) -> tuple[FileDifference, ...]:
    """The differences, file by file.

    Args:
        texts: path -> generated text.
    """
    return tuple(_compare(file, texts.get(file.path, "")) for file in flat.files)


def _compare(file: FlatFile, text: str) -> FileDifference:
    if text == file.text:
        return FileDifference(file)
    made = index_module(text, file.path)
    wanted, found = _texts(file.module), _texts(made)
    common = [name for name in wanted if name in found]
    places = [name for name in found if name in wanted]
    order = next(((one, other) for one, other in zip(common, places) if one != other), None)
    return FileDifference(
        file,
        tuple(name for name in wanted if name not in found),
        tuple(name for name in common if wanted[name] != found[name]),
        tuple(name for name in found if name not in wanted),
        _other_imports(file.module, made),
        order,
        _exports(file.module) != _exports(made),
        True,
    )


def _texts(module: Module) -> dict[str, str]:
    """Definition -> its text with the comments above it."""
    return {
        name: f"{one.lead.strip()}\n{one.text}".strip() for name, one in module.definitions.items() if name != "__all__"
    }


def _exports(module: Module) -> str:
    statement = module.definitions.get("__all__")
    return statement.text if statement else ""


def _other_imports(wanted: Module, made: Module) -> tuple[str, ...]:
    """The names that two modules import differently."""
    one, other = _imports(wanted), _imports(made)
    return tuple(key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key))


def _imports(module: Module) -> dict[str, ImportedName]:
    return {name.key: name for statement in module.statements for name in statement.imports}
