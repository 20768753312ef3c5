"""The verdict on results of transformers' loader, with a fake loader: each kind of wrong result is refused."""

import pytest
import torch
from torch import nn


pytest.importorskip("transformers")
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.compare import reference  # noqa: E402
from modular_converter.parallel.proof.on_ranks import (  # noqa: E402  # noqa: E402
    IMPLEMENTATIONS,
    check_library,
    check_library_experts,
    check_loaded,
)
from modular_converter.parallel.tiny.build import Small  # noqa: E402


INPUTS = {"x": torch.randn(3, 8, generator=torch.Generator().manual_seed(1))}


class Model(nn.Module):
    """Two layers; ``after`` is done to the output. ``loaders`` make the model that is loaded: with ranks, and without."""

    tp_plan, ep_plan = {}, {}
    loaders = ()

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.after = lambda x: x

    def forward(self, x):
        return self.after(self.down(torch.relu(self.up(x))))

    @classmethod
    def from_pretrained(cls, folder, distributed_config=None):
        model = cls()
        cls.loaders[distributed_config is None](model, distributed_config)
        return model


def small_with(change, plain=lambda model, config: None, after=None):
    kind = type("Loaded", (Model,), {"loaders": (change, plain)})
    small = Small("x", "", kind(), INPUTS)
    small.model.after = after or small.model.after
    return small


def as_it_is(model, config):
    pass


def with_after(after):
    return lambda model, config: setattr(model, "after", after)


def twice_the_gradient(model, config):
    model.up.weight.register_hook(lambda gradient: 2 * gradient)


@pytest.mark.parametrize("check", ["given", "committed"])
def test_equal_numbers_pass_and_the_place_is_said(check):
    small = small_with(as_it_is)
    whole = reference(small.model, INPUTS)
    given = check_library("", small, Plan("x"), 2, whole)
    verdict = given if check == "given" else check_loaded("", small, "auto", 2, whole)
    assert verdict.passed and verdict.output_error == verdict.gradient_error == 0.0
    assert verdict.evidence.places == ("transformers' loader",) and verdict.evidence.ranks == (2,)


@pytest.mark.parametrize(
    "change, layer, said",
    [
        (with_after(lambda x: x * 1.01), "the outputs", "differ by 0.01"),
        (with_after(lambda x: x * (1.01 if torch.is_grad_enabled() else 1)), "the outputs", "differ by 0.01"),
        (with_after(lambda x: x * (1 if torch.is_grad_enabled() else 1.01)), "the outputs", "differ by 0.01"),
        (with_after(lambda x: x * torch.nan), "the outputs", "differ by inf"),
        (with_after(lambda x: 1 // 0), "", "ZeroDivisionError"),
        (with_after(lambda x: x.detach()), "up.weight", "differs by inf"),
        (twice_the_gradient, "up.weight", "the gradient of up.weight through transformers' loader differs by 1"),
    ],
)
def test_what_the_loader_gets_wrong_is_named(change, layer, said):
    small = small_with(change)
    verdict = check_library("", small, Plan("x"), 2, reference(small.model, INPUTS))
    assert not verdict.passed and verdict.layer == layer and said in verdict.reason


def test_what_loading_alone_changes_is_no_fault_of_a_plan():
    twice = with_after(lambda x: 2 * x)
    small = small_with(twice, twice)
    assert check_library("", small, Plan("x"), 2, reference(small.model, INPUTS)).passed


@pytest.mark.parametrize("factor, said", [(0.0, "nothing but zeros"), (torch.nan, "not finite")])
def test_a_model_without_telling_outputs_proves_nothing(factor, said):
    small = small_with(with_after(lambda x: x * factor), after=lambda x: x * factor)
    whole = reference(small.model, INPUTS)
    for verdict in (
        check_library("", small, Plan("x"), 2, whole),
        check_library_experts("", small, Plan("x"), 2, whole),
    ):
        assert not verdict.passed and said in verdict.reason


def test_a_model_without_gradients_is_compared_by_its_outputs():
    small = small_with(with_after(lambda x: x.detach()), after=lambda x: x.detach())
    assert check_library("", small, Plan("x"), 2, reference(small.model, INPUTS)).passed


@pytest.mark.parametrize("wrong", [None, *IMPLEMENTATIONS])
def test_experts_are_run_in_each_way_of_the_loader(wrong):
    def change(model, config):
        if config.ep_implementation == wrong:
            model.after = lambda x: x * 1.01

    small = small_with(change)
    verdict = check_library_experts("", small, Plan("x"), 2, reference(small.model, INPUTS))
    assert verdict.passed == (wrong is None)
    assert wrong is None or f"through ep_implementation='{wrong}', without gradients" in verdict.reason


def test_experts_are_run_with_gradients_too():
    small = small_with(with_after(lambda x: x * (1.01 if torch.is_grad_enabled() else 1)))
    verdict = check_library_experts("", small, Plan("x"), 2, reference(small.model, INPUTS))
    assert verdict.layer == "the outputs" and "with gradients they differ by 0.01" in verdict.reason


def test_what_the_loader_of_experts_raises_is_a_refusal():
    small = small_with(with_after(lambda x: 1 // 0))
    verdict = check_library_experts("", small, Plan("x"), 2, reference(small.model, INPUTS))
    assert not verdict.passed and "ep_implementation='auto': ZeroDivisionError" in verdict.reason
