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
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import torch

from modular_converter.check.cache.store import digest
from modular_converter.parallel.kept_values import PACKAGE, kept_value
from modular_converter.parallel.modules import HOOKS, PLAIN_TYPES, bytes_of, is_plain, own_attributes
from modular_converter.parallel.tiny.fields import is_config
from modular_converter.parallel.tiny.inputs import examples_of
from modular_converter.parallel.torch_switches import TorchSwitches


T = TypeVar("T")
logger = logging.getLogger(__name__)
_MOST_BUFFER = 1 << 20
_DEEPEST = 6


class _NoNameError(Exception):
    """What a model's answers depend on cannot be written down."""


def kept_answer(model: Any, question: str, compute: Callable[[], T], keeps: Callable[[T], bool] = bool) -> T:
    """The answer to one question about a model, as ``AnswersOfModel`` has it."""
    return AnswersOfModel(model).answer(question, compute, keeps)


class AnswersOfModel:
    """Answers about a model that does not change between the questions, so that it is described once.

    Args:
        folder: of the cache; the oldest of many answers in it are removed.
    """

    def __init__(self, model: Any, folder: str = "plans") -> None:
        self._model, self._folder = model, folder

    @functools.cached_property
    def _name(self) -> str:
        try:
            return digest(_described(self._model).encode())
        except _NoNameError as error:
            logger.debug("%s: nothing is kept: %s", type(self._model).__name__, error)
            return ""

    def answer(self, question: str, compute: Callable[[], T], keeps: Callable[[T], bool] = bool) -> T:
        """The answer that is kept, else the computed one, as ``kept_value`` has it.

        Args:
            question: with all that the answer depends on beside the model and torch's switches.
            compute: gives values that JSON has: text, numbers and lists.
            keeps: whether an answer is worth keeping.
        """
        if not self._name:
            return compute()
        return kept_value(self._folder, digest(f"{question}\n{self._name}".encode()), compute, keeps)


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
        if any(getattr(module, name, None) for name in HOOKS):
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
        content = digest(bytes_of(value))
    return type(value).__name__, tuple(value.shape), str(value.dtype), value.requires_grad, value.is_meta, content


def _tensors(model: torch.nn.Module) -> Iterator[Any]:
    """Names, shapes and types of weights and buffers, and which of them are one."""
    numbers: dict[int, int] = {}
    for names in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, one in names:
            yield name, numbers.setdefault(id(one), len(numbers)), _tensor(one)


_DEEPEST_CLOSURE = 8
"""Functions inside of closures are followed so far."""


def is_model_code(kind: type[Any]) -> bool:
    """Whether a class is a model's own, not of torch, of Python or of transformers' base classes."""
    first, _, rest = kind.__module__.partition(".")
    return not _is_pinned(first) and (first != "transformers" or rest.startswith("models."))


def function_of(value: Any) -> Any:
    """The function of a method, property or decorated function; any other value itself."""
    value = getattr(value, "__func__", value)
    return value.fget if isinstance(value, property) else value


