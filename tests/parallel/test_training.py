"""In a process group: gradients, clipping, optimizer steps and state dicts are those of the unsharded run."""

import pytest


pytest.importorskip("transformers")
from tests.parallel.launch import line_of  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("name, processes, more", [("llama", 3, ("2",)), ("llama", 4, ("4", "meshed"))])
def test_training_is_that_of_the_whole_model(name, processes, more):
    found = line_of(processes, "tests/parallel/training_script.py", name, *more)
    assert found["shares"] and found["class"] and found["norm"] > 0.05
    assert found["full_before"] == found["loaded"] == found["saved"] == found["unsharded"] == 0.0
    assert all(max(pair) < 1e-4 for pair in found["steps"])
    assert found["trained"] < 1e-3 < found["moved"]
    for name in ("by norm", "clipped"):
        assert found[name].startswith("ApplyError: ") and "norm of model." in found[name], found[name]
    for name, operation in (("by hand", "norm"), ("by hand, data", "max"), ("finite", "all")):
        assert found[name].startswith(f"ApplyError: {operation} of model."), found[name]
    assert found["numbers"]
    for name in ("norm of one", "norm of all"):
        assert "would be that of its share of model." in found[name] and "take model.clip_grad_norm_" in found[name]
    assert found["kept"]


@pytest.mark.parametrize(
    "more",
    [pytest.param(("gpt2,bart,mixtral,llama", "sdpa"), marks=pytest.mark.slow), ("bert", "eager", "checkpoints")],
)
def test_dropout_drops_what_one_process_would_drop(more):
    found = line_of(2, "tests/parallel/dropout_script.py", *more)
    assert all(one["losses"] < 1e-4 and one["weights"] < 1e-3 and one["caller's numbers"] for one in found["all"])
    assert more[0] == "bert" or "dropout in compiled layers is not the same" in found["compiled"]
    assert found["woken"]["hooked"] == 0 and found["woken"]["error"] < 1e-4, found["woken"]
    assert "call the model once before a part" in found["woken"]["part"]


DISAGREEING = """
import functools, json, sys
import torch, torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
from modular_converter.parallel import parallelize
from modular_converter.parallel.errors import ApplyError

def model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))

dist.init_process_group("gloo")
rank, found = dist.get_rank(), {}
mlp = "plan x\\nrule model.layers.*.mlp.up_proj colwise\\nrule model.layers.*.mlp.down_proj rowwise\\n"
right = mlp + "rule model.layers.*.mlp.gate_proj colwise\\n"
try:
    parallelize(model(), plan=(right, mlp)[rank], device="cpu")
except ApplyError as error:
    found["plans"] = str(error)
try:
    parallelize(model(), plan=right.replace("down_proj rowwise", "down_proj.weight shard dim=1"), device="cpu")
except ApplyError as error:
    found["wrong"] = str(error)
def wrap_unscaling():
    own = torch.amp.GradScaler._unscale_grads_
    torch.amp.GradScaler._unscale_grads_ = functools.wraps(own)(lambda *args, **kwargs: own(*args, **kwargs))

wrap_unscaling()  # other libraries do so before and behind us
sharded = parallelize(model(), device="cpu")
wrap_unscaling()
optimizer = torch.optim.SGD(sharded.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
ids = torch.arange(1, 19).view(2, 9)
scaler.scale(sharded(input_ids=ids, labels=ids).loss).backward()
share = sharded.get_parameter("model.layers.0.mlp.up_proj.weight")
before = share.to_local().detach().clone()
if rank == 1:
    share.grad.to_local().view(-1)[0] = float("inf")
scaler.step(optimizer)
scaler.update()
found["scales"] = [None, None]
dist.all_gather_object(found["scales"], (scaler.get_scale(), torch.equal(share.to_local().detach(), before)))
state = sharded.full_state_dict(first_only=True)
found["sizes"] = [None, None]
dist.all_gather_object(found["sizes"], len(state))
sharded.load_full_state_dict({name: value + 1 for name, value in state.items()} if rank == 0 else None)
again = sharded.full_state_dict()
whole = model().state_dict()
found["loaded"] = max(float((again[name] - whole[name] - 1).abs().max()) for name in whole)
if rank == 0:
    print(json.dumps(found), flush=True)
dist.barrier()
"""


