"""Methods of models that several processes train, with shares or with stages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from modular_converter.parallel.engine.group.process_grid import ProcessGrid
from modular_converter.parallel.engine.group.training_checkpoint import (
    Resumed,
    Trained,
    load_checkpoint,
    save_checkpoint,
)
from modular_converter.parallel.layout import Layout


class Checkpoints:
    """Checkpoints of training."""

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
        """Save weights and the optimizer's state as ``folder/step-N``, completely or not at all; all ranks must call
        it.

        Args:
            notes: plain values that ``load_checkpoint`` gives back, as JSON has them.
            keep: complete checkpoints that stay.

        Raises ``ApplyError`` if the optimizer has a state that does not lie as its weight.
        """
        return save_checkpoint(Path(folder), self._trained(), optimizer, step, dict(notes or {}), keep)

    def load_checkpoint(self, folder: str | os.PathLike[str], optimizer: torch.optim.Optimizer) -> Resumed | None:
        """Go on from the last complete checkpoint of a folder, of any layout; all ranks must call it.

        Returns:
            Its step and notes; None where the folder has none.

        Raises ``ApplyError`` if it is of another model, or of an optimizer with other groups.
        """
        return load_checkpoint(Path(folder), self._trained(), optimizer)


class InLayout(Checkpoints):
    """A model that a layout shares out."""

    _grid: ProcessGrid

    @property
    def layout(self) -> Layout:
        """The numbers of processes over which weights, layers and batches are divided."""
        return self._grid.layout

    @property
    def data_rank(self) -> int:
        """The number of this process's part of each batch, of ``layout.data`` parts; equal for processes that divide
        layers or stages.
        """
        return self._grid.data_rank
