"""The weights of a process's stages: their parameters, the norm of their gradients, and their part of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist

from modular_converter.parallel.engine.group.all_present import meet
from modular_converter.parallel.engine.group.gradient_norm import norm_of, scale_gradients
from modular_converter.parallel.engine.group.spread import Spread
from modular_converter.parallel.engine.group.training_checkpoint import Trained, saved_buffers
from modular_converter.parallel.engine.group.training_methods import Checkpoints
from modular_converter.parallel.pipeline.stage import StageModule
from modular_converter.parallel.shard.collectives import ProcessGroup


if TYPE_CHECKING:
    from modular_converter.parallel.engine.stages.shared_weights import SharedWeights


Stages = TypeVar("Stages", bound="StageWeights")


class StageWeights(Checkpoints):
    """The methods of a pipeline for its weights.

    Attributes:
        stages: of this process, by number.
    """

    stages: dict[int, StageModule]
    _own: dict[str, torch.nn.Parameter]
    _shared: SharedWeights
    _group: dist.ProcessGroup
    _everyone: ProcessGroup
    _place: torch.device
    # The processes that divide each stage.
    _tensors: ProcessGroup | None = None

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """This process's parameters, by their names in the whole model."""
        yield from self._own.items()

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """This process's parameters, for an optimizer."""
        yield from self._own.values()

    def train(self: Stages, mode: bool = True) -> Stages:
        """As in a module."""
        for stage in self.stages.values():
            stage.train(mode)
        return self

    def eval(self: Stages) -> Stages:
        """As in a module."""
        return self.train(False)

    @property
    def training(self) -> bool:
        """As in a module."""
        return next(iter(self.stages.values())).training

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scale all gradients so that their norm, as if the model were whole, is at most ``max_norm``.

        Returns:
            The norm before, the same on every process.
        """
        meet("clip_grad_norm_", self._everyone.group)
        second = {one.name for one in self._shared.own if one.ranks[0] != dist.get_rank()}
        weights = self.spreads()
        counted = [one for name, one in weights.items() if name not in second]
        norm = norm_of(counted, norm_type, self._tensors, self._place, ProcessGroup(self._group))
        scale_gradients(weights.values(), norm, max_norm)
        return norm

    def spreads(self) -> dict[str, Spread]:
        """First name in the whole model -> the parts of a weight of this process."""
        return {name: Spread(name, value, None) for name, value in self._own.items()}

    def _trained(self) -> Trained:
        return Trained(list(self.spreads().values()), self._buffers(), self._everyone)

    def _buffers(self) -> dict[str, torch.Tensor]:
        """Name in the whole model -> buffer that is saved."""
        return {name: one for stage in self.stages.values() for name, one in saved_buffers(stage.model).items()}
