"""Weights that the caller reads and trains beside forwards, under torchrun; the first process prints its results as JSON."""

from __future__ import annotations

import copy
import functools
import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor
from torch.nn.utils import parametrizations, weight_norm
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.errors import ApplyError


IDS = torch.arange(1, 19).view(2, 9)


def llama(heads=4, groups=2):
    torch.manual_seed(0)
    sizes = {"hidden_size": 8 * heads, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=heads, num_key_value_heads=groups))


def whole(number):
    return number.full_tensor() if isinstance(number, DTensor) else number


# Numbers of weights by their names, by attributes and by the parameters of a module.
PENALTIES = {
    "all": lambda model: sum(whole(one.pow(2).sum()) for one in model.parameters()),
    "norms": lambda model: sum(whole(one.norm()) for name, one in model.named_parameters() if "norm" not in name),
    "cut": lambda model: whole(model.model.layers[0].mlp.up_proj.weight.abs().sum()),
    "product": lambda model: whole((model.lm_head.weight @ model.lm_head.weight.T).norm()),
    "rows": lambda model: whole(model.model.embed_tokens.weight.pow(2).sum()),
    "layer": lambda model: sum(whole(one.pow(2).sum()) for one in model.model.layers[1].parameters()),
    "tensor": lambda model: (torch.ones(3, model.config.hidden_size) @ whole(model.lm_head.weight).T).norm(),
}


def said(call):
    try:
        return f"no error: {call()}"
    except ApplyError as error:
        return str(error)


class Noisy(torch.optim.SGD):
    """Steps with noise and with entries set by a mask, as of Langevin dynamics and of pruning."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        drawn = torch.Generator().manual_seed(5)
        for one in self.param_groups[0]["params"]:
            one.add_(torch.randn_like(one), alpha=0.01)
            one.add_(torch.empty_like(one).uniform_(-1, 1, generator=drawn), alpha=0.01)
            one.mul_(torch.bernoulli(torch.full_like(one, 0.9))).add_(torch.empty_like(one).exponential_(), alpha=0.01)
            one[one > 0.5] = 0.25


def drawn(layout):
    """How far steps with noise, of Adafactor and of LBFGS are from one process; data ranks have seeds of their own."""
    found = {}
    for make in (Noisy, torch.optim.Adafactor, torch.optim.LBFGS):
        one = llama().double()
        model = parallelize(copy.deepcopy(one), layout=layout, device="cpu", probe=False)
        for each in (one, model):
            each.model.norm.weight.requires_grad = False  # LBFGS makes a gradient of zeros for it
            torch.manual_seed(7 + (model.data_rank if each is model else 0))
            optimizer = make(each.parameters(), lr=0.01)
            for _ in range(3):
                optimizer.step(functools.partial(loss_of, each, optimizer))
        found[make.__name__] = furthest(model, one)
    return found


def loss_of(model, optimizer):
    with torch.enable_grad():
        optimizer.zero_grad()
        loss = model(input_ids=IDS, labels=IDS).loss
        loss.backward()
    return loss


def numbers(model):
    """Python numbers of weights, which torch takes from this process's part alone."""
    weights = list(model.parameters())
    counted = [int((one > 0.01).sum()) + bool(one.any()) for one in weights]
    return [*counted, *(float(one.max()) for one in weights), sum(one.pow(2).sum() for one in weights).item()]


def frozen(layout):
    """Freezing and thawing beside steps and calls: how far weights are from those of one process, and what is said."""
    one = llama()
    model = parallelize(copy.deepcopy(one), layout=layout, device="cpu", probe=False)
    pair = [(each, torch.optim.SGD(each.parameters(), lr=0.1)) for each in (model, one)]
    changes = [
        lambda each: [weight.requires_grad_(False) for weight in each.lm_head.parameters()],
        lambda each: each.requires_grad_(False).model.layers[1].requires_grad_(True),
        lambda each: setattr(each.model.embed_tokens.weight, "requires_grad", True),
    ]
    for change in changes:
        for each, optimizer in pair:
            with torch.no_grad():
                each(input_ids=IDS)
            change(each)
            step(each, optimizer)
            step(each, optimizer)
    found = [furthest(model, one)]
    table = model.model.embed_tokens
    table.scale_grad_by_freq = True
    found.append(said(lambda: model(input_ids=IDS)))
    table.scale_grad_by_freq = False
    for each, optimizer in pair:
        optimizer.zero_grad()
        losses = [each(input_ids=IDS, labels=IDS).loss for _ in range(2)]
        each.model.embed_tokens.requires_grad_(False)  # between a forward and its backward
        sum(losses).backward()
        optimizer.step()
    return [*found, furthest(model, one)]


