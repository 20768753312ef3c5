"""One run of a model: which outputs have a backward, where gradients start, and where a run has failed."""

import pytest
import torch
from torch import nn

from modular_converter.parallel.proof.compare import _last_calls, failed_in, reference, run_model
from modular_converter.parallel.proof.judge import judge
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from tests.parallel.proof.test_compare import INPUTS, PAIR, Pair


def many(count, wrong=-1):
    """A pair with so many outputs, each its own function of the result; one of them has half its gradient."""

    def after(x):
        outputs = [torch.sin((number + 1) * x) * 10.0**number for number in range(count)]
        if wrong >= 0:
            outputs[wrong] = (outputs[wrong] + outputs[wrong].detach()) / 2
        return outputs

    return Pair(after=after)


@pytest.mark.parametrize("count", [1, 5, 6, 7, 9])
def test_each_output_has_a_backward_and_the_last_of_many_share_one(count):
    whole = reference(many(count), INPUTS)
    assert len(whole.outputs) == len(whole.scales) == count and len(whole.gradients) == min(count, 6)
    for number in range(count):
        found = run_model(many(count, number), INPUTS, scales=whole.scales)
        verdict = judge(found, whole, 2)
        assert not verdict.passed and verdict.layer == "up.weight" and verdict.output_error < 1e-6
    assert judge(run_model(many(count), INPUTS, scales=whole.scales), whole, 2).passed
    assert len(run_model(many(count), INPUTS, together=True).gradients) == 1
    assert run_model(many(count), INPUTS, gradients=False).gradients == []


def test_an_output_that_is_given_twice_has_one_backward_and_integers_have_none():
    whole = reference(Pair(after=lambda x: (x, {"again": x, "ids": x.argmax(-1), "fixed": x.detach()})), INPUTS)
    assert len(whole.outputs) == 4 and len(whole.gradients) == len(whole.scales) == 1
    assert set(whole.gradients[0]) == {"up.weight", "up.bias", "down.weight", "down.bias"}


def test_entries_that_are_not_finite_start_no_gradient():
    masked = reference(Pair(after=lambda x: torch.where(x > 0.1, x, -torch.inf)), INPUTS)
    assert masked.gaps == () and all(g.isfinite().all() for g in masked.gradients[0].values())
    assert any(g.abs().max() > 0 for g in masked.gradients[0].values())


class Stages(nn.Module):
    """The gradient of the last stage is not finite, nor is that of the one before if it is asked for."""

    def __init__(self, also_before=False):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))
        self.also_before = also_before

    def forward(self, x):
        x = self.second(torch.relu(self.first(x)))
        x = self.third(spoiled(x) if self.also_before else x)
        return spoiled(x)


def spoiled(x):
    """Its numbers, with a gradient of NaN."""
    return torch.where(x > 100, torch.sqrt(x - 100), x)


def test_gradients_start_at_the_last_module_that_gives_finite_ones():
    whole = reference(Stages(), INPUTS)
    assert whole.start == "third" and {name.partition(".")[0] for name in whole.gradients[0]} == {
        "first",
        "second",
        "third",
    }
    assert whole.gaps == ("gradients of what follows third: they are not finite",)
    before = reference(Stages(also_before=True), INPUTS)
    assert before.start == "second" and {name.partition(".")[0] for name in before.gradients[0]} == {
        "first",
        "second",
    }


def test_gradients_that_are_finite_nowhere_are_counted():
    model = Pair(after=spoiled)
    model.up.register_forward_hook(lambda module, args, result: spoiled(result))
    model.down.register_forward_hook(lambda module, args, result: spoiled(result))
    found = reference(model, INPUTS)
    assert found.start == "" and found.gaps == ("gradients of 4 weights: they are not finite",)


def test_the_modules_whose_forwards_ended_last_are_the_first_to_try():
    layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(12)])
    assert _last_calls(layers, {"input": INPUTS["x"]}) == [str(number) for number in range(11, 3, -1)]

    class Again(Pair):
        def forward(self, x):
            return self.up(super().forward(x))

    assert _last_calls(Again(), INPUTS) == ["up", "down"]


def test_a_model_whose_backward_fails_says_so():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise NotImplementedError

    found = reference(Pair(after=Fails.apply), INPUTS)
    assert found.gaps == ("gradients: the model's own backward fails",) and found.gradients == []
    assert check_model_on_threads(Pair(after=Fails.apply), PAIR, INPUTS, 2).passed


def test_the_innermost_module_that_ran_is_named():
    class Half(nn.Module):
        def forward(self, x):
            if x.shape[-1] < 16:
                raise KeyError("half")
            return x

    pair = Pair()
    pair.inner = nn.Sequential(nn.Identity(), Half())
    model = nn.Sequential(pair)
    try:
        pair.inner(torch.ones(3))
    except KeyError as error:
        assert failed_in(error, model) == "0.inner.1" and failed_in(error, nn.Identity()) == "Sequential"
    assert failed_in(KeyError(), model) == ""


def test_what_a_module_keeps_is_let_go_and_weights_stay_as_they_are():
    class Keeps(Pair):
        def forward(self, x):
            self.kept = super().forward(x)
            with torch.no_grad():
                self.up.weight.mul_(0.5)
            return self.kept

    model = Keeps()
    before = model.up.weight.detach().clone()
    whole = reference(model, INPUTS)
    assert not hasattr(model, "kept") and torch.equal(model.up.weight, before) and whole.gradients
    assert all(parameter.grad is None for parameter in model.parameters())
