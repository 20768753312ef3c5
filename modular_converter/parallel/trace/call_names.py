"""The names at a module call: its arguments, the caller's local variables, and the variable for its result.

They come from the forward's signature, the caller's frame, and the instruction after the call.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import os
import sys
import types
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any

import numpy
import torch


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
