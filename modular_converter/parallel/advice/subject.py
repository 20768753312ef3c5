"""The model in question without data: whole, as one of several ranks holds it, and its run with few layers of each kind."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import torch

from modular_converter.parallel.advice.recording import (
    RecordedDirectGroup,
    RecordedGroup,
    Recording,
    Recordings,
    RunUse,
    record_run,
)
from modular_converter.parallel.choice.context_parallel import compute_in_parts, difference_in_parts, refuse_forms
from modular_converter.parallel.choice.fit import fit
from modular_converter.parallel.choice.kept_answers import AnswersOfModel
from modular_converter.parallel.choice.select_plan import SelectedPlan, select_plan
from modular_converter.parallel.choice.sequence_parallel import (
    SequenceParallel,
    SequencePlan,
    difference,
    unproven_sequence_plan,
    zone_of,
)
from modular_converter.parallel.choice.skeleton import META, Skeleton, assemble_model, skeleton_of
from modular_converter.parallel.choice.trials import kinds_by_modules, sizes_of_layers
from modular_converter.parallel.costs import CountRequest, inputs_of, model_of, target_and_config
from modular_converter.parallel.errors import ApplyError, BuildError, PlanError
from modular_converter.parallel.inference.plain_forwards import make_inference
from modular_converter.parallel.modules import outermost_layers, own_layers, recompute_layers
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece, fitting, resolve
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.shares import largest_share, without_units


RECORDED_ROWS = (2, 3)
OF_EACH_KIND = 4
"""The first two layers of a kind may differ from the others: their input has no gradient, or lives longer. So may the last:
what it keeps goes when the next one runs, which in a backward is the one before it. The third stands for the others."""


@dataclass(frozen=True)
class WeightPart:
    """The part of a weight that one of the ranks holds before data ranks divide it.

    Attributes:
        unit: the path of the layer that holds it; empty for weights outside of the layers.
        whole: the shape of the whole weight.
        shape: of the part.
        width: bytes of an entry.
        trained: whether it has a gradient.
        tied: whether other modules have it under another name.
        number: its place in the order in which the model names its weights.
    """

    name: str
    unit: str
    whole: tuple[int, ...]
    shape: tuple[int, ...]
    width: int
    trained: bool
    tied: bool = False
    number: int = 0

    @property
    def replicated(self) -> bool:
        return self.whole == self.shape


WeightKind = tuple[tuple[int, ...], tuple[int, ...], int, bool]
"""The whole shape, that of the part, the bytes of an entry, and whether it is trained."""


@dataclass(frozen=True)
class WeightGroup:
    """The weights of a layer, or (with an empty path) some that are outside of the layers.

    Attributes:
        kinds: of each weight; layers alike have equal ones, so that what follows from them is computed once.
    """

    path: str
    parts: tuple[WeightPart, ...]

    @functools.cached_property
    def kinds(self) -> tuple[WeightKind, ...]:
        return tuple((one.whole, one.shape, one.width, one.trained) for one in self.parts)

    @functools.cached_property
    def whole_bytes(self) -> int:
        """The bytes of the whole weights."""
        return sum(math.prod(one.whole) * one.width for one in self.parts)


def weight_groups(parts: Iterable[WeightPart]) -> list[WeightGroup]:
    """The parts by layer, in the order of the first weight of each."""
    found: dict[str, list[WeightPart]] = {}
    for one in parts:
        found.setdefault(one.unit, []).append(one)
    return [WeightGroup(path, tuple(members)) for path, members in found.items()]


class RunKind(NamedTuple):
    """How a run differs from others of the model.

    Attributes:
        shares: ``tp`` or ``ep``.
        ranks: that divide each layer.
        sequence: whether a rank has a part of the sequence between the divided regions.
        context: ranks that share out each sequence (``cp``).
    """

    shares: str = "tp"
    ranks: int = 1
    recompute: bool = False
    sequence: bool = False
    context: int = 1


_PLAIN = RunKind()


_Key = TypeVar("_Key", bound=Hashable)
_Made = TypeVar("_Made")


def _once(known: dict[_Key, _Made | PlanError], key: _Key, make: Callable[[], _Made]) -> _Made:
    """What is made for a key, for all layouts that ask for it; or the ``PlanError`` that this has raised."""
    if key not in known:
        try:
            known[key] = make()
        except PlanError as error:
            known[key] = error
    found = known[key]
    if isinstance(found, PlanError):
        raise found
    return found


@dataclass
class ModelInQuestion:
    """A model at the size of its configuration, on the meta device.

    Attributes:
        trains: whether its runs have a backward.
        model: whole, in the type of the weights.
        layers: path -> layer, of the outermost lists.
        sizes: the numbers of ranks over which layers may be divided, of all layouts in question.
    """

    request: CountRequest
    model: Any
    layers: dict[str, torch.nn.Module] = field(repr=False)
    sizes: tuple[int, ...] = ()
    _selected: dict[tuple[str, int], SelectedPlan | PlanError] = field(default_factory=dict, repr=False)
    _groups: dict[tuple[str, int], list[WeightGroup]] = field(default_factory=dict, repr=False)
    _plans: dict[tuple[str, int], Plan | PlanError] = field(default_factory=dict, repr=False)
    _runs: dict[RunKind, Recordings | PlanError] = field(default_factory=dict, repr=False)
    _uses: dict[tuple[RunKind, int], RunUse] = field(default_factory=dict, repr=False)
    _sequences: dict[tuple[int, bool], SequencePlan | PlanError] = field(default_factory=dict, repr=False)

    @property
    def trains(self) -> bool:
        return self.request.trains

    @functools.cached_property
    def parameters(self) -> int:
        return sum(one.numel() for one in self.model.parameters())

    @functools.cached_property
    def length(self) -> int:
        """Tokens of a row; 0 for a model without tokens."""
        ids = inputs_of(self.model, self.request, META).get("input_ids")
        return int(ids.shape[1]) if isinstance(ids, torch.Tensor) else 0

    @functools.cached_property
    def has_experts(self) -> bool:
        return any("expert" in name for name, _ in self.model.named_modules())

    def groups(self, shares: str = "tp", ranks: int = 1) -> list[WeightGroup]:
        """The weights of the rank with the largest shares, tied weights once. Raises ``PlanError`` without a plan."""
        if (shares, ranks) not in self._groups:
            self._groups[shares, ranks] = weight_groups(self._cut(shares, ranks))
        return self._groups[shares, ranks]

    def _cut(self, shares: str, ranks: int) -> list[WeightPart]:
        units = {id(layer): path for path, layer in self.layers.items()}
        own = {id(layer) for layer in own_layers(self.model)}
        inside = {
            id(one): units[id(layer)]
            for layer in self.layers.values()
            if id(layer) in own
            for one in layer.parameters()
        }
        pieces: dict[str, Piece] = {}
        if ranks > 1:
            pieces = resolve(fitting(self.plan(shares, ranks), self.model), self.model).pieces
        names = Counter(id(one) for _, one in self.model.named_parameters(remove_duplicate=False))
        found = []
        for number, (name, one) in enumerate(self.model.named_parameters()):
            shape = tuple(one.shape)
            part = largest_share(shape, pieces.get(name), ranks)
            trained = one.requires_grad and one.is_floating_point()
            unit, tied = inside.get(id(one), ""), names[id(one)] > 1
            found.append(WeightPart(name, unit, shape, part, one.element_size(), trained, tied, number))
        return found

    @functools.cached_property
    def buffers(self) -> float:
        """Bytes of buffers, which each rank has whole."""
        return float(sum(one.numel() * one.element_size() for one in self.model.buffers()))

    def plan(self, shares: str, ranks: int) -> Plan:
        """The plan of the model, as it fits so many ranks. Raises ``PlanError`` if there is none, or it does not fit."""

        def fitted() -> Plan:
            question = f"plan of {shares}{ranks} among {self.sizes}"
            return Plan.parse(self._answers.answer(question, lambda: str(self._fitted(shares, ranks))))

        return _once(self._plans, (shares, ranks), fitted)

    @functools.cached_property
    def _answers(self) -> AnswersOfModel:
        """What is known of the model by its first layers of each kind."""
        return AnswersOfModel(assemble_model(self._short[0], META)[0], "advice")

    def _fitted(self, shares: str, ranks: int) -> Plan:
        # The plan that `parallelize` takes, with what it leaves whole. A selection takes seconds: that of more ranks is
        # taken, too, if nothing stays whole for the sake of their number.
        short = self._short[0]
        model = assemble_model(short, META)[0]
        more = sorted((size for size in self.sizes if size > ranks and size % ranks == 0), reverse=True)
        shared = next(self._unrestricted(shares, more), None)
        plan = self._selection(shares, ranks).plan if shared is None else shared
        return fit(short, fitting(plan, model), ranks).plan

    def _unrestricted(self, shares: str, sizes: Iterable[int]) -> Iterator[Plan]:
        for size in sizes:
            with contextlib.suppress(PlanError):
                if not (found := self._selection(shares, size)).restricted:
                    yield without_units(found.plan)

    def _selection(self, shares: str, ranks: int) -> SelectedPlan:
        return _once(self._selected, (shares, ranks), lambda: self._select(shares, ranks))

    def _select(self, shares: str, ranks: int) -> SelectedPlan:
        """Layers alike are divided alike, so the first of each kind are enough."""
        short, alike = self._short
        experts = shares == "ep"
        try:
            return select_plan(assemble_model(short, META)[0] if alike else self.model, None, ranks, experts)
        except PlanError:  # the code counts its layers, or the reason names them all
            if not alike:
                raise
            return select_plan(self.model, None, ranks, experts)

    def use(self, rows: int, kind: RunKind = _PLAIN) -> RunUse:
        """The use of one run of so many rows on one of the ranks. Raises ``PlanError`` if it cannot be run without data."""
        recorded = _once(self._runs, kind, lambda: self._recorded(kind))
        if (kind, rows) not in self._uses:
            self._uses[kind, rows] = recorded.at(rows)
        return self._uses[kind, rows]

    def _recorded(self, kind: RunKind) -> Recordings:
        if kind.sequence and (said := self._no_sequence):
            raise ApplyError(said)
        if kind.context > 1 and (said := self._no_context):
            raise ApplyError(said)
        short, alike = self._short
        try:
            return self._both(short, alike, kind)
        except BuildError:  # the code counts its layers
            if not alike:
                raise
            return self._both(skeleton_of(self.model), {}, kind)

    @functools.cached_property
    def _no_sequence(self) -> str:
        """Why ranks cannot have parts of the sequence, as `parallelize` says; empty if they can."""
        model: Any = assemble_model(self._short[0], META)[0]
        plan = fitting(self.plan("tp", 2 if 2 in self.sizes else max(self.sizes, default=2)), model)

        def differences() -> list[str]:
            with torch.random.fork_rng(devices=[]):
                return [difference(model, plan, zone_of(model, resolve(plan, model)))]

        return self._reason(f"parts of a sequence under {plan}", differences)

    @functools.cached_property
    def _no_context(self) -> str:
        """Why ranks cannot share out each sequence, as `parallelize` says; empty if they can."""
        model: Any = assemble_model(self._short[0], META)[0]

        def differences() -> list[str]:
            refuse_forms(model)
            with torch.random.fork_rng(devices=[]):
                return [difference_in_parts(model)]

        return self._reason("sequences shared out", differences)

    def _reason(self, question: str, differences: Callable[[], list[str]]) -> str:
        """The only entry of ``differences``, known from an earlier call of this question or not; or why they are not known."""
        try:
            (found,) = self._answers.answer(question, differences)
        except PlanError as error:
            return str(error)
        return f"on parts of a sequence {found}" if found else ""

    def _both(self, skeleton: Skeleton, alike: dict[str, str], kind: RunKind) -> Recordings:
        def values() -> list[Any]:
            return [self._run(skeleton, rows, kind).values() for rows in RECORDED_ROWS]

        asked = f"{RECORDED_ROWS} rows of {self.length}, {self.trains}, {self.request.dtype}, among {self.sizes}"
        kept = skeleton is self._short[0]
        both = self._answers.answer(f"run of {kind} with {asked}", values) if kept else values()
        first, second = map(Recording.of_values, both)
        return Recordings(RECORDED_ROWS, (first, second), alike)

    def _run(self, skeleton: Skeleton, rows: int, kind: RunKind) -> Recording:
        model: Any = assemble_model(skeleton, META)[0]
        model.train(self.trains)
        group, context = RecordedGroup(kind.ranks), RecordedGroup(kind.context, context=True)
        inputs = inputs_of(model, replace(self.request, samples=rows), META)
        accepted = inspect.signature(model.forward).parameters
        if "use_cache" in accepted:
            inputs["use_cache"] = not self.trains and kind.context == 1
        if not self.trains and "logits_to_keep" in accepted:  # as `generate` calls it
            inputs["logits_to_keep"] = 1
        begin = self._divided(model, skeleton, group, kind) if kind.ranks > 1 else None
        if kind.recompute:
            if not getattr(model, "supports_gradient_checkpointing", False):
                raise ApplyError(f"{type(model).__name__} has no gradient checkpointing")
            recompute_layers(model)
        if begin is not None:
            begin()
        if kind.context > 1:
            compute_in_parts(model, context)
        return record_run(model, dict(named_layers(model)), inputs, (group, context), self.trains)

    def _divided(
        self, model: Any, skeleton: Skeleton, group: RecordedGroup, kind: RunKind
    ) -> Callable[[], object] | None:
        """Divide a model over the ranks; what begins its parts of the sequence, as the last change of the model."""
        plan = fitting(self.plan(kind.shares, kind.ranks), model)
        if not kind.sequence:
            applied = apply(model, plan, group)
            if not self.trains and kind.context == 1:
                make_inference(applied, RecordedDirectGroup(group), compile=False)
            return None
        key = kind.ranks, skeleton is self._short[0]
        sequence = _once(self._sequences, key, lambda: unproven_sequence_plan(model, plan, skeleton))
        apply(model, sequence.plan, group)
        return functools.partial(SequenceParallel, model, sequence.zone, group, sequence.products)

    @functools.cached_property
    def _short(self) -> tuple[Skeleton, dict[str, str]]:
        """The model with the first layers of each list, up to four of each kind; and the kinds of the others."""
        return with_first_layers(self.model, self.layers)


def model_in_question(request: CountRequest) -> ModelInQuestion:
    """The model of a request. Raises ``PlanError`` if it is unknown or cannot be made without data."""
    target, config = target_and_config(request)
    return question_of_model(model_of(target, config, request, META), request)


def question_of_model(model: Any, request: CountRequest) -> ModelInQuestion:
    """The question about a model on the meta device."""
    return ModelInQuestion(request, model.train(request.trains), dict(named_layers(model)))


def named_layers(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The members of the outermost lists of layers, with their paths."""
    names = {id(module): path for path, module in model.named_modules()}
    for layer in outermost_layers(model):
        yield names[id(layer)], layer


