"""Judge a sharded run: how far its numbers are from the whole model's, the scope of the proof, and the verdict."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy
import torch

from modular_converter.findings import first_of


# Names of a kind that are printed before "and N more".
NAMED = 3
WITH_GRADIENTS = "with gradients"
FOR_INFERENCE = "for inference"
PADDING, TRAIN_MODE, DECODING, LENGTHS = "padding", "train mode", "decoding with a cache", "another length"
_HALF = ("float16", "bfloat16")


@dataclass(frozen=True)
class Evidence:
    """The runs behind a verdict.

    Attributes:
        ranks: numbers of ranks, or of stages.
        places: of the ranks: threads, gloo processes.
        sizes: integers of the small configuration, ``name=value``.
        inputs: ``name shape`` of each input tensor, such as ``ids 2x12``.
        arguments: names of all arguments of forwards, also within ``generate``.
        situations: beside a plain forward in eval mode: padding, another length, train mode, decoding with a cache.
        uses: further runs of the same weights, such as one token, an optional argument, another side of a branch.
        types: of weights, such as float32.
        forms: of the sharded model: with gradients, for inference.
        draws: the number of draws of random weights.
        kinds: classes of modules that ran.
        operators: names of aten operators that ran.
        unproven: sharded weights without a significant gradient, which only the outputs prove.
        gaps: outputs, gradients and runs that are missing, in words.
        idle: modules with weights that no run has called.
        possible: the situations that the model allows.
    """

    ranks: tuple[int, ...] = ()
    places: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    situations: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    draws: int = 0
    kinds: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()

    @property
    def not_covered(self) -> tuple[str, ...]:
        """The parts and uses of the model that the proof does not cover, in words."""
        found = list(self._gaps_in_runs)
        found += [] if not self.forms or FOR_INFERENCE in self.forms else ["the form for inference"]
        found += [] if not self.types or set(_HALF) & set(self.types) else ["16-bit types"]
        return tuple(found)

    @property
    def _gaps_in_runs(self) -> tuple[str, ...]:
        """The same without the form and the types, which a later run on the ranks may cover."""
        found = list(self.gaps)
        found += [f"gradients of {first_of([*self.unproven], NAMED)}"] if self.unproven else []
        found += [f"{first_of([*self.idle], NAMED)}: no run called them"] if self.idle else []
        found += [situation for situation in self.possible if situation not in self.situations]
        return tuple(found)

    def also(self, other: Evidence) -> Evidence:
        """The joint evidence of two proofs of one plan; a weight that one of them proves is proven."""
        first, second = vars(self), vars(other)
        both = {"unproven", "idle"}
        found: dict[str, Any] = {}
        for item in fields(self):
            mine, theirs = first[item.name], second[item.name]
            if item.name == "draws":
                found[item.name] = max(mine, theirs)
            elif item.name in both:
                found[item.name] = tuple(name for name in mine if name in theirs)
            else:
                found[item.name] = tuple(dict.fromkeys((*mine, *theirs)))
        return replace(self, **found)

    def with_gap(self, *gaps: str) -> Evidence:
        """The same with more gaps."""
        return replace(self, gaps=tuple(dict.fromkeys((*self.gaps, *gaps))))

    @property
    def scope(self) -> str:
        """The runs, on one line."""
        parts = [f"{self.draws} draw{'s' * (self.draws != 1)} of weights"] if self.draws else []
        parts += [", ".join(self.inputs[:NAMED])] if self.inputs else []
        parts += [", ".join(("eval mode", *self.situations))] if self.inputs else []
        parts += [f"also with {', '.join(self.uses)}"] if self.uses else []
        parts += [", ".join(self.types)] if self.types else []
        parts += [", ".join(self.forms)] if self.forms else []
        return "; ".join(parts)

    def lines(self, verbose: bool = False, tried_later: bool = False) -> list[str]:
        """The scope and what is not covered.

        Args:
            verbose: also all parts that ran, a line for each kind.
            tried_later: whether a later run on the ranks covers the form for inference and the types in use.
        """
        gaps = self._gaps_in_runs if tried_later else self.not_covered
        found = [f"run: {self.scope}"] if self.scope else []
        if verbose:
            for name in ("ranks", "places", "sizes", "inputs", "kinds", "operators", "unproven", "idle"):
                values = getattr(self, name)
                found += [f"{name}: {', '.join(map(str, values))}"] if values else []
        return found + ([f"not covered: {'; '.join(gaps)}"] if gaps else [])

    def to_json(self) -> dict[str, Any]:
        """All fields, and ``not_covered``, as JSON values."""
        return {**asdict(self), "not_covered": list(self.not_covered)}


UNKNOWN = Evidence()


Share = Callable[[str, torch.Tensor], torch.Tensor]
Gradients = Mapping[str, torch.Tensor]
HALF_TYPES = (torch.float16, torch.bfloat16)
# The number of entries in the estimate of a scale: enough for a quartile, and fast to sort.
_SAMPLE = 4096
# For gradients, sums of terms that cancel: their small entries are rounding.
_MEDIAN = 0.5
# The least scale of a gradient, relative to the largest scale: key biases under a softmax have only rounding errors.
_SMALL = 1e-3
# A gradient below this fraction of the largest scale proves nothing: half of it could be missing unnoticed.
_NOTHING = 1e-5


def is_inexact(tensor: torch.Tensor) -> bool:
    """Whether the entries are rounded: floating or complex numbers. Integers and booleans are compared exactly."""
    return tensor.is_floating_point() or tensor.is_complex()


def scale_of(tensor: torch.Tensor, part: float = 0.25) -> float:
    """The lower quartile of the distinct magnitudes, without zeros and non-finite entries; 0 if there are no others.

    A mask value counts once, whatever its number of entries, and a large region cannot hide a small one.

    Args:
        part: the fraction of the magnitudes below the scale.
    """
    flat = tensor.detach().reshape(-1)
    if flat.numel() > _SAMPLE:
        found = _magnitudes(flat[_picked(flat.numel()).to(flat.device)])
        if found.size:
            return float(found[int((found.size - 1) * part)])
    found = _magnitudes(flat)
    return float(found[int((found.size - 1) * part)]) if found.size else 0.0


@functools.lru_cache(maxsize=64)
def _picked(count: int) -> torch.Tensor:
    """The indices of a sample among ``count`` entries."""
    return torch.randint(count, (_SAMPLE,), generator=torch.Generator().manual_seed(5))


def _magnitudes(flat: torch.Tensor) -> Any:
    """The distinct finite magnitudes above zero, in order; numpy sorts ten times as fast as torch."""
    sizes = flat.abs()
    sizes = sizes.float() if sizes.dtype in HALF_TYPES else sizes
    found = numpy.unique(sizes.cpu().numpy())
    return found[numpy.isfinite(found) & (found > 0)]


def relative_error(got: torch.Tensor, want: torch.Tensor, scale: float | None = None) -> float:
    """The largest deviation of an entry, relative to its magnitude, or to the scale if the entry is smaller.

    Infinite if shapes, exact tensors or non-finite entries differ.
    """
    if got.shape != want.shape or is_inexact(got) != is_inexact(want):
        return math.inf
    if not is_inexact(want):
        return 0.0 if got.dtype == want.dtype and torch.equal(got, want) else math.inf
    if not want.numel():
        return 0.0
    got, want = got.detach(), want.detach()
    size = scale_of(want) if scale is None else scale
    error = float(_largest_error(got, want, size))
    if math.isfinite(error):
        return error
    finite = torch.isfinite(want)
    if not torch.equal(torch.isfinite(got), finite):
        return math.inf
    if not torch.allclose(got[~finite].to(want.dtype), want[~finite], equal_nan=True):
        return math.inf
    return float(_largest_error(got[finite], want[finite], size)) if finite.any() else 0.0


def _largest_error(got: torch.Tensor, want: torch.Tensor, size: float) -> torch.Tensor:
    magnitudes = want.abs()
    if want.dtype in HALF_TYPES:
        magnitudes = magnitudes.float()
    return ((got - want).abs() / magnitudes.clamp_min(max(size, torch.finfo(magnitudes.dtype).tiny))).max()


def errors_of(found: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> list[float]:
    """The relative error of each tensor; infinite for a tensor that only one side has."""
    missing = abs(len(found) - len(want))
    return [*(relative_error(one, other) for one, other in zip(found, want)), *[math.inf] * missing]


def worst_error(found: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
    """The largest relative error; infinite if there is nothing to compare."""
    return max(errors_of(found, want), default=math.inf)


def gradient_errors(found: Gradients, want: Gradients, share: Share | None = None) -> dict[str, float]:
    """Name -> relative error of each gradient of one backward; infinite for a missing gradient.

    Scales are those of whole gradients, and at least a fraction of the largest scale.

    Args:
        share: parameter name and whole gradient -> this rank's share; the whole gradient if None.
    """
    scales = {name: scale_of(gradient, _MEDIAN) for name, gradient in want.items()}
    least = max(scales.values(), default=0.0) * _SMALL
    errors = dict.fromkeys(want, math.inf)
    for name in want.keys() & found.keys():
        local = want[name] if share is None else share(name, want[name])
        errors[name] = relative_error(found[name], local, max(scales[name], least))
    return errors


def errors_of_backwards(
    found: Sequence[Gradients], want: Sequence[Gradients], share: Share | None = None
) -> dict[str, float]:
    """Name -> largest error of the gradients over all backwards; infinite for a missing backward."""
    errors: dict[str, float] = {}
    for number, whole in enumerate(want):
        for name, error in gradient_errors(found[number] if number < len(found) else {}, whole, share).items():
            errors[name] = error if not error <= errors.get(name, 0.0) else errors.get(name, 0.0)
    return errors


def significant(gradients: Gradients) -> set[str]:
    """The parameters with significant gradients in one backward: finite, and more than rounding."""
    finite = {name: gradient for name, gradient in gradients.items() if bool(torch.isfinite(gradient).all())}
    largest = {name: float(gradient.abs().max()) if gradient.numel() else 0.0 for name, gradient in finite.items()}
    scales = {name: scale_of(gradient, _MEDIAN) for name, gradient in finite.items()}
    least = max(scales.values(), default=0.0) * _NOTHING
    return {name for name in finite if largest[name] > least}


# Relative to the entry, or to the scale of its tensor if the entry is smaller.
OUTPUT_TOLERANCE = 2e-4
GRADIENT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Verdict:
    """The outcome on one rank. ``layer`` and ``reason`` are empty if everything agrees.

    Attributes:
        ranks: the number of ranks, or of stages.
        output_error, gradient_error: the largest relative deviation of an entry.
        collectives: the number of collectives in one forward.
        evidence: the runs, and the gaps between them.
    """

    ranks: int
    output_error: float
    gradient_error: float
    layer: str = ""
    reason: str = ""
    collectives: int = 0
    evidence: Evidence = UNKNOWN

    @property
    def passed(self) -> bool:
        return not self.reason

    @property
    def outcome(self) -> str:
        """A word for tables, with the reason of a refusal."""
        return "verified" if self.passed else f"refused: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """The verdict and its evidence as JSON values; an error that is not finite is None."""
        errors = {name: getattr(self, name) for name in ("output_error", "gradient_error")}
        return {
            "verified": self.passed,
            "layer": self.layer,
            "reason": self.reason,
            **{name: error if math.isfinite(error) else None for name, error in errors.items()},
            "collectives": self.collectives,
            "evidence": self.evidence.to_json(),
        }


@dataclass
class Reference:
    """The numbers of one run.

    Attributes:
        outputs: all tensors that the model returned, in order.
        gradients: for each backward, first name of a parameter -> gradient.
        collectives: the number of collectives in the forward.
        tokens: logits of the first decoded tokens, for a model that generates.
        scales: of the tensors at which backwards start.
        start: the module at whose outputs backwards start; empty for the model's own outputs.
        unstable: indices of the outputs that rounding decides.
        gaps: values that are not compared, in words.
    """

    outputs: list[torch.Tensor]
    gradients: list[dict[str, torch.Tensor]]
    collectives: int = 0
    tokens: list[torch.Tensor] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    start: str = ""
    unstable: frozenset[int] = frozenset()
    gaps: tuple[str, ...] = ()

    @functools.cached_property
    def proven(self) -> set[str]:
        """The parameters with a significant gradient in one of the backwards."""
        return set().union(*(significant(gradients) for gradients in self.gradients))


def refused(ranks: int, layer: str, reason: str) -> Verdict:
    """The verdict on a run without comparable numbers."""
    return Verdict(ranks, math.inf, math.inf, layer, reason)


def both_draws(first: Verdict, second: Verdict, situation: str = "other weights") -> Verdict:
    """The verdict on a plan that passed with a first draw of weights, after a run with a second draw in a situation."""
    if not second.passed:
        return replace(second, reason=f"{second.reason} (with {situation})")
    return replace(
        first,
        output_error=max(first.output_error, second.output_error),
        gradient_error=max(first.gradient_error, second.gradient_error),
        evidence=first.evidence.also(second.evidence),
    )


def judge(found: Reference, whole: Reference, ranks: int, share: Share | None = None) -> Verdict:
    """Compare one rank's numbers with the whole model's.

    Args:
        share: parameter name and whole gradient -> this rank's share; the whole gradient if None.
    """
    reason = proves_nothing(whole)
    if not reason and len(found.outputs) != len(whole.outputs):
        reason = f"{len(found.outputs)} outputs instead of {len(whole.outputs)}"
    if reason:
        return refused(ranks, "the outputs", reason)
    pairs = enumerate(zip(found.outputs, whole.outputs))
    outputs = [0.0 if n in whole.unstable else relative_error(got, want) for n, (got, want) in pairs]
    tokens = errors_of(found.tokens, whole.tokens)
    gradients = errors_of_backwards(found.gradients, whole.gradients, share)
    layer, reason = _first_difference(outputs, tokens, gradients)
    worst = max(gradients.values(), default=0.0)
    gaps = (*whole.gaps, *(f"output {n} {why}" for n, why in _silent(whole).items()))
    evidence = Evidence(ranks=(ranks,), gaps=gaps)
    return Verdict(ranks, max(outputs + tokens), worst, layer, reason, found.collectives, evidence)


def _silent(whole: Reference) -> dict[int, str]:
    """Index of an output that proves nothing -> the reason."""
    found = {}
    for number, tensor in enumerate(whole.outputs):
        if number in whole.unstable:
            found[number] = "is decided by rounding"
        elif tensor.numel() and is_inexact(tensor) and not scale_of(tensor):
            found[number] = "has nothing but zeros" if bool((tensor == 0).any()) else "has no finite entry"
    return found


def proves_nothing(whole: Reference) -> str:
    """The reason why no output of a whole model proves anything about a plan; empty if one does."""
    silent = _silent(whole)
    inexact = [number for number, tensor in enumerate(whole.outputs) if is_inexact(tensor) and tensor.numel()]
    if not inexact:
        return "no floating output to compare"
    if not set(inexact) - silent.keys():
        why = silent[inexact[0]]
        return "the whole model's own outputs are not finite" if "finite" in why else f"each output {why}"
    return ""


def _first_difference(
    outputs: Sequence[float], tokens: Sequence[float], gradients: Mapping[str, float]
) -> tuple[str, str]:
    """The layer and the reason of the first error beyond its tolerance; empty if there is none."""
    for index, error in enumerate(outputs):
        if not error <= OUTPUT_TOLERANCE:
            return "the outputs", f"output {index} differs by {error:.2g} of its scale"
    if not max(tokens, default=0.0) <= OUTPUT_TOLERANCE:
        return "the decoded tokens", f"their logits differ by {max(tokens):.2g} of their scale"
    for name, error in gradients.items():
        if not error <= GRADIENT_TOLERANCE:
            return name, f"the gradient of {name} differs by {error:.2g} of its scale"
    return "", ""
