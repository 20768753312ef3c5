"""A model to build small, named by import paths: found for a model type, a class path, a file or a folder of the library."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from modular_converter.files.read import package_of
from modular_converter.parallel.errors import BuildError, UnknownModel
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import (
    is_modular,
    models_among,
    modular_name,
    modular_of,
    module_name,
    split_stem,
)


class _TextLoader(importlib.abc.ExecutionLoader):
    """Runs a text under the name of a file; no bytecode is written."""

    def __init__(self, path: str, source: str) -> None:
        self.path, self.source = path, source

    def get_source(self, fullname: str) -> str:
        return self.source

    def get_filename(self, fullname: str) -> str:
        return self.path


class _TextFinder(importlib.abc.MetaPathFinder):
    """Finds modules whose files are replaced by texts (``lay_over``)."""

    def __init__(self) -> None:
        self.texts: dict[str, tuple[str, str]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.texts:
            return None
        place, source = self.texts[fullname]
        loader = _TextLoader(place, source)
        return importlib.util.spec_from_file_location(fullname, place, loader=loader)


_FINDER = _TextFinder()


def lay_over(texts: Sequence[tuple[str, str, str]]) -> None:
    """Replace the file of each ``(module, path, source)`` by the source in later imports.

    Modules that were imported from other texts are removed from ``sys.modules``, so that the next import runs the new text.
    """
    if not texts:
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    if any(_FINDER.texts.get(name) != (path, source) for name, path, source in texts):
        for name, path, source in texts:
            _FINDER.texts[name] = (path, source)
            sys.modules.pop(name, None)


def reach(folder: str) -> None:
    """Put a folder first in ``sys.path``, unless it is there already."""
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)


def import_file(name: str, path: str) -> ModuleType:
    """Import the module ``name`` from the file ``path``.

    Raises ``BuildError`` if the module's code fails, or the name belongs to another file.
    """
    try:
        module = importlib.import_module(name)
    except Exception as error:  # the module is the user's own code and may raise anything
        raise BuildError(f"{path}: importing it as {name} fails: {type(error).__name__}: {error}") from error
    found = os.path.realpath(module.__file__ or "")
    if found != os.path.realpath(path):
        top = name.partition(".")[0]
        raise BuildError(
            f"{path}: the name {name} belongs to {found}: another package {top!r} comes first; install the one of this "
            "file in its place (pip install -e), or rename it"
        )
    return module


class Alteration(Protocol):
    """A change of a model after its construction; picklable and hashable."""

    def apply_to(self, model: Any) -> None:
        """Make the same change to a small instance, in place."""


@dataclasses.dataclass(frozen=True)
class Target:
    """The model to build: a model class and its configuration class, by import path, both picklable.

    Attributes:
        folder: the folder to put into ``sys.path``; "" for none.
        texts: ``(module, path, source)`` of modules whose texts replace their files, or files that do not exist yet.
        alterations: changes of the model after its construction, in order.
    """

    name: str
    model_class: str
    config_class: str
    folder: str = ""
    texts: tuple[tuple[str, str, str], ...] = ()
    alterations: tuple[Alteration, ...] = ()

    def load(self) -> tuple[type[Any], type[Any]]:
        """The model class and the configuration class. Raises ``BuildError`` if one cannot be imported."""
        reach(self.folder)
        lay_over(self.texts)
        return load_class(self.model_class), load_class(self.config_class)


def load_class(path: str) -> type[Any]:
    """The class at an import path. Raises ``BuildError`` if its module cannot be imported or lacks it."""
    module, _, name = path.rpartition(".")
    if "<locals>" in path:
        raise BuildError(f"{path}: a class in a function cannot be imported: define it at the top of a file")
    try:
        found: type[Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise BuildError(f"{path}: cannot be imported ({error}); install the library that it names") from error
    except AttributeError as error:
        raise BuildError(f"{path}: {error}; give the class that is meant") from error
    except Exception as error:  # a module that runs may raise anything
        raise BuildError(f"{path}: importing {module} fails: {type(error).__name__}: {error}") from error
    return found


_RELATIVE = re.compile(r"^[ \t]*from[ \t]+(\.+)", re.MULTILINE)


@dataclass(frozen=True)
class ModelingFile:
    """A modeling file that can be imported.

    Attributes:
        path: the modeling file, on disk or generated in memory.
        modular: its modular file; "" for a handwritten modeling file.
        module: its dotted name.
        folder: must be in ``sys.path`` for this name.
        texts: ``(module, path, source)`` of all generated files if a file on disk differs from them; else empty.
    """

    path: str
    modular: str
    module: str
    folder: str
    texts: tuple[tuple[str, str, str], ...] = ()

    def target(self, model_class: type[Any]) -> Target:
        """The target of one of the file's model classes."""
        name = f"{self.module}.{model_class.__qualname__}"
        config = model_class.config_class
        return Target(name, name, f"{config.__module__}.{config.__qualname__}", self.folder, self.texts)

    def classes(self) -> list[type[Any]]:
        """The file's model classes with a configuration and a forward, in its order.

        Raises ``BuildError`` if the file cannot be imported.
        """
        reach(self.folder)
        lay_over(self.texts)
        return model_classes(import_file(self.module, self.path))


