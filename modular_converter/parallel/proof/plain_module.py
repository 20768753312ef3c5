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
from modular_converter.parallel.trace.unchanged import unchanged


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
    with torch.random.fork_rng(devices=[]):
        small = small_copy(module, inputs)
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        try:
            subject = subject_of(small.model, small.inputs)
        except Exception as error:  # any error of the module's own code
            raise BuildError(f"{small.name}: forward fails: {one_line(error)}") from error
        found = derived_from(Target(small.name, kind, ""), small, subject, ranks, {})
    if not found.verdict.passed:
        raise PlanError(f"{small.name}: no plan holds: {placed(found.verdict.layer, found.verdict.reason)}")
    return found


def small_copy(module: torch.nn.Module, inputs: Mapping[str, Any] | Sequence[Any]) -> Small:
    """A copy of a module with random weights, in eval mode, and the arguments of one forward by name.

    Raises ``BuildError`` if the module is too large or not on the CPU, or its forward does not take or run with the inputs.
    """
    name = type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise BuildError(f"{name}: give a torch.nn.Module")
    if any(tensor.device.type != "cpu" for tensor in (*module.parameters(), *module.buffers())):
        raise BuildError(f"{name}: give an instance on the CPU")
    if sum(parameter.numel() for parameter in module.parameters()) > MOST_PARAMETERS:
        limit = f"{MOST_PARAMETERS / 1e6:.0f} M parameters"
        raise BuildError(
            f"{name}: more than {limit}; give a smaller instance, and its plan as plan=: it holds for larger ones"
        )
    given = inputs_by_name(module, inputs)
    made = copy_of(module).eval()
    randomise(made, SEED)
    try:
        with unchanged(made), torch.no_grad():
            made(**given)
    except Exception as error:  # any error of the module's own code
        raise BuildError(f"{name}: forward fails: {one_line(error)}") from error
    return Small(name, "", made, given)


def inputs_by_name(module: torch.nn.Module, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Arguments of a forward, by name or in order, by their names.

    Raises ``BuildError`` if they do not fit the forward, or it takes arguments without names.
    """
    name = type(module).__name__
    signature = inspect.signature(module.forward)
    try:
        if isinstance(inputs, Mapping):
            return dict(signature.bind(**inputs).arguments) if _has_names(signature) else dict(inputs)
        given = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
        found = dict(signature.bind(*given).arguments)
    except TypeError as error:
        raise BuildError(f"{name}: these inputs do not fit its forward: {error}") from error
    unnamed = [one.name for one in signature.parameters.values() if one.kind in _WITHOUT_NAME and one.name in found]
    if unnamed:
        raise BuildError(f"{name}: its forward takes {unnamed[0]!r} by position alone: give its arguments names")
    return found


def _has_names(signature: inspect.Signature) -> bool:
    """Whether all arguments have names of their own."""
    return all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())


_WITHOUT_NAME = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
