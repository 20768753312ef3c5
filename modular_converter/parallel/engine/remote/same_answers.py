"""Answers of all ranks, compared: a rank's own share of a tensor, or ranks that have come apart, would be silent errors.

Each tensor of a result becomes four numbers, and one small collective brings those of all ranks together.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.engine.remote.what_may_leave import is_cache
from modular_converter.parallel.errors import ApplyError


# Entries of a large tensor that are compared, evenly spread.
_SAMPLE = 1 << 20
# Of the norm of a tensor: kernels that add in no fixed order differ by less, shares by about 1.
_TOLERANCES = {torch.float16: 2e-2, torch.bfloat16: 2e-2}
_TOLERANCE = 1e-3
_WEIGHTS: dict[tuple[torch.device, int], torch.Tensor] = {}

Gather = Callable[[torch.Tensor], torch.Tensor]
Path = tuple[str, ...]
Shape = tuple[int, ...]


class DifferentAnswers(Exception):
    """The ranks do not agree any more, so all of them have to be ended."""


@dataclass(frozen=True)
class Compared:
    """The tensors of a result by their paths, and their numbers on all ranks, ``(ranks, tensors, 4)`` in float64."""

    tensors: dict[Path, torch.Tensor]
    numbers: torch.Tensor

    def different(self) -> list[Path]:
        """The tensors that differ between the ranks. Waits for the device."""
        if not self.tensors:
            return []
        numbers = self.numbers.cpu()
        kinds = [_TOLERANCES.get(tensor.dtype, _TOLERANCE) for tensor in self.tensors.values()]
        room = torch.tensor(kinds, dtype=torch.float64) * numbers[:, :, 3].amax(0)
        off = (numbers[:, :, :3] - numbers[:1, :, :3]).abs()
        off[:, :, 0] *= float("inf")  # shapes and types must be the same
        bad = ~(off.nan_to_num(0.0, posinf=float("inf")) <= room[None, :, None]).all(2).all(0)
        return [path for path, wrong in zip(self.tensors, bad.tolist()) if wrong]


def compare_answers(result: Any, size: int, gather: Gather) -> Compared:
    """Bring the numbers of a result's tensors together; all ranks must call it.

    Args:
        gather: from a flat tensor of each rank to all of them, one after the other.
    """
    tensors = dict(tensors_by_path(result))
    if not tensors or size == 1:
        return Compared({}, torch.empty(0))
    place = next(iter(tensors.values())).device
    rows = torch.stack([_numbers(tensor).to(place) for tensor in tensors.values()])
    return Compared(tensors, gather(rows.flatten()).view(size, len(tensors), 4))


def tensors_by_path(value: Any, path: Path = (), seen: frozenset[int] = frozenset()) -> Iterator[tuple[Path, Any]]:
    """All tensors in lists, tuples, mappings and plain objects, each with the names that lead to it.

    Caches are left out: they stay on the ranks.
    """
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    if isinstance(value, (str, bytes, type, torch.nn.Module)) or is_cache(value) or id(value) in seen:
        return
    for key, item in _entries(value):
        yield from tensors_by_path(item, (*path, key), seen | {id(value)})


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        pairs: Any = value.items()
    elif isinstance(value, (list, tuple)):
        pairs = enumerate(value)
    else:
        pairs = getattr(value, "__dict__", {}).items()
    return ((str(key), item) for key, item in pairs)


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Shape and type, two weighted sums, and the norm (0 for exact types), as float64."""
    head = zlib.crc32(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
    flat = tensor.detach().reshape(-1)
    flat = flat[:: max(1, flat.numel() // _SAMPLE)]
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj()).reshape(-1)
    weights = _weights(flat.device, flat.numel())
    if flat.is_floating_point():
        values = flat.double().nan_to_num(1e5, 2e5, -2e5).asinh()  # a mask's value must not set the scale
        sums = torch.cat((weights @ values, torch.linalg.vector_norm(values)[None]))
    else:
        values = flat.long() * (weights * 2**20).long()
        sums = torch.nn.functional.pad(values.sum(-1).remainder(2**50).double(), (0, 1))
    return torch.cat((torch.full((1,), head, dtype=torch.float64, device=flat.device), sums))


def _weights(device: torch.device, count: int) -> torch.Tensor:
    """Two rows of random numbers, the same on each rank."""
    size = 1 << max(12, (count - 1).bit_length())
    if (device, size) not in _WEIGHTS:
        generator = torch.Generator().manual_seed(17)
        _WEIGHTS[device, size] = torch.randn(2, size, generator=generator, dtype=torch.float64).to(device)
    return _WEIGHTS[device, size][:, :count]


def shares_that_stay(result: Any, shares: Collection[Path], takes: Collection[str]) -> dict[str, Any]:
    """The values of a result that hold shares and can be given back to the model: they stay on the ranks.

    These are fields that the model's forward takes as an argument too, such as a cache that is a tuple of tensors, and
    nested tuples of a result without names.

    Args:
        takes: the parameters of the model's forward.
    """
    values = dict(_entries(result))
    found = {}
    for path in shares:
        nameless = isinstance(result, (list, tuple)) and not hasattr(result, "_fields")
        if len(path) > (2 if nameless else 1) and (nameless or path[0] in takes):
            found[path[0]] = values[path[0]]
    return found


def different_text(path: Path) -> str:
    """The message about a tensor that has its whole shape, but other values on another rank."""
    return (
        f"the ranks gave different answers ({'.'.join(path) or 'the result'}): either nothing sums the ranks' parts, "
        "or the ranks have come apart"
    )


def shares_in(tensors: Mapping[Path, torch.Tensor], whole: Mapping[Path, Shape]) -> list[Path]:
    """The tensors that have a part of the length that they have in the whole model."""
    return [path for path, tensor in tensors.items() if path in whole and is_share(tuple(tensor.shape), whole[path])]


def refuse_shares(tensors: Mapping[Path, torch.Tensor], shares: Collection[Path], whole: Mapping[Path, Shape]) -> None:
    """Raise ``ApplyError`` for the first of the shares, if there are any."""
    for path in shares:
        raise ApplyError(
            f"{'.'.join(path) or 'the result'} is each rank's own share, {tuple(tensors[path].shape)} of "
            f"{whole[path]}, and cannot leave the ranks: do not ask the model for it, or take it back with .cpu()"
        )


def is_share(found: Shape, whole: Shape) -> bool:
    """Whether one dimension is a part of the whole one and all others are equal."""
    other = [(a, b) for a, b in zip(found, whole) if a != b]
    return len(found) == len(whole) and len(other) == 1 and 0 < other[0][0] < other[0][1]
