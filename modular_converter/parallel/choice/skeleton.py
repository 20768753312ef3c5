"""A model without its data: its skeleton (modules, pickled without tensors), put together again, and run on tensors without data."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar, cast

import torch
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from modular_converter.parallel import transformers_private
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.torch_private import inject_new_class, inject_property
from modular_converter.parallel.trace.record import RunsWithoutData


@dataclass(frozen=True)
class Item:
    """One tensor of a model.

    Attributes:
        name: of a parameter or buffer; ``""`` for a tensor that is neither.
        kept: its type on the ranks.
        parameter: whether it is a parameter, so that a plan can shard it.
        gradient: whether it requires gradients.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    kept: torch.dtype
    parameter: bool
    gradient: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one entry of the first dimension."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1


@dataclass(frozen=True)
class Skeleton:
    """A model without the data of its tensors; picklable."""

    pickled: bytes
    items: tuple[Item, ...]


_INSTALLED = "_output_capturing_hooks_installed"


class _Dismantler(pickle.Pickler):
    def __init__(self, file: Any, model: torch.nn.Module) -> None:
        super().__init__(file, protocol=5)
        self.names: dict[int, tuple[str, bool]] = {}
        for name, buffer in model.named_buffers():
            self.names[id(buffer)] = (name, False)
        for name, parameter in model.named_parameters():
            self.names[id(parameter)] = (name, True)
        self.numbers: dict[int, int] = {}
        self.tensors: list[torch.Tensor] = []

    def reducer_override(self, value: Any) -> Any:
        """Reduce modules that pickle refuses or that hold closures of the library, see ``_restore``, and hook handles."""
        if isinstance(value, RemovableHandle):  # which would hold all hooks of its module
            return RemovableHandle, (OrderedDict(),)
        if isinstance(value, FunctionType) and (own := _before_compile(value)) is not None:
            return _itself, (own,)
        if not isinstance(value, torch.nn.Module):
            return NotImplemented
        compiled = [name for name, one in vars(value).items() if _is_compiled_call(one, value)]
        parametrized = parametrize.is_parametrized(value)
        captured = any(map(_captures, value._forward_hooks.values())) or _INSTALLED in vars(value)
        if not parametrized and not captured and not compiled:
            return NotImplemented
        own = type(value).__mro__[1] if parametrized else type(value)
        state = {**vars(value)}
        kept = {key: hook for key, hook in value._forward_hooks.items() if not _captures(hook)}
        state["_forward_hooks"] = type(value._forward_hooks)(kept)
        for name in (_INSTALLED, "_compiled_call_impl", *compiled):
            state.pop(name, None)
        if parametrized:
            state["_load_state_dict_pre_hooks"] = type(value._load_state_dict_pre_hooks)()  # for old checkpoints
        return (_blank, (own,), state, None, None, _restore)

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.tensors)
            self.tensors.append(value)
        return self.numbers[id(value)]


def _before_compile(value: Any) -> Any:
    """The function of which ``torch.compile`` has made another one; None for a function that it has not made."""
    return vars(value).get("_torchdynamo_orig_callable") if isinstance(value, FunctionType) else None


def _is_compiled_call(value: Any, module: torch.nn.Module) -> bool:
    """Whether a module's attribute is a compiled form of its own method, such as ``generate`` makes: other processes make
    their own.
    """
    return getattr(_before_compile(value), "__self__", None) is module


def _itself(value: Any) -> Any:
    return value


def _blank(kind: type[torch.nn.Module]) -> torch.nn.Module:
    return kind.__new__(kind)


def _restore(module: torch.nn.Module, state: dict[str, Any]) -> None:
    """Give a module its state, without the library's hooks that capture outputs: the library installs them anew.

    A parametrized module (weight norm) gets a new class made by torch: pickle cannot find the old one.
    """
    module.__dict__.update(state)
    parametrizations = module._modules.get("parametrizations")
    if parametrizations is None:
        return
    inject_new_class(module)
    for name in cast(torch.nn.ModuleDict, parametrizations):
        inject_property(module, name)


