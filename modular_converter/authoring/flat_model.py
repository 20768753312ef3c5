"""A flat model: the files of a model folder that a modular file of it would generate; and the flat models that arguments of
a command line mean: folders, files, names of models, `all`.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from modular_converter.authoring.library_index import texts_of
from modular_converter.convert.inherit.resolve import ModularFile, neighbour_module
from modular_converter.convert.source.library import Library, ModelNames
from modular_converter.convert.source.rename import in_own_terms, own_folder_name, without_copy_comments
from modular_converter.files.arguments import ALL, model_folder, required_models_folder
from modular_converter.files.write import is_generated, source_path, without_banner
from modular_converter.findings import ConversionError, Location
from modular_converter.model.index import index_module
from modular_converter.model.module import ImportedName, Module, Role, Statement
from modular_converter.model.nodes import parse
from modular_converter.model.overriding import NO_DECORATORS
from modular_converter.model.resolver import Definition
from modular_converter.rules import input_files
from modular_converter.settings.disk import is_below
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import (
    FILES,
    Settings,
    dots_of_models,
    folders_of_models,
    models_among,
    models_folder_of,
    modular_name,
    split_stem,
)


@dataclass(frozen=True)
class FlatFile:
    """One file of a flat model."""

    kind: str
    path: str
    text: str
    module: Module
    """Its statements. The header is without the banner of a generated file."""
    is_generated: bool
    """Whether the banner says that the file comes from the model's modular file."""
    marks: int = 0
    """The number of comments that name the origin of a copy. They are left out of `module`, since inheritance replaces
    them.
    """
    has_docstring: bool = False
    """Whether the module has a docstring, which no generated file has."""


