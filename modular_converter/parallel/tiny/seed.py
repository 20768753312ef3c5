"""Seeds of small instances, which run on the CPU."""

from __future__ import annotations

import torch


def seed_cpu(seed: int) -> None:
    """Seed the CPU's generator alone: ``torch.manual_seed`` would overwrite the random state of the caller's GPUs."""
    torch.default_generator.manual_seed(seed)