def _captures(hook: Any) -> bool:
    """Whether a hook is a closure of the library, to capture outputs or to train: pickle cannot hold it."""
    own = str(getattr(hook, "__module__", "")).startswith("transformers.")
    return own and "<locals>" in str(getattr(hook, "__qualname__", ""))


def kept_types(model: Any, dtype: torch.dtype | None) -> Callable[[str, torch.Tensor], torch.dtype]:
    """A function from a tensor's name and value to its type on the devices, as in ``from_pretrained(dtype=...)``.

    Weights that the model keeps in float32, buffers that are not saved, and integers keep their types.
    """
    saved = set(model.state_dict()) if dtype is not None else set()
    exact = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        exact |= set(getattr(model, "_keep_in_fp32_modules", None) or ())

    def kept(name: str, tensor: torch.Tensor) -> torch.dtype:
        if dtype is None or not tensor.is_floating_point() or name not in saved:
            return tensor.dtype
        return torch.float32 if any(part in name for part in exact) else dtype

    return kept


def dismantle(
    model: torch.nn.Module, kept: Callable[[str, torch.Tensor], torch.dtype]
) -> tuple[Skeleton, list[torch.Tensor]]:
    """A model as its skeleton and its tensors; the model is unchanged.

    Args:
        kept: name and tensor -> the tensor's type on the ranks.

    Raises ``ApplyError`` if an object in the model cannot be pickled; the message names it.
    """
    file = io.BytesIO()
    dismantler = _Dismantler(file, model)
    try:
        dismantler.dump(model)
    except Exception as error:  # pickle raises what the object's own code raises
        raise ApplyError(
            f"the model cannot be sent to other processes: {type(error).__name__}: {error}; "
            "define the class or function that it names at the top of a file, or remove it; a hook can also be registered behind "
            "parallelize"
        ) from error
    items = []
    for tensor in dismantler.tensors:
        name, parameter = dismantler.names.get(id(tensor), ("", False))
        items.append(
            Item(name, tuple(tensor.shape), tensor.dtype, kept(name, tensor), parameter, tensor.requires_grad)
        )
    return Skeleton(file.getvalue(), tuple(items)), dismantler.tensors


def skeleton_of(model: torch.nn.Module) -> Skeleton:
    """A model's skeleton, in which all tensors keep their types."""
    return dismantle(model, lambda name, tensor: tensor.dtype)[0]


class _Assembler(pickle.Unpickler):
    def __init__(self, skeleton: Skeleton, device: torch.device) -> None:
        super().__init__(io.BytesIO(skeleton.pickled))
        self.items, self.device = skeleton.items, device
        self.made: dict[int, torch.Tensor] = {}

    def persistent_load(self, number: Any) -> torch.Tensor:
        if number not in self.made:
            item = self.items[number]
            if item.parameter:
                empty = torch.empty(item.shape, dtype=item.kept, device="meta")
                self.made[number] = torch.nn.Parameter(empty, requires_grad=item.gradient)
            else:
                self.made[number] = torch.empty(item.shape, dtype=item.kept, device=self.device)
        return self.made[number]


def assemble_model(skeleton: Skeleton, device: torch.device) -> tuple[torch.nn.Module, dict[int, torch.Tensor]]:
    """The model with parameters on the meta device and other tensors empty on ``device``; and its tensors by number.

    Raises ``ApplyError`` if an object can be pickled but not restored, such as a method that was set on a module.
    """
    assembler = _Assembler(skeleton, device)
    try:
        model: torch.nn.Module = assembler.load()
    except Exception as error:  # what the object's own code raises
        raise ApplyError(
            f"the model cannot be put together in other processes: {type(error).__name__}: {error}; "
            "give the method that it names to the class, not to one module"
        ) from error
    _register_outputs(model)
    return model, assembler.made


