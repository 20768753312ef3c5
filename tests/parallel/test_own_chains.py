"""Plans and stages of modules without a configuration, from example inputs: what they answer and train is the module's."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import skip_init

from modular_converter.parallel import Pipeline, derive, derive_pipeline, parallelize
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from tests.parallel.launch import line_of
from tests.parallel.own_chains import CHAINS, AddingBlock, Again, Chain, Inner, Parts, leading, made, rows


SCRIPT = "tests/parallel/own_chains_script.py"


@pytest.mark.slow
def test_two_processes_answer_and_train_as_one():
    numbers = line_of(2, SCRIPT, "Pipeline,tp2,pp2", ",".join(CHAINS))
    assert len(numbers) == 3 * len(CHAINS)
    for name, (output, losses, weights, share, count) in numbers.items():
        assert max(output, losses, weights) < 1e-6, name
        assert count > 0 and (share < 0.95 or name == "tp2 tied"), (name, share)


@pytest.mark.slow
def test_four_processes_answer_and_train_as_one():
    found = line_of(4, SCRIPT, "pp2.tp2", "chain,tied,sequential")
    for name, (output, losses, weights, share, _) in found.items():
        assert max(output, losses, weights) < 1e-6 and share < 0.6, name


def test_errors_say_what_to_write():
    two = line_of(2, SCRIPT)
    said = two["said"]
    assert abs(two["own loss"]) < 1e-6 and two["integers"] == 0
    assert "a row of what Centred returns depends on the other rows of its batch" in said["mixed rows"]
    assert "and data ranks have fewer rows" in said["mixed with data ranks"]
    assert "and data ranks have fewer rows" in said["mixed in the first batch"]
    assert "and data ranks have fewer rows" in said["handed to mixed rows"]
    assert said["alone in the first batch"] == "no error: [1, 4, 4]"
    assert "the model's own loss may be no mean over parts of a batch" in said["untried loss"]
    assert "Any was given 1 inputs in order, and its plan was derived and proven with 2" in said["other number"]
    assert "a forward set calls for each micro-batch" in said["counts"]
    assert "layers.0.up.weight (float64) and layers.0.down.weight (float32): data ranks sum" in said["types"]
    assert "the model returns a Tensor without a loss: give Pipeline, or Training(…), a loss=" in said["no loss"]
    assert "cannot be cut into stages: no list of modules runs in sequence" in said["no layers"]
    assert "give example_inputs=, the arguments of one forward, or a plan" in said["nothing given"]
    assert "derive_pipeline(small, inputs)" in said["nothing given"]
    assert "plan= is a str: stages need a PipelinePlan" in said["wrong plan"]
    assert "2 inputs in order: the forward takes x" in said["too many"]
    assert "multiple values for argument 'x'" in said["twice"]
    assert said["repr"] == (
        "Pipeline(Chain, 2 stages of 1 + 3 layers of layers, 1F1B, 2 micro-batches; here stage 0 with layers 0 to 0)"
    )


@pytest.mark.parametrize("name", CHAINS)
def test_the_plan_is_proven_and_its_text_gives_it_back(name):
    module, inputs = made(name)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    plan = derive_pipeline(module, inputs)
    assert PipelinePlan.parse(str(plan)) == plan == PipelinePlan.from_json(plan.to_json())
    assert all((module.state_dict()[key] == value).all() for key, value in before.items())
    if name in ("any", "in order"):
        return
    by_name = dict(zip(["ids"] if name == "tied" else ["input"] if name == "sequential" else ["x", "mask"], inputs))
    assert derive_pipeline(module, by_name) == plan


@pytest.mark.parametrize(
    "module, inputs, said",
    [
        (Parts(), (rows(),), "no list of modules runs in sequence"),
        (Again(), (rows(),), r"`layers\.\d` runs more than once, so that its weights would be on several stages"),
        (nn.Linear(8, 3), (rows(),), "no list of modules runs in sequence"),
        (nn.Sequential(nn.ReLU(), nn.Tanh()), (rows(),), "no list of modules|has no parameters"),
        (Chain(AddingBlock), (rows(),), "other numbers than whole: .*let them make new tensors"),
        (Chain(), (rows(), rows()), "these inputs do not fit its forward: too many positional arguments"),
        (Chain(), {"y": rows()}, "these inputs do not fit its forward: missing a required argument: 'x'"),
        (Chain(), (torch.zeros(8, 9),), "Chain: forward fails"),
        (
            nn.Sequential(nn.Linear(8, 10_000), skip_init(nn.Linear, 10_000, 8000)),
            (rows(),),
            "more than 30 M .* smaller instance",
        ),
        (Chain().to("meta"), (rows(),), "give an instance on the CPU"),
    ],
)
def test_no_chain_is_refused_with_the_reason(module, inputs, said):
    with pytest.raises(PlanError, match=said):
        derive_pipeline(module, inputs)


def test_a_branch_on_an_argument_that_no_run_has_is_refused(ranks):
    module = Inner().eval()
    inputs = rows()
    with torch.no_grad():
        want, doubled = module(inputs), module(inputs, doubled=True)
    parallelize(module, session=ranks, example_inputs=inputs)
    try:
        assert torch.allclose(module(inputs), want, atol=1e-6)
        assert torch.allclose(module(inputs, doubled=True), doubled, atol=1e-6)  # proven in a run of its own
    finally:
        module.cpu()


@pytest.mark.parametrize("name", CHAINS)
def test_one_call_derives_proves_and_applies(ranks, name):
    module, inputs = made(name)
    with torch.no_grad():
        want = leading(module.eval()(*inputs))
    before = {key: value.clone() for key, value in module.state_dict().items()}
    parallelize(module, session=ranks, example_inputs=inputs)
    try:
        assert torch.allclose(leading(module(*inputs)), want, atol=1e-5)
        shorter = tuple(one[:3] for one in inputs)
        assert torch.allclose(leading(module(*shorter)), want[:3], atol=1e-5)
    finally:
        module.cpu()
    assert all((module.state_dict()[key] == value).all() for key, value in before.items())


@pytest.mark.parametrize(
    "module, given, said",
    [
        (Chain(), {"example_inputs": (rows(), rows())}, "these inputs do not fit its forward"),
        (Chain(), {"example_inputs": {"z": rows()}}, "these inputs do not fit its forward"),
        (Chain(), {}, "give example_inputs=, the arguments of one forward, or a plan as plan="),
        ("folder", {"example_inputs": (rows(),)}, "example_inputs= is for a module without a configuration"),
        (nn.Sequential(nn.ReLU()), {"example_inputs": (rows(),)}, "has no plan: nothing can be sharded"),
    ],
)
def test_wrong_examples_are_told(ranks, module, given, said):
    with pytest.raises(PlanError, match=said):
        parallelize(module, session=ranks, **given)


def test_a_model_of_transformers_needs_no_examples(ranks):
    from modular_converter.parallel.tiny.build import build, target_of

    small = build(target_of("gpt2", "causal"))
    with pytest.raises(PlanError, match="example_inputs= is for a module without a configuration of transformers"):
        parallelize(small.model, session=ranks, example_inputs=small.inputs)


def test_both_derivations_take_the_same_inputs():
    module, inputs = made("chain")
    assert derive(module, inputs).plan.rules and derive(module, {"x": inputs[0]}).plan == derive(module, inputs).plan
    assert Pipeline.__init__.__kwdefaults__["example_inputs"] is None
