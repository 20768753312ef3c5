"""``parallelize``: one line puts a model on several devices, and it is used as before."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.engine.choice.preflight import check_fit, check_home, check_text, devices_for
from modular_converter.parallel.engine.choice.select_plan import GivenPlan, select_plan
from modular_converter.parallel.engine.ranks.processes import refuse_import_in_child
from modular_converter.parallel.engine.ranks.session import RemoteError, Session
from modular_converter.parallel.engine.remote.handover import Skeleton, dismantle, kept_types
from modular_converter.parallel.engine.remote.placement import place
from modular_converter.parallel.engine.remote.proxy import Parallelized, install
from modular_converter.parallel.errors import ApplyError, RankError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece


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
    An argument that has no effect is refused.

    Args:
        model: on the CPU, in the main process.
        num_gpus: devices to use; on a machine without GPUs as many CPU processes.
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
        session: processes of several models; started if they are not running.

    Raises:
        PlanError: the model or the machine does not allow it (nothing has been started), or a process failed.
    """
    refuse_import_in_child()
    _check(dict(locals()))
    dtype = torch.float16 if fp16 else dtype
    if _in_group():
        return _in_place(model, dtype, plan, device, mesh, verbose)
    own = session is None
    if session is None:
        session = Session(devices_for(num_gpus, device), init_method, master_port, timeout)
    return _on_ranks(model, dtype, plan, session, own, compile, verbose)


def _check(given: dict[str, Any]) -> None:
    """Raise ``ApplyError`` for arguments that mean nothing, alone or together, and ``RankError`` for an ended session."""
    device, timeout, verbose, dtype = (given[name] for name in ("device", "timeout", "verbose", "dtype"))
    if device not in (None, "cpu", "cuda"):
        raise ApplyError(f"device={device!r}: give 'cpu' or 'cuda'")
    if not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
        raise ApplyError(f"timeout={timeout!r}: give a number of seconds above 0")
    for name in ("num_gpus", "master_port"):
        number = given[name]
        if isinstance(number, bool) or not isinstance(number, (int, type(None))):
            raise ApplyError(f"{name}={number!r}: give a whole number")
    if verbose not in (None, "simple", "detail"):
        raise ApplyError(f'verbose={verbose!r}: give None, "simple" or "detail"')
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ApplyError(f"dtype={dtype!r}: give a floating type, such as torch.bfloat16")
    if given["fp16"] and dtype not in (None, torch.float16):
        raise ApplyError(f"fp16=True and dtype={dtype}: give one of them")
    if not isinstance(given["model"], torch.nn.Module):
        raise ApplyError(f"model is of type {type(given['model']).__name__}: give a torch.nn.Module")
    if _LOST in given["model"].__dict__:
        raise ApplyError("the model lost weights when an earlier parallelize did not come to its end; load it again")
    if isinstance(given["model"], Parallelized):
        raise ApplyError("the model is parallelized already; take it back with .cpu() first")
    if _in_group():
        right = given["num_gpus"] == int(os.environ.get("WORLD_SIZE", "0"))
        idle = tuple(name for name in _IDLE_IN_GROUP if name != "num_gpus" or not right)
        _refuse_idle(given, idle, "in a process group each process that runs already keeps its share")
        return
    if given["mesh"] is not None:
        raise ApplyError("mesh= needs a process group: start the script with torchrun")
    if given["session"] is not None:
        _refuse_idle(given, _IDLE_IN_SESSION, "the processes of session= are as they are; give it to Session(...)")
        given["session"].refuse_ended()


_LOST = "_modular_converter_lost"
_IDLE_IN_GROUP = ("num_gpus", "master_port", "init_method", "compile", "timeout", "session")
_IDLE_IN_SESSION = ("num_gpus", "master_port", "device", "init_method", "timeout")


def _refuse_idle(given: dict[str, Any], names: tuple[str, ...], reason: str) -> None:
    usual = inspect.signature(parallelize).parameters
    idle = [f"{name}={given[name]!r}" for name in names if given[name] != usual[name].default]
    if idle:
        raise ApplyError(f"{', '.join(idle)}: no effect here, leave it out; {reason}")


