"""The first rank decides in `generate` where ranks would decide differently."""

import pytest
import torch
import torch.distributed as dist


pytest.importorskip("transformers")
from transformers import LogitsProcessor, StoppingCriteria  # noqa: E402

from modular_converter.parallel import parallelize  # noqa: E402
from tests.parallel.engine.remote.test_proxy import IDS, llama  # noqa: E402


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


class StopsEarlyOnOne(StoppingCriteria):
    """As a clock would have it: the first rank stops after two tokens, the other never."""

    def __call__(self, input_ids, scores, **more):
        done = rank() == 0 and input_ids.shape[1] >= IDS.shape[1] + 2
        return torch.full((input_ids.shape[0],), done, dtype=torch.bool)


class OwnFavourite(LogitsProcessor):
    """As random numbers that are not torch's would have it: each rank prefers another token."""

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[:, 5 + rank()] += 1000.0
        return scores


def favourite(batch, ids):
    return [7 + rank()]


@pytest.fixture(scope="module")
def model(ranks):
    found = parallelize(llama(), session=ranks)
    yield found
    found._placement.end()


def test_ranks_stop_together(model):
    got = model.generate(IDS, max_new_tokens=9, stopping_criteria=[StopsEarlyOnOne()])
    assert got.shape[1] == IDS.shape[1] + 2


@pytest.mark.parametrize("more", [{}, {"num_beams": 2}])
def test_ranks_choose_the_same_tokens(model, more):
    got = model.generate(IDS, max_new_tokens=3, logits_processor=[OwnFavourite()], **more)
    assert got[:, IDS.shape[1] :].eq(5).all()
    got = model.generate(IDS, max_new_tokens=2, prefix_allowed_tokens_fn=favourite, **more)
    assert got[:, IDS.shape[1] :].eq(7).all()


def test_a_limit_of_time_ends_all_ranks(model):
    for seconds in (0.01, 0.013, 0.017, 0.02, 0.05):
        assert model.generate(IDS, max_new_tokens=200, max_time=seconds).shape[1] > IDS.shape[1]


def test_without_criteria_of_the_callers_own_nothing_is_asked(ranks, monkeypatch):
    from modular_converter.parallel.inference.generation import agreeing_methods

    class Asked(Exception):
        pass

    class Group:
        def from_first(self, verdict):
            raise Asked

    methods = agreeing_methods(type(llama()), Group())
    model = llama()
    for name, method in methods.items():
        monkeypatch.setattr(type(model), name, method)
    model.generate(IDS, max_new_tokens=2)
    with pytest.raises(Asked):
        model.generate(IDS, max_new_tokens=2, max_time=5.0)
