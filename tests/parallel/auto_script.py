"""The work of each process of `test_auto_layout.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import json
import logging
import sys

import torch
import torch.distributed as dist

from modular_converter.parallel import AutoLayout, parallelize
from tests.parallel.small_memory import SIZES, make


def main(case):
    dist.init_process_group("gloo")
    said = []
    logger = logging.getLogger("modular_converter.parallel.tuning")
    logger.setLevel(logging.INFO)
    logger.addHandler(
        type("Kept", (logging.Handler,), {"emit": lambda self, record: said.append(record.getMessage())})()
    )
    torch.manual_seed(0)
    model, more = make(case)
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
    main(sys.argv[1])
