"""Checkpoints of training, and the methods of models that several processes train, in shares or in stages.

A checkpoint is saved in one layout, resumed in another, and either complete or absent. With torch's distributed
checkpoints each process writes its part. They ask a tensor for the places of its entries, and here the plan answers, so
that unequal and packed shares, too, are whole weights on disk.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from modular_converter.parallel.engine.group.process_grid import ProcessGrid
from modular_converter.parallel.engine.group.same_calls import called_by_all, everywhere, from_first_process
from modular_converter.parallel.engine.group.spread import Spread, each_once, entries_in
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Layout
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.torch_private import make_wrapper_subclass


_FOLDER = re.compile(r"step-(\d+)")
_NOTES = "training.json"
_STEP = "step"
# Options of an optimizer's implementation, not of its arithmetic: each run chooses them for its devices.
_FORMS = ("foreach", "fused", "capturable", "differentiable")


@dataclass(frozen=True)
class Resumed:
    """The contents of a checkpoint beside the tensors: the number of its step, and the caller's notes."""

    step: int
    notes: dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """The part of a model that this process has: a share of every layer, or some layers.

    Attributes:
        weights: each once, under its first name in the whole model.
        buffers: name -> buffer that is saved.
        group: the processes that together have the model; all by default.
    """

    weights: Sequence[Spread]
    buffers: Mapping[str, torch.Tensor]
    group: ProcessGroup = field(default_factory=ProcessGroup)

    @classmethod
    def of(cls, model: torch.nn.Module) -> Trained:
        """The part of a model whose processes have a share of every layer."""
        return cls(each_once(model), saved_buffers(model))


def saved_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The buffers in a model's ``state_dict``."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {name: value for name, value in model.state_dict(keep_vars=True).items() if name not in parameters}


class _Part(torch.Tensor):
    """A tensor of the whole shape with only this process's entries, whose places it gives to torch's checkpoints."""

    spread: Spread
    local: torch.Tensor

    @staticmethod
    def of(spread: Spread, tensor: Any) -> _Part:
        local = spread.local(tensor)
        made: _Part = make_wrapper_subclass(_Part, spread.shape, dtype=local.dtype, device=local.device)
        made.spread, made.local = spread, local
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"{func} on a part of a tensor")

    def _chunks(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(torch.Size(one[0]), torch.Size(one[1])) for one, _ in self.spread.boxes()]

    def __create_write_items__(self, name: str, value: Any) -> list[WriteItem]:
        properties = TensorProperties.create_from_tensor(self.local)
        size = torch.Size(self.spread.shape)
        return [
            WriteItem(
                MetadataIndex(name, chunk.offsets),
                WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk, properties, size),
            )
            for chunk in self._chunks()
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return self._chunks()

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        # torch asks for the chunks that are listed above.
        return next(
            entries_in(self.local, here)
            for (first, _), here in self.spread.boxes()
            if torch.Size(first) == index.offset
        )


