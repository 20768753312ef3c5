"""What a forward uses beside tensors: classes, operators, values that the code reads, numbers, sizes and steps of the code.

A size that a plan shrinks, such as the number of heads, may meet a number of the code: ``min(heads, 16)``, ``heads - 16``,
``x[:, :16]``, ``if heads > 16``. Then a rank does something else than the whole model.

A number that the code computes from a shape, such as ``1 / sqrt(weight.shape[0])``, reaches an operation as a plain
number, and differs if the weight is a share. A size, such as ``min(heads, 16)``, must be the rank's share of the whole
model's. A branch must go the same way.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.solve.operators import OPERATORS, views
from modular_converter.parallel.tiny.build import seed_cpu
from modular_converter.parallel.torch_private import DisableTorchFunction, TorchDispatchMode
from modular_converter.parallel.trace.graph import Comparison
from modular_converter.parallel.trace.integers import comparisons, reads_shape, sourced_attributes, sourced_shape
from modular_converter.parallel.trace.layer_kinds import compares_at, holds, lengths_in, lengths_near
from modular_converter.parallel.trace.record import RunsWithoutData, is_code_of_torch, leaves_in, record, site_of_call


# Operators with which the program reads values of a tensor, so that its next steps may depend on data.
_READS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal")


@dataclass
class Met:
    """The parts that have run, in order.

    Attributes:
        kinds: classes of modules.
        reads: paths of the modules whose code reads values that depend on weights.
        idle: parts of the model whose weights no operator reads.
    """

    kinds: dict[str, None] = field(default_factory=dict)
    operators: dict[str, None] = field(default_factory=dict)
    reads: dict[str, None] = field(default_factory=dict)
    idle: tuple[str, ...] = ()


def watched(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Met:
    """The parts that a forward without gradients uses. Raises ``TraceError`` where the forward fails."""
    seed_cpu(11)
    trace = record(model, inputs, type(model).__name__)
    ran = sorted(trace.modules, key=lambda call: (call.first, -call.last))
    met = Met(dict.fromkeys(trace.module_classes[call.path] for call in ran))
    weights = {one.tensor: id(model.get_parameter(one.name)) for one in trace.parameters}
    computed, used = set(weights), set[int]()
    for op in trace.ops:
        given = computed.intersection(op.inputs())
        used |= given
        met.operators.setdefault(op.name)
        if given and op.name in _READS:
            met.reads.setdefault(op.module)
        known = OPERATORS.get(op.name)
        if given and not (known is not None and known.traits.shape_only):
            computed.update(op.outputs)
    met.idle = tuple(_idle(model, {one for number, one in weights.items() if number not in used}))
    return met


@contextlib.contextmanager
def running_modules(model: torch.nn.Module, stack: list[str]) -> Iterator[None]:
    """A context in which the last path in ``stack`` is that of the running module."""
    with contextlib.ExitStack() as hooks:
        for path, module in model.named_modules():
            hooks.enter_context(module.register_forward_pre_hook(lambda *_, path=path: stack.append(path)))
            hooks.enter_context(module.register_forward_hook(lambda *_: _leave(stack)))
        yield


def _leave(stack: list[str]) -> None:
    stack.pop()


def _idle(model: torch.nn.Module, unused: set[int]) -> Iterator[str]:
    """The outermost modules without a used weight, and unused weights of other modules."""
    inside: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(f"{outer}.") for outer in inside):
            continue
        weights = {id(parameter) for parameter in module.parameters()}
        if path and weights and weights <= unused:
            inside.append(path)
            yield path
            continue
        for name, parameter in module.named_parameters(path, recurse=False):
            if id(parameter) in unused:
                yield name


Ratios = Collection[Fraction]
"""The fractions of lengths that a rank holds: 1/2, or 2/3 and 1/3 for three heads on two ranks."""


@dataclass(frozen=True)
class Sizes:
    """The integers of an operation that makes, views or parts a tensor: lengths, counts, dimensions.

    Attributes:
        width: the length of the dimension of which the operation takes a part; then the integers are places in it.
    """

    given: tuple[int, ...]
    width: int | None = None

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.given))
        return f"the sizes {listed}" if self.width is None else f"the part {listed} of {self.width}"

    def fits(self, share: Sizes, ratios: Ratios) -> bool:
        """Whether a rank's integers are the same, or its share of them."""
        if len(self.given) != len(share.given):
            return False
        if self.width is None or share.width is None:
            return all(one == own or _is_share(one, own, ratios) for one, own in zip(self.given, share.given))
        if self.width == share.width:
            return self.given == share.given
        ends = ((_within(one, self.width), _within(own, share.width)) for one, own in zip(self.given, share.given))
        return all(
            one == own == 0
            or (one, own) == (self.width, share.width)
            or _is_share(one, own, ratios)
            or _is_share(self.width - one, share.width - own, ratios)
            for one, own in ends
        )


def _within(place: int, width: int) -> int:
    return min(max(place + width if place < 0 else place, 0), width)


def _is_share(whole: int, own: int, ratios: Ratios) -> bool:
    return whole != 0 and Fraction(own, whole) in ratios


