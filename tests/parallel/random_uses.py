"""Random uses of a model on ranks, each compared with the same lines on one device.

A use is a sequence of lines of Python on a model ``m``: calls, settings, modes, reads, writes, saves. Each line runs on the
whole model and on the one whose weights are on ranks, and both must answer and store the same, or the second refuses with
a reason; everything is set back after a refusal. `utils/mutate_uses.py` tries thousands of sequences.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel.api import parallelize
from modular_converter.parallel.engine.base.call_state import settings_of
from modular_converter.parallel.engine.remote.caller_state import configs_in
from modular_converter.parallel.engine.remote.remote_values import OnlyThere
from modular_converter.parallel.errors import ApplyError, PlanError, RankError, one_line
from modular_converter.parallel.modules import is_plain
from modular_converter.parallel.tiny.build import build, target_of


EQUAL, REFUSED, ERROR, DIFFERENT = "equal", "refused with a reason", "another error", "different in silence"
TYPES = [
    "llama",
    "gpt2",
    "bert",
    "t5",
    "bart",
    "mixtral",
    "gemma2",
    "opt",
    "bloom",
    "qwen3",
    "phi3",
    "gpt_neox",
    "falcon",
    "mamba",
    "deberta-v2",
    "vit",
    "clip",
    "whisper",
    "cohere",
    "olmo2",
    "handy",
    "plain_net",
    "grouped",
    "remembering",
]
# The largest difference, relative to the largest entry: in double precision, and while autocast rounds to half.
TOLERANCE, HALF = 1e-5, 0.2
# The largest difference of values that are zero but for rounding: gradients of keys' biases are 3e-17 beside others of 0.6,
# and a step with a learning rate of 1e-2 and an epsilon of 1e-4 makes 100 times that of them.
ROUNDING = 1e-13
MACHINERY = frozenset(vars(nn.Module())) - {"training"}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs")


@dataclass
class Subject:
    """A model and what lines may name.

    Attributes:
        inputs: keyword arguments of three forwards: other values, other rows.
        given: path of a module -> the positional and keyword arguments that the first forward gives it.
        stored: (path, name) of attributes and buffers that a forward changes.
    """

    name: str
    model: Any
    inputs: list[dict[str, Any]]
    given: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    stored: set[tuple[str, str]] = field(default_factory=set)


def subject_named(name: str) -> Subject:
    """A small model in double precision, in evaluation mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = _OWN.get(name)
        model, inputs = own() if own else _small(name)
    torch.manual_seed(3)
    model = model.double().eval()
    inputs = {key: _double(value) for key, value in inputs.items()}
    other = {key: mapped(value, _other) for key, value in inputs.items()}
    one_row = {key: mapped(value, lambda t: t[:1].clone() if t.dim() else t) for key, value in inputs.items()}
    found = Subject(name, model, [inputs, other, one_row])
    _observe(found)
    return found


def _small(name: str) -> tuple[Any, dict[str, Any]]:
    try:
        small = build(target_of(name, "causal"))
    except PlanError:
        small = build(target_of(name))
    if hasattr(small.model, "set_experts_implementation"):
        small.model.set_experts_implementation("eager")  # torch's grouped product takes no double precision
    return small.model, dict(small.inputs)


def _handy() -> tuple[Any, dict[str, Any]]:
    from tests.parallel.conveniences import handy

    return handy(dropout=0.1), {"input_ids": torch.arange(1, 19).view(2, 9)}


def _plain_net() -> tuple[Any, dict[str, Any]]:
    from tests.parallel.own_models import PlainNet

    torch.manual_seed(0)
    return PlainNet(), {"ids": torch.arange(1, 19).view(2, 9)}


def _grouped() -> tuple[Any, dict[str, Any]]:
    from tests.parallel.own_models import GroupedModel, OwnConfig

    torch.manual_seed(0)
    config = OwnConfig(vocab_size=64, width=48, n_heads=6, kv_heads=3, depth=2, ffn_size=96)
    return GroupedModel(config), {"input_ids": torch.arange(1, 19).view(2, 9)}


