"""The work of each process of `test_auto_layout.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from types import SimpleNamespace

import torch
import torch.distributed as dist

from modular_converter.parallel import AutoLayout, parallelize
from modular_converter.parallel.advice import recording
from modular_converter.parallel.choice.kept_answers import AnswersOfModel
from modular_converter.parallel.tuning import auto
from tests.parallel.forked_trials import fork_trials
from tests.parallel.small_memory import SIZES, make


def unknown_gpu():
    """A machine with a GPU that no table has, as far as the advice can see."""
    auto.join_group = lambda device: torch.device("cuda")
    torch.cuda.get_device_name = lambda *device: "Own Graphics 9000"
    torch.cuda.get_device_properties = lambda *device: SimpleNamespace(total_memory=8 * 2**30)


def too_many_operations():
    recording.MOST_OPERATIONS = 10  # counts for runs that are made, not for those that are kept
    AnswersOfModel.answer = lambda self, question, compute, keeps=bool: compute()


def tiny_devices():
    own = auto.device_at_hand
    auto.device_at_hand = lambda *words: replace(own(*words), memory_gib=1e-3)


TROUBLES = {"unknown GPU": unknown_gpu, "operations": too_many_operations, "tiny": tiny_devices}


def main(case):
    dist.init_process_group("gloo")
    said = []
    logger = logging.getLogger("modular_converter.parallel.tuning")
    logger.setLevel(logging.INFO)
    logger.addHandler(
        type("Kept", (logging.Handler,), {"emit": lambda self, record: said.append(record.getMessage())})()
    )
    torch.manual_seed(0)
    trouble = TROUBLES.get(case)
    if trouble:
        trouble()
    model, more = make("plain" if trouble else case)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    found = {"case": case}
    try:
        given = AutoLayout(batch=4, length=16, stages=case == "stages", timeout=240)
        model = parallelize(model, layout=given, device="cpu", training=more)
        found["layout"] = str(model.layout)
        whole = model.full_state_dict()
        found["same"] = all(torch.equal(whole[name], one) for name, one in before.items())
        ids = torch.arange(4 * 16).view(4, 16) % SIZES["vocab_size"]
        part = ids.chunk(model.layout.data)[model.data_rank]
        if model.layout.pp > 1:
            found["loss"] = float(model.train().step(input_ids=part, labels=part))
        else:
            found["loss"] = float(model.train()(input_ids=part, labels=part).loss.detach())
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    if dist.get_rank() == 0:
        print(json.dumps({**found, "said": said}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with fork_trials():
        main(sys.argv[1])