@dataclass(frozen=True)
class Decided:
    """A comparison of integers, of which one comes from a shape or an attribute; ``min`` and ``if length % 8`` are some."""

    compared: Comparison

    @property
    def holds(self) -> bool:
        return holds(self.compared)

    @property
    def sides(self) -> tuple[int, int]:
        return self.compared.left.value, self.compared.right.value

    def __str__(self) -> str:
        left, right = self.sides
        return f"{left} {_SIGNS[self.compared.operator]} {right} ({'true' if self.holds else 'false'})"

    def fits(self, share: Decided, ratios: Ratios) -> bool:
        """Whether the comparison has the same result on a rank, at each length that its numbers name."""
        if self.holds != share.holds or self.compared.operator != share.compared.operator:
            return False
        if self.sides == share.sides:
            return True
        return all(
            compares_at(self.compared, usual, other) == compares_at(share.compared, usual, other)
            for usual in lengths_in(self.compared) & lengths_in(share.compared)
            for other in lengths_near(self.compared, share.compared)
        )


_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
Fact: TypeAlias = "str | Sizes | Decided"
"""Numbers and words among the operands of an operation, as text; or its sizes; or a comparison."""


def first_difference(whole: Sequence[Fact], share: Sequence[Fact], ratios: Ratios) -> tuple[str, str] | None:
    """The first pair of facts at one place that do not fit, in words."""
    for one, own in zip(whole, share):
        same = type(one) is type(own) and (one == own or (not isinstance(one, str) and one.fits(own, ratios)))  # type: ignore[arg-type]
        if not same:
            return str(one), str(own)
    if len(whole) == len(share):
        return None
    more = str((whole if len(whole) > len(share) else share)[min(len(whole), len(share))])
    return (more, "nothing") if len(whole) > len(share) else ("nothing", more)


def shrunk(whole: Sequence[Fact], share: Sequence[Fact]) -> Iterator[Decided]:
    """The comparisons of the whole model whose sides are other numbers on a rank."""
    for one, own in zip(whole, share):
        if isinstance(one, Decided) and isinstance(own, Decided) and one.sides != own.sides:
            yield one


# Operators whose operands are only tensors, or only sizes and tensors; in ``_FILLS`` the operands from this index on are
# numbers or types.
_PLAIN = ("mm", "linear", "convolution")
_SIZES = frozenset(views.TABLE.operators)
_FILLS = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0, "_to_copy": 1}
# Operands from this index on are for gradients alone, which are compared by themselves: the row of a table without one.
_FOR_GRADIENTS = {"embedding": 2}
# Functions that make a tensor of Python numbers, which has no data in a run without data.
_OF_NUMBERS = ("tensor", "as_tensor", "asarray")
_CUTS = ("slice",)
# A tensor with data and at most so many entries counts as numbers, such as ``torch.tensor(scale)``.
_FEW = 16
_WING = Path(__file__).parents[1]
# Code of this wing between a model's line and its operation; styles and collectives have numbers of their own.
_BETWEEN = tuple(str(_WING / name) for name in ("proof", "trace", "tiny", "choice", "engine", "shard/role_parameters"))
LINE = "line"
"""In place of an operator: how often a line of code ran."""

Place = tuple[str, str, str]
"""The path of the running module, ``path:line`` of the code, and the operator."""
Numbers = dict[Place, list[Fact]]
"""The facts of each operation, comparison and line at a place, in order."""


def numbers_of(model: torch.nn.Module, run: Callable[[], Any], with_data: bool = False) -> Numbers:
    """The numbers, sizes and steps in a model's code in one run, without those of styles and collectives.

    Args:
        run: runs the model's forward; it needs no data.
        with_data: whether its tensors have data, which are no numbers of the code then.
    """
    stack, found = [""], Numbers()

    def note(name: str, fact: Fact) -> None:
        if site := _site():
            found.setdefault((stack[-1], site, name), []).append(fact)

    def decided(compared: Comparison) -> None:
        if not is_code_of_torch(_BETWEEN):  # its checks of arguments
            note(compared.operator, Decided(compared))

    steps = _Steps(model, stack)
    with (
        running_modules(model, stack),
        sourced_attributes(model, least=0),
        comparisons(decided),
        torch.no_grad(),
        _Calls(note),
        _Watch(note, with_data),
        steps,
    ):
        run()
    return found | steps.found


def differences(whole: Numbers, share: Numbers, ratios: Ratios = ()) -> dict[Place, tuple[str, str]]:
    """Place where the numbers differ -> the first pair that differs.

    Args:
        ratios: the fractions of lengths that a rank holds; sizes may differ by them.
    """
    pairs = (
        (place, first_difference(whole.get(place, []), share.get(place, []), ratios))
        for place in whole.keys() | share.keys()
    )
    return {place: pair for place, pair in pairs if pair is not None}


def numbers_in(found: Numbers) -> Iterator[float]:
    """The plain numbers of operations, the borders of slices, and the sides of comparisons."""
    for fact in (fact for place, facts in found.items() if place[2] != LINE for fact in facts):
        if isinstance(fact, Decided):
            yield from fact.sides
        elif isinstance(fact, Sizes):
            yield from () if fact.width is None else map(abs, fact.given)
        else:
            for word in fact.split():
                with contextlib.suppress(ValueError):  # a word, a type
                    yield abs(float(word))


