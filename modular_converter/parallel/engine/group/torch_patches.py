"""The functions of torch that are changed for all models of a process, while it has a sharded model.

All of them are here, with the models that use them: the first model puts them in, and the end of the last one (``unshard``,
or no reference to it) takes them out. Other libraries may wrap the same functions before and after: each function knows
by its own record, never by an attribute that a wrapper copies, whether it is in place.

A tensor of the caller's own in an operation with weights that processes share out must be the same on all, as one device
has one: each process computes with its own.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.utils.clip_grad
import torch.nn.utils.parametrize
from torch.autograd.graph import increment_version
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.optim.optimizer import register_optimizer_step_pre_hook

from modular_converter.parallel.engine.base.dropout import draw_as_first
from modular_converter.parallel.engine.group import let_go
from modular_converter.parallel.engine.group.gradients import (
    checked_backward,
    checked_grad,
    checked_replicas,
    unscale_together,
)
from modular_converter.parallel.engine.group.kept_gathered import note_data
from modular_converter.parallel.engine.group.optimizer_steps import before_step, norm_of_whole
from modular_converter.parallel.engine.group.process_grid import is_of_models, mean_over
from modular_converter.parallel.engine.group.same_calls import digest_of, meet_of, refused_here, together
from modular_converter.parallel.engine.group.share_tensors import DRAWN, ShareTensor, note_step, without_other_stages
from modular_converter.parallel.engine.group.spread import weights_of_units
from modular_converter.parallel.engine.group.views_of_weights import (
    CopiedView,
    as_views,
    cut_as,
    is_view,
    pass_on,
    whole_of,
    write_whole,
)
from modular_converter.parallel.errors import MAKE_WHOLE, ApplyError
from modular_converter.parallel.torch_private import (
    DTensorSpec,
    TensorBase,
    TracingContext,
    dtensor_dispatcher,
    pytree,
)
from modular_converter.parallel.trace.record import written_by


def plain_among(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors of more than one number that are no DTensors; torch takes one number for that of all processes."""
    for one in (*args, *kwargs.values()):
        for tensor in one if isinstance(one, (list, tuple)) else (one,):
            if isinstance(tensor, torch.Tensor) and not isinstance(tensor, DTensor) and tensor.numel() != 1:
                yield tensor


def meet_with(operation: Any, plain: Sequence[torch.Tensor], written: Sequence[Any], mesh: DeviceMesh) -> None:
    """Wait until all processes of a mesh compute an operation of DTensors with these tensors.

    Raises ``ApplyError`` for tensors that are not the same on all, that get a gradient, or that the operation writes to.
    """
    if any(one.requires_grad or any(one is other for other in written) for one in plain):
        raise refused_here(
            f"{operation} of a weight or gradient that processes share out, and of a tensor of your own that gets a gradient or "
            "is written: take the whole weight, weight.full_tensor()"
        )
    about = ", ".join(f"{list(one.shape)} ({digest_of(one)[:12]})" for one in plain)
    meet_of(
        f"code that computes {operation} of a weight or gradient that processes share out and of its own tensor {about}, which "
        "must be the same on all (else take weight.full_tensor())",
        mesh.mesh.flatten().tolist(),
    )


_NUMBER = torch.ops.aten._local_scalar_dense.default
# Steps of optimizers that treat each entry alone, for which torch has no placements; on whole tensors they take their memory.
_FUSED_STEPS = frozenset((torch.ops.aten._fused_sgd_, torch.ops.aten._fused_adagrad_))
# Where torch chooses placements; it hands an error of its own on.
_PLACES = "_propagate_op_sharding_dispatch_slow_path"


def _forms(names: str) -> Iterator[Any]:
    """The forms of operations whose first argument is a tensor."""
    for name in names.split():
        packet = getattr(torch.ops.aten, name)
        forms = [getattr(packet, one) for one in packet.overloads()]
        yield from (
            one for one in forms if str(one._schema.arguments[0].type) == "Tensor" and "out" not in one._overloadname
        )


