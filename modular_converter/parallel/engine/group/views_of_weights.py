"""Views of weights and gradients that processes share out, of which torch makes copies where it must gather entries.

On one device ``weight[3].zero_()`` writes to the weight. A view that torch has copied has a class here that looks at each of
its operations: what one writes goes to the weight too, and a view whose weight was written since is taken anew.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate

from modular_converter.parallel.engine.group.same_calls import meet_of
from modular_converter.parallel.torch_private import TracingContext, current_graph_task_id, pytree, storage_number
from modular_converter.parallel.trace.record import written_by


class CopiedView(DTensor):
    """A view that is a copy.

    Attributes:
        _origin: the tensor that it is a view of, and a function that takes the same view of a plain tensor.
        _seen: the version of that tensor when the entries were copied.
    """

    __slots__ = ()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        views = {id(one): one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, CopiedView)}
        for one in views.values():
            _renew(one)
        for one in views.values():
            one.__class__ = DTensor  # type: ignore[assignment]
        try:
            found = func(*args, **kwargs)
        finally:
            for one in views.values():
                one.__class__ = CopiedView
        for one in written_by(func, args, kwargs):
            if isinstance(one, CopiedView):
                pass_on(one)
        return as_views(found, func, args, kwargs) if is_view(func) else found

    def redistribute(self, *args: Any, **kwargs: Any) -> Any:
        _renew(self)
        return super().redistribute(*args, **kwargs)

    def full_tensor(self, **kwargs: Any) -> torch.Tensor:
        _renew(self)
        return super().full_tensor(**kwargs)

    def to_local(self, **kwargs: Any) -> torch.Tensor:
        _renew(self)
        return super().to_local(**kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        return self.clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.clone().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


@functools.lru_cache(maxsize=512)
def is_view(operation: Any) -> bool:
    """Whether the result of an operation has the memory of its first argument."""
    aliases = [one.alias_info for one in operation._schema.arguments if one.alias_info is not None]
    return bool(aliases) and not any(one.is_write for one in aliases)


def as_views(found: Any, operation: Any, args: Any, kwargs: Any) -> Any:
    """The results of a view, of which copies know what they are views of."""
    source, rest = args[0], args[1:]
    if TracingContext.try_get() is not None or _of_a_backward():
        return found
    whole = -1 if isinstance(source, CopiedView) else storage_number(source._local_tensor)
    for number, one in enumerate(found if isinstance(found, (list, tuple)) else [found]):
        if isinstance(one, DTensor) and storage_number(one._local_tensor) != whole:

            def again(tensor: torch.Tensor, number: int = number) -> torch.Tensor:
                made = operation(tensor, *rest, **kwargs)
                view: torch.Tensor = made[number] if isinstance(made, (list, tuple)) else made
                return view

            one.__class__ = CopiedView
            one._origin, one._seen = (source, again), _version(source)  # type: ignore[attr-defined]
    return found


def _of_a_backward() -> bool:
    """Whether torch takes a view for a gradient, which it then hands on as a tensor of its own; code in hooks does not."""
    if current_graph_task_id() == -1:
        return False
    frame: Any = sys._getframe(1)
    while frame is not None and _is_below(frame):
        frame = frame.f_back
    return frame is None or str(frame.f_globals.get("__name__")).startswith("torch.autograd")


def _is_below(frame: Any) -> bool:
    """Whether this is code that computes an operation, and not code that calls one."""
    name = str(frame.f_globals.get("__name__"))
    return name.startswith(
        ("modular_converter.parallel.engine.group.", "torch.distributed.", "torch._", "torch.functional")
    )


def pass_on(view: Any) -> None:
    """Write the entries of a view to what it is a view of; all processes must call this."""
    source, again = view._origin
    meet_of("code that writes to a view of a weight or gradient", view.device_mesh.mesh.flatten().tolist())
    whole = whole_of(source)
    again(whole).copy_(whole_of(view))
    write_whole(source, whole)
    if isinstance(source, CopiedView):
        pass_on(source)
    counts = view._base is not None  # then torch counts the write at both, behind this
    if not counts and not source.is_inference():
        increment_version(source)
    view._seen = _version(source) + counts


def _renew(view: Any) -> None:
    """Take a view anew of what was written since."""
    source, again = view._origin
    if isinstance(source, CopiedView):
        _renew(source)
    version = _version(source)
    if version != view._seen:
        meet_of("code that reads a view of a weight that was written", view.device_mesh.mesh.flatten().tolist())
        view._seen = version
        write_whole(view, again(whole_of(source)))


def _version(tensor: Any) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)


def whole_of(tensor: Any) -> torch.Tensor:
    """The whole tensor, as one that may be written."""
    found: torch.Tensor = tensor.detach().full_tensor().clone()
    return found


def cut_as(whole: torch.Tensor, mesh: DeviceMesh, placements: Any) -> DTensor:
    """The parts of a whole tensor; each process has it."""
    placements = [Replicate() if isinstance(one, Partial) else one for one in placements]
    return DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False).redistribute(mesh, placements)


def write_whole(tensor: Any, whole: torch.Tensor) -> None:
    """Let a DTensor have the entries of a whole one. Sums that are due on its processes have been made."""
    found = cut_as(whole, tensor.device_mesh, tensor.placements)
    if found.placements == tensor.placements:
        tensor._local_tensor.copy_(found._local_tensor)
    else:
        tensor._local_tensor, tensor._spec = found._local_tensor, found._spec
