"""The recorded trace as plain values, without torch: tensors, operations, module calls, and sources of integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Union


PARAM, BUFFER, INPUT, CONST, VALUE = "param", "buffer", "input", "const", "value"


@dataclass(frozen=True)
class Ref:
    """A tensor by its number in ``Trace.tensors``."""

    id: int


@dataclass(frozen=True)
class Source:
    """The origin of an integer, as a small expression tree.

    Attributes:
        kind: ``attr`` (module path, attribute), ``shape`` (tensor number, dimension), ``const``, or an operator.
        value: the integer in the traced run.
        owner, name: module path and attribute for ``attr`` (``config.x`` for a field of a configuration).
        tensor, dim: for ``shape``.
        args: operands of an operator.
    """

    kind: str
    value: int
    owner: str = ""
    name: str = ""
    tensor: int = -1
    dim: int = -1
    args: tuple[Source, ...] = ()

    def leaves(self) -> tuple[Source, ...]:
        """All attribute leaves of the tree, left to right."""
        if self.kind == "attr":
            return (self,)
        return tuple(leaf for arg in self.args for leaf in arg.leaves())


@dataclass(frozen=True)
class Comparison:
    """A comparison of two integers in the model's code: the name of the operator, and both sides."""

    operator: str
    left: Source
    right: Source


_CALCULATE: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
}


def evaluate(source: Source, leaf: Callable[[Source], int]) -> int:
    """The integer of an expression tree, for other values of its leaves."""
    if not source.args:
        return leaf(source)
    left, right = (evaluate(arg, leaf) for arg in source.args)
    return _CALCULATE[source.kind](left, right)


Arg = Union[None, bool, int, float, str, Ref, tuple["Arg", ...]]  # noqa: UP007 - it names itself


@dataclass(frozen=True)
class Call:
    """A call of a tensor function by the model's code, with the sources of its integer arguments in order.

    Attributes:
        site: ``path:line`` of the code outside of torch that makes the call.
    """

    function: str
    integers: tuple[Source, ...]
    site: str = ""


@dataclass(frozen=True)
class Tensor:
    """A tensor in the run: its whole shape, its kind, and the name of a parameter or input."""

    shape: tuple[int, ...]
    kind: str
    name: str = ""
    floating: bool = True


@dataclass(frozen=True)
class Op:
    """One dispatched operation.

    Attributes:
        name: of the operator, without namespace and overload, such as ``addmm``.
        args, kwargs: simple values; tensors as ``Ref``.
        outputs: tensor numbers; the target for in-place operations.
        module: path of the innermost module whose forward was running.
        call: number in ``Trace.calls`` of the call that dispatched it, or -1.
        pointwise: whether torch tags the operator as pointwise.
        dims: the dimensions that its arguments name, counted from the first.
    """

    name: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    outputs: tuple[int, ...]
    module: str
    call: int = -1
    pointwise: bool = False
    dims: tuple[int, ...] = ()

    def inputs(self) -> tuple[int, ...]:
        """Numbers of all tensors among the arguments, in order."""
        return self._inputs

    @cached_property
    def _inputs(self) -> tuple[int, ...]:
        return tuple(_refs(self.args)) + tuple(_refs(tuple(value for _, value in self.kwargs)))

    def keyword(self, name: str, default: Arg = None) -> Arg:
        """A keyword argument, or the default."""
        return dict(self.kwargs).get(name, default)


def _refs(value: Arg) -> list[int]:
    if isinstance(value, Ref):
        return [value.id]
    if isinstance(value, tuple):
        return [found for item in value for found in _refs(item)]
    return []


@dataclass(frozen=True)
class ModuleCall:
    """One forward of a module: the tensors of its inputs and outputs, and the range of its operations.

    Attributes:
        caller: path of the module whose forward made the call; empty for the model, and for the model's own call.
        arguments: (parameter name of the forward, tensors in the argument), for arguments with tensors.
        local_names: (tensor, the caller's local variables that hold it), for tensors in variables.
        result: the caller's local variable for the result; empty if there is none.
        parameters: all parameter names of the forward.
    """

    path: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    first: int
    last: int
    caller: str = ""
    arguments: tuple[tuple[str, tuple[int, ...]], ...] = ()
    local_names: tuple[tuple[int, tuple[str, ...]], ...] = ()
    result: str = ""
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Parameter:
    """A parameter: its names (several if it is tied), its shape and the class of its first owner."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    tensor: int
    owner_class: str

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for length in self.shape:
            total *= length
        return total


@dataclass(frozen=True)
class Trace:
    """The record of one forward.

    Attributes:
        compared: the comparisons of integers with a source.
    """

    model: str
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    calls: tuple[Call, ...]
    modules: tuple[ModuleCall, ...]
    parameters: tuple[Parameter, ...]
    outputs: tuple[int, ...]
    module_classes: dict[str, str] = field(default_factory=dict)
    compared: tuple[Comparison, ...] = ()