class WholeOperations:
    """A patch (see ``Patches``) of torch's dispatcher of DTensors."""

    def __init__(self) -> None:
        self.handlers: dict[Any, Callable[..., Any]] = dict.fromkeys(_placed_with_others(), _with_plain)
        self.handlers[_NUMBER] = on_whole
        self.handlers |= dict.fromkeys(_forms(DRAWN), _noise)
        self.handlers |= dict.fromkeys(_forms("index_put_ index_put"), on_whole)
        self.handlers = {one: functools.partial(_of_models, handler) for one, handler in self.handlers.items()}

    def enter(self, users: Any) -> None:
        for operation, handler in self.handlers.items():
            dtensor_dispatcher._custom_op_handlers.setdefault(operation, handler)
        if _PLACES not in vars(dtensor_dispatcher):
            setattr(dtensor_dispatcher, _PLACES, functools.partial(_placed, getattr(dtensor_dispatcher, _PLACES)))

    def leave(self) -> None:
        for operation, handler in self.handlers.items():
            if dtensor_dispatcher._custom_op_handlers.get(operation) is handler:
                del dtensor_dispatcher._custom_op_handlers[operation]
        vars(dtensor_dispatcher).pop(_PLACES, None)


def _placed_with_others() -> Iterator[Any]:
    """The operations on several tensors for which torch has placements."""
    known = dtensor_dispatcher.sharding_propagator
    for operation in {**known.op_strategy_funcs, **known.op_single_dim_strategy_funcs}:
        kinds = [kind for kind in (str(one.type) for one in operation._schema.arguments) if "Tensor" in kind]
        if len(kinds) > 1 or "List[Tensor]" in kinds:
            yield operation


def _of_models(handler: Callable[..., Any], operation: Any, args: Any, kwargs: Any) -> Any:
    """What a handler makes of DTensors of our models; of those of others, what torch does."""
    if any(map(is_of_models, pytree.tree_leaves((args, kwargs)))):
        return handler(operation, args, kwargs)
    return _of_torch(operation, args, kwargs)


def _of_torch(operation: Any, args: Any, kwargs: Any) -> Any:
    handlers = dtensor_dispatcher._custom_op_handlers
    own = handlers.pop(operation, None)  # torch looks there first, and has no other way to its own code
    try:
        return operation(*args, **kwargs)
    finally:
        handlers[operation] = own


def _with_plain(operation: Any, args: Any, kwargs: Any) -> Any:
    """An operation on DTensors, and perhaps on tensors of the caller's own, for which torch's own code is an error."""
    if TracingContext.try_get() is None and any(True for _ in plain_among(args, kwargs)):
        return on_whole(operation, args, kwargs)
    return _of_torch(operation, args, kwargs)


def on_whole(operation: Any, args: Any, kwargs: Any) -> Any:
    """What an operation gives, computed by all processes on whole tensors; results are cut like an argument of their shape.

    Tensors of the caller's own must be the same on all processes.
    """
    given = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, DTensor)]
    mesh = given[0].device_mesh
    if any(one.device_mesh != mesh for one in given):
        raise ApplyError(
            f"{operation} of DTensors over different processes, {mesh} and others: take full_tensor() of each"
        )
    plain = [*plain_among(args, kwargs)]
    if plain:
        meet_with(operation, plain, written_by(operation, args, kwargs), mesh)
    elif any(not isinstance(placement, Replicate) for one in given for placement in one.placements):
        meet_of(f"code that computes {operation} of DTensors", mesh.mesh.flatten().tolist())
    whole = {id(one): whole_of(one) for one in given}
    args_of_all, kwargs_of_all = pytree.tree_map(lambda one: whole.get(id(one), one), (args, kwargs))
    found = operation(*args_of_all, **kwargs_of_all)
    written = {id(whole[id(one)]): one for one in given}

    def cut(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        own = written.get(id(result))
        if own is not None:
            return own
        like = next((one for one in given if one.shape == result.shape), None)
        return cut_as(result, mesh, [Replicate()] * mesh.ndim if like is None else like.placements)

    for changed in written_by(operation, args, kwargs):
        if isinstance(changed, DTensor):
            write_whole(changed, whole[id(changed)])
    result = pytree.tree_map(cut, found)
    return as_views(result, operation, args, kwargs) if is_view(operation) else result


def _noise(operation: Any, args: Any, kwargs: Any) -> Any:
    first = next(one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, DTensor))
    mesh, place, generator = first.device_mesh, first._local_tensor.device, kwargs.get("generator")
    with contextlib.ExitStack() as stack:
        for dim in range(mesh.ndim):
            stack.callback(draw_as_first(mesh.get_group(dim), place, generator))
        return on_whole(operation, args, kwargs)


