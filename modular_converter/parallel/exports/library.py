"""The vocabularies of transformers, accelerate and torch, whose own loaders run the plans here."""

from __future__ import annotations

import json
from typing import Any

import torch

from modular_converter.parallel.exports.vocabulary import Vocabulary
from modular_converter.parallel.plans.emit import (
    Unsaid,
    library_unsaid,
    loader_unsaid,
    to_library,
    torch_text,
    torch_unsaid,
)
from modular_converter.parallel.plans.plan import Plan


def library_entries(plan: Plan, model: Any) -> dict[str, str]:
    """A plan for ``DistributedConfig(tp_plan=…)``: entries of the model's own plan without a rule become ``replicate``.

    Raises ``PlanFormatError`` with the rules that this vocabulary cannot express.
    """
    return {**dict.fromkeys(getattr(model, "tp_plan", None) or {}, "replicate"), **to_library(plan, model)}


def _unsaid(plan: Plan, model: torch.nn.Module) -> list[Unsaid]:
    return [*library_unsaid(plan, model), *loader_unsaid(plan, model)]


def _library_text(plan: Plan, model: torch.nn.Module) -> str:
    return json.dumps(library_entries(plan, model), indent=4) + "\n"


_ACCELERATE = """\
from accelerate import Accelerator
from accelerate.parallelism_config import ParallelismConfig
from transformers import AutoModel
from transformers.distributed import DistributedConfig


tp_plan = {entries}


def prepared(folder, tp_size, auto=AutoModel):
    \"\"\"The accelerator, and the model of a folder, sharded over ``tp_size`` processes.\"\"\"
    accelerator = Accelerator(parallelism_config=ParallelismConfig(tp_size=tp_size))
    config = DistributedConfig(tp_size=tp_size, tp_plan=tp_plan)
    return accelerator, accelerator.prepare(auto.from_pretrained(folder, distributed_config=config))
"""


def _accelerate_text(plan: Plan, model: torch.nn.Module) -> str:
    return _ACCELERATE.format(entries=json.dumps(library_entries(plan, model), indent=4))


TRANSFORMERS = Vocabulary(
    name="transformers",
    version="5.24.0",
    use="from_pretrained(..., distributed_config=DistributedConfig(tp_size=N, tp_plan=...)), or base_model_tp_plan",
    unsaid=_unsaid,
    text=_library_text,
    route="library",
)
ACCELERATE = Vocabulary(
    name="accelerate",
    version="1.15.0",
    use="prepared(folder, tp_size) in a script that `accelerate launch` starts; accelerate refuses tensor parallelism on CPUs",
    unsaid=_unsaid,
    text=_accelerate_text,
    route="library",
)
TORCH = Vocabulary(
    name="torch",
    version="2.13.0",
    use="torch.distributed.tensor.parallel.parallelize_module(model, mesh, parallelize_plan)",
    unsaid=torch_unsaid,
    text=torch_text,
    route="torch",
)
