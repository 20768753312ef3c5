"""A pipeline whose loss, or a hook in one of its stages, fails on one process; the first prints what both are told, and when."""

import json
import sys
import time

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from modular_converter.parallel import Pipeline, Training, parallelize
from tests.parallel.settings_script import IDS, llama


def said(call):
    start = time.monotonic()
    try:
        found = call()
        return "" if found is None or bool(torch.isfinite(found)) else "not finite"
    except Exception as error:
        assert time.monotonic() - start < 30
        return f"{type(error).__name__}: {error}"


class Fails:
    """A loss, or a hook, that fails the second time that it is called where it is told to."""

    def __init__(self):
        self.left = -1

    def __call__(self, *_):
        self.left -= 1
        if not self.left:
            raise ValueError("of one process")

    def loss(self, output, target):
        self()
        return torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), target.flatten())


def deeper():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "vocab_size": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))


def told_in(layout, schedule):
    fails, rank = Fails(), dist.get_rank()
    if layout == "Pipeline":
        stages = Pipeline(deeper(), chunks=2, schedule=schedule, loss=fails.loss, device="cpu").train()
    else:
        training = Training(chunks=2, loss=fails.loss)
        stages = parallelize(llama(), layout=layout, training=training, device="cpu", probe=False).train()
    step = lambda: stages.step(input_ids=IDS, target=IDS)  # noqa: E731
    told = {"before": said(step)}
    fails.left = 2 if rank == dist.get_world_size() - 1 or layout == "Pipeline" else -1
    told["loss"] = said(step)
    told["after"] = said(step)
    parts = [one for stage in stages.stages.values() for one in stage.modules()]
    module = [one for one in parts if isinstance(one, torch.nn.Linear) and not one.weight.is_meta][-1]
    for name in ("forward", "backward") if layout in ("Pipeline", "pp2") else ():  # others wait inside of the stage
        put = module.register_forward_hook if name == "forward" else module.register_full_backward_hook
        for failing in (0, 1):
            handle = put(fails)
            fails.left = 2 if rank == failing else -1
            told[f"{name} {failing}"] = said(step)
            handle.remove()
            told[f"{name} {failing} after"] = said(step)
    return told


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for case in sys.argv[1:]:
        told, everyone = told_in(*case.split(":")), [None] * dist.get_world_size()
        dist.all_gather_object(everyone, told)
        if dist.get_rank() == 0:
            print(json.dumps({name: [one[name] for one in everyone] for name in told}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
