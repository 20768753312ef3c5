"""The layouts that a cluster and a model allow, each with its memory and time, and the reason of each that is out."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from modular_converter.parallel.advice.devices import GIB, Cluster
from modular_converter.parallel.advice.memory import Footprint, LayoutSetting
from modular_converter.parallel.advice.stages import footprint
from modular_converter.parallel.advice.step_time import StepTime, time_of_step
from modular_converter.parallel.advice.subject import ModelInQuestion
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.layout import Layout


MOST_SHARED = 16
"""Ranks that divide a layer; more exchange more than they compute."""
MOST_STAGED = 16
"""Ranks in stages; more wait for each other longer than a batch takes."""


Ladder = tuple[LayoutSetting, ...]
"""Settings that differ in the parts of a step alone: each needs no more memory than the one before."""
Levels = list[list[Ladder]]
"""Ladders of a layout; those of later lists need less memory."""


@dataclass(frozen=True)
class Question:
    """What is to be run where.

    Attributes:
        batch: rows of a step over all devices; without training, rows answered at once.
        optimizer: a name in ``OPTIMIZERS``.
        tokens: of an answer, without training.
        weight_type: of weights and optimizer, if products are in another type.
    """

    cluster: Cluster
    batch: int
    optimizer: str = "adamw"
    tokens: int = 128
    weight_type: str = ""


@dataclass(frozen=True)
class LayoutForecast:
    """A layout with its options.

    Attributes:
        why_not: why it cannot run, or is not advised; empty for the advised one.
    """

    setting: LayoutSetting
    memory: Footprint | None
    time: StepTime | None
    why_not: str = ""

    @property
    def runs(self) -> bool:
        """Whether the model allows it and it fits."""
        return self.time is not None and self.memory is not None and not self.why_not.startswith("needs")


@dataclass(frozen=True)
class Advice:
    """The candidates: those that fit, the fastest first; then those that do not, the smallest first.

    Attributes:
        length: tokens of a row.
    """

    question: Question
    model: str
    parameters: int
    length: int
    candidates: tuple[LayoutForecast, ...]

    @property
    def best(self) -> LayoutForecast | None:
        """The fastest that fits."""
        first = self.candidates[0] if self.candidates else None
        return first if first is not None and first.runs else None


def advise(subject: ModelInQuestion, question: Question) -> Advice:
    """Compare all layouts. Raises ``PlanError`` if not even one device could run the model without data."""
    layouts = list(_training_settings(subject, question) if subject.trains else _inference_settings(question))
    subject.sizes = tuple({levels[0][0][0].layout.shares for levels in layouts})
    found = [one for levels in layouts for one in _first_that_fit(subject, levels, question)]
    few = question.batch < question.cluster.size
    if subject.trains and (few or not any(one.runs for one in found)):
        found += [
            one for levels in _context_settings(question, found) for one in _first_that_fit(subject, levels, question)
        ]
    fits = sorted((one for one in found if one.runs), key=_by_time)
    small = sorted(
        (one for one in found if not one.runs and one.memory),
        key=lambda one: one.memory.total if one.memory else math.inf,
    )
    kept = _best_of_each(fits)
    if kept:
        kept = [kept[0], *(replace(one, why_not=_why_slower(one, kept[0], question)) for one in kept[1:])]
    fitting = {str(one.setting.layout) for one in kept}
    small = [one for one in _best_of_each(small) if str(one.setting.layout) not in fitting]
    listed = (*kept, *small, *_best_of_each([one for one in found if one.memory is None]))
    return Advice(question, type(subject.model).__name__, subject.parameters, subject.length, listed)


def forecasts_that_fit(subject: ModelInQuestion, question: Question) -> list[LayoutForecast]:
    """All settings of training that fit, the fastest first: also those that need less memory than others that fit."""
    layouts = _training_settings(subject, question)
    found = (one for levels in layouts for level in _forecasts(subject, levels, question) for one in level)
    return sorted((one for one in found if one.runs), key=_by_time)


def _forecasts(subject: ModelInQuestion, levels: Levels, question: Question) -> Iterator[list[LayoutForecast]]:
    """The settings of each level, without ladders of which an earlier setting shows that none of them can fit."""
    known: list[LayoutForecast] = []
    for level in levels:
        left = [one for one in level if not any(_shows_too_large(other, one[-1], question) for other in known)]
        found = [one for ladder in left for one in _of_ladder(subject, ladder, question)]
        known += found
        yield found


def _of_ladder(subject: ModelInQuestion, ladder: Ladder, question: Question) -> list[LayoutForecast]:
    """The first that fits, found by halves, with the next, the last, and one between them; the last alone if none fits."""
    known: dict[int, LayoutForecast] = {}

    def fits(number: int) -> bool:
        known[number] = known.get(number) or _judged(subject, ladder[number], question)
        return known[number].runs

    last = len(ladder) - 1
    if not fits(last):
        return [known[last]]
    first = bisect.bisect_left(range(last), True, key=fits)
    some = {first, min(first + 1, last), (first + last + 1) // 2, last}
    return [known[number] for number in sorted(some) if fits(number)]


def _shows_too_large(known: LayoutForecast, one: LayoutSetting, question: Question) -> bool:
    """Whether a setting would not fit if all of a known one's activations were divided as far as it divides some."""
    other, device = known.setting, question.cluster.device
    if other.accumulate > 1 and other.sync_each_batch != one.sync_each_batch:  # they hold other gradients
        return False
    parts = one.accumulate / other.accumulate
    parts *= one.layout.tp if one.sequence_parallel and not other.sequence_parallel else 1
    alike = replace(
        one,
        accumulate=other.accumulate,
        sync_each_batch=other.sync_each_batch,
        sequence_parallel=other.sequence_parallel,
    )
    if alike != other or known.memory is None or parts <= 1:
        return False
    saved = known.memory.peak.activations * (1 - 1 / parts) * (1 + device.spare)
    return known.memory.total - saved > device.memory


