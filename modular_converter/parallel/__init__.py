"""Tensor-parallel plans: traced from a small instance, derived by a solver without torch, proven, written.

Flow: ``tiny`` builds -> ``trace`` records -> ``derive`` solves -> ``Plan`` -> ``verify`` proves -> ``write``.
``parallelize`` runs a model with its plan, on the processes of a ``Session``. Nothing heavy is imported here, so that
``modular-plan --help`` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from modular_converter.parallel.api import parallelize
    from modular_converter.parallel.engine.ranks.session import Session

__all__ = ["Session", "parallelize"]


def __getattr__(name: str) -> Any:
    if name == "parallelize":
        from modular_converter.parallel.api import parallelize

        return parallelize
    if name == "Session":
        from modular_converter.parallel.engine.ranks.session import Session

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
