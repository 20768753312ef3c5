"""The arguments of ``parallelize``, checked before anything is started."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from modular_converter.parallel.choice.select_plan import GivenPlan
from modular_converter.parallel.engine.base.adapted import base_of
from modular_converter.parallel.engine.base.preflight import refuse_narrow, refuse_quantised, scheme_of
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Layout, Training
from modular_converter.parallel.tiny.adapters import adapters_of
from modular_converter.parallel.tiny.arguments import inputs_by_name


if TYPE_CHECKING:
    from modular_converter.parallel.ranks.session import Session

# The mark in the ``__dict__`` of a model that can no longer be used.
LOST_WEIGHTS = "_modular_converter_lost"
# The mark of a model on the meta device of which steps are tried: it gets any weights.
BLANK_WEIGHTS = "_modular_converter_blank"
_WITHOUT_EFFECT_IN_GROUP = ("num_gpus", "master_port", "init_method", "timeout", "session")
_WITHOUT_EFFECT_BESIDE_SESSION = ("num_gpus", "master_port", "device", "init_method", "timeout")
_METHODS = ("spawn", "forkserver", "fork")


@dataclass(frozen=True)
class Arguments:
    """The arguments of ``parallelize``, with its defaults; see there."""

    model: Any
    num_gpus: int = 2
    fp16: bool = False
    dtype: torch.dtype | None = None
    master_port: int | None = None
    verbose: str | None = None
    plan: GivenPlan | None = None
    device: str | None = None
    init_method: str = "spawn"
    compile: bool = False
    timeout: float = 600.0
    mesh: Any = None
    session: Session | None = None
    probe: bool = True
    model_class: Any = None
    inference: bool = False
    layout: Layout | None = None
    training: Training | None = None
    example_inputs: Any = None

    @property
    def weight_type(self) -> torch.dtype | None:
        """The type of the weights on the devices; unchanged if None."""
        return torch.float16 if self.fp16 else self.dtype


def check_arguments(given: Arguments) -> None:
    """Raise ``ApplyError`` for arguments that are invalid, alone or together, and ``RankError`` for an ended session."""
    _check_values(given)
    if not isinstance(given.model, (str, os.PathLike)):
        _check_model(given)
    if given.example_inputs is not None:
        _check_examples(given)
    if in_process_group():
        right = given.num_gpus == int(os.environ.get("WORLD_SIZE", "0"))
        idle = tuple(name for name in _WITHOUT_EFFECT_IN_GROUP if name != "num_gpus" or not right)
        _refuse(given, idle, "in a process group each process that runs already keeps its share")
        _check_training(given)
        return
    for name in ("layout", "training", "mesh"):
        if getattr(given, name) is not None:
            raise ApplyError(f"{name}= needs a process group: start the script with {_line_to_start(given)}")
    if given.session is not None:
        reason = "the processes of session= run already; give it to Session(...)"
        _refuse(given, _WITHOUT_EFFECT_BESIDE_SESSION, reason)
        given.session.refuse_ended()


def _line_to_start(given: Arguments) -> str:
    """The line that runs this script in as many processes as the layout has."""
    number = given.layout.size if isinstance(given.layout, Layout) else given.num_gpus
    script = Path(sys.argv[0]).name
    return f"torchrun --nproc-per-node {number} {script if script.endswith('.py') else 'train.py'}"


def _check_examples(given: Arguments) -> None:
    """Raise ``PlanError`` for example inputs of a model that needs none, or that its forward does not take."""
    if isinstance(given.model, (str, os.PathLike)) or hasattr(
        getattr(base_of(given.model), "config", None), "model_type"
    ):
        raise ApplyError(
            "example_inputs= is for a module without a configuration of transformers, from which inputs are made: leave it "
            "out"
        )
    inputs_by_name(given.model, given.example_inputs)


def _check_training(given: Arguments) -> None:
    for name in ("layout", "training"):
        if getattr(given, name) is not None and (given.inference or given.compile):
            raise ApplyError(
                f"{name}= is for training, but inference= and compile= are without gradients: leave one out"
            )
    if given.mesh is not None and given.layout is not None:
        raise ApplyError("give layout=, which makes a mesh, or mesh=, a dimension of your own mesh to shard over")
    if given.mesh is not None and given.training is not None:
        raise ApplyError(
            "training= needs layout=, such as layout='fsdp2.tp2'; with mesh= the other dimensions are yours"
        )


def _check_model(given: Arguments) -> None:
    if not isinstance(given.model, torch.nn.Module):
        kind = type(given.model).__name__
        raise ApplyError(f"model is of type {kind}: give a torch.nn.Module, or the path of a saved model's folder")
    model = base_of(given.model)
    config = getattr(model, "config", None)
    refuse_quantised(config, type(model).__name__, loaded=True)
    if given.weight_type is not None and scheme_of(config):
        raise ApplyError(
            "dtype= is for weights that are not quantised: give it to from_pretrained, and leave it out here"
        )
    if given.model_class is not None:
        raise ApplyError("model_class= is for the path of a folder; the model has its class already: leave it out")
    if LOST_WEIGHTS in model.__dict__:
        raise ApplyError("the model lost weights when an earlier call of parallelize was interrupted; load it again")
    if "_placement" in model.__dict__:
        raise ApplyError("the model is parallelized already; take it back with .cpu() first")
    if "_applied" in model.__dict__:
        raise ApplyError("the model is sharded already; make it whole with .unshard() first")
    refuse_narrow(model)
    adapters_of(model)  # raises for adapters that no plan supports


def _check_values(given: Arguments) -> None:
    if given.device not in (None, "cpu", "cuda"):
        raise ApplyError(f"device={given.device!r}: give 'cpu' or 'cuda'")
    if not isinstance(given.timeout, (int, float)) or not 0 < given.timeout < float("inf"):
        raise ApplyError(f"timeout={given.timeout!r}: give a number of seconds above 0")
    for name in ("num_gpus", "master_port"):
        number = getattr(given, name)
        if isinstance(number, bool) or not isinstance(number, (int, type(None))):
            raise ApplyError(f"{name}={number!r}: give a whole number")
    if given.verbose not in (None, "simple", "detail"):
        raise ApplyError(f'verbose={given.verbose!r}: give None, "simple" or "detail"')
    dtype = given.dtype
    if given.fp16 and dtype not in (None, torch.float16):
        raise ApplyError(f"fp16=True and dtype={dtype}: give only one")


def _refuse(given: Arguments, names: tuple[str, ...], reason: str) -> None:
    values = {name: getattr(given, name) for name in names}
    idle = [f"{name}={value!r}" for name, value in values.items() if value != getattr(Arguments, name)]
    if idle:
        raise ApplyError(f"{', '.join(idle)}: no effect here, leave it out; {reason}")


def in_process_group() -> bool:
    """Whether ``torchrun`` has started this process, or a process group exists already."""
    started = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    return started or torch.distributed.is_available() and torch.distributed.is_initialized()


def check_start(method: str, devices: tuple[str, ...]) -> None:
    """Raise ``ApplyError`` for an unknown way to start processes, or one that the devices do not allow."""
    if method not in _METHODS:
        raise ApplyError(f"init_method={method!r}: choose from {', '.join(_METHODS)}")
    if method == "fork" and devices[0] != "cpu":
        raise ApplyError('init_method="fork" does not work with GPUs: CUDA cannot be used after a fork; give "spawn"')