def _register_outputs(model: torch.nn.Module) -> None:
    """Register the outputs that the model's classes can record. Their constructors, which do this, have not run here."""
    for module in model.modules():
        if hasattr(module, "_can_record_outputs"):
            registry = transformers_private.recordable_outputs
            dict.setdefault(registry, str(type(module)), module._can_record_outputs)


META = torch.device("meta")
T = TypeVar("T")


class Guesses(TorchFunctionMode):
    """A context in which tensors without data answer questions about their values with no or zero.

    Args:
        finds_nothing: they also have no entry other than zero, so that no expert is called; else this question fails.

    Attributes:
        guessed: whether a question has been answered, so that other data may take another way through the code.
    """

    def __init__(self, finds_nothing: bool = True) -> None:
        super().__init__()
        self.finds_nothing, self.guessed = finds_nothing, False
        self._known: Any = RunsWithoutData()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Any:
        self._known.__enter__()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        self._known.__exit__(*exception)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _ANSWERS and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            self.guessed = True
            return _ANSWERS[name](args[0])
        if name == "nonzero" and self.finds_nothing and args and args[0].is_meta:
            none = torch.empty(0, args[0].dim(), dtype=torch.int64, device=META)
            return none.unbind(1) if (kwargs or {}).get("as_tuple") else none
        if name in _BFLOAT16_ALONE and args and args[0].is_meta:
            return func(*_half(args), **_half(kwargs or {})).to(args[0].dtype)
        return func(*args, **(kwargs or {}))


def _number(tensor: torch.Tensor) -> bool | int | float:
    return False if tensor.dtype == torch.bool else 0.0 if tensor.is_floating_point() else 0


_ANSWERS: dict[str, Callable[[torch.Tensor], Any]] = {
    **dict.fromkeys(("__bool__", "__contains__"), lambda _: False),
    **dict.fromkeys(("__int__", "__index__"), lambda _: 0),
    "__float__": lambda _: 0.0,
    "item": _number,
    "_is_all_true": lambda _: torch.tensor(True, device="cpu"),  # of checks: no data could be wrong
}
# Products that take no other type than bfloat16 without data.
_BFLOAT16_ALONE = ("_grouped_mm", "grouped_mm")


def _half(values: Any) -> Any:
    def half(value: Any) -> Any:
        return value.bfloat16() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return {name: half(v) for name, v in values.items()} if isinstance(values, dict) else [half(v) for v in values]


def run_without_data(model: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """The result of a model on the meta device; the inputs need no data. Raises the errors of the model's code."""
    with torch.no_grad(), Guesses():
        return model(*map(on_meta, args), **{name: on_meta(value) for name, value in (kwargs or {}).items()})


def tried_without_data(run: Callable[[], T]) -> T:
    """The result of a run on the meta device.

    If the run fails, a second try creates all new tensors on the meta device: a mask that the model's code creates
    without a device has data, and cannot be combined with tensors without data. Raises the error of the first try.
    """
    try:
        return run()
    except Exception as error:
        first = error
    try:
        with META:
            return run()
    except Exception:
        raise first from None


def on_meta(value: Any) -> Any:
    """A copy of a value with all its tensors on the meta device; a run on it leaves caches in it as they are.

    Raises ApplyError for an object that cannot be copied: such a run would use it in earnest, as it would a model.
    """
    if isinstance(value, torch.Tensor):
        return value.to(META)
    if type(value) is dict:
        return {name: on_meta(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(on_meta(item) for item in value)
    try:
        if isinstance(value, torch.nn.Module):
            raise TypeError("its weights have data")
        with _CopiesWithoutData():
            return copy.deepcopy(value)
    except Exception as error:  # of the object's own code
        raise ApplyError(f"{type(value).__name__} has no copy for a run without data: {error}") from error


class _CopiesWithoutData(TorchFunctionMode):
    """A context in which copies of tensors have no data."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0].detach().to(META) if func is torch.Tensor.__deepcopy__ else func(*args, **(kwargs or {}))
