"""A model from a folder without its weights, and back into one: the library's own code runs on tensors that record.

``from_pretrained(None, config=…, state_dict=…)`` builds the class on the meta device and takes the same steps as for a
folder: keys are renamed and prefixed, tensors are merged, split and converted in type, weights are tied, buffers that
are not saved are computed, and missing and unexpected keys are reported. The tensors of the state dict have no data.
They record each operation, so that each weight becomes a recipe: the ranges of files that it consists of. The results of
operations that only move entries (concatenation, stacks, slices, transposition) are read range by range. The result of
any other operation is computed whole by each rank that needs a part of it, one weight at a time. The same code gives the
weights the names and forms of published files when a model is saved, one file at a time. Files are checked before they are read.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from modular_converter.findings import first_of
from modular_converter.parallel.engine.base.preflight import refuse_quantised
from modular_converter.parallel.engine.checkpoint.reader import Box, Reader, Recipe, RecordedTensor, Stored
from modular_converter.parallel.errors import ApplyError, BuildError, one_line
from modular_converter.parallel.tiny.saved_config import (
    read_settings,
    saved_config,
    saved_generation_config,
    saved_model,
)


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


_NAMED = 5


@dataclass(frozen=True)
class Checkpoint:
    """A model whose weights are in files.

    Attributes:
        model: in eval mode; its weights are on the meta device, everything else is on the CPU.
        stored: key -> tensor of the files.
        recipes: name -> recipe of each weight on the meta device, under all its names.
    """

    folder: Path
    model: Any
    stored: dict[str, Stored]
    recipes: dict[str, Recipe]

    def filled(self, model: torch.nn.Module, whole: Callable[[str], torch.Tensor] | None = None) -> torch.nn.Module:
        """A copy of a part of the model, whose parameters have the same names, with its weights read.

        Args:
            whole: gives a weight by its name; if None, it is read here.
        """
        made = copy.deepcopy(model)
        read: dict[int, torch.nn.Parameter] = {}
        with Reader() as reader:
            for name, parameter in list(made.named_parameters()):
                if parameter.is_meta:
                    value = reader.whole(self.recipes[name]) if whole is None else whole(name)
                    read[id(parameter)] = torch.nn.Parameter(value, requires_grad=parameter.requires_grad)
        replace_parameters(made, read)
        return made

    def by_number(self, names: Iterable[str]) -> dict[int, Recipe]:
        """Position of a name -> its recipe, for the names that have one."""
        return {number: self.recipes[name] for number, name in enumerate(names) if name in self.recipes}


def is_folder(model: Any) -> bool:
    """Whether a value is a path instead of a model."""
    return isinstance(model, (str, os.PathLike))


def open_checkpoint(folder: str | os.PathLike[str], dtype: torch.dtype | None, model_class: Any = None) -> Checkpoint:
    """The model of a folder, as ``from_pretrained(folder, dtype=dtype)`` makes it, with its weights unread.

    Args:
        dtype: of the weights; if None, as in the configuration.
        model_class: a model class or an Auto class; if None, the class that ``config.json`` names.

    Raises ``PlanError`` if the folder has no readable model, or lacks weights; the message names file and key.
    """
    path = Path(folder)
    config, kind = class_of(path, model_class)
    refuse_quantised(config, str(path))
    stored = stored_tensors(path, getattr(config, "transformers_weights", None), type(config).extra_files)
    more = {"generation_config": saved_generation_config(path)} if kind.can_generate() else {}
    given = {key: RecordedTensor(recipe) for key, recipe in stored.items()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model, report = kind.from_pretrained(
                None,
                config=config,
                state_dict=given,
                dtype=dtype or "auto",
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **more,
            )
    except Exception as error:  # of the library, or of the model's own code
        raise BuildError(f"{path}: {kind.__name__} cannot be loaded: {one_line(error, 400)}") from error
    for name, found, wanted in sorted(report["mismatched_keys"], key=lambda one: one[0]):
        same = [key for key in stored if key == name or key.endswith(f".{name}") or name.endswith(f".{key}")]
        place = f"{stored[same[0]].file}: {same[0]}" if same else name
        raise BuildError(f"{place} has the shape {tuple(found)}, but {kind.__name__} wants {tuple(wanted)}")
    if missing := sorted(report["missing_keys"]):
        raise BuildError(
            f"{path}: its files ({', '.join(sorted({Path(one.file).name for one in stored.values()}))}) lack weights of "
            f"{kind.__name__}: {first_of(missing, _NAMED)}; give model_class= if the folder holds another class, or load "
            "the model with from_pretrained, which draws new values, and save it"
        )
    recipes = _taken_out(model)
    _refuse_unread(path, model, recipes)
    model.name_or_path = model.config.name_or_path = str(folder)
    for name, config in more.items():
        _keep_mark(getattr(model, name), config)
    return Checkpoint(path, model, stored, recipes)


def _refuse_unread(path: Path, model: Any, recipes: dict[str, Recipe]) -> None:
    """Raise ``BuildError`` for weights that are not from the files, and for tensors without data.

    They occur in classes with loading code of their own that ignores the given tensors.
    """
    patterns = [*(getattr(model, "_keys_to_ignore_on_load_missing", None) or ())]
    made = {name: one for name, one in model.named_parameters() if name not in recipes}
    other = [name for name, one in made.items() if not any(re.search(pattern, name) for pattern in patterns)]
    empty = [name for name, one in [*made.items(), *model.named_buffers()] if one.is_meta]
    if wrong := other or empty:
        raise BuildError(
            f"{path}: {type(model).__name__} fills {wrong[0]} in its own way, not from the files; load the model with "
            "from_pretrained and give it to parallelize"
        )


def _keep_mark(made: Any, config: Any) -> None:
    """Copy the library's mark of settings that are unchanged since their file."""
    mark = "_original_object_hash"
    if hasattr(config, mark) and made == config:
        setattr(made, mark, getattr(config, mark))


