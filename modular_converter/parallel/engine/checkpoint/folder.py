"""A saved model's folder: its safetensors files, checked before they are read, its class, and adapters of peft beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from modular_converter.parallel.engine.base.preflight import refuse_quantised
from modular_converter.parallel.engine.checkpoint.reader import Stored
from modular_converter.parallel.errors import ApplyError, BuildError, one_line
from modular_converter.parallel.tiny.saved_config import read_settings, saved_config, saved_model


ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


def stored_tensors(folder: Path, named: str | None = None, more: Iterable[str] = ()) -> dict[str, Stored]:
    """Key -> tensor of a checkpoint, from the headers of its files.

    Args:
        named: the file or index that the configuration names.
        more: other files of the checkpoint; they may be absent.

    Raises ``ApplyError`` if there are no safetensors files, or a file is damaged or lacks a key of the index; the message
    names file and key.
    """
    first = named or next((name for name in (ONE_FILE, INDEX) if (folder / name).is_file()), None)
    if first is None:
        raise ApplyError(_no_files(folder))
    mapped = _indexed(folder / first) if first.endswith(".json") else {}
    names = sorted(set(mapped.values())) or [first]
    found: dict[str, Stored] = {}
    for name in (*names, *(name for name in more if (folder / name).is_file())):
        if Path(name).name != name:
            raise ApplyError(f"{folder / first}: names {name!r}, which is not a file of this folder")
        found |= _header(folder / name)
    for key, name in mapped.items():
        if key not in found:
            raise ApplyError(f"{folder / name}: {key} is missing, which {folder / first} places there")
    return found


def _no_files(folder: Path) -> str:
    """The message for a folder without safetensors files, with the files found instead and the cure."""
    if any(folder.glob("*.bin")):
        return (
            f"{folder}: has .bin files, which hold pickled objects and are not read; load the model with from_pretrained "
            "and save it with save_pretrained, which writes safetensors"
        )
    others = sorted(path.name for path in folder.glob("*.safetensors"))
    more = f"; it has {', '.join(others[:3])}" if others else ""
    return f"{folder}: has neither {ONE_FILE} nor {INDEX}{more}"


def holds_adapter(folder: Path) -> str:
    """The message for the folder of an adapter; empty for any other folder."""
    if not (folder / "adapter_config.json").is_file():
        return ""
    return (
        f"{folder}: holds an adapter; load its model with from_pretrained, call merge_and_unload(), save it, and give "
        "that folder"
    )


def _indexed(path: Path) -> dict[str, str]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        return {str(key): str(name) for key, name in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ApplyError(f"{path}: is not an index of safetensors files: {one_line(error)}") from error


def _header(path: Path) -> dict[str, Stored]:
    """The tensors of one file. safetensors refuses a file whose length differs from its header."""
    found = {}
    key = "its header"
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            for key in file.keys():  # noqa: SIM118
                part = file.get_slice(key)
                kind = _TYPES.get(part.get_dtype())
                if kind is None:
                    raise ApplyError(f"{path}: {key} has the type {part.get_dtype()}, which is not supported")
                found[key] = Stored(tuple(part.get_shape()), kind, str(path), key)
    except ApplyError:
        raise
    except Exception as error:  # of safetensors, or of the system
        raise ApplyError(f"{path}: {key} cannot be read: {one_line(error)}") from error
    return found


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


_SETTINGS, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# The name of a task in peft -> the library's class for it.
_TASKS = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "FEATURE_EXTRACTION": "AutoModel",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
}


def is_adapter(model: Any) -> bool:
    """Whether a value is the path of an adapter's folder, without a model in it."""
    return (
        isinstance(model, (str, os.PathLike))
        and Path(model, _SETTINGS).is_file()
        and not Path(model, "config.json").is_file()
    )


def open_adapter(folder: str | os.PathLike[str], dtype: torch.dtype | None, model_class: Any = None) -> Any:
    """The wrapped model of an adapter, whole and in eval mode, as ``PeftModel.from_pretrained`` makes it.

    Args:
        dtype: of the model's weights; if None, as in its configuration. Adapters have the types that peft chooses.
        model_class: a model class or an Auto class; if None, the class of the adapter's task, or of ``config.json``.

    Raises ``BuildError`` if the adapter or its model cannot be read; nothing is downloaded.
    """
    path = Path(folder)
    try:
        from peft import PeftModel
    except ImportError as error:
        raise BuildError(
            f"{path}: holds an adapter of peft, which cannot be imported ({error}): pip install peft"
        ) from error
    settings = read_settings(path / _SETTINGS)
    base = settings.get("base_model_name_or_path")
    if not base or not Path(base).is_dir():
        raise BuildError(
            f"{path / _SETTINGS}: base_model_name_or_path is {base!r}, which is not a folder here, and nothing is downloaded; "
            f"name the folder of the saved model there, or give PeftModel.from_pretrained(model, {str(path)!r})"
        )
    if not (path / _WEIGHTS).is_file():
        raise BuildError(f"{path}: has no {_WEIGHTS}; save the adapter with safe_serialization=True")
    config, kind = class_of(Path(base), model_class or _class_of_task(settings))
    refuse_quantised(config, str(base))
    try:
        model = saved_model(kind, base, dtype)
        return PeftModel.from_pretrained(model, str(path), local_files_only=True).eval()
    except Exception as error:  # of the library, of peft, or of the model's own code
        raise BuildError(f"{path}: cannot be loaded into the model of {base}: {one_line(error, 400)}") from error


def _class_of_task(settings: dict[str, Any]) -> Any:
    """The model class of an adapter; None if its settings do not name one."""
    import transformers

    made_for = (settings.get("auto_mapping") or {}).get("base_model_class")
    return getattr(transformers, str(made_for or _TASKS.get(str(settings.get("task_type")))), None)
