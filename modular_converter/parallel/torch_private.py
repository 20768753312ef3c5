"""The private names of torch that are used. torch promises nothing about them, so no other file names one.

Fields of modules and tensors that torch's own documents and other libraries read (``_parameters``, ``_modules``,
``_buffers``, ``_version``) are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from modular_converter.parallel.private_names import PrivateNames


if TYPE_CHECKING:  # what other classes are made of, or many lines read
    from torch.nn.modules.conv import _ConvNd as ConvNd
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

    __all__ = ["ConvNd", "TorchDispatchMode", "pytree"]

NAMES = PrivateNames(
    "torch",
    {
        "AllgatherOptions": "torch._C._distributed_c10d:AllgatherOptions",
        "AllreduceOptions": "torch._C._distributed_c10d:AllreduceOptions",
        "ConvNd": "torch.nn.modules.conv:_ConvNd",
        "DTensorSpec": "torch.distributed.tensor._dtensor_spec:DTensorSpec",
        "DeviceContext": "torch.utils._device:DeviceContext",
        "DisableTorchFunction": "torch._C:DisableTorchFunction",
        "DisableTorchFunctionSubclass": "torch._C:DisableTorchFunctionSubclass",
        "StridedShard": "torch.distributed.tensor.placement_types:_StridedShard",
        "TCPStore": "torch._C._distributed_c10d:TCPStore",
        "TensorBase": "torch._C:TensorBase",
        "TorchDispatchMode": "torch.utils._python_dispatch:TorchDispatchMode",
        "TracingContext": "torch._guards:TracingContext",
        "TrainingState": "torch.distributed.fsdp._fully_shard._fsdp_common:TrainingState",
        "backward_hooks_of_all": "torch.nn.modules.module:_global_backward_hooks",
        "backward_pre_hooks_of_all": "torch.nn.modules.module:_global_backward_pre_hooks",
        "call_impl": "torch.nn:Module._call_impl",
        "composable_registry": "torch.distributed._composable.contract:REGISTRY_KEY",
        "composable_state": "torch.distributed._composable.contract:STATE_KEY",
        "current_graph_task_id": "torch._C:_current_graph_task_id",
        "default_store": "torch.distributed.distributed_c10d:_get_default_store",
        "dict_version": "torch._C._dynamo.guards:dict_version",
        "disabled_torch_function": "torch._C:_disabled_torch_function_impl",
        "dispatch_modes": "torch.utils._python_dispatch:_get_current_dispatch_mode_stack",
        "dtensor_dispatcher": "torch.distributed.tensor:DTensor._op_dispatcher",
        "execution_engine": "torch.autograd:Variable._execution_engine",
        "forward_hooks_of_all": "torch.nn.modules.module:_global_forward_hooks",
        "forward_pre_hooks_of_all": "torch.nn.modules.module:_global_forward_pre_hooks",
        "function_modes": "torch.overrides:_get_current_function_mode_stack",
        "functorch_is_active": "torch._C:_are_functorch_transforms_active",
        "world": "torch.distributed.distributed_c10d:_world",
        "inject_new_class": "torch.nn.utils.parametrize:_inject_new_class",
        "inject_property": "torch.nn.utils.parametrize:_inject_property",
        "is_legacy_batchedtensor": "torch._C:_functorch.is_legacy_batchedtensor",
        "length_of_dispatch_stack": "torch._C:_len_torch_dispatch_stack",
        "length_of_function_stack": "torch._C:_len_torch_function_stack",
        "make_subclass": "torch:Tensor._make_subclass",
        "make_wrapper_subclass": "torch:Tensor._make_wrapper_subclass",
        "preserve_versions": "torch.autograd:_unsafe_preserve_version_counter",
        "pytree": "torch.utils._pytree:",
        "symmetric_memory": "torch.distributed._symmetric_memory:",
        "traced_collectives": "torch:ops._c10d_functional",
        "uses_of_storage": "torch._C:_storage_Use_Count",
        "will_engine_execute": "torch._C:_will_engine_execute_node",
    },
)


def __getattr__(name: str) -> Any:
    if name not in NAMES.places:
        raise AttributeError(f"{__name__} has no {name}")
    found = globals()[name] = NAMES.find(name)
    return found


def order_alone(schedule: Any) -> Any:
    """A class of schedules that plans computations without their messages, which takes the square of the micro-batches."""
    return type(schedule.__name__, (schedule,), {"_prepare_schedule_with_comms": lambda *_, **__: None})


def weights_of_unit(module: Any) -> Iterator[Any]:
    """What ``fully_shard`` keeps of each weight of a module that it was called with."""
    state = module._get_fsdp_state()
    # torch 2.11, on which figures of GPUs were measured, has one group.
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    for group in groups:
        yield from () if group is None else group.fsdp_params


def in_no_pass(unit: Any) -> bool:
    """Whether a module that ``fully_shard`` was called with is in no forward and no backward."""
    return bool(unit._get_fsdp_state()._training_state is NAMES.find("TrainingState").IDLE)


def whole_mesh(mesh: Any) -> Any:
    """The mesh of which another one is a dimension, or itself."""
    return mesh._get_root_mesh()


def as_root(model: Any) -> Any:
    """The outermost module that ``fully_shard`` was called with; else the first one that is called would be taken for it."""
    model._get_fsdp_state()._lazy_init()
    return model


def show_shares(units: Iterable[Any]) -> list[Any]:
    """Let modules hold shares while ``fully_shard`` keeps the whole weights for a backward.

    Returns:
        What ``show_whole`` takes.
    """
    found = [one for unit in units for one in weights_of_unit(unit) if one.sharded_state.name == "UNSHARDED"]
    for one in found:
        one._setattr_on_modules(one.sharded_param)
    return found


def show_whole(shown: Iterable[Any]) -> None:
    """Undo ``show_shares`` for weights that are still whole: a backward may compute a forward again."""
    for one in shown:
        if one.sharded_state.name == "UNSHARDED":
            one._unsharded_param.requires_grad_(one.sharded_param.requires_grad)
            one._setattr_on_modules(one._unsharded_param)


def end_broken_iteration(units: Sequence[Any], before: Callable[[], None]) -> bool:
    """Let the units of ``fully_shard`` forget a forward or backward that an exception has ended.

    torch leaves their state as it was in the middle: ``model.parameters()`` would stay the gathered weights, whose
    gradients are others than those of the optimizer, and a later backward would average some gradients no more.

    Args:
        before: is called first, if there is one.

    Returns:
        Whether it was a backward.
    """
    idle = NAMES.find("TrainingState").IDLE
    broken = {unit._get_fsdp_state()._training_state for unit in units} - {idle}
    if not broken:
        return False
    before()
    of_backward = broken != {NAMES.find("TrainingState").FORWARD}
    if of_backward:  # gradients of this process's rows, which no sum has reached
        for weight in (one for unit in units for one in weights_of_unit(unit)):
            weight.unsharded_accumulated_grad = None
            if hasattr(weight, "_unsharded_param"):
                weight._unsharded_param.grad = None
    for unit in units:
        if unit._get_fsdp_state()._is_root:
            unit.reset_iter_state()
    return of_backward


def storage_number(tensor: Any) -> int:
    """The number of a tensor's storage, which its views share."""
    return int(tensor.untyped_storage()._cdata)
