"""Dropout of a model that two processes share out, seen from the first."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from modular_converter.parallel.choice.skeleton import skeleton_of
from modular_converter.parallel.engine.base import dropout
from modular_converter.parallel.engine.base.dropout import SharedDropout, _Watch
from modular_converter.parallel.errors import ApplyError


@pytest.fixture
def first_of_two(monkeypatch):
    monkeypatch.setattr(dropout.dist, "get_world_size", lambda group=None: 2)
    monkeypatch.setattr(dropout.dist, "get_rank", lambda group=None: 0)
    monkeypatch.setattr(dropout.dist, "broadcast", lambda *args, **kwargs: None)


def net(rate):
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(rate), nn.Linear(4, 4), nn.Dropout(rate))


def hooks(model):
    return sum(len(one._forward_pre_hooks) for one in model.modules())


def test_each_dropout_has_a_place():
    model, places = net(0.5), []
    watch = _Watch(lambda place, tensor: places.append(place), 0)
    watch.attach(model)
    model(torch.ones(2, 4))
    assert places == [("1", 1), ("3", 1)] and not watch.stack
    watch.detach()
    assert hooks(model) == 0


def test_whole_tensors_lose_what_one_device_loses(first_of_two):
    model, alone = net(0.5), net(0.5)
    alone.load_state_dict(model.state_dict())
    shared = SharedDropout(model, skeleton_of(model), None, torch.device("cpu"))
    torch.manual_seed(1)
    want = alone(torch.ones(8, 4))
    torch.manual_seed(1)
    assert torch.equal(model(torch.ones(8, 4)), want)
    shared.detach()
    assert hooks(model) == 0


def test_a_model_without_dropout_is_hardly_watched_and_a_rate_that_is_set_later_is_seen(first_of_two):
    model, parts = net(0.0), SimpleNamespace()
    shared = SharedDropout(model, skeleton_of(model), None, torch.device("cpu"), parts=parts)
    assert hooks(model) == 5
    model(torch.ones(2, 4))
    assert shared.resting and hooks(model) == 3  # the model, and what has no weights
    parts.before_part()
    model[1].p = 0.5
    with pytest.raises(ApplyError, match="a rate of dropout was set after parallelize"):
        parts.before_part()
    model(torch.ones(2, 4))
    assert not shared.resting and hooks(model) == 5
    parts.before_part()


def test_other_processes_are_not_asked_without_parts(first_of_two):
    model = net(0.0)
    shared = SharedDropout(model, skeleton_of(model), None, torch.device("cpu"))
    model(torch.ones(2, 4))
    assert not shared.resting and hooks(model) == 5


class Doubled(nn.Module):
    def forward(self, x):
        return x if x.is_meta else x.repeat(2, 2)


def test_dropout_of_a_tensor_of_which_nobody_knows_what_it_is_a_share_of_is_refused(first_of_two):
    model = nn.Sequential(nn.Linear(4, 4), Doubled(), nn.Dropout(0.5))
    SharedDropout(model, skeleton_of(model), None, torch.device("cpu"))
    with pytest.raises(
        ApplyError, match=r"2: its dropout acts on a tensor of \(4, 8\), which may be whole or a share"
    ):
        model(torch.ones(2, 4))


def test_dropout_in_code_that_is_not_watched_is_refused(first_of_two):
    model = net(0.5)
    shared = SharedDropout(model, skeleton_of(model), None, torch.device("cpu"), watched=False)
    with pytest.raises(ApplyError, match="dropout in compiled layers"):
        model(torch.ones(2, 4))
    model.eval()(torch.ones(2, 4))
    shared.detach()
    model.train()(torch.ones(2, 4))
    model = net(0.0)
    SharedDropout(model, skeleton_of(model), None, torch.device("cpu"), watched=False)
    model(torch.ones(2, 4))


@pytest.mark.parametrize("causal", [True, False])
def test_attention_of_a_share_of_the_heads_looks_where_it_may(causal):
    query, key, value = torch.randn(3, 2, 2, 5, 4).unbind()
    want = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
    model = nn.Identity()
    model.forward = lambda x: nn.functional.scaled_dot_product_attention(x, key, value, None, 1e-30, causal)
    watch = _Watch(lambda place, tensor: (1, (0, 2, 4)), 0)
    watch.attach(model)
    torch.testing.assert_close(model(query), want)


@pytest.mark.parametrize("generator", [None, torch.Generator()])
def test_a_process_takes_over_the_first_ones_random_state_for_a_while(monkeypatch, generator):
    first = torch.Generator().manual_seed(7)
    monkeypatch.setattr(dropout.dist, "broadcast", lambda sent, **group: sent.copy_(first.get_state()))
    with torch.random.fork_rng(devices=[]):
        (generator or torch).manual_seed(5)
        own = torch.Generator().manual_seed(5)
        leave = dropout.draw_as_first(None, torch.device("cpu"), generator)
        assert torch.equal(torch.rand(3, generator=generator), torch.rand(3, generator=first))
        leave()
        assert torch.equal(torch.rand(3, generator=generator), torch.rand(3, generator=own))
