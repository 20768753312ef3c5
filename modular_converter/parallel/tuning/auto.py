"""``layout="auto"``: the fastest layout that the advice has for the processes at hand and of which a step runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.advice.candidates import LayoutForecast, Question, advise, forecasts_that_fit
from modular_converter.parallel.advice.devices import Cluster, device_at_hand
from modular_converter.parallel.advice.report import recommendation
from modular_converter.parallel.advice.subject import ModelInQuestion, question_of_model
from modular_converter.parallel.choice.skeleton import META, assemble_model
from modular_converter.parallel.costs import CountRequest
from modular_converter.parallel.engine.arguments import Arguments
from modular_converter.parallel.engine.base.adapted import base_of
from modular_converter.parallel.engine.base.memory import tell
from modular_converter.parallel.engine.checkpoint.model_files import is_folder, open_checkpoint
from modular_converter.parallel.engine.group.process_grid import join_group
from modular_converter.parallel.engine.group.same_calls import everywhere, from_first_process
from modular_converter.parallel.errors import AdviceError, ApplyError
from modular_converter.parallel.layout import AutoLayout, Training
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.torch_private import default_store
from modular_converter.parallel.tuning.chosen import ChosenLayout, chosen_setting
from modular_converter.parallel.tuning.trial import (
    MEMORY,
    REFUSED,
    LayoutTrial,
    TrialModel,
    TrialOutcome,
    free_port,
    run_processes,
    trial_model,
)


logger = logging.getLogger(__name__)


def with_chosen_layout(given: Arguments, auto: AutoLayout) -> Arguments:
    """The arguments with a layout and its options; all processes must call it.

    Raises ``AdviceError`` on all processes if no layout fits, or no step runs.
    """
    place = join_group(given.device)
    gpu = place.type == "cuda"
    model = (
        open_checkpoint(given.model, given.weight_type, given.model_class).model if is_folder(given.model) else None
    )
    if base_of(given.model) is not given.model:
        raise ApplyError('layout="auto": adapters are not predicted; name a layout, such as layout="fsdp2"')
    sent = trial_model(given.model if model is None else model, given.weight_type)
    try:
        choices = from_first_process(lambda: tuple(_advised(sent, given, auto, gpu)), ProcessGroup())
    except ApplyError as error:
        raise AdviceError(f'layout="auto": {_for_callers(str(error))}') from error
    chosen, reason = _first_that_runs(choices, sent, given, auto, place.type)
    if dist.get_rank() == 0:
        logger.info("%s", reason)
        if given.verbose is not None:
            tell(reason, given.verbose)
    return replace(given, layout=chosen.layout, training=chosen.beside(given.training))


_BY_NAME = 'name a layout, such as layout="fsdp2"'


def _for_callers(message: str) -> str:
    """A message of the advice, whose words for options are those of ``modular-plan``, for a caller of ``parallelize``."""
    cure = f"; here --sequence and --length are AutoLayout(length=…); or {_BY_NAME}"
    return message.rstrip(".") + cure if "--" in message else message


Choice = tuple[ChosenLayout, float, str]
"""What to run, its predicted bytes, and why."""


def _advised(sent: TrialModel, given: Arguments, auto: AutoLayout, gpu: bool) -> list[Choice]:
    """All that fits, the fastest first. Raises ``AdviceError`` with the nearest if nothing does."""
    processes, each = dist.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
    cluster = Cluster(processes // each, each, device_at_hand(gpu, each, _BY_NAME))
    subject, weights = _subject(sent, given, auto)
    question = Question(cluster, auto.batch or processes, auto.optimizer, 0, weights)
    advice = advise(subject, question)
    whole = (one for one in forecasts_that_fit(subject, question) if one.setting.accumulate == 1)  # the caller's loop
    fitting = [one for one in whole if auto.stages or one.setting.layout.pp == 1]
    if advice.best is None:
        raise AdviceError(recommendation(advice))
    choices = [
        (
            chosen_setting(one.setting, subject.length),
            one.memory.total,
            recommendation(replace(advice, candidates=(one,))),
        )
        for one in fitting
        if one.memory is not None
    ]
    own = [one for one in choices if _goes_with(one[0], given.training)]
    if not own:
        raise AdviceError(
            f"only {advice.best.setting} fits, which is with {_kind_of(advice.best)}"
            if not choices
            else "training= has options that no layout that fits can have: leave out recompute, chunks and schedule"
        )
    return own


def _kind_of(best: LayoutForecast) -> str:
    """What the caller's loop must do for a layout, in words."""
    if best.setting.layout.pp > 1:
        return "stages: give AutoLayout(stages=True), and call the result's step"
    if best.setting.layout.cp > 1:
        return f'parts of each sequence, of which processes need the same rows: name layout="{best.setting.layout}"'
    forwards, batch = best.setting.accumulate, best.setting.rows * best.setting.layout.data
    return f"{forwards} forwards a step: make them, and give AutoLayout(batch={batch // forwards})"


