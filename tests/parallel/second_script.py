"""The work of the processes of `test_second_derivatives.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import copy
import json
import sys
import warnings

import torch
import torch.distributed as dist

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.engine.group.spread import each_once
from modular_converter.parallel.tiny.build import build, target_of


IDS = torch.arange(1, 25).view(4, 6)


def whole(kind, **settings):
    """A model in double precision whose norms and biases are not what they begin with, with attention that torch derives twice."""
    model = build(target_of(kind, "causal"), {"vocab_size": 160, **settings}).model.double().train()
    model.set_attn_implementation("eager")
    if kind == "mixtral":
        model.set_experts_implementation("eager")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    torch.manual_seed(0)
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn_like(one) * 0.05)
    return model


def embedded(model, ids, seed=0):
    chance = torch.Generator().manual_seed(seed + int(ids[0, 0]))
    shape = (*ids.shape, model.config.hidden_size)
    return torch.randn(shape, dtype=torch.float64, generator=chance, requires_grad=True)


def penalty(model, ids):
    """Losses with the norms of their gradients by two inputs; between them runs a forward without gradients."""
    total = model(input_ids=ids, labels=ids, use_cache=False).loss
    for seed in range(2):
        inputs = embedded(model, ids, seed)
        loss = model(inputs_embeds=inputs, labels=ids, use_cache=False).loss
        (gradient,) = torch.autograd.grad(loss, inputs, create_graph=True)
        total = total + loss + 100 * gradient.pow(2).sum()
        with torch.no_grad():
            model(input_ids=ids)
    return total


def product_with_hessian(model, ids):
    """The product of the gradients of all weights with the weights: its gradient has that of the Hessian with them."""
    weights = [one for one in model.parameters() if one.requires_grad]
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    return sum((gradient * one.detach()).sum() for gradient, one in zip(gradients, weights, strict=True))


def trained(form, model, part):
    """The gradients of two batches, with a step between them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    parts = [part] if part is not None else range(model.parts)
    for number in range(2):
        for one in parts:
            loss = form(model, (IDS + number).chunk(model.parts)[one])
            (loss if part is not None else loss / model.parts).backward()
        if number == 0:
            optimizer.step()
            optimizer.zero_grad()


def compared(forms, kind, layout, settings=None, **training):
    """The largest relative error of a gradient, for each form of a loss."""
    model = whole(kind, **(settings or {}))
    sharded = parallelize(
        copy.deepcopy(model), layout=layout, training=Training(**training), device="cpu", probe=False
    )
    model.parts = sharded.parts = sharded.layout.data
    errors = {}
    for form in forms:
        for one, part in ((model, None), (sharded, sharded.data_rank)):
            one.zero_grad()
            trained(form, one, part)
        found = {one.name: one.whole(one.stored.grad) for one in each_once(sharded)}
        wanted = {name: one.grad for name, one in model.named_parameters()}
        assert all(float(one.abs().max()) > 0 for one in wanted.values())
        worst = max(float((found[name] - one).abs().max() / one.abs().max()) for name, one in wanted.items())
        errors[f"{form.__name__} {kind} {layout} {training} {settings}"] = worst
    return errors


def functional(layout):
    """The errors of torch's functions for derivatives of a function of the inputs, and what is refused."""
    model = whole("llama", num_hidden_layers=1)
    sharded = parallelize(copy.deepcopy(model), layout=layout, device="cpu", probe=False)
    ids, (classic, func) = IDS[:1, :3], (torch.autograd.functional, torch.func)
    inputs, other = (embedded(model, ids, seed).detach() for seed in range(2))
    calls = {
        "hvp": lambda f, g: classic.hvp(f, inputs, other)[1],
        "jvp": lambda f, g: classic.jvp(g, inputs, other)[1],
        "hessian": lambda f, g: classic.hessian(f, inputs),
        "func.hvp": lambda f, g: func.jvp(func.grad(f), (inputs,), (other,))[1],
        "func.jacrev": lambda f, g: func.jacrev(g)(inputs),
        "func.jacfwd": lambda f, g: func.jacfwd(g)(inputs),
        "func.vmap": lambda f, g: func.vmap(func.grad(f))(torch.stack([inputs, other])),
        "func.grad of vmap": lambda f, g: func.grad(lambda x: func.vmap(f)(x).sum())(torch.stack([inputs, other])),
        "vectorized": lambda f, g: classic.jacobian(g, inputs, vectorize=True),
        "vectorized forward": lambda f, g: classic.jacobian(g, inputs, vectorize=True, strategy="forward-mode"),
    }
    found = {}
    for name, call in calls.items():
        results = []
        for one in (model, sharded):

            def last(values, one=one):
                return one(inputs_embeds=values, use_cache=False).logits[0, -1, :4].tanh()

            results.append(refused(lambda last=last, call=call: call(lambda values: last(values).pow(2).sum(), last)))
        want, got = results
        found[name] = got if isinstance(got, str) else float((got - want).abs().max() / want.abs().max())
    weights = {name: one.detach() for name, one in sharded.named_parameters()}
    given = {"inputs_embeds": inputs, "use_cache": False}
    found["weights"] = refused(
        lambda: func.grad(lambda one: func.functional_call(sharded, one, (), given).logits.sum())(weights)
    )
    return found


