"""A fault of a generated text, as a value."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class FaultKind(Enum):
    """The kinds of fault in a text that the converter has put together."""

    INVALID = "it does not compile"
    TYPING_ONLY = "a name that only type checkers import is read when the file is imported"
    BASES = "the bases of a class have no order"
    FOREIGN_BASE = "a base is a class of another model, in that model's file"
    SIBLING = "a name is imported from a generated file that does not have it"


class Fault(NamedTuple):
    """One fault, with its place in the generated text."""

    kind: FaultKind
    definition: str
    """The top-level class or function in which it is, "" outside of any."""
    detail: str
    """The name in question, the bases, or the reason why the text does not compile."""
    line: int
    """Counts from 1, 0 where the place is not known."""
    module: str = ""
    """For a `SIBLING`: the module that lacks the name, `.configuration_emu`."""
