"""Memory that goes back to the system in pieces: only that of large tensors which nobody else can see."""

import numpy
import pytest
import torch

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.remote import place_on_ranks
from modular_converter.parallel.engine.remote.place_on_ranks import empty_rows, is_alone
from modular_converter.parallel.errors import PlanError
from tests.parallel.troubled import PLAN, Troubled


pytestmark = pytest.mark.skipif(place_on_ranks._advise() is None, reason="no madvise")
ROWS, WIDTH = 512, 1024


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(place_on_ranks, "LARGE_BYTES", ROWS * WIDTH * 4)


def large():
    return torch.nn.Parameter(torch.ones(ROWS, WIDTH))


def test_a_large_tensor_of_its_own_is_alone():
    assert is_alone(large())
    assert not is_alone(torch.ones(ROWS - 1, WIDTH))


def alias(weight):
    return weight.detach()[1:]


def shared(weight):
    weight.detach().share_memory_()


def transposed(weight):
    weight.data = torch.ones(WIDTH, ROWS).t()


def sliced(weight):
    weight.data = torch.ones(ROWS + 1, WIDTH)[1:]


def of_numpy(weight):
    weight.data = torch.from_numpy(array := numpy.ones((ROWS, WIDTH), dtype=numpy.float32))
    return array


@pytest.mark.parametrize("seen", [alias, shared, transposed, sliced, of_numpy])
def test_what_others_see_is_not(seen):
    weight = large()
    kept = seen(weight)
    assert not is_alone(weight)
    del kept


@pytest.mark.parametrize("first, last", [(0, ROWS), (3, 200), (5, 6)])
def test_only_these_rows_lose_their_content(first, last):
    weight = large().detach()
    empty_rows(weight, first, last)
    assert bool((weight[:first] == 1).all()) and bool((weight[last:] == 1).all())
    if last - first > 1:
        assert not bool(weight[first + 1 : last - 1].any())


@pytest.fixture
def torn(monkeypatch):
    """Handing over in pieces of a page, each emptied; the rows that were."""
    rows = []

    def noted(tensor, first, last):
        rows.append((first, last))
        empty_rows(tensor, first, last)

    monkeypatch.setattr(place_on_ranks, "LARGE_BYTES", 4 << 16)
    monkeypatch.setattr(place_on_ranks, "slot_bytes", lambda items: 1 << 16)
    monkeypatch.setattr(place_on_ranks, "empty_rows", noted)
    return rows


def test_a_model_that_is_emptied_while_it_is_handed_over_is_the_same_on_the_ranks(ranks, torn):
    model, x = Troubled(width=256).eval(), torch.randn(3, 256)
    want = model(x)
    parallelize(model, plan=PLAN, session=ranks)
    assert torn and torch.allclose(model(x), want, atol=1e-4)
    model.cpu()
    assert torch.allclose(model(x), want, atol=1e-6)


def test_what_was_torn_when_handing_over_failed_is_gone_and_not_wrong(ranks, torn, monkeypatch):
    model = Troubled(width=256)

    def interrupted(*rows):
        empty_rows(*rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(place_on_ranks, "empty_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        parallelize(model, plan=PLAN, session=ranks)
    assert any(parameter.numel() == 0 for parameter in model.parameters())
    with pytest.raises(PlanError, match="load it again"):
        parallelize(model, plan=PLAN, session=ranks)
