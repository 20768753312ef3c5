"""``parallelize`` outside of a process group: start ranks, choose the plan meanwhile, try it, hand the weights over.

Before the hand-over, answers of the ranks are compared with answers of the main process. A model is sent a few megabytes
at a time, without the parts that the ranks have.

The memory of weights is returned to the system meanwhile. Otherwise, with ranks on CPUs, some models would be in the
host's memory twice: a model that is mostly one weight, until its last row is read, and a model of many weights below 32
MB, whose memory the allocator may keep.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

from modular_converter.commands.options import steps
from modular_converter.parallel.choice.kept_answers import kept_answer
from modular_converter.parallel.choice.select_plan import given_plan, kept, log_kept, select_plan
from modular_converter.parallel.choice.skeleton import META, Item, Skeleton, assemble_model, dismantle, kept_types
from modular_converter.parallel.choice.small_instances import (
    depth_fields,
    derived_plan,
    proven_inputs,
    settings_with_layers,
    small_settings,
    target_like,
    unproven_arguments,
)
from modular_converter.parallel.engine.arguments import LOST_WEIGHTS, Arguments, check_start
from modular_converter.parallel.engine.base.memory import print_usage, tell
from modular_converter.parallel.engine.base.preflight import check_fit, check_home, check_text, devices_for, kept_fit
from modular_converter.parallel.engine.base.trials_of_model import (
    UNPROVEN,
    Probe,
    Unproven,
    probe_of,
    probe_with,
    refuse_difference,
)
from modular_converter.parallel.engine.base.watched_code import WatchedCode
from modular_converter.parallel.engine.checkpoint.model_files import (
    Checkpoint,
    is_folder,
    open_checkpoint,
    with_empty_weights,
)
from modular_converter.parallel.engine.checkpoint.reader import Recipe
from modular_converter.parallel.engine.remote.placement import NUMBERS, Placement, Span, parcels, slot_bytes
from modular_converter.parallel.engine.remote.proxy import install
from modular_converter.parallel.errors import ApplyError, PlanError, RankError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece, fitting
from modular_converter.parallel.proof.judge import FOR_INFERENCE, HALF_TYPES
from modular_converter.parallel.ranks.packing import write_tensor
from modular_converter.parallel.ranks.session import RemoteError, Session
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.collectives import FakeGroup
from modular_converter.parallel.shard.shares import without_units
from modular_converter.parallel.torch_private import uses_of_storage


# Smaller weights fit into two parcels, and are freed soon enough.
LARGE_BYTES = 64 << 20
_DONTNEED = getattr(mmap, "MADV_DONTNEED", None)


def is_alone(tensor: torch.Tensor) -> bool:
    """Whether a large CPU tensor alone owns its memory, allocated by torch, so that it can be emptied."""
    if _advise() is None or tensor.device.type != "cpu" or not tensor.is_contiguous():
        return False
    storage: Any = tensor.untyped_storage()
    size = tensor.numel() * tensor.element_size()
    if size < LARGE_BYTES or storage.nbytes() != size or storage.is_shared() or not storage.resizable():
        return False
    return bool(uses_of_storage(storage._cdata) <= _uses_of_one())


def empty_rows(tensor: torch.Tensor, first: int, last: int) -> None:
    """Return the pages within these rows of a tensor that ``is_alone`` to the system. Their content is lost."""
    row = tensor[0].numel() * tensor.element_size()
    start = -(-(tensor.data_ptr() + first * row) // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (tensor.data_ptr() + last * row) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        _advise()(start, end - start, _DONTNEED)


def trim_heap() -> None:
    """Return freed memory of the allocator's heap to the system; glibc may have put weights there."""
    trim = _of_the_system("malloc_trim", ctypes.c_size_t)
    if trim is not None:
        trim(0)


@functools.lru_cache(maxsize=1)
def _uses_of_one() -> int:
    """torch's use count of an unshared tensor's storage, including the use by the object that asks."""
    alone = torch.empty(1)
    storage: Any = alone.untyped_storage()
    return int(uses_of_storage(storage._cdata))


