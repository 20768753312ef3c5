"""Answers about a model that were proven once, kept on disk by content, so that the next start does not prove them again.

The name of an entry is a hash of all that the answer depends on: this package, the versions of what it runs on, the code
that the model's classes reach as it is in this process, its configuration, and the modules, their plain attributes, the
shapes and types of the weights, and torch's switches. A model with anything else, such as hooks or an unknown object, has
no name, and nothing is kept. Weights do not count: a proof runs without them. Layers are still tried on the ranks with
the model's own weights at each start.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any, TypeVar

import torch

from modular_converter.check.cache.store import cache_folder, digest, keep_values, read_values
from modular_converter.parallel.choice.code_hashes import code_reached, hash_of_code, own_files, replaced_members
from modular_converter.parallel.modules import PLAIN_TYPES, own_attributes
from modular_converter.parallel.tiny.fields import is_config
from modular_converter.parallel.tiny.inputs import examples_of
from modular_converter.parallel.torch_switches import TorchSwitches


T = TypeVar("T")
logger = logging.getLogger(__name__)
PACKAGE = "modular_converter"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_MOST_BUFFER = 1 << 20
_DEEPEST = 6


class _NoNameError(Exception):
    """What a model's answers depend on cannot be written down."""


def kept_answer(model: Any, question: str, compute: Callable[[], T], keeps: Callable[[T], bool] = bool) -> T:
    """The answer to a question about a model: the one that is kept, else the computed one, which is kept.

    What was logged meanwhile is logged again. An entry that is damaged, or that another user may have written, counts as
    absent.

    Args:
        question: with all that the answer depends on beside the model and torch's switches.
        compute: gives values that JSON has: text, numbers and lists.
        keeps: whether an answer is worth keeping.
    """
    try:
        name = digest(f"{question}\n{_described(model)}".encode())
    except _NoNameError as error:
        logger.debug("%s: nothing is kept: %s", type(model).__name__, error)
        return compute()
    folder = os.path.join(cache_folder(), "plans")
    found = read_values(folder, name)
    if found.keys() != {"value", "logged"}:
        with _Logged() as logged:
            value = compute()
        if keeps(value):
            keep_values(folder, name, {"value": value, "logged": logged.records})
        return value
    for source, level, text in found["logged"]:
        logging.getLogger(source).log(level, "%s", text)
    kept: T = found["value"]
    return kept


class _Logged(logging.Handler):
    """Notes what this package logs inside of the context, also below the level that is shown, and passes on what is shown."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[tuple[str, int, str]] = []
        self._logger = logging.getLogger(PACKAGE)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.name, record.levelno, record.getMessage()))
        handlers, _, propagate, shown = self._before
        if record.levelno < shown:
            return
        for handler in handlers:
            if record.levelno >= handler.level:
                handler.handle(record)
        if propagate and self._logger.parent:
            self._logger.parent.callHandlers(record)

    def __enter__(self) -> _Logged:
        own = self._logger
        self._before = own.handlers, own.level, own.propagate, own.getEffectiveLevel()
        own.handlers, own.propagate = [self], False
        own.setLevel(min(logging.INFO, own.getEffectiveLevel()))
        return self

    def __exit__(self, *exception: object) -> None:
        own = self._logger
        own.handlers, level, own.propagate, _ = self._before
        own.setLevel(level)


@functools.cache
def _tool() -> str:
    """A hash of this package's own files, and the versions of what it runs on."""
    import transformers

    own = Path(sys.modules[PACKAGE].__file__ or "").parent
    found = hashlib.sha256(repr((sys.version, torch.__version__, transformers.__version__)).encode())
    for path in sorted(own.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def _described(model: Any) -> str:
    """All that an answer about a model depends on. Raises ``_NoNameError`` if some of it cannot be written down."""
    config = getattr(model, "config", None)
    if not is_config(config) or examples_of(model) is not None:
        raise _NoNameError("its plan is derived from example inputs")
    kinds = {type(module) for module in model.modules()} | {type(config)}
    code = code_reached(kinds)
    scopes = [torch.nn.functional, torch.Tensor, *(kind for kind in kinds if kind.__module__.startswith("torch."))]
    replaced = [(str(scope), replaced_members(scope)) for scope in scopes]
    files = sorted(own_files(kinds).items())
    parts = (
        _tool(),
        sorted(code.items()),
        files,
        sorted(replaced),
        list(_modules(model)),
        list(_tensors(model)),
        TorchSwitches.here(),
    )
    return repr(parts)


def _modules(model: torch.nn.Module) -> Iterator[Any]:
    """Path, class and attributes of each module."""
    for path, module in model.named_modules(remove_duplicate=False):
        if any(getattr(module, name, None) for name in _HOOKS):
            raise _NoNameError(f"{path or 'the model'} has hooks")
        own = [(name, _value(one)) for name, one in sorted(own_attributes(module).items())]
        yield path, type(module).__module__, type(module).__qualname__, own


def _value(value: Any, depth: int = 0) -> Any:
    """A value in words. Raises ``_NoNameError`` for an object whose content is unknown."""
    if depth > _DEEPEST:
        raise _NoNameError("a value is nested too deeply")
    kind = type(value)
    if kind in PLAIN_TYPES or isinstance(value, enum.Enum):
        return kind.__name__, repr(value)
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, type):
        return value.__module__, value.__qualname__
    if is_config(value):
        return kind.__qualname__, _of_object(value, depth)
    if isinstance(value, (list, tuple)):
        return kind.__name__, [_value(one, depth + 1) for one in value]
    if isinstance(value, (set, frozenset)):
        return kind.__name__, sorted(repr(_value(one, depth + 1)) for one in value)
    if isinstance(value, dict):
        return kind.__name__, [(repr(_value(key, depth + 1)), _value(one, depth + 1)) for key, one in value.items()]
    if code := hash_of_code(value):
        return code
    if kind is BuiltinFunctionType:
        return value.__module__, value.__qualname__
    if kind is functools.partial:
        return "partial", [_value(one, depth + 1) for one in (value.func, value.args, value.keywords)]
    if isinstance(value, torch.nn.Module):
        return "module"  # its own attributes are those of its path
    if kind.__module__.startswith("transformers.") and getattr(value, "__dict__", None):
        return kind.__qualname__, _of_object(value, depth)
    raise _NoNameError(f"the content of a {kind.__qualname__} is unknown")


def _of_object(value: Any, depth: int) -> Any:
    """The attributes of an object of the library; its private numbers, such as hashes of objects, are its bookkeeping."""
    own = [(name, one) for name, one in sorted(vars(value).items()) if not (name[0] == "_" and type(one) is int)]
    return [(name, _value(one, depth + 1)) for name, one in own]


def _tensor(value: torch.Tensor) -> Any:
    content = ""
    if not value.is_floating_point() and not value.is_complex() and not value.is_meta:
        if value.numel() * value.element_size() > _MOST_BUFFER:
            raise _NoNameError("it has a large table of integers")
        content = digest(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return type(value).__name__, tuple(value.shape), str(value.dtype), value.requires_grad, value.is_meta, content


def _tensors(model: torch.nn.Module) -> Iterator[Any]:
    """Names, shapes and types of weights and buffers, and which of them are one."""
    numbers: dict[int, int] = {}
    for names in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, one in names:
            yield name, numbers.setdefault(id(one), len(numbers)), _tensor(one)
