"""Save a model whose weights are on several ranks in files that ``from_pretrained`` loads, one file at a time.

The library's own code, run on recorded tensors, gives the weights the names and forms of published files.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from modular_converter.parallel.engine.checkpoint.folder import INDEX
from modular_converter.parallel.engine.checkpoint.reader import Box, Reader, Recipe, Stored
from modular_converter.parallel.engine.checkpoint.recorded import RecordedTensor


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
        _save_settings(model, folder)


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


def _save_settings(model: Any, folder: Path) -> None:
    model.config.architectures, model.config.dtype = [type(model).__name__], model.dtype
    model.config.save_pretrained(folder)
    if model.can_generate() and getattr(model, "generation_config", None) is not None:
        model.generation_config.save_pretrained(folder)


def saved_names(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Name -> tensor for a model's files, each tensor once: the library ties the others again."""
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in torch.nn.Module.state_dict(model, keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor
    return found