def model_classes(module: ModuleType) -> list[type[Any]]:
    """The model classes of a module with a configuration and a forward (own or inherited), in its order."""
    from transformers import PreTrainedModel

    own: list[Any] = [
        one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == module.__name__
    ]
    models = (one for one in own if issubclass(one, PreTrainedModel) and one.config_class is not None)
    return [one for one in models if one.forward is not PreTrainedModel.forward]


def is_file(model: str) -> bool:
    """Whether MODEL is the path of a file, with or without ``:Class``, or of a folder."""
    return split_class(model)[0].endswith((".py", ".json")) or os.sep in model


def split_class(model: str) -> tuple[str, str]:
    """``models/x/modeling_x.py:XModel`` -> the path, and the class ("" if there is none)."""
    path, colon, name = model.rpartition(":")
    return (path, name) if colon and name.isidentifier() else (model, "")


def open_file(path: str) -> ModelingFile:
    """The model of a modeling or modular file, or of a model's folder. A modular file is converted in memory.

    Raises ``BuildError`` if there is no such file, it is of another kind, or its conversion has errors.
    """
    path = os.path.abspath(path)
    if os.path.isdir(path):
        path = _only_file(path)
    folder, name = os.path.split(path)
    if not os.path.isfile(path):
        raise BuildError(f"{os.path.relpath(path)}: no such file")
    settings = load_settings(folder)
    if is_modular(path, settings):
        return _converted(path)
    kind = split_stem(name.removesuffix(".py"), settings)
    if not name.endswith(".py") or kind is None or kind[0] != settings.default_kind:
        expected = f"`{module_name(settings.default_kind, '<model>')}.py` or `{modular_name('<model>', settings)}`"
        raise BuildError(f"{os.path.relpath(path)}: give a file {expected}")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    top, dotted = _package(folder, text)
    modular = modular_of(path, settings)
    return ModelingFile(path, modular if os.path.isfile(modular) else "", f"{dotted}.{name[:-3]}", top)


def _only_file(folder: str) -> str:
    """The modular file of a model's folder, else its modeling file. Raises ``BuildError`` for none or several."""
    settings, names = load_settings(folder), sorted(os.listdir(folder))
    modular = [name for name in names if is_modular(name, settings)]
    flat = [f"{module_name(settings.default_kind, one)}.py" for one in models_among(names, settings)]
    for found in (modular, flat):
        if len(found) == 1:
            return os.path.join(folder, found[0])
        if found:
            raise BuildError(f"{os.path.relpath(folder)}: several models; give one of {', '.join(found)}")
    expected = f"{modular_name('<model>', settings)} or {module_name(settings.default_kind, '<model>')}.py"
    raise BuildError(f"{os.path.relpath(folder)}: no file {expected} in this folder")


def _converted(path: str) -> ModelingFile:
    from modular_converter.api import convert_file

    conversion = convert_file(path)
    errors = [finding for finding in conversion.findings if finding.is_error]
    if errors:
        raise BuildError(f"{os.path.relpath(path)}: it cannot be converted\n  " + "\n  ".join(map(str, errors)))
    modeling = [file for file in conversion.files if os.path.basename(file).startswith("modeling_")]
    if not modeling:
        raise BuildError(f"{os.path.relpath(path)}: it gives no modeling file; give the modeling file itself")
    top, dotted = _package(os.path.dirname(path), conversion.files[modeling[0]])
    stale = any(_text(file) != text for file, text in conversion.files.items())
    texts = tuple(
        (f"{dotted}.{os.path.basename(file)[:-3]}", file, text) for file, text in sorted(conversion.files.items())
    )
    module = f"{dotted}.{os.path.basename(modeling[0])[:-3]}"
    return ModelingFile(modeling[0], path, module, top, texts if stale else ())


def _package(folder: str, text: str) -> tuple[str, str]:
    """The folder that must be in ``sys.path``, and the dotted name of ``folder`` from there.

    The name covers all parent folders with ``__init__.py`` files, and those that the text's relative imports reach: Python
    also imports from folders without such a file.
    """
    top, dotted = package_of(folder)
    parts = dotted.split(".") if dotted else []
    up = os.path.dirname(top) if parts else folder
    needed = max((len(dots) for dots in _RELATIVE.findall(text)), default=1)
    while len(parts) < needed:
        up, name = os.path.split(up)
        if not name.isidentifier():
            raise BuildError(
                f"{folder}: its imports go {needed} folders up, and {name!r} is not the name of a package"
            )
        parts.insert(0, name)
    return up, ".".join(parts)


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None


