"""The work of each process of a group for `test_adapters.py`; the first one writes its results as JSON."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
import torch.distributed as dist
from peft import PeftModel
from torch.distributed.tensor import DTensor

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.group.share_tensors import as_plain
from modular_converter.parallel.errors import PlanError
from tests.parallel.adapted import IDS, adapted, furthest, llama, logits


def trained(model):
    """The gradients of the first step by the end of their names, and the losses of three, with dropout."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    losses, first = [], {}
    for _ in range(3):
        loss = model(input_ids=IDS, labels=IDS).loss
        loss.backward()
        first = first or {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return first, losses


def main(rank, size, meeting, folder):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    targets = ["q_proj", "o_proj", "up_proj", "down_proj", "embed_tokens"]
    more = {"lora_dropout": 0.2, "use_rslora": True, "modules_to_save": ["lm_head"], "bias": "lora_only"}
    whole = adapted(llama(), r=8, target_modules=targets, **more)
    start = {name: value.clone() for name, value in whole.state_dict().items()}
    model = parallelize(copy.deepcopy(whole), device="cpu")
    found = {"same object": isinstance(model, PeftModel)}
    found["outputs"] = furthest(logits(model), logits(whole))
    held = {name: p.to_local() if isinstance(p, DTensor) else as_plain(p) for name, p in model.named_parameters()}
    shares = {name: p.numel() < start[name].numel() for name, p in held.items()}
    layer = "base_model.model.model.layers.0.self_attn."
    found["cut"] = [shares[f"{layer}{name}"] for name in ("q_proj.base_layer.weight", "q_proj.lora_B.default.weight")]
    found["whole"] = not shares[f"{layer}q_proj.lora_A.default.weight"]
    torch.manual_seed(1000)
    want, losses = trained(whole.train())
    torch.manual_seed(1000 + rank)
    got, own = trained(model.train())
    found["trained"] = sorted({name.partition(".default")[0].rpartition(".")[2] for name in got})
    found["gradients"] = got.keys() == want.keys()
    found["losses"] = max(abs(one - other) for one, other in zip(own, losses))
    full, after = model.full_state_dict(), whole.state_dict()
    found["weights"] = max(furthest(full[name], after[name]) for name in after)
    found["frozen"] = all(torch.equal(full[name], start[name]) for name in start if "default" not in name)
    found["moved"] = sum(not torch.equal(full[name], start[name]) for name in start)
    model.save_pretrained(folder)
    state = PeftModel.from_pretrained(llama(), folder).state_dict()
    found["saved"] = all(torch.equal(state[name], value) for name, value in full.items())
    found["refused"] = []
    for refused in (
        lambda: model.set_adapter("default"),
        model.merge_and_unload,
        model.unload,
        lambda: model.base_model.model.save_pretrained(folder),
        lambda: model.load_state_dict(start),
    ):
        try:
            refused()
        except PlanError as error:
            found["refused"].append(str(error))
    model.load_full_state_dict(start if rank == 0 else None)
    first, *others = start
    loaded = model.load_full_state_dict(
        {name: start[name] for name in others} | {"unknown": start[first]}, strict=False
    )
    found["loaded"] = (loaded.missing_keys, [one.rpartition(".")[2] for one in loaded.unexpected_keys]) == (
        [first],
        ["unknown"],
    )
    back = model.unshard().state_dict()
    found["unsharded"] = all(torch.equal(back[name], value) for name, value in start.items())
    model.set_adapter("default")
    found["class"] = type(model) is type(whole)
    quick = parallelize(model, device="cpu", inference=True).eval()
    whole.load_state_dict(start)
    found["inference"] = furthest(logits(quick), logits(whole.eval()))
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