def inside(*models):
    """How far models are apart after writes to weights of modules, between forwards of which no backward comes."""
    for each in models:
        each.zero_grad()
        each(input_ids=IDS)
        late = torch.optim.SGD(each.lm_head.parameters(), lr=0.5)
        with torch.no_grad():
            each.lm_head.weight.data.mul_(1.5)
            each.model.embed_tokens.weight.mul_(0.5)
            each.get_parameter("model.norm.weight").add_(0.25)
        step(each, late)
        each(input_ids=IDS)
        each.model.layers[0].mlp.up_proj.weight.data.mul_(1.5)
    losses = [float(each(input_ids=IDS, labels=IDS).loss) for each in models]
    return abs(losses[0] - losses[1]) + furthest(*models)


def parts_alone(layout):
    """`generate` calls the encoder outside of the model's forward: how far its tokens are, and what a part says that trains."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    one = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0)).eval()
    model = parallelize(copy.deepcopy(one), layout=layout, device="cpu", probe=False)
    tokens = [each.generate(IDS, max_new_tokens=4) for each in (model, one)]
    with torch.no_grad():
        far = float((model.lm_head(torch.ones(2, 32)) - one.lm_head(torch.ones(2, 32))).abs().max())
    left = type(model.lm_head.weight).__name__
    return [torch.equal(*tokens), far, left, said(lambda: model.lm_head(torch.ones(2, 32)))]


def written_between(model):
    """What a backward says of weights that were written since its forward."""
    loss = model(input_ids=IDS, labels=IDS).loss
    with torch.no_grad():
        model.lm_head.weight.mul_(1.0)
    return said(loss.backward)


def replaced(model):
    """What the next call says of a module, a weight and a bias that are others than those of ``parallelize``."""
    mlp, found = model.model.layers[0].mlp, []
    for name, value in [
        ("up_proj", torch.nn.Linear(model.config.hidden_size, 64, bias=False)),
        ("more", torch.nn.ReLU()),
    ]:
        before = mlp._modules.get(name)
        setattr(mlp, name, value)
        found.append(said(lambda: model(input_ids=IDS)))
        mlp._modules.pop(name)
        if before is not None:
            mlp._modules[name] = before
    norm = model.model.norm
    before, norm.weight = norm._parameters["weight"], torch.nn.Parameter(torch.ones(model.config.hidden_size))
    found.append(said(lambda: model(input_ids=IDS)))
    norm._parameters["weight"] = before
    return found


def step(model, optimizer, penalty=None):
    optimizer.zero_grad()
    loss = model(input_ids=IDS, labels=IDS).loss
    loss = loss if penalty is None else loss + 0.1 * penalty(model)
    loss.backward()
    optimizer.step()
    return float(loss)


def furthest(model, one):
    state = model.full_state_dict()
    return max(float((state[name] - value).abs().max()) for name, value in one.state_dict().items())


def main(layout, reshard, compile=False):
    training = Training(reshard=reshard, compile=compile) if layout.startswith("fsdp") else None
    one = llama()
    model = parallelize(copy.deepcopy(one), layout=layout, device="cpu", probe=False, training=training)
    model(input_ids=IDS, labels=IDS)  # leaves weights gathered where data ranks share them
    pair = [(model, torch.optim.SGD(model.parameters(), lr=0.1)), (one, torch.optim.SGD(one.parameters(), lr=0.1))]
    found = {"late": max(abs(step(*pair[0]) - step(*pair[1])) for _ in range(2)) + furthest(model, one)}
    for name, penalty in PENALTIES.items():
        found[name] = abs(step(*pair[0], penalty) - step(*pair[1], penalty)) + furthest(model, one)
    found["numbers"] = max(abs(a - b) / (1 + abs(b)) for a, b in zip(numbers(model), numbers(one), strict=True))
    found["replaced"] = replaced(model)
    found["copied"] = said(lambda: copy.deepcopy(model))
    found["mixed"] = said(lambda: step(*pair[0], lambda model: sum(p.pow(2).sum() for p in model.parameters())))
    if layout.startswith("fsdp"):
        loss, weights = model(input_ids=IDS, labels=IDS).loss, list(model.parameters())
        found["grad"] = said(lambda: torch.autograd.grad(loss, weights, allow_unused=True))
        found["inputs"] = said(lambda: loss.backward(inputs=weights[:1]))
        loss.backward()
    found["late and inside"] = inside(*(each for each, _ in pair))
    found["between"] = (
        written_between(model)
        if layout.startswith("fsdp")
        else "no data ranks gather some anew: write to them after the backward"
    )
    found["frozen"] = frozen(layout)
    found["drawn"] = drawn(layout) if reshard else {}
    return found


def uneven():
    model = parallelize(llama(3, 3), layout="tp2", device="cpu", probe=False)
    weight = model.model.layers[0].self_attn.q_proj.weight
    counts = [
        [one.num_parameters(), one.num_parameters(exclude_embeddings=True), one.get_memory_footprint()]
        for one in (model, llama(3, 3))
    ]
    wrong = llama(4, 4).state_dict()
    refused = {
        "state": said(model.state_dict),
        "state of a part": said(model.model.layers[1].state_dict),
        "other shapes": said(lambda: model.load_full_state_dict(wrong)),
        "load": said(lambda: model.load_state_dict(wrong)),
    }
    frozen = [one.requires_grad for one in model.requires_grad_(False).parameters()]
    model.model.embed_tokens.sparse = True
    refused["sparse"] = said(lambda: model(input_ids=IDS, labels=IDS).loss.backward())
    model.model.embed_tokens.sparse = False
    return refused | {
        "frozen": not any(frozen),
        "shape": list(weight.shape),
        "read": said(lambda: weight.sum()),
        "counts": counts,
        "normed": [said(functools.partial(one, model.lm_head)) for one in (parametrizations.weight_norm, weight_norm)],
    }


def of_entries(layout):
    """Whether entries are written as on one device, and what an optimizer of the weights before is told."""
    one = llama()
    model = copy.deepcopy(one)
    before = torch.optim.SGD(model.parameters(), lr=0.1)
    parallelize(model, layout=layout, device="cpu", probe=False)
    for each in (one, model):
        with torch.no_grad():
            each.model.embed_tokens.weight[3] = 0
            each.lm_head.weight[1:5, 2] = each.model.embed_tokens.weight[1:5, 2]
    want, got = one.state_dict(), model.full_state_dict()
    model(input_ids=IDS, labels=IDS).loss.backward()
    return all(torch.equal(got[name], want[name]) for name in want), said(before.step)


def published(layout):
    """The names of weights in the files of a model whose library saves them under others, and its class in the settings."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    one = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, vocab_size=64, max_position_embeddings=32))
    model = parallelize(copy.deepcopy(one), layout=layout, device="cpu", probe=False)
    folders = [[tempfile.mkdtemp(), tempfile.mkdtemp()]]
    dist.broadcast_object_list(folders)
    model.save_pretrained(folders[0][0])
    one.save_pretrained(folders[0][1])
    dist.barrier()
    names = [sorted(load_file(f"{folder}/model.safetensors")) for folder in folders[0]]
    settings = json.loads(Path(folders[0][0], "config.json").read_text())
    return {"names": names[0] == names[1], "class": settings["architectures"], "said": repr(model) == repr(one)}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    runs = [
        (layout, reshard) for layout in sys.argv[1:] for reshard in (True, False) if reshard or layout[:4] == "fsdp"
    ]
    found = {f"{layout} {reshard}": main(layout, reshard) for layout, reshard in runs}
    found["published"] = published("fsdp2") if "fsdp2" in sys.argv else None
    found["parts"] = parts_alone("fsdp2") if "fsdp2" in sys.argv else None
    found["entries"] = [of_entries(layout) for layout in sys.argv[1:]]
    found["uneven"] = uneven() if "tp2" in sys.argv else None
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()
