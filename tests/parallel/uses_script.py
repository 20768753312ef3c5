"""What training scripts do with a model, in a layout and on one device: the difference of the results, or the words of a refusal."""

from __future__ import annotations

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint
from transformers import LlamaForSequenceClassification

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.choice import small_instances
from modular_converter.parallel.errors import PlanError
from tests.parallel.parts_script import Writes, X, Y
from tests.parallel.parts_script import made as normed_layers
from tests.parallel.settings_script import llama


LAYOUT = sys.argv[1] if len(sys.argv) > 1 else ""
IDS = torch.arange(1, 37).view(4, 9)
POSITIONS = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4]).expand(4, 9)
IS_PIPELINE = "pp" in LAYOUT


def prepared(model, **options):
    """The model in the layout of the script."""
    options |= {"chunks": 1, "schedule": "GPipe"} if LAYOUT == "pp2.fsdp2" else {"chunks": 2} if IS_PIPELINE else {}
    more = {"example_inputs": options.pop("example_inputs")} if "example_inputs" in options else {}
    return parallelize(model, layout=LAYOUT, device="cpu", probe=False, training=Training(**options), **more)


def part(model, rows):
    """The rows of this process's data rank."""
    return rows.chunk(model.layout.data)[model.data_rank] if hasattr(model, "layout") else rows


def whole(model, rows):
    """The rows of all data ranks, and those that the last stage has, on all processes."""
    if not hasattr(model, "layout"):
        return rows
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, (model.data_rank, rows))
    return torch.cat([one for _, one in sorted({rank: one for rank, one in found if one is not None}.items())])


def logits(model, **inputs):
    with torch.no_grad():
        output = model.eval()(**{name: part(model, one) for name, one in inputs.items()})
    return whole(model, None if output is None else output.logits)


def backward(model, **inputs):
    """The loss of the whole batch, whose gradients are added."""
    given = {name: part(model, one) for name, one in (inputs or {"input_ids": IDS, "labels": IDS}).items()}
    if hasattr(model, "step"):
        loss = model.step(**given)
    else:
        loss = model(**given).loss
        loss.backward()
    loss = loss.detach().double()
    if hasattr(model, "layout"):
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
    return loss


def clipped(model, most):
    """The norm of all gradients before they are scaled."""
    if hasattr(model, "layout"):
        return model.clip_grad_norm_(most)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), most)


def trained(model, steps=2, **inputs):
    """The losses of steps."""
    optimizer, losses = torch.optim.SGD(model.train().parameters(), lr=0.5), []
    for _ in range(steps):
        losses.append(backward(model, **inputs))
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(losses)


def halved(module, inside, outside):
    """A hook of the backward pass."""
    return tuple(None if one is None else one * 0.5 for one in inside)


def hooked(make):
    model = llama()
    model.model.layers[1].register_full_backward_hook(halved)
    return trained(make(model))


def in_half(make):
    model = make(llama())
    with torch.autocast("cpu", torch.bfloat16):
        return trained(model, 1)


def in_half_twice(make):
    """Torch keeps the casts of the first forward; the norm of the summed gradients."""
    model = make(llama()).train()
    with torch.autocast("cpu", torch.bfloat16):
        for ids in (IDS, IDS.flip(0)):
            backward(model, input_ids=ids, labels=ids)
    return clipped(model, 1e9)


def other_labels(make):
    """Rows of one data rank have fewer labels that count."""
    backward(make(llama()).train(), input_ids=IDS, labels=IDS.masked_fill(IDS < 12, -100))
    return torch.zeros(())


def fewer_rows(make):
    model = make(llama()).train()
    backward(model, input_ids=IDS[:3], labels=IDS[:3])
    return torch.zeros(())


def summed(output, target):
    """Over all rows, divided by a number of the whole batch."""
    return ((output.logits.mean(-1) - target) ** 2).sum() / 36


def own_sum(make, loss=summed):
    """The norm of the gradients of a loss of the caller's."""
    is_there = make is prepared
    model = (make(llama(), loss=loss) if is_there else make(llama())).train()
    if is_there:
        model.step(input_ids=part(model, IDS), target=part(model, IDS.double().sin()))
    else:
        loss(model(input_ids=IDS), IDS.double().sin()).backward()
    return clipped(model, 1e9)


