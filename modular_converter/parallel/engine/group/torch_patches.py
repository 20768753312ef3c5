"""The functions of torch that are changed for all models of a process, while it has a sharded model.

All of them are here, with the models that use them: the first model puts them in, and the end of the last one (``unshard``,
or no reference to it) takes them out. Other libraries may wrap the same functions before and after: each function knows
by its own record, never by an attribute that a wrapper copies, whether it is in place.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.utils.clip_grad
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from modular_converter.parallel.engine.group.gradients import checked_backward, checked_grad, unscale_together
from modular_converter.parallel.engine.group.kept_gathered import note_data
from modular_converter.parallel.engine.group.optimizer_steps import before_step, norm_of_whole
from modular_converter.parallel.engine.group.refused_wrappers import checked_replicas
from modular_converter.parallel.engine.group.whole_operations import WholeOperations
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.torch_private import TensorBase


class Patch:
    """A function of torch with code of ours around it.

    Args:
        owner: a class or module.
        around: gets the models that use the patch, the function as it was, and the arguments of a call.
    """

    def __init__(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        self.owner, self.name, self.around = owner, name, around
        self.users: Any = None
        self.calling = threading.local()
        self.made: list[tuple[Any, Any]] = []  # our functions with what they are around, in order

    def enter(self, users: Any) -> None:
        """Put our function in, unless it is outermost. If another one is around ours, the outer one of ours acts alone."""
        self.users = users
        own = vars(self.owner).get(self.name)
        if own is None or any(own is made for made, _ in self.made):
            return

        @functools.wraps(own)
        def made(*args: Any, **kwargs: Any) -> Any:
            if self.users is None or getattr(self.calling, "inside", False):
                return own(*args, **kwargs)
            self.calling.inside = True
            try:
                return self.around(self.users, own, *args, **kwargs)
            finally:
                self.calling.inside = False

        self.made.append((made, own))
        setattr(self.owner, self.name, made)

    def leave(self) -> None:
        """Take our function out. One that others have wrapped stays inside and only calls on."""
        self.users = None
        while self.made and vars(self.owner).get(self.name) is self.made[-1][0]:
            setattr(self.owner, self.name, self.made.pop()[1])


class AssignedData:
    """``weight.data = value`` of the models' DTensors: torch takes it without a word, and the weight stays as it was."""

    def __init__(self) -> None:
        self.own: Any = vars(TensorBase)["data"]
        self.users: Any = ()
        self.made = property(self._read, self._assign)

    def enter(self, users: Any) -> None:
        self.users = users
        if "data" not in vars(DTensor):
            DTensor.data = self.made  # type: ignore[assignment]

    def leave(self) -> None:
        self.users = ()
        if vars(DTensor).get("data") is self.made:
            del DTensor.data

    def _read(self, weight: Any) -> Any:
        found = self.own.__get__(weight)
        note_data(weight, found)
        return found

    def _assign(self, weight: Any, value: Any) -> None:
        """Write the value where the weight is. Raises ``ApplyError`` for one of another form."""
        if not any(weight is one for user in self.users for one in user.parameters()):
            self.own.__set__(weight, value)
            return
        same = isinstance(value, DTensor) and value.placements == weight.placements and value.dtype == weight.dtype
        if not same or value.shape != weight.shape or value.device_mesh != weight.device_mesh:
            raise ApplyError(
                "weight.data = value: the value must be a DTensor with the weight's shape, type and placements, as "
                "computed from the weight itself; for a whole tensor take load_full_state_dict"
            )
        weight._local_tensor.data.copy_(value._local_tensor)


class Patches:
    """Patches and a hook before each step of an optimizer, in place while there are users."""

    def __init__(self, patches: list[Any], before_step: Callable[..., None]) -> None:
        self.patches, self.before_step = patches, before_step
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        self.handle: Any = None

    def enter(self, user: Any) -> None:
        """Put all patches in for a model; they go when the last model has gone."""
        if user not in self.users:
            self.users.add(user)
            weakref.finalize(user, self._look).atexit = False
        for patch in self.patches:
            patch.enter(self.users)
        if self.handle is None:
            self.handle = register_optimizer_step_pre_hook(self._step)

    def leave(self, user: Any) -> None:
        """Without this model."""
        self.users.discard(user)
        self._look()

    def _look(self) -> None:
        if any(True for _ in self.users):  # only the living ones
            return
        for patch in self.patches:
            patch.leave()
        if self.handle is not None:
            self.handle.remove()
            self.handle = None

    def _step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not dist.is_initialized():  # the groups of all models have ended
            self.users.clear()
            self._look()
            return
        self.before_step(self.users, optimizer, args, kwargs)


PATCHES = Patches(
    [
        Patch(torch.amp.GradScaler, "_unscale_grads_", unscale_together),
        Patch(torch.nn.parallel.DistributedDataParallel, "__init__", checked_replicas),
        Patch(
            torch.nn.utils.clip_grad, "_get_total_norm", norm_of_whole
        ),  # of `clip_grad_norm_`, however it was imported
        Patch(torch.nn.utils, "get_total_norm", norm_of_whole),
        Patch(torch.autograd, "grad", checked_grad),
        Patch(torch.autograd, "backward", checked_backward),  # of a tensor, too
        AssignedData(),
        WholeOperations(),
    ],
    before_step,
)
