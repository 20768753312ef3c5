"""Tensor-parallel plans: traced from a small instance, derived by a solver without torch, proven, written.

Flow: ``tiny`` builds -> ``trace`` records -> ``solve`` derives a ``Plan`` -> ``proof`` proves -> ``source`` writes.
``parallelize`` runs a model with its plan, on the processes of a ``Session``. Nothing slow is imported here, so that
``modular-plan --help`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from modular_converter.parallel.errors import LIBRARIES, MissingLibraryError


if TYPE_CHECKING:
    from modular_converter.parallel.api import parallelize
    from modular_converter.parallel.engine.stages.pipeline import Pipeline
    from modular_converter.parallel.layout import AutoLayout, Layout, Training
    from modular_converter.parallel.pipeline.prove import derive_pipeline
    from modular_converter.parallel.proof.prove import derive
    from modular_converter.parallel.ranks.session import Session
    from modular_converter.parallel.trainer.layout_trainer import LayoutTrainer
    from modular_converter.parallel.tuning.chosen import read_chosen

__all__ = [
    "AutoLayout",
    "Layout",
    "LayoutTrainer",
    "Pipeline",
    "Session",
    "Training",
    "derive",
    "derive_pipeline",
    "parallelize",
    "read_chosen",
]


_PUBLIC = {
    "AutoLayout": "layout",
    "Layout": "layout",
    "LayoutTrainer": "trainer.layout_trainer",
    "Pipeline": "engine.stages.pipeline",
    "Session": "ranks.session",
    "Training": "layout",
    "derive": "proof.prove",
    "derive_pipeline": "pipeline.prove",
    "parallelize": "api",
    "read_chosen": "tuning.chosen",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use; raises `MissingLibraryError` if the extra is not installed."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name in LIBRARIES:
            raise MissingLibraryError(error.name) from error
        raise