def _taken_out(model: torch.nn.Module) -> dict[str, Recipe]:
    """Replace recorded weights by weights without data, and return their recipes. Recorded buffers are read."""
    made: dict[int, torch.nn.Parameter] = {}
    recipes: dict[str, Recipe] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if isinstance(parameter, RecordedTensor):
            _refuse_written(name, parameter)
            if id(parameter) not in made:
                empty = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
                made[id(parameter)] = torch.nn.Parameter(empty, requires_grad=parameter.requires_grad)
            recipes[name] = parameter.recipe
    replace_parameters(model, made)
    with Reader() as reader:
        for path, module in model.named_modules():
            for leaf, buffer in module._buffers.items():
                if isinstance(buffer, RecordedTensor):
                    _refuse_written(f"{path}.{leaf}".lstrip("."), buffer)
                    module._buffers[leaf] = reader.whole(buffer.recipe)
    return recipes


def _refuse_written(name: str, tensor: RecordedTensor) -> None:
    if tensor.writes:
        raise BuildError(
            f"{name}: the model's own code changes it when it is loaded ({tensor.writes[0]}), which would need its data; "
            "load the model with from_pretrained and give it to parallelize"
        )


def replace_parameters(model: torch.nn.Module, others: dict[int, torch.nn.Parameter]) -> None:
    """Replace parameters of a model by identity."""
    for module in model.modules():
        for leaf, parameter in module._parameters.items():
            if id(parameter) in others:
                module._parameters[leaf] = others[id(parameter)]


