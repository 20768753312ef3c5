"""A pipeline of which one process is refused a step, or has another mode; the first process prints what both are told."""

import copy
import json

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.errors import ApplyError
from tests.parallel.settings_script import IDS, llama


def said(call):
    try:
        call()
        return ""
    except (ApplyError, AttributeError) as error:
        return str(error)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    alone = dist.get_rank() == 1
    stages = parallelize(llama(), layout="pp2", training=Training(chunks=2), device="cpu", probe=False).train()
    told = {"labels": said(lambda: stages.step(input_ids=IDS, labels=None if alone else IDS))}
    stages.train(not alone)
    told["mode"] = said(lambda: stages.step(input_ids=IDS, labels=IDS))
    stages.train()
    told["right"] = said(lambda: stages.step(input_ids=IDS, labels=IDS))
    told["copied"], told["missing"] = said(lambda: copy.deepcopy(stages)), said(lambda: stages.state_dict())
    told["unshard"] = said(lambda: stages.unshard())
    told["entries"] = sum(one.numel() for one in stages.parameters())
    told["norm"] = said(lambda: sum(float(one.grad.norm()) ** 2 for one in stages.parameters()))
    told["vector"] = said(lambda: torch.nn.utils.parameters_to_vector(stages.parameters()))
    told["clipped"] = said(lambda: torch.nn.utils.clip_grad_norm_(stages.parameters(), 1.0))
    optimizer = torch.optim.SGD(stages.parameters(), lr=0.1)
    told["optimized"] = len(optimizer.param_groups[0]["params"])
    if alone:
        optimizer.step()
    told["skipped"] = said(lambda: stages.step(input_ids=IDS, labels=IDS))
    if not alone:
        optimizer.step()
    told["caught up"] = said(lambda: stages.step(input_ids=IDS, labels=IDS))
    optimizer.step()
    told["stepped"] = said(lambda: stages.step(input_ids=IDS, labels=IDS))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))  # which makes the number
    for name, poisons in (("scaled alone", alone), ("scaled", True)):
        if poisons:
            next(one for one in optimizer.param_groups[0]["params"] if one.grad is not None).grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        told[f"{name}, then norm"] = said(lambda: stages.clip_grad_norm_(1.0))
        told[name] = said(lambda: stages.step(input_ids=IDS, labels=IDS))
        if name == "scaled alone":
            if alone:
                optimizer.step()
            told["scaled, caught up"] = said(lambda: stages.step(input_ids=IDS, labels=IDS))
        optimizer.zero_grad()
        stages.step(input_ids=IDS, labels=IDS)
    told["whole"] = len(list(stages.parameters()))
    told["wrapped"] = said(lambda: torch.nn.parallel.DistributedDataParallel(stages))
    told["sharded"] = said(lambda: fully_shard(stages))
    told["compiled"] = said(lambda: torch.compile(stages, backend="eager"))
    told["batch"] = said(lambda: stages.step(input_ids=IDS + dist.get_rank(), labels=IDS))
    told["after"] = said(lambda: stages.step(input_ids=IDS, labels=IDS))
    handles = [one.register_post_accumulate_grad_hook(lambda _: None) for one in stages.parameters()]
    told["hooked"] = said(lambda: stages.step(input_ids=IDS, labels=IDS))
    for handle in handles:
        handle.remove()
    told["unhooked"] = said(lambda: stages.step(input_ids=IDS, labels=IDS))
    stages.eval()
    told["forward"] = said(lambda: stages(input_ids=IDS + dist.get_rank()))
    everyone = [None, None]
    dist.all_gather_object(everyone, told)
    if not alone:
        print(json.dumps({name: [one[name] for one in everyone] for name in told}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
