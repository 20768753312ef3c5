"""``parallelize``: put a model on several devices with one line; it is used as before."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import torch

from modular_converter.parallel.engine.base.adapted import base_of
from modular_converter.parallel.engine.base.main_guard import refuse_import_in_child
from modular_converter.parallel.engine.checkpoint.adapter_folder import is_adapter, open_adapter
from modular_converter.parallel.engine.choice.arguments import (
    LOST_WEIGHTS,
    Arguments,
    check_arguments,
    in_process_group,
)
from modular_converter.parallel.engine.choice.select_plan import GivenPlan
from modular_converter.parallel.layout import Layout
from modular_converter.parallel.quantised.torchao_int8 import pack_layers, unpack_layers
from modular_converter.parallel.training import Training


if TYPE_CHECKING:
    from modular_converter.parallel.engine.ranks.session import Session


def parallelize(
    model: Any,
    num_gpus: int = 2,
    fp16: bool = False,
    dtype: torch.dtype | None = None,
    master_port: int | None = None,
    verbose: str | None = None,
    plan: GivenPlan | None = None,
    device: str | None = None,
    init_method: str = "spawn",
    compile: bool = False,
    timeout: float = 600.0,
    mesh: Any = None,
    session: Session | None = None,
    probe: bool = True,
    model_class: Any = None,
    inference: bool = False,
    layout: Layout | str | None = None,
    training: Training | None = None,
) -> Any:
    """Put a model, or the model of a folder, on several devices and return it, in use as before.

    Under ``torchrun`` (or with a process group), this process keeps its own share, and the model can be trained.
    Otherwise one process is started for each device, and the model runs without gradients. An argument that has no
    effect is refused.

    Args:
        model: on the CPU, in the main process; or the path of a folder with ``config.json`` and safetensors files, of
            which each process reads its own share; or the path of an adapter's folder, whose model is read whole.
        num_gpus: devices to use; on a machine without GPUs as many CPU processes.
        fp16: run in half precision; short for ``dtype=torch.float16``.
        dtype: the type of the weights on the devices; if None, their present type, or that of ``config.json``.
        master_port: the port at which the processes meet; a free one if None.
        verbose: ``"simple"`` prints memory by device, ``"detail"`` each device's own summary.
        plan: a ``Plan``, transformers' ``{layer pattern: style}``, a file or its text. Without one the plan in the
            model's classes if it verifies, else the derived one; ``logging`` says which.
        device: ``"cpu"`` or ``"cuda"``; GPUs where there are some if None.
        init_method: how processes start: ``"spawn"``, ``"forkserver"``, or ``"fork"`` on CPUs.
        compile: ``generate`` with a static cache and a compiled decoding step (CUDA graphs on GPUs).
        timeout: seconds without an answer, or a token for a streamer, before the processes count as hung and are ended.
        mesh: a one-dimensional ``DeviceMesh`` under torchrun; all processes if None.
        session: processes of several models; started if they are not running.
        probe: run one layer of each kind on the processes first, and refuse a plan that changes its numbers.
        inference: under torchrun, the form without gradients that processes of parallelize's own have; ``compile``
            implies it.
        model_class: for a folder, a class of a model or an Auto class; the class that ``config.json`` names if None.
        layout: under torchrun, how many processes share out what, such as ``"fsdp2.tp2"``; all shards over
            ``tp`` if None. Batches differ between data ranks (``model.data_rank`` of ``model.layout.data``).
        training: under torchrun, how the layers are trained: recomputed, compiled, in another type.

    Raises ``PlanError`` if the model or the machine does not allow it, or a process failed; none that was started here
    is left.
    """
    if isinstance(layout, str):
        layout = Layout.parse(layout)
    given = Arguments(**locals())
    refuse_import_in_child()
    check_arguments(given, _DEFAULTS)
    if is_adapter(given.model):
        model = open_adapter(given.model, given.weight_type, given.model_class)
        given = dataclasses.replace(given, model=model, dtype=None, fp16=False, model_class=None)
    base = base_of(given.model)
    stages = isinstance(layout, Layout) and layout.pp > 1
    if stages and in_process_group():
        from modular_converter.parallel.engine.group.adapted_share import wrap_share as wrap
        from modular_converter.parallel.engine.stages.in_layout import parallelize_in_stages as put
    elif in_process_group():  # each branch imports only its own half of the engine
        from modular_converter.parallel.engine.group.adapted_share import wrap_share as wrap
        from modular_converter.parallel.engine.group.in_process_group import parallelize_here as put
    else:
        from modular_converter.parallel.engine.remote.adapted_on_ranks import wrap_on_ranks as wrap
        from modular_converter.parallel.engine.remote.put_on_ranks import put_on_ranks as put
    if isinstance(base, torch.nn.Module):
        unpack_layers(base)
    try:
        made = put(dataclasses.replace(given, model=base))
    except BaseException:
        if isinstance(base, torch.nn.Module) and LOST_WEIGHTS not in base.__dict__:
            pack_layers(base)
        raise
    return made if base is given.model else wrap(given.model, made)


_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(parallelize).parameters.items()}