def _weights(model: Trained) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights and buffers to save, each once."""
    for one in model.weights:
        yield f"model.{one.name}", _Part.of(one, one.stored)
    for name, value in model.buffers.items():
        yield f"model.{name}", value


def _states(model: Trained, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    for one in model.weights:
        for key, value in optimizer.state.get(one.stored, {}).items():
            name = f"optimizer.{one.name}.{key}"
            if key == _STEP:
                yield name, value if isinstance(value, torch.Tensor) else torch.tensor(float(value))
            elif not isinstance(value, torch.Tensor) or value.shape != one.stored.shape:
                raise ApplyError(
                    f"{name} has another shape than its weight; use AdamW or SGD, not a factored optimizer"
                )
            else:
                yield name, _Part.of(one, value)


def _make_states(model: Trained, optimizer: torch.optim.Optimizer, known: dict[str, Any]) -> None:
    """Give a new optimizer empty state tensors, as in the checkpoint."""
    for one in model.weights:
        prefix = f"optimizer.{one.name}."
        for name, stored in known.items():
            key = name.removeprefix(prefix)
            if not name.startswith(prefix) or "." in key or not isinstance(stored, TensorStorageMetadata):
                continue
            state = optimizer.state[one.stored]
            if key == _STEP:
                fused = any(group.get("fused") or group.get("capturable") for group in optimizer.param_groups)
                place = one.local(one.stored).device if fused else torch.device("cpu")
                state[key] = torch.zeros((), dtype=stored.properties.dtype, device=place)
            elif key not in state:
                state[key] = torch.zeros_like(one.stored.detach(), dtype=stored.properties.dtype)


def _plain(group: dict[str, Any]) -> dict[str, Any]:
    """The options of a parameter group that JSON can hold."""
    values = {key: float(v) if isinstance(v, torch.Tensor) else v for key, v in group.items() if key != "params"}
    return {key: v for key, v in values.items() if isinstance(v, (int, float, str, tuple, list, type(None)))}


def _complete(folder: Path) -> list[Path]:
    """The complete checkpoints of a folder, in order of their steps."""
    found = [path for path in folder.glob("step-*") if _FOLDER.fullmatch(path.name) and (path / _NOTES).exists()]
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]))


def _remove(path: Path) -> None:
    """Rename a checkpoint and delete it, so that a kill in between leaves none that looks complete."""
    gone = path.with_name(f".{path.name}.old.part")
    os.rename(path, gone)
    shutil.rmtree(gone)


class Checkpoints:
    """Methods that save and load checkpoints of training."""

    def _trained(self) -> Trained:
        """The part of the model that this process has."""
        raise NotImplementedError

    @called_by_all(lambda one: one._trained().group)
    def save_checkpoint(
        self,
        folder: str | os.PathLike[str],
        optimizer: torch.optim.Optimizer,
        step: int,
        notes: Mapping[str, Any] | None = None,
        keep: int = 2,
    ) -> Path:
        """Save weights and the optimizer's state as ``folder/step-N``, atomically; all ranks must call it.

        It is written under a temporary name, and renamed when all processes are done.

        Args:
            notes: JSON values that ``load_checkpoint`` returns.
            keep: the number of complete checkpoints that stay.

        Raises ``ApplyError`` if a state of the optimizer has another shape than its weight, or notes are not JSON values.
        """
        model, folder = self._trained(), Path(folder)
        groups = [_plain(group) for group in optimizer.param_groups]
        try:
            text = json.dumps({"step": step, "groups": groups, "notes": dict(notes or {})}, indent=1)
        except (TypeError, ValueError) as error:  # on all processes, before any collective
            raise ApplyError(f"notes= must be JSON values: {error}") from error
        final = folder / f"step-{step:08d}"
        part = folder / f".{final.name}.part"
        group = model.group.group
        if model.group.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            for leftover in folder.glob(".step-*.part"):
                shutil.rmtree(leftover)
        dist.barrier(group)
        state = dict(_weights(model)) | dict(_states(model, optimizer))
        save(state, storage_writer=FileSystemWriter(part), process_group=group)
        if model.group.rank == 0:
            (part / _NOTES).write_text(text, encoding="utf-8")
            if final.exists():
                _remove(final)
            os.rename(part, final)
            others = [one for one in _complete(folder) if one != final]  # an earlier run may have later steps
            for old in others[: max(0, len(others) + 1 - keep)]:
                _remove(old)
        dist.barrier(group)
        return final

    @called_by_all(lambda one: one._trained().group)
    def load_checkpoint(self, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer) -> Resumed | None:
        """Load the last complete checkpoint of a folder, saved in any layout; all ranks must call it.

        Returns:
            Its step and notes; None if the folder has no checkpoint.

        Raises ``ApplyError`` if it belongs to another model, or to an optimizer with other groups.
        """
        model, folder = self._trained(), Path(folder)
        path = from_first_process(lambda: next(iter(_complete(folder)[-1:]), None), model.group)
        if path is None:
            return None
        known = FileSystemReader(path).read_metadata().state_dict_metadata
        said = json.loads((path / _NOTES).read_text(encoding="utf-8"))
        if len(said["groups"]) != len(optimizer.param_groups):
            raise ApplyError(
                f"{path} has an optimizer with {len(said['groups'])} groups, and this one has {len(optimizer.param_groups)}"
            )
        weights = dict(_weights(model))
        unlike = [name for name, one in weights.items() if getattr(known.get(name), "size", None) != one.shape]
        every = everywhere((unlike, list(weights)), model.group)  # processes of stages have other names
        wrong = list(dict.fromkeys(name for names, _ in every for name in names))
        here = {name for _, names in every for name in names}
        other = [name for name in known if name.startswith("model.") and name not in here]
        if wrong or other:
            raise ApplyError(f"{path} belongs to another model: {', '.join([*wrong, *other][:8])}")
        _make_states(model, optimizer, known)
        state = weights | dict(_states(model, optimizer))
        load(state, storage_reader=FileSystemReader(path), process_group=model.group.group)
        for group, values in zip(optimizer.param_groups, said["groups"]):
            known_values = {key: value for key, value in values.items() if key not in _FORMS}
            group.update(
                {key: tuple(v) if isinstance(group.get(key), tuple) else v for key, v in known_values.items()}
            )
        return Resumed(said["step"], said["notes"])


class InLayout(Checkpoints):
    """A model that is sharded in a layout."""

    _grid: ProcessGrid

    @property
    def layout(self) -> Layout:
        """The numbers of processes that divide weights, layers and batches."""
        return self._grid.layout

    @property
    def data_rank(self) -> int:
        """The index of this process's part of each batch, below ``layout.data``; processes that divide layers share it."""
        return self._grid.data_rank
