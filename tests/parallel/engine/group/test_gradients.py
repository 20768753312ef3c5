"""Norms of gradients of which a process may have no part."""

import pytest


torch = pytest.importorskip("torch")

from modular_converter.parallel.engine.group.gradients import norm_of  # noqa: E402
from modular_converter.parallel.engine.group.spread import Spread  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402


def weights():
    """Two weights with gradients; of the first, this process has no rows."""
    found = [torch.nn.Parameter(torch.ones(rows, 4)) for rows in (0, 2)]
    for one in found:
        one.grad = torch.arange(float(one.numel())).view_as(one)
    return [Spread(str(number), one, None) for number, one in enumerate(found)]


@pytest.mark.parametrize("kind", [1.0, 2.0, 3.0, float("inf")])
def test_a_share_without_rows_adds_nothing(kind):
    expected = torch.linalg.vector_norm(torch.arange(8.0), kind)
    torch.testing.assert_close(norm_of(weights(), kind, None, torch.device("cpu")), expected)


@pytest.mark.parametrize("kind", [0.0, -1.0, float("-inf"), float("nan")])
def test_a_norm_that_shares_cannot_give_is_refused(kind):
    with pytest.raises(ApplyError, match="use one above 0"):
        norm_of(weights(), kind, None, torch.device("cpu"))
