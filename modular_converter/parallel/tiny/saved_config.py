"""Configurations and models from folders that may come from anyone.

Only this file gives such a folder to the library's loaders: they run no code of the folder, ask no question and download
nothing. Values of the caller never reach a loader as its arguments, only the configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from modular_converter.parallel.errors import BuildError, one_line
from modular_converter.parallel.tiny.fields import check_fields


# The arguments of every loader of the library.
LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
_AUTO_MAP = "auto_map"
# Values that a configuration takes, and keeps under other names.
_CHOICES = ("attn_implementation", "experts_implementation")


def saved_config(path: Path, overrides: Mapping[str, Any] | None = None, model_class: Any = None) -> Any:
    """The configuration of a saved model.

    Args:
        path: a folder with ``config.json``, or such a file.
        overrides: configuration values; a dotted name leads into an inner configuration.
        model_class: the class that the caller has given for the model: code that the folder names is not needed then.

    Raises ``BuildError`` if it cannot be read, names code of the folder, or has no such value.
    """
    from transformers import AutoConfig

    file = path / "config.json" if path.is_dir() else path
    settings = read_settings(file)
    if _AUTO_MAP in settings and model_class is None:
        raise BuildError(
            f"{file}: auto_map names code of the folder, which is not run; give model_class= to use a class of the "
            "library or your own, or take auto_map out of the file to use the library's class for its model_type"
        )
    try:
        own = getattr(model_class, "config_class", None)
        found = (own or AutoConfig).from_pretrained(path, **LOCAL)
        return _with_values(found, settings, dict(overrides or {})) if overrides else found
    except BuildError:
        raise
    except Exception as error:  # the library, and the checks of a configuration, may raise anything
        raise BuildError(f"{file}: cannot be read: {one_line(error, 400)}") from error


def saved_model(kind: Any, folder: Path | str, dtype: torch.dtype | None, config: Any = None) -> Any:
    """The model of a folder with safetensors files, whole, on the CPU and in eval mode.

    Args:
        kind: its class, as ``class_of`` finds it; no Auto class.
        dtype: of the weights; if None, as in the configuration.
        config: the configuration; that of the folder if None.

    Raises what the library or the model's own code raises.
    """
    more = {} if config is None else {"config": config}
    return kind.from_pretrained(folder, dtype=dtype or "auto", use_safetensors=True, **more, **LOCAL).eval()


def saved_generation_config(folder: Path) -> Any:
    """The saved settings of ``generate``, else the settings in ``config.json``.

    Raises ``BuildError`` if the file is damaged.
    """
    from transformers import GenerationConfig

    own = folder / "generation_config.json"
    more = {} if own.is_file() else {"config_file_name": "config.json", "_from_model_config": True}
    try:
        return GenerationConfig.from_pretrained(folder, local_files_only=True, **more)
    except (OSError, ValueError, TypeError) as error:
        raise BuildError(f"{own}: cannot be read: {one_line(error)}") from error


def class_for(config: Any, file: Path) -> Any:
    """The library's class for a configuration: the class that it names, else with a language-model head, else the base.

    Raises ``BuildError`` if the library has none.
    """
    import transformers

    names = list(getattr(config, "architectures", None) or ())
    found: Any = getattr(transformers, names[0], None) if names else None
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModel):
        if found is None and type(config) in auto._model_mapping:
            found = auto._model_mapping[type(config)]
    found = found[0] if isinstance(found, (tuple, list)) else found
    if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
        raise BuildError(f"{file}: the library has no model of this configuration; give a class path")
    return found


def read_settings(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ``BuildError`` if it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BuildError(f"{path}: cannot be read: {one_line(error)}") from error
    if not isinstance(found, dict):
        raise BuildError(f"{path}: is not a table of settings")
    return found


def nested_values(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The values as nested dictionaries: dotted names lead into inner configurations."""
    found: dict[str, Any] = {}
    for name, value in overrides.items():
        *outer, last = name.split(".")
        place = found
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = value
    return found


def _with_values(found: Any, settings: dict[str, Any], overrides: dict[str, Any]) -> Any:
    """The configuration with other values. Its values alone are taken: a loader's arguments are no values of it."""
    kind = type(found)
    unknown = [name for name in overrides if name not in _CHOICES and not _is_value(found, name.partition(".")[0])]
    check_fields(kind, unknown)
    values = {**settings, "model_type": kind.model_type, "name_or_path": found.name_or_path}
    return kind.from_dict(values, **nested_values(overrides))


def _is_value(config: Any, name: str) -> bool:
    return (
        not name.startswith("_")
        and name not in LOCAL
        and hasattr(config, name)
        and not callable(getattr(config, name))
    )
