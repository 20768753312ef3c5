"""Run a small model once and record its operations, the tensors between them, and the sources of its integers.

Two modes work together: a function mode sees the model's own calls with their integer arguments, and a dispatch mode
below it sees the canonical operations of each call. The names at a module call (its arguments, the caller's local
variables, the variable for its result) come from the forward's signature, the caller's frame, and the instruction after
the call.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import math
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy
import torch
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.errors import TraceError
from modular_converter.parallel.torch_private import (
    DisableTorchFunction,
    TorchDispatchMode,
    length_of_dispatch_stack,
    storage_number,
)
from modular_converter.parallel.trace.graph import (
    BUFFER,
    CONST,
    INPUT,
    PARAM,
    VALUE,
    Arg,
    Call,
    Comparison,
    ModuleCall,
    Op,
    Parameter,
    Ref,
    Tensor,
    Trace,
)
from modular_converter.parallel.trace.integers import (
    READS,
    comparisons,
    reads_shape,
    sourced_attributes,
    sourced_shape,
    stated_integers,
)
from modular_converter.parallel.trace.unchanged import unchanged


_DIMS = {"dim", "dims", "dim0", "dim1", "dimension"}


def record(model: torch.nn.Module, inputs: Mapping[str, Any], name: str = "") -> Trace:
    """The trace of one forward.

    Args:
        model: on the CPU, in eval mode.
        inputs: keyword arguments for its forward.
        name: of the model, for messages.

    Raises ``TraceError`` if the forward fails under recording; the message names the running module.
    """
    recorder, compared = _Recorder(model, inputs), list[Comparison]()
    try:
        with (
            unchanged(model),
            sourced_attributes(model),
            comparisons(compared.append),
            recorder.hooks(),
            torch.no_grad(),
            _Calls(recorder),
            _Dispatch(recorder),
        ):
            result = model(**inputs)
    except Exception as error:
        where = recorder.stack[-1][0] or "the model"
        raise TraceError(f"{name}: forward fails in {where}: {type(error).__name__}: {error}") from error
    return recorder.finish(name, result, compared)


def tensors_in(value: Any, kinds: Any = torch.Tensor) -> list[Any]:
    """All tensors, or values of other types, in nested tuples, lists, mappings and output records, in order."""
    if isinstance(value, kinds):
        return [value]
    if not isinstance(value, (list, tuple)):  # asked first: a question about an abstract class takes longest
        value = value.values() if isinstance(value, Mapping) else ()
    return [found for item in value for found in tensors_in(item, kinds)]


def leaves_in(value: Any) -> Iterator[Any]:
    """All values in nested tuples, lists and mappings that are none of these, in order."""
    items = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, Mapping) else None
    if items is None:
        yield value
        return
    for item in items:
        yield from leaves_in(item)


def written_by(operation: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arguments of an operation to which it writes, those in lists too."""
    found: list[Any] = []
    for number, one in enumerate(operation._schema.arguments if operation._schema.is_mutable else ()):
        if one.alias_info is not None and one.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(one.name)
            found += value if isinstance(value, (list, tuple)) else [value]
    return found


class KnownResults(dict[Any, "Callable[[], Any] | None"]):
    """An operation with the shapes of what it takes -> what makes its results; None where these are views or values.

    torch computes many of these shapes in Python, which takes half of the time of a run without data.
    """

    def result(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[..., Any] | None = None
    ) -> Any:
        """The result of an operation: made like that of an earlier one with the same shapes, else computed (by ``run``)."""
        with DisableTorchFunction():  # else the modes of a run would see each question about a tensor below
            key = _described((func, args, kwargs, torch.get_default_dtype()))
            make = self.get(key)
            if make is not None:
                return make()
        result = func(*args, **kwargs) if run is None else run(func, *args, **kwargs)
        if key is not None and key not in self:
            with DisableTorchFunction():
                if len(self) >= _MOST_RESULTS:
                    self.clear()
                self[key] = None if func._schema.is_mutable else _made_anew(tensors_in((args, kwargs)), result)
        return result


_MOST_RESULTS = 20_000