def _first_that_fit(subject: ModelInQuestion, levels: Levels, question: Question) -> list[LayoutForecast]:
    """The settings of the first level of which one fits: the later ones need less memory, and more time."""
    found: list[LayoutForecast] = []
    for level in _forecasts(subject, levels, question):
        found += level
        if any(one.runs for one in found) or all(one.memory is None for one in found):
            break
    return found


def _best_of_each(candidates: Sequence[LayoutForecast]) -> list[LayoutForecast]:
    """The first of each layout: with the micro-batches, the schedule and the options that are best."""
    found: dict[str, LayoutForecast] = {}
    for one in candidates:
        found.setdefault(f"{one.setting.layout} {one.setting.reshard}", one)
    return list(found.values())


def _per_row(one: LayoutForecast) -> float:
    """Seconds for each row: layouts for answers have different numbers of replicas."""
    assert one.time is not None
    return one.time.seconds / (one.setting.rows * one.setting.layout.data)


def _by_time(one: LayoutForecast) -> float:
    """Seconds for each row without the last digits, which are those of the order of sums: of equals, the plain one is first."""
    return float(f"{_per_row(one):.10g}")


def _judged(subject: ModelInQuestion, setting: LayoutSetting, question: Question) -> LayoutForecast:
    """A candidate, with the reason if it cannot run."""
    device = question.cluster.device
    try:
        memory = footprint(subject, setting, device)
        if memory.total > device.memory:
            more = (memory.total - device.memory) / GIB
            return LayoutForecast(setting, memory, None, f"needs {more:.1f} GiB more than a {device.name} has")
        return LayoutForecast(setting, memory, time_of_step(subject, setting, question.cluster))
    except PlanError as error:
        return LayoutForecast(setting, None, None, str(error).splitlines()[0])


