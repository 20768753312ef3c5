"""Process 1 alone leaves a forward by an error, and catches it; each process prints what it is told."""

import json
import sys
import time

import torch.distributed as dist

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.group import let_go
from tests.parallel.settings_script import call, llama


def fails(*_):
    raise ValueError("of one process")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = parallelize(llama(), layout=sys.argv[1], device="cpu", probe=False)
    let_go.REFUSED_LIMIT_S, own = 1.0, dist.get_rank()
    handle = model.model.layers[0].post_attention_layernorm.register_forward_pre_hook(fails) if own else None
    start = time.monotonic()
    try:
        said = call(model)  # in which the other process waits for a collective
    except ValueError:
        handle.remove()
        said = call(model)
    print(json.dumps({"process": own, "said": said, "within": time.monotonic() - start < 60}), flush=True)
