"""The work of each process of `test_hosts.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from modular_converter.parallel import parallelize
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.proof.judge import relative_error


def main(*folders):
    """The folder of each host, and one of another model."""
    *own, other = folders
    folder = own[int(os.environ["GROUP_RANK"])]
    logging.getLogger("modular_converter").setLevel(logging.INFO)
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("modular_converter").addHandler(handler)
    model = parallelize(folder, device="cpu")
    read = next(one.args[1] for one in records if "has read" in str(one.msg))
    whole = type(model).from_pretrained(folder)
    ids = torch.arange(12).reshape(2, 6) + 3
    found = {"types": len({p.dtype for p in model.parameters()})}
    own = [p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
    found["share"] = sum(p.numel() for p in own) / sum(p.numel() for p in whole.parameters())
    found["read"] = read * 2**20 / sum(p.numel() * p.element_size() for p in whole.parameters())
    want, got = whole(input_ids=ids, labels=ids), model(input_ids=ids, labels=ids)
    found["outputs"] = relative_error(got.logits, want.logits)
    how = {"max_new_tokens": 4, "do_sample": False}
    found["tokens"] = torch.equal(model.generate(ids, **how), whole.generate(ids, **how))
    got.loss.backward()
    want.loss.backward()
    expected = sum(float(p.grad.norm() ** 2) for p in whole.parameters() if p.grad is not None) ** 0.5
    found["norm"] = abs(float(model.clip_grad_norm_(1e9)) / expected - 1)
    full = model.full_state_dict()
    found["weights"] = all(torch.equal(value, full[name]) for name, value in whole.state_dict().items())
    model.save_pretrained(folder + "-saved")
    loaded = type(whole).from_pretrained(folder + "-saved") if dist.get_rank() == 0 else whole
    found["saved"] = all(torch.equal(value, full[name]) for name, value in loaded.state_dict().items())
    found["errors"] = []
    for one in (folder if dist.get_rank() else other, folder + "/none" if dist.get_rank() else folder):
        try:
            parallelize(one, device="cpu")
        except PlanError as error:
            found["errors"].append(str(error))
    quick = parallelize(folder, device="cpu", compile=True)
    found["plain"] = any("_plain_role" in vars(module) for module in quick.modules())
    found["plain outputs"] = relative_error(quick(input_ids=ids).logits, want.logits)
    found["plain tokens"] = torch.equal(quick.generate(ids, **how), whole.generate(ids, **how))
    found["gradients"] = quick(input_ids=ids).logits.requires_grad
    found["plain weights"] = torch.equal(quick.full_state_dict()["lm_head.weight"], whole.lm_head.weight)
    for method in (quick.train, quick.unshard, lambda: setattr(model, "peft_config", {})):
        try:
            method()
        except PlanError as error:
            found["errors"].append(str(error))
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
