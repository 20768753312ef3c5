"""Parts of a model on several processes that one process alone shows."""

import copy
import gc

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.utils import parametrizations

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.arguments import BLANK_WEIGHTS
from modular_converter.parallel.engine.group import kept_gathered, same_calls, torch_patches
from modular_converter.parallel.engine.group.gradients import refuse_wrapped
from modular_converter.parallel.engine.group.process_grid import mesh_of
from modular_converter.parallel.engine.group.sharded_model import of_same_type, until_all_are_done
from modular_converter.parallel.engine.group.training_checkpoint import saved_buffers
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Training


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def step(model, optimizer, number):
    model(torch.full((2, 3), number + 1.0)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_what_wrappers_of_torch_have_is_told_with_what_to_write(alone):
    model = parallelize(net(), layout="tp1", device="cpu", plan="plan x\n")
    with (
        pytest.raises(
            ApplyError, match="no DistributedDataParallel, and has no no_sync: gradients are whole in each backward"
        ),
        model.no_sync(),
    ):
        pass
    with pytest.raises(AttributeError, match="has no module: take the model itself"):
        model.module.eval()
    with pytest.raises(AttributeError, match="object has no attribute 'modul'"):
        model.modul.eval()
    assert not hasattr(model, "no_sync") and not hasattr(model, "module")
    model.module = nn.Linear(2, 2)
    assert model.module.in_features == 2


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_ended(alone, tmp_path):
    def begun():
        model = parallelize(net(), layout="tp1", device="cpu", plan="plan x\n")
        return model, torch.optim.AdamW(model.parameters(), 0.1)

    model, optimizer = begun()
    assert model.load_checkpoint(tmp_path, optimizer) is None
    for number in range(2):
        step(model, optimizer, number)
    model.save_checkpoint(tmp_path, optimizer, 2, {"epoch": 1})
    again, its_optimizer = begun()
    resumed = again.load_checkpoint(tmp_path, its_optimizer)
    assert (resumed.step, resumed.notes) == (2, {"epoch": 1})
    want = net()
    wanted = torch.optim.AdamW(want.parameters(), 0.1)
    for number in range(4):
        step(want, wanted, number)
    for number in range(2, 4):
        step(again, its_optimizer, number)
    for one, two in zip(again.parameters(), want.parameters()):
        torch.testing.assert_close(one.detach(), two.detach())


def test_a_weight_of_two_names_is_no_buffer_of_a_checkpoint():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    assert list(saved_buffers(model)) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sequence_parallel": True}, "sequence_parallel= needs a layout with tp and without pp, such as tp2"),
        ({"chunks": 2}, "chunks=, schedule= and loss= are for stages"),
        ({"recompute": True}, "Sequential has no gradient checkpointing; leave it out"),
        ({"offload": True}, "offload= needs a layout with fsdp"),
        ({"compute_type": "fp64"}, "compute_type=torch.float64 needs a layout with data ranks"),
    ],
)
def test_options_that_a_layout_does_not_allow_are_refused(alone, options, said):
    with pytest.raises(ApplyError, match=said):
        parallelize(net(), layout="tp1", device="cpu", plan="plan x\n", training=Training(**options))


def test_a_process_that_was_given_another_layout_is_told(alone, monkeypatch):
    monkeypatch.setattr(same_calls, "everywhere", lambda said, group: [said, said.replace("tp1", "fsdp1")])
    with pytest.raises(
        ApplyError, match="process 1 was given layout=fsdp1, .*and process 0 layout=tp1, .*: give the same"
    ):
        parallelize(net(), layout="tp1", device="cpu", plan="plan x\n")


def test_a_model_computes_on_after_its_weights_were_replaced(alone):
    model, whole = parallelize(net(), layout="tp1", device="cpu", plan="plan x\n"), net().double()
    before, x = model[0].weight, torch.ones(1, 3).double()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.double()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert model[0].weight is not before
    torch.testing.assert_close(model(x), whole(x))


def test_a_process_that_has_waited_in_vain_leaves_nothing_behind(alone, monkeypatch):
    monkeypatch.setattr(same_calls, "LIMIT_S", 0.05)
    store = same_calls.default_store()
    before = store.num_keys()
    with pytest.raises(ApplyError, match=r"process 0 has called save, and processes \[1\] have not"):
        same_calls.meet_of("save", [0, 1])
    assert store.num_keys() == before