def own_sum_of_other_rows(make):
    """Parts of other sizes, of which the sum of the sums is that of the batch."""
    model, target = make(llama(), loss=summed) if make is prepared else make(llama()), IDS.double().sin()
    if make is prepared:
        rows = slice(0, 3) if model.data_rank == 0 else slice(3, 4)
        model.train().step(input_ids=IDS[rows], target=target[rows])
    else:
        summed(model.train()(input_ids=IDS), target).backward()
    return clipped(model, 1e9)


def similar_rows(output, target):
    """A comparison of rows."""
    rows = output.logits.flatten(1)
    return torch.nn.functional.cross_entropy(rows @ rows.T, torch.arange(len(rows)))


def own_comparison(make):
    return own_sum(make, similar_rows)


def written_in_place(make):
    """Layers write to what they get, which code around them reads again; the gradients of the first layer of each stage."""
    model = normed_layers(Writes).double()
    rows, target = X.double(), Y
    if make is prepared:
        model = make(model, loss=torch.nn.functional.cross_entropy, example_inputs=(rows,)).train()
        model.step(part(model, rows), target=part(model, target))
    else:
        torch.nn.functional.cross_entropy(model(rows), target).backward()
    return clipped(model, 1e9)


def packed(make):
    return trained(make(llama()), input_ids=IDS, labels=IDS, position_ids=POSITIONS)


def packed_without_a_cache(make):
    model = llama()
    model.config.use_cache = False
    model = make(model)
    return logits(model, input_ids=IDS, position_ids=POSITIONS)


def loaded(make):
    """A state without one weight, and with another one."""
    model, state = make(llama()), llama().state_dict()
    state["model.norm.weight"] = state["model.norm.weight"] * 2
    state["other"] = state.pop("lm_head.weight")
    load = getattr(model, "load_full_state_dict", None) or model.load_state_dict
    missing, unexpected = load(state, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], ["other"])
    return logits(model, input_ids=IDS)


@torch.no_grad()
def of_vmap(make):
    model = make(llama().eval())
    return torch.vmap(lambda ids: model(input_ids=ids[None], use_cache=False).logits)(IDS)


def generated(make, **inputs):
    model = make(llama())
    return model.generate(**inputs or {"inputs": IDS[:2]}, max_new_tokens=4, min_new_tokens=4)


class Counts:
    """A logits processor that counts its calls."""

    calls = 0

    def __call__(self, ids, scores):
        self.calls += 1
        return scores


def generated_with_counts(make):
    counts = Counts()
    make(llama()).generate(IDS[:2], max_new_tokens=4, min_new_tokens=4, logits_processor=[counts])
    return torch.tensor(counts.calls)


def generated_with_guidance(make):
    return generated(make, inputs=IDS[:2], guidance_scale=2.0)


def generated_from_embeddings(make):
    return generated(make, inputs_embeds=torch.ones(2, 3, 32))


def masked(output, target):
    """A mean over entries that are not 0."""
    return ((output.logits.mean(-1) - target) ** 2 * (target != 0)).sum() / (target != 0).sum()


def own_loss_of_other_targets(make):
    model = make(llama(), loss=masked) if IS_PIPELINE and make is prepared else make(llama())
    first = IDS.double().sin()
    second = first.clone()
    second[0, :5] = 0
    found = []
    for target in (first, second):
        if hasattr(model, "step"):
            found.append(model.train().step(input_ids=IDS, target=target).double())
        else:
            found.append(masked(model.train()(input_ids=IDS), target).detach().double())
    return torch.stack(found)


def classified(make):
    """The model's code sets ``config.problem_type`` in the first step; without a padding token it takes one row."""
    torch.manual_seed(0)
    config = llama().config
    config.pad_token_id, config.num_labels = 0, 3
    return trained(make(LlamaForSequenceClassification(config)), input_ids=IDS, labels=torch.tensor([0, 1, 2, 1]))


def in_double(make):
    torch.set_default_dtype(torch.float64)
    try:
        return trained(make(llama()))
    finally:
        torch.set_default_dtype(torch.float32)


def in_half_by_default(make):
    torch.set_default_dtype(torch.bfloat16)
    try:
        return trained(make(llama().double()))
    finally:
        torch.set_default_dtype(torch.float32)