def _advise() -> Any:
    """The system's ``madvise``, if it has ``MADV_DONTNEED``."""
    types = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return None if _DONTNEED is None else _of_the_system("madvise", *types)


@functools.lru_cache(maxsize=2)
def _of_the_system(name: str, *types: Any) -> Any:
    """A function of the C library for arguments of these types; None if it has none."""
    found = getattr(ctypes.CDLL(None), name, None)
    if found is not None:
        found.argtypes = types
    return found


# The bytes of files that all ranks together read between two answers.
_BATCH_BYTES = 2 << 30


def place(
    session: Session,
    skeleton: Skeleton,
    tensors: list[torch.Tensor],
    plan: Plan,
    pieces: dict[int, Piece],
    compile: bool,
    own_session: bool,
    tried: Placement | None = None,
    recipes: Mapping[int, Recipe] = MappingProxyType({}),
) -> Placement:
    """Hand a model to the ranks of a started session; its tensors are empty afterwards.

    Args:
        tried: a part of the model that the ranks have already.
        recipes: number of a tensor that the ranks read from files -> its recipe; the tensor here is unchanged.

    Raises ``RankError`` if a rank failed; the model has to be loaded again.
    """
    number, there = next(NUMBERS), _on_ranks_already(skeleton, pieces, tried)
    known = there.keys() | recipes.keys()
    left = tuple(replace(item, shape=(0,)) if n in known else item for n, item in enumerate(skeleton.items))
    read = [0] * len(session.devices)
    with session.lock:
        try:
            session.ask(("load", number, skeleton, str(plan), tried.number if tried is not None else 0, there))
            _stream(session, number, left, tensors)
            for n in there.keys() - recipes.keys():
                tensors[n].data = torch.empty(0, dtype=skeleton.items[n].dtype)
            for batch in _batches({n: recipe for n, recipe in recipes.items() if n not in there}):
                read = [sum(pair) for pair in zip(read, session.ask(("read", number, batch)))]
            cut = session.ask(("finish", number, str(plan), compile))[0]
        except BaseException:
            session.forget(number)
            raise
    placement = Placement(session, number, plan, skeleton, tensors, pieces, own_session)
    placement.read, placement.cut = read, frozenset(cut)
    placement.unused = weakref.finalize(placement, _drop_unused, session, number, own_session, os.getpid())
    placement.unused.atexit = False
    return placement


def _on_ranks_already(skeleton: Skeleton, pieces: dict[int, Piece], tried: Placement | None) -> dict[int, int]:
    """Number of a parameter that the ranks have in the same form -> its number in ``tried``."""
    if tried is None:
        return {}
    names = {n: item.name for n, item in enumerate(skeleton.items) if item.parameter}
    found = {n: tried.lent[name] for n, name in names.items() if name in tried.lent}
    return {
        n: other
        for n, other in found.items()
        if pieces.get(n) == tried.pieces.get(other) and skeleton.items[n].kept == tried.skeleton.items[other].kept
    }


def _batches(recipes: dict[int, Recipe]) -> Iterator[dict[int, Recipe]]:
    """Recipes in batches, so that each wait for the ranks is short."""
    batch: dict[int, Recipe] = {}
    size = 0
    for number, recipe in recipes.items():
        batch[number] = recipe
        size += math.prod(recipe.shape) * recipe.dtype.itemsize
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = {}, 0
    if batch:
        yield batch


def _drop_unused(session: Session, number: int, own_session: bool, process: int) -> None:
    """End the ranks of a model that the caller has dropped, or drop it there."""
    if os.getpid() != process:  # a forked child
        return
    if own_session:
        session.end("their model was dropped")
    else:
        session.forget(number)


