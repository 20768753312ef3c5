"""The class of a saved model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modular_converter.parallel.engine.checkpoint.files import holds_adapter
from modular_converter.parallel.errors import BuildError
from modular_converter.parallel.tiny.saved_config import read_settings, saved_config


def class_of(folder: Path, model_class: Any, overrides: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """The configuration of a folder, and the class of its model.

    Args:
        model_class: a model class or an Auto class; if None, the class that ``config.json`` names.
        overrides: configuration values; a dotted name leads into an inner configuration.

    Raises ``BuildError`` if there is no such class, the folder holds no model, or the model needs code of the folder.
    """
    from transformers import PreTrainedModel

    _refuse_other_folders(folder)
    kind: Any = model_class
    if isinstance(model_class, type) and issubclass(model_class, PreTrainedModel):
        if kind.config_class is None:
            raise BuildError(f"model_class={kind.__name__}: names no configuration class")
        return saved_config(folder, overrides, kind), kind
    config = saved_config(folder, overrides, kind)
    kind = _named_class(folder, config) if kind is None else _auto_class(kind, config)
    if kind.config_class is not None and not isinstance(config, kind.config_class):
        config = saved_config(folder, overrides, kind)  # of a part, such as the text model of CLIP
    return config, kind


def _refuse_other_folders(folder: Path) -> None:
    """Raise ``BuildError`` unless a folder has a model, and no adapter beside it."""
    if not folder.is_dir():
        raise BuildError(f"{folder}: is not a folder; give the folder of a saved model (nothing is downloaded)")
    if not (folder / "config.json").is_file():
        raise BuildError(holds_adapter(folder) or f"{folder}: has no config.json; give the folder of a saved model")
    read_settings(folder / "config.json")
    if holds_adapter(folder):  # from_pretrained would load it into the model
        raise BuildError(
            f"{folder}: holds a model and an adapter; give parallelize the model that from_pretrained makes of it, or move "
            "adapter_config.json or config.json away"
        )


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
