"""`save_pretrained` by one process alone, then by both; the first process prints what happened."""

from __future__ import annotations

import datetime
import json
import tempfile

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.group import all_present
from modular_converter.parallel.errors import ApplyError


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=200))
    all_present.LIMIT_S = 3.0
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))
    want = {name: value.clone() for name, value in model.state_dict().items()}
    parallelize(model, probe=False)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    said = ["", ""]
    for alone in (0, 1):
        if dist.get_rank() == alone:
            try:
                model.save_pretrained(folder[0])
            except ApplyError as error:
                said[alone] = str(error)
        dist.barrier()
    all_present.LIMIT_S = 60.0
    model.save_pretrained(folder[0])
    everyone = [None, None]
    dist.all_gather_object(everyone, said)
    if dist.get_rank() == 0:
        saved = LlamaForCausalLM.from_pretrained(folder[0]).state_dict()
        same = all(torch.equal(saved[name], want[name]) for name in want)
        print(json.dumps({"first": everyone[0][0], "second": everyone[1][1], "saved": same}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