@pytest.mark.slow
def test_processes_agree_on_plans_steps_and_states(tmp_path):
    (tmp_path / "script.py").write_text(DISAGREEING)
    found = line_of(2, tmp_path / "script.py")
    assert "process 1 was given another plan=" in found["plans"]
    assert "one layer of each kind" in found["wrong"]
    assert found["scales"] == [[2.0, True], [2.0, True]]
    assert found["sizes"][1] == 0 < found["sizes"][0] and found["loaded"] < 1e-6


ATTENTIONS = """
import copy, inspect, json, os, sys, tempfile
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from transformers import LlamaConfig, LlamaForCausalLM
from modular_converter.parallel import parallelize
from modular_converter.parallel.proof.judge import relative_error

torch.manual_seed(0)
shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
config = LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=2, attn_implementation="eager")
whole, ids = LlamaForCausalLM(config).eval(), torch.arange(1, 19).view(2, 9)
whole.generation_config.pad_token_id = 0
sharded, found = copy.deepcopy(whole), {}
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
parallelize(sharded, mesh=mesh["model"], device="cpu")
want, got = whole(ids, output_attentions=True), sharded(ids, output_attentions=True)
found["dict"] = [relative_error(a, b) for a, b in zip(got.attentions, want.attentions)]
pairs = sharded(ids, output_attentions=True, use_cache=False, return_dict=False)[-1]
found["tuple"] = [relative_error(a, b) for a, b in zip(pairs, want.attentions)]
inside = sharded.model(ids, output_attentions=True).attentions
found["inside"] = [relative_error(a, b) for a, b in zip(inside, want.attentions)]
weights = torch.rand(want.attentions[1].shape)
for model, attentions in ((whole, want.attentions), (sharded, got.attentions)):
    (attentions[1] * weights).sum().backward()
name = "model.layers.0.self_attn.q_proj.weight"
share = whole.get_parameter(name).grad.chunk(2)[mesh["model"].get_local_rank()]
found["gradient"] = relative_error(sharded.get_parameter(name).grad.as_subclass(torch.Tensor), share)
steps = sharded.generate(ids, max_new_tokens=3, output_attentions=True, return_dict_in_generate=True).attentions
found["generate"] = sorted({one.shape[1] for step in steps for one in step})
found["signature"] = "input_ids" in inspect.signature(sharded.forward).parameters
own = tempfile.mkdtemp()
sharded.save_pretrained(own)
found["writers"] = [None] * 4
dist.all_gather_object(found["writers"], "config.json" in os.listdir(own))
found["whole again"] = relative_error(sharded.unshard()(ids, output_attentions=True).attentions[1], want.attentions[1])
if dist.get_rank() == 0:
    print(json.dumps(found), flush=True)
dist.barrier()
"""


REFUSED = """
import copy, json
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
from modular_converter.parallel import parallelize

dist.init_process_group("gloo")
shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
config = LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=2)
found = {}

def tried(name, call):
    try:
        found[name] = f"no error: {call()}"
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"

torch.manual_seed(dist.get_rank())
tried("weights", lambda: parallelize(LlamaForCausalLM(config), device="cpu"))
torch.manual_seed(0)
model = LlamaForCausalLM(config)
model.gradient_checkpointing_enable()
whole = copy.deepcopy(model)
parallelize(model, device="cpu")
tried("resized", lambda: model.resize_token_embeddings(70))
tried("copied", lambda: copy.deepcopy(model))
ids = torch.arange(1, 19).view(2, 9)
tried("vocabulary", lambda: model(input_ids=ids + 60))
for one in (model, whole):
    one.train()
    one(input_ids=ids, labels=ids).loss.backward()
model.unshard()
pairs = zip(model.parameters(), whole.parameters())
found["checkpointed"] = max(float((a - b).abs().max()) for a, b in pairs)
if dist.get_rank() == 0:
    print(json.dumps(found), flush=True)
dist.barrier()
"""