def test_no_step_is_made_with_gradients_of_a_backward_that_has_ended_in_an_error(alone):
    model = fully_shard(net(), mesh=init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.SGD(model.parameters())
    kept_gathered._mark_broken(model, kept_gathered.data_units_of(model))
    other = torch.optim.SGD(net().parameters())
    kept_gathered.refuse_broken(model, other)  # of another model
    for _ in range(2):
        with pytest.raises(ApplyError, match="call zero_grad"):
            kept_gathered.refuse_broken(model, optimizer)
    optimizer.zero_grad()
    kept_gathered.refuse_broken(model, optimizer)
    assert all(not one.isnan().any() for one in copy.deepcopy(model.state_dict()).values())


def test_weights_of_data_ranks_keep_their_type():
    def apply(module, change):
        return "applied"

    assert of_same_type(apply)(net(), lambda tensor: tensor * 2) == "applied"
    for change in (torch.Tensor.half, lambda tensor: tensor.to("meta")):
        with pytest.raises(ApplyError, match="weights keep their type and device"):
            of_same_type(apply)(net(), change)


def test_data_ranks_generate_until_all_are_done():
    def generate(model, ids, synced_gpus=False):
        return synced_gpus

    assert until_all_are_done(generate)(None, 1) is True
    assert until_all_are_done(generate)(None, 1, synced_gpus=False) is False
    assert until_all_are_done(step) is step


def test_a_model_without_data_is_refused_unless_blank_weights_are_asked_for():
    model = net().to("meta")
    with pytest.raises(ApplyError, match=r"0\.weight has no data"):
        refuse_wrapped(model)
    model.__dict__[BLANK_WEIGHTS] = True
    refuse_wrapped(model)


def test_hooks_of_weights_that_no_gradient_would_reach_are_refused(alone):
    hooked = net()
    hooked[0].weight.register_hook(lambda gradient: 2 * gradient)
    with pytest.raises(ApplyError, match="0.weight has a hook on its gradient, and parallelize makes new parameters"):
        parallelize(hooked, layout="tp1", device="cpu", plan="plan x\n")
    later = net()
    later[1].bias.register_post_accumulate_grad_hook(lambda weight: None)
    with pytest.raises(ApplyError, match="1.bias has a hook"):
        parallelize(later, layout="tp1", device="cpu", plan="plan x\n")


def test_files_of_safetensors_with_weights_that_are_shared_out_are_refused_in_words(alone):
    weight = distribute_tensor(torch.ones(4, 2), mesh_of("cpu", {"tp": 1}), [Shard(0)])
    gc.collect()
    before = "storage" in vars(type(weight))  # while a model of another test is still there
    model = parallelize(net(), layout="tp1", device="cpu", plan="plan x\n")
    with pytest.raises(ApplyError, match=r"full_state_dict\(\) for files"):
        safetensors.torch.save({"weight": weight})
    model.unshard()
    assert ("storage" in vars(type(weight))) is before


def test_parametrizations_are_refused_in_words(alone):
    model = parallelize(net(), layout="tp1", device="cpu", plan="plan x\n")
    with pytest.raises(ApplyError, match="a parametrization of a Linear would replace weights"):
        parametrizations.orthogonal(model[0])
    parametrizations.orthogonal(net()[0])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad])
def test_a_fused_step_takes_shares_as_they_are(alone, monkeypatch, kind):
    """torch has no placements for these steps; whole weights and gradients would take three times their memory."""
    user = parallelize(net(), layout="tp1", device="cpu", plan="plan x\n")
    monkeypatch.setattr(torch_patches, "on_whole", None)
    mesh, start = mesh_of("cpu", {"tp": 1}), torch.arange(8.0).view(4, 2)
    cut, whole = nn.Parameter(distribute_tensor(start, mesh, [Shard(0)])), nn.Parameter(start.clone())
    for weight in (cut, whole):
        optimizer = kind([weight], 0.1, fused=True)
        for _ in range(2):
            weight.pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert user.training and torch.equal(cut.full_tensor(), whole)
