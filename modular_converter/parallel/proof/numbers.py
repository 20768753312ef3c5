"""The Python numbers, words, types and sizes among the operands of a forward's operations, and the steps of its code.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.proof.facts import Decided, Fact, Ratios, Sizes, first_difference
from modular_converter.parallel.proof.watch import running_modules
from modular_converter.parallel.solve.operators import creation, cuts, views
from modular_converter.parallel.torch_private import DisableTorchFunction, TorchDispatchMode
from modular_converter.parallel.trace.call_names import is_code_of_torch, site_of_call
from modular_converter.parallel.trace.graph import Comparison
from modular_converter.parallel.trace.integers import comparisons, reads_shape, sourced_attributes, sourced_shape


# Operators whose operands are only tensors, or only sizes and tensors; in ``_FILLS`` the operands from this index on are
# numbers or types.
_PLAIN = ("mm", "linear", "convolution")
_SIZES = frozenset().union(*(family.TABLE.operators for family in (views, cuts, creation)))
_FILLS = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0, "_to_copy": 1}
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
        elif sizes := tuple(_integers((args, tuple((kwargs or {}).values())))):
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
        if name not in _PLAIN and (name not in _SIZES or name in _FILLS):
            self.note(name, " ".join(_numbers((args[_FILLS.get(name, 0) :], kwargs or {}), self.few)))
        with DisableTorchFunction():  # torch's own code for tensors without data reads many shapes
            if func.namespace == "aten" and _PAUSES_ARE_CHEAP:
                return _untraced(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))


# Later Pythons rewrite all running code where tracing ends or begins.
_PAUSES_ARE_CHEAP = sys.version_info < (3, 12)


def _untraced(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operation of torch, whose own Python code is not traced: that would double the time of a run."""
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


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield int(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _integers(item)


def _numbers(value: Any, few: int = _FEW) -> Iterator[str]:
    if isinstance(value, torch.Tensor):
        if not value.is_meta and value.numel() <= few:
            yield from map(str, value.flatten().tolist())
    elif isinstance(value, (int, float, complex, str, torch.dtype)):
        yield str(value)
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item, few)
