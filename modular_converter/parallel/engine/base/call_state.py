"""What decides a call or is changed by it beside tensors: configurations, modes, random states, caches, objects among arguments.

The caller's random state goes to the ranks with every call, and comes back if the call has drawn numbers. States are sent as
bytes: a tensor would be moved to the receiver's device and back.
"""

from __future__ import annotations

import functools
import pickle
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.ranks.packing import OnRanks
from modular_converter.parallel.torch_private import (
    DeviceContext,
    backward_hooks_of_all,
    backward_pre_hooks_of_all,
    dispatch_modes,
    forward_hooks_of_all,
    forward_pre_hooks_of_all,
    function_modes,
    functorch_is_active,
    length_of_dispatch_stack,
    length_of_function_stack,
)
from modular_converter.parallel.trace.record import leaves_in


# For an object in the settings: the attributes that lead to it, its new values by name, its removed names.
Change = tuple[tuple[str, ...], dict[str, Any], list[str]]


def settings_of(model: Any) -> types.SimpleNamespace:
    """The settings that a caller may change between calls: ``config`` and ``generation_config``, if the model has them."""
    names = ("config", "generation_config")
    return types.SimpleNamespace(**{name: model.__dict__[name] for name in names if name in model.__dict__})


def pickled(settings: Any) -> bytes:
    try:
        return pickle.dumps(settings, protocol=5)
    except Exception as error:  # pickle raises what the object's own code raises
        raise ApplyError(f"the model's settings cannot be sent to the ranks: {error}") from error


def settings_changes(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[Change]:
    """The differences between settings, by object in them."""
    before, after = vars(old), vars(new)
    values = {}
    for name, value in after.items():
        known, kind = before.get(name), type(value)
        is_config = "Config" in kind.__name__ and hasattr(value, "__dict__") and not isinstance(value, Mapping)
        if type(known) is kind and is_config:
            yield from settings_changes(known, value, (*path, name))
        elif name not in before or pickled(known) != pickled(value):
            values[name] = value
    gone = [name for name in before if name not in after]
    if values or gone:
        yield path, values, gone


def apply_changes(model: Any, copies: list[tuple[Any, Any]], changes: list[Change]) -> None:
    """Make changes of settings in a rank's model.

    Args:
        copies: (object in the settings, copy with a share's own numbers that a module has instead).
    """
    for path, values, gone in changes:
        scope = functools.reduce(getattr, path, model)
        same = [vars(made) for was, made in copies if was is scope]
        for name in (*values, *gone):
            old = vars(scope).get(name)
            for target in (*(made for made in same if made.get(name) == old), vars(scope)):
                target.pop(name, None)
                if name in values:
                    target[name] = values[name]


HOOKS_OF_ALL = (forward_hooks_of_all, forward_pre_hooks_of_all, backward_hooks_of_all, backward_pre_hooks_of_all)


def refuse_modes(device: torch.device) -> None:
    """Raise ``ApplyError`` for a mode or hook of torch that would see nothing of what other processes compute."""
    if any(HOOKS_OF_ALL):
        raise ApplyError(
            f"the model's modules run on ranks ({device}), which a hook of all modules (register_module_forward_hook and the "
            "like) does not reach; remove it, or put a hook on the model itself"
        )
    jit: Any = torch.jit  # it has no types
    if functorch_is_active() or jit.is_tracing():
        raise ApplyError(
            f"the model's operations run on ranks ({device}), which torch.func (vmap, grad and the like) and torch.jit.trace do "
            "not reach; call the model outside of them, with all rows as one batch"
        )
    if not length_of_function_stack() and not length_of_dispatch_stack():
        return
    stack: Any = function_modes  # torch has no types for it
    modes = [one for one in stack() if not isinstance(one, DeviceContext)]
    modes += dispatch_modes()
    default = torch.get_default_device().type
    if modes or default not in ("cpu", device.type):
        name = type(modes[0]).__name__ if modes else f"the default device {default}"
        raise ApplyError(
            f"the model's operations run on ranks ({device}), which {name} does not reach; call the model outside of it"
        )


# The states of the CPU and of the current GPU (None if this process uses no GPU), and the seed.
States = tuple[bytes, bytes | None, int]


def random_states() -> States:
    """The states of the caller's process."""
    cuda = _bytes(torch.cuda.get_rng_state()) if _cuda_is_used() else None
    return _bytes(torch.get_rng_state()), cuda, torch.initial_seed()


def set_random_states(cpu: bytes, cuda: bytes | None) -> None:
    """Give the caller the states that a rank has after a call."""
    torch.set_rng_state(_tensor(cpu))
    if cuda is not None and _cuda_is_used():
        torch.cuda.set_rng_state(_tensor(cuda))


def adopt(states: States, device: torch.device) -> None:
    """Give a rank the caller's states; on a GPU without a state of the caller, the caller's seed if it has changed."""
    cpu, cuda, seed = states
    torch.set_rng_state(_tensor(cpu))
    if device.type == "cuda" and cuda is not None:
        torch.cuda.set_rng_state(_tensor(cuda), device)
    elif device.type == "cuda" and seed != torch.cuda.initial_seed():
        torch.cuda.manual_seed(seed)


def changed_since(states: States, device: torch.device) -> tuple[bytes, bytes | None] | None:
    """A rank's states after a call that began with ``states``; None if the caller's states would be the same."""
    cpu, cuda, _ = states
    after = _bytes(torch.get_rng_state())
    after_cuda = None if cuda is None or device.type == "cpu" else _bytes(torch.cuda.get_rng_state(device))
    return None if after == cpu and after_cuda in (None, cuda) else (after, after_cuda)


def _cuda_is_used() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _bytes(state: torch.Tensor) -> bytes:
    found: bytes = state.cpu().numpy().tobytes()
    return found


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


@dataclass(frozen=True)
class Held:
    """A value that is treated as a cache, whatever its class."""

    value: Any


def caches_in(value: Any) -> list[Any]:
    """The caches in nested lists, tuples and mappings, each once, in order."""
    leaves = (
        one.value if isinstance(one, Held) else one
        for one in leaves_in(value)
        if isinstance(one, Held) or is_cache(one)
    )
    return list({id(one): one for one in leaves}.values())


def is_cache(value: Any) -> bool:
    """Whether a value is a cache, judged by the names of its classes, since each model may have a class of its own."""
    if value is None or isinstance(value, (torch.Tensor, str, bytes, int, float, type)):
        return False
    names = [kind.__name__ for kind in type(value).__mro__]
    return any("Cache" in name for name in names) and not names[0].endswith("Config")


def has_content(value: Any, seen: set[int] | None = None) -> bool:
    """Whether a cache holds states, or memory for them: tensors with entries and at least two dimensions."""
    if isinstance(value, torch.Tensor):
        return value.dim() > 1 and value.numel() > 0
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type):
        return False
    seen.add(id(value))
    if isinstance(value, (list, tuple)):
        return any(has_content(item, seen) for item in value)
    if isinstance(value, Mapping):
        return any(has_content(item, seen) for item in value.values())
    return any(has_content(item, seen) for item in getattr(value, "__dict__", {}).values())


