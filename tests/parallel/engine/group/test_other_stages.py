"""Weights of other stages: code that treats each weight alone runs, and what needs their numbers is refused."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch

from modular_converter.parallel.engine.group.share_tensors import of_other_stage, without_other_stages
from modular_converter.parallel.errors import ApplyError


def weights() -> list[Any]:
    own = torch.nn.Parameter(torch.ones(3, 4))
    return [own, of_other_stage("layers.1.weight", torch.nn.Parameter(torch.ones(4, 2)), torch.device("cpu"))]


def test_facts_and_what_treats_each_weight_alone() -> None:
    own, other = given = weights()
    assert sum(one.numel() for one in given) == 20 and [len(one) for one in given] == [3, 4]
    assert other.is_meta and {one.device for one in given} == {torch.device("cpu")}
    averages = [one.detach().clone() for one in given]
    with torch.no_grad():
        for average, one in zip(averages, given):
            one.mul_(0.5)
            average.lerp_(one, 0.5)
    assert own.eq(0.5).all() and averages[0].eq(0.75).all()
    assert averages[1].shape == (4, 2) and copy.deepcopy(other).shape == (4, 2)
    for one in given:
        one.grad = None
        one.requires_grad_(False)
    assert not other.requires_grad


@pytest.mark.parametrize(
    "code",
    [
        "other.grad",
        "other.norm()",
        "averages[0].abs().max()",
        "float(other.detach().square().sum())",
        "torch.nn.utils.parameters_to_vector([own, other])",
        "torch.stack([own.norm(), *averages])",
        "torch._foreach_norm(averages)",
        "torch.equal(other, other)",
        "bool(torch.isfinite(other).all())",
        "other.cpu()",
        "other.data_ptr()",
        "torch.save(other, io.BytesIO())",
    ],
)
def test_what_needs_numbers_is_refused(code: str) -> None:
    own, other = weights()
    averages = [other.detach().clone()]
    with pytest.raises(ApplyError, match=r"layers\.1\.weight is a weight of another process's stage"):
        eval(code, {"own": own, "other": other, "averages": averages, "torch": torch, "io": io})


@pytest.mark.parametrize(
    "draw",
    [
        torch.randn_like,
        torch.nn.init.xavier_uniform_,
        torch.nn.init.kaiming_normal_,
        lambda one: torch.nn.init.constant_(one, 0.5),
        lambda one: one.normal_(0.0, 0.2),
        lambda one: torch.nn.init.normal_(tensor=one, std=0.2),
    ],
)
def test_what_is_drawn_next_is_what_one_process_draws(draw: Any) -> None:
    _, other = weights()
    states = []
    for one in (other, torch.nn.Parameter(torch.ones(4, 2))):
        torch.manual_seed(1)
        with torch.no_grad():
            found = draw(one)
        assert found.shape == (4, 2) and found.is_meta == one.is_meta
        states.append(torch.rand(3))
    assert torch.equal(*states)
    with pytest.raises(ApplyError):
        draw(other).norm()


@pytest.mark.parametrize("named", [False, True])
def test_an_optimizer_gets_the_weights_of_this_process(named: bool) -> None:
    own, other = weights()
    optimizer = torch.optim.SGD([own], lr=0.1)
    params = iter([("a", own), ("b", other)]) if named else [own, other]
    seen: list[Any] = []
    without_other_stages((), lambda _, group: seen.append(group), optimizer, {"params": params, "lr": 1.0})
    ((one,), rate) = seen[0]["params"], seen[0]["lr"]
    assert (one[1] if named else one) is own and rate == 1.0
    for alone in own, other, {own}:
        without_other_stages((), lambda _, group: seen.append(group), optimizer, {"params": alone})
    (kept,) = seen[1]["params"]
    assert kept is own and seen[2]["params"] == [] and seen[3]["params"] == {own}
