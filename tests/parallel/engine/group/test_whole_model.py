"""Whole weights of a model on processes, seen from one process: what is saved, loaded, printed and left behind."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.group import in_process_group
from modular_converter.parallel.engine.group.spread import Spread
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.shard.collectives import ProcessGroup


@pytest.fixture(autouse=True)
def _alone():
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def here(model, **more):
    return parallelize(model, layout="tp1", device="cpu", **{"plan": "plan x\n"} | more)


def test_a_model_that_is_whole_again_is_of_its_class_and_on_no_device():
    model = here(net())
    assert type(model) is not nn.Sequential and model.memory_allocated()["cpu"] > 0
    assert model.unshard() is model and type(model) is nn.Sequential
    assert model.memory_allocated() == {} == model.memory_reserved()
    assert here(model).memory_allocated()["cpu"] > 0


def test_a_model_or_a_part_of_one_is_sharded_once():
    model = here(net())
    with pytest.raises(ApplyError, match="the model is sharded already"):
        here(model)
    with pytest.raises(ApplyError, match="1 is sharded already"):
        here(nn.Sequential(nn.Linear(3, 3), model))


def test_the_share_and_the_memory_are_printed_where_asked(capsys):
    here(net())
    assert not capsys.readouterr().out
    here(net(), verbose="detail")
    said = capsys.readouterr().out
    assert (
        "Sequential: 100.0% of the weights on each device; cpu " in said and "plan: this process's share of 1" in said
    )


def test_whole_weights_are_given_and_taken():
    model, other = here(net()), net()
    other(torch.randn(5, 3))
    with torch.no_grad():
        [one.add_(1.0) for one in other.parameters()]
    want = other.state_dict()
    assert model.load_full_state_dict(want) == ([], [])
    kept = model.full_state_dict()
    with torch.no_grad():
        [one.zero_() for one in (*model.parameters(), *model.buffers())]
    torch.testing.assert_close(kept, dict(want))  # which later steps do not write to
    model.load_full_state_dict(kept)
    torch.testing.assert_close(model.full_state_dict(first_only=True), dict(want))
    part = {"2.weight": torch.zeros(2, 4), "1.num_batches_tracked": torch.tensor(9), "more": torch.zeros(1)}
    with pytest.raises(ApplyError, match="either the model or the state lacks it"):
        model.load_full_state_dict(part)
    found = model.load_full_state_dict(part, strict=False)
    assert found.unexpected_keys == ["more"] and found.missing_keys == [one for one in want if one not in part]
    assert not model[2].weight.any() and int(model[1].num_batches_tracked) == 9
    with pytest.raises(ApplyError, match=r"2.weight is \[2, 4\] in the model, and \[4, 2\] in the state"):
        model.load_full_state_dict(want | {"2.weight": torch.zeros(4, 2)})


def test_whose_weights_are_saved_is_not_asked(tmp_path):
    with pytest.raises(ApplyError, match="leave state_dict= out"):
        here(net()).save_pretrained(tmp_path, state_dict={})


def test_adapters_are_saved_as_peft_saves_them(tmp_path):
    peft = pytest.importorskip("peft")
    from tests.parallel.adapted import adapted, gpt2

    model = adapted(gpt2(), r=2, target_modules=["c_attn"])
    kind, want = type(model), {name: one.clone() for name, one in model.state_dict().items()}
    model = here(model)
    model.save_pretrained(tmp_path, state_dict=None, is_main_process=True)
    torch.testing.assert_close(dict(peft.PeftModel.from_pretrained(gpt2(), tmp_path).state_dict()), want)
    assert isinstance(model, kind) and model.full_state_dict().keys() == want.keys()
    assert type(model.unshard()) is kind


def test_several_shares_need_a_plan_with_rules(monkeypatch):
    chosen = Plan.parse("plan x\nrule 0 colwise\n")
    monkeypatch.setattr(in_process_group, "select_plan", lambda *given: (chosen, "chosen", None))
    found = [in_process_group.agreed_plan(net(), None, ProcessGroup(None), ranks) for ranks in (1, 2)]
    assert found == [(Plan("Sequential"), "one process holds each layer"), (chosen, "chosen")]


def test_processes_that_parse_a_plan_differently_are_told(monkeypatch):
    monkeypatch.setattr(
        in_process_group, "everywhere", lambda said, group: [said, said if "plan" in said else "other"]
    )
    with pytest.raises(ApplyError, match="use the same version of this package everywhere"):
        in_process_group.agreed_plan(
            net(), Plan.parse("plan x\nrule 0 colwise\nrule 2 rowwise\n"), ProcessGroup(None), 2
        )


def test_a_state_of_an_optimizer_that_is_not_of_the_weights_shape_is_not_saved(tmp_path):
    model = here(net())
    optimizer = torch.optim.Adafactor(model.parameters())
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    with pytest.raises(
        ApplyError, match="row_var has another shape than its weight; use AdamW or SGD, not a factored"
    ):
        model.save_checkpoint(tmp_path, optimizer, 1)


def test_a_weight_that_another_dimension_cuts_is_told():
    mesh = init_device_mesh("cpu", (1,))
    weights = [distribute_tensor(torch.ones(4, 4), mesh, [Shard(dim)]) for dim in (0, 1)]
    assert Spread("up.weight", weights[0], None).data().size == 1
    with pytest.raises(ApplyError, match="up.weight has the placements .*only fully_shard along the first dimension"):
        Spread("up.weight", weights[1], None).data()
