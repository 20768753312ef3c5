"""Styles: the names of layouts in the text of plans and in transformers' vocabulary."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from modular_converter.parallel.styles.layout import (
    COLWISE,
    ENTERING_INPUTS,
    ENTERING_OUTPUT,
    GATHERED,
    ROUTED_EXPERTS,
    ROWWISE,
    SHARE,
    SLICED_EXPERTS,
    SPLIT_INPUT,
    STACKED_EXPERTS,
    SUMMED_GRADIENT,
    SUMMED_OUTPUT,
    SUMMED_TAIL,
    VOCABULARY,
    WeightLayout,
)


@dataclass(frozen=True)
class Style:
    """A name of a layout.

    Attributes:
        does: its effect, for the page about plans; without a full stop.
        library: whether transformers 5.23 has the style under this name.
        packed: whether it is of a weight of several blocks, two equal ones in transformers.
    """

    name: str
    layout: WeightLayout
    does: str
    library: bool = True
    packed: bool = False


_ALL = (
    Style("colwise", COLWISE, "output features sharded, each rank keeps its own"),
    Style(
        "packed_colwise", COLWISE, "as colwise, each of the equal parts of the output sharded on its own", packed=True
    ),
    Style("colwise_gather_output", GATHERED, "output features sharded, then gathered"),
    Style("rowwise", ROWWISE, "input features sharded, partial outputs summed"),
    Style(
        "packed_rowwise", ROWWISE, "as rowwise, each of the equal parts of the input sharded on its own", packed=True
    ),
    Style("rowwise_split_input", SPLIT_INPUT, "as rowwise, from a whole input that is sliced first"),
    Style("embedding_rowwise", VOCABULARY, "vocabulary sharded, partial rows summed"),
    Style("replicated_with_grad_allreduce", SUMMED_GRADIENT, "whole, its gradient summed over the ranks"),
    Style(
        "mla_kv_a_proj",
        SUMMED_TAIL,
        "the last part of the module's output enters a sharded region: its gradient is summed",
    ),
    Style("all_reduce", SUMMED_OUTPUT, "the module's output is a partial sum: it is summed over the ranks"),
    Style(
        "moe_tp_experts", SLICED_EXPERTS, "a module of experts: inputs enter the sharded region, its output is summed"
    ),
    Style(
        "grouped_gemm",
        STACKED_EXPERTS,
        "stacked weights of experts sharded by expert; the module's num_experts becomes the local number",
    ),
    Style(
        "ep_dispatch_experts",
        ROUTED_EXPERTS,
        "a module of whole experts: each rank takes the routes to its own, the outputs are summed",
    ),
    Style("shard", SHARE, "a parameter sharded along one dimension, used by its own shard only", library=False),
    Style(
        "enter_output",
        ENTERING_OUTPUT,
        "the module's output enters a sharded region: its gradient is summed over the ranks",
        library=False,
    ),
    Style(
        "enter_input",
        ENTERING_INPUTS,
        "the module's inputs enter a sharded region: their gradients are summed over the ranks",
        library=False,
    ),
)
STYLES: dict[str, Style] = {style.name: style for style in _ALL}
"""Name -> style, in the order of the page about plans; transformers' own styles come first."""


def style_of(layout: WeightLayout, packed: bool = False) -> str:
    """The name of a layout, or of it for several blocks if there is one."""
    named = [style for style in STYLES.values() if style.layout == layout]
    return next((style.name for style in named if style.packed == packed), named[0].name)


def acting(roles: Collection[WeightLayout]) -> tuple[WeightLayout, ...]:
    """The layouts of a weight by which its uses change, in the order in which they are asked.

    A tied weight can have several: what looks up rows comes before what multiplies.
    """
    order = list(dict.fromkeys(style.layout for style in reversed(STYLES.values())))
    return tuple(layout for layout in order if layout in roles and layout.acts)