class _Calls(TorchFunctionMode):
    """Gives lengths that remember that they are lengths, and notes the integers of the model's own calls of torch.

    The operations below a call depend on strides, too: a reshape is a view or a copy.
    """

    def __init__(self, note: Callable[[str, Fact], None]) -> None:
        super().__init__()
        self.note = note

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if reads_shape(func, name):
            return sourced_shape(func, args, kwargs or {}, lambda _: -1)
        if name in _OF_NUMBERS and args and not isinstance(args[0], torch.Tensor):
            self.note(name, " ".join(_numbers(args[0])))
        elif sizes := tuple(
            int(one) for one in leaves_in((args, kwargs)) if isinstance(one, int) and type(one) is not bool
        ):
            self.note(name, Sizes(sizes))
        return func(*args, **(kwargs or {}))


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the numbers among the operands of each operation in the model's own code, and the places of slices."""

    def __init__(self, note: Callable[[str, Fact], None], with_data: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.note, self.few = note, 0 if with_data else _FEW

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2].rstrip("_")
        if name in _CUTS:
            self.note(name, _part(args))
        numbers = name not in _PLAIN and (name not in _SIZES or name in _FILLS)
        own = args[_FILLS.get(name, 0) : _FOR_GRADIENTS.get(name)]
        if numbers and (words := " ".join(_numbers((own, kwargs), self.few))):
            self.note(name, words)
        with DisableTorchFunction():  # torch's own code for tensors without data reads many shapes
            return RunsWithoutData.known.result(func, args, kwargs, _untraced)


# Later Pythons rewrite all running code where tracing ends or begins.
_PAUSES_ARE_CHEAP = sys.version_info < (3, 12)


def _untraced(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of an operation of torch, whose own Python code is not traced: that would double the time of a run."""
    if func.namespace != "aten" or not _PAUSES_ARE_CHEAP:
        return func(*args, **kwargs)
    traced = sys.gettrace()
    sys.settrace(None)
    try:
        return func(*args, **kwargs)
    finally:
        sys.settrace(traced)


class _Steps:
    """A context that counts how often each line of the model's code runs: a branch may depend on a float or a word."""

    def __init__(self, model: torch.nn.Module, stack: list[str]) -> None:
        self.stack, self.counts = stack, Counter[tuple[str, CodeType, int]]()
        self.roots = _roots(frozenset(type(module).__module__ for module in model.modules()))
        self.known: dict[CodeType, bool] = {}

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self._called)

    def __exit__(self, *exception: object) -> None:
        sys.settrace(self.before)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code not in self.known:
            path = code.co_filename
            apart = code.co_name == "<module>" or _AROUND in path or path.startswith(str(_WING))
            self.known[code] = not apart and any(_is_below(path, root) for root in self.roots)
        return self._stepped if self.known[code] else None

    def _stepped(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.counts[self.stack[-1], frame.f_code, frame.f_lineno] += 1
        return self._stepped

    @property
    def found(self) -> Numbers:
        return {
            (path, f"{code.co_filename}:{line}", LINE): [f"{count} times"]
            for (path, code, line), count in self.counts.items()
        }


_PACKAGES = f"{os.sep}site-packages{os.sep}"
# The library's code around forwards: it keeps results of earlier runs, so that a second run takes other steps.
_AROUND = f"{os.sep}transformers{os.sep}utils{os.sep}"


@functools.cache
def _roots(modules: frozenset[str]) -> tuple[str, ...]:
    """The folders of the code of a model's classes: of their packages, or beside a module without a package."""
    tops = {sys.modules.get(name.partition(".")[0]) for name in modules if not name.startswith("torch.")}
    files = (getattr(top, "__file__", None) for top in tops)
    paths = [getattr(top, "__path__", ()) for top in tops]  # a namespace package has folders, and no file
    folders = {os.path.dirname(file) for file in files if file} | {folder for one in paths for folder in one}
    return tuple(sorted(f"{folder}{os.sep}" for folder in folders))


def _is_below(path: str, root: str) -> bool:
    return path.startswith(root) and (_PACKAGES in root or _PACKAGES not in path)


def _site() -> str:
    """The running line of the model's code; empty in the code of styles and collectives."""
    site = site_of_call(_BETWEEN)
    return "" if site.startswith(str(_WING)) else site


def _part(args: tuple[Any, ...]) -> Sizes:
    """The places between which a slice lies."""
    given = (*args[1:4], *(0, None, None)[len(args) - 1 :])
    width, stop = int(args[0].shape[given[0]]), given[2]
    return Sizes((given[1] or 0, width if stop is None else stop), width)


def _numbers(value: Any, few: int = _FEW) -> Iterator[str]:
    for one in leaves_in(value):
        if isinstance(one, torch.Tensor):
            if not one.is_meta and one.numel() <= few:
                yield from map(str, one.flatten().tolist())
        elif isinstance(one, (int, float, complex, str, torch.dtype)):
            yield str(one)
