"""A model from a folder without its weights, and back into one: the library's own code runs on tensors that record.

``from_pretrained(None, config=…, state_dict=…)`` builds the class on the meta device and takes the same steps as for a
folder: keys are renamed and prefixed, tensors are merged, split and converted in type, weights are tied, buffers that
are not saved are computed, and missing and unexpected keys are reported. The tensors of the state dict have no data.
They record each operation, so that each weight becomes a recipe: the ranges of files that it consists of. The results of
operations that only move entries (concatenation, stacks, slices, transposition) are read range by range. The result of
any other operation is computed whole by each rank that needs a part of it, one weight at a time. The same code gives the
weights the names and forms of published files when a model is saved, one file at a time.
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
from safetensors.torch import save_file

from modular_converter.findings import first_of
from modular_converter.parallel.engine.base.preflight import refuse_quantised
from modular_converter.parallel.engine.checkpoint.folder import INDEX, class_of, stored_tensors
from modular_converter.parallel.engine.checkpoint.reader import Box, Reader, Recipe, RecordedTensor, Stored
from modular_converter.parallel.errors import BuildError, one_line
from modular_converter.parallel.tiny.saved_config import saved_generation_config


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