def with_a_frozen_stage(make):
    """In double precision; the first stage has no gradients."""
    model = llama().double()
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers[0].requires_grad_(False)
    model = make(model)
    trained(model, 1)
    backward(model)
    norms = [clipped(model, 0.5), clipped(model, 0.1)]
    assert norms[0].dtype == torch.float64
    return torch.stack(norms)


def drawn_anew(make):
    model = make(llama())
    torch.manual_seed(5)
    for name, one in model.named_parameters():
        if "mlp" in name:
            torch.nn.init.normal_(one, std=0.2)
    return trained(model)


def recomputed(make, reentrant=True):
    """The whole model in a checkpoint of the caller's."""
    model, one = make(llama()).train(), torch.ones((), requires_grad=True)
    ids = part(model, IDS)
    checkpoint(
        lambda given, factor: model(input_ids=given, labels=given).loss * factor, ids, one, use_reentrant=reentrant
    ).backward()
    return clipped(model, 1e9)


def recomputed_otherwise(make):
    return recomputed(make, reentrant=False)


def next_numbers(make):
    """The caller's random numbers behind the first calls, of which nothing is kept from before."""
    os.environ["MODULAR_CONVERTER_CACHE"] = tempfile.mkdtemp()
    small_instances._INSTANCES.clear()
    model = make(llama())
    trained(model)
    logits(model, input_ids=IDS)
    return torch.rand(4)


def beyond_the_vocabulary(make):
    """The calls that say which id has no row."""
    model, said = make(llama()), 0
    calls = {
        "step": lambda ids: backward(model.train(), input_ids=ids, labels=IDS),
        "call": lambda ids: model.eval()(input_ids=part(model, ids)),
        "generate": lambda ids: model.eval().generate(part(model, ids), max_new_tokens=2),
        "labels": lambda ids: backward(model.train(), input_ids=IDS, labels=ids),
    }
    for name, call in calls.items():
        try:
            call(IDS + 40)
        except IndexError as error:
            said += name == "labels" or make is not prepared or "64 at [2, 5] of the ids of model.emb" in str(error)
    found = [said]
    if make is prepared:
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, said)
    return torch.tensor(min(found))


def swapped(make):
    """An average of weights takes their place by ``data``, and they come back."""
    model = make(llama())
    average = {name: one.detach() * 1.5 for name, one in model.named_parameters()}
    found = []
    for _ in range(2):
        for name, one in model.named_parameters():
            average[name], one.data = one.data, average[name]
        found.append(logits(model, input_ids=IDS))
    return torch.cat(found)


@torch.no_grad()
def replaced(make):
    """What code has of a weight before another one takes its place by ``data``, and the weight."""
    model = make(llama())
    weight = model.model.norm.weight
    found = [weight.detach(), weight.data[2:], weight.detach()[:5]]
    weight.data = weight.data * 2
    found.append(weight)
    return torch.cat([one.full_tensor() if isinstance(one, DTensor) else one for one in found])


USES = {
    "pp": (
        hooked,
        classified,
        in_double,
        with_a_frozen_stage,
        drawn_anew,
        packed,
        packed_without_a_cache,
        of_vmap,
        next_numbers,
        generated,
        generated_with_counts,
        generated_with_guidance,
        generated_from_embeddings,
        own_loss_of_other_targets,
        beyond_the_vocabulary,
    ),
    "pp2.fsdp": (
        in_half_twice,
        other_labels,
        fewer_rows,
        own_sum,
        own_sum_of_other_rows,
        own_comparison,
        written_in_place,
    ),
    "fsdp": (
        in_half,
        in_half_twice,
        in_half_by_default,
        loaded,
        of_vmap,
        next_numbers,
        replaced,
        swapped,
        recomputed,
        recomputed_otherwise,
    ),
    "tp": (next_numbers, replaced, swapped, in_half, in_half_by_default, loaded, of_vmap, classified),
}


def told(use):
    """How far a use is from one device, or what it is told."""
    torch.manual_seed(3)
    wanted = use(lambda model, **_: model)
    torch.manual_seed(3)
    try:
        found = use(prepared)
    except PlanError as error:
        return str(error)
    except Exception as error:
        return f"RAW {type(error).__name__}: {error}"
    return float((wanted - found).abs().max())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(json.dumps({use.__name__: told(use) for use in USES[LAYOUT.rstrip("2")]}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
