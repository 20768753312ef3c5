"""The flat models that arguments of a command line mean: folders, files, names of models, `all`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modular_converter.files.arguments import ALL, model_folder, required_models_folder
from modular_converter.findings import ConversionError, Location
from modular_converter.rules import input_files
from modular_converter.settings.layout import folders_of_models, models_among, models_folder_of, split_stem
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import FILES, Settings


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
