"""The comparison itself: equality, precision, and the refusal of an empty proof."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.compare import reference
from modular_converter.parallel.proof.on_ranks import check_model_on_threads


PAIR = Plan.parse("plan x\nrule up colwise\nrule down rowwise\n")


class Pair(nn.Module):
    """A column and a row layer; ``between`` is what stands between them."""

    def __init__(self, between=F.gelu, after=lambda x: x):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.between, self.after = between, after

    def forward(self, x):
        return self.after(self.down(self.between(self.up(x))))


INPUTS = {"x": torch.randn(3, 8, generator=torch.Generator().manual_seed(1))}


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_right_plan_passes_and_its_collectives_are_counted(ranks):
    verdict = check_model_on_threads(Pair(), PAIR, INPUTS, ranks)
    assert verdict.passed and verdict.collectives == 1 and not verdict.evidence.unproven


def test_ranks_draw_the_same_random_numbers():
    noisy = Pair(after=lambda x: x + torch.randn(x.shape) + torch.rand(x.shape))
    assert check_model_on_threads(noisy, PAIR, INPUTS, 4).passed


def test_outputs_that_are_not_finite_prove_nothing():
    verdict = check_model_on_threads(Pair(after=lambda x: x / 0), PAIR, INPUTS, 2)
    assert not verdict.passed and "not finite" in verdict.reason


@pytest.mark.parametrize("number", [lambda up: up.shape[-1], lambda up: [float(up.detach().norm())]])
def test_a_number_of_a_share_among_the_outputs_is_refused(number):
    class Counted(Pair):
        def forward(self, x):
            return {"hidden": super().forward(x), "number": number(self.up(x))}

    verdict = check_model_on_threads(Counted(), PAIR, INPUTS, 2)
    assert not verdict.passed and "output 1 differs" in verdict.reason


def test_a_weight_that_no_gradient_reaches_is_named():
    verdict = check_model_on_threads(Pair(after=lambda x: x.detach() + x.sum() * 0), PAIR, INPUTS, 2)
    assert set(verdict.evidence.unproven) == {"up.weight", "up.bias", "down.weight"}


class Keeping(Pair):
    """Keeps a number that it computes from a weight in its first call."""

    def __init__(self, keep, kept):
        super().__init__()
        self.extra, self.keep, self.kept = nn.Linear(8, 8), keep, kept

    def forward(self, x):
        if not self.kept:
            self.keep(self, self.extra(torch.ones(8)).mean().detach())
        number = self.kept if torch.is_tensor(self.kept) else [*self.kept, *getattr(self.kept, "values", list)()][-1]
        return super().forward(x) + number


KEPT = {
    "attribute": (lambda model, number: setattr(model, "kept", number), None),
    "dictionary": (lambda model, number: model.kept.update(number=number), {}),
    "list": (lambda model, number: model.kept.append(number), []),
}


@pytest.mark.parametrize("form", KEPT)
def test_a_value_that_a_model_keeps_is_computed_anew_on_each_rank(form):
    wrong = Plan.parse(f"{PAIR}rule extra colwise\n")
    verdict = check_model_on_threads(Keeping(*KEPT[form]), wrong, INPUTS, 2)
    assert not verdict.passed and verdict.layer == "the outputs"
    right = check_model_on_threads(Keeping(*KEPT[form]), PAIR, INPUTS, 2)
    assert right.passed and not right.evidence.idle


def test_a_missing_output_is_a_difference():
    class Shorter(Pair):
        def forward(self, x):
            found = self.down(F.gelu(self.up(x)))
            return (found, found) if self.up.weight.shape[0] == 16 else (found,)

    assert "1 outputs instead of 2" in check_model_on_threads(Shorter(), PAIR, INPUTS, 2).reason


def test_a_backward_that_fails_leaves_the_outputs():
    class NoBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("no backward")

    found = reference(Pair(after=NoBackward.apply), INPUTS)
    assert len(found.outputs) == 1 and not found.gradients


def test_integers_alone_are_not_compared():
    verdict = check_model_on_threads(Pair(after=lambda x: x.argmax(-1)), PAIR, INPUTS, 2)
    assert verdict.reason == "no floating output to compare"


def test_random_states_of_gpus_are_left_alone(monkeypatch):
    model = Pair()
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("a check has seeded the GPUs"))
    assert check_model_on_threads(model, PAIR, INPUTS, 2).passed


def test_a_proof_leaves_no_graph_in_memory():
    class Twice(Pair):
        def forward(self, x):
            return super().forward(super().forward(x))

    def tensors():
        gc.collect()
        return sum(isinstance(one, torch.Tensor) for one in gc.get_objects())

    assert check_model_on_threads(Twice(), PAIR, INPUTS, 2).passed
    before = tensors()
    for after in (lambda x: x, lambda x: x / 0):  # proven and refused
        check_model_on_threads(Twice(after=after), PAIR, INPUTS, 2)
    assert tensors() <= before
