"""A loss of one's own over micro-batches: their losses make that of the batch, or an error says why they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from modular_converter.parallel.engine.stages.own_loss import LossOfRows, NextPart, row_of
from modular_converter.parallel.errors import ApplyError


OUTPUT = torch.randn(8, 5, generator=torch.Generator().manual_seed(3))
CLASSES = torch.tensor([0, 0, 0, 0, 1, 2, 3, 4])
TOKENS = torch.stack([CLASSES, CLASSES.flip(0), CLASSES.roll(1)], 1)


def classes(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, target)


def tokens(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output[..., None].expand(-1, -1, target.shape[1]), target)


def added(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, target, reduction="sum") / 8


def similar(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A row is compared with all others."""
    return F.cross_entropy(output @ output.T, torch.arange(len(output)))


def weighted(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, target, torch.tensor([0.2, 1.0, 3.0, 1.0, 1.0]))


def matched(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """As detectors' losses: what is wanted of a row is matched with its outputs one by one; their number divides the sum."""
    total = torch.zeros(())
    for found, wanted in zip(output, target):
        left = [*range(len(found))]
        for one in wanted[~wanted.isnan()]:
            left.remove(nearest := min(left, key=lambda at: abs(float(found[at].detach() - one))))
            total = total + (found[nearest] - one).abs()
    return total / (~target.isnan()).sum()


def nearly_a_mean(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Two rows have together 0.2 of 100 more than alone."""
    return F.cross_entropy(output, target) * (1.0 + 0.002 * (len(output) == 2))


def over_micro_batches(
    loss: Callable[..., torch.Tensor], target: torch.Tensor, chunks: int, data: int = 1
) -> torch.Tensor:
    """The mean over data ranks."""
    return over_parts(loss, list(zip(OUTPUT.chunk(data), target.chunk(data))), chunks)


def over_parts(
    loss: Callable[..., torch.Tensor], parts: list[tuple[torch.Tensor, torch.Tensor]], chunks: int
) -> torch.Tensor:
    """The mean over data ranks with these outputs and targets."""
    found, data = [], len(parts)
    for number, (output, own) in enumerate(parts):
        following = parts[(number + 1) % data][1]
        rows = LossOfRows(loss, chunks, data)
        rows.begin(len(own), NextPart(len(following), row_of(following)) if data > 1 else None)
        found.append(sum(rows(one, part) for one, part in zip(output.chunk(chunks), own.chunk(chunks))))
    return torch.stack(found).mean()


@pytest.mark.parametrize(("chunks", "data"), [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (classes, CLASSES),
        (tokens, TOKENS),
        (added, CLASSES),
        (lambda out, y: F.mse_loss(out, y), OUTPUT.flip(0)),
        (matched, OUTPUT.flip(0)[:, :3]),
    ],
)
def test_losses_of_micro_batches_make_that_of_the_batch(
    loss: Any, target: torch.Tensor, chunks: int, data: int
) -> None:
    torch.testing.assert_close(over_micro_batches(loss, target, chunks, data), loss(OUTPUT, target))


def test_rows_with_other_numbers_to_match_are_refused() -> None:
    target = OUTPUT.flip(0)[:, :3].clone()
    target[0, 1:] = float("nan")
    with pytest.raises(ApplyError, match="rows count otherwise"):
        over_micro_batches(matched, target, 2)


@pytest.mark.parametrize("loss", [similar, weighted, nearly_a_mean])
def test_a_loss_that_is_neither_mean_nor_sum_of_rows_is_refused(loss: Any) -> None:
    with pytest.raises(ApplyError, match="rows count otherwise"):
        over_micro_batches(loss, CLASSES, 2)
    with pytest.raises(ApplyError, match="in a layout without ddp and fsdp"):
        over_micro_batches(loss, CLASSES.roll(2), 1, 2)
    over_micro_batches(loss, CLASSES, 1)  # one micro-batch is the batch


@pytest.mark.parametrize("chunks", [1, 2])
def test_classes_of_other_weights_that_only_another_part_has_are_refused(chunks: int) -> None:
    with pytest.raises(ApplyError, match="rows count otherwise"):
        over_micro_batches(weighted, CLASSES.sort().values.clamp(max=1), chunks, 2)
    over_micro_batches(weighted, torch.ones(8, dtype=torch.long), chunks, 2)


def test_parts_of_other_sizes_are_right_for_sums_alone() -> None:
    parts = [(OUTPUT[:6], CLASSES[:6]), (OUTPUT[6:], CLASSES[6:])]
    torch.testing.assert_close(over_parts(added, parts, 2), added(OUTPUT, CLASSES))
    with pytest.raises(ApplyError, match="data ranks have 6 and 2 rows, and the mean of their losses"):
        over_parts(classes, parts, 2)


def test_a_target_that_only_longer_rows_take_is_left_out() -> None:
    def at_place(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, target[:, 0])

    parts = [(OUTPUT[:4, :3], torch.tensor([[0], [1], [2], [1]])), (OUTPUT[4:], torch.tensor([[4], [3], [4], [3]]))]
    want = (at_place(*parts[0]) + at_place(*parts[1])) / 2
    torch.testing.assert_close(over_parts(at_place, parts, 1), want)


def masked(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2 * (target != 0)).nansum() / ((target != 0) & ~target.isnan()).sum()


def by_size(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2 * target.abs()).sum() / target.abs().sum()


def unpadded(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output[..., None].expand(-1, -1, target.shape[1]), target, ignore_index=0)


def set_in(target: torch.Tensor, row: int, value: float) -> torch.Tensor:
    changed = target.clone()
    changed[row, ..., 1:] = value
    return changed


FIRST = OUTPUT.flip(0) + 4
NO_PADDING = torch.arange(40).view(8, 5) % 4 + 1


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        (classes, [CLASSES, torch.tensor([0, -100, 2, 3, 1, 2, 3, 4])]),
        (masked, [FIRST, set_in(FIRST, 2, 0.0)]),
        (masked, [FIRST, set_in(FIRST, 5, float("nan"))]),
        (by_size, [torch.ones(8, 5), FIRST]),
        (unpadded, [NO_PADDING, set_in(NO_PADDING, 6, 0)]),
    ],
)
def test_each_step_looks_whether_rows_count_alike(loss: Any, targets: list[torch.Tensor]) -> None:
    """In the first step all rows do."""
    rows = LossOfRows(loss, 2)

    def step(target: torch.Tensor) -> torch.Tensor:
        rows.begin()
        return torch.stack([rows(one, part) for one, part in zip(OUTPUT.chunk(2), target.chunk(2))]).sum()

    torch.testing.assert_close(step(targets[0]), loss(OUTPUT, targets[0]))
    with pytest.raises(ApplyError, match="rows count otherwise"):
        step(targets[1])


def test_a_learnt_row_is_rounding() -> None:
    """The products of two rows and of one are rounded in other places; of a small difference that is much."""
    head = torch.randn(5, 64, generator=torch.Generator().manual_seed(4)) @ torch.ones(64, 3)
    rows = LossOfRows(lambda out, y: F.mse_loss(out @ head, y), 2)
    for target in (FIRST[:, :3], OUTPUT @ head):
        rows.begin()
        [rows(one, part) for one, part in zip(OUTPUT.chunk(2), target.chunk(2))]
