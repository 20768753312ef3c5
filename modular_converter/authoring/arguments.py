"""The flat models that arguments of a command line mean: folders, files, names of models, `all`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modular_converter.authoring.flat_model import models_in
from modular_converter.files.arguments import ALL, model_folder, required_models_folder
from modular_converter.findings import ConversionError, Location
from modular_converter.rules import input_files
from modular_converter.settings.load import load_settings
from modular_converter.settings.parent_folders import models_folder_of
from modular_converter.settings.values import Settings, split_stem


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
                return models_folder_of(os.path.abspath(argument))
            if os.path.isdir(argument):
                return os.path.dirname(os.path.abspath(argument))
    return required_models_folder(package, root)


def _expand(argument: str, models: str, settings: Settings) -> Iterator[tuple[str, str]]:
    if argument == ALL:
        for entry in sorted(os.scandir(models), key=lambda one: one.name):
            if entry.is_dir() and entry.name not in settings.no_models:
                yield from ((entry.path, model) for model in models_in(entry.path, settings))
        return
    if os.path.isfile(argument):
        folder, name = os.path.split(os.path.abspath(argument))
        split = split_stem(name.removesuffix(".py"), settings.file_kinds)
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
        folder = model_folder(argument, models)
    found = models_in(folder, settings)
    if not found:
        raise ConversionError(
            input_files.missing_file(Location(argument), reason="this folder holds no modeling file")
        )
    yield from ((folder, model) for model in found)