def _why_slower(one: LayoutForecast, best: LayoutForecast, question: Question) -> str:
    """The largest part of the time that it has more than the best."""
    assert one.time is not None and best.time is not None
    setting = one.setting
    ranks = setting.layout.shares * setting.layout.shards
    slow = question.cluster.nodes > 1 and ranks > question.cluster.each
    names = {
        "bubble": f"ranks wait for other stages ({one.time.bubble / one.time.seconds:.0%} of a step)",
        "exchange": f"{'links between nodes' if slow else 'links'}: exchanges that nothing hides",
        "compute": "computes layers twice"
        if setting.recompute and not best.setting.recompute
        else "smaller operations",
        "update": "updates more weights on each device",
    }
    each = {name: getattr(one.time, name) / setting.rows / setting.layout.data for name in names}
    least = {name: getattr(best.time, name) / best.setting.rows / best.setting.layout.data for name in names}
    worst = max(names, key=lambda name: each[name] - least[name])
    times = _per_row(one) / _per_row(best)
    if times < 1.005:
        return "as fast, within the error of these figures"
    return f"{times:.2f} times as long: {names[worst]}"


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def layouts_for(cluster: Cluster, batch: int, has_experts: bool) -> Iterator[Layout]:
    """All layouts of a cluster: data ranks divide the batch, and ranks that divide layers are in one node."""
    size = cluster.size
    for pp in (one for one in _divisors(size) if one <= MOST_STAGED):
        for shares in _divisors(size // pp):
            data = size // pp // shares
            if batch % data or shares > min(MOST_SHARED, cluster.each):
                continue
            for replicas in {1, data, *({data // cluster.each} if data % cluster.each == 0 else ())}:
                for ep in (False, True) if has_experts and shares > 1 else (False,):
                    yield Layout(replicas, data // replicas, **{"ep" if ep else "tp": shares}, pp=pp)


def _context_settings(question: Question, found: Sequence[LayoutForecast]) -> Iterator[Levels]:
    """The layouts that share out sequences, where those that share out rows in their place do not do as well.

    They hold the same weights, and exchange keys and values besides; attention to a part of a sequence is slower, too.
    """
    at_ease = {
        one.layout for one in (known.setting for known in found if known.runs) if not one.recompute | one.offload
    }
    memory = question.cluster.device.memory
    large = {one.setting.layout for one in found if one.memory and one.memory.weights + one.memory.optimizer > memory}
    for layout in layouts_for(question.cluster, 0, has_experts=False):
        if layout.pp > 1 or layout in at_ease | large:
            continue
        for cp in _divisors(layout.dp_shard)[1:]:
            shared = replace(layout, dp_shard=layout.dp_shard // cp, cp=cp)
            if question.batch % shared.data == 0 and layout.shares * cp <= question.cluster.each:
                yield _settings_of(shared, question)


def _training_settings(subject: ModelInQuestion, question: Question) -> Iterator[Levels]:
    """For each layout its settings: as they are, with less memory for activations, with least, and with weights on the host.

    Less is layers that are computed again, parts of the sequence, or several forwards a step; least is several of these.
    """
    for layout in layouts_for(question.cluster, question.batch, subject.has_experts):
        yield _settings_of(layout, question)


def _settings_of(layout: Layout, question: Question) -> Levels:
    rows = question.batch // layout.data
    usual = LayoutSetting(layout, rows, question.optimizer, weight_type=question.weight_type)
    again = replace(usual, recompute=True)
    if layout.pp > 1:
        return [list(_staged_ladders(one)) for one in (usual, again)]
    parts = layout.tp > 1 and layout.cp == 1
    parted, again_parted = ([replace(one, sequence_parallel=True)] * parts for one in (usual, again))
    less: list[Ladder] = [(again,), *((one,) for one in parted)]
    less += (ladder for one in (usual, again, *parted) for ladder in _accumulated(one))
    least: list[Ladder] = [(one,) for one in again_parted]
    least += (ladder for one in again_parted for ladder in _accumulated(one))
    levels = [_with_kept(level) for level in ([(usual,)], less, least) if level]
    if layout.shards > 1:
        on_host = [replace(one, offload=True) for one in (again, *again_parted)]
        levels += [[(one,) for one in on_host], [ladder for one in on_host for ladder in _accumulated(one)]]
    return levels


def _accumulated(setting: LayoutSetting) -> Iterator[Ladder]:
    """The setting with several forwards a step, down to one row each, whose gradients are summed up at the end or in each."""
    several = [one for one in _divisors(setting.rows) if one > 1]
    for each in (False, True)[: 1 + (setting.layout.shards > 1)] if several else ():
        yield tuple(replace(setting, accumulate=one, sync_each_batch=each) for one in several)


def _with_kept(ladders: Sequence[Ladder]) -> list[Ladder]:
    """The ladders, each behind the one that keeps gathered weights until the backward."""
    found = []
    for ladder in ladders:
        if ladder[0].layout.shards > 1:
            found.append(tuple(replace(one, reshard=False) for one in ladder))
        found.append(ladder)
    return found


def _staged_ladders(setting: LayoutSetting) -> Iterator[Ladder]:
    """For each schedule the numbers of micro-batches that fill the stages, down to one row each."""
    pp = setting.layout.pp
    each = _divisors(setting.rows)
    for schedule in ("1F1B", "Interleaved1F1B", "GPipe"):
        filled = [one for one in each if one % pp == 0] if schedule != "GPipe" else [max(o for o in each if o <= pp)]
        if filled and (schedule != "GPipe" or filled[0] % pp):
            yield tuple(replace(setting, chunks=one, schedule=schedule) for one in filled)


def _inference_settings(question: Question) -> Iterator[Levels]:
    """Whole replicas, each divided over ranks of one node or, if it is small enough, of several whole ones."""
    each = question.cluster.each
    several = [one for one in _divisors(question.cluster.size) if one <= MOST_SHARED and one % each == 0]
    for tp in sorted({*_divisors(each), *several}):
        replicas = question.cluster.size // tp
        if question.batch % replicas == 0 or question.batch < replicas:
            rows = max(question.batch // replicas, 1)
            yield [[(LayoutSetting(Layout(tp=tp), rows, tokens=question.tokens),)]]
