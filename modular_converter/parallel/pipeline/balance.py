"""The cuts of a chain of layers into stages, from their costs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from modular_converter.parallel.errors import ScheduleError


def balanced(costs: Sequence[int], stages: int, head: int = 0, tail: int = 0) -> tuple[int, ...]:
    """The first layer of each stage after the first, so that the most expensive stage costs as little as possible.

    Args:
        costs: of each layer, in order, such as bytes of parameters.
        stages: the number of stages, each of at least one layer.
        head: the cost of the first stage without its layers (embeddings).
        tail: the cost of the last stage without its layers (the last norm).

    Returns:
        ``stages - 1`` rising positions; among the best, those with the cheapest other stages, then the first.

    Raises ``ValueError`` for fewer layers than stages, and for no stage.
    """
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} layers cannot be cut into {stages} stages of at least one layer each")
    sums = [0, *accumulate(costs)]

    def price(first: int, last: int, stage: int) -> int:
        return sums[last] - sums[first] + (head if stage == 0 else 0) + (tail if stage == stages - 1 else 0)

    # best[last]: (prices of all stages in falling order, cuts) for the first `last` layers
    best: dict[int, tuple[list[int], tuple[int, ...]]]
    best = {last: ([price(0, last, 0)], ()) for last in range(1, len(costs) - stages + 2)}
    for stage in range(1, stages):
        best = {
            last: min(
                (sorted([*prices, price(first, last, stage)], reverse=True), (*cuts, first))
                for first, (prices, cuts) in best.items()
                if first < last
            )
            for last in range(stage + 1, len(costs) - stages + stage + 2)
        }
    return best[len(costs)][1]


def cuts_of_balance(balance: Sequence[int], layers: int, stages: int) -> tuple[int, ...]:
    """The first layer of each stage after the first, from the number of layers of each.

    Raises ``ScheduleError`` if the numbers are not as many as stages, do not add up to the layers, or one is below 1.
    """
    said = f"balance {','.join(map(str, balance))}"
    if len(balance) != stages:
        raise ScheduleError(f"{said} has {len(balance)} numbers, there are {stages} stages; give the layers of each")
    if min(balance, default=0) < 1 or sum(balance) != layers:
        raise ScheduleError(
            f"{said} adds up to {sum(balance)} layers, the model has {layers}; give each stage at least one layer, and "
            "all layers a stage"
        )
    return tuple(accumulate(balance[:-1]))


def spans(cuts: Sequence[int], layers: int) -> list[range]:
    """The layers of each stage, from the cuts between them."""
    borders = [0, *cuts, layers]
    return [range(first, last) for first, last in zip(borders, borders[1:])]
