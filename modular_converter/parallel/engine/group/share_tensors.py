"""Weights and caches of which a process stores its share alone: what code outside of a forward may compute with them.

A DTensor says how it is cut, so that its norm is that of the whole weight. Some shares have no placement in torch
(`HeldWeight.is_part`). Such a weight, its gradient, and what is computed from them entry by entry, such as the state of an
optimizer, have a class that looks at each operation: one that treats each entry alone runs as ever, and any other, whose
result would be that of the share, is an error. Their shape is that of the whole weight, as that of a DTensor is.

The weights of other processes' stages have shapes and types, without data, so that no sum leaves them out in silence. A pipeline
lists all parameters of its model. Code that counts them is right; code that treats each alone, such as a decay or a moving
average, does nothing to those of other stages; optimizers get this process's own. What would need their numbers, such as a norm
over all gradients, is an error.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
import torch.distributed as dist
from torch.autograd.graph import increment_version
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.base.call_state import caches_in
from modular_converter.parallel.engine.group.same_calls import CALLS, refused_here
from modular_converter.parallel.errors import MAKE_WHOLE, ApplyError
from modular_converter.parallel.pipeline.stage import without_data
from modular_converter.parallel.shard.forwards import innermost
from modular_converter.parallel.torch_private import TracingContext
from modular_converter.parallel.trace.record import tensors_in


_PLAIN: dict[type[Any], type[Any]] = {}


def marked_classes(looks: type[Any], *plain: type[Any]) -> dict[type[Any], type[Any]]:
    """For each class of tensors, one of it that ``looks`` at operations: the class with this ``__torch_function__``."""
    made = {kind: type(f"{looks.__name__}Of{kind.__name__}", (looks, kind), {"__slots__": ()}) for kind in plain}
    _PLAIN.update((marked, kind) for kind, marked in made.items())
    return made


def unmark(tensor: Any) -> None:
    """Give a tensor its plain class; nothing for one that has it."""
    tensor.__class__ = _PLAIN.get(type(tensor), type(tensor))


class unmarked:
    """A context in which tensors are plain."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.tensors = list(tensors)

    def __enter__(self) -> None:
        self.before: list[tuple[Any, type[Any]]] = []
        for one in self.tensors:
            kind = type(one)
            if kind in _PLAIN:  # once each
                one.__class__ = _PLAIN[kind]
                self.before.append((one, kind))

    def __exit__(self, *error: object) -> None:
        for one, kind in self.before:
            if type(one) is _PLAIN[kind]:
                one.__class__ = kind