def _placed(own: Callable[..., Any], operation: Any, args: Any, kwargs: Any, info: Any, try_cache: bool) -> Any:
    """torch's choice of placements; where it has none, the result on whole tensors.

    torch keeps a choice where it computes the result itself. A view that is taken here is kept in its other table: a row
    took 1.6 ms instead of 0.5.
    """
    if not any(map(is_of_models, pytree.tree_leaves((args, kwargs)))):
        return own(operation, args, kwargs, info, try_cache)
    try:
        found = own(operation, args, kwargs, info, try_cache or is_view(operation))
    except (RuntimeError, NotImplementedError):
        if TracingContext.try_get() is not None:
            raise
        if operation.overloadpacket in _FUSED_STEPS and _are_cut_alike(args):
            return operation(*_shares(args), **_shares(kwargs))
        return on_whole(operation, args, kwargs)
    if is_view(operation) and TracingContext.try_get() is None:
        schema = getattr(found, "redistribute_schema", None)
        placements = args[0].placements if schema is None else schema.args_schema[0].placements
        if placements != args[0].placements:
            gathered = args[0].redistribute(placements=placements)
            return as_views(operation(gathered, *args[1:], **kwargs), operation, args, kwargs)
    due = TracingContext.try_get() is None and _has_due_terms(found)
    return _summed(found, operation, args, kwargs) if due else found


def _are_cut_alike(args: Any) -> bool:
    """Whether each weight in the lists of a fused step is cut as its gradient and its state are."""
    lists = [[one for one in given if isinstance(one, DTensor)] for given in args if isinstance(given, (list, tuple))]
    rows = zip(*(one for one in lists if one))
    return len({len(one) for one in lists if one}) == 1 and all(
        len({one.placements for one in row}) == 1 and not any(isinstance(p, Partial) for p in row[0].placements)
        for row in rows
    )


def _shares(given: Any) -> Any:
    return pytree.tree_map(lambda one: one._local_tensor if isinstance(one, DTensor) else one, given)


def _has_due_terms(found: Any) -> bool:
    """Whether a result is of terms, of which each process has one. Norms, which are stacked first, are not."""
    spec = getattr(found, "output_spec", None)
    if spec is None or not isinstance(spec, DTensorSpec) or spec.tensor_meta is None:
        return False
    kind = spec.tensor_meta.dtype
    counts = not kind.is_floating_point and not kind.is_complex
    return any(type(one) is Partial for one in spec.placements) and (counts or not found.needs_redistribute)


def _summed(found: Any, operation: Any, args: Any, kwargs: Any) -> Any:
    """The sum of the processes' terms, at once.

    torch keeps the choice for ``term + 5`` as that for ``term + count``, where ``count`` is a DTensor: each process would add
    the 5, or fail.
    """
    if found.needs_redistribute:
        return on_whole(operation, args, kwargs)
    spec = found.output_spec
    terms = DTensor.from_local(
        operation(*_shares(args), **_shares(kwargs)), spec.mesh, spec.placements, run_check=False
    )
    return terms.redistribute(placements=[Replicate() if isinstance(one, Partial) else one for one in spec.placements])


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


class Added:
    """An attribute of DTensors in place of the one that they have from plain tensors.

    Args:
        made: a property, or a function, which those of our models have as a method.
    """

    users: Any = ()

    def __init__(self, name: str, made: Any) -> None:
        def called(weight: Any, *args: Any, **kwargs: Any) -> Any:
            own = made.__get__(weight) if is_of_models(weight) else getattr(super(DTensor, weight), name)
            return own(*args, **kwargs)

        self.name, self.made = name, called if callable(made) else made

    def enter(self, users: Any) -> None:
        self.users = users
        if self.name not in vars(DTensor):
            setattr(DTensor, self.name, self.made)

    def leave(self) -> None:
        self.users = ()
        if vars(DTensor).get(self.name) is self.made:
            delattr(DTensor, self.name)


