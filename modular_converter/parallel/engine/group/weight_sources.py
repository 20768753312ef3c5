"""Where a process takes its part of a model's weights from: tensors in memory, or the files of a folder (``from_files``).

Weights that data ranks divide stay without data until ``fully_shard`` has divided them, and get only this process's
entries then: so a device holds its share of the model, and at no time a layer more.
"""

from __future__ import annotations

from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import kept_types
from modular_converter.parallel.engine.base.probe import Probe, probe_of
from modular_converter.parallel.engine.checkpoint.load_model import replace_parameters
from modular_converter.parallel.engine.group.spread import Spread, each_once, entries_in
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
        whole = self.waiting.pop(one.name)
        for there, here in one.boxes():
            entries_in(target, here).copy_(entries_in(whole, there))

    def probe(self, model: torch.nn.Module) -> Probe | str:
        """The probe of a model, or the reason why there is none; all processes must call it."""
        return probe_of(model)

    def close(self) -> None:
        """Free everything that was not taken."""
        self.waiting.clear()
