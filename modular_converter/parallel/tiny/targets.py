"""Find the classes to build for a model type, a class path, a file, or a model folder of the library."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from modular_converter.parallel.errors import BuildError, UnknownModel
from modular_converter.parallel.tiny.importing import reach
from modular_converter.parallel.tiny.model_files import file_target, is_file, next_step
from modular_converter.parallel.tiny.target import Target, load_class


def target_of(name: str, head: str = "base") -> Target:
    """The target of a model type (``llama``), a class path (``package.module.Class``) or a file (``modeling_x.py``).

    Args:
        name: a model type of the library, a dotted path of a model class with ``config_class``, or a modeling or modular
            file, followed by ``:Class`` for another class than its base model.
        head: ``base`` for the base model, ``causal`` for the model with a language-model head.

    Raises:
        UnknownModel: the library has no such type; the message lists the nearest names.
        BuildError: the type has no model of this head.
    """
    from transformers.models.auto import configuration_auto, modeling_auto

    names = configuration_auto.CONFIG_MAPPING_NAMES
    if name not in names:
        if is_file(name):
            return file_target(name)
        if "." not in name:
            raise UnknownModel(name, names)
        reach(os.getcwd())
        return dataclasses.replace(_target(name, name, load_class(name)), folder=os.getcwd())
    table = {
        "base": modeling_auto.MODEL_MAPPING_NAMES,
        "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    }[head]
    found = table.get(name)
    if found is None:
        raise BuildError(f"{name}: the library lists no {head} model for this type; give a class path instead")
    class_name = found[0] if isinstance(found, (tuple, list)) else found
    model_class = _found(name, class_name, "modeling")
    mapped = _found(name, names[name], "configuration")
    try:
        own = getattr(model_class, "config_class", None)
    except ImportError as error:  # the library's placeholder for a class that needs a missing library
        raise BuildError(f"{name}: {' '.join(str(error).split())}") from error
    config = mapped if own is None or issubclass(mapped, own) else own
    return Target(name, _path(name, model_class), _path(name, config))


def is_type(name: str) -> bool:
    """Whether a name is a model type of the library; it comes before a folder of this name, which is ``./name``."""
    from transformers.models.auto import configuration_auto

    return name in configuration_auto.CONFIG_MAPPING_NAMES


def targets_of_folder(folder: str) -> list[Target]:
    """The targets for a folder of the library's models, the likeliest first.

    They are the base models of the folder's model types, first of the type with the folder's name; without such base
    models, the classes of its modeling files that name their configuration, ``*Model`` before ``*For*``.

    Raises:
        UnknownModel: there is no such folder; the message lists the nearest names.
        BuildError: the folder has no model class that names its configuration, or it cannot be imported.
    """
    from transformers.models.auto import configuration_auto, modeling_auto

    models = Path(configuration_auto.__file__).parents[1]
    if not any(models.glob(f"{folder}/modeling_*.py")):
        raise UnknownModel(folder, (path.parent.name for path in models.glob("*/modeling_*.py")))
    types = [
        name
        for name in configuration_auto.CONFIG_MAPPING_NAMES
        if name in modeling_auto.MODEL_MAPPING_NAMES and configuration_auto.model_type_to_module_name(name) == folder
    ]
    if types:
        plain = folder.replace("_", "-")
        return [target_of(name) for name in sorted(types, key=lambda name: (name.replace("_", "-") != plain, name))]
    found = list(_classes_of_folder(models / folder))
    if not found:
        raise BuildError(f"{folder}: no class of its modeling files names a configuration; give a class path instead")
    return found


def _classes_of_folder(folder: Path) -> Iterator[Target]:
    """Model classes with a configuration and a forward, in the order of preference."""
    ranked = []
    for path in sorted(folder.glob("modeling_*.py")):
        module_name = f"transformers.models.{folder.name}.{path.stem}"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        module = _module(module_name)
        for position, node in enumerate(node for node in tree.body if isinstance(node, ast.ClassDef)):
            rank = _rank(node.name)
            found: Any = getattr(module, node.name, None)
            if rank is None or getattr(found, "config_class", None) is None or not _has_forward(found):
                continue
            ranked.append((rank, -position, f"{module_name}.{node.name}", found))
    for _, _, path_of_class, found in sorted(ranked, key=lambda item: item[:3]):
        yield _target(folder.name, path_of_class, found)


def _rank(name: str) -> int | None:
    """The rank by the library's names of classes: base models, models with heads, others; None for abstract bases."""
    if name.endswith("PreTrainedModel"):
        return None
    if name.endswith("Model"):
        return 0
    return 1 if "For" in name else 2


def _has_forward(model_class: Any) -> bool:
    import torch

    return getattr(model_class, "forward", None) is not torch.nn.Module.forward


def _target(name: str, path: str, model_class: type[Any]) -> Target:
    config = getattr(model_class, "config_class", None)
    if config is None:
        raise BuildError(f"{name}: has no config_class; give a model class, not a layer{next_step(model_class)}")
    return Target(name, path, _path(name, config))


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BuildError(f"{name}: cannot be imported ({error}); install the library that it names") from error


def _found(name: str, class_name: str, kind: str) -> type[Any]:
    """A class that the library lists for a type, from the type's package, its file of this kind, or the library's top."""
    import transformers
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    folder = model_type_to_module_name(name)
    package = f"transformers.models.{folder}"
    try:
        places = [importlib.import_module(package)]
        file = f"{package}.{kind}_{folder}"
        if not hasattr(places[0], class_name) and importlib.util.find_spec(file):
            places.append(importlib.import_module(file))
        owner = next((place for place in places if hasattr(place, class_name)), transformers)
        found: type[Any] = getattr(owner, class_name)
    except (ImportError, AttributeError) as error:
        raise BuildError(f"{name}: {class_name} cannot be imported ({error})") from error
    return found


def _path(name: str, found: type[Any]) -> str:
    """The import path of a class: in its own module, or in the package of its type if that module is not imported."""
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    if found.__module__ in sys.modules:
        return f"{found.__module__}.{found.__qualname__}"
    return f"transformers.models.{model_type_to_module_name(name)}.{found.__qualname__}"
