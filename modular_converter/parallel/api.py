"""``parallelize``: put a model on several devices with one line of code."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import torch

from modular_converter.parallel.choice.select_plan import GivenPlan
from modular_converter.parallel.engine.arguments import LOST_WEIGHTS, Arguments, check_arguments, in_process_group
from modular_converter.parallel.engine.base.adapted import base_of
from modular_converter.parallel.engine.base.memory import with_devices
from modular_converter.parallel.engine.base.preflight import uncompiled
from modular_converter.parallel.engine.checkpoint.folder import is_adapter, open_adapter
from modular_converter.parallel.int8 import pack_layers, unpack_layers
from modular_converter.parallel.layout import AutoLayout, Layout, Training, floating_type
from modular_converter.parallel.ranks.processes import refuse_import_in_child
from modular_converter.parallel.tested_versions import tell_untested
from modular_converter.parallel.tiny.arguments import inputs_by_name
from modular_converter.parallel.tiny.inputs import remember_examples


if TYPE_CHECKING:
    from modular_converter.parallel.ranks.session import Session
    from modular_converter.parallel.tuning.chosen import ChosenLayout


@torch.random.fork_rng(devices=[])  # small instances are seeded: the caller's next numbers stay the caller's
def parallelize(
    model: Any,
    num_gpus: int = 2,
    fp16: bool = False,
    dtype: torch.dtype | str | None = None,
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
    layout: Layout | AutoLayout | str | os.PathLike[str] | None = None,
    training: Training | None = None,
    example_inputs: Any = None,
) -> Any:
    """Put a model, or the model of a folder, on several devices; the result is used like the model.

    Under ``torchrun`` (or with a process group), this process keeps its own share, and the model can be trained.
    Otherwise one process starts for each device, and the model runs without gradients. Arguments without effect are
    refused.

    Args:
        model: on the CPU, in the main process; or the path of a folder with ``config.json`` and safetensors files, of
            which each process reads its own share; or the path of an adapter's folder, whose model is read whole.
        num_gpus: the number of devices; on a machine without GPUs, of CPU processes.
        fp16: run in half precision; short for ``dtype=torch.float16``.
        dtype: the type of the weights on the devices, such as ``torch.bfloat16`` or ``"bf16"``; if None, their present
            type, or the type in ``config.json``.
        master_port: the port of the process group; a free port if None.
        verbose: ``"simple"`` prints a line with the share and the memory of each device, ``"detail"`` also the plan and the
            memory summaries; both say on the standard error which step begins.
        plan: a ``Plan``, transformers' ``{layer pattern: style}``, a file or its text. If None, the plan in the model's
            classes if it verifies, else the derived plan; ``logging`` tells which.
        device: ``"cpu"`` or ``"cuda"``; if None, GPUs if there are any.
        init_method: how processes start: ``"spawn"``, ``"forkserver"``, or ``"fork"`` on CPUs.
        compile: ``generate`` with a static cache and a compiled decoding step (CUDA graphs on GPUs).
        timeout: seconds without an answer, or a token for a streamer, after which hung processes are ended.
        mesh: a one-dimensional ``DeviceMesh`` under torchrun; all processes if None.
        session: processes that several models use; started if they are not running.
        probe: run one layer of each kind on the processes first, and refuse a plan that changes its numbers.
        inference: under torchrun, run without gradients, as without torchrun; ``compile`` implies it.
        model_class: for a folder, a model class or an Auto class; the class in ``config.json`` if None.
        layout: under torchrun, the number of processes in each dimension, such as ``"fsdp2.tp2"``; all in ``tp`` if None.
            Batches differ between data ranks (``model.data_rank`` of ``model.layout.data``). ``"auto"``, or an
            ``AutoLayout`` with a batch and a length: the fastest that the advice has for these devices and of which a step
            runs. The path of a choice (``.json``): its layout and options.
        training: under torchrun, options for the training of layers: recomputed, compiled, in another type.
        example_inputs: for a module without a configuration of transformers, the arguments of one forward, by name or in
            order: its plan, and its stages, are derived with them, on a copy. The module keeps them.

    Raises ``PlanError`` if the model or the machine does not allow the arguments, or a process fails; the processes that
    were started here are ended then.
    """
    layout, auto, chosen = _layout_of(layout)
    if chosen is not None:
        training = chosen.beside(training)
    if dtype is not None:
        dtype = floating_type(dtype, "dtype")
    model = uncompiled(model)
    given = Arguments(**{name: value for name, value in locals().items() if name in _NAMES})
    refuse_import_in_child()
    tell_untested()
    check_arguments(given)
    if example_inputs is not None and auto is not None:
        remember_examples(given.model, inputs_by_name(given.model, example_inputs), auto.stages)
    if auto is not None:
        from modular_converter.parallel.tuning.auto import with_chosen_layout

        given = with_chosen_layout(given, auto)
        layout = given.layout
    if example_inputs is not None:
        staged = isinstance(layout, Layout) and layout.pp > 1
        remember_examples(given.model, inputs_by_name(given.model, example_inputs), staged)
    if is_adapter(given.model):
        model = open_adapter(given.model, given.weight_type, given.model_class)
        given = dataclasses.replace(given, model=model, dtype=None, fp16=False, model_class=None)
    base = base_of(given.model)
    stages = isinstance(layout, Layout) and layout.pp > 1
    if stages and in_process_group():
        from modular_converter.parallel.engine.group.in_process_group import wrap_share as wrap
        from modular_converter.parallel.engine.stages.in_layout import parallelize_in_stages as parallelize_base
    elif in_process_group():  # each branch imports only its own half of the engine
        from modular_converter.parallel.engine.group.in_process_group import parallelize_here as parallelize_base
        from modular_converter.parallel.engine.group.in_process_group import wrap_share as wrap
    else:
        from modular_converter.parallel.engine.remote.place_on_ranks import place_on_ranks as parallelize_base
        from modular_converter.parallel.engine.remote.proxy import wrap_on_ranks as wrap
    if isinstance(base, torch.nn.Module):
        unpack_layers(base)
        with_devices(base)
    try:
        made = parallelize_base(dataclasses.replace(given, model=base))
    except BaseException:
        if isinstance(base, torch.nn.Module) and LOST_WEIGHTS not in base.__dict__:
            pack_layers(base)
        raise
    return made if base is given.model else wrap(given.model, made)


def _layout_of(given: Any) -> tuple[Layout | None, AutoLayout | None, ChosenLayout | None]:
    """The layout that is given; with ``"auto"`` one to be replaced, and the question; with a file its choice, too."""
    if isinstance(given, os.PathLike) or isinstance(given, str) and given.endswith(".json"):
        from modular_converter.parallel.tuning.chosen import read_chosen

        chosen = read_chosen(given)
        return chosen.layout, None, chosen
    if given == "auto" or isinstance(given, AutoLayout):
        return Layout(), given if isinstance(given, AutoLayout) else AutoLayout(), None
    return Layout.parse(given) if isinstance(given, str) else given, None, None


_NAMES = {one.name for one in dataclasses.fields(Arguments)}