def _remembering() -> tuple[Any, dict[str, Any]]:
    from tests.parallel.deceptive import DeceptiveConfig
    from tests.parallel.used_otherwise import AfterLongerText

    torch.manual_seed(0)
    return AfterLongerText(DeceptiveConfig()), {"input_ids": torch.arange(1, 19).view(2, 9)}


_OWN: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "handy": _handy,
    "plain_net": _plain_net,
    "grouped": _grouped,
    "remembering": _remembering,
}


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    return change(value) if isinstance(value, torch.Tensor) else value


def _double(value: Any) -> Any:
    return mapped(value, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


def _other(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flip(0) * 0.5 if tensor.is_floating_point() else tensor.flip(0)


def _observe(subject: Subject) -> None:
    """Note what the first forward gives to modules, and what it stores on them."""
    model, handles = subject.model, []
    before = Kept(model, set())
    for path, module in model.named_modules():

        def note(module: Any, args: Any, kwargs: Any, path: str = path) -> None:
            with contextlib.suppress(Exception):
                subject.given.setdefault(path, copy.deepcopy((args, kwargs)))

        handles.append(module.register_forward_pre_hook(note, with_kwargs=True))
    with torch.no_grad():
        model(**subject.inputs[0])
    for handle in handles:
        handle.remove()
    subject.stored = before.changed()


class Kept:
    """The state of a model beside its weights, which can be set back.

    Args:
        stored: (path, name) of attributes that are left as they are, since each forward sets them.
    """

    def __init__(self, model: Any, stored: set[tuple[str, str]]) -> None:
        self.scopes, self.stored = {path: vars(module) for path, module in model.named_modules()}, stored
        own = {"_placement", "_homes", "_open", "_scales", "_own_class", "_trained", "_unproven"}
        self.own = own | {name for name in vars(model) if "unproven" in name.lower()}
        self.values = {path: self._attributes(scope) for path, scope in self.scopes.items()}
        self.inside = {
            (path, name): copy.deepcopy(value)
            for path, values in self.values.items()
            for name, value in values.items()
            if type(value) in (list, dict, set)
        }
        self.buffers = {path: dict(scope["_buffers"]) for path, scope in self.scopes.items()}
        self.contents = {
            (path, name): buffer.clone()
            for path, register in self.buffers.items()
            for name, buffer in register.items()
            if buffer is not None
        }
        self.kinds = [(module, type(module)) for module in model.modules()]
        self.hooks = [(scope[name], dict(scope[name])) for scope in self.scopes.values() for name in HOOKS]
        # Those of a model on ranks cannot change.
        self.inside_one = (
            {} if "_placement" in vars(model) else {p: _children(scope) for p, scope in self.scopes.items()}
        )
        self.weights = {} if "_placement" in vars(model) else {p: p.detach().clone() for p in model.parameters()}
        self.configs = [(one, copied(one)) for one in configs_in(vars(settings_of(model)).values())]

    def _attributes(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in scope.items() if name not in MACHINERY and name not in self.own}

    def changed(self) -> set[tuple[str, str]]:
        found = set()
        for path, scope in self.scopes.items():
            now, then = self._attributes(scope), self.values[path]
            found |= {(path, name) for name in now.keys() | then.keys() if now.get(name) is not then.get(name)}
            for name, buffer in scope["_buffers"].items():
                if buffer is not None and not torch.equal(buffer, self.contents.get((path, name), torch.empty(0))):
                    found.add((path, name))
        return found | {place for place, old in self.inside.items() if self.values[place[0]][place[1]] != old}

    def restore(self) -> None:
        """Set everything back, in place where an object was changed."""
        for module, kind in self.kinds:
            if type(module) is not kind:
                module.__class__ = kind
        for path, children in self.inside_one.items():
            for name, entries in children.items():
                self.scopes[path][name] = dict(entries)
        for weight, content in self.weights.items():
            weight.requires_grad_(True).grad = None
            if weight.shape != content.shape or weight.dtype != content.dtype or not torch.equal(weight, content):
                weight.data = content.clone()
        for path, scope in self.scopes.items():
            self._restore_attributes(path, scope)
            self._restore_buffers(path, scope["_buffers"])
        for hooks, then in self.hooks:
            if hooks != then:
                hooks.clear()
                hooks.update(then)
        for config, values in self.configs:
            if repr(vars(config)) != repr(values):
                vars(config).clear()
                vars(config).update(values)

    def _restore_attributes(self, path: str, scope: Any) -> None:
        now, then = self._attributes(scope), self.values[path]
        for name in now.keys() | then.keys():
            if (path, name) in self.stored and not (is_plain(then.get(name)) and is_plain(now.get(name))):
                continue
            if name not in then:
                del scope[name]
            elif now.get(name) is not then[name]:
                scope[name] = then[name]
            if (path, name) in self.inside and then[name] != self.inside[path, name]:
                _refill(then[name], copy.deepcopy(self.inside[path, name]))

    def _restore_buffers(self, path: str, register: Any) -> None:
        then = self.buffers[path]
        for name in list(register):
            if name not in then:
                del register[name]
        for name, buffer in then.items():
            content = self.contents.get((path, name))
            if (path, name) in self.stored:
                if content is not None and not _same(register.get(name), content):
                    register[name] = content.clone()
                continue
            if register.get(name) is not buffer:
                register[name] = buffer
            if content is not None and not _same(buffer, content):
                with torch.no_grad():
                    buffer.copy_(content)


def _same(value: Any, content: torch.Tensor) -> bool:
    """Whether a value is a tensor of torch's own class with this content; `torch.equal` does not ask for the type."""
    return type(value) is torch.Tensor and value.dtype == content.dtype and torch.equal(value, content)


def copied(config: Any) -> dict[str, Any]:
    """The entries of a configuration; those inside it stay the same objects, which modules have too."""
    return {name: value if hasattr(value, "to_dict") else copy.deepcopy(value) for name, value in vars(config).items()}


def _children(scope: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: dict(scope[name]) for name in ("_modules", "_parameters")}


def _refill(target: Any, content: Any) -> None:
    target.clear()
    target.extend(content) if isinstance(target, list) else target.update(content)


class Pair:
    """A model on one device, and its copy on ranks."""

    def __init__(self, subject: Subject, session: Any) -> None:
        self.subject, self.session = subject, session
        self.one = copy.deepcopy(subject.model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            more = {} if hasattr(subject.model, "config") else {"example_inputs": subject.inputs[0]}
            self.there = parallelize(copy.deepcopy(subject.model), session=session, **more)
        with torch.no_grad():  # what a forward stores is there from the start
            for model in (self.one, self.there):
                for more in ({}, {"output_hidden_states": True}, {"output_attentions": True}):
                    with contextlib.suppress(Exception):  # a model without such an output
                        model(**subject.inputs[0], **more)
        self.kept = [Kept(model, subject.stored) for model in (self.one, self.there)]

    def restore(self) -> None:
        for kept in self.kept:
            kept.restore()

    def end(self) -> None:
        if not self.session.ended:
            self.there._placement.end()


@dataclass(frozen=True)
class Outcome:
    """What a sequence came to; ``at`` is the number of the line that decided it."""

    kind: str
    at: int = -1
    said: str = ""


def run(pair: Pair, lines: list[str]) -> Outcome:
    """Run lines on both models; after a refusal everything is set back, and the rest runs."""
    with set_back(), tempfile.TemporaryDirectory() as folder:
        pair.restore()
        spaces = [
            space_of(pair.subject, model, Path(folder) / str(n)) for n, model in enumerate((pair.one, pair.there))
        ]
        found = Outcome(EQUAL)
        for at, line in enumerate(lines):
            wanted, got = (_attempt(line, space, at) for space in spaces)
            kind, said = _judged(wanted, got, pair, "bfloat16" in line)
            if kind == DIFFERENT:
                return Outcome(kind, at, said)
            if kind in (REFUSED, ERROR):
                found = Outcome(kind, at, said) if found.kind != ERROR else found
                if pair.session.ended:
                    return found
                pair.restore()
                reset_torch()
        return found


def space_of(subject: Subject, model: Any, folder: Path) -> dict[str, Any]:
    """The names that lines may use."""
    folder.mkdir(parents=True, exist_ok=True)
    x, y, z = subject.inputs
    ids = next(
        (value for value in x.values() if isinstance(value, torch.Tensor) and not value.is_floating_point()), None
    )
    return {
        "m": model, "at": model.get_submodule, "x": x, "y": y, "z": z, "ids": ids, "given": subject.given,
        "folder": folder, "torch": torch, "nn": nn, "F": F, "copy": copy, "numpy": numpy, "plus": plus, "twice": twice,
        "threaded": threaded, "reloaded": reloaded, "wrapping": wrapping, "held_here": held_here,
    }  # fmt: skip


def plus(module: Any, args: Any, result: Any) -> Any:
    """A hook that moves tensors."""
    return mapped(result, lambda t: t + 1) if isinstance(result, (torch.Tensor, tuple)) else result


def twice(input: torch.Tensor, *more: Any, **kwargs: Any) -> torch.Tensor:
    """A function in place of an activation or a product."""
    return input * 2


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as another library wraps it."""

    @functools.wraps(function)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return outer


def held_here(model: Any) -> bool:
    """Whether weights of a model on ranks are in this process's memory; on one device, where they are, it is not asked."""
    if "_placement" not in vars(model):
        return False
    stored = [
        one.as_subclass(torch.Tensor)
        for module in model.modules()
        for one in module._parameters.values()
        if one is not None
    ]
    return any(one.device.type != "meta" for one in stored)


def threaded(function: Callable[[], Any]) -> Any:
    """The result of a function in another thread."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def reloaded(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of a saved model."""
    from safetensors.torch import load_file

    found = {key: value for file in sorted(folder.glob("*.safetensors")) for key, value in load_file(file).items()}
    return dict(sorted(found.items()))


@dataclass
class _Attempt:
    value: Any = None
    error: BaseException | None = None
    chance: Any = None


def _attempt(line: str, space: dict[str, Any], seed: int) -> _Attempt:
    torch.manual_seed(seed)
    space.pop("out", None)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(line, space)
            return _Attempt(_answer(space.get("out")), chance=torch.get_rng_state())
    except Exception as error:  # of the model's code, of torch or a refusal
        return _Attempt(error=error)


def _answer(value: Any) -> Any:
    """A value to compare, which later lines do not change."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() * 1 if type(value) is not torch.Tensor else value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _answer(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_answer(item) for item in value]
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value.copy())
    return value if is_plain(value) else type(value).__name__


def _judged(wanted: _Attempt, got: _Attempt, pair: Pair, half: bool) -> tuple[str, str]:
    if got.error is not None:
        said = one_line(got.error, 300)
        if isinstance(got.error, (PlanError, ApplyError)) and not isinstance(got.error, RankError):
            return REFUSED, said
        if wanted.error is not None:
            return EQUAL, ""
        return ERROR, f"{type(got.error).__name__}: {said}"
    if wanted.error is not None:
        return DIFFERENT, f"one device raises {type(wanted.error).__name__}: {one_line(wanted.error, 200)}"
    if said := difference(wanted.value, got.value, HALF if half else TOLERANCE):
        return DIFFERENT, said
    if not half and not torch.equal(wanted.chance, got.chance):
        return DIFFERENT, "random state"
    said = _difference_of_state(pair, HALF if half else TOLERANCE)
    return (DIFFERENT, said) if said else (EQUAL, "")


def difference(one: Any, other: Any, tolerance: float, where: str = "out") -> str:
    """Where two values differ, in words; empty if nowhere."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return _difference_of_tensors(one, other, tolerance, where)
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            return f"{where}: keys {sorted(map(str, set(one) ^ set(other)))[:5]}"
        return next(filter(None, (difference(one[k], other[k], tolerance, f"{where}.{k}") for k in one)), "")
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return f"{where}: {len(one)} and {len(other)} items"
        pairs = enumerate(zip(one, other))
        return next(filter(None, (difference(a, b, tolerance, f"{where}[{n}]") for n, (a, b) in pairs)), "")
    if isinstance(one, float) and isinstance(other, float):
        return _difference_of_tensors(torch.tensor(one).double(), torch.tensor(other).double(), tolerance, where)
    return "" if type(one) is type(other) and one == other else f"{where}: {one!r:.80} and {other!r:.80}"


def _difference_of_tensors(one: torch.Tensor, other: torch.Tensor, tolerance: float, where: str) -> str:
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{where}: {tuple(one.shape)} {one.dtype} and {tuple(other.shape)} {other.dtype}"
    if not one.is_floating_point():
        return "" if torch.equal(one, other) else f"{where}: other integers"
    if one.numel() == 0 or torch.equal(one, other):
        return ""
    finite = one.isfinite() & (one.abs() < 1e30)
    if not torch.equal(torch.where(finite, 0, one).nan_to_num(7.0), torch.where(finite, 0, other).nan_to_num(7.0)):
        return f"{where}: other entries are not finite"
    if not finite.any():
        return ""
    apart, largest = (float(values[finite].abs().max()) for values in (one - other, one))
    return "" if apart <= max(tolerance * largest, ROUNDING) else f"{where}: differs by {apart:.1e} of {largest:.1e}"


def _difference_of_state(pair: Pair, tolerance: float) -> str:
    """Where modules hold other plain values, flags or buffers."""
    others = dict(pair.there.named_modules())
    for path, module in pair.one.named_modules():
        mine, theirs = vars(module), vars(others[path])
        for name, value in mine.items():
            if name in MACHINERY or name.startswith("_") or callable(value) or isinstance(theirs.get(name), OnlyThere):
                continue
            if is_plain(value) and (said := difference(value, theirs.get(name), tolerance, f"{path}.{name}")):
                return said
        for name, buffer in module._buffers.items():
            if buffer is not None and (said := _difference_of_buffer(buffer, others[path], name, tolerance, path)):
                return said
    return ""


def _difference_of_buffer(buffer: torch.Tensor, module: Any, name: str, tolerance: float, path: str) -> str:
    try:
        other = module._buffers.get(name)
        return difference(buffer, _answer(other), tolerance, f"{path}.{name}")
    except ApplyError:  # a rank's own share, and it says so
        return ""


@contextlib.contextmanager
def set_back() -> Iterator[None]:
    """A block after which torch's settings, its functions and the code of models are what they were."""
    from torch.nn.modules import module as hooks

    functions = {name: getattr(F, name) for name in ("gelu", "silu", "softmax", "linear")}
    linear, call = vars(nn.Linear)["forward"], vars(nn.Module)["__call__"]
    registers = [
        value for name, value in vars(hooks).items() if name.startswith("_global_") and isinstance(value, dict)
    ]
    try:
        yield
    finally:
        reset_torch()
        for name, function in functions.items():
            setattr(F, name, function)
        nn.Linear.forward, nn.Module.__call__ = linear, call
        for register in registers:
            register.clear()


def reset_torch() -> None:
    """Torch's settings of a new process."""
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.set_grad_enabled(True)
    torch.set_flush_denormal(False)
    torch.set_autocast_enabled("cpu", False)
    for switch in ("enable_flash_sdp", "enable_mem_efficient_sdp", "enable_math_sdp"):
        getattr(torch.backends.cuda, switch)(True)


def reduced(lines: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """The lines without those that a failure does not need."""
    for n in reversed(range(len(lines))):
        fewer = lines[:n] + lines[n + 1 :]
        if fewer and fails(fewer):
            lines = fewer
    return lines


def program(subject: str, ranks: int, lines: list[str]) -> str:
    """A program that shows a difference."""
    return "\n".join(
        [f'one, there = pair_of("{subject}", {ranks})', "for m in (one, there):", *(f"    {one}" for one in lines)]
    )


def random_lines(subject: Subject, choice: random.Random, number: int) -> list[str]:
    """A random sequence; its last line is a call."""
    from tests.parallel.random_lines import Lines

    return Lines(subject, choice).sequence(number)