_ARITHMETIC = "add sub mul truediv pow neg pos abs eq ne lt le gt ge and or xor invert"
_OPERATORS = frozenset(f"__{side}{name}__" for side in ("", "r", "i") for name in _ARITHMETIC.split())
_NAMES = (
    "__get__ __set__ __delete__ __hash__ __repr__ __format__ __deepcopy__ __reduce_ex__ as_subclass backward bfloat16 "
    "clone contiguous copy_ cpu cuda data_ptr detach detach_ dim double element_size empty_like fill_ float full_like "
    "get_device half ndimension new_empty new_full new_ones new_zeros ones_like pin_memory register_hook "
    "register_post_accumulate_grad_hook requires_grad_ retain_grad stride storage_offset to true_divide type type_as "
    "untyped_storage where zero_ zeros_like _foreach_zero_ _foreach_copy_ _fused_adam_ _fused_adamw_ _fused_sgd_ "
    "_fused_adagrad_ _has_compatible_shallow_copy_type _amp_foreach_non_finite_check_and_unscale_"
)
# Facts and copies of a tensor, other forms of the same entries, and loops of optimizers over lists of weights.
_OF_EACH_ENTRY = frozenset(_NAMES.split())
_TRANSPOSED = frozenset(getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH"))
# Key in the ``__dict__`` of a model with compiled layers: its weights that are shares alone.
IN_COMPILED = "_in_compiled"
# Calls that treat each entry alone, and are right where all processes of the group hold the same share: data ranks.
_AMONG_PROCESSES = frozenset(
    (dist.broadcast, dist.all_reduce, dist.reduce, dist.send, dist.recv, dist.isend, dist.irecv)
)


Whole = tuple[str, tuple[int, ...], tuple[int, ...]]
"""The name of a weight, its whole shape, and the processes that hold its shares; of plain types, since files hold it."""


def holds_other_shares(ranks: Iterable[int], group: dist.ProcessGroup | None) -> bool:
    """Whether a group contains several of the processes that hold different shares."""
    return len({*ranks} & {*dist.get_process_group_ranks(group)}) > 1


def _size(shape: torch.Size, dim: int | None = None) -> Any:
    return shape if dim is None else shape[dim]


OF_SHAPE: dict[Any, Callable[..., Any]] = {
    torch.Tensor.shape.__get__: _size,  # type: ignore[attr-defined]
    torch.Tensor.size: _size,
    torch.Tensor.__len__: lambda shape: shape[0],
    **dict.fromkeys((torch.Tensor.numel, torch.Tensor.nelement, torch.numel), math.prod),
}


# `fully_shard` divides a share over data ranks. `check_shards` refuses it over processes that hold other shares.
_DIVIDES_FURTHER = "torch.distributed.fsdp."


class ShareTensor:
    """The part of the classes that looks at operations."""

    __slots__ = ()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shares = tensors_in([*args, *(kwargs or {}).values()], ShareTensor)
        if TracingContext.try_get() is not None:
            raise ApplyError(
                f"{shares[0]._whole[0]} is a process's share as a tensor that is no DTensor, which torch.compile(model) cannot "
                "trace: give parallelize training=Training(compile=True), which compiles layer by layer"
            )
        if str(sys._getframe(1).f_globals.get("__name__")).startswith(_DIVIDES_FURTHER):
            with unmarked(shares):
                return func(*args, **(kwargs or {}))
        of_shape = OF_SHAPE.get(func)
        if of_shape is not None and args and isinstance(args[0], ShareTensor):
            return of_shape(torch.Size(args[0]._whole[1]), *args[1:], **(kwargs or {}))  # type: ignore[attr-defined]
        by_mask = func is torch.Tensor.__setitem__ and isinstance(args[1], ShareTensor)
        if not by_mask and not treats_each_entry(func) and not _is_among_equals(func, args, kwargs or {}, shares):
            name = "the transpose" if func in _TRANSPOSED else func.__name__
            raise refused_here(
                f"{name} of {shares[0]._whole[0]}, of its gradient or of their state: a process has its share as a tensor that is "
                "no DTensor, and would take that for the whole: take model.clip_grad_norm_(max_norm) for norms, "
                "full_state_dict() for the weight, an optimizer such as AdamW or SGD that treats each entry alone, or a "
                "number of processes that divides the heads and widths; the share itself is weight.as_subclass(torch.Tensor)"
            )
        with unmarked(shares):
            found = _by_mesh(func, args, kwargs or {})
            whole = {one.shape: one._whole for one in reversed(shares)}
        if func is not torch.Tensor.as_subclass:
            for one in found if isinstance(found, (list, tuple)) else [found]:
                if type(one) in _MARKED and one.dim() and one.shape in whole:
                    mark(one, whole[one.shape])
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        with unmarked([self]):
            return self.__reduce_ex__(protocol)


# One over data ranks has been spread by `fully_shard`.
_MARKED = marked_classes(ShareTensor, torch.nn.Parameter, torch.Tensor, DTensor)


def mark(tensor: Any, whole: Whole) -> None:
    """Let a tensor look at what is computed with it."""
    tensor.__class__ = _MARKED[type(tensor)]
    tensor._whole = whole


def for_compiled(models: Iterable[Any]) -> unmarked:
    """A context for forwards and backwards: compiled code takes no marked weights, and hands them to its backward."""
    return unmarked(one for model in models for one in model.__dict__.get(IN_COMPILED, ()))


def as_plain(tensor: torch.Tensor) -> torch.Tensor:
    """The entries of a tensor, which code of ours knows to be a share."""
    return tensor.as_subclass(torch.Tensor) if isinstance(tensor, ShareTensor) else tensor


def note_writes(weights: Iterable[Any]) -> None:
    """Let a backward find writes to weights behind its forward, as on one device.

    torch counts the writes to a DTensor at the DTensor alone, and looks at the version of what a forward has taken of it.
    """
    for one in weights:
        if isinstance(one, DTensor) and not one.is_inference() and one._version != getattr(one, "_noted", 0):
            increment_version(one._local_tensor)
            one._noted = one._version  # type: ignore[attr-defined]


def _by_mesh(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operation; one on lists is made of each kind of their tensors alone, since torch takes no mixture."""
    kinds = defaultdict(list)
    longest = max((len(one) for one in args if isinstance(one, (list, tuple))), default=0)
    for number, one in enumerate(args[0] if longest and isinstance(args[0], (list, tuple)) else ()):
        kinds[getattr(one, "device_mesh", None)].append(number)
    if len(kinds) < 2:
        return func(*args, **kwargs)
    found: dict[int, Any] = {}
    for numbers in kinds.values():

        def of_kind(value: Any, numbers: list[int] = numbers) -> Any:
            aligned = isinstance(value, (list, tuple)) and len(value) == longest
            return [value[number] for number in numbers] if aligned else value

        made = func(*map(of_kind, args), **{name: of_kind(one) for name, one in kwargs.items()})
        found.update(zip(numbers, made or ()))
    return tuple(found[number] for number in range(longest)) if found else None


def _is_among_equals(func: Any, args: Any, kwargs: Any, shares: Iterable[Any]) -> bool:
    """Whether this is a call among processes that hold the same share, as ``ZeroRedundancyOptimizer`` makes."""
    if func not in _AMONG_PROCESSES:
        return False
    group = inspect.signature(func).bind(*args, **kwargs).arguments.get("group")
    return not any(holds_other_shares(one._whole[2], group) for one in shares)


DRAWN = (
    "bernoulli bernoulli_ binomial cauchy_ exponential_ geometric_ log_normal_ multinomial native_dropout normal normal_ poisson "
    "rand_like randint_like randn_like random_ uniform_"
)
"""Operations of torch that draw numbers."""


@functools.lru_cache(maxsize=512)
def treats_each_entry(func: Any) -> bool:
    """Whether each entry of an operation's result depends on the entries at its place alone."""
    name = func.__name__
    if name == "equal":  # which torch calls so, too
        return False
    if name in _OPERATORS or name in _OF_EACH_ENTRY or name.startswith(("is_", "_is_")):
        return func not in _TRANSPOSED and name != "is_nonzero"
    packet = getattr(torch.ops.aten, name.removeprefix("_foreach_"), None)
    names = [] if packet is None else [form for form in packet.overloads() if not form.endswith("out")]
    forms = [getattr(packet, form) for form in names]
    of_tensors = [form for form in forms if form._schema.arguments and str(form._schema.arguments[0].type) == "Tensor"]
    return bool(of_tensors) and all(torch.Tag.pointwise in form.tags for form in of_tensors)


_HEADS = 1
"""The dimension: (batch, heads, length, width)."""
_INDEXING = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)


class CacheShare:
    """A tensor of a key/value cache between calls, of this process's own heads: the part of its class that looks at operations.

    One that treats each entry alone runs, and one along other dimensions than that of the heads (a prompt that is cut off, chosen
    sequences). Any other, whose result would be that of these heads, is an error. In calls of the model they are plain.
    """

    __slots__ = ()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shares = tensors_in([*args, *(kwargs or {}).values()], CacheShare)
        if _in_a_part():
            for one in shares:
                unmark(one)
            return func(*args, **(kwargs or {}))
        with unmarked(shares):
            if func not in OF_SHAPE and not treats_each_entry(func) and not _leaves_heads(func, args, kwargs or {}):
                raise refused_here(
                    f"{func.__name__} of a key/value cache: processes share out its heads, and each would take its own for all: "
                    "code outside of the model may choose sequences and positions and change all entries alike; to choose heads, "
                    f"change the model's own attention, or {MAKE_WHOLE}"
                )
            found = func(*args, **(kwargs or {}))
        for one in found if isinstance(found, (list, tuple)) else [found]:
            if type(one) is torch.Tensor and one.dim() > _HEADS:
                one.__class__ = _CACHE_SHARE
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        with unmarked([self]):
            return self.__reduce_ex__(protocol)


def _in_a_part() -> bool:
    """Whether code of a part of a model, which was called by itself, calls the caller."""
    around = innermost()
    return around is not None and not any("_applied" in vars(one) for one in around.modules())


_CACHE_SHARE = marked_classes(CacheShare, torch.Tensor)[torch.Tensor]


def _leaves_heads(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operation acts along other dimensions than that of the heads, which the result has in the same place."""
    if func in _INDEXING:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        first, heads = (*_without_dots(index, args[0].dim()), slice(None))[:2]
        keeps_rows = isinstance(first, (slice, list)) or isinstance(first, torch.Tensor) and first.dim() == 1
        return keeps_rows and isinstance(heads, slice) and heads == slice(None)
    place = _place_of_dim(func.__name__)
    dim = kwargs.get("dim", args[place] if place is not None and place < len(args) else None)
    tensor = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
    return (
        isinstance(dim, int)
        and dim % tensor.dim() != _HEADS
        and (dim % tensor.dim() > _HEADS or func.__name__ in _OF_ROWS)
    )


_OF_ROWS = (
    "index_select",
    "repeat_interleave",
    "cat",
    "concat",
    "narrow",
    "split",
    "chunk",
    "index_copy_",
    "index_fill_",
)
"""Operations whose results have as many dimensions as their tensors."""


def _without_dots(index: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    number = next((n for n, one in enumerate(index) if one is Ellipsis), None)
    if number is None:
        return (*index, slice(None), slice(None))
    return (*index[:number], *[slice(None)] * (count - len(index) + 1), *index[number + 1 :])


@functools.lru_cache(maxsize=128)
def _place_of_dim(name: str) -> int | None:
    """The number of the argument ``dim`` of an operation."""
    packet = getattr(torch.ops.aten, name, None)
    forms = [] if packet is None else [getattr(packet, form)._schema.arguments for form in packet.overloads()]
    return next((n for form in forms for n, one in enumerate(form) if one.name == "dim"), None)


class CacheShares:
    """The caches of a model's calls.

    A tensor with as many heads as the whole model is whole.
    """

    def __init__(self, model: Any) -> None:
        config: Any = getattr(model, "config", None)
        inner: Any = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
        counts = (getattr(inner, name, None) for name in ("num_key_value_heads", "num_attention_heads"))
        self.alike = set[type[Any]]()  # the classes of caches all of whose tensors were shares
        self.whole = next((one for one in counts if one is not None), None)

    def hide(self, given: Any) -> list[Any]:
        """At a call: its caches, whose tensors are plain in it."""
        found = caches_in(given)
        for cache in found:
            for one in _tensors_of(cache, _CACHE_SHARE):
                one.__class__ = torch.Tensor
        return found

    def show(self, result: Any, given: list[Any]) -> Any:
        """The result of a call, in which tensors of caches say that they are shares; those of the caller's caches do, too."""
        for cache in {id(one): one for one in (*given, *caches_in(result))}.values():
            found = _tensors_of(cache, torch.Tensor)
            if type(cache) not in self.alike:
                count, whole = len(found), self.whole
                found = [one for one in found if one.dim() == 4 and one.size(_HEADS) != whole]
                if len(found) == count > 0:
                    self.alike.add(type(cache))
            for one in found:
                one.__class__ = _CACHE_SHARE
        return result


_SIMPLE = frozenset((bool, int, float, str, torch.dtype, torch.device, type(None)))


def _tensors_of(cache: Any, kind: type[Any]) -> list[Any]:
    """The tensors of one class in a cache; each token looks at them twice."""
    found, parts, simple = list[Any](), [cache], _SIMPLE
    for part in parts:
        for value in part.__dict__.values():
            of = type(value)
            if of is kind:
                found.append(value)
            elif of not in simple:
                if of is list:
                    parts += [one for one in value if hasattr(one, "__dict__")]
                elif "Cache" in of.__name__:
                    parts.append(value)
    return found


_NUMBERS = frozenset(
    ("the gradient", *["__format__", "__reduce_ex__", "as_subclass", "backward", "data_ptr", "untyped_storage"])
)
_DRAWN = frozenset(DRAWN.split())
_TENSOR: Any = torch.Tensor
_Facts = tuple[str, torch.device]
"""The name of a weight, and the device of this process."""


class OfOtherStage:
    """The part of the classes that looks at operations."""

    __slots__ = ()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors_in([*args, *(kwargs or {}).values()], OfOtherStage)
        facts: _Facts = given[0]._facts
        if func == _TENSOR.device.__get__:
            return facts[1]
        if func.__name__ in _DRAWN or getattr(func, "__module__", "") == torch.nn.init.__name__:
            return _drawn(func, args, kwargs or {}, facts)
        name = "the gradient" if func == _TENSOR.grad.__get__ else func.__name__
        if name in _NUMBERS or func not in OF_SHAPE and not treats_each_entry(func):
            raise _refused(name, facts)
        try:
            with unmarked(given):
                found = func(*args, **(kwargs or {}))
        except NotImplementedError as error:  # a copy to a device
            raise _refused(name, facts) from error
        for one in found if isinstance(found, (list, tuple)) else [found]:
            if isinstance(one, torch.Tensor):
                _mark_other_stage(one, facts)
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _refused("the numbers", self._facts)  # type: ignore[attr-defined]


_OF_OTHER_STAGE = marked_classes(OfOtherStage, torch.Tensor, torch.nn.Parameter)


def _mark_other_stage(tensor: Any, facts: _Facts) -> None:
    tensor.__class__ = _OF_OTHER_STAGE.get(type(tensor), type(tensor))
    tensor._facts = facts


def _drawn(func: Any, args: Any, kwargs: Any, facts: _Facts) -> Any:
    """Draw the numbers of a weight's entries, and forget them: what is drawn next is what one process draws."""

    def real(one: Any) -> Any:
        own: Any = one if isinstance(one, OfOtherStage) else None
        return one if own is None else torch.empty(own.shape, dtype=own.dtype, device=facts[1])

    found = func(*map(real, args), **{name: real(one) for name, one in kwargs.items()})
    if func.__name__.endswith("_"):
        return next(one for one in (*args, *kwargs.values()) if isinstance(one, OfOtherStage))
    found = found.to("meta")
    _mark_other_stage(found, facts)
    return found


def _refused(what: str, facts: _Facts) -> Exception:
    return refused_here(
        f"{facts[0]} is a weight of another process's stage, and code here needs {what} of it: without it, this would be that of "
        "this process's stages alone. Take pipeline.clip_grad_norm_(max_norm) for norms, and save_checkpoint, or in a layout "
        "full_state_dict(), for weights; code that treats each weight alone leaves out those with weight.is_meta"
    )


def of_other_stage(name: str, weight: torch.nn.Parameter, place: torch.device) -> Any:
    """A parameter of the same shape and type, without data.

    Args:
        name: in the whole model.
        place: the device of this process.
    """
    made = without_data(weight)
    _mark_other_stage(made, (name, place))
    return made


def without_other_stages(users: Any, own: Callable[..., Any], optimizer: Any, group: Any) -> Any:
    """``add_param_group`` of an optimizer, which gets the weights of this process's stages."""
    given = group.get("params") if isinstance(group, dict) else None
    if given is not None and not isinstance(given, set):  # which the optimizer refuses
        given = [given] if isinstance(given, torch.Tensor) else given
        weights = [(one, one[-1] if isinstance(one, tuple) else one) for one in given]
        _note_users(users, optimizer, {id(weight) for _, weight in weights})
        group = {**group, "params": [one for one, weight in weights if not isinstance(weight, OfOtherStage)]}
    return own(optimizer, group)


_USERS: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()
"""Optimizer -> the calls of the models of whose weights it was made."""


def _note_users(users: Any, optimizer: Any, weights: set[int]) -> None:
    for user in list(users):
        if any(id(one) in weights for one in user.parameters()):
            calls = user.__dict__[CALLS]
            _USERS.setdefault(optimizer, WeakSet()).add(calls)
            calls.stepped = calls.stepped or False


def note_step(optimizer: Any) -> None:
    """Let the models know that one of their optimizers makes a step."""
    for calls in _USERS.get(optimizer, ()):
        calls.stepped = True
