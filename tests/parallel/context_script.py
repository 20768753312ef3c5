"""The work of the processes of `test_context_parallel.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import copy
import json
import sys

import torch
import torch.distributed as dist
from transformers import DynamicCache

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.tiny.build import build, target_of


IDS = torch.arange(1, 67).view(2, 33) % 89 + 1
# 33 tokens are no multiple of the four pieces of two processes; what is hidden lies on both sides of a cut.
MASK = torch.ones_like(IDS)
MASK[0, :9], MASK[1, -5:] = 0, 0
LABELS = IDS.masked_fill(MASK == 0, -100)
LABELS[0, 14:20] = -100


def whole(kind, **settings):
    """A model without dropout whose norms and biases are not what they begin with."""
    none = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0) if kind == "gpt2" else {}
    model = build(target_of(kind, "causal"), {"vocab_size": 160, **none, **settings}).model.train()
    model = model if "moe" in kind else model.double()  # grouped products have no double
    torch.manual_seed(0)
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn_like(one) * 0.05)
    return model


def shared_out(model, layout="cp2", **training):
    options = Training(**training) if training else None
    return parallelize(copy.deepcopy(model), layout=layout, training=options, device="cpu", probe=False)


def far(found, wanted):
    return float((found - wanted).detach().abs().max() / wanted.detach().abs().max())


def note_lengths(module, seen):
    """Let a forward note the lengths that it gets, and keep its input; hooks in the model are refused."""
    own = module.forward

    def forward(hidden):
        seen.add(hidden.shape[1])
        module.kept = hidden.detach()
        return own(hidden)

    module.forward = forward


def hooked(model):
    """Logits of a model with hooks that change its inputs and outputs."""
    handles = [
        model.register_forward_pre_hook(
            lambda _, args, named: (args, {"input_ids": named["input_ids"].flip(1)}), with_kwargs=True
        ),
        model.register_forward_hook(lambda _, args, result: result.logits.cumsum(1)),
    ]
    found = model(input_ids=IDS)
    for one in handles:
        one.remove()
    return found


def told_inside(model, norm):
    """What is told of a hook on a module inside, of what a forward has stored there, and of a layer that is called by itself."""
    handle = norm.register_forward_hook(lambda *_: None)
    said = [refused(lambda: model(input_ids=IDS))]
    handle.remove()
    layer, hidden = model.model.layers[0], torch.zeros(1, 4, model.config.hidden_size, dtype=torch.double)
    around = model.model.rotary_emb(hidden, torch.arange(4)[None], *model.config.layer_types[:1])
    return [*said, refused(lambda: norm.kept.sum()), refused(lambda: layer(hidden, position_embeddings=around))]


def compared(kind, layout="cp2", settings=None, **training):
    """The largest relative errors of steps, of weights and of outputs beside one process, and the lengths that a norm got."""
    model = whole(kind, **(settings or {}))
    sharded, seen, worst = shared_out(model, layout, **training), set(), 0.0
    norm = next(one for name, one in sharded.named_modules() if name.endswith(("post_attention_layernorm", "ln_2")))
    note_lengths(norm, seen)
    optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-3) for one in (model, sharded)]
    mine = slice(sharded.data_rank, None, sharded.layout.data)
    own = lambda one: one[mine] if sharded.layout.data > 1 else one  # noqa: E731
    steps = [
        {"input_ids": IDS, "labels": LABELS},
        {"input_ids": IDS, "labels": LABELS, "attention_mask": MASK},
        {"input_ids": IDS.flip(1)[:, :5], "labels": IDS[:, :5]},
        {"input_ids": IDS, "attention_mask": MASK},
    ]
    for given in steps:
        count = (given["labels"][:, 1:] != -100).sum() if "labels" in given else None
        losses = []
        for one, take, parts in ((model, lambda one: one, 1), (sharded, own, sharded.layout.data)):
            more = {} if count is None else {"num_items_in_batch": count / parts}
            result = one(**{name: take(value) for name, value in given.items()}, **more)
            losses.append(
                result.loss
                if count is not None
                else (result.logits * take(given["attention_mask"])[..., None]).square().mean()
            )
        for loss in losses:
            loss.backward()
        norms = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5), sharded.clip_grad_norm_(0.5)
        if sharded.layout.data == 1:
            worst = max(worst, far(losses[1], losses[0]))
        worst = max(worst, abs(float(norms[1] / norms[0]) - 1))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    full = sharded.full_state_dict()
    worst = max([worst, *(far(full[name], one) for name, one in model.state_dict().items())])
    outputs = 0.0
    shown = MASK.bool()
    with torch.no_grad():
        for mask in (None, MASK):
            for more in ({}, {"labels": LABELS, "output_hidden_states": True}):
                pair = [one.eval()(input_ids=IDS, attention_mask=mask, **more) for one in (sharded, model)]
                rows = shown if mask is not None else torch.ones_like(shown)
                outputs = max(outputs, far(pair[0].logits[rows], pair[1].logits[rows]))
                if more:
                    outputs = max(outputs, far(pair[0].hidden_states[1][rows], pair[1].hidden_states[1][rows]))
        for kept in (3, torch.tensor([-1, 4])):
            outputs = max(outputs, far(*(one(input_ids=IDS, logits_to_keep=kept).logits for one in (sharded, model))))
        outputs = max(outputs, far(*map(hooked, (sharded, model))))
        told = told_inside(sharded, norm) if "gemma" in kind else []
    return {"worst": worst, "lengths": sorted(seen), "outputs": outputs, "told": told}


def refused(call):
    try:
        return f"no error: {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def own_loss(model):
    """Of hidden states that are this process's part."""
    found = model(input_ids=IDS, labels=IDS, output_hidden_states=True)
    (found.loss + found.hidden_states[1].pow(2).mean()).backward()