def base_classes(file: ModelingFile) -> list[type[Any]]:
    """The base model of each configuration class of the file, except sub-configurations of others.

    The base model of ``XConfig`` is ``XModel``, or the only class with this configuration.

    Raises ``BuildError`` if there is no model class, or the base model is ambiguous; the message lists the choices.
    """
    classes = file.classes()
    if not classes:
        path = os.path.relpath(file.path)
        raise BuildError(f"{path}: it defines no model class with a configuration and a forward{_plain(file)}")
    by_config: dict[type[Any], list[type[Any]]] = {}
    for one in classes:
        by_config.setdefault(one.config_class, []).append(one)
    parts = {part for config in by_config for part in config.sub_configs.values()}
    found = []
    for config, candidates in by_config.items():
        if config in parts and len(by_config) > 1:
            continue
        stem = config.__name__.removesuffix("Config")
        called = [one for one in candidates if one.__name__ == f"{stem}Model"] or candidates
        if len(called) > 1:
            raise BuildError(_choose(file, candidates))
        found += called
    return found


def file_target(model: str) -> Target:
    """The target of ``FILE`` or ``FILE:Class``.

    Raises ``BuildError`` if the file or class does not exist, or the file has several base models; the message lists the
    choices.
    """
    path, name = split_class(model)
    file = open_file(path)
    if name:
        return file.target(chosen(file, name))
    found = base_classes(file)
    if len(found) > 1:
        stem = os.path.basename(file.path).partition("_")[2][:-3]
        found = [one for one in found if one.config_class.model_type.replace("-", "_") == stem] or found
    if len(found) > 1:
        raise BuildError(_choose(file, found))
    return file.target(found[0])


def chosen(file: ModelingFile, name: str) -> type[Any]:
    """The model class of a file by its name. Raises ``BuildError`` with the known names."""
    classes = file.classes()
    for one in classes:
        if one.__name__ == name:
            return one
    known = ", ".join(one.__name__ for one in classes) or "none"
    path = os.path.relpath(file.path)
    raise BuildError(f"{path}: it has no model class {name!r}; it has {known}{_plain(file, name)}")


def _plain(file: ModelingFile, name: str = "") -> str:
    """Advice for a file with plain modules, or for its class ``name``, as the end of a message; else empty."""
    found = [value for value in vars(import_file(file.module, file.path)).values() if inspect.isclass(value)]
    own = [kind for kind in found if kind.__module__ == file.module and (not name or kind.__name__ == name)]
    return next((step for step in map(next_step, reversed(own)) if step), "")


def next_step(kind: type[Any]) -> str:
    """Advice for a class of plain modules, as the end of a message; empty for other classes."""
    from torch.nn import Module

    if not issubclass(kind, Module):
        return ""
    example = f"derive({kind.__name__}(…), inputs)"
    return (
        f"; {kind.__name__} is a plain nn.Module: from Python, modular_converter.parallel.{example} derives its plan"
    )


def _choose(file: ModelingFile, classes: list[type[Any]]) -> str:
    path = os.path.relpath(file.path)
    return f"{path}: several models could be meant; give " + " or ".join(f"{path}:{one.__name__}" for one in classes)


def target_of(name: str, head: str = "base", saved: bool = False) -> Target:
    """The target of a model type (``llama``), a class path (``package.module.Class``) or a file (``modeling_x.py``).

    Args:
        name: a model type of the library, a dotted path of a model class with ``config_class``, or a modeling or modular
            file, followed by ``:Class`` for another class than its base model.
        head: ``base`` for the base model, ``causal`` for the model with a language-model head.
        saved: whether the caller also takes folders and files with a configuration, which the message names then.

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
            raise UnknownModel(name, names, saved)
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
        module = import_file(f"transformers.models.{folder.name}.{path.stem}", str(path))
        own = [one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == module.__name__]
        found = ((_rank(one.__name__), -own.index(one), one) for one in model_classes(module))
        ranked += [one for one in found if one[0] is not None]
    for _, _, one in sorted(ranked, key=lambda item: (*item[:2], item[2].__module__)):
        yield _target(folder.name, f"{one.__module__}.{one.__qualname__}", one)


def _rank(name: str) -> int | None:
    """The rank by the library's names of classes: base models, models with heads, others; None for abstract bases."""
    if name.endswith("PreTrainedModel"):
        return None
    if name.endswith("Model"):
        return 0
    return 1 if "For" in name else 2


def _target(name: str, path: str, model_class: type[Any]) -> Target:
    config = getattr(model_class, "config_class", None)
    if config is None:
        raise BuildError(f"{name}: has no config_class; give a model class, not a layer{next_step(model_class)}")
    return Target(name, path, _path(name, config))


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
