"""Where a process takes its part of a model's weights from: tensors in memory, or the files of a folder.

Weights that data ranks divide stay without data until ``fully_shard`` has divided them, and get only this process's
entries then: so a device holds its share of the model, and at no time a layer more.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.choice.skeleton import kept_types
from modular_converter.parallel.choice.trials import kinds_of, one_of_each_kind
from modular_converter.parallel.engine.arguments import Arguments
from modular_converter.parallel.engine.base.trials_of_model import Probe, probe_of
from modular_converter.parallel.engine.checkpoint.model_files import Checkpoint, open_checkpoint, replace_parameters
from modular_converter.parallel.engine.checkpoint.reader import Reader, read_share
from modular_converter.parallel.engine.group.same_calls import everywhere, from_first_process
from modular_converter.parallel.engine.group.spread import Spread, each_once, entries_in
from modular_converter.parallel.errors import ApplyError, PlanError
from modular_converter.parallel.modules import bytes_of
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece, Resolution
from modular_converter.parallel.shard.apply import Applied, apply, local_part
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.shard.shares import share_shape


class WeightSource:
    """The weights of a model in memory.

    Attributes:
        group: of the tensor dimension.
        place: this process's device.
        waiting: first name -> whole weight of which ``fill`` takes this process's entries; it is freed then.
    """

    def __init__(self, group: ProcessGroup, place: torch.device) -> None:
        self.group, self.place = group, place
        self.waiting: dict[str, torch.Tensor] = {}

    def apply_plan(
        self, model: torch.nn.Module, plan: Plan | Resolution, kept: Any = None, later: bool = False
    ) -> Applied:
        """Shard a model over the tensor dimension, on this process's device, one weight after the other.

        Args:
            kept: name and weight -> its type on the device; unchanged if None.
            later: weights get no data before ``fill``, except for scalars, which ``fully_shard`` does not divide.
        """
        kept = kept or kept_types(model, None)
        names = {id(parameter): name for name, parameter in model.named_parameters()}

        def share(parameter: torch.nn.Parameter, piece: Piece | None, group: Any = None) -> torch.Tensor:
            name = names[id(parameter)]
            kind = kept(name, parameter)
            if not later or not parameter.dim():
                return self.share(name, parameter, piece, kind)
            self.wait(name, parameter)
            shape = share_shape(tuple(parameter.shape), piece, self.group.rank, self.group.size)
            return torch.empty(shape, dtype=kind, device="meta")

        applied = apply(model, plan, self.group, share)
        made: dict[int, torch.nn.Parameter] = {}
        for name, parameter in list(model.named_parameters()):
            if name not in applied.resolution.pieces:
                whole = share(parameter, None)
                if parameter.is_meta or whole.is_meta:
                    made[id(parameter)] = torch.nn.Parameter(whole, requires_grad=parameter.requires_grad)
                else:
                    parameter.data = whole
        replace_parameters(model, made)
        for module in model.modules():
            for leaf, buffer in module._buffers.items():
                module._buffers[leaf] = None if buffer is None else buffer.to(self.place)
        return applied

    def fill(self, model: torch.nn.Module, offload: bool = False) -> None:
        """Give weights without data this process's entries, one weight after the other.

        Args:
            model: sharded, and divided over data ranks.
            offload: whether ``fully_shard`` keeps weights on the host.
        """
        place = torch.device("cpu") if offload else self.place
        made: dict[int, torch.nn.Parameter] = {}
        for one in each_once(model):
            if one.stored.is_meta:
                empty = torch.empty_like(one.stored.detach(), device=place)
                self.take(one, one.local(empty))
                made[id(one.stored)] = torch.nn.Parameter(empty, requires_grad=one.stored.requires_grad)
        replace_parameters(model, made)

    def share(self, name: str, parameter: torch.Tensor, piece: Piece | None, kind: torch.dtype) -> torch.Tensor:
        """This process's share of a weight over the tensor dimension, on its device; the whole weight without a cut."""
        if piece is None:
            return parameter.detach().to(self.place, kind)
        return local_part(parameter.detach(), piece, self.group).to(self.place, kind, copy=True)

    def wait(self, name: str, parameter: torch.Tensor) -> None:
        """Keep a weight until ``fill``."""
        self.waiting[name] = parameter.detach()

    def take(self, one: Spread, target: torch.Tensor) -> None:
        """Copy this process's entries of a waiting weight into ``target``."""
        one.copy_entries(target, self.waiting.pop(one.name))

    def probe(self, model: torch.nn.Module, plan: Plan) -> Probe | str:
        """The probe of a model, or the reason why there is none; all processes must call it."""
        return probe_of(model, plan)

    def close(self) -> None:
        """Free everything that was not taken."""
        self.waiting.clear()