@dataclass(frozen=True)
class ModelThere:
    """The stand-in for another model on the same ranks among arguments, such as the assistant of `generate`."""

    number: int


class StreamHere:
    """The stand-in for the caller's streamer among arguments."""


_HERE = (ModelThere, StreamHere, OnRanks)


def objects_in(value: Any) -> list[Any]:
    """The objects in nested arguments that code may change in a call: generators, logits processors and criteria that count."""
    found = (getattr(one, "__self__", one) for one in leaves_in(value))
    return [one for one in found if isinstance(one, torch.Generator) or _is_own(one)]


def _is_own(one: Any) -> bool:
    kept = isinstance(one, (type, torch.Tensor, *_HERE)) or is_cache(one) or hasattr(one, "to_dict")
    return not kept and hasattr(one, "__dict__") and type(one).__module__ != "builtins"


class Changes:
    """Where a call runs, which objects among its arguments it changes."""

    def __init__(self, arguments: Any, held: Iterable[Any] = ()) -> None:
        found = objects_in(arguments)
        here = {id(one) for one in held} if found else set()  # of which the caller has handles
        self.objects = [one for one in found if id(one) not in here]
        self.before = [_state(one) for one in self.objects]

    def now(self) -> dict[int, Any]:
        """The number of each that is another one than before, and its attributes, or the state of a generator."""
        pairs = enumerate(zip(self.objects, self.before))
        return {number: _parts(one) for number, (one, before) in pairs if _state(one) != before}


def _parts(one: Any) -> Any:
    return one.get_state().numpy().tobytes() if isinstance(one, torch.Generator) else vars(one)


def _state(one: Any) -> bytes | None:
    try:
        return pickle.dumps(_parts(one))
    except Exception:  # of an object that only this process can have
        return None


def take_changes(objects: list[Any], changes: Mapping[int, Any]) -> None:
    """Give the caller's objects what a call has set on copies in another process."""
    for number, state in changes.items():
        if isinstance(state, bytes):
            objects[number].set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
        else:
            vars(objects[number]).clear()
            vars(objects[number]).update(state)
