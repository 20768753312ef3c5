"""``parallelize`` inside ``torchrun``: this process keeps its share of the model, and can train it.

All processes call it with the same model, which they compare, and the first one decides about the plan. It replaces the parameters, so an optimizer must be made afterwards.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.choice.context_parallel import CONTEXT, ContextParallel, difference_in_parts, in_parts
from modular_converter.parallel.choice.context_parallel import CURE as WITHOUT_CP
from modular_converter.parallel.choice.select_plan import GivenPlan, given_plan, kept, select_plan
from modular_converter.parallel.choice.sequence_parallel import (
    CURE,
    SequenceParallel,
    SequencePlan,
    difference,
    unproven_sequence_plan,
    zone_of,
)
from modular_converter.parallel.choice.skeleton import Skeleton, dismantle, kept_types
from modular_converter.parallel.choice.small_instances import unproven_arguments
from modular_converter.parallel.engine.arguments import BLANK_WEIGHTS, Arguments
from modular_converter.parallel.engine.base.adapted import keep_adapters, path_of_base, state_of_adapters, wrap
from modular_converter.parallel.engine.base.attention_heads import WholeAttentions
from modular_converter.parallel.engine.base.dropout import SharedDropout, draw_as_first
from modular_converter.parallel.engine.base.memory import print_usage, tell
from modular_converter.parallel.engine.base.preflight import CHANGE_WEIGHTS, kept_fit, refusals, refuse
from modular_converter.parallel.engine.base.trials_of_model import (
    UNPROVEN,
    Unproven,
    refuse_difference,
    refusing_unproven,
)
from modular_converter.parallel.engine.checkpoint.model_files import is_folder
from modular_converter.parallel.engine.group.gradients import WHOLE_BEFORE, refuse_wrapped
from modular_converter.parallel.engine.group.held_weights import (
    hide_shares,
    hide_sizes,
    hold_weights,
    note,
    through_shares,
)
from modular_converter.parallel.engine.group.kept_gathered import WATCHED
from modular_converter.parallel.engine.group.parts_of_batch import look_at_rows
from modular_converter.parallel.engine.group.process_grid import (
    ProcessGrid,
    begun_together,
    join_group,
    process_grid,
    refuse_options,
    spread_over_data,
)
from modular_converter.parallel.engine.group.same_calls import (
    called_by_all,
    everywhere,
    from_first_process,
    refuse_other_options,
)
from modular_converter.parallel.engine.group.same_settings import (
    SameSettings,
    compared_call,
    settings_of_modules,
    with_new_parts,
)
from modular_converter.parallel.engine.group.sharded_model import (
    Sharded,
    of_same_type,
    until_all_are_done,
    with_whole_heads,
)
from modular_converter.parallel.engine.group.share_tensors import IN_COMPILED
from modular_converter.parallel.engine.group.spread import mark_parts, spread_of
from modular_converter.parallel.engine.group.torch_patches import PATCHES
from modular_converter.parallel.engine.group.weight_sources import (
    BlankSource,
    FolderSource,
    WeightSource,
    same_checkpoint,
)
from modular_converter.parallel.engine.group.whole_state import (
    LoadedState,
    made_by_first,
    other_arguments,
    whole_tensors,
)
from modular_converter.parallel.errors import MAKE_WHOLE, ApplyError, PlanError, one_line
from modular_converter.parallel.inference.generation import (
    GENERATE_BATCH,
    MANAGERS,
    NO_MANAGER,
    agreeing_methods,
    checked_batches,
    choose_cache,
    counts_vary,
    paged_batches,
)
from modular_converter.parallel.inference.plain_forwards import DirectGroup, make_inference
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting, resolve
from modular_converter.parallel.proof.judge import HALF_TYPES
from modular_converter.parallel.shard.apply import Applied
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.shard.forwards import check_ids, never_traced
from modular_converter.parallel.torch_private import as_root


logger = logging.getLogger(__name__)
# Entries of each weight that are compared between processes.
_PROBES = 256


def agreed_plan(
    model: torch.nn.Module, given: GivenPlan | None, group: ProcessGroup, ranks: int, experts: bool = False
) -> tuple[Plan, str]:
    """The plan that the first process selects, and its origin. All processes must call it.

    Args:
        group: all processes.
        ranks: the number of shares; for 1 the plan is empty.
        experts: divide only the experts.

    Raises ``ApplyError`` on all processes if they were given different plans, or the first process finds none.
    """
    texts = everywhere(_text_of(given, type(model).__name__), group)
    other = next((rank for rank, text in enumerate(texts) if text != texts[0]), None)
    if other is not None:
        raise ApplyError(f"process {other} was given another plan= than process 0: give the same plan everywhere")
    if ranks == 1 and given is None:
        return Plan(type(model).__name__), "one process holds each layer"

    def chosen() -> tuple[str, str]:
        plan, origin, _ = select_plan(model, given, ranks, experts)
        return str(plan), origin

    text, origin = from_first_process(chosen, group)
    plan = Plan.parse(text)
    digests = everywhere(hashlib.sha256(f"{ranks}\n{plan}".encode()).hexdigest(), group)
    if len(set(digests)) > 1:
        raise ApplyError("the processes parse the plan differently: use the same version of this package everywhere")
    return plan, origin


def agreed_unproven(model: torch.nn.Module, given: GivenPlan | None, group: ProcessGroup) -> frozenset[str]:
    """The arguments of the forward in no run of the first process's proof; empty for a given plan."""

    return from_first_process(lambda: frozenset(() if given is not None else unproven_arguments(model)), group)


