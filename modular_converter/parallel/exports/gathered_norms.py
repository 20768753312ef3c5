"""Norms that an engine runs on the gathered shares of their input, of whose output each device keeps its share.

From outside, such a norm takes shares to shares, as a function of single entries does: a plan is right with the norm if, and
only if, it is right with an entrywise function in its place, in which the plan is derived and proven.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from modular_converter.parallel.proof.head_variants import HeadVariant
from modular_converter.parallel.proof.prove import Derived, derived_from
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.tiny.build import Small
from modular_converter.parallel.tiny.copies import copy_of


class Entrywise(torch.nn.Module):
    """Stands for a norm over shares that are gathered."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The same shape; an odd function that does not grow."""
        return torch.tanh(hidden_states)


def with_gathered_norms(derived: Derived) -> Derived | None:
    """The model with entrywise functions for its norms over a projection, and its plan; None without such norms."""
    paths = list(norms_of_projections(derived.small.model))
    if not paths:
        return None
    small = _without(derived.small, paths)
    found = derived_from(
        derived.target, small, subject_of(small.model, small.inputs), derived.verdict.ranks, dict(derived.overrides)
    )
    variants = []
    for variant in derived.variants:
        other = _without(variant.small, paths)
        variants.append(HeadVariant(other, subject_of(other.model, other.inputs, second=False), variant.ratio))
    return replace(found, variants=tuple(variants))


def gathers(model: torch.nn.Module) -> int:
    """The norms in a model that gather."""
    return sum(isinstance(module, Entrywise) for module in model.modules())


def _without(small: Small, paths: list[str]) -> Small:
    model = copy_of(small.model)
    for path in paths:
        owner, _, name = path.rpartition(".")
        setattr(model.get_submodule(owner), name, Entrywise())
    return replace(small, model=model)


def norms_of_projections(model: torch.nn.Module) -> Iterator[str]:
    """The paths of root mean square norms over all features that a linear layer beside them gives or takes."""
    for path, module in model.named_modules():
        linear = [child for child in module.children() if isinstance(child, torch.nn.Linear)]
        widths = {width for layer in linear for width in (layer.in_features, layer.out_features)}
        for name, child in module.named_children():
            weight = getattr(child, "weight", None)
            if linear and is_rms_norm(child) and isinstance(weight, torch.Tensor) and weight.numel() in widths:
                yield f"{path}.{name}".lstrip(".")


def is_rms_norm(module: torch.nn.Module) -> bool:
    """Whether a module divides by the root of the mean square, with a factor for each feature."""
    weight = getattr(module, "weight", None)
    if next(module.children(), None) is not None or not isinstance(weight, torch.nn.Parameter) or weight.dim() != 1:
        return False
    entries = 1e3 * torch.linspace(-1, 2, 3 * weight.numel(), dtype=weight.dtype).reshape(
        3, -1
    )  # eps is nothing beside it
    want = entries * entries.square().mean(-1, keepdim=True).rsqrt()
    try:
        with torch.no_grad():
            found = module(entries)
    except Exception:  # a module with other inputs
        return False
    return any(torch.allclose(found, want * factor, rtol=1e-3, atol=1e-5) for factor in (weight, 1 + weight))