def with_empty_weights(model: torch.nn.Module, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Replace weights on the meta device by empty weights on the CPU, as in any model after its hand-over.

    Returns:
        ``tensors`` with the same replacements.
    """
    made = {id(t): torch.nn.Parameter(torch.empty(0, dtype=t.dtype), t.requires_grad) for t in tensors if t.is_meta}
    replace_parameters(model, made)
    return [made.get(id(tensor), tensor) for tensor in tensors]


_LARGEST_FILE = 5_000_000_000
_FILES = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
Fetch = Callable[[str], torch.Tensor]


def saves_as_library(kind: type[Any]) -> bool:
    """Whether a class has the library's own ``save_pretrained``."""
    from transformers import PreTrainedModel

    owner = next((one for one in kind.__mro__ if one.__module__.startswith("transformers.")), None)
    return owner is not None and getattr(owner, "save_pretrained", None) is PreTrainedModel.save_pretrained


def save_model(
    model: Any,
    state: Mapping[str, torch.Tensor],
    fetch: Fetch,
    folder: Path | None,
    ranks: int,
    max_shard_size: int | str | None = None,
) -> None:
    """Write a model's files into a folder; all processes fetch the same whole weights in the same order.

    Args:
        state: name -> tensor to save, each tensor once; only whole shapes and types are used.
        fetch: name -> the whole tensor on the CPU.
        folder: None in processes that only fetch.
        ranks: without ``max_shard_size``, a file holds at most the ``ranks``-th part of the model.

    Raises ``OSError`` if a file could not be written, after all weights are fetched, since the other processes wait for it.
    """
    from huggingface_hub import split_torch_state_dict_into_shards

    recipes = _as_published(model, state)
    empty = {name: torch.empty(one.shape, dtype=one.dtype, device="meta") for name, one in recipes.items()}
    total = sum(one.numel() * one.element_size() for one in empty.values())
    most = max_shard_size or max(1, min(_LARGEST_FILE, -(-total // ranks)))
    split = split_torch_state_dict_into_shards(
        empty, filename_pattern="model{suffix}.safetensors", max_shard_size=most
    )
    failure: OSError | None = None
    with _Fetched(fetch) as reader:
        for file, names in split.filename_to_tensors.items():
            tensors = {}
            for name in names:
                whole = reader.whole(recipes[name])
                if folder is not None and failure is None:
                    tensors[name] = whole.clone(memory_format=torch.contiguous_format)
            if tensors and folder is not None:
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    _put(folder / file, functools.partial(save_file, tensors, metadata={"format": "pt"}))
                except OSError as error:
                    failure = error
    if failure is not None:
        raise failure
    if folder is not None:
        _finish(folder, split)
        model.config.architectures, model.config.dtype = [type(model).__name__], model.dtype
        model.config.save_pretrained(folder)
        if model.can_generate():
            model.generation_config.save_pretrained(folder)


def _as_published(model: Any, state: Mapping[str, torch.Tensor]) -> dict[str, Recipe]:
    """Name in the files -> recipe, from the weights under the model's own names."""
    from transformers.core_model_loading import revert_weight_conversion

    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    own: dict[str, Any] = {
        name: RecordedTensor(Stored(tuple(one.shape), one.dtype, "", name))
        for name, one in state.items()
        if name not in ignored
    }
    with torch.no_grad():
        found = revert_weight_conversion(model, own)
    return {name: tensor.recipe for name, tensor in found.items()}


def _finish(folder: Path, split: Any) -> None:
    """Write the index, and remove the files of an earlier model, which the library might load instead."""
    written = set(split.filename_to_tensors)
    if split.is_sharded:
        written.add(INDEX)
        text = json.dumps({"metadata": split.metadata, "weight_map": split.tensor_to_filename}, indent=2) + "\n"
        _put(folder / INDEX, lambda beside: beside.write_text(text, encoding="utf-8"))
    for path in folder.iterdir():
        if _FILES.fullmatch(path.name) and path.name not in written:
            path.unlink()


class _Fetched(Reader):
    """Reads fetched weights. The latest weight is kept, since several tensors of a file may be parts of it."""

    def __init__(self, fetch: Fetch) -> None:
        super().__init__()
        self.fetch = fetch
        self.latest: tuple[str, torch.Tensor] = ("", torch.empty(0))

    def _stored(self, recipe: Stored, box: Box) -> torch.Tensor:
        if self.latest[0] != recipe.key:
            self.latest = ("", torch.empty(0))  # freed before the next one is fetched
            self.latest = (recipe.key, self.fetch(recipe.key))
        found = self.latest[1]
        for dim, (first, length) in enumerate(box):
            found = found.narrow(dim, first, length)
        return found


def _put(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file under a temporary name and rename it, so that a reader sees the old file or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def saved_names(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Name -> tensor for a model's files, each tensor once: the library ties the others again."""
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in torch.nn.Module.state_dict(model, keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor
    return found