def _new(weight: Any, *size: Any) -> Any:
    """``weight.new(size)``, of which torch makes a plain tensor, in `LBFGS` for a weight that has no gradient."""
    if len(size) == 1 and isinstance(size[0], (list, torch.Tensor)):  # their entries
        return TensorBase.new(weight, *size)
    return weight.new_empty(size)


def _is_of(weight: Any, models: Iterable[Any]) -> bool:
    return any(weight is one for model in models for one in model.parameters())


class AssignedData(Added):
    """``weight.data = value`` of the models' DTensors: torch takes it without a word, and the weight stays as it was."""

    def __init__(self) -> None:
        super().__init__("data", property(self._read, self._assign))
        self.own: Any = vars(TensorBase)["data"]

    def _read(self, weight: Any) -> Any:
        found = self.own.__get__(weight)
        note_data(weight, found)
        return found

    def _assign(self, weight: Any, value: Any) -> None:
        """Give the weight new memory with the value, so that what has the old one keeps its numbers, as on one device.

        Raises ``ApplyError`` for a value of another form.
        """
        if not _is_of(weight, self.users):
            self.own.__set__(weight, value)
            return
        same = isinstance(value, DTensor) and value.placements == weight.placements and value.dtype == weight.dtype
        if not same or value.shape != weight.shape or value.device_mesh != weight.device_mesh:
            raise refused_here(
                "weight.data = value: the value must be a DTensor with the weight's shape, type and placements, as "
                "computed from the weight itself; for a whole tensor take load_full_state_dict"
            )
        own = weight._local_tensor
        own.data = value._local_tensor.detach().clone()
        increment_version(own)
        for user in self.users:
            for one in weights_of_units(user):
                if one.sharded_param is weight:
                    one.reset_sharded_param()


class HookOfWeight(Added):
    """``weight.register_hook`` of the models' DTensors: the gradients of data ranks come to a weight past its hooks."""

    def __init__(self) -> None:
        super().__init__("register_hook", lambda weight, hook: self._register(weight, hook))

    def _register(self, weight: Any, hook: Any) -> Any:
        data = [user for user in self.users if user.__dict__.get("_grid") is not None and user._grid.data is not None]
        if _is_of(weight, data):
            raise ApplyError(
                "weight.register_hook: data ranks average the gradient of a weight and put it there past such hooks: take "
                "weight.register_post_accumulate_grad_hook, or change weight.grad before the step"
            )
        return torch.Tensor.register_hook(weight, hook)  # type: ignore[no-untyped-call]


