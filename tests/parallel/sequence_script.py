"""The work of two processes of `test_sequence_parallel.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import copy
import json
import sys

import torch
import torch.distributed as dist
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.tiny.build import build, target_of
from tests.parallel.context_script import note_lengths, refused


LAYER = "model.layers.*."
PLAN = "".join(
    ["plan model\nrule model.embed_tokens embedding_rowwise\nrule lm_head colwise_gather_output\n"]
    + [f"rule {LAYER}self_attn.{one}_proj colwise\n" for one in "qkv"]
    + [f"rule {LAYER}mlp.{one}_proj colwise\n" for one in ("gate", "up")]
    + [f"rule {LAYER}{one} rowwise\n" for one in ("self_attn.o_proj", "mlp.down_proj")]
)
# Norms of each head are whole in the region of attention, where each process has other heads.
NORMS = f"rule {LAYER}self_attn.q_norm replicated_with_grad_allreduce\nrule {LAYER}self_attn.k_norm replicated_with_grad_allreduce\n"
IDS = torch.arange(1, 25).view(2, 12)


OWN = LlamaRMSNorm.forward


class Mixing(LlamaRMSNorm):
    """A norm that looks along the sequence."""

    def forward(self, x):
        return OWN(self, x - x.mean(1, keepdim=True))


def whole(kind, **settings):
    """A model whose norms and biases are not what they begin with."""
    model = build(target_of(kind, "causal"), {"vocab_size": 160, **settings}).model.double().train()
    torch.manual_seed(0)
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn_like(one) * 0.05)
    return model


def shared_out(model, **training):
    plan = PLAN + (NORMS if hasattr(model.model.layers[0].self_attn, "q_norm") else "")
    options = Training(sequence_parallel=True, **training)
    return parallelize(copy.deepcopy(model), layout="tp2", plan=plan, training=options, device="cpu", probe=False)


def compared(kind, frozen=False, settings=None, **training):
    """The largest relative errors of three steps and of weights beside one process, and the lengths that a norm got."""
    model = whole(kind, **(settings or {}))
    if frozen:
        model.model.embed_tokens.requires_grad_(False)
    sharded, seen = shared_out(model, **training), set()
    note_lengths(sharded.model.layers[1].post_attention_layernorm, seen)
    optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-3) for one in (model, sharded)]
    worst = 0.0
    for number in range(3):
        ids = IDS + number
        # Two lengths, before the backward that may compute layers again.
        losses = [
            one(input_ids=ids, labels=ids).loss + one(input_ids=ids[:, :8]).logits.mean() for one in (model, sharded)
        ]
        for loss in losses:
            loss.backward()
        norms = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5), sharded.clip_grad_norm_(0.5)
        pairs = [*zip(*[iter([*losses, *norms])] * 2)]
        worst = max([worst, *(abs(float(a.detach()) / float(b.detach()) - 1) for a, b in pairs)])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    state, full = model.state_dict(), sharded.full_state_dict()
    worst = max([worst, *(float((full[name] - one).abs().max() / one.abs().max()) for name, one in state.items())])
    with torch.no_grad():
        odd = float((sharded(input_ids=IDS[:, :5]).logits - model(input_ids=IDS[:, :5]).logits).abs().max())
    again = sharded.unshard()
    loss = float((again(input_ids=IDS[:, :5]).logits - model(input_ids=IDS[:, :5]).logits).abs().max())
    return {"worst": worst, "lengths": sorted(seen), "without gradients": odd, "unsharded": loss}


def collectives():
    """How often each kind is called in a forward and a backward, with and without parts of the sequence."""
    model, found = whole("llama"), {}
    for sequence in (False, True):
        options = Training(sequence_parallel=sequence)
        sharded = parallelize(
            copy.deepcopy(model), layout="tp2", plan=PLAN, training=options, device="cpu", probe=False
        )
        with torch.profiler.profile() as profile:
            sharded(input_ids=IDS, labels=IDS).loss.backward()
        names = [event.name for event in profile.events() if event.name.startswith("c10d::")]
        found[str(sequence)] = {name[6:].strip("_"): names.count(name) for name in sorted(set(names))}
    return found


def between(model, module):
    """What computes between the layers with what one gives, as code of a module of Python that only the library has."""
    sharded = shared_out(model)

    def again(layer, args, result):
        return result * 1.0

    again.__module__ = module
    sharded.model.layers[0].register_forward_hook(again)
    with torch.no_grad():
        sharded(input_ids=IDS)  # of whole sequences
    return sharded(input_ids=IDS)


def mixing():
    """What is said of a norm that looks along the sequence: of a class of its own, and of the model's class."""
    other = whole("llama")
    other.model.layers[0].input_layernorm.__class__ = Mixing
    said = [refused(lambda: shared_out(other))]
    LlamaRMSNorm.forward = Mixing.forward
    try:
        said.append(refused(lambda: shared_out(whole("llama"))))
    finally:
        LlamaRMSNorm.forward = OWN
    return said


def main():
    model = whole("llama")
    found = {
        "llama": compared("llama"),
        "qwen3, recomputed": compared("qwen3", recompute=True),
        "frozen, with biases": compared("llama", frozen=True, settings={"attention_bias": True, "mlp_bias": True}),
    }
    found["collectives"] = collectives()
    found["mixing"] = mixing()
    given = {"output_hidden_states": True}
    found["refused"] = {
        "odd": refused(lambda: shared_out(model)(input_ids=IDS[:, :5])),
        "states": refused(lambda: shared_out(model)(input_ids=IDS, **given)),
        "hook": refused(lambda: between(model, __name__)),
        "between": refused(lambda: between(model, "transformers.modeling_utils")),
        "compiled": refused(lambda: shared_out(model, compile=True)),
        "no tensors": refused(lambda: parallelize(model, layout="fsdp2", training=Training(sequence_parallel=True))),
    }
    return found


if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = compared(sys.argv[1]) if len(sys.argv) > 1 else main()
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()  # threads of gloo that outlive the interpreter can crash it
