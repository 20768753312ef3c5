"""``parallelize``: one line puts a model on several devices, and it is used as before."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch

from modular_converter.parallel.engine.handover import dismantle, kept_types
from modular_converter.parallel.engine.placement import place
from modular_converter.parallel.engine.preflight import check_fit, check_home, devices_for
from modular_converter.parallel.engine.processes import refuse_import_in_child
from modular_converter.parallel.engine.proxy import Parallelized, install
from modular_converter.parallel.engine.select_plan import GivenPlan, select_plan
from modular_converter.parallel.engine.session import RemoteError, Session
from modular_converter.parallel.errors import ApplyError, RankError


logger = logging.getLogger(__name__)
_METHODS = ("spawn", "forkserver", "fork")


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
) -> Any:
    """Put a model on several devices and return it, in use as before.

    Started by ``torchrun`` (or with a process group), the process keeps its own share and nothing is started; the
    model can be trained then. Otherwise one process a device is started, and the model runs without gradients.

    Args:
        model: on the CPU, in the main process.
        num_gpus: devices to use; on a machine without GPUs as many CPU processes. Under torchrun the processes count.
        fp16: run in half precision; short for ``dtype=torch.float16``.
        dtype: the type of the weights on the devices; as they are if None.
        master_port: where the processes meet; a free port if None.
        verbose: ``"simple"`` prints memory by device, ``"detail"`` each device's own summary.
        plan: a ``Plan``, transformers' ``{layer pattern: style}``, a file or its text. Without one the plan in the
            model's classes if it verifies, else the derived one; which is said through ``logging``.
        device: ``"cpu"`` or ``"cuda"``; GPUs where there are some if None.
        init_method: how processes start: ``"spawn"``, ``"forkserver"``, or ``"fork"`` on CPUs.
        compile: ``generate`` with a static cache and a compiled decoding step (CUDA graphs on GPUs).
        timeout: seconds that a call may take before the processes count as hung and are ended.
        mesh: a one-dimensional ``DeviceMesh`` under torchrun; all processes if None.
        session: processes that are running already, to be shared by several models.

    Raises:
        PlanError: the model or the machine does not allow it (nothing has been started), or a process failed.
    """
    if verbose not in (None, "simple", "detail"):
        raise ApplyError(f'verbose={verbose!r}: give None, "simple" or "detail"')
    if fp16 and dtype not in (None, torch.float16):
        raise ApplyError(f"fp16=True and dtype={dtype}: give one of them")
    dtype = torch.float16 if fp16 else dtype
    if isinstance(model, Parallelized):
        raise ApplyError("the model is parallelized already; take it back with .cpu() first")
    refuse_import_in_child()
    if _in_group():
        from modular_converter.parallel.engine.torchrun import Sharded, parallelize_here

        if isinstance(model, Sharded):
            raise ApplyError("the model is sharded already; make it whole with .unshard() first")
        return parallelize_here(model, dtype, plan, device, mesh)
    if mesh is not None:
        raise ApplyError("mesh= needs a process group: start the script with torchrun")
    return _on_ranks(
        model, num_gpus, dtype, master_port, verbose, plan, device, init_method, compile, timeout, session
    )


def _in_group() -> bool:
    started = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    return started or torch.distributed.is_available() and torch.distributed.is_initialized()


def _on_ranks(
    model: Any,
    num_gpus: int,
    dtype: torch.dtype | None,
    master_port: int | None,
    verbose: str | None,
    given: GivenPlan | None,
    device: str | None,
    init_method: str,
    compile: bool,
    timeout: float,
    session: Session | None,
) -> Any:
    check_home(model)
    devices = session.devices if session is not None else devices_for(num_gpus, device)
    _check_method(init_method, devices)
    with torch.random.fork_rng(devices=[]):  # the caller's next random number is none of our business
        chosen, where = select_plan(model, given, len(devices))
        skeleton, tensors = dismantle(model, kept_types(model, dtype))
        pieces = check_fit(skeleton, chosen, len(devices))
    logger.info("%s on %s: %s", type(model).__name__, ", ".join(devices), where)
    own = session is None
    if session is None:
        session = Session(devices, init_method, master_port, timeout)
    if not session.ranks:
        session.start()
    try:
        placement = place(session, skeleton, tensors, chosen, pieces, compile, own)
    except RemoteError as error:
        session.end("a model could not be loaded")
        raise RankError(f"the model could not be put on the ranks; load it again: {error}") from error
    install(model, placement)
    _report(model, where, verbose)
    return model


def _check_method(method: str, devices: tuple[str, ...]) -> None:
    if method not in _METHODS:
        raise ApplyError(f"init_method={method!r}: give one of {', '.join(_METHODS)}")
    if method == "fork" and devices[0] != "cpu":
        raise ApplyError('init_method="fork" does not work with GPUs: CUDA cannot be used after a fork; give "spawn"')


def _report(model: Any, where: str, verbose: str | None) -> None:
    if verbose is None:
        return
    print(f"{type(model).__name__}: {where}")
    for name, value in model._placement.memory().items():
        detail = f"\n{value['summary']}" if verbose == "detail" else ""
        print(f"{name}: {value['allocated'] / 2**20:.0f} MiB allocated{detail}")