def _stream(session: Session, number: int, items: tuple[Item, ...], tensors: list[torch.Tensor]) -> None:
    """Write parcels into two slots in turn, while the ranks read the other slot; free each tensor when it is read."""
    slot = slot_bytes(items)
    session.down.reserve(2 * slot)
    waiting: list[Sequence[Span]] = []
    incomplete: set[int] = set()
    opened = {n for n, item in enumerate(items) if item.parameter and is_alone(tensors[n])}

    def finish_oldest() -> None:
        session.answers(session.limit_s)
        for span in waiting.pop(0):
            item = items[span.number]
            if item.parameter and span.last == item.rows:
                tensors[span.number].data = torch.empty(0, dtype=item.dtype)
            elif span.number in opened:
                incomplete.add(span.number)
                empty_rows(tensors[span.number], span.first, span.last)
        trim_heap()

    try:
        for turn, parcel in enumerate(parcels(items, slot)):
            if len(waiting) == 2:
                finish_oldest()
            base = (turn % 2) * slot
            for span in parcel:
                tensor = tensors[span.number].detach()
                rows = (tensor if tensor.dim() else tensor.view(1))[span.first : span.last]
                write_tensor(session.down, base + span.offset, rows)
            session.send(("parcel", number, base, parcel))
            waiting.append(parcel)
        while waiting:
            finish_oldest()
    except BaseException:
        for n in incomplete:  # some of its rows are lost
            tensors[n].data = torch.empty(0, dtype=items[n].dtype)
        raise
    session.down.release()


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ComparedOnRanks:
    """The answer of the ranks beside the one here.

    Attributes:
        difference: from the answer here, in words; empty if they agree.
        placement: of the compared layers on the ranks.
        ran: the layers that ran on the ranks, their form and types, in words; empty if none ran.
    """

    difference: str = ""
    placement: Placement | None = None
    ran: str = ""


def difference_on_ranks(
    model: Any, plan: Plan, session: Session, dtype: torch.dtype | None, probe: Probe | str
) -> ComparedOnRanks:
    """Compare one layer of each kind on the ranks and in the main process.

    The ranks get copies of the weights of these layers, and drop them with the result.

    Args:
        probe: of the model, or the reason why it has none.

    Raises ``RankError`` if a rank died or hung.
    """
    if len(session.devices) == 1:
        return ComparedOnRanks()
    if isinstance(probe, str):
        logger.info("%s is not compared with the ranks before it is handed over: %s", type(model).__name__, probe)
        return ComparedOnRanks()
    types = {dtype or parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    found = _compared_once(probe, plan, session, kept_types(model, dtype), not types.isdisjoint(HALF_TYPES))
    names = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in types))
    return replace(found, ran=f"one layer of each kind {FOR_INFERENCE} in {names}")


def difference_of_small(model: Any, plan: Plan, session: Session) -> str:
    """The difference between the small instance on the ranks and here, in words; empty if they agree.

    That they agree is kept for the next start with this model, plan, and kind and number of devices.
    """
    kinds = [torch.cuda.get_device_name(one) if one.startswith("cuda") else one for one in session.devices]
    question = f"the small instance on {', '.join(kinds)} with\n{plan}"
    return kept_answer(model, question, lambda: _of_small(model, plan, session), keeps=lambda found: not found)


def _of_small(model: Any, plan: Plan, session: Session) -> str:
    try:
        small, inputs = proven_inputs(model)
        skeleton = dismantle(small, kept_types(small, None))[0]
        part = check_fit(skeleton, fitting(without_units(plan), small), len(session.devices))[0]
    except PlanError:  # no small instance, or it does not divide over the ranks
        return ""
    return _compared_once(probe_with(small, inputs), part, session, kept_types(small, None), False).difference


def _compared_once(probe: Probe, plan: Plan, session: Session, kept: Any, half: bool) -> ComparedOnRanks:
    try:
        placement = _placed(probe.model, fitting(plan, probe.model), session, kept)
        difference = probe.difference(lambda inputs: placement.call("forward", (), dict(inputs)), half)
        return ComparedOnRanks(difference, placement)
    except RemoteError as error:
        return ComparedOnRanks(str(error).strip().splitlines()[-1])
    except Exception as error:
        if session.ended:
            raise
        return ComparedOnRanks(one_line(error, 200))