def set_loss(model):
    model.loss_function = lambda logits, labels, **_: logits.mean()
    return model(input_ids=IDS, labels=IDS)


def refusals():
    model = whole("llama")
    sharded = shared_out(model)
    dropping = whole("llama")
    for layer in dropping.model.layers:
        layer.self_attn.attention_dropout = 0.1
    dropping = shared_out(dropping)
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    by_length = whole("llama", rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})
    packed = torch.arange(33).expand(2, -1) % 16
    found = {
        "generate": refused(lambda: sharded.generate(IDS)),
        "cache": refused(lambda: sharded(input_ids=IDS, use_cache=True)),
        "empty cache": refused(lambda: sharded(input_ids=IDS, past_key_values=DynamicCache())),
        "part": refused(lambda: torch.no_grad()(sharded.model)(input_ids=IDS)),
        "packed": refused(lambda: sharded(input_ids=IDS, position_ids=packed)),
        "mask": refused(lambda: sharded(input_ids=IDS, attention_mask=MASK[:, None, None])),
        "embeddings": refused(lambda: sharded(inputs_embeds=torch.zeros(2, 33, 8))),
        "dropout": refused(lambda: dropping(input_ids=IDS)),
        "tensor": refused(lambda: sharded(input_ids=IDS, own=torch.ones(2, 33))),
        "loss of few logits": refused(lambda: sharded(input_ids=IDS, labels=IDS, logits_to_keep=2)),
        "eager": refused(lambda: shared_out(eager)),
        "by length": refused(lambda: shared_out(by_length)),
        "own loss": refused(lambda: own_loss(sharded)),
        "set loss": refused(lambda: set_loss(shared_out(model))),
        "other batches": refused(lambda: shared_out(model)(input_ids=IDS + dist.get_rank())),
        "compiled": refused(lambda: shared_out(model, compile=True)),
        "stages": refused(lambda: shared_out(model, "cp2.pp2")),
        "mixing": refused(lambda: shared_out(whole("jamba"))),
    }
    return found


def main(words):
    if words == ["refused"]:
        return refusals()
    return {word: compared(*word.split(",")[:2], recompute="recompute" in word) for word in words}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = main(sys.argv[1:])
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()  # threads of gloo that outlive the interpreter can crash it
