"""The scope of a proof: its runs, and its gaps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

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
        said = [f"{self.draws} draw{'s' * (self.draws != 1)} of weights"] if self.draws else []
        said += [", ".join(self.inputs[:NAMED])] if self.inputs else []
        said += [", ".join(("eval mode", *self.situations))] if self.inputs else []
        said += [f"also with {', '.join(self.uses)}"] if self.uses else []
        said += [", ".join(self.types)] if self.types else []
        said += [", ".join(self.forms)] if self.forms else []
        return "; ".join(said)

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
