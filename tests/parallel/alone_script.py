"""Methods that all processes must call, called by one process alone, then by both; the first process prints what happened."""

from __future__ import annotations

import copy
import datetime
import json
import tempfile

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.engine.group import same_calls
from modular_converter.parallel.errors import ApplyError


# Each method once, called by process 0 or 1 alone.
ALONE = (
    "save_pretrained",
    "full_state_dict",
    "load_full_state_dict",
    "save_checkpoint",
    "load_checkpoint",
    "clip_grad_norm_",
    TORCHS := "clip_grad_norm_ or get_total_norm of torch",
    "unshard",
)
IDS = torch.arange(1, 19).view(2, 9)


def call(model, method, optimizer, folder):
    if method == TORCHS:
        return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    given = {
        "save_pretrained": (folder,),
        "load_full_state_dict": (None,),
        "save_checkpoint": (folder, optimizer, 1),
        "load_checkpoint": (folder, optimizer),
        "clip_grad_norm_": (1.0,),
    }
    return getattr(model, method)(*given.get(method, ()))


def other_method(model):
    """What a process is told that calls another method than the other one."""
    try:
        model.full_state_dict() if dist.get_rank() else model.clip_grad_norm_(1.0)
        return "no error"
    except ApplyError as error:
        return str(error)


def pipeline_alone(model, folder):
    """What a pipeline's methods say to process 1 alone, and whether the whole state is right afterwards."""
    want = {name: value.clone() for name, value in model.state_dict().items()}
    stages = parallelize(model, layout="pp2", training=Training(chunks=2))
    optimizer = torch.optim.SGD(stages.parameters(), lr=0.1)
    same_calls.LIMIT_S = 2.0
    said = {}
    for method in ("full_state_dict", "save_checkpoint", "clip_grad_norm_"):
        if dist.get_rank() == 1:
            try:
                call(stages, method, optimizer, folder)
            except ApplyError as error:
                said[method] = str(error)
        dist.barrier()
    same_calls.LIMIT_S = 60.0
    state = stages.full_state_dict()
    return said, all(torch.equal(state[name], want[name]) for name in want)


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=200))
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))
    staged = copy.deepcopy(model)
    want = {name: value.clone() for name, value in model.state_dict().items()}
    parallelize(model, probe=False)
    model(input_ids=IDS, labels=IDS).loss.backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    same_calls.LIMIT_S = 2.0
    said = {}
    for number, method in enumerate(ALONE):
        if dist.get_rank() == number % 2:
            try:
                call(model, method, optimizer, folder[0])
            except ApplyError as error:
                said[method] = (dist.get_rank(), str(error))
        dist.barrier()
    same_calls.LIMIT_S = 60.0
    model.save_pretrained(folder[0])
    model(input_ids=IDS)  # the first process alone has saved: its configuration must not become another one
    said["others"] = (1 - dist.get_rank(), other_method(model))
    whole = model.unshard().state_dict()
    staged_said, staged_same = pipeline_alone(staged, folder[0])
    everyone = [None, None]
    dist.all_gather_object(everyone, (said, staged_said))
    if dist.get_rank() == 0:
        saved = LlamaForCausalLM.from_pretrained(folder[0]).state_dict()
        same = all(torch.equal(one[name], want[name]) for name in want for one in (saved, whole))
        said = {method: text for one, _ in everyone for method, text in one.items()}
        print(json.dumps({"said": said, "staged": everyone[1][1], "saved": same and staged_same}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