def names_in(code: CodeType, texts: bool = False) -> Iterator[str]:
    """The names that a function and the functions inside of it read; ``texts``: also texts, which can name an attribute."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant, texts)
        elif texts and isinstance(constant, str):
            yield constant


def hash_of_code(value: Any, without: str = "") -> str:
    """A hash of a function with its defaults and what it closes over; "" for what is no function.

    Args:
        without: a name; code that reads it has no hash.
    """
    digest = hashlib.sha256()
    return digest.hexdigest() if _add(digest, function_of(value), without, 0) else ""


def _add(digest: Any, function: Any, without: str, depth: int) -> bool:
    if not isinstance(function, FunctionType) or depth > _DEEPEST_CLOSURE:
        return False
    if without and without in names_in(function.__code__):
        return False
    _add_code(digest, function.__code__)
    named = sorted((function.__kwdefaults__ or {}).items())
    digest.update(repr([one for one in (*(function.__defaults__ or ()), *named) if is_plain(one)]).encode())
    for cell in function.__closure__ or ():
        try:
            inner = cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
        if isinstance(inner, FunctionType) and inner is not function and not _add(digest, inner, without, depth + 1):
            return False
        digest.update(repr(inner).encode() if is_plain(inner) else type(inner).__name__.encode())
    return True


def _add_code(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code + repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(digest, constant)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(repr(constant).encode())


def code_reached(kinds: Iterable[type[Any]]) -> dict[str, str]:
    """Name -> hash or value, of all that the methods of classes can reach by names of their modules.

    The code of torch, of Python and of this package is left out, unless something else stands in its place: its version
    says what it is. So are classes of transformers outside of its models.
    """
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = []
    done: set[type[Any]] = set()

    def add_class(kind: type[Any]) -> None:
        for one in kind.__mro__:
            if one not in done and is_model_code(one):
                done.add(one)
                place = f"{one.__module__}.{one.__qualname__}"
                waiting.extend((f"{place}.{name}", v) for name, v in vars(one).items() if not _is_pythons(name, v))

    for kind in kinds:
        add_class(kind)
    while waiting:
        name, value = waiting.pop()
        if name in found:
            continue
        function = function_of(value)
        if isinstance(function, type):
            add_class(function)
        elif isinstance(function, FunctionType):
            found[name] = hash_of_code(function)
            if inner := getattr(function, "__wrapped__", None):
                waiting.append((f"{name}.__wrapped__", inner))
            if not _is_pinned(function.__module__):
                waiting += _read_globals(function)
        elif isinstance(value, Mapping):
            for place, table in _tables_in(name, value):
                waiting += [(f"{place}[{key!r}]", one) for key, one in table.items() if isinstance(one, FunctionType)]
                found[place] = repr(sorted((repr(key), repr(one)) for key, one in table.items() if is_plain(one)))
        elif isinstance(value, (list, set)):
            found[name] = repr(sorted(map(repr, filter(is_plain, value))))
        elif is_plain(value):
            found[name] = repr(value)
        elif is_model_code(type(value)) and hasattr(value, "__dict__"):
            add_class(type(value))
            found[name] = repr(sorted((key, repr(one)) for key, one in vars(value).items() if is_plain(one)))
    return found


def _tables_in(name: str, value: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    """The dictionaries that a mapping is, or consists of. Its own methods are not called: some import what they look up."""
    if type(value) is dict:
        yield name, value
        return
    for scope in (value, *type(value).__mro__):
        for key, one in getattr(scope, "__dict__", {}).items():
            if type(one) is dict:
                yield f"{name}.{key}", one


def _is_pythons(name: str, value: Any) -> bool:
    """Whether a member of a class is Python's own, such as ``__slotnames__``, which a first copy of an object sets."""
    return name.startswith("__") and not isinstance(function_of(value), FunctionType)


def _read_globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    names = {name for name in names_in(function.__code__) if not name.startswith("__")}
    scopes, seen = [(function.__globals__.get("__name__", ""), function.__globals__)], set()
    while scopes:
        place, scope = scopes.pop()
        for name in names & scope.keys():
            value = scope[name]
            if not isinstance(value, ModuleType):
                yield f"{place}.{name}", value
            elif not _is_pinned(value.__name__) and value.__name__ not in seen:
                seen.add(value.__name__)
                scopes.append((value.__name__, vars(value)))


def _is_pinned(place: str | None) -> bool:
    """Whether the code of a module is known by a version: it is of torch, of Python, or of this package."""
    first = (place or "").partition(".")[0]
    return first in ("torch", "modular_converter") or first in sys.stdlib_module_names and first != "__main__"


def own_files(kinds: Iterable[type[Any]]) -> dict[str, str]:
    """Path -> hash of each loaded file that no package installed, if some of the classes are of such files."""
    installed = tuple({os.path.join(path, "") for path in (*sysconfig.get_paths().values(), *site.getsitepackages())})
    loaded = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    files = {name: path for name, path in loaded if path and not path.startswith(installed) and not _is_pinned(name)}
    if not any(one.__module__ in files for kind in kinds for one in kind.__mro__ if is_model_code(one)):
        return {}
    return {
        path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in files.values() if os.path.isfile(path)
    }


def replaced_members(scope: Any) -> dict[str, str]:
    """Name -> hash of the functions of a module or class of torch in whose place other code stands."""
    return {
        name: hash_of_code(value)
        for name, value in vars(scope).items()
        if isinstance(value, FunctionType) and not value.__globals__.get("__name__", "").startswith(("torch", "_"))
    }
