"""Compare the answers of all ranks: a rank's own share in an answer, or ranks that disagree, would be silent errors.

Each tensor of a result becomes four numbers, and one small collective gathers the numbers of all ranks. Python numbers
and numpy arrays are compared, too: they may be lengths of a share.
"""

from __future__ import annotations

import functools
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from modular_converter.parallel.engine.base.call_state import is_cache
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.tiny.arguments import CACHES


# The number of entries of a large tensor that are compared, evenly spread.
_SAMPLE = 1 << 20
# Relative to the norm of a tensor: kernels that add in no fixed order differ by less, shares by about 1.
_TOLERANCES = {torch.float16: 2e-2, torch.bfloat16: 2e-2}
_TOLERANCE = 1e-3
_PLAIN = (bool, int, float, complex, str)
_CPU = torch.device("cpu")

Gather = Callable[[torch.Tensor], torch.Tensor]
Path = tuple[str, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Compared:
    """Path -> tensor of a result, and the tensors' numbers on all ranks, ``(ranks, tensors, 4)`` in float64.

    Attributes:
        plain: path -> value of what is no tensor: Python numbers, strings, and numpy arrays.
    """

    tensors: dict[Path, torch.Tensor]
    numbers: torch.Tensor
    plain: Mapping[Path, Any] = field(default_factory=dict)

    def different(self) -> list[Path]:
        """The paths of the tensors that differ between the ranks. Waits for the device."""
        if not self.tensors:
            return []
        numbers = self.numbers.cpu()
        kinds = [_TOLERANCES.get(tensor.dtype, _TOLERANCE) for tensor in self.tensors.values()]
        room = torch.tensor(kinds, dtype=torch.float64) * numbers[:, :, 3].amax(0)
        off = (numbers[:, :, :3] - numbers[:1, :, :3]).abs()
        off[:, :, 0] *= float("inf")  # shapes and types must be the same
        bad = ~(off.nan_to_num(0.0, posinf=float("inf")) <= room[None, :, None]).all(2).all(0)
        return [path for path, wrong in zip(self.tensors, bad.tolist()) if wrong]


def compare_answers(result: Any, size: int, gather: Gather, device: torch.device = _CPU) -> Compared:
    """Gather the numbers of a result's tensors from all ranks; all ranks must call it.

    Args:
        gather: the all-gather of flat tensors.
        device: of this rank.
    """
    values = dict(tensors_by_path(result, plain=True))
    if not values or size == 1:
        return Compared({}, torch.empty(0))
    plain = {path: value for path, value in values.items() if not isinstance(value, torch.Tensor)}
    tensors = {path: _as_tensor(value) if path in plain else value for path, value in values.items()}
    place = next((t.device for path, t in tensors.items() if path not in plain), device)
    rows = torch.stack([_numbers(tensor).to(place) for tensor in tensors.values()])
    return Compared(tensors, gather(rows.flatten()).view(size, len(tensors), 4), plain)


def tensors_by_path(
    value: Any, path: Path = (), seen: frozenset[int] = frozenset(), plain: bool = False
) -> Iterator[tuple[Path, Any]]:
    """(Path, tensor) of all tensors in lists, tuples, mappings and plain objects, except in caches, which stay here.

    Args:
        plain: also yield Python numbers, strings, lists of them, and numpy arrays.
    """
    if isinstance(value, torch.Tensor) or plain and _is_plain(value):
        yield path, value
        return
    if isinstance(value, (str, bytes, type, torch.nn.Module)) or is_cache(value) or id(value) in seen:
        return
    for key, item in _entries(value):
        yield from tensors_by_path(item, (*path, key), seen | {id(value)}, plain)


def _is_plain(value: Any) -> bool:
    if isinstance(value, numpy.ndarray):
        return value.dtype.kind in "biufc"
    items = value if isinstance(value, (list, tuple)) and len(set(map(type, value))) == 1 else [value]
    return all(type(item) in _PLAIN and (type(item) is not int or item.bit_length() < 63) for item in items)


def _as_tensor(value: Any) -> torch.Tensor:
    """Numbers as they are; a string as a number that tells it from others."""
    strings = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
    if strings and isinstance(strings[0], str):
        return torch.tensor([zlib.crc32(one.encode()) for one in strings])
    return torch.as_tensor(value)


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        pairs: Any = value.items()
    elif isinstance(value, (list, tuple, deque)):
        pairs = enumerate(value)
    else:
        slots = (name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ()))
        own = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        pairs = {**own, **getattr(value, "__dict__", {})}.items()
    return ((str(key), item) for key, item in pairs)


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """A hash of shape and type, two weighted sums, and the norm (0 for exact types), as float64."""
    head = zlib.crc32(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
    flat = tensor.detach().reshape(-1)
    flat = flat[:: max(1, flat.numel() // _SAMPLE)]
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj()).reshape(-1)
    weights = _weights(flat.device, 1 << max(12, (flat.numel() - 1).bit_length()))[:, : flat.numel()]
    if flat.is_floating_point():
        values = flat.double().nan_to_num(1e5, 2e5, -2e5).asinh()  # the huge values of masks must not set the scale
        sums = torch.cat((weights @ values, torch.linalg.vector_norm(values)[None]))
    else:
        values = flat.long() * (weights * 2**20).long()
        sums = torch.nn.functional.pad(values.sum(-1).remainder(2**50).double(), (0, 1))
    return torch.cat((torch.full((1,), head, dtype=torch.float64, device=flat.device), sums))


@functools.cache
def _weights(device: torch.device, size: int) -> torch.Tensor:
    """Two rows of random numbers, the same on each rank."""
    generator = torch.Generator().manual_seed(17)
    return torch.randn(2, size, generator=generator, dtype=torch.float64).to(device)


def shares_that_stay(result: Any, shares: Collection[Path], takes: Collection[str]) -> dict[str, Any]:
    """Name -> value of a result that holds shares and can be an argument of the next call: it stays on the ranks.

    These are fields that are also parameters of the model's forward, such as a cache that is a tuple of tensors, and
    nested tuples in a result without names.

    Args:
        takes: the parameters of the model's forward.
    """
    values = dict(_entries(result))
    if not set(CACHES).isdisjoint(takes):
        takes = {*takes, *CACHES}  # transformers calls the field `cache` whatever a model calls the argument
    found = {}
    for path in shares:
        nameless = isinstance(result, (list, tuple)) and not hasattr(result, "_fields")
        if len(path) > (2 if nameless else 1) and (nameless or path[0] in takes):
            found[path[0]] = values[path[0]]
    return found


def different_text(path: Path) -> str:
    """The message about a tensor of the whole shape whose values differ between ranks."""
    return (
        f"the ranks gave different answers ({'.'.join(path) or 'the result'}): either the plan lacks a sum over the "
        "ranks, or the ranks have diverged"
    )


def answer_facts(result: Any) -> dict[Path, Any]:
    """Path -> shape of a tensor, or value of anything else, of a result without data."""
    shaped = (torch.Tensor, numpy.ndarray)
    found = tensors_by_path(result, plain=True)
    return {path: tuple(value.shape) if isinstance(value, shaped) else value for path, value in found}


@dataclass(frozen=True)
class WholeFacts:
    """What is known of the whole model's result; empty if nothing is.

    Attributes:
        whole: path -> shape or value in the whole model.
        share: the same of this rank's share; None if it is not known.
    """

    whole: Mapping[Path, Any] = field(default_factory=dict)
    share: Mapping[Path, Any] | None = None

    def shares_in(self, compared: Compared) -> list[Path]:
        """The paths of tensors with a part of their length in the whole model, and of values that depend on shares."""
        return [path for path in compared.tensors if path in self.whole and self._is_part(compared, path)]

    def _is_part(self, compared: Compared, path: Path) -> bool:
        whole = self.whole[path]
        if path not in compared.plain:
            return isinstance(whole, tuple) and is_share(tuple(compared.tensors[path].shape), whole)
        if self.share is not None and path in self.share:
            return bool(self.share[path] != whole)
        # A rank's model does not run without data: equal parts are told by their size.
        one, all_of_it = compared.tensors[path], _as_tensor(whole)
        if one.shape != all_of_it.shape or one.is_floating_point() or one.is_complex() or one.dtype == torch.bool:
            return False
        own = one.cpu().long()
        return bool(((own * compared.numbers.shape[0] == all_of_it) & (own != all_of_it)).any())

    def refuse_shares(self, compared: Compared, left: Collection[Path]) -> None:
        """Raise ``ApplyError`` for the first share among the paths ``left``, if there is one."""
        for path in self.shares_in(compared):
            if path in left:
                found = compared.plain.get(path, tuple(compared.tensors[path].shape))
                found, whole = (list(one) if type(one) is torch.Size else one for one in (found, self.whole[path]))
                raise ApplyError(
                    f"{'.'.join(path) or 'the result'} is each rank's own share, {found} of {whole}, and cannot "
                    "leave the ranks: do not ask for it, or take the model back with .cpu()"
                )


def is_share(found: Shape, whole: Shape) -> bool:
    """Whether one dimension is a part of the whole one and all others are equal."""
    other = [(a, b) for a, b in zip(found, whole) if a != b]
    return len(found) == len(whole) and len(other) == 1 and 0 < other[0][0] < other[0][1]
