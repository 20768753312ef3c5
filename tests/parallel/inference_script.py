"""Whole weights of models for inference under torchrun, as code outside of forwards reads them; prints its results as JSON."""

from __future__ import annotations

import copy
import json
import sys
import tempfile

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, MixtralConfig, MixtralForCausalLM
from transformers.pytorch_utils import Conv1D

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.group import same_calls
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.inference.experts import WEIGHTS
from tests.parallel.conveniences import handy
from tests.parallel.weights_script import llama, whole


IDS = torch.arange(1, 19).view(2, 9)


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_embd=48, n_head=3, n_layer=2, vocab_size=65, n_positions=32))


def mixtral():
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "vocab_size": 64,
        "num_local_experts": 4,
    }
    return MixtralForCausalLM(MixtralConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))


MODELS = {"llama": llama, "gpt2": gpt2, "mixtral": mixtral, "own": handy}
# Each runs on the whole model and on the processes' shares, in this order.
USES = {
    "call": lambda m, folder: m(input_ids=IDS).logits,
    "names": lambda m, folder: [name for name, _ in m.named_parameters()],
    "shapes": lambda m, folder: [tuple(one.shape) for one in m.parameters()],
    "entries of a part": lambda m, folder: sum(one.numel() for one in next(m.children()).parameters()),
    "norms": lambda m, folder: torch.stack([one.norm() for one in m.parameters()]),
    "attribute": lambda m, folder: [one.weight.sum() for one in m.modules() if isinstance(one, torch.nn.Linear)],
    "state": lambda m, folder: torch.cat([one.flatten() for one in m.state_dict().values()]),
    "state of a part": lambda m, folder: list(next(m.children()).state_dict().values()),
    "saved state": lambda m, folder: (torch.save(m.state_dict(), folder), list(torch.load(folder).values()))[1],
    "tied": lambda m, folder: len(list(m.parameters())),
    "sizes": lambda m, folder: sizes(m),
    "layers by themselves": lambda m, folder: [
        one(ones(one)) for one in m.modules() if isinstance(one, (torch.nn.Linear, Conv1D))
    ],
    "facts": lambda m, folder: [str(m.dtype), str(next(m.parameters()).device), m.num_parameters()],
    "type": lambda m, folder: m.to(torch.bfloat16).to(torch.float64)(input_ids=IDS).logits,
    "weights of the type": lambda m, folder: [one.double().norm() for one in m.parameters()],
    "call again": lambda m, folder: m(input_ids=IDS).logits,
}


def ones(layer):
    width = layer.weight.shape[0] if isinstance(layer, Conv1D) else layer.weight.shape[1]
    return torch.linspace(-1, 1, 2 * width, dtype=layer.weight.dtype).view(2, width)


def sizes(model):
    """Integers of modules, and their configurations, as code outside of forwards reads them."""
    found = [
        (path, name)
        for path, one in model.named_modules()
        for name, value in vars(one).items()
        if is_size(name, value)
    ]
    return [f"{path}.{name} {getattr(model.get_submodule(path), name)}" for path, name in found]


def is_size(name, value):
    return type(value) is int and not name.startswith("_") or name == "config"


def by_themselves(layout):
    """Layers of a model in the form for training: called alone, with their gradients."""
    one = llama()
    there = parallelize(copy.deepcopy(one), layout=layout, device="cpu", probe=False)
    sums = []
    for model in (one, there):
        results = [layer(ones(layer)) for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
        sum(result.pow(2).sum() for result in results).backward()
        sums.append([*results, *(whole(weight.grad) for weight in model.parameters() if weight.grad is not None)])
    return compared(lambda found, folder: found, *sums)


def left_inside(options):
    """What other code gets of the shares in a forward: by attributes, and by hooks on a block and on a layer in it."""
    one = handy().eval()
    there = parallelize(copy.deepcopy(one), device="cpu", probe=False, **options)
    found = {"block": compared(lambda m, folder: hooked(m, m.layers[1].mlp), one, there)}
    found["stored"] = said(lambda: there.layers[0].attn.last.shape)
    found["again"] = compared(USES["call"], one, there)
    found["layer"] = said(lambda: hooked(there, there.layers[1].mlp.up))
    eager = llama().eval()
    eager.set_attn_implementation("eager")
    eager = parallelize(eager, device="cpu", probe=False, **options)
    found["heads"] = said(lambda: hooked(eager, eager.model.layers[0].self_attn))
    shapes = [list(weights.shape) for weights in eager(input_ids=IDS, output_attentions=True).attentions]
    return found | {"attentions": shapes == [[2, 4, 9, 9]] * 2}


def hooked(model, module):
    results = []
    handle = module.register_forward_hook(lambda module, args, result: results.append(result))
    try:
        model(input_ids=IDS)
    finally:
        handle.remove()
    return results


def trained():
    """A model with integers that shrink, in the form for training: read outside, changed, and whole again."""
    one = gpt2().eval()
    there = parallelize(copy.deepcopy(one), device="cpu", probe=False)
    attention = there.transformer.h[0].attn
    found = {"read": sizes(there) == sizes(one), "own": attention._sizes[1]["split_size"] < attention.split_size}
    found["before"] = compared(USES["call"], one, there)
    attention.split_size *= 2
    found["changed"] = said(lambda: there(input_ids=IDS))
    attention.split_size //= 2
    there.unshard()
    return found | {
        "after": compared(USES["call"], one, there),
        "type": type(attention) is type(one.transformer.h[0].attn),
    }


def tensors(value):
    if isinstance(value, torch.Tensor):
        return value.detach().double()
    numbers = isinstance(value, list) and value and isinstance(value[0], torch.Tensor)
    return torch.cat([one.detach().double().flatten() for one in value]) if numbers else None


def compared(use, one, there):
    folder = tempfile.mkdtemp()
    want, got = use(one, f"{folder}/one"), use(there, f"{folder}/there")
    first, second = tensors(want), tensors(got)
    if first is None or second is None:
        return "equal" if want == got else f"{got} for {want}"
    if first.shape != second.shape:
        return f"{list(second.shape)} for {list(first.shape)}"
    off = float((first - second).abs().max() / first.abs().max())
    return "equal" if off < 1e-5 else f"differs by {off}"


def said(call):
    try:
        return f"no error: {call()}"
    except PlanError as error:
        return str(error)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    answers, fused = {}, {}
    for name in sys.argv[1:]:
        one = MODELS[name]().eval()
        there = parallelize(copy.deepcopy(one), device="cpu", inference=True)
        uses = USES.items() if name != "mixtral" else [*USES.items()][:-3]  # grouped products have no float64
        answers[name] = {label: compared(use, one, there) for label, use in uses}
        fused[name] = [one.__dict__.get("_fused") for one in there.modules() if set(WEIGHTS) <= set(one._parameters)]
    inner = next(module for module in there.modules() if isinstance(module, torch.nn.Linear))
    found = {
        "write": said(lambda: inner.weight.data.mul_(2)),
        "copy": said(lambda: copy.deepcopy(inner)),
        "pickle": said(lambda: torch.save(there, f"{tempfile.mkdtemp()}/model.pt")),
    }
    found["trained"] = trained()
    found["left"] = [left_inside(options) for options in ({"inference": True}, {"layout": "tp2"})]
    found["by themselves"] = by_themselves("tp2")
    same_calls.LIMIT_S = 2.0
    if dist.get_rank() == 0:
        found["alone"] = said(lambda: inner.weight.norm())
        print(json.dumps({"answers": answers, "said": found, "fused": fused}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
