"""``parallelize`` inside ``torchrun``: this process keeps its share of the model, and can train it.

Every process calls it with the same model, and gives the same inputs. Gradients come through the parameters' roles;
an optimizer is made after the call, because the parameters are new ones.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.engine.base.adapted import keep_adapters, let_go, refuse_saving_adapters
from modular_converter.parallel.engine.base.attention_heads import (
    HeadCounts,
    heads_recorded,
    local_modules,
    wants_attentions,
    whole_heads,
)
from modular_converter.parallel.engine.base.checked_ids import check_ids, uncheck_ids
from modular_converter.parallel.engine.base.memory import MemoryFigures, print_usage, usage
from modular_converter.parallel.engine.base.refused_methods import CHANGE_WEIGHTS, refusals
from modular_converter.parallel.engine.base.skeleton import dismantle, kept_types
from modular_converter.parallel.engine.checkpoint.load_model import is_folder
from modular_converter.parallel.engine.checkpoint.save_model import saves_as_library
from modular_converter.parallel.engine.choice.arguments import Arguments
from modular_converter.parallel.engine.choice.preflight import check_fit
from modular_converter.parallel.engine.group.agreed_plan import (
    agreed_plan,
    refuse_difference_in_group,
    refuse_other_weights,
)
from modular_converter.parallel.engine.group.dropout import SharedDropout
from modular_converter.parallel.engine.group.for_inference import make_inference, no_training, without_gradients
from modular_converter.parallel.engine.group.from_files import FileShares, same_checkpoint
from modular_converter.parallel.engine.group.gradient_norm import gradients_of, norm_of
from modular_converter.parallel.engine.group.gradient_scaler import share_overflows
from modular_converter.parallel.engine.group.whole_state import first_ones, refuse_everywhere, save_from_group
from modular_converter.parallel.engine.inference.agreement import agreeing_methods
from modular_converter.parallel.engine.inference.plain_forwards import DirectGroup
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.quantised.torchao_int8 import is_unpacked, pack_layers, packed_state
from modular_converter.parallel.shard.apply import Applied, apply, local_part, put_together, undo
from modular_converter.parallel.shard.collectives import ProcessGroup, borders_of, gathered


logger = logging.getLogger(__name__)
ALONE = "{name} would change this process's share alone; call unshard(), {name}, and parallelize again"


class Sharded(MemoryFigures):
    """The methods of a model that is sharded over a process group, in addition to its own."""

    _applied: Applied

    def __deepcopy__(self, memo: Any) -> Any:
        raise ApplyError(
            "a sharded model cannot be copied; copy what full_state_dict() gives, or call unshard() first"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "peft_config":  # the last step of putting adapters into a model in place
            raise ApplyError(
                "adapters would be made for this process's share alone; call unshard(), put them in, and parallelize again"
            )
        super().__setattr__(name, value)

    def unshard(self) -> Any:
        """The whole model again, in place, on every rank; all ranks must call it."""
        applied = self._applied
        _unswap(self)
        whole = undo(applied)
        pack_layers(whole)
        return whole

    def full_state_dict(self, first_only: bool = False) -> dict[str, torch.Tensor]:
        """The whole weights on the CPU, as the unsharded model's ``state_dict``; all ranks must call it.

        Args:
            first_only: the other ranks get an empty dict, and never hold more than one whole weight.
        """
        pieces, group = self._applied.resolution.pieces, self._applied.group
        kept = group.rank == 0 or not first_only
        found, gathered = {}, {}
        own: Any = self
        identity = {name: id(p) for name, p in own.named_parameters(remove_duplicate=False)}
        for name, value in own.state_dict(keep_vars=True).items():
            piece = pieces.get(name)
            local = value.detach().as_subclass(torch.Tensor)
            if piece is None or piece.dim < 0:
                found[name] = local.cpu()
                continue
            if identity[name] not in gathered:
                whole = put_together(local, piece, group)
                gathered[identity[name]] = whole.cpu() if kept else local
            found[name] = gathered[identity[name]]
        if kept:
            packed_state(own, found)
        return found if kept else {}

    def load_full_state_dict(self, state: Mapping[str, torch.Tensor] | None) -> None:
        """Take this rank's shares from whole weights; all ranks must call it.

        Args:
            state: None on other ranks than the first to take the first one's, one weight at a time.

        Raises:
            ApplyError: names are missing or unknown; they are listed.
        """
        pieces, group = self._applied.resolution.pieces, self._applied.group
        own: Any = self
        targets = own.state_dict(keep_vars=True)
        wrong = sorted(set(targets) ^ set(state)) if state is not None else []
        shared = refuse_everywhere(f"{', '.join(wrong[:8])} on one side only" if wrong else "", state is None, group)
        with torch.no_grad():
            for name, target in targets.items():
                whole = state[name] if state is not None else None
                if shared:
                    whole = first_ones(whole, target, pieces.get(name), group)
                assert whole is not None
                value = local_part(whole, pieces[name], group) if name in pieces else whole
                target.detach().as_subclass(torch.Tensor).copy_(value)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scale all gradients so that their norm is at most ``max_norm``, as if the model were whole.

        Shares count once each and whole parameters once; all ranks must call it.

        Returns:
            The norm before, the same on every rank.
        """
        own: Any = self
        shares, whole, copies = gradients_of(self._applied)
        norm = norm_of(shares, whole, norm_type, self._applied.group, next(own.parameters()).device)
        scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        for gradient in (*shares, *whole, *copies):
            gradient.mul_(scale.to(gradient.device, gradient.dtype))
        return norm

    def save_pretrained(
        self, folder: str | os.PathLike[str], max_shard_size: int | str | None = None, **more: Any
    ) -> None:
        """Save the model from the first process, which holds one file's weights at a time; all processes must call it.

        Args:
            max_shard_size: of a file, such as ``"2GB"``; at most 5 GB and one process's part of the model if None.
            more: other arguments of the library's; the first process holds the whole model then.
        """
        refuse_saving_adapters(self, "call unshard()")  # type: ignore[arg-type]
        if is_unpacked(self):  # type: ignore[arg-type]
            raise ApplyError(
                "files of quantised weights are written of the whole model: call unshard(), and save it then"
            )
        own: Any = super()
        # Not the first rank of the group: with a mesh of several dimensions each replica has one.
        first = dist.get_rank() == 0
        if more or not saves_as_library(self.__dict__["_own_class"]):
            state = self.full_state_dict(first_only=True)
            if first:
                sized = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
                own.save_pretrained(folder, state_dict=state, is_main_process=True, **sized, **more)
        else:
            save_from_group(self, self._applied, Path(folder) if first else None, max_shard_size)
        dist.barrier()

    def _figures(self) -> dict[str, dict[str, Any]]:
        own: Any = self
        device = next(own.parameters()).device
        return {str(device): usage(device)}