def _placed(model: torch.nn.Module, plan: Plan, session: Session, kept: Any) -> Placement:
    skeleton, tensors = dismantle(model, kept)
    pieces = apply(assemble_model(skeleton, META)[0], plan, FakeGroup(len(session.devices))).resolution.pieces
    parameters = {n: item.name for n, item in enumerate(skeleton.items) if item.parameter}
    split = {n: pieces[name] for n, name in parameters.items() if name in pieces}
    borrowed = [
        tensor.detach() for tensor in tensors
    ]  # the hand-over empties these aliases, not the model's own tensors
    placement = place(session, skeleton, borrowed, plan, split, False, False)
    placement.lent = {item.name: number for number, item in enumerate(skeleton.items) if item.parameter}
    placement.send("trial", placement.number)
    placement.match_switches()
    return placement


@dataclass(frozen=True)
class _Ready:
    """A model that has passed all checks without ranks.

    Attributes:
        origin: of the plan, in words.
        pieces: number of a tensor -> its split.
        checkpoint: the files of the weights, if the model has no data.
        tried: the layers that the ranks have already.
        unproven: arguments of the forward in no run of the proof.
    """

    plan: Plan
    origin: str
    skeleton: Skeleton
    tensors: list[torch.Tensor]
    pieces: dict[int, Piece]
    checkpoint: Checkpoint | None = None
    tried: Placement | None = None
    unproven: frozenset[str] = frozenset()

    def has_lost_weights(self) -> bool:
        """Whether the model has already lost a weight to the ranks."""
        return any(tuple(t.shape) != item.shape for t, item in zip(self.tensors, self.skeleton.items))


def place_on_ranks(given: Arguments) -> Any:
    """Put a model, or the model of a folder, on the ranks of the given session or of a new one; return the model.

    A terminal shows the step that takes long. Raises ``PlanError`` if the model or the machine does not allow it, or a rank
    failed; a new session is ended then.
    """
    with steps("parallelize", quiet=given.verbose is not None) as begin:
        return _in_steps(given, lambda step: tell(step, given.verbose, begin))


def _in_steps(given: Arguments, begin: Callable[[str], None]) -> Any:
    session = given.session
    if session is None:
        session = Session(
            devices_for(given.num_gpus, given.device), given.init_method, given.master_port, given.timeout
        )
    if not is_folder(given.model):
        check_home(given.model)
        given = _with_plan(given)
    check_start(session.init_method, session.devices)
    checkpoint: Checkpoint | None = None
    ready: _Ready | None = None
    try:
        if not session.ranks:
            begin(f"starting ranks on {', '.join(session.devices)}")
        session.begin()  # ranks take seconds to import and join; meanwhile the model is opened and the plan is chosen
        if is_folder(given.model):
            checkpoint = open_checkpoint(given.model, given.weight_type, given.model_class)
            given = _with_plan(replace(given, model=checkpoint.model, dtype=None, fp16=False))
        begin("choosing a plan")
        ready = _prepare(given, session, checkpoint)
        filled = checkpoint.filled if checkpoint is not None else None
        probe = probe_of(given.model, ready.plan, filled) if given.probe and len(session.devices) > 1 else ""
        session.start()
        share_constants_of_code(given.model, session)
        begin("trying layers on the ranks")
        ready = _compared(given, session, ready, probe) if given.probe else _with_origin(ready, "")
        logger.info("%s on %s: %s", type(given.model).__name__, ", ".join(session.devices), ready.origin)
        begin("handing over the weights")
        placement = _place(given, session, ready)
    except BaseException:
        if ready is not None and ready.has_lost_weights():
            given.model.__dict__[LOST_WEIGHTS] = True
        if given.session is None:
            session.end("a model could not be put on them")
        raise
    if checkpoint is not None:
        placement.tensors = with_empty_weights(given.model, placement.tensors)
    install(given.model, placement)
    if given.plan is None:
        given.model.__dict__[UNPROVEN] = Unproven(ready.unproven, ready.skeleton)
    if given.verbose is not None:
        share = kept(given.model, ready.plan, len(session.devices)).share
        print_usage(given.model, share, ready.origin, placement.memory(), given.verbose)
    return given.model