def with_first_layers(model: torch.nn.Module, layers: dict[str, torch.nn.Module]) -> tuple[Skeleton, dict[str, str]]:
    """The skeleton of a model with the first layers of each list, and layer -> the kept one that stands for its kind.

    The second is empty if all layers are kept. A list keeps its layers up to the fourth of each kind, so that code that
    counts its layers sees the same numbers.
    """
    facts = kinds_by_modules(model)
    sizes = sizes_of_layers(layers)
    kinds = {path: (facts.get(path), sizes[path]) for path in layers}
    lists: dict[str, list[str]] = {}
    for path in layers:
        lists.setdefault(path.rpartition(".")[0], []).append(path)
    alike: dict[str, str] = {}
    kept: dict[str, dict[str, Any]] = {}
    for owner, members in lists.items():
        number = _prefix([kinds[path] for path in members])
        if number < len(members):
            of_kind: dict[Any, list[str]] = {}
            for path in members[:number]:
                of_kind.setdefault(kinds[path], []).append(path)
            alike |= {path: of_kind[kinds[path]][: OF_EACH_KIND - 1][-1] for path in members}
        module = model.get_submodule(owner)
        kept[owner] = dict(module._modules)
        module.__dict__["_modules"] = dict(list(module._modules.items())[:number])
    try:
        return skeleton_of(model), alike
    finally:
        for owner, modules in kept.items():
            model.get_submodule(owner).__dict__["_modules"] = modules


def _prefix(kinds: list[Any]) -> int:
    """The number of first layers among which each kind is as often as it must be."""
    missing = Counter({kind: min(OF_EACH_KIND, number) for kind, number in Counter(kinds).items()})
    for number, kind in enumerate(kinds, start=1):
        missing[kind] -= 1
        if max(missing.values()) <= 0:
            return number
    return len(kinds)