def refuse_difference_in_group(model: Any, plan: Plan, source: WeightSource, everyone: ProcessGroup) -> None:
    """Raise ``ApplyError`` on all processes if one layer of each kind gives other numbers when it is sharded."""
    probe = source.probe(model, plan)
    if isinstance(probe, str):
        logger.info("%s is not tried before it is sharded: %s", type(model).__name__, probe)
        return
    short: Any = copy.deepcopy(probe.model).eval()

    def run(inputs: dict[str, Any]) -> Any:
        moved = {name: v.to(source.place) if isinstance(v, torch.Tensor) else v for name, v in inputs.items()}
        with torch.no_grad():
            return short.forward(**moved)

    try:
        source.apply_plan(short, fitting(plan, short))
        half = any(p.dtype in HALF_TYPES for p in model.parameters())
        said = probe.difference(run, half)
    except Exception as error:  # a wrong plan can cause any error in a model's own code
        said = one_line(error, 200)
    said = next(filter(None, everywhere(said, everyone)), "")
    refuse_difference(said, "when it is sharded", probe.draws)


def refuse_other_weights(model: Any, group: ProcessGroup, place: torch.device) -> None:
    """Raise ``ApplyError`` on all processes if one has other weights: shares would be of different models."""
    shapes = [(name, str(tuple(p.shape))) for name, p in model.named_parameters()]
    known = everywhere(shapes + settings_of_modules(model), group)
    for rank, names in enumerate(known):
        if names != known[0]:
            first = next(one or other for one, other in zip_longest(names, known[0]) if one != other)
            raise ApplyError(
                f"process {rank} has another model than process 0, from {' '.join(first)} on: build the same model"
            )
    read = {name: p.detach() for name, p in model.named_parameters() if not p.is_meta}  # files are compared elsewhere
    sums = [p.reshape(-1)[:: max(1, p.numel() // _PROBES)].double().sum() for p in read.values()]
    own = torch.stack([one.cpu() for one in sums]) if sums else torch.zeros(1, dtype=torch.float64)
    shares = group.all_gather(own.to(place))
    names = list(read)
    for rank, other in enumerate(shares):
        differs = ~torch.isclose(other, shares[0], rtol=0.0, atol=0.0, equal_nan=True)
        if bool(differs.any()):
            raise ApplyError(
                f"{names[int(differs.nonzero()[0])]} has other values on process {rank} than on process 0: load the "
                "same checkpoint everywhere, or call torch.manual_seed with the same number before the model is made"
            )
    for one in model.parameters():
        vars(one)[WHOLE_BEFORE] = True


def _text_of(given: GivenPlan | None, name: str) -> str:
    try:
        return "" if given is None else str(given_plan(given, name))
    except PlanError as error:
        return f"unreadable: {error}"


_NEEDS_GRADIENTS = "this model has its form for inference; leave inference= and compile= out to train it"
_TRAINING = (
    "clip_grad_norm_",
    "load_full_state_dict",
    "unshard",
    "gradient_checkpointing_enable",
    "activation_checkpointing_enable",
    "save_checkpoint",
    "load_checkpoint",
)


def without_gradients(own: Callable[..., Any], compile: bool) -> Callable[..., Any]:
    """A method without gradients; if compiled, ``generate`` has a static cache unless a cache is given."""

    @functools.wraps(own)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compile:
            choose_cache(self, kwargs)
        with torch.no_grad():
            return own(self, *args, **kwargs)

    return made


def no_training() -> dict[str, Callable[..., Any]]:
    """Replacements that refuse training: methods that need gradients or roles, and ``train`` except from ``eval``."""

    def train(self: Any, mode: bool = True) -> Any:
        if mode:
            raise ApplyError(_NEEDS_GRADIENTS)
        return self

    refused = functools.partial(refuse, ApplyError, _NEEDS_GRADIENTS)
    return {**dict.fromkeys(_TRAINING, refused), "train": train}


_LOADED = (
    "{name} would change this process's share alone; take load_full_state_dict(state), also with strict=False, which all "
    "processes must call"
)
_NO_CACHE = (
    "{name} keeps keys and values, of which a process has its part alone with cp: take a layout without cp, such as tp"
)
_COMPILED = (
    "{name}() of a model whose processes meet in its calls: give parallelize training=Training(compile=True), which compiles each "
    "layer, or for inference compile=True"
)
_PUSHED = "{name} would be made by each process: save_pretrained(folder), and the first process sends the folder"
ALONE = "{name} would change this process's share alone; " + MAKE_WHOLE + ", {name}, and parallelize again"


@begun_together
def parallelize_here(given: Arguments) -> Any:
    """Shard a model in place for this process, and return it.

    Raises ``PlanError`` if the layout or mesh does not fit the processes, or no plan fits the model.
    """
    model = given.model
    if not is_folder(model):
        refuse_wrapped(model)
    offload = given.training is not None and given.training.offload
    place = join_group(given.device, offload)
    inference = given.inference or given.compile
    if given.mesh is None:
        refuse_other_options(f"layout={given.layout}, training={given.training}, inference={inference}")
    grid = process_grid(given.layout, given.mesh, inference, place)
    model, given, source = opened(given, grid, place)
    if grid.layout.data > 1:
        look_at_rows(model)
    types = kept_types(model, given.weight_type)
    refuse_options(model, grid, given.training, types)
    said = given.verbose if dist.get_rank() == 0 else None
    tell("choosing a plan", said)
    plan, skeleton = plan_and_skeleton(model, given, types, grid, source)
    unproven = agreed_unproven(model, given.plan, grid.everyone) if grid.group.size > 1 else frozenset()
    shapes = {name: tuple(one.shape) for name, one in model.named_parameters(remove_duplicate=False)}
    share = 1.0 if said is None else kept(model, plan, grid.group.size).share / grid.layout.shards
    tell("cutting the weights", said)
    if grid.context is not None:
        _refuse_parts("cp", WITHOUT_CP, lambda: difference_in_parts(model), grid)
    checked = check_ids(model)
    divided = given.training is not None and given.training.sequence_parallel
    sequence = _sequence_plan(model, plan, grid, skeleton) if divided else None
    applied = source.apply_plan(model, plan if sequence is None else sequence.plan, types, grid.data is not None)
    if isinstance(grid.group, DirectGroup):
        make_inference(applied, grid.group, given.compile)
        note(applied, shapes)
    else:
        watched = given.training is None or not given.training.compile
        model.__dict__["_dropout"] = SharedDropout(model, skeleton, grid.group.group, place, watched, grid.group)
        model.__dict__["_held_modules"] = hold_weights(applied, shapes, grid.mesh, grid.data is None)
    model.__dict__.update(_applied=applied, _checked=checked, _grid=grid, _own_class=type(model))
    if grid.group.size > 1:
        _know_shares(model, applied, None if given.plan is not None else Unproven(unproven, skeleton))
    model.__class__ = _class_of(type(model), given, grid)
    keep_adapters(model, ApplyError, ALONE)
    if grid.data is not None or given.training is not None:
        spread_over_data(model, grid, given.training)
    source.fill(model, offload)
    source.close()
    if grid.data is not None:
        as_root(model)
    if isinstance(grid.group, DirectGroup):
        hide_shares(model)
    model.__dict__["_hidden_sizes"] = hide_sizes(applied)
    _share_sequences(model, grid, sequence)
    if not isinstance(grid.group, DirectGroup):
        parts = mark_parts(model)
        if given.training and given.training.compile:
            model.__dict__[IN_COMPILED] = parts
        PATCHES.enter(model)
    model.__dict__[WATCHED] = SameSettings(model, grid)
    if said is not None:
        print_usage(model, share, f"this process's share of {grid.everyone.size}", model._figures(), said)
    return model


def _know_shares(model: Any, applied: Applied, unproven: Unproven | None) -> None:
    """Let a model return the attention weights of all heads, and refuse arguments that its own plan was not tried with."""
    pieces, group = applied.resolution.pieces, applied.group
    model.__dict__["_attentions"] = WholeAttentions(model, pieces, group, only_inside=True)
    if unproven is not None:
        model.__dict__[UNPROVEN] = unproven


def opened(given: Arguments, grid: ProcessGrid, place: torch.device) -> tuple[Any, Arguments, WeightSource]:
    """The model, the arguments that still apply to it, and the source of its weights."""
    if not is_folder(given.model):
        refuse_other_weights(given.model, grid.everyone, place)
        kind = BlankSource if BLANK_WEIGHTS in given.model.__dict__ else WeightSource
        return given.model, given, kind(grid.group, place)
    checkpoint = same_checkpoint(given, grid.everyone)
    source = FolderSource(checkpoint, grid.group, grid.everyone, place)
    return checkpoint.model, replace(given, model=checkpoint.model, fp16=False, dtype=None), source


def plan_and_skeleton(
    model: Any, given: Arguments, kept: Any, grid: ProcessGrid, source: WeightSource
) -> tuple[Plan, Skeleton]:
    """The plan of all processes as it fits the model, and the model's skeleton."""
    ranks = grid.group.size
    plan, origin = agreed_plan(model, given.plan, grid.everyone, ranks, grid.layout.ep > 1)
    skeleton = dismantle(model, kept)[0]
    if plan.rules:
        plan = kept_fit(model, skeleton, plan, ranks)[0]
    if given.probe and ranks > 1:
        refuse_difference_in_group(model, plan, source, grid.everyone)
    if grid.everyone.rank == 0:
        logger.info("%s as %s: %s", type(model).__name__, grid.layout, origin)
    return plan, skeleton


def _sequence_plan(model: Any, plan: Plan, grid: ProcessGrid, skeleton: Skeleton) -> SequencePlan:
    """The proven plan over parts of the sequence; all processes must call it. Raises ``ApplyError`` if it allows none."""
    zone = zone_of(model, resolve(plan, model))
    _refuse_parts("sequence_parallel=", CURE, lambda: difference(model, plan, zone), grid)
    return unproven_sequence_plan(model, plan, skeleton)


def _refuse_parts(option: str, cure: str, difference: Callable[[], str], grid: ProcessGrid) -> None:
    """Raise ``ApplyError`` on all processes if outputs or gradients of parts of a sequence differ; all must call it."""
    said = from_first_process(difference, grid.everyone)
    if said:
        raise ApplyError(f"{option}: on parts of a sequence {said}: {cure}")


def _share_sequences(model: Any, grid: ProcessGrid, sequence: SequencePlan | None) -> None:
    """Behind `fully_shard`, whose hooks replace a layer's inputs."""
    if sequence is not None:
        model.__dict__["_sequence"] = SequenceParallel(model, sequence.zone, grid.group, sequence.products)
    if grid.context is not None:
        model.__dict__[CONTEXT] = ContextParallel(model, grid.context)


def _class_of(own: type[Any], given: Arguments, grid: ProcessGrid) -> type[Any]:
    """The model's class with the methods of a sharded model."""
    inference = isinstance(grid.group, DirectGroup)
    inner = {name: getattr(own, name) for name in ("forward", "generate") if hasattr(own, name)}
    if grid.context is not None:
        inner["forward"] = in_parts(own.forward)
    body: dict[str, Any] = {name: with_whole_heads(refusing_unproven(name, method)) for name, method in inner.items()}
    if grid.context is not None:
        body |= refusals(own, ("generate", GENERATE_BATCH), ApplyError, _NO_CACHE)
    elif grid.layout.dp_shard > 1 and "generate" in body:
        body["generate"] = until_all_are_done(body["generate"])
    if inference:
        body = {name: without_gradients(method, given.compile) for name, method in body.items()} | no_training()
        if "generate" in body:
            body["generate"] = counts_vary()(body["generate"])
    if hasattr(own, GENERATE_BATCH) and grid.context is None:
        body[GENERATE_BATCH] = _batches_in_step(own, grid)
        body |= refusals(own, MANAGERS, ApplyError, NO_MANAGER)
    body |= agreeing_methods(own, grid.group)
    body |= refusals(own, CHANGE_WEIGHTS, ApplyError, ALONE)
    body |= refusals(own, ("compile",), ApplyError, _COMPILED) | refusals(own, ("push_to_hub",), ApplyError, _PUSHED)
    if grid.data is not None:
        body["_apply"] = of_same_type(own._apply)
    else:
        body["_apply"] = with_new_parts(through_shares(own._apply) if inference else own._apply)
    if not inference:
        body.pop("requires_grad_", None)
        body |= refusals(own, ("load_state_dict",), ApplyError, _LOADED)
    call = compared_call(own.__call__)
    body |= {
        "__call__": call if inference else never_traced(call),
        "__module__": own.__module__,
        "__doc__": own.__doc__,
    }
    return type(own.__name__, (Sharded, own), body)


def _batches_in_step(own: type[Any], grid: ProcessGrid) -> Callable[..., Any]:
    """A ``generate_batch`` that all processes with shares of a model run in step."""

    @functools.wraps(own.generate_batch)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = checked_batches(own, args, kwargs, grid.group.size if self.device.type == "cpu" else 0)
        if grid.layout.dp_shard > 1:
            raise ApplyError(
                f"{GENERATE_BATCH} has as many steps as its prompts need, and with layout={grid.layout} each forward waits for "
                "all processes; take a layout without fsdp, such as tp, or call generate"
            )
        with ExitStack() as stack:
            stack.callback(draw_as_first(grid.group.group, grid.place))
            stack.enter_context(paged_batches(self, own, grid.group, self.device, self._applied.copies()))
            return own.generate_batch(self, **given)

    return made


class AdaptedShare:
    """The methods that the wrapper has in addition to its own; all processes must call them."""

    get_base_model: Callable[[], Any]

    def _prefix(self) -> str:
        return f"{path_of_base(self, self.get_base_model())}."  # type: ignore[arg-type]

    def unshard(self) -> Any:
        """Make the wrapped model whole again, in place, on every rank."""
        self.get_base_model().unshard()
        return self

    def full_state_dict(self, first_only: bool = False) -> dict[str, torch.Tensor]:
        """The whole weights on the CPU, named as in the wrapper's ``state_dict``; see ``Sharded.full_state_dict``."""
        found = self.get_base_model().full_state_dict(first_only)
        return {f"{self._prefix()}{name}": value for name, value in found.items()}

    def load_full_state_dict(self, state: Mapping[str, torch.Tensor] | None, strict: bool = True) -> LoadedState:
        """Take this rank's shares from whole weights, named as in the wrapper; see ``Sharded.load_full_state_dict``."""
        own = None if state is None else {name.removeprefix(self._prefix()): value for name, value in state.items()}
        loaded: LoadedState = self.get_base_model().load_full_state_dict(own, strict)
        return LoadedState(*([f"{self._prefix()}{name}" for name in names] for names in loaded))

    @called_by_all(lambda _: ProcessGroup(None))
    def save_pretrained(self, folder: str | os.PathLike[str], **more: Any) -> None:
        """Save the adapters as peft does, from the first process; only their weights are gathered."""
        own: Any = super()
        more = other_arguments(more)
        base, prefix = self.get_base_model(), self._prefix()
        state = torch.nn.Module.state_dict(base, prefix=prefix, keep_vars=True)
        whole, fetch = whole_tensors(state, {f"{prefix}{one.name}": one for one in spread_of(base)})
        adapters = state_of_adapters(self, whole, fetch, **more)
        made_by_first(lambda: None if dist.get_rank() else own.save_pretrained(folder, state_dict=adapters, **more))


def wrap_share(wrapper: Any, base: Any) -> Any:
    """The wrapper, around a model that has become this process's share."""
    wrap(wrapper, base, AdaptedShare, ApplyError, ALONE)
    return wrapper