def parallelize_here(given: Arguments) -> Any:
    """Shard a model in place for this process, and return it.

    Raises:
        PlanError: the mesh has more dimensions than one, there is no plan, or it does not fit.
    """
    model, mesh = given.model, given.mesh
    place = _join(given.device)
    if mesh is not None and mesh.ndim != 1:
        raise ApplyError(f"the mesh has {mesh.ndim} dimensions; give the one to shard over, such as mesh['tp']")
    inference = given.inference or given.compile
    group = (DirectGroup if inference else ProcessGroup)(mesh.get_group() if mesh is not None else None)
    files = None
    if is_folder(model):
        files = FileShares(same_checkpoint(given, group), group, place)
        model, given = files.checkpoint.model, replace(given, fp16=False, dtype=None)
    else:
        refuse_other_weights(model, group, place)
    kept = kept_types(model, given.weight_type)
    with torch.random.fork_rng(devices=[]):  # small instances are seeded: the caller's next numbers stay the caller's
        plan, origin = agreed_plan(model, given.plan, group)
        skeleton = dismantle(model, kept)[0]
        plan = check_fit(skeleton, plan, group.size)[0]
        if given.probe and group.size > 1:
            refuse_difference_in_group(model, plan, group, place, files)
    if group.rank == 0:
        logger.info("%s on %d processes: %s", type(model).__name__, group.size, origin)
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def share(parameter: torch.nn.Parameter, piece: Piece, own: Any) -> torch.Tensor:
        if files is not None and parameter.is_meta:
            return files.share(names[id(parameter)], piece)
        part = local_part(parameter.detach(), piece, own)
        return part.to(place, kept(names[id(parameter)], parameter), copy=True)

    checked = check_ids(model)
    applied = apply(model, plan, group, share)
    if files is not None:
        files.fill(model)
        logger.info("process %d has read %.1f MiB", group.rank, files.close() / 2**20)
    _move_whole(applied, kept, place)
    if isinstance(group, DirectGroup):
        make_inference(applied, group, given.compile)
    else:
        share_overflows()
        model.__dict__["_dropout"] = SharedDropout(model, skeleton, group.group)
    model.__dict__["_applied"] = applied
    model.__dict__["_whole_shapes"] = {item.name: item.shape for item in skeleton.items}
    model.__dict__["_checked"] = checked
    model.__dict__["_own_class"] = own = type(model)
    body: dict[str, Any] = {
        name: _with_whole_heads(getattr(own, name)) for name in ("forward", "generate") if hasattr(own, name)
    }
    if inference:
        body = {name: without_gradients(method, given.compile) for name, method in body.items()} | no_training()
    body |= agreeing_methods(own, group)
    body |= refusals(own, CHANGE_WEIGHTS, ApplyError, ALONE)
    body |= {"__module__": own.__module__, "__doc__": own.__doc__}
    model.__class__ = type(own.__name__, (Sharded, own), body)
    keep_adapters(model, ApplyError, ALONE)
    if given.verbose is not None and dist.get_rank() == 0:
        print_usage(model, f"this process's share of {group.size}", model._figures(), given.verbose)
    return model


