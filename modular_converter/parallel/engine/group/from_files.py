"""The model of a folder in a process group: all processes have the same files, and each reads its shares once."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.engine.checkpoint.load_model import Checkpoint, open_checkpoint, replace_parameters
from modular_converter.parallel.engine.checkpoint.reader import Reader, read_share
from modular_converter.parallel.engine.choice.arguments import Arguments
from modular_converter.parallel.engine.choice.kinds_of_layers import kinds_of, one_of_each_kind
from modular_converter.parallel.engine.choice.probe import Probe, probe_of
from modular_converter.parallel.engine.group.same_calls import everywhere
from modular_converter.parallel.errors import ApplyError, PlanError
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.shard.shares import share_shape


# Entries of each stored tensor that are compared between processes.
_COMPARED = 64


def same_checkpoint(given: Arguments, group: ProcessGroup) -> Checkpoint:
    """The folder's model, opened on each process.

    Raises ``ApplyError`` on all processes if one cannot open its folder, or has other files in it.
    """
    checkpoint, said, mark = None, "", ""
    try:
        checkpoint = open_checkpoint(given.model, given.weight_type, given.model_class)
        mark = _fingerprint(checkpoint)
    except PlanError as error:
        said = str(error)
    found = everywhere((said, mark), group)
    for rank, (text, other) in enumerate(found):
        if text:
            raise ApplyError(f"process {rank}: {text}")
        if other != found[0][1]:
            raise ApplyError(
                f"{given.model} holds another model on process {rank} than on process 0: copy the same files to each host"
            )
    assert checkpoint is not None
    return checkpoint


def _fingerprint(checkpoint: Checkpoint) -> str:
    """A hash of the class, the settings, the headers of the files, and a few entries of each stored tensor."""
    settings = checkpoint.model.config.to_json_string(use_diff=False)
    found = hashlib.sha256(f"{type(checkpoint.model).__qualname__}\n{checkpoint.model.dtype}\n".encode())
    found.update(settings.replace(str(checkpoint.folder), "").encode())
    with Reader() as reader:
        for key, one in sorted(checkpoint.stored.items()):
            found.update(f"{key} {one.shape} {one.dtype}\n".encode())
            if 0 not in one.shape:
                middle = tuple((length // 2, 1) for length in one.shape[:-1])
                some = reader.read(one, (*middle, *((0, min(_COMPARED, length)) for length in one.shape[-1:])))
                found.update(some.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


class FileShares:
    """A process's shares of the weights of a folder.

    Attributes:
        read: shares that were read, by name and cut. The probe and the model use the same shares.
    """

    def __init__(self, checkpoint: Checkpoint, group: ProcessGroup, place: torch.device) -> None:
        self.checkpoint, self.group, self.place = checkpoint, group, place
        self.read: dict[tuple[Any, ...], torch.Tensor] = {}
        self.reader = Reader()

    def share(self, name: str, piece: Piece | None) -> torch.Tensor:
        """This process's share of a weight, on its device; the whole weight if no piece cuts it."""
        cut = None if piece is None or piece.dim < 0 else (piece.dim, piece.parts, piece.units)
        key = (name, cut)
        if key not in self.read:
            recipe, rank, size = self.checkpoint.recipes[name], self.group.rank, self.group.size
            target = torch.empty(share_shape(recipe.shape, piece, rank, size), dtype=recipe.dtype, device=self.place)
            read_share(self.reader, recipe, piece, rank, size, target)
            self.read[key] = target
        return self.read[key]

    def fill(self, model: torch.nn.Module) -> None:
        """Give weights without data their whole data, and move all other tensors to this process's device."""
        made: dict[int, torch.nn.Parameter] = {}
        for name, parameter in model.named_parameters():
            if parameter.is_meta:
                made[id(parameter)] = torch.nn.Parameter(self.share(name, None), parameter.requires_grad)
            elif parameter.device != self.place:
                parameter.data = parameter.data.to(self.place)
        replace_parameters(model, made)
        for module in model.modules():
            for leaf, buffer in module._buffers.items():
                module._buffers[leaf] = None if buffer is None else buffer.to(self.place)

    def probe(self, model: torch.nn.Module) -> Probe | str:
        """The probe of a model without weights. Only the first process reads whole weights and computes answers."""
        found: list[Any] = [None]
        if self.group.rank == 0:
            made = probe_of(model, self.checkpoint.filled)
            names = "" if isinstance(made, str) else {name for name, _ in made.model.named_parameters()}
            found = [made if isinstance(made, str) else (names, made.inputs, made.answers)]
        dist.broadcast_object_list(found, group=self.group.group, group_src=0)
        if isinstance(found[0], str):
            return found[0]
        names, inputs, answers = found[0]
        short = one_of_each_kind(model, kinds_of(model))
        known = {name for name, _ in short.named_parameters()}
        return Probe(short if known == names else model, inputs, answers)

    def close(self) -> int:
        """Close the files; return the number of bytes read."""
        self.read.clear()
        self.reader.__exit__()
        return self.reader.bytes