def _goes_with(chosen: ChosenLayout, training: Training | None) -> bool:
    asked = training is not None and (training.chunks is not None or training.loss is not None)
    if asked and chosen.layout.pp == 1:
        return False
    try:
        chosen.beside(training)
    except ApplyError:
        return False
    return True


def _subject(sent: TrialModel, given: Arguments, auto: AutoLayout) -> tuple[ModelInQuestion, str]:
    """The model in the type of its products, and the type of its weights if that is another."""
    model: Any = assemble_model(sent.skeleton, META)[0]
    own = next((one.dtype for one in model.parameters() if one.is_floating_point()), torch.float32)
    computed = given.training.computes_in if given.training else None
    name, weights = (str(one).removeprefix("torch.") for one in (computed or own, own))
    request = CountRequest(type(model).__name__, {}, None, 1, auto.length, True, name)
    return question_of_model(model.to(computed or own), request), weights if computed not in (None, own) else ""


def _first_that_runs(
    choices: Sequence[Choice], sent: TrialModel, given: Arguments, auto: AutoLayout, device: str
) -> tuple[ChosenLayout, str]:
    """The first choice of which a step runs, and why it is taken. Those that need as much as one that failed are left out."""
    least, failures = float("inf"), list[str]()
    for number, (chosen, memory, reason) in enumerate(choices):
        if memory >= least:
            continue
        outcome = (
            _tried(LayoutTrial(sent, chosen, device, *_asked(given, auto)), number, auto) if auto.try_step else None
        )
        if outcome is None or not outcome.kind:
            return chosen, f"{reason} ({'; '.join(failures)})" if failures else reason
        failures.append(f"{chosen} {'ran out of memory' if outcome.kind == MEMORY else 'failed'}: {outcome.why}")
        if dist.get_rank() == 0:
            logger.info("%s; the next is taken", failures[-1])
        if outcome.kind == MEMORY:
            least = memory
        elif outcome.kind != REFUSED:
            break  # what crashes or hangs in one layout does so for a reason that a person must see
    raise AdviceError(f'layout="auto": no step ran: {"; ".join(failures)}')


def _asked(given: Arguments, auto: AutoLayout) -> tuple[str, int, str, bool, Any]:
    training = given.training or Training()
    kind = "" if training.computes_in is None else str(training.computes_in).removeprefix("torch.")
    return auto.optimizer, 1, kind, training.sequence_parallel, given.plan


def _tried(trial: LayoutTrial, number: int, auto: AutoLayout) -> TrialOutcome:
    """One step of a trial, each process beside its own; the worst outcome of all."""
    port = from_first_process(free_port, ProcessGroup())
    mark, store = f"modular_converter/auto/{port}/{number}/failed", default_store()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
    usual = {"RANK": dist.get_rank(), "WORLD_SIZE": dist.get_world_size(), "MASTER_ADDR": "127.0.0.1"}
    usual |= {"LOCAL_RANK": dist.get_rank(), "LOCAL_WORLD_SIZE": dist.get_world_size(), "GROUP_RANK": 0}
    own = {name: os.environ.get(name, usual[name]) for name in names} | {"MASTER_PORT": port}
    outcome = run_processes(trial, [own], auto.timeout, lambda: store.check([mark]))
    if outcome.kind:
        store.set(mark, "yes")
    found: list[TrialOutcome] = everywhere(outcome, ProcessGroup())
    return min(found, key=lambda one: _WORST.get(one.kind, 2))


_WORST = {MEMORY: 0, REFUSED: 1, "": 9}