def _with_whole_heads(own: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose attention weights come from all ranks, with gradients; not in a call inside such a call."""

    @functools.wraps(own)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "_recording" in self.__dict__ or not wants_attentions(self, args, kwargs):
            return own(self, *args, **kwargs)
        group = self._applied.group
        self.__dict__["_recording"] = True
        try:
            pieces = self._applied.resolution.pieces
            with heads_recorded(local_modules(self, pieces)) as owners:
                result = own(self, *args, **kwargs)
            return whole_heads(
                result,
                self,
                HeadCounts.of(pieces, group),
                owners,
                lambda value, counts: gathered(value, group, 1, borders_of(counts)),
            )
        finally:
            del self.__dict__["_recording"]

    return whole


def _unswap(model: Any) -> None:
    model.__class__ = model.__dict__.pop("_own_class")
    let_go(model)
    model.__dict__.pop("_dropout").detach()
    uncheck_ids(model.__dict__.pop("_checked"))
    del model.__dict__["_applied"], model.__dict__["_whole_shapes"]


def _join(device: str | None) -> torch.device:
    """This process's device; the process group is made if the script has not made one."""
    gpu = device != "cpu" and torch.cuda.is_available()
    place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(place)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if gpu else "gloo")
    return place


def _move_whole(applied: Applied, kept: Any, place: torch.device) -> None:
    """Put whole parameters and buffers on this process's device, in their types."""
    for name, parameter in applied.model.named_parameters():
        if name not in applied.resolution.pieces:
            parameter.data = parameter.data.to(place, kept(name, parameter))
    for module in applied.model.modules():
        for leaf, buffer in module._buffers.items():
            module._buffers[leaf] = None if buffer is None else buffer.to(place)