def _in_group() -> bool:
    started = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    return started or torch.distributed.is_available() and torch.distributed.is_initialized()


def _in_place(
    model: Any, dtype: torch.dtype | None, given: GivenPlan | None, device: str | None, mesh: Any, verbose: str | None
) -> Any:
    from modular_converter.parallel.engine.group.in_process_group import Sharded, parallelize_here
    from modular_converter.parallel.engine.ranks.memory import usage

    if isinstance(model, Sharded):
        raise ApplyError("the model is sharded already; make it whole with .unshard() first")
    found = parallelize_here(model, dtype, given, device, mesh)
    if verbose is not None and torch.distributed.get_rank() == 0:
        place = next(found.parameters()).device
        _report(found, f"this process's share of {found._applied.group.size}", {str(place): usage(place)}, verbose)
    return found


@dataclass(frozen=True)
class _Ready:
    """A model that can be put on ranks, as far as can be known without them."""

    plan: Plan
    where: str
    skeleton: Skeleton
    tensors: list[torch.Tensor]
    pieces: dict[int, Piece]

    def emptied(self) -> bool:
        """Whether a weight has been given up already."""
        return any(tuple(t.shape) != item.shape for t, item in zip(self.tensors, self.skeleton.items))


def _prepare(model: Any, dtype: torch.dtype | None, given: GivenPlan | None, session: Session) -> _Ready:
    check_home(model)
    _check_method(session.init_method, session.devices)
    size = len(session.devices)
    with torch.random.fork_rng(devices=[]):  # the caller's next random number is none of our business
        plan, where = select_plan(model, given, size)
        check_text(plan)
        skeleton, tensors = dismantle(model, kept_types(model, dtype))
        pieces = check_fit(skeleton, plan, size)
    logger.info("%s on %s: %s", type(model).__name__, ", ".join(session.devices), where)
    return _Ready(plan, where, skeleton, tensors, pieces)


def _on_ranks(
    model: Any,
    dtype: torch.dtype | None,
    given: GivenPlan | None,
    session: Session,
    own: bool,
    compile: bool,
    verbose: str | None,
) -> Any:
    ready: _Ready | None = None
    try:
        ready = _prepare(model, dtype, given, session)
        session.start()
        try:
            placement = place(session, ready.skeleton, ready.tensors, ready.plan, ready.pieces, compile, own)
        except RemoteError as error:
            if not own:
                _drop(session, error)
            state = "some of its weights are gone, load it again" if ready.emptied() else "it is as it was"
            raise RankError(f"the model could not be put on the ranks; {state}: {error}") from error
    except BaseException:
        if ready is not None and ready.emptied():
            model.__dict__[_LOST] = True
        if own:
            session.end("a model could not be put on them")
        raise
    install(model, placement)
    if verbose is not None:
        _report(model, ready.where, placement.memory(), verbose)
    return model


def _drop(session: Session, error: RemoteError) -> None:
    """Forget on the ranks what there is of a model that could not be put on them; the others stay."""
    with contextlib.suppress(RemoteError, RankError), session.turns:
        session.ask(("drop", *error.about[1:]))
        session.down.release()


def _check_method(method: str, devices: tuple[str, ...]) -> None:
    if method not in _METHODS:
        raise ApplyError(f"init_method={method!r}: give one of {', '.join(_METHODS)}")
    if method == "fork" and devices[0] != "cpu":
        raise ApplyError('init_method="fork" does not work with GPUs: CUDA cannot be used after a fork; give "spawn"')


def _report(model: Any, where: str, figures: dict[str, dict[str, Any]], verbose: str) -> None:
    print(f"{type(model).__name__}: {where}")
    for name, value in figures.items():
        detail = f"\n{value['summary']}" if verbose == "detail" else ""
        print(f"{name}: {value['allocated'] / 2**20:.0f} MiB allocated{detail}")