def share_constants_of_code(model: torch.nn.Module, session: Session) -> None:
    """Give the ranks the constants of the model's code. Raises ``ApplyError`` if a function is another one there."""
    facts = WatchedCode(model).facts()
    with session.lock:
        other = session.ask(("code", facts))[0]
    if other:
        raise ApplyError(
            f"{', '.join(other[:4])} is another function in this process than in the module that the ranks import: a patch "
            "does not reach them; put it into that module, or into one that the module imports"
        )


def _with_plan(given: Arguments) -> Arguments:
    """The arguments with the caller's plan parsed. Raises ``PlanError`` if this fails."""
    return given if given.plan is None else replace(given, plan=given_plan(given.plan, type(given.model).__name__))


def _prepare(given: Arguments, session: Session, checkpoint: Checkpoint | None) -> _Ready:
    model, size = given.model, len(session.devices)
    plan, origin, _ = select_plan(model, given.plan, size)
    check_text(plan)
    skeleton, tensors = dismantle(model, kept_types(model, given.weight_type))
    plan, pieces = kept_fit(model, skeleton, plan, size)
    unproven = unproven_arguments(model)
    return _Ready(plan, origin, skeleton, tensors, pieces, checkpoint, unproven=unproven)


def _compared(given: Arguments, session: Session, ready: _Ready, probe: Probe | str) -> _Ready:
    """The model with a plan under which the ranks give its own numbers. Raises ``ApplyError`` if there is none."""

    def compared(plan: Plan) -> ComparedOnRanks:
        own = difference_on_ranks(given.model, plan, session, given.weight_type, probe)
        if own.difference or given.plan is not None:
            return own
        return replace(own, difference=difference_of_small(given.model, plan, session))

    found, name = compared(ready.plan), type(given.model).__name__
    if found.difference and given.plan is None:
        deeper = _deeper_plan(given.model, 4 if len(session.devices) % 4 == 0 else 2)
        if deeper is not None:
            plan, pieces = check_fit(ready.skeleton, deeper[0], len(session.devices))
            other = compared(plan)
            if not other.difference:
                fails = f"{name}: {ready.origin} fails on one layer of each kind ({found.difference})"
                logger.warning("%s; used instead: %s", fails, deeper[1])
                log_kept(given.model, plan, len(session.devices))
                ready = replace(ready, plan=plan, origin=deeper[1], pieces=pieces)
                return _with_origin(replace(ready, tried=other.placement), other.ran)
    refuse_difference(found.difference, "on the ranks than here", isinstance(probe, Probe) and probe.draws)
    return _with_origin(replace(ready, tried=found.placement), found.ran)


def _deeper_plan(model: Any, ranks: int) -> tuple[Plan, str] | None:
    """The plan of a small instance with the model's number of layers, and its origin; None if there is no such plan."""
    try:
        target, overrides = target_like(model), small_settings(model)
        deeper = settings_with_layers(model, target, overrides)
        found = derived_plan(target, deeper, ranks) if deeper != overrides else None
    except PlanError:
        return None
    if found is None or not found.verdict.passed or not found.plan.rules:
        return None
    depth = max(depth_fields(model.config).values(), default=0)
    return found.plan, f"the plan derived from a small instance of {depth} layers"


def _with_origin(ready: _Ready, ran: str) -> _Ready:
    """The same, with the layers that ran on the ranks in its origin: the proof on small instances has another form."""
    scope = f"tried on the ranks: {ran}" if ran else "not tried on the ranks: the form for inference, the types in use"
    return replace(ready, origin=f"{ready.origin}; {scope}")


def _place(given: Arguments, session: Session, ready: _Ready) -> Placement:
    own = given.session is None
    names = [item.name if item.parameter else "" for item in ready.skeleton.items]
    recipes = ready.checkpoint.by_number(names) if ready.checkpoint is not None else {}
    try:
        parts = (ready.skeleton, ready.tensors, ready.plan, ready.pieces)
        return place(session, *parts, given.compile, own, ready.tried, recipes)
    except RemoteError as error:
        if not own:  # other models on the ranks stay
            session.settle()
        state = "some of its weights are gone, load it again" if ready.has_lost_weights() else "it is as it was"
        raise RankError(f"the model could not be put on the ranks; {state}: {error}") from error
