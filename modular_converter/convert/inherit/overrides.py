"""The assignments behind the `super()` calls of one class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING


if TYPE_CHECKING:  # libcst is imported late
    from modular_converter.convert.inherit.statements import Line


@dataclass(frozen=True)
class Overrides:
    """The assignments behind the `super()` calls of a class so far. They count for its later methods too, as in the
    corpus (vivit): see docs/architecture.md.
    """

    lines: dict[str, tuple[Line, str]] = field(default_factory=dict)
    """Target -> the assignment and the method that it stands in."""
