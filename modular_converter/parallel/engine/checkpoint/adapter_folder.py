"""Load a saved adapter of peft, with its model from the folder that the adapter's configuration names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from modular_converter.parallel.engine.base.refused_weights import refuse_quantised
from modular_converter.parallel.engine.checkpoint.model_class import class_of
from modular_converter.parallel.errors import BuildError, one_line
from modular_converter.parallel.tiny.saved_config import read_settings, saved_model


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
