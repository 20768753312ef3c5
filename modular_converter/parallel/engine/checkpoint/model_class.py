"""The class and the settings of a saved model. Code in its folder is never run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from modular_converter.parallel.engine.checkpoint.files import holds_adapter
from modular_converter.parallel.errors import BuildError, one_line


def class_of(folder: Path, model_class: Any) -> tuple[Any, Any]:
    """The configuration of a folder, and the class of its model.

    Args:
        model_class: a model class or an Auto class; if None, the class that ``config.json`` names.

    Raises ``BuildError`` if there is no such class, the folder holds no model, or the model needs code of the folder.
    """
    from transformers import AutoConfig, PreTrainedModel

    settings = _settings(folder)
    if model_class is None and "auto_map" in settings:
        raise BuildError(
            f"{folder / 'config.json'}: auto_map names code of the folder, which is not run; give model_class= to use a "
            "class of the library or your own"
        )
    kind: Any = model_class
    try:
        if isinstance(model_class, type) and issubclass(model_class, PreTrainedModel):
            if kind.config_class is None:
                raise BuildError(f"model_class={kind.__name__}: names no configuration class")
            return kind.config_class.from_pretrained(folder), kind
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        kind = _named_class(folder, config) if kind is None else _auto_class(kind, config)
        if kind.config_class is not None and not isinstance(config, kind.config_class):
            config = kind.config_class.from_pretrained(folder)  # of a part, such as the text model of CLIP
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BuildError(f"{folder / 'config.json'}: cannot be read: {one_line(error, 400)}") from error
    return config, kind


def read_settings(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ``BuildError`` if it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(f"{path}: cannot be read: {one_line(error)}") from error
    if not isinstance(found, dict):
        raise BuildError(f"{path}: is not a table of settings")
    return found


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not folder.is_dir():
        raise BuildError(f"{folder}: is not a folder; give the folder of a saved model (nothing is downloaded)")
    if not path.is_file():
        raise BuildError(holds_adapter(folder) or f"{folder}: has no config.json; give the folder of a saved model")
    found = read_settings(path)
    if holds_adapter(folder):  # from_pretrained would load it into the model
        raise BuildError(
            f"{folder}: holds a model and an adapter; give parallelize the model that from_pretrained makes of it, or move "
            "adapter_config.json or config.json away"
        )
    return found


def _named_class(folder: Path, config: Any) -> Any:
    """The class that ``architectures`` names; the base model of the configuration if it names none."""
    import transformers

    names = list(getattr(config, "architectures", None) or ())
    if not names:
        return _auto_class(transformers.AutoModel, config)
    kind = getattr(transformers, names[0], None)
    if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedModel):
        raise BuildError(
            f"{folder / 'config.json'}: architectures names {names[0]}, which is not a model of this version of "
            "transformers; give model_class="
        )
    return kind


def _auto_class(kind: Any, config: Any) -> Any:
    """The model of an Auto class for a configuration."""
    known = getattr(kind, "_model_mapping", None)
    if known is None:
        raise BuildError(f"model_class={kind!r}: give a model class, or an Auto class such as AutoModelForCausalLM")
    if type(config) not in known:
        raise BuildError(f"model_class={kind.__name__}: it has no model for {type(config).__name__}")
    found = known[type(config)]
    if not isinstance(found, (list, tuple)):
        return found
    names = list(getattr(config, "architectures", None) or ())
    return next((one for one in found if one.__name__ in names), found[0])


def generation_config(folder: Path) -> Any:
    """The saved settings of ``generate``, else the settings in ``config.json``.

    Raises ``BuildError`` if the file is damaged.
    """
    from transformers import GenerationConfig

    try:
        if (folder / "generation_config.json").is_file():
            return GenerationConfig.from_pretrained(folder)
        return GenerationConfig.from_pretrained(folder, config_file_name="config.json", _from_model_config=True)
    except (OSError, ValueError, TypeError) as error:
        raise BuildError(f"{folder / 'generation_config.json'}: cannot be read: {one_line(error)}") from error