class BlankSource(WeightSource):
    """Small random weights, for a model of which steps are only tried."""

    def share(self, name: str, parameter: torch.Tensor, piece: Piece | None, kind: torch.dtype) -> torch.Tensor:
        shape = share_shape(tuple(parameter.shape), piece, self.group.rank, self.group.size)
        return _random(torch.empty(shape, dtype=kind, device=self.place))

    def wait(self, name: str, parameter: torch.Tensor) -> None:
        pass

    def take(self, one: Spread, target: torch.Tensor) -> None:
        _random(target)


def _random(target: torch.Tensor) -> torch.Tensor:
    return target.normal_(std=0.02) if target.is_floating_point() else target.zero_()


logger = logging.getLogger(__name__)
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
                found.update(bytes_of(some))
    return found.hexdigest()


class FolderSource(WeightSource):
    """The weights of a folder, and the tensors that its model has in memory.

    Attributes:
        shares: name and cut -> a share that the probe has read, on this process's device; the model uses it, too.
        wholes: name -> a whole weight that the probe has read, on the CPU; shares are cut out of it.
    """

    def __init__(
        self, checkpoint: Checkpoint, group: ProcessGroup, everyone: ProcessGroup, place: torch.device
    ) -> None:
        super().__init__(group, place)
        self.checkpoint, self.everyone = checkpoint, everyone
        self.shares: dict[tuple[Any, ...], torch.Tensor] = {}
        self.wholes: dict[str, torch.Tensor] = {}
        self.reader, self.trial = Reader(), Reader()

    def share(self, name: str, parameter: torch.Tensor, piece: Piece | None, kind: torch.dtype) -> torch.Tensor:
        if not parameter.is_meta:
            return super().share(name, parameter, piece, kind)
        key = (name, *_cut(piece))
        if key not in self.shares:
            recipe, rank, size = self.checkpoint.recipes[name], self.group.rank, self.group.size
            target = torch.empty(share_shape(recipe.shape, piece, rank, size), dtype=recipe.dtype, device=self.place)
            if name in self.wholes:
                whole = self.wholes[name]
                target.copy_(whole if piece is None else local_part(whole, piece, self.group))
            else:
                read_share(self.reader, recipe, piece, rank, size, target)
            self.shares[key] = target
        return self.shares[key]

    def wait(self, name: str, parameter: torch.Tensor) -> None:
        if not parameter.is_meta:
            super().wait(name, parameter)

    def take(self, one: Spread, target: torch.Tensor) -> None:
        if one.name in self.waiting:
            super().take(one, target)
            return
        piece = one.held.piece if one.held is not None else None
        share = self.shares.pop((one.name, *_cut(piece)), None)
        if share is not None:
            first, rows = one.rows
            target.copy_(share.narrow(0, first, rows))
            return
        recipe = self.checkpoint.recipes[one.name]
        whole = self.wholes.pop(one.name, None)
        if whole is None and not recipe.piecewise:
            whole = self.reader.whole(recipe)
        if whole is not None:
            one.copy_entries(target, whole)
            return
        for there, here in one.boxes():
            for row, rows_read in self.reader.chunks(recipe, tuple(zip(*there))):
                entries_in(target, here).narrow(0, row, len(rows_read)).copy_(rows_read)

    def probe(self, model: torch.nn.Module, plan: Plan) -> Probe | str:
        """The probe of a model without weights. Only the first process reads whole weights and computes answers."""

        def answered() -> Any:
            made = probe_of(model, plan, lambda part: self.checkpoint.filled(part, self._whole))
            if isinstance(made, str):
                return made
            return {name for name, _ in made.model.named_parameters()}, made.inputs, made.answers

        found = from_first_process(answered, self.everyone)
        if isinstance(found, str):
            return found
        names, inputs, answers = found
        short = one_of_each_kind(model, kinds_of(model), plan)
        known = {name for name, _ in short.named_parameters()}
        return Probe(short if known == names else model, inputs, answers)

    def _whole(self, name: str) -> torch.Tensor:
        if name not in self.wholes:
            self.wholes[name] = self.trial.whole(self.checkpoint.recipes[name])
        return self.wholes[name]

    def close(self) -> None:
        """Close the files, and free everything that was not taken."""
        super().close()
        self.shares.clear()
        self.wholes.clear()
        self.reader.__exit__()
        self.trial.__exit__()
        own, tried = (one.bytes / 2**20 for one in (self.reader, self.trial))
        said = "process %d has read %.1f MiB of its shares, and %.1f MiB of layers that it tried whole"
        logger.info(said, dist.get_rank(), own, tried)


def _cut(piece: Piece | None) -> tuple[Any, ...]:
    """What tells the shares of a weight apart."""
    return () if piece is None or piece.dim < 0 else (piece.dim, piece.parts, piece.units)
