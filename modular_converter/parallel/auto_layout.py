"""A layout that is still to be chosen, from the advice for the machine at hand."""

from __future__ import annotations

from dataclasses import dataclass

from modular_converter.parallel.errors import ApplyError


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
