"""A layout: the two facts about a layer on several ranks, how its weight is cut, and what happens at the edges.

All else follows from them: the forward, the collectives, the names in other tools. In torch's terms a tensor that enters
the sharded region is ``Replicate``, with a gradient that is ``Partial``; a result leaves it from ``Partial`` or ``Shard``
to ``Replicate``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Side(Enum):
    """The dimension of a weight that a layout cuts if its rule names none, as in ``nn.Linear``."""

    NONE = "stays whole"
    FIRST = "the first"
    EXPERTS = "the first, of stacked experts"
    OUTPUT = "output features, the bias with them"
    INPUT = "input features"

    def dim(self, rank: int) -> int:
        """The dimension, for a weight with ``rank`` dimensions; -1 if it is not cut."""
        return {Side.NONE: -1, Side.OUTPUT: max(rank - 2, 0), Side.INPUT: rank - 1}.get(self, 0)


class Enters(Enum):
    """The whole tensors that enter the sharded region."""

    NOTHING = "nothing: the operands are shares"
    OPERANDS = "the other operands of a product with the weight"
    SLICE = "this rank's slice of the input of a product with the weight"
    WEIGHT = "the weight itself, which is whole"
    INPUTS = "the inputs of the module"
    ROUTES = "the inputs of the module, with the routes to this rank's experts"
    OUTPUT = "the output of the module"
    TAIL = "the last part of the output of the module"


SUM_OVER_RANKS, GATHER_OVER_RANKS = "all-reduce", "all-gather"


@dataclass(frozen=True)
class WeightLayout:
    """How a weight is cut, and what happens at the edges of its products, or of a module.

    Attributes:
        cut: the usual dimension.
        enters: the tensors that enter the region.
        leaves: the collective by which a result leaves it: of one use of the weight, or one call of the module.
    """

    cut: Side = Side.NONE
    enters: Enters = Enters.NOTHING
    leaves: str | None = None

    @property
    def cuts(self) -> bool:
        """Whether the weight is cut."""
        return self.cut is not Side.NONE

    @property
    def of_module(self) -> bool:
        """Whether it is of a module, whose inputs or outputs change, and not of a weight."""
        return not self.cuts and self.enters is not Enters.WEIGHT

    @property
    def acts(self) -> bool:
        """Whether anything enters or leaves; a weight is else a plain share."""
        return self.enters is not Enters.NOTHING or self.leaves is not None

    @property
    def of_product(self) -> bool:
        """Whether products with the weight change."""
        return self.cut in (Side.OUTPUT, Side.INPUT)

    @property
    def of_table(self) -> bool:
        """Whether the weight is a table of rows, beside which its module may hold rows of its own."""
        return self.cut is Side.FIRST and self.leaves is not None

    @property
    def acts_for_weights(self) -> bool:
        """Whether the module communicates, so that the weights inside are plain shares."""
        return self.enters in (Enters.INPUTS, Enters.ROUTES) and self.leaves is not None

    @property
    def divides_experts(self) -> bool:
        """Whether ranks have experts, and not shares of tensors."""
        return self.cut is Side.EXPERTS or self.enters is Enters.ROUTES

    @property
    def whole_outside(self) -> bool:
        """Whether inputs and outputs are whole tensors, so that a cut may lie anywhere."""
        return self.of_table or self.leaves is GATHER_OVER_RANKS or self.enters is Enters.SLICE


COLWISE = WeightLayout(Side.OUTPUT, Enters.OPERANDS)
GATHERED = WeightLayout(Side.OUTPUT, Enters.OPERANDS, GATHER_OVER_RANKS)
ROWWISE = WeightLayout(Side.INPUT, leaves=SUM_OVER_RANKS)
SPLIT_INPUT = WeightLayout(Side.INPUT, Enters.SLICE, SUM_OVER_RANKS)
VOCABULARY = WeightLayout(Side.FIRST, leaves=SUM_OVER_RANKS)
SHARE = WeightLayout(Side.FIRST)
STACKED_EXPERTS = WeightLayout(Side.EXPERTS)
SUMMED_GRADIENT = WeightLayout(enters=Enters.WEIGHT)
SUMMED_TAIL = WeightLayout(enters=Enters.TAIL)
SUMMED_OUTPUT = WeightLayout(leaves=SUM_OVER_RANKS)
SLICED_EXPERTS = WeightLayout(enters=Enters.INPUTS, leaves=SUM_OVER_RANKS)
ROUTED_EXPERTS = WeightLayout(enters=Enters.ROUTES, leaves=SUM_OVER_RANKS)
ENTERING_INPUTS = WeightLayout(enters=Enters.INPUTS)
ENTERING_OUTPUT = WeightLayout(enters=Enters.OUTPUT)
EXPERTS_INTEGER = "num_experts"
"""The integer of a module of ``STACKED_EXPERTS`` that becomes the local number."""
