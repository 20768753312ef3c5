"""The layout of a library: where the files of a model lie, and which of them is the modular file. Nothing else knows.

| `layout` | the modular file | a generated file | another model, as a modular file imports it |
| --- | --- | --- | --- |
| `folders` | `models/emu/modular_emu.py` | `models/emu/modeling_emu.py` | `..llama.modeling_llama` |
| `files` | `models/modular_emu.py` | `models/emu.py`, of the kind `{model}` | `.llama` |
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator

from modular_converter.settings.values import FILES, Settings


@functools.lru_cache(maxsize=8192)
def _split(stem: str, kinds: tuple[str, ...]) -> tuple[str, str] | None:
    """The first kind that fits, and the model's name. That of a private module (`_builder`) is none."""
    for kind in kinds:
        before, _, after = kind.partition("{model}") if "{model}" in kind else (f"{kind}_", "", "")
        model = stem[len(before) : len(stem) - len(after)]
        if model and stem == before + model + after and not (model.startswith("_") and not before):
            return kind, model
    return None


def split_stem(stem: str, settings: Settings) -> tuple[str, str] | None:
    """`image_processing_pil_vit` -> `("image_processing_pil", "vit")`; None for a file of no kind, and a modular file.

    A kind may say where the model's name goes: `tokenization_vit_fast` is of the kind `tokenization_{model}_fast`.
    """
    found = _split(stem, settings.file_kinds)
    if found is None or _split(stem, (settings.modular_kind,)):
        return None
    return None if settings.layout == FILES and found[1] in settings.no_models else found


def module_name(kind: str, model: str) -> str:
    """The inverse of `split_stem`: `modeling` and `gemma` -> `modeling_gemma`."""
    return kind.replace("{model}", model) if "{model}" in kind else f"{kind}_{model}"


def modular_name(model: str, settings: Settings) -> str:
    """The name of the modular file of a model: `modular_emu.py`."""
    return f"{module_name(settings.modular_kind, model)}.py"


def model_of_modular(path: str, settings: Settings) -> str:
    """`emu` of `modular_emu.py`; "" for a file that is no modular file by its name."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    found = _split(stem, (settings.modular_kind,)) if suffix == ".py" else None
    return found[1] if found else ""


def is_modular(path: str, settings: Settings) -> bool:
    """Whether a file is a modular file by its name."""
    return bool(model_of_modular(path, settings))


def would_be_modular(kind: str, settings: Settings) -> bool:
    """Whether a file of a kind would have the name of a modular file, also where capitals are not told apart."""
    return _split(module_name(kind, "x").casefold(), (settings.modular_kind.casefold(),)) is not None


def modular_of(path: str, settings: Settings) -> str:
    """The modular file that a generated file, with or without `.py`, would come from: `modeling_x.py` -> `modular_x.py`
    beside it; "" for another file.
    """
    folder, name = os.path.split(path)
    found = split_stem(name.removesuffix(".py"), settings)
    return os.path.join(folder, modular_name(found[1], settings)) if found else ""


def models_folder_of(path: str, settings: Settings) -> str:
    """The folder of models that a file of a model lies in: `models` of `models/gemma/modular_gemma.py`."""
    folder = os.path.dirname(path)
    return folder if settings.layout == FILES else os.path.dirname(folder)


def folder_of_model(models: str, model: str, settings: Settings) -> str:
    """The folder that the files of a model lie in."""
    return models if settings.layout == FILES else os.path.join(models, model)


def folders_of_models(models: str, settings: Settings) -> list[str]:
    """The folders in which files of models lie, sorted."""
    if settings.layout == FILES:
        return [models]
    with os.scandir(models) as found:
        return sorted(one.path for one in found if one.is_dir())


def names_of_models(models: str, settings: Settings) -> list[str]:
    """The names of the models in the folder of models, sorted: of folders, or of files of the default kind."""
    if settings.layout == FILES:
        return [*models_among(os.listdir(models), settings)]
    return [os.path.basename(one) for one in folders_of_models(models, settings)]


def models_among(names: Iterable[str], settings: Settings) -> Iterator[str]:
    """The models whose file of the default kind is among some names of files, sorted."""
    stems = sorted(name.removesuffix(".py") for name in names if name.endswith(".py"))
    found = (split_stem(stem, settings) for stem in stems)
    yield from (split[1] for split in found if split and split[0] == settings.default_kind)


def dotted_name(path: str, settings: Settings) -> str:
    """The module of a neighbour's file, as the modular file of another model imports it."""
    below = os.path.relpath(path.removesuffix(".py"), models_folder_of(path, settings))
    return dots_of_models(settings) + below.replace(os.sep, ".")


def place_of_model(path: str, settings: Settings) -> str:
    """The folder that the model of a file has or would have for itself, by which people call it: `models/emu`."""
    folder, name = os.path.split(path)
    if settings.layout != FILES:
        return folder
    found = split_stem(name.removesuffix(".py"), settings)
    return os.path.join(folder, model_of_modular(path, settings) or (found[1] if found else ""))


def parts_below_models(dotted: str, settings: Settings) -> tuple[str, ...] | None:
    """The parts of a module behind the folder of models: `llama` and `modeling_llama` of `..llama.modeling_llama`; None
    for a module that is in none. Files that share a folder with other models are found in their own package alone.
    """
    named = "|".join(map(re.escape, settings.models_names))
    models = rf"\.\.|\.*(?:[^\W\d]\w*\.)*(?:{named})\."
    if settings.layout == FILES:
        package, folder = re.escape(settings.package), re.escape(settings.models_name)
        models = rf"\.|{package}\." + (rf"(?:\w+\.)*?{folder}\." if folder != package else "")
    return _below(dotted, models)


@functools.lru_cache(maxsize=4096)
def _below(dotted: str, models: str) -> tuple[str, ...] | None:
    match = re.fullmatch(rf"(?:{models})([^\W\d]\w*)(?:\.([^\W\d]\w*))?", dotted)
    return tuple(filter(None, match.groups())) if match else None


def depth_of_files(settings: Settings) -> int:
    """The number of parts by which the folder of models and a model's file are apart."""
    return 1 if settings.layout == FILES else 2


def dots_of_models(settings: Settings) -> str:
    """The dots that stand for the folder of models in the imports of a model's file."""
    return "." * depth_of_files(settings)
