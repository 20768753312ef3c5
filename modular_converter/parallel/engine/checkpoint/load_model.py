"""Load a model from a folder without its weights: the library's own loading code runs on tensors that record.

``from_pretrained(None, config=…, state_dict=…)`` builds the class on the meta device and takes the same steps as for a
folder: keys are renamed and prefixed, tensors are merged, split and converted in type, weights are tied, buffers that
are not saved are computed, and missing and unexpected keys are reported. The tensors of the state dict have no data.
They record each operation, so that each weight becomes a recipe: the ranges of files that it consists of. The results of
operations that only move entries (concatenation, stacks, slices, transposition) are read range by range. The result of
any other operation is computed whole by each rank that needs a part of it, one weight at a time.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from modular_converter.findings import first_of
from modular_converter.parallel.engine.base.preflight import refuse_quantised
from modular_converter.parallel.engine.checkpoint.folder import class_of, stored_tensors
from modular_converter.parallel.engine.checkpoint.reader import Reader, Recipe, Stored
from modular_converter.parallel.engine.checkpoint.recorded import RecordedTensor
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
    _refuse_other_shapes(kind, stored, report["mismatched_keys"])
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


def _refuse_other_shapes(kind: Any, stored: dict[str, Stored], mismatched: Iterable[tuple[str, Any, Any]]) -> None:
    for name, found, wanted in sorted(mismatched, key=lambda one: one[0]):
        same = [key for key in stored if key == name or key.endswith(f".{name}") or name.endswith(f".{key}")]
        place = f"{stored[same[0]].file}: {same[0]}" if same else name
        raise BuildError(f"{place} has the shape {tuple(found)}, but {kind.__name__} wants {tuple(wanted)}")


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