def _averaged(users: Any, own: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """``full_tensor`` of a weight, or of what is computed from weights: its gradient is the mean over data ranks.

    These have parts of a batch, and a loss of the caller's own in which whole weights meet them. Gradients of penalties are
    the same on all, so that their mean is no other.
    """
    if not is_of_models(tensor):
        return own(tensor, *args, **kwargs)
    if not let_go.computes_together() and any(not isinstance(one, Replicate) for one in tensor.placements):
        meet_of("full_tensor of a weight or gradient", tensor.device_mesh.mesh.flatten().tolist())
    found = own(tensor, *args, **kwargs)
    if found.requires_grad:
        grids = (user.__dict__.get("_grid") for user in users if _has_mesh(user, tensor.device_mesh))
        data = next((one.data for one in grids if one is not None and one.data is not None), None)
        if data is not None:
            found.register_hook(mean_over(data, data.size()))
    return found


def _has_mesh(user: Any, mesh: Any) -> bool:
    return any(getattr(one, "device_mesh", None) == mesh for one in user.parameters())


class AssignedGradient(Added):
    """``weight.grad = whole`` of the models' DTensors, of which each process takes its part, as the next backward needs it."""

    def __init__(self) -> None:
        self.own: Any = vars(TensorBase)["grad"]
        super().__init__("grad", property(self.own.__get__, self._assign, self.own.__delete__))

    def _assign(self, weight: Any, value: Any) -> None:
        if type(value) is torch.Tensor and value.shape == weight.shape and _is_of(weight, self.users):
            value = _own_part("a gradient", weight, value)
        self.own.__set__(weight, value)


def _own_part(name: str, weight: Any, whole: torch.Tensor) -> Any:
    """A whole tensor, the same on all processes, as a DTensor cut like a weight."""
    meet_with(name, [whole.detach()], [], weight.device_mesh)
    placed = whole.detach().to(weight._local_tensor.device).expand(weight.shape)
    return cut_as(placed, weight.device_mesh, weight.placements)


def _copied(weight: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
    """``weight.copy_(whole)``, of which each process takes its part; torch takes DTensors alone."""
    if type(source) in (torch.Tensor, torch.nn.Parameter) and source.dim() and not isinstance(weight, ShareTensor):
        source = _own_part("a copy", weight, source)
    return TensorBase.copy_(weight, source, *args, **kwargs)


def _set_entries(weight: Any, index: Any, value: Any) -> None:
    """``weight[index] = value`` on all processes: torch writes to a copy where some entries are of other processes."""
    view = isinstance(weight, CopiedView)
    is_cut = view or any(not isinstance(one, Replicate) for one in weight.placements)
    if not is_cut or isinstance(weight, ShareTensor) or torch.is_grad_enabled() and weight.requires_grad:
        TensorBase.__setitem__(weight, index, value)
        return
    meet_of("code that writes entries of a weight or gradient", weight.device_mesh.mesh.flatten().tolist())
    whole = whole_of(weight)
    index, value = pytree.tree_map(lambda one: whole_of(one) if isinstance(one, DTensor) else one, (index, value))
    whole[index] = value
    write_whole(weight, whole)
    if view:
        pass_on(weight)
    if not weight.is_inference():
        increment_version(weight)


def _refuse_parametrization(users: Any, own: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    """``register_parametrization``, which replaces a weight by a function of others."""
    if any(module is one for user in users if isinstance(user, torch.nn.Module) for one in user.modules()):
        raise ApplyError(
            f"a parametrization of a {type(module).__name__} would replace weights that processes share out: put it on the model "
            f"before parallelize, or {MAKE_WHOLE}"
        )
    return own(module, *args, **kwargs)


def _refuse_shares(users: Any, own: Any, module: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
    """``load_state_dict`` of a whole module, which takes no DTensors."""
    spread = any(isinstance(one, DTensor) for one in getattr(state, "values", list)())
    if spread and not any(isinstance(one, DTensor) for one in module.parameters()):
        raise ApplyError(
            "load_state_dict of a whole model with the state_dict() of a model that processes share out: take its "
            "full_state_dict(), which all processes must call, to save it and to load it elsewhere"
        )
    return own(module, state, *args, **kwargs)


def _no_array(weight: Any, *args: Any, **kwargs: Any) -> Any:
    raise refused_here(
        "an array of a weight that processes share out would be of this process's part: take weight.full_tensor() for the "
        "numbers, full_state_dict() for files, and write with torch.no_grad() or load_full_state_dict"
    )


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
        with together():
            self.before_step(self.users, optimizer, args, kwargs)
        note_step(optimizer)


PATCHES = Patches(
    [
        Patch(torch.amp.GradScaler, "_unscale_grads_", unscale_together),
        Patch(torch.nn.parallel.DistributedDataParallel, "__init__", checked_replicas),
        Patch(
            torch.nn.utils.clip_grad, "_get_total_norm", norm_of_whole
        ),  # of `clip_grad_norm_`, however it was imported
        Patch(torch.nn.utils, "get_total_norm", norm_of_whole),
        Patch(torch.optim.Optimizer, "add_param_group", without_other_stages),
        Patch(torch.autograd, "grad", checked_grad),
        Patch(torch.autograd, "backward", checked_backward),  # of a tensor, too
        Patch(torch.nn.utils.parametrize, "register_parametrization", _refuse_parametrization),
        Patch(torch.nn.Module, "load_state_dict", _refuse_shares),
        Patch(DTensor, "full_tensor", _averaged),
        AssignedData(),
        AssignedGradient(),
        Added("new", _new),
        Added("copy_", _copied),
        Added("__setitem__", _set_entries),
        Added("numpy", _no_array),
        Added("__array__", _no_array),
        Added("storage", _no_array),  # which safetensors takes
        Added("share_memory_", _no_array),  # torch's own ends the process
        HookOfWeight(),
        WholeOperations(),
    ],
    before_step,
)
