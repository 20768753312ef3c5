"""What one process alone does between the calls of a model that all run; the first process prints what all were told."""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from modular_converter.parallel import parallelize
from modular_converter.parallel.errors import ApplyError


IDS = torch.arange(1, 19).view(2, 9)


def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)).eval()


# Name -> the change and its opposite.
CHANGES = {
    "mode": (lambda model: model.train(), lambda model: model.eval()),
    "mode inside": (lambda model: model.model.layers[1].train(), lambda model: model.model.layers[1].eval()),
    "number": (
        lambda model: setattr(model.model.layers[0].self_attn, "scaling", 0.5),
        lambda model: setattr(model.model.layers[0].self_attn, "scaling", 8**-0.5),
    ),
    "config": (
        lambda model: setattr(model.config, "output_hidden_states", True),
        lambda model: setattr(model.config, "output_hidden_states", False),
    ),
    "type": (
        lambda model: torch.set_default_dtype(torch.float64),
        lambda model: torch.set_default_dtype(torch.float32),
    ),
    "gradients": (lambda model: torch.set_grad_enabled(False), lambda model: torch.set_grad_enabled(True)),
}


def call(model):
    try:
        model(input_ids=IDS)
        return ""
    except ApplyError as error:
        return str(error)


def main(layout, change, undo):
    """What this process is told when process 1 makes a change alone, in the next call too, when it has undone it, and when all make it."""
    model, alone = parallelize(llama(), layout=layout, device="cpu", probe=False), dist.get_rank() == 1
    said = [call(model)]
    if alone:
        change(model)
    said += [call(model), call(model)]
    if alone:
        undo(model)
    said.append(call(model))
    for one in (change, undo):
        one(model)
        said.append(call(model))
    return said


def different(layout):
    model = parallelize(llama(), layout=layout, device="cpu", probe=False)
    call(model)
    model.model.layers[0].self_attn.scaling = 1.0 + dist.get_rank()
    return call(model)


def resized(layout):
    """What all are told that have set an integer of a module with cut weights, and once it is undone."""
    model = parallelize(llama(), layout=layout, device="cpu", probe=False)
    attention = model.model.layers[0].self_attn
    attention.head_dim *= 2
    said = call(model)
    attention.head_dim //= 2
    return said, call(model)


def caught(layout, fails):
    """What is told when process 1 alone has caught an error, and leaves out the rest of its step: in its next call, and again."""
    model = parallelize(llama(), layout=layout, device="cpu", probe=False)
    said = [call(model)]
    try:
        if dist.get_rank() == 1:
            fails(model)
        said.append(call(model))
    except (ApplyError, ValueError):
        said.append("caught")
    said.append(call(model) if said[-1] == "caught" else "")
    return [*said, call(model)]


def not_an_array(model):
    model.lm_head.weight.numpy()[...] = 0.0


def other_method(layout):
    """What all are told of whom one generates where the other one calls the model, and once both call it."""
    model = parallelize(llama(), layout=layout, device="cpu", probe=False)
    try:
        with torch.no_grad():
            model.generate(IDS, max_new_tokens=2) if dist.get_rank() else model(input_ids=IDS)
        said = "no error"
    except ApplyError as error:
        said = str(error)
    return said, call(model)


def heads_edited(layout):
    """What is told of an edit of one head of a cache, and how far a call with an edited position is from one device."""

    def edited(model):
        past = model(input_ids=IDS).past_key_values
        past.layers[0].keys[:, :, 3] *= 2
        past.crop(-2)
        return model(input_ids=IDS[:, :1], past_key_values=past).logits, past

    with torch.no_grad():
        (want, _), (found, past) = (
            edited(llama()),
            edited(parallelize(llama(), layout=layout, device="cpu", probe=False)),
        )
    try:
        past.layers[0].keys[:, 1] = 0
        said = "no error"
    except ApplyError as error:
        said = str(error)
    return said, float((want - found).abs().max())


def note(*_):
    """A hook that does nothing; at the top of the file, so that processes can compare their models."""


def hooked_before(layout):
    """What is told of a hook that a projection had before `parallelize`."""
    model = llama()
    model.model.layers[1].self_attn.q_proj.register_forward_hook(note)
    return call(parallelize(model, layout=layout, device="cpu", probe=False))


@torch.no_grad()
def layer_first(layout):
    """How far a layer that is called before the model is from one device, and the model behind it."""
    hidden, found = torch.ones(2, 9, 32), []
    for model in (llama(), parallelize(llama(), layout=layout, device="cpu", probe=False)):
        around = model.model.rotary_emb(hidden, torch.arange(9)[None])
        found.append(model.model.layers[0](hidden, position_embeddings=around).sum() + model(input_ids=IDS).logits)
    return float((found[0] - found[1]).abs().max())


class Noisy(torch.nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, hidden):
        return self.inside(hidden) + torch.rand_like(hidden)


def noisy():
    model = llama()
    model.model.norm = Noisy(model.model.norm)
    return model


@torch.no_grad()
def drawn(layout):
    """Where processes have other seeds: sampled tokens, and those of one device with this process's and the first one's.

    Of a forward with noise: what is told with other seeds, there and in the next call, and with the same one how far it is
    from one device.
    """
    model, tokens = parallelize(llama(), layout=layout, device="cpu", probe=False), []
    for one, seed in ((model, 5 + dist.get_rank()), (llama(), 5 + dist.get_rank()), (llama(), 5)):
        torch.manual_seed(seed)
        tokens.append(one.generate(IDS, do_sample=True, max_new_tokens=4, min_new_tokens=4).tolist())
    model = parallelize(noisy(), layout=layout, device="cpu")
    torch.manual_seed(5 + dist.get_rank())
    said, answers = call(model), []
    dist.barrier()
    said += call(model) if layout == "tp2" else ""
    for one in (model, noisy()):
        torch.manual_seed(5)
        answers.append(one(input_ids=IDS).logits)
    return tokens, said, float((answers[0] - answers[1]).abs().max())


def built(layout):
    model = llama()
    model.model.layers[0].mlp.train(dist.get_rank() == 1)
    try:
        parallelize(model, layout=layout, device="cpu", probe=False)
        return ""
    except ApplyError as error:
        return str(error)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = {name: main(sys.argv[1], *change) for name, change in CHANGES.items()}
    found |= {"different": different(sys.argv[1]), "built": built(sys.argv[1])}
    found["heads"] = heads_edited(sys.argv[1])
    found["method"] = other_method(sys.argv[1])
    if sys.argv[1] == "tp2":
        found["resized"] = resized(sys.argv[1])
    found["hooked"], found["layer"] = hooked_before(sys.argv[1]), layer_first(sys.argv[1])
    found["drawn"] = drawn(sys.argv[1])
    found["caught"] = caught(sys.argv[1], not_an_array)
    everyone = [None, None]
    dist.all_gather_object(everyone, found)
    if dist.get_rank() == 0:
        print(json.dumps({name: [one[name] for one in everyone] for name in found}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