class RunsWithoutData(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which operations without data take the shapes of their results from all earlier runs in this process.

    Within a context that sees each operation it only hands on: that is also to see those of which torch makes this one.
    """

    known = KnownResults()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        watched = length_of_dispatch_stack() > 0
        return func(*args, **(kwargs or {})) if watched else self.known.result(func, args, kwargs or {})


def _described(value: Any) -> Any:
    """All that the results of an operation depend on, to be looked up; None if they depend on data."""
    if isinstance(value, torch.Tensor):
        if not value.is_meta or value.layout is not torch.strided or value.dtype.is_complex:
            return None
        return value.shape, value.stride(), value.storage_offset(), value.dtype
    if isinstance(value, (list, tuple, dict)):
        items = tuple(value.items()) if isinstance(value, dict) else value
        found = tuple([_described(one) for one in items])
        return None if None in found else found
    if isinstance(value, torch.ScriptObject):  # of the profiler; it is equal to nothing, by an error
        return None
    return type(value), value  # an int and a float that are equal promote to other types


def _made_anew(given: Sequence[torch.Tensor], result: Any) -> Callable[[], Any] | None:
    """What makes tensors like the results of an operation, if each is a tensor without data in a storage of its own."""
    results = [result] if isinstance(result, torch.Tensor) else result
    if not isinstance(results, (list, tuple)) or not all(type(one) is torch.Tensor and one.is_meta for one in results):
        return None
    shapes = [(tuple(one.shape), one.stride(), one.dtype) for one in results]

    def make() -> list[torch.Tensor]:
        return [torch.empty_strided(size, stride, dtype=kind, device="meta") for size, stride, kind in shapes]

    storages = {storage_number(one) for one in (*given, *results)}
    alone = len(storages) == len({storage_number(one) for one in given}) + len(results)
    sizes = [[one.untyped_storage().nbytes() for one in made] for made in (results, make())]
    if not alone or sizes[0] != sizes[1] or any(one.storage_offset() for one in results):
        return None
    kind = type(results)
    return (lambda: kind(make())) if results is result else (lambda: make()[0])  # holds no result, which is to go


class _Recorder:
    """Numbers tensors by identity, and keeps them alive, so that identities are unique."""

    def __init__(self, model: torch.nn.Module, inputs: Mapping[str, Any]) -> None:
        self.model = model
        self.numbers: dict[int, int] = {}
        self.alive: list[Any] = []
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.calls: list[Call] = []
        self.current_call = -1
        self.module_calls: list[ModuleCall] = []
        self.stack: list[tuple[str, int, dict[str, Any]]] = [("", 0, {})]
        self.parameters = self._parameters()
        for buffer_name, buffer in model.named_buffers():
            self.number(buffer, BUFFER, buffer_name)
        for input_name, value in inputs.items():
            for tensor in tensors_in(value):
                self.number(tensor, INPUT, input_name)

    def _parameters(self) -> list[Parameter]:
        names: dict[int, list[str]] = {}
        found: dict[int, torch.nn.Parameter] = {}
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
            found[id(parameter)] = parameter
        modules = dict(self.model.named_modules())
        result = []
        for key, parameter in found.items():
            owner = modules[names[key][0].rpartition(".")[0]]
            number = self.number(parameter, PARAM, names[key][0])
            result.append(Parameter(tuple(names[key]), tuple(parameter.shape), number, type(owner).__name__))
        return result

    def number(self, tensor: torch.Tensor, kind: str, name: str = "") -> int:
        found = self.numbers.get(id(tensor))
        with DisableTorchFunction():
            shape = tuple(int(length) for length in tensor.shape)
            if found is not None and self.tensors[found].shape == shape:
                return found  # after a change of its shape in place, a tensor gets a new number
            self.alive.append(tensor)
            self.numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(Tensor(shape, kind, name, tensor.is_floating_point() or tensor.is_complex()))
        return len(self.tensors) - 1

    def entered(self, module: torch.nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
        """The inputs of a module with their names: fields of ``ModuleCall``."""
        tensors = tensors_in(args) + tensors_in(kwargs)
        bound = {name: tensors_in(value) for name, value in bound_arguments(module, args, kwargs).items()}
        frame = caller_of(module)
        known = {self.number(tensor, CONST): local_names(frame, tensor) for tensor in tensors}
        return {
            "inputs": tuple(self.number(tensor, CONST) for tensor in tensors),
            "arguments": tuple(
                (n, tuple(self.number(t, CONST) for t in found)) for n, found in bound.items() if found
            ),
            "local_names": tuple((number, names) for number, names in known.items() if names),
            "parameters": forward_names(module),
        }

    def argument(self, value: Any) -> Arg:
        if isinstance(value, torch.Tensor):
            return Ref(self.number(value, CONST))
        if isinstance(value, (list, tuple)):
            return tuple(self.argument(item) for item in value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return str(value)

    def operation(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operation and note it."""
        operands = tuple(self.argument(value) for value in args)
        named = tuple((key, self.argument(value)) for key, value in sorted(kwargs.items()))
        name, pointwise, places = _operator_facts(func)
        dims = _dims(places, args, kwargs)
        result = func(*args, **kwargs)
        outputs = tuple(self.number(tensor, VALUE) for tensor in tensors_in(result))
        self.ops.append(Op(name, operands, named, outputs, self.stack[-1][0], self.current_call, pointwise, dims))
        return result

    def read(self, tensor: torch.Tensor) -> None:
        """Note that the program reads the values of a tensor, as with ``item``."""
        operand = (self.argument(tensor),)
        self.ops.append(Op("_local_scalar_dense", operand, (), (), self.stack[-1][0], self.current_call))

    @contextlib.contextmanager
    def hooks(self) -> Iterator[None]:
        """Forward hooks on every module, for the stack of running modules, their inputs and their outputs."""
        with contextlib.ExitStack() as hooks:
            for path, module in self.model.named_modules():
                before, after = self._pair(path)
                hooks.enter_context(module.register_forward_pre_hook(before, with_kwargs=True))
                hooks.enter_context(module.register_forward_hook(after))
            yield

    def _pair(self, path: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def before(module: Any, args: Any, kwargs: Any) -> None:
            self.stack.append((path, len(self.ops), self.entered(module, args, kwargs)))

        def after(module: Any, args: Any, result: Any) -> None:
            _, first, entered = self.stack.pop()
            left = tuple(self.number(t, CONST) for t in tensors_in(result))
            name = result_name(caller_of(module))
            last, caller = len(self.ops), self.stack[-1][0]
            call = ModuleCall(path, outputs=left, first=first, last=last, caller=caller, result=name, **entered)
            self.module_calls.append(call)

        return before, after

    def finish(self, name: str, result: Any, compared: Sequence[Comparison]) -> Trace:
        outputs = tuple(self.numbers[id(t)] for t in tensors_in(result) if id(t) in self.numbers)
        classes = {path: type(module).__name__ for path, module in self.model.named_modules()}
        return Trace(
            name,
            tuple(self.tensors),
            tuple(self.ops),
            tuple(self.calls),
            tuple(self.module_calls),
            tuple(self.parameters),
            outputs,
            classes,
            tuple(compared),
        )


class _Calls(TorchFunctionMode):
    """Records the integers of each call, and returns shapes whose entries remember their tensor."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if reads_shape(func, name):
            return self._shape(func, args, kwargs)
        if name in ("numel", "nelement"):
            return math.prod(self._shape_of(args[0]))
        outer = self.recorder.current_call
        stated, integers = stated_integers(name, args, kwargs, self._shape_of)
        self.recorder.calls.append(Call(stated, integers, site_of_call()))
        self.recorder.current_call = len(self.recorder.calls) - 1
        if name in READS:
            self.recorder.read(args[0])
        try:
            return func(*args, **kwargs)
        finally:
            self.recorder.current_call = outer

    def _shape(self, func: Any, args: Any, kwargs: Any) -> Any:
        return sourced_shape(func, args, kwargs, lambda tensor: self.recorder.number(tensor, CONST))

    def _shape_of(self, tensor: torch.Tensor) -> Any:
        return self._shape(torch.Tensor.size, (tensor,), {})


@functools.cache
def _operator_facts(func: Any) -> tuple[str, bool, tuple[int, ...]]:
    """The name of an operator, whether it is pointwise, and the positions of the arguments that name dimensions."""
    places = tuple(place for place, argument in enumerate(func._schema.arguments) if argument.name in _DIMS)
    return func._schema.name.partition("::")[2], torch.Tag.pointwise in func.tags, places


def _dims(places: Sequence[int], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
    """The arguments of an operator that name dimensions, counted from the first dimension."""
    given = [args[place] for place in places if place < len(args)] + [kwargs[name] for name in kwargs if name in _DIMS]
    values = [value for value in given if value is not None]
    tensors = tensors_in(args) if values else []
    count = max(tensors[0].dim(), 1) if tensors else 1
    return tuple(
        int(dim) % count for value in values for dim in (value if isinstance(value, (list, tuple)) else [value])
    )


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the canonical operations below the calls."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.recorder.operation(func, args, kwargs)


# Folders of code between the model's own code and an operation.
_HERE = os.path.dirname(__file__)
_TINY = os.path.join(os.path.dirname(_HERE), "tiny")
_PACKAGE = os.path.join(os.path.dirname(_HERE), "")
_NOT_THE_MODEL = (torch.__path__[0], numpy.__path__[0], _HERE, _TINY, contextlib.__file__)


def forward_names(module: torch.nn.Module) -> tuple[str, ...]:
    """The parameter names of a module's forward, without ``*args`` and ``**kwargs``."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = _signature(module).parameters.values()
    return tuple(parameter.name for parameter in found if parameter.kind not in variable)


def _signature(module: torch.nn.Module) -> inspect.Signature:
    forward = module.forward
    own = getattr(forward, "__func__", None)
    return inspect.signature(forward) if own is None else _signature_of_method(own)


@functools.lru_cache(maxsize=1024)
def _signature_of_method(function: Any) -> inspect.Signature:
    """The signature without ``self``; cached, since many modules share a class."""
    return inspect.signature(types.MethodType(function, object()))


def attention_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call of ``scaled_dot_product_attention`` by name, by torch's schema: it has no Python signature."""
    known = torch.ops.aten.scaled_dot_product_attention.default._schema.arguments
    names = [one.name for one in known]
    return {one.name: one.default_value for one in known} | dict(zip(names, args)) | dict(kwargs)


def bound_arguments(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names in the forward; ``**kwargs`` by their own names."""
    signature = _signature(module)
    bound = signature.bind_partial(*args, **kwargs).arguments
    result: dict[str, Any] = {}
    for name, value in bound.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            result.update(value)
        else:
            result[name] = value
    return result


def caller_of(module: torch.nn.Module) -> FrameType | None:
    """The frame of another module's code that is calling ``module``; for a hook of ``module``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module) and owner is not module:
            return frame
        frame = frame.f_back
    return None


def site_of_call(between: tuple[str, ...] = ()) -> str:
    """``path:line`` of the running code outside of torch and of the recorder; empty if there is none.

    Args:
        between: the beginnings of further paths to skip.
    """
    frame = _frame_of_call(between)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def is_code_of_torch(between: tuple[str, ...]) -> bool:
    """Whether the innermost running code, outside of the recorder and of paths that begin so, is torch's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, *between)):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(torch.__path__[0])


def _frame_of_call(between: tuple[str, ...] = ()) -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_MODEL + between):
        frame = frame.f_back
    own = frame is not None and frame.f_code.co_filename.startswith(
        _PACKAGE
    )  # the model itself is torch's, and runs for us
    return None if own else frame


def numbers_in_caller() -> tuple[int | float, ...]:
    """The numbers in the code of the function at ``site_of_call``."""
    frame = _frame_of_call()
    constants = () if frame is None else frame.f_code.co_consts
    return tuple(one for one in constants if type(one) in (int, float))


def local_names(frame: FrameType | None, tensor: torch.Tensor) -> tuple[str, ...]:
    """The local variables of a frame that hold a tensor, sorted."""
    if frame is None:
        return ()
    return tuple(sorted(name for name, value in frame.f_locals.items() if value is tensor))


def result_name(frame: FrameType | None) -> str:
    """The local variable to which a frame assigns the result of its running call; empty if there is none."""
    return "" if frame is None else _stored_after(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=4096)
def _stored_after(code: CodeType, offset: int) -> str:
    after = (item for item in dis.get_instructions(code) if item.offset > offset)
    following = next((item for item in after if item.opname not in ("CACHE", "PRECALL", "NOT_TAKEN")), None)
    if following is None or not following.opname.startswith("STORE_FAST"):
        return ""
    name = following.argval
    return str(name[0] if isinstance(name, tuple) else name)