@dataclass(frozen=True)
class FlatModel:
    """The files of one model, `<kind>_<model>.py` in one folder."""

    modular: str
    """Absolute path of the modular file that the model has or would have."""
    model: str
    model_names: ModelNames
    """The names of the package's models, with that of this model as its classes write it."""
    files: tuple[FlatFile, ...]
    settings: Settings
    no_inherit_module: str = ""
    """The module with `@no_inherit_decorator`, where the package of the model has it."""
    imports_itself_as: str = ""
    """The dotted name of its folder, if its files import each other by absolute imports; else ""."""

    def module_as_written(self, dotted: str) -> str:
        """The module of another model, `..llama.modeling_llama`, as the files of this model would import it."""
        dots, own = dots_of_models(self.settings), self.imports_itself_as
        models = own if self.folder == self.models_folder else own.rpartition(".")[0]
        return f"{models}.{dotted.removeprefix(dots)}" if models and dotted.startswith(dots) else dotted

    @property
    def cased(self) -> str:
        """The model's name in the names of its classes."""
        return self.model_names.cased(self.model)

    @property
    def folder(self) -> str:
        return os.path.dirname(self.modular)

    @property
    def models_folder(self) -> str:
        """The folder that holds the folders of all models."""
        return models_folder_of(self.modular, self.settings)

    @property
    def is_generated(self) -> bool:
        """Whether the files were generated, so that a conversion must give the same bytes."""
        return any(file.is_generated for file in self.files)

    @cached_property
    def definitions(self) -> Mapping[str, tuple[FlatFile, Statement]]:
        """Every definition of the files by name; of several with one name the first."""
        found: dict[str, tuple[FlatFile, Statement]] = {}
        for file in self.files:
            for name, statement in file.module.definitions.items():
                found.setdefault(name, (file, statement))
        return found

    @cached_property
    def texts(self) -> Mapping[str, frozenset[str]]:
        """Name -> the texts of its definitions with the comments above them; two files may define one name."""
        found: dict[str, set[str]] = {}
        for file in self.files:
            for name, text in texts_of(file.module, file.is_generated).items():
                found.setdefault(name, set()).add(text)
        return {name: frozenset(texts) for name, texts in found.items()}

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that the files define or import."""
        return frozenset().union(*(file.module.names for file in self.files))

    def without(self, paths: Collection[str]) -> FlatModel:
        """The model without some of its files, which stay written by hand."""
        return replace(self, files=tuple(file for file in self.files if file.path not in paths))

    @property
    def lines(self) -> int:
        return sum(file.text.count("\n") for file in self.files)

    def as_modular(self, text: str) -> ModularFile:
        """A modular file of this model with a given text."""
        return ModularFile(self.modular, self.model, self.model_names, index_module(text, self.modular))


def read_flat_model(folder: str, model: str, library: Library) -> FlatModel:
    """Read the files of a model. If a model has generated files, only these count: the others are written by hand.

    Raises `ConversionError` for a model without files, and for a file that cannot be read or is not Python.
    """
    modular = os.path.join(folder, modular_name(model, library.settings))
    files = []
    for name in sorted(os.listdir(folder)):
        split = split_stem(name.removesuffix(".py"), library.settings) if name.endswith(".py") else None
        if split and split[1] == model:
            files.append(_read_file(os.path.join(folder, name), split[0], modular, library))
    if any(file.is_generated for file in files):
        files = [file for file in files if file.is_generated]
    if not files:
        raise ConversionError(
            input_files.missing_file(Location(folder), reason=f"it has no file of the model {model!r}")
        )
    models = models_folder_of(modular, library.settings)
    # Configuration and processing come before modeling, as authors write modular files.
    files.sort(key=lambda file: (file.kind == library.settings.default_kind, file.kind))
    classes = [name for file in files for name in file.module.classes]
    names = library.names(models).with_written(model, classes)
    own = next(filter(None, (own_folder_name(library.module(file.path), library) for file in files)), "")
    return FlatModel(modular, model, names, tuple(files), library.settings, no_inherit_module(models, library), own)


def no_inherit_module(models_folder: str, library: Library) -> str:
    """The module with `@no_inherit_decorator`, where the package has it; else ""."""
    module = library.settings.no_inherit_module
    parts = module.lstrip(".").split(".")
    above = [".."] * (len(module) - len(".".join(parts)) - 2)  # two dots are the folder of models
    path = os.path.normpath(os.path.join(models_folder, *above, *parts)) + ".py"
    return module if module and f"def {NO_DECORATORS}(" in (library.text_if_readable(path) or "") else ""


def _read_file(path: str, kind: str, modular: str, library: Library) -> FlatFile:
    library.module(path)  # raises for a text that is no Python, at its line in the whole file
    text = library.text(path)
    header_of = is_generated(text)
    own = bool(header_of) and os.path.basename(header_of) == os.path.basename(source_path(modular, library.settings))
    if own:
        body = without_banner(text, library.settings)
        marks = 0
    else:
        body = without_copy_comments(text, library.settings.copy_comment)
        marks = text.count("\n") - body.count("\n")
    module = in_own_terms(index_module(body, path), library)
    module = module if own else in_portable_words(module, path, library)
    return FlatFile(kind, path, text, module, own, marks, ast.get_docstring(parse(body)) is not None)


def import_origin(name: ImportedName, path: str, library: Library) -> Definition | str:
    """What an import in the file `path` binds: two imports with the same origin bind one object.

    It is the dotted name where the definition cannot be found.
    """
    if not name.name and not name.asname:
        return f"import {name.module}"
    found = library.resolver.definition(name.module, name.name, os.path.dirname(path))
    return found or f"{name.module}.{name.name}".rstrip(".")


def in_portable_words(module: Module, path: str, library: Library) -> Module:
    """A module whose imports are changed to the defining file if a conversion refuses the imported file.

    These are imports from the root of the package, and imports from a neighbour of what it only imports.
    """
    statements = []
    for one in module.statements:
        if one.role is Role.IMPORT:
            one = replace(one, imports=tuple(_portable(name, path, library) for name in one.imports))
        statements.append(one)
    return replace(module, statements=tuple(statements))


def _portable(name: ImportedName, path: str, library: Library) -> ImportedName:
    settings, folder = library.settings, os.path.dirname(path)
    is_root = name.module == settings.package
    if not name.name or name.name == "*" or not (is_root or neighbour_module(name.module, settings)):
        return name
    found = library.resolver.definition(name.module, name.name, folder)
    if found is None or found.name != name.name or found.path == library.resolver.file(name.module, folder):
        return name
    top = library.find_package(settings.package, folder)
    if top is None or not is_below(folder, top) or not is_below(found.path, top):
        return name
    above = os.path.relpath(os.path.commonpath((folder, found.path)), folder)
    dots = "." if above == "." else "." * (above.count("..") + 1)
    below = os.path.relpath(found.path.removesuffix(".py").removesuffix("__init__"), os.path.join(folder, above))
    return ImportedName(dots + below.strip("./").replace(os.sep, "."), name.name, name.asname)


@dataclass(frozen=True)
class Chosen:
    """The models that a command line means."""

    models: str
    """The folder of models."""
    settings: Settings
    named: tuple[tuple[str, str], ...]
    """Folder and name of each model, sorted."""


def choose_models(arguments: Sequence[str], package: str | None, root: str | None) -> Chosen:
    """Find the models, and the settings of their project.

    Raises `ConversionError` for an argument that means no model, and where no folder of models is known.
    """
    folder = _folder(arguments, package, root)
    settings = load_settings(folder)
    named = {one for argument in arguments for one in _expand(argument, folder, settings)}
    return Chosen(folder, settings, tuple(sorted(named)))


def _folder(arguments: Sequence[str], package: str | None, root: str | None) -> str:
    """The folder of models: from the options, else above the first path, else from the project."""
    if not package and not root:
        for argument in arguments:
            if os.path.isfile(argument):
                return models_folder_of(os.path.abspath(argument), load_settings(os.path.dirname(argument)))
            if os.path.isdir(argument):
                path = os.path.join(os.path.abspath(argument), "any")
                return models_folder_of(path, load_settings(argument))
    return required_models_folder(package, root)


def _expand(argument: str, models: str, settings: Settings) -> Iterator[tuple[str, str]]:
    if argument == ALL:
        for folder in folders_of_models(models, settings):
            if os.path.basename(folder) not in settings.no_models or folder == models:
                yield from ((folder, model) for model in _models_in(folder, settings))
        return
    if os.path.isfile(argument):
        folder, name = os.path.split(os.path.abspath(argument))
        split = split_stem(name.removesuffix(".py"), settings)
        if split is None:
            reason = "its name is not that of a flat file, `modeling_<model>.py` or the like"
            raise ConversionError(input_files.missing_file(Location(argument), reason=reason))
        yield folder, split[1]
        return
    if os.path.isdir(argument):
        folder = os.path.abspath(argument)
    elif argument.endswith(".py"):
        raise ConversionError(input_files.missing_file(Location(argument)))
    else:
        folder = model_folder(argument, models, settings)
    is_shared = folder == models and not os.path.isdir(argument)
    found = [one for one in _models_in(folder, settings) if not is_shared or one == argument.replace("-", "_")]
    if not found:
        raise ConversionError(
            input_files.missing_file(Location(argument), reason="this folder holds no file of a model")
        )
    yield from ((folder, model) for model in found)


def _models_in(folder: str, settings: Settings) -> list[str]:
    """The models in a folder: those with a modeling file, else those of its other files, as a tokenizer alone."""
    names = os.listdir(folder)
    found = [*models_among(names, settings)]
    if found or settings.layout == FILES:
        return found
    splits = (split_stem(name.removesuffix(".py"), settings) for name in names if name.endswith(".py"))
    return sorted({split[1] for split in splits if split})
