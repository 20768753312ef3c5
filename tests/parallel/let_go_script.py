"""The last process fails, or ends, in a call that all compute together; each process prints what it is told, and when."""

import os
import sys

import torch
import torch.distributed as dist

from modular_converter.parallel import Pipeline, Training, parallelize
from modular_converter.parallel.engine.group import let_go, sharded_model
from tests.parallel.settings_script import IDS, llama
from tests.parallel.two_runs import tell_of_two_runs


def fails(*_):
    raise ValueError("of one process")


def ends(*_):
    os._exit(0)


def main(case, layout):
    """Tell what the call says in which the last process fails, and the next one of the same kind."""
    alone = dist.get_rank() == dist.get_world_size() - 1
    if layout == "Pipeline":
        model = Pipeline(llama(), chunks=2, device="cpu")
        parts = [one for stage in model.stages.values() for one in stage.modules()]
        run = lambda: model.generate(IDS, max_new_tokens=4)  # noqa: E731
    elif "pp" in layout:
        model = parallelize(llama(), layout=layout, training=Training(chunks=2), device="cpu", probe=False).train()
        parts = [one for stage in model.stages.values() for one in stage.modules()]
        run = lambda: model.step(input_ids=IDS, labels=IDS)  # noqa: E731
    else:
        model = parallelize(llama(), layout=layout, device="cpu", probe=False)
        parts = list(model.model.layers[0].input_layernorm.modules())
        run = model.full_state_dict if case == "state" else lambda: model(input_ids=IDS)
    run()
    let_go.REFUSED_LIMIT_S = 1.0
    if alone and case == "state":
        sharded_model.whole_state = fails
    elif alone and case == "gone":
        ends()
    elif alone:
        last = [one for one in parts if isinstance(one, torch.nn.Module) and next(one.parameters(), None) is not None][
            -1
        ]
        last.register_forward_pre_hook(ends if case == "ends" else fails)
    tell_of_two_runs(run, stays_s=1.0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(*sys.argv[1:])
