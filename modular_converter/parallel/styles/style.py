"""The record of a style: its effect on a layer, its cost, and its names in other tools. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from textwrap import indent
from typing import Any, Protocol


class Level(Enum):
    """The kind of part that a rule of a style names."""

    WEIGHT = "a layer with a weight, or a parameter"
    MODULE = "a module, whose inputs or outputs change"


class Side(Enum):
    """The dimension of a weight that a style cuts unless its rule names another, as in ``nn.Linear``."""

    NONE = "stays whole"
    FIRST = "the first"
    OUTPUT = "output features, the bias with them"
    INPUT = "input features"

    def dim(self, rank: int) -> int:
        """The dimension of a weight with ``rank`` dimensions; -1 for one that stays whole."""
        return {Side.NONE: -1, Side.FIRST: 0, Side.OUTPUT: max(rank - 2, 0), Side.INPUT: rank - 1}[self]


class Inference(Enum):
    """The work of a rank if no gradients are needed."""

    SILENT = "nothing"
    SUMMED_PRODUCT = "its product is summed"
    SLICED_SUMMED_PRODUCT = "its product with a slice of the input is summed"
    GATHERED_PRODUCT = "its product is gathered"
    SUMMED_LOOKUP = "its rows are summed"
    SUMMED_OUTPUT = "the output of the module is summed"
    AS_TRAINED = "the same as with gradients"


@dataclass(frozen=True)
class Collective:
    """A call between the ranks in a forward.

    Attributes:
        kind: for people.
        rounds: how often a ring passes all but one share of the tensor on: once to gather, twice to sum.
    """

    kind: str
    rounds: int

    def sent(self, shape: Sequence[int], ranks: int, width: int) -> int:
        """Bytes that each rank sends for an output of this whole shape, in numbers of ``width`` bytes, on a ring."""
        return self.rounds * (ranks - 1) * prod(shape) * width // ranks


SUM_OVER_RANKS, GATHER_OVER_RANKS = Collective("all-reduce", 2), Collective("all-gather", 1)


@dataclass(frozen=True)
class TorchStyle:
    """The form in ``torch.distributed.tensor.parallel``: the class, the side that stays whole, the kind of layer."""

    kind: str
    whole_side: str = ""
    layer: str = "Linear"


_MODEL = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
{}

    def forward(self, x):
{}
"""


@dataclass(frozen=True)
class Example:
    """A small model and its plan: the test of a style, and its lines on the page about plans.

    Attributes:
        layers: the statements of the constructor of the model, ``Model()``; ``torch``, ``nn`` and ``F`` are known.
        forward: the statements of its forward, which takes ``x``.
        plan: the rules and attributes, one a line.
        inputs: shape of the one input; of integers below ``below``, if that is given.
        modules: the source of other classes that the model uses.
    """

    layers: str
    forward: str
    plan: str
    inputs: tuple[int, ...] = (3, 8)
    below: int = 0
    modules: str = ""

    @property
    def source(self) -> str:
        """The source of the model's class."""
        return self.modules + _MODEL.format(*(indent(text, " " * 8) for text in (self.layers, self.forward)))


class Region(Protocol):
    """The ranks that hold shares of a layer, for the forward of a style; its calls have gradients."""

    rank: int
    size: int

    def enter(self, value: Any) -> Any:
        """Whole tensors, also in lists and tuples, into the sharded region: their gradients are summed."""

    def sum(self, value: Any) -> Any:
        """A partial tensor out of the region: the sum over the ranks."""

    def gather(self, value: Any, dim: int, borders: Sequence[int]) -> Any:
        """A share of a tensor out of the region: the whole one, put together along ``dim``.

        Args:
            borders: the first entry of each rank, and the length of the whole.
        """


PRODUCT, LOOKUP = "product", "lookup"


@dataclass(frozen=True)
class WeightUse:
    """One call of a function with a sharded weight.

    Attributes:
        kind: ``PRODUCT``, ``LOOKUP``, or empty for any other function.
        borders: the first entry along the sharded dimension that each rank holds, and the whole length behind them.
        entered: the same arguments, the other tensors among them entered into the region.
        weights_entered: all arguments, by position and by keyword, the weights that stay whole entered.
    """

    function: Callable[..., Any]
    name: str
    kind: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    region: Region
    borders: tuple[int, ...]
    entered: Callable[[], tuple[Any, ...]]
    weights_entered: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]

    @property
    def own(self) -> tuple[int, int]:
        """The first entry that this rank holds, and the one behind the last."""
        return self.borders[self.region.rank], self.borders[self.region.rank + 1]


@dataclass(frozen=True)
class Site:
    """A module under a style.

    Attributes:
        path: its name, for messages.
        parts: relative lengths of the parts of its output, for a style that wants them.
        firsts: its parameters that are sharded along their first dimension: the first entry that the rank holds, and
            the one behind the last.
    """

    path: str
    region: Region
    parts: tuple[int, ...] = ()
    firsts: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Style:
    """All facts about a style.

    Attributes:
        does: for people, without a full stop.
        side: the usual dimension, for a style of weights.
        collective: what one use of the weight, or one call of the module, brings in a forward.
        library: whether transformers 5.23 has the style under this name.
        torch: its form for ``parallelize_module``, if that has one.
        acts_as: the style whose forward it has, where not its own: packed weights are used like plain ones.
        packed_as: the style for a weight of several blocks.
        packed: transformers means two equal blocks by it.
        cuts_output: its rule needs the parts of the module's output, which transformers' vocabulary leaves out.
        acts_for_weights: the module communicates, so that the weights inside are plain shares.
        table: the weight is a table of rows, beside which its module may hold rows of its own.
        expert: makes a plan an expert-parallel one.
        shrinks: an integer of the module that becomes the local one.
        forward: the result of a function with the weight, or ``NotImplemented`` for functions that need nothing.
        before: the arguments of a module's forward, changed.
        after: the result of a module's forward, changed.
        check: raises ``ApplyError`` for a module that the style cannot serve.
    """

    name: str
    does: str
    level: Level
    example: Example
    side: Side = Side.NONE
    collective: Collective | None = None
    library: bool = True
    torch: TorchStyle | None = None
    inference: Inference = Inference.AS_TRAINED
    acts_as: str = ""
    packed_as: str = ""
    packed: bool = False
    cuts_output: bool = False
    acts_for_weights: bool = False
    table: bool = False
    expert: bool = False
    shrinks: str = ""
    forward: Callable[[WeightUse], Any] | None = None
    before: Callable[[Site, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]] | None = None
    after: Callable[[Site, Any], Any] | None = None
    check: Callable[[Site], object] | None = None

    @property
    def role(self) -> str:
        """The name of the style whose forward the weight has."""
        return self.acts_as or self.name

    @property
    def cuts(self) -> bool:
        """Whether a weight is cut; one that stays whole may still take part."""
        return self.side is not Side.NONE
