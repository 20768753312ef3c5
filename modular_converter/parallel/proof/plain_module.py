"""The plan of a plain ``nn.Module``, which has no configuration, from example inputs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.errors import BuildError, PlanError, one_line
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.prove import Derived, derived_from
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.tiny.build import MOST_PARAMETERS, SEED, Small, Target, randomise
from modular_converter.parallel.tiny.copies import copy_of


def derive(module: torch.nn.Module, inputs: Mapping[str, Any] | Sequence[Any], ranks: int = 2) -> Derived:
    """The plan of any module, proven on a copy with random weights; the module itself is unchanged.

    Args:
        module: a small instance on the CPU; its plan holds for larger instances of the same classes.
        inputs: arguments of one forward, by name or in order.
        ranks: the number of ranks in the proof, 2 or 4.

    Returns:
        ``plan`` for ``parallelize(model, plan=…)``, ``verdict.evidence`` with the scope of the proof, and
        ``hindrances``: why weights stay whole, with the line of code and the cure.

    Raises ``PlanError`` if the module is too large or not on the CPU, its forward fails, or the plan does not hold.
    """
    name = type(module).__name__
    if any(tensor.device.type != "cpu" for tensor in (*module.parameters(), *module.buffers())):
        raise BuildError(f"{name}: give an instance on the CPU")
    if sum(parameter.numel() for parameter in module.parameters()) > MOST_PARAMETERS:
        limit = f"{MOST_PARAMETERS / 1e6:.0f} M parameters"
        raise BuildError(f"{name}: more than {limit}; give a smaller instance; its plan holds for larger ones")
    given = inputs if isinstance(inputs, Mapping) else _by_name(module, inputs)
    with torch.random.fork_rng(devices=[]):
        made = copy_of(module).eval()
        randomise(made, SEED)
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        small = Small(name, "", made, dict(given))
        try:
            subject = subject_of(made, small.inputs)
        except Exception as error:  # any error of the module's own code
            raise BuildError(f"{name}: forward fails: {one_line(error)}") from error
        found = derived_from(Target(name, kind, ""), small, subject, ranks, {})
    if not found.verdict.passed:
        raise PlanError(f"{name}: no plan holds: {placed(found.verdict.layer, found.verdict.reason)}")
    return found


def _by_name(module: torch.nn.Module, inputs: Sequence[Any]) -> dict[str, Any]:
    """Positional arguments, by their names in the forward."""
    given = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    try:
        return dict(inspect.signature(module.forward).bind(*given).arguments)
    except TypeError as error:
        raise BuildError(f"{type(module).__name__}: these inputs do not fit its forward: {error}") from error
