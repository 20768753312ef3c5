"""A model in a file of a models folder: ``models/x/modeling_x.py``, or ``modular_x.py``, converted in memory.

The file is imported, since deriving a plan runs the model; the converter never imports such files.
"""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import dataclass
from typing import Any

from modular_converter.files.packages import package_of
from modular_converter.parallel.errors import BuildError
from modular_converter.parallel.tiny.importing import import_file, lay_over, reach
from modular_converter.parallel.tiny.target import Target
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import split_stem


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
        from transformers import PreTrainedModel

        reach(self.folder)
        lay_over(self.texts)
        module = import_file(self.module, self.path)
        return [found for found in vars(module).values() if _runs(found, PreTrainedModel, self.module)]


def _runs(found: Any, root: Any, module: str) -> bool:
    """Whether a value is a model class of the module, with a configuration and a forward (its own or inherited)."""
    if not inspect.isclass(found) or not issubclass(found, root) or found.__module__ != module:
        return False
    model: Any = found
    return model.forward is not root.forward and model.config_class is not None


def is_file(model: str) -> bool:
    """Whether MODEL is the path of a file, with or without ``:Class``, or of a folder."""
    return split_class(model)[0].endswith(".py") or os.sep in model


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
    if re.fullmatch(r"modular_\w+\.py", name):
        return _converted(path)
    kind = split_stem(name.removesuffix(".py"), load_settings(folder).file_kinds)
    if not name.endswith(".py") or kind is None or kind[0] != "modeling":
        raise BuildError(f"{os.path.relpath(path)}: give a file `modeling_<model>.py` or `modular_<model>.py`")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    top, dotted = _package(folder, text)
    modular = os.path.join(folder, f"modular_{kind[1]}.py")
    return ModelingFile(path, modular if os.path.isfile(modular) else "", f"{dotted}.{name[:-3]}", top)


def _only_file(folder: str) -> str:
    """The modular file of a model's folder, else its modeling file. Raises ``BuildError`` for none or several."""
    names = sorted(os.listdir(folder))
    for kind in ("modular", "modeling"):
        found = [name for name in names if re.fullmatch(rf"{kind}_\w+\.py", name)]
        if len(found) == 1:
            return os.path.join(folder, found[0])
        if found:
            raise BuildError(f"{os.path.relpath(folder)}: several models; give one of {', '.join(found)}")
    raise BuildError(f"{os.path.relpath(folder)}: no file modular_<model>.py or modeling_<model>.py in this folder")


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
    return next((said for said in map(next_step, reversed(own)) if said), "")


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
