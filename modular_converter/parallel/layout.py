"""A layout: the number of processes in each dimension of parallelism, as text such as ``fsdp2.tp2``; one to choose; options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from math import prod
from typing import TYPE_CHECKING, Any

from modular_converter.parallel.errors import ApplyError


if TYPE_CHECKING:
    import torch


_WORDS = {
    "bf16": "bfloat16",
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("fp32", "f32", "float", "single"), "float32"),
    **dict.fromkeys(("fp64", "f64", "double"), "float64"),
}


def floating_type(value: Any, option: str) -> torch.dtype:
    """The type of torch: itself, or for a word such as ``"bf16"``, ``"bfloat16"`` or ``"torch.bfloat16"``.

    Raises ``ApplyError`` with the option for anything else.
    """
    import torch

    found = value
    if isinstance(value, str):
        word = value.strip().lower().removeprefix("torch.")
        found = getattr(torch, _WORDS.get(word, word), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ApplyError(f"{option}={value!r}: give a floating type, such as torch.bfloat16 or 'bf16'")
    return found


@dataclass(frozen=True)
class Training:
    """Options of ``parallelize(layout=…)``, applied in this order.

    Attributes:
        recompute: whether layers keep only their inputs and compute again in the backward pass; less memory, a third more
            time.
        compile: whether each layer is compiled; with ``tp`` or ``ep``, only without dropout and without ``recompute``.
        compute_type: the type of matrix products, such as ``torch.bfloat16`` or ``"bf16"``; weights, sums of gradients
            and the optimizer's state keep their types.
        reshard: with ``fsdp``, whether layers free other processes' weights after their forward (ZeRO 3), or only after
            the backward pass (ZeRO 2, and ZeRO 1: the traffic of ``ddp``, with the optimizer's state in shards).
        offload: with ``fsdp``, whether weights, gradients and the optimizer's state are on the host; slow.
        sequence_parallel: with ``tp``, whether norms, residuals and dropout between the sharded layers have a part of the
            sequence on each process; less memory for activations.
        chunks: with ``pp``, the number of micro-batches of a step.
        schedule: with ``pp``, the order of their passes: ``GPipe``, ``1F1B``, ``LoopedBFS`` or ``Interleaved1F1B``.
        loss: with ``pp``, the function of the model's output and the rows of ``target``, as in ``Pipeline``.

    Raises ``ApplyError`` for a value that an option cannot have.
    """

    recompute: bool = False
    compile: bool = False
    compute_type: torch.dtype | str | None = None
    reshard: bool = True
    offload: bool = False
    sequence_parallel: bool = False
    chunks: int | None = None
    schedule: str = "1F1B"
    loss: Callable[[Any, torch.Tensor], torch.Tensor] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("recompute", "compile", "reshard", "offload", "sequence_parallel"):
            if not isinstance(getattr(self, name), bool):
                raise ApplyError(f"Training({name}={getattr(self, name)!r}): give True or False")
        if self.chunks is not None and (type(self.chunks) is not int or self.chunks < 1):
            raise ApplyError(f"Training(chunks={self.chunks!r}): give a whole number of 1 or more")
        if not isinstance(self.schedule, str):
            raise ApplyError(f"Training(schedule={self.schedule!r}): give a name, such as '1F1B'")
        if self.compute_type is not None:
            kind = floating_type(self.compute_type, "compute_type")
            if kind.itemsize < 2:
                raise ApplyError(f"compute_type={kind}: layers compute in no such type; give torch.bfloat16 or 'bf16'")
            object.__setattr__(self, "compute_type", kind)

    @property
    def computes_in(self) -> torch.dtype | None:
        """``compute_type`` as a type of torch."""
        return None if self.compute_type is None else floating_type(self.compute_type, "compute_type")


_NAMES = {"ddp": "dp_replicate", "fsdp": "dp_shard", "cp": "cp", "tp": "tp", "ep": "ep", "pp": "pp"}
_PART = re.compile(r"([a-z]+)([0-9]+)")
# Words of other tools -> what to write. The number of ZeRO is no number of processes, so these are no second names.
_ELSEWHERE = {
    "dp": "data parallelism is {ddp} (all weights on each process) or {fsdp} (a shard of each weight)",
    "hsdp": "replicas of sharded weights are ddp2.fsdp2: write both numbers of processes",
    "sdp": "sharded data parallelism is {fsdp}",
    "mp": "model parallelism is {tp} (a part of each layer on each process) or {pp} (whole layers)",
    "sp": "a part of the sequence on each process is {cp}, or between the blocks of a layer tp2 with "
    "training=Training(sequence_parallel=True)",
}
_FSDP = "with your number of processes, such as fsdp2"
_ZERO = {
    "0": "ZeRO 0 is ddp with your number of processes, such as ddp2",
    "1": f"ZeRO 1 (the optimizer's state in shards) is fsdp {_FSDP}, and training=Training(reshard=False), which has the "
    "traffic of ddp; it shares out the summed gradients, too (ZeRO 2)",
    "2": f"ZeRO 2 (gradients and the optimizer's state in shards) is fsdp {_FSDP}, and training=Training(reshard=False)",
    "3": f"ZeRO 3 (weights, gradients and the optimizer's state in shards) is fsdp {_FSDP}",
}


@dataclass(frozen=True)
class Layout:
    """The number of processes in each dimension; their product is the number of all processes.

    Attributes:
        dp_replicate: each process has all weights and its own part of the batch, as in DDP.
        dp_shard: each has a shard of all weights, gathered for each layer, and its own part of the batch, as in ZeRO 3.
        tp: each computes a part of every layer that the plan shards, on the same part of the batch.
        ep: each has a part of every layer's experts, and all other weights whole, on the same part of the batch.
        pp: each has only the layers of its stages; the other dimensions divide a stage.
        cp: each computes its part of every sequence of the same batch, and shards weights together with ``dp_shard``.
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1
    ep: int = 1
    pp: int = 1
    cp: int = 1

    def __post_init__(self) -> None:
        for one in fields(self):
            number = getattr(self, one.name)
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ApplyError(f"{one.name}={number!r}: give a whole number of 1 or more")
        if self.tp > 1 and self.ep > 1:
            raise ApplyError(
                f"tp{self.tp}.ep{self.ep}: tp shares out experts, too; take tp{self.tp * self.ep} or ep{self.tp * self.ep}"
            )
        if self.cp > 1 and (self.ep > 1 or self.pp > 1):
            raise ApplyError(f"{self}: cp goes together with ddp, fsdp and tp alone; leave cp or the other one out")

    @classmethod
    def parse(cls, text: str) -> Layout:
        """The layout of a text: ``ddp``, ``fsdp``, ``cp``, ``tp``, ``ep`` and ``pp`` with numbers, joined by dots, in any order.

        Raises ``ApplyError`` if the text is not a layout; the message has an example.
        """
        found: dict[str, int] = {}
        for part in text.split("."):
            match = _PART.fullmatch(part.strip())
            name = _NAMES.get(match[1]) if match else None
            if match is None or name is None:
                raise ApplyError(f"layout {text!r}: {_cure(part.strip())}")
            if name in found:
                raise ApplyError(f"layout {text!r} has {match[1]} twice; write each dimension once")
            found[name] = int(match[2])
        return cls(**found)

    @property
    def size(self) -> int:
        """The number of processes."""
        return prod(getattr(self, one.name) for one in fields(self))

    @property
    def shares(self) -> int:
        """The number of processes that each layer is sharded over (``tp`` or ``ep``)."""
        return self.tp * self.ep

    @property
    def data(self) -> int:
        """The number of parts of a batch."""
        return self.dp_replicate * self.dp_shard

    @property
    def shards(self) -> int:
        """The number of processes over which each weight is sharded that layers gather while they compute."""
        return self.dp_shard * self.cp

    @property
    def sharers(self) -> int:
        """The number of processes that get the same part of a batch; they follow one another."""
        return self.shares * self.cp

    def check(self, processes: int) -> None:
        """Raise ``ApplyError`` if the layout has another number of processes; the message names layouts that fit."""
        if self.size != processes:
            numbers = " x ".join(str(getattr(self, one.name)) for one in fields(self) if getattr(self, one.name) > 1)
            others = ", ".join(str(one) for one in layouts_of(processes))
            raise ApplyError(
                f"layout {self} is {numbers or 1}{f' = {self.size}' if ' ' in numbers else ''} processes, and there "
                f"are {processes}: start {self.size}, or take one of {others}"
            )

    def __str__(self) -> str:
        numbers = {short: getattr(self, name) for short, name in _NAMES.items()}
        return ".".join(f"{short}{number}" for short, number in numbers.items() if number > 1) or "tp1"


def layouts_of(processes: int) -> list[Layout]:
    """Layouts for a number of processes, with at most two dimensions above 1, and without ``ep``."""
    divisors = [number for number in range(1, processes + 1) if processes % number == 0]
    found = [Layout(tp=tp, dp_shard=processes // tp) for tp in divisors]
    found += [Layout(tp=tp, dp_replicate=processes // tp) for tp in divisors[:-1]]
    found += [Layout(dp_replicate=one, dp_shard=processes // one) for one in divisors[1:-1]]
    return found + [Layout(pp=processes // tp, tp=tp) for tp in divisors[:-1]]


def _cure(part: str) -> str:
    """What to write in place of a part that is none."""
    match = re.fullmatch(r"([a-z]+?)[ _-]?([0-9]*)", part.lower())
    word, number = (match[1], match[2]) if match else ("", "")
    if word in ("zero", "stage") and number in _ZERO:
        return f"{part!r} is no part of a layout: {_ZERO[number]}"
    if word in _ELSEWHERE:
        names = {one: f"{one}{number or 2}" for one in _NAMES}
        return f"{part!r} is no part of a layout: {_ELSEWHERE[word].format_map(names)}"
    known = ", ".join(f"{one}2" for one in _NAMES)
    return f"{part!r} is none of {known}; write for example fsdp2.tp2"


@dataclass(frozen=True)
class AutoLayout:
    """The question that ``parallelize(layout=…)`` puts to the advice; ``"auto"`` is ``AutoLayout()``.

    Attributes:
        batch: rows of a step over all data ranks; if None, one for each process.
        length: tokens of a row; if None, the model's own, at most 2048.
        optimizer: ``"adamw"``, ``"sgd"``, …: as for ``modular-plan advise --train``.
        stages: whether layouts with ``pp`` may be chosen, which give a ``Pipeline`` in place of the model.
        try_step: whether a step of the choice is tried first, with other weights, in processes of its own; the next is
            taken if it runs out of memory.
        timeout: seconds after which a tried step counts as hung.

    Raises ``ApplyError`` for a value that an option cannot have.
    """

    batch: int | None = None
    length: int | None = None
    optimizer: str = "adamw"
    stages: bool = False
    try_step: bool = True
    timeout: float = 600.0

    def __post_init__(self) -> None:
        for name in ("batch", "length"):
            number = getattr(self, name)
            if number is not None and (type(number) is not int or number < 1):
                raise ApplyError(f"AutoLayout({name}={number!r}): give a whole number of 1 or more")
        if not isinstance(self.timeout, (int, float)) or not 0 < self.timeout < float("inf"):
            raise ApplyError(f"AutoLayout(timeout={self.timeout!r}): give a number of seconds above 0")
