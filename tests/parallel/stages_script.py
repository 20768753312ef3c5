"""The work with stages of each process of `test_products.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from modular_converter.parallel import Layout, Training, parallelize
from modular_converter.parallel.tiny.build import build, target_of


SIZES = {"vocab_size": 160, "tie_word_embeddings": True}
PLAN = """plan llama
rule model.embed_tokens embedding_rowwise
rule model.layers.*.self_attn.q_proj colwise
rule model.layers.*.self_attn.k_proj colwise
rule model.layers.*.self_attn.v_proj colwise
rule model.layers.*.self_attn.o_proj rowwise
rule model.layers.*.mlp.gate_proj colwise
rule model.layers.*.mlp.up_proj colwise
rule model.layers.*.mlp.down_proj rowwise
rule lm_head colwise_gather_output
"""
# Saved in the first layout of a line, resumed in the others.
LAYOUTS = (("pp2.tp2", "pp4", "fsdp4"), ("fsdp4", "pp2.fsdp2"))


def whole(layers=4):
    """A model with tied embeddings."""
    made = build(target_of("llama", "causal"), {**SIZES, "num_hidden_layers": layers}).model.train()
    return made


def in_layout(layout, model, **training):
    chunks = Layout.parse(layout).pp
    options = Training(**training, **({"chunks": chunks} if chunks > 1 else {}))
    plan = PLAN if "tp" in layout else None
    made = parallelize(copy.deepcopy(model), layout=layout, plan=plan, training=options, device="cpu", probe=False)
    return made.train()


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model, optimizer, number):
    """The mean loss of all data ranks, and the norm of the gradients."""
    torch.manual_seed(number)
    ids = torch.randint(4, 150, (8, 6)).chunk(model.layout.data)[model.data_rank]
    if model.layout.pp > 1:
        loss = model.step(input_ids=ids, labels=ids)
    else:
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
    total = loss.detach().float() / dist.get_world_size()
    dist.all_reduce(total)
    norm = model.clip_grad_norm_(0.1)
    optimizer.step()
    optimizer.zero_grad()
    return float(total), float(norm)


def resumed(model):
    """The largest differences of the next losses from the run that went on, for each pair of layouts."""
    found = {}
    for first, *layouts in LAYOUTS:
        folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(folder)
        path = Path(folder[0])
        trained = in_layout(first, model)
        optimizer = optimizer_of(trained)
        for number in range(2):
            step(trained, optimizer, number)
        trained.save_checkpoint(path, optimizer, 2, {"epoch": 1})
        went_on = [step(trained, optimizer, number) for number in range(2, 4)]
        for layout in layouts:
            again = in_layout(layout, model)
            with torch.no_grad():
                for one in again.parameters():
                    one.mul_(0.0)
            other = torch.optim.AdamW(again.parameters(), lr=0.3)
            said = again.load_checkpoint(path, other)
            assert said.step == 2 and said.notes == {"epoch": 1} and other.param_groups[0]["lr"] == 1e-2
            losses = [step(again, other, number) for number in range(2, 4)]
            found[f"{first} {layout}"] = max(abs(a - b) for one, two in zip(losses, went_on) for a, b in zip(one, two))
    return found | {"other model": refused(lambda: in_layout("pp4", whole(layers=5)).load_checkpoint(path, other))}


def in_half(model):
    """The differences of products in bfloat16 from those of replicas, and the types of weights and gradients."""
    found = {}
    for layout in ("ddp4", "pp2.ddp2", "pp2.tp2"):
        made = in_layout(layout, model, compute_type=torch.bfloat16)
        optimizer = optimizer_of(made)
        found[layout] = [step(made, optimizer, number) for number in range(2)]
        assert {one.dtype for one in made.parameters()} == {torch.float32}, layout
    made = in_layout("ddp4", model)
    optimizer = optimizer_of(made)
    return found | {"float32": [step(made, optimizer, 0)]}


def refused(call):
    try:
        return f"no error: {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def broken(model):
    """What the first process says of batches that differ, and each of a result that is nothing but NaN."""
    made = in_layout("pp4", model)
    ids = torch.ones(4, 4, dtype=torch.long)
    batches = refused(lambda: made.step(input_ids=ids + dist.get_rank(), labels=ids))
    made.eval()
    last = made.stages.get(3)
    if last is not None:
        with torch.no_grad():
            last.model.model.norm.weight.fill_(torch.nan)
    every = [None] * 4
    dist.all_gather_object(every, refused(lambda: made(input_ids=ids)))
    return {"batches": batches, "broken": every}


def main():
    dist.init_process_group("gloo")
    model = whole()
    found = {"resumed": resumed(model), "half": in_half(model), **broken(model)}
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()  # threads of gloo that outlive the interpreter can crash it


if __name__ == "__main__":
    main()