@pytest.mark.slow
def test_what_would_be_wrong_on_shares_is_refused(tmp_path):
    (tmp_path / "script.py").write_text(REFUSED)
    found = line_of(2, tmp_path / "script.py")
    assert found["weights"].startswith("ApplyError: model.embed_tokens.weight has other values on process 1")
    assert found["resized"].startswith("ApplyError: resize_token_embeddings would change this process's share alone")
    assert found["copied"].startswith("ApplyError: a sharded model cannot be copied")
    assert found["vocabulary"].startswith("IndexError: index out of range: 64 at [0, 3] of the ids of model.emb")
    assert found["checkpointed"] == 0.0


@pytest.mark.slow
def test_attention_weights_are_whole_and_one_process_saves(tmp_path):
    (tmp_path / "script.py").write_text(ATTENTIONS)
    found = line_of(4, tmp_path / "script.py")
    assert len(found["dict"]) == len(found["tuple"]) == 2
    assert max(*found["dict"], *found["tuple"], *found["inside"], found["gradient"], found["whole again"]) < 1e-4
    assert found["generate"] == [4] and found["signature"]
    assert found["writers"] == [True, False, False, False]


STATES = """
import json
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
from modular_converter.parallel import parallelize

shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=2))
dist.init_process_group("gloo")
torch.manual_seed(1000 + dist.get_rank())
before = torch.get_rng_state()
parallelize(model, device="cpu")
same = torch.tensor([float(torch.equal(before, torch.get_rng_state()))])
dist.all_reduce(same, dist.ReduceOp.MIN)
drawn = [torch.empty(1) for _ in range(2)]
dist.all_gather(drawn, torch.rand(1))
if dist.get_rank() == 0:
    print(json.dumps({"kept": bool(same), "other": bool(drawn[0] != drawn[1])}))
dist.barrier()  # a process whose partner has gone may abort in gloo's threads
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_random_states_stay_the_callers(tmp_path):
    (tmp_path / "main.py").write_text(STATES)
    assert line_of(2, tmp_path / "main.py") == {"kept": True, "other": True}


OTHER_CHOICE = """
import copy, json
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.group import in_process_group
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.judge import relative_error

shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
torch.manual_seed(0)
whole = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=2)).eval()
dist.init_process_group("gloo")
rank, found, select = dist.get_rank(), {}, in_process_group.select_plan
head = "plan x\\nrule lm_head colwise_gather_output\\n"

def first_alone(*asked):
    return select(*asked) if rank == 0 else (Plan.parse(head), "a choice of its own", False)

def shapes(model):
    found = [None, None]
    dist.all_gather_object(found, {name: list(p.to_local().shape) for name, p in model.named_parameters()})
    return found

in_process_group.select_plan = first_alone
sharded = parallelize(copy.deepcopy(whole), device="cpu")
found["shapes"] = shapes(sharded)
ids = torch.arange(1, 19).view(2, 9)
found["error"] = relative_error(sharded(ids).logits, whole(ids).logits)
in_process_group.select_plan = lambda *asked: (Plan.parse(head), "a choice of its own", False)
found["own"] = shapes(parallelize(copy.deepcopy(whole), device="cpu"))[0]
if rank == 0:
    print(json.dumps(found), flush=True)
dist.barrier()
"""


@pytest.mark.slow
def test_the_plan_that_process_0_selects_is_that_of_all(tmp_path):
    (tmp_path / "script.py").write_text(OTHER_CHOICE)
    found = line_of(2, tmp_path / "script.py")
    assert found["shapes"][0] == found["shapes"][1] != found["own"] and found["error"] < 1e-4
    assert found["shapes"][1]["model.layers.0.mlp.up_proj.weight"] == [32, 32]
    assert found["own"]["model.layers.0.mlp.up_proj.weight"] == [64, 32]


@pytest.mark.slow
def test_a_process_that_calls_what_all_must_call_alone_is_told_so_and_does_not_hang():
    found = line_of(2, "tests/parallel/alone_script.py")
    assert "process 1 has called full_state_dict, and process 0 clip_grad_norm_" in found["said"].pop("others")[1]
    assert len(found["said"]) == 8 and len(found["staged"]) == 3
    for method, (caller, text) in found["said"].items():
        other = 1 - caller
        assert f"process {caller} has called {method}, and processes [{other}] have not within" in text
    for method, text in found["staged"].items():
        assert f"process 1 has called {method}, and processes [0] have not within" in text
    assert found["saved"]
