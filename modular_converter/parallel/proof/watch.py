"""The parts of a model that a forward uses: classes of modules, operators, weights, and values that the code reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.solve.operators import OPERATORS
from modular_converter.parallel.tiny.copies import seed_cpu
from modular_converter.parallel.torch_private import TorchDispatchMode
from modular_converter.parallel.trace.record import tensors_in


# Operators with which the program reads values of a tensor, so that its next steps may depend on data.
_READS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal")


@dataclass
class Met:
    """The parts that have run, in order.

    Attributes:
        kinds: classes of modules.
        reads: paths of the modules whose code reads values that depend on weights.
        idle: parts of the model whose weights no operator reads.
    """

    kinds: dict[str, None] = field(default_factory=dict)
    operators: dict[str, None] = field(default_factory=dict)
    reads: dict[str, None] = field(default_factory=dict)
    idle: tuple[str, ...] = ()


def watched(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Met:
    """Run a forward without gradients and note the parts that it uses. Raises the errors of the model's own code."""
    met, stack = Met(), [""]
    weights = {id(parameter) for parameter in model.parameters()}
    watch = _Watch(met, stack, weights)
    seed_cpu(11)

    def entered(module: torch.nn.Module) -> None:
        met.kinds.setdefault(type(module).__name__)

    with running_modules(model, stack, entered), torch.no_grad(), watch:
        model(**inputs)
    met.idle = tuple(_idle(model, weights - watch.computed.keys()))
    return met


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the tensors computed from weights, and keeps them alive, so that identities are unique."""

    def __init__(self, met: Met, stack: list[str], weights: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.met, self.stack, self.weights = met, stack, weights
        self.computed: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        given = [tensor for tensor in (*tensors_in(args), *tensors_in(kwargs or {})) if self._depends(tensor)]
        self.computed.update((id(tensor), tensor) for tensor in given)
        result = func(*args, **(kwargs or {}))
        self.met.operators.setdefault(name)
        if given and name in _READS:
            self.met.reads.setdefault(self.stack[-1])
        known = OPERATORS.get(name)
        if given and not (known is not None and known.traits.shape_only):
            self.computed.update((id(tensor), tensor) for tensor in tensors_in(result))
        return result

    def _depends(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self.weights or id(tensor) in self.computed


@contextlib.contextmanager
def running_modules(
    model: torch.nn.Module, stack: list[str], entered: Callable[[torch.nn.Module], None] | None = None
) -> Iterator[None]:
    """A context in which the last path in ``stack`` is that of the running module."""
    handles = []
    for path, module in model.named_modules():

        def before(module: torch.nn.Module, _: Any, path: str = path) -> None:
            stack.append(path)
            if entered is not None:
                entered(module)

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(lambda *_: _leave(stack)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _leave(stack: list[str]) -> None:
    stack.pop()


def _idle(model: torch.nn.Module, unused: set[int]) -> Iterator[str]:
    """The outermost modules without a used weight, and unused weights of other modules."""
    inside: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(f"{outer}.") for outer in inside):
            continue
        weights = {id(parameter) for parameter in module.parameters()}
        if path and weights and weights <= unused:
            inside.append(path)
            yield path
            continue
        for name, parameter in module.named_parameters(path, recurse=False):
            if id(parameter) in unused:
                yield name