def with_graph(layout):
    """What is said of gradients of weights with a graph, which data ranks do not have."""
    sharded = parallelize(whole("llama"), layout=layout, device="cpu", probe=False)
    return refused(lambda: sharded(input_ids=IDS, labels=IDS).loss.backward(create_graph=True))


class Critic(torch.nn.Module):
    """Layers whose second derivatives are zero, so that a penalty of gradients reaches no output."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def critics(layout):
    """The error of two losses of a critic, apart and together; what is said of a graph after another backward or a step."""
    torch.manual_seed(0)
    model = Critic().double()
    sharded = parallelize(copy.deepcopy(model), layout=layout, device="cpu")
    inputs, found = torch.randn(4, 8, dtype=torch.float64, requires_grad=True), {}
    part = inputs.detach().chunk(2)[sharded.data_rank].requires_grad_()

    def penalty_of(one, x):
        (gradient,) = torch.autograd.grad(one(x).sum(), x, create_graph=True)
        return (gradient.norm(dim=1) - 1).pow(2).mean()

    for name in ("apart", "together"):
        for one, x in ((model, inputs), (sharded, part)):
            one.zero_grad()
            losses = [] if name == "apart" else [one(x).mean()]
            sum([*losses, penalty_of(one, x)]).backward()
        full = {one.name: one.whole(one.stored.grad) for one in each_once(sharded) if one.stored.grad is not None}
        pairs = [(full[name], one.grad) for name, one in model.named_parameters() if one.grad is not None]
        found[name] = float(max((a - b).abs().max() / b.abs().max() for a, b in pairs if b.abs().max()))
    losses = penalty_of(sharded, part), penalty_of(sharded, part)
    losses[0].backward()
    found["other"] = refused(losses[1].backward)
    optimizer, loss = torch.optim.SGD(sharded.parameters(), lr=1e-2), penalty_of(sharded, part)
    optimizer.step()
    found["step"] = refused(loss.backward)
    found["func"] = refused(lambda: torch.func.grad(lambda x: sharded(x).sum())(part))
    return found


def refused(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main(asked):
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    both = (penalty, product_with_hessian)
    if asked == "quick":
        cases = [(both, "llama", "tp2", {}), ((penalty,), "llama", "fsdp2", {})]
    elif asked == "2":
        copies = {"num_attention_heads": 4, "num_key_value_heads": 1}
        cases = [(both, "llama", "tp2", {"settings": copies}), (both, "gpt2", "tp2", {"recompute": True})]
        cases += [(both, "mixtral", "tp2", {}), (both, "mixtral", "ep2", {})]
        cases += [(both, "qwen3", "tp2", {"sequence_parallel": True})]
        cases += [((penalty,), "llama", "fsdp2", {}), ((penalty,), "llama", "ddp2", {"reshard": False})]
        cases += [((penalty,), "mixtral", "fsdp2", {"recompute": True})]
    else:
        cases = [
            ((penalty,), "llama", "fsdp2.tp2", {}),
            ((penalty,), "llama", "ddp2.tp2", {"sequence_parallel": True}),
        ]
        cases += [((penalty,), "mixtral", "ep2.fsdp2", {})]
    found = {"errors": {}}
    for forms, kind, layout, more in cases:
        found["errors"] |= compared(forms, kind, layout, **more)
    if asked == "2":
        found["functional"] = functional("tp2")
        found["graph"], found["critics"] = with_graph("fsdp2"), critics("fsdp2")
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()  # threads of gloo that outlive the interpreter can crash it


if __name__ == "__main__":
    main(sys.argv[1])
