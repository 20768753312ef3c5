"""What the parts of the interpreter share: the names that a body sees, and what may be asked of the interpreter."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from modular_converter.breaking.names import Names
from modular_converter.breaking.values import ClassValue, CodePlace, External, FunctionValue, ObjectValue, Value


@dataclass
class Frame:
    """The names that a body sees."""

    path: str
    above: int
    """The line of the file above the text that the body was parsed from."""
    names: dict[str, Value] = field(default_factory=dict)
    instance: ObjectValue | None = None
    owner: ClassValue | None = None
    returned: list[Value] = field(default_factory=list)


class Follower(Protocol):
    """Follows bodies of one tree: `Interpreter`."""

    names: Names
    models: str
    """The folder of models."""
    files_in: Callable[[str], Sequence[str]]
    """The files of a model's folder."""

    @property
    def in_doubt(self) -> bool:
        """Whether the statement that is followed stands below a condition whose value is not known."""

    def kept(self, value: object) -> None:
        """Keep an object whose identity stands in a key."""

    def evaluate(self, node: ast.expr, frame: Frame) -> Value:
        """The value of an expression."""

    def of_class(
        self, ancestors: Sequence[ClassValue | External], name: str, instance: ObjectValue | None
    ) -> Value | None:
        """A method or variable of a class, looked up in its bases."""

    def instantiate(
        self, cls: ClassValue, arguments: Sequence[Value], named: Mapping[str, Value], text: str = ""
    ) -> Value:
        """An object of a class, after its `__init__`."""

    def initialise(
        self,
        instance: ObjectValue,
        start: int,
        arguments: Sequence[Value],
        named: Mapping[str, Value],
        method: str = "__init__",
    ) -> None:
        """Run the first `__init__` among the ancestors of an object, from a position on; of a configuration `method`."""

    def call(self, function: Value, arguments: list[Value], named: dict[str, Value], text: str) -> Value:
        """The value of a call."""

    def call_function(self, function: FunctionValue, arguments: Sequence[Value], named: Mapping[str, Value]) -> Value:
        """The value that a function of the tree returns."""

    def call_super(self, name: str, frame: Frame, arguments: list[Value], named: dict[str, Value]) -> Value | None:
        """`super().name(…)`; None where no class of the tree has the method."""

    def name(self, name: str, frame: Frame) -> Value:
        """What a name means in a body."""

    def attribute(self, value: Value, name: str) -> Value:
        """`value.name`."""

    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Give a target its value."""

    def turns(self, value: Value) -> list[Value]:
        """The values that a loop variable has, as far as they differ."""

    def hold(self, holder: ObjectValue, name: str, value: Value, place: CodePlace) -> None:
        """`holder.name = value`."""

    def place(self, node: ast.expr, frame: Frame) -> CodePlace:
        """The line of a node."""
