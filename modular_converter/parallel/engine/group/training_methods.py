"""Methods of models that several processes train, in shares or in stages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from modular_converter.parallel.engine.group.all_present import meet
from modular_converter.parallel.engine.group.process_grid import ProcessGrid
from modular_converter.parallel.engine.group.training_checkpoint import (
    Resumed,
    Trained,
    load_checkpoint,
    save_checkpoint,
)
from modular_converter.parallel.layout import Layout


class Checkpoints:
    """Methods that save and load checkpoints of training."""

    def _trained(self) -> Trained:
        """The part of the model that this process has."""
        raise NotImplementedError

    def save_checkpoint(
        self,
        folder: str | os.PathLike[str],
        optimizer: torch.optim.Optimizer,
        step: int,
        notes: Mapping[str, Any] | None = None,
        keep: int = 2,
    ) -> Path:
        """Save weights and the optimizer's state as ``folder/step-N``, atomically; all ranks must call it.

        Args:
            notes: JSON values that ``load_checkpoint`` returns.
            keep: the number of complete checkpoints that stay.

        Raises ``ApplyError`` if a state of the optimizer has another shape than its weight, or notes are not JSON values.
        """
        trained = self._trained()
        meet("save_checkpoint", trained.group.group)
        return save_checkpoint(Path(folder), trained, optimizer, step, dict(notes or {}), keep)

    def load_checkpoint(self, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer) -> Resumed | None:
        """Load the last complete checkpoint of a folder, saved in any layout; all ranks must call it.

        Returns:
            Its step and notes; None if the folder has no checkpoint.

        Raises ``ApplyError`` if it belongs to another model, or to an optimizer with other groups.
        """
        trained = self._trained()
        meet("load_checkpoint", trained.group.group)
        return load_checkpoint(Path(folder), trained, optimizer)


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
