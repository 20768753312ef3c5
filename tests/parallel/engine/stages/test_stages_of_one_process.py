"""Stages that one process has: what it computes, changes and saves is that of the model."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from modular_converter.parallel import Training, derive_pipeline, parallelize
from modular_converter.parallel.engine.group.process_grid import ProcessGrid
from modular_converter.parallel.engine.stages import in_layout
from modular_converter.parallel.engine.stages.pipeline import Pipeline
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Layout
from modular_converter.parallel.pipeline.derive import pipeline_of_trace
from modular_converter.parallel.pipeline.flow import flow_of
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.trace.record import record
from tests.parallel.adapted import IDS, gpt2


@pytest.fixture(autouse=True)
def _alone():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Net(nn.Module):
    """Layers of which the first may count its calls, and results of layers that are written in place."""

    def __init__(self, counts=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.counts, self.calls = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), counts, 0

    def forward(self, x):
        if self.counts:
            self.calls += 1
        for layer in self.layers:
            x = layer(x).tanh()
        return x


class Scored(Net):
    """Its loss is a sum."""

    def forward(self, x, labels=None):
        x = super().forward(x)
        return x if labels is None else {"loss": (x - labels).pow(2).sum(), "out": x}


def test_the_loss_of_a_module_is_not_taken_on_trust_with_a_plan_of_a_smaller_one():
    x = torch.randn(4, 4)
    plan = derive_pipeline(Net(), (x,))
    stages = Pipeline(Scored(), chunks=2, device="cpu", plan=plan)
    with pytest.raises(ApplyError, match="the model's own loss may be no mean over parts of a batch"):
        stages.step(x, labels=x)
    with pytest.raises(ApplyError, match="a number that Scored returns, such as its loss"):
        Pipeline(Scored(), chunks=2, device="cpu", plan=plan, example_inputs=(x, x))
    assert Pipeline(Scored(), chunks=1, device="cpu", plan=plan).step(x, labels=x) > 0


def staged(model, **more):
    x = torch.randn(4, 4)
    loss = nn.functional.mse_loss
    return Pipeline(model, chunks=2, loss=loss, device="cpu", example_inputs={"x": x}, **more), x


def test_gradients_of_a_step_are_those_of_the_model_until_they_are_cleared():
    whole = Net()
    stages, x = staged(copy.deepcopy(whole))
    target = torch.ones(4, 4)
    want = nn.functional.mse_loss(whole(x), target)
    want.backward()
    stages.zero_grad()
    torch.testing.assert_close(stages.step(x, target=target), want.detach())
    found = [one.grad for one in stages.parameters()]
    torch.testing.assert_close(found, [one.grad for one in whole.parameters()])
    stages.zero_grad(set_to_none=False)
    assert all(one.grad is not None and not one.grad.any() for one in stages.parameters())
    stages.zero_grad()
    assert all(one.grad is None for one in stages.parameters())


def test_what_stages_cannot_do_is_told_with_what_can():
    stages, x = staged(Net())
    with pytest.raises(ApplyError, match=r"labels are for step\(\); a forward gives no loss"):
        stages(x=x, labels=x)
    with (
        torch.no_grad(),
        pytest.raises(ApplyError, match="a step computes gradients: call it outside of torch.no_grad"),
    ):
        stages.step(x, target=torch.ones(4, 4))
    with pytest.raises(AttributeError, match="counts would be set on the Pipeline, and on no stage"):
        stages.counts = True
    with pytest.raises(AttributeError, match="has no no_sync.*: a step sums the gradients of its micro-batches"):
        stages.no_sync()


def test_a_forward_that_counts_its_calls_is_refused():
    stages, x = staged(Net(counts=True))
    with pytest.raises(ApplyError, match="a forward set calls for each micro-batch"):
        stages.step(x, target=torch.ones(4, 4))


class Written(Net):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            x.add_(1.0)
        return x


def test_results_of_layers_that_are_written_in_place_are_noted():
    model, inputs = Written(), {"x": torch.randn(2, 4)}
    plan = pipeline_of_trace(record(model, inputs, "written"))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert flow_of(model, plan, inputs).changed == {"layers.0", "layers.1", "layers.2"}


@pytest.fixture
def in_stages(monkeypatch):
    """From a model of the library: its stages, all of which this process has."""
    group, data = ProcessGroup(None), init_device_mesh("cpu", (1,), mesh_dim_names=("dp_shard",))
    grid = ProcessGrid(group, group, None, data, Layout.parse("pp2"), torch.device("cpu"), dist.group.WORLD)
    monkeypatch.setattr(in_layout, "process_grid", lambda *args, **more: grid)
    return lambda model, **more: parallelize(model, layout="pp2", training=Training(chunks=1, **more), device="cpu")


def test_stages_generate_and_are_saved_as_the_model(in_stages, tmp_path):
    whole = gpt2()
    stages = in_stages(copy.deepcopy(whole))
    given = {"attention_mask": torch.ones_like(IDS), "max_new_tokens": 4, "do_sample": False}
    assert torch.equal(stages.generate(IDS, **given), whole.generate(IDS, **given))
    results = []
    for model in (stages, whole):
        torch.manual_seed(0)
        results.append(model.generate(IDS, **given | {"do_sample": True, "num_return_sequences": 2}))
    assert len(results[0]) == 2 * len(IDS) and torch.equal(*results)
    with pytest.raises(ApplyError, match="the batch has no rows"):
        stages.generate(IDS[:0], **given)
    assert stages.float().to("cpu") is stages
    stages.save_pretrained(tmp_path)
    found = type(whole).from_pretrained(tmp_path)
    torch.testing.assert_close(dict(found.state_dict()), dict(whole.state_dict()))


def test_stages_generate_with_a_cache_and_the_logits_of_the_last_position_alone(in_stages):
    whole, caches, lengths = gpt2(), [], []
    first = whole.transformer.h[0]
    first.register_forward_pre_hook(lambda _, args, more: caches.append(more["use_cache"]), with_kwargs=True)
    whole.lm_head.register_forward_pre_hook(lambda _, args: lengths.append(args[0].shape[1]))
    stages = in_stages(whole)
    caches.clear()
    lengths.clear()
    stages.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=2, do_sample=False)
    assert {*caches} == {True} and {*lengths} == {1}


def test_a_type_of_products_is_not_that_of_saved_weights(in_stages, tmp_path):
    whole = gpt2()
    stages = in_stages(copy.deepcopy(whole), compute_type="bf16")
    stages.save_pretrained(tmp_path)
    found = type(whole).from_pretrained(tmp_path)
    assert found.dtype == found.config.dtype == torch.float32
