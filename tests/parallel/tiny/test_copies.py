"""Copies of models share nothing with them, and keep what is one object in two places."""

from __future__ import annotations

import abc
import copy

import torch

from modular_converter.parallel.tiny.build import _is_plain_module, copy_of


class Numbers:
    def __init__(self) -> None:
        self.sizes = [2, 3]


class Own(torch.nn.Module):
    def __deepcopy__(self, memo: dict[int, object]) -> Own:
        made = Own()
        made.count = getattr(self, "count", 0) + 1
        return made


class Net(torch.nn.Module, abc.ABC):
    def __init__(self) -> None:
        super().__init__()
        self.config = Numbers()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.last.weight = self.first.weight
        self.conv, self.own = torch.nn.Conv1d(2, 2, 1), Own()
        self.again = [self.first, (self.config, {"seen"}), {self.config: None}]
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.first.config = self.config
        self.first.register_forward_hook(double)


def double(module: torch.nn.Module, args: object, result: torch.Tensor) -> torch.Tensor:
    return 2 * result


def test_a_copy_has_the_same_numbers_and_shares_nothing():
    model, x = Net(), torch.randn(2, 4)
    made = copy_of(model)
    assert torch.equal(made.first(x), model.first(x)) and made.first.weight is not model.first.weight
    with torch.no_grad():
        made.first.weight.zero_()
        made.table.zero_()
    made.config.sizes.append(4)
    made.first._forward_hooks.clear()
    made.again[1][1].add("more")
    assert model.first.weight.any() and model.table.any() and model.config.sizes == [2, 3]
    assert model.first._forward_hooks and model.again[1][1] == {"seen"}


def test_what_is_one_object_stays_one():
    made = copy_of(Net())
    assert made.last.weight is made.first.weight and made.again[0] is made.first
    assert made.first.config is made.config is made.again[1][0] is next(iter(made.again[2]))


def test_a_copy_has_all_that_a_deep_copy_has():
    model = Net().eval()
    made, usual = copy_of(model), copy.deepcopy(model)
    assert made.own.count == usual.own.count == 1
    for one, other in zip(made.modules(), usual.modules(), strict=True):
        assert type(one) is type(other) and list(vars(one)) == list(vars(other))
        assert {name: type(value) for name, value in vars(one).items()} == {n: type(v) for n, v in vars(other).items()}
    assert _is_plain_module(Net)  # `abc.ABC` has slots, but none of a name
    assert not made.training and made._non_persistent_buffers_set == {"table"}
