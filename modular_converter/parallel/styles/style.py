"""The record of a style: its effect on a layer, its cost, and its names in other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from textwrap import indent
from typing import Any, Protocol


class Level(Enum):
    """The kind of part that rules of a style name."""

    WEIGHT = "a layer with a weight, or a parameter"
    MODULE = "a module, whose inputs or outputs change"


class Side(Enum):
    """The dimension of a weight that a style shards if its rule names none, as in ``nn.Linear``."""

    NONE = "stays whole"
    FIRST = "the first"
    OUTPUT = "output features, the bias with them"
    INPUT = "input features"

    def dim(self, rank: int) -> int:
        """The dimension, for a weight with ``rank`` dimensions; -1 if it is not sharded."""
        return {Side.NONE: -1, Side.FIRST: 0, Side.OUTPUT: max(rank - 2, 0), Side.INPUT: rank - 1}[self]


class Enters(Enum):
    """The whole tensors that enter the sharded region of a style: ``Replicate``, with a gradient that is ``Partial``.

    With the collective, by which tensors leave it, and the side on which its weight is cut, this is all that a style does
    to a layer.
    """

    NOTHING = "nothing: the operands are shares"
    OPERANDS = "the other operands of a product with the weight"
    SLICE = "this rank's slice of the input of a product with the weight"
    WEIGHT = "the weight itself, which is whole"
    INPUTS = "the inputs of the module"
    OUTPUT = "the output of the module"
    TAIL = "the last part of the output of the module"


class Inference(Enum):
    """The communication of a style if no gradients are needed."""

    SILENT = "nothing"
    SUMMED_PRODUCT = "its product is summed"
    SLICED_SUMMED_PRODUCT = "its product with a slice of the input is summed"
    GATHERED_PRODUCT = "its product is gathered"
    SUMMED_LOOKUP = "its rows are summed"
    SUMMED_OUTPUT = "the output of the module is summed"
    AS_TRAINED = "the same as with gradients"


@dataclass(frozen=True)
class Collective:
    """A collective in a forward.

    Attributes:
        kind: its name, for messages.
        rounds: how often a ring passes the tensor on (without one shard): once to gather, twice to sum.
    """

    kind: str
    rounds: int

    def sent(self, shape: Sequence[int], ranks: int, width: int) -> int:
        """The bytes that each rank sends on a ring, for a whole output of this shape with numbers of ``width`` bytes."""
        return self.rounds * (ranks - 1) * prod(shape) * width // ranks


SUM_OVER_RANKS, GATHER_OVER_RANKS = Collective("all-reduce", 2), Collective("all-gather", 1)


@dataclass(frozen=True)
class TorchStyle:
    """The form in ``torch.distributed.tensor.parallel``: the class, its argument for the whole side, the kind of layer."""

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
        layers: the statements of the constructor of the model, ``Model()``; ``torch``, ``nn`` and ``F`` are defined.
        forward: the statements of its forward, which takes ``x``.
        plan: the rules and attributes, one a line.
        inputs: the shape of ``x``.
        below: if not 0, ``x`` has integers below this number.
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
    """The ranks that a layer is sharded over, for the forward of a style; its methods are differentiable."""

    rank: int
    size: int

    def enter(self, value: Any) -> Any:
        """Let whole tensors, also in lists and tuples, enter the sharded region: their gradients are summed."""

    def sum(self, value: Any) -> Any:
        """The sum of a partial tensor over the ranks, which leaves the sharded region."""

    def gather(self, value: Any, dim: int, borders: Sequence[int]) -> Any:
        """The whole tensor of shards along ``dim``, which leaves the sharded region.

        Args:
            borders: the first entry of each rank, and the length of the whole dimension.
        """


PRODUCT, LOOKUP = "product", "lookup"


@dataclass(frozen=True)
class WeightUse:
    """A call of a function with a weight under a style.

    Attributes:
        name: of the function.
        kind: ``PRODUCT``, ``LOOKUP``, or empty for other functions.
        borders: the first entry of each rank along the sharded dimension, and the whole length.
        entered: gives the positional arguments, whose other tensors enter the sharded region.
        weights_entered: gives positional and keyword arguments, whose whole weights enter the sharded region.
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
        """The range of this rank's entries: first, last + 1."""
        return self.borders[self.region.rank], self.borders[self.region.rank + 1]


@dataclass(frozen=True)
class Site:
    """A module under a style.

    Attributes:
        path: its name, for messages.
        parts: relative lengths of the parts of its output, for styles that need them.
        firsts: parameter that is sharded along its first dimension -> the range of the rank's entries (first, last + 1).
    """

    path: str
    region: Region
    parts: tuple[int, ...] = ()
    firsts: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Style:
    """All facts about a style.

    Attributes:
        does: its effect, for the page about plans; without a full stop.
        side: the usual dimension, for a style of weights.
        enters: the tensors that enter its region.
        collective: by which a result leaves it: of one use of the weight, or one call of the module, in a forward.
        library: whether transformers 5.23 has the style under this name.
        torch: its form for ``parallelize_module``, if there is one.
        acts_as: the style whose forward it shares: packed weights are used like plain weights. Empty for its own forward.
        packed_as: the style for a weight of several blocks.
        packed: whether it means two equal blocks in transformers.
        table: whether the weight is a table of rows, beside which its module may hold rows of its own.
        expert: whether a plan with it is expert-parallel.
        shrinks: the module's integer that becomes the local number; empty for none.
        forward: gives the result of a function with the weight, or ``NotImplemented`` if the function needs no change.
        before: gives the changed arguments of a module's forward.
        after: gives the changed result of a module's forward.
        check: raises ``ApplyError`` for a module that the style does not fit.
    """

    name: str
    does: str
    level: Level
    example: Example
    side: Side = Side.NONE
    enters: Enters = Enters.NOTHING
    collective: Collective | None = None
    library: bool = True
    torch: TorchStyle | None = None
    inference: Inference = Inference.AS_TRAINED
    acts_as: str = ""
    packed_as: str = ""
    packed: bool = False
    table: bool = False
    expert: bool = False
    shrinks: str = ""
    forward: Callable[[WeightUse], Any] | None = None
    before: Callable[[Site, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]] | None = None
    after: Callable[[Site, Any], Any] | None = None
    check: Callable[[Site], object] | None = None

    @property
    def role(self) -> str:
        """The name of the style whose forward is used."""
        return self.acts_as or self.name

    @property
    def cuts(self) -> bool:
        """Whether the weight is sharded."""
        return self.side is not Side.NONE

    @property
    def cuts_output(self) -> bool:
        """Whether its rule needs the parts of the module's output, which transformers' vocabulary lacks."""
        return self.enters is Enters.TAIL

    @property
    def acts_for_weights(self) -> bool:
        """Whether the module communicates, so that the weights inside are plain shards."""
        return self.enters is Enters.INPUTS and self.collective is not None
