"""Context parallelism: each process computes its part of the sequence, and attention sees all keys and values.

The sequence is cut into two pieces a process, of which each has one from the front and one from the back, so that all
have the same work under a causal mask. Only attention looks at other parts: it gathers keys and values, and their
gradients go back in a reduce-scatter. Masks are transformers' own, for the rows of this process. It is a function of
transformers' attention interface, so a backward that computes layers again finds it, too.

torch's ``context_parallel`` has neither attention on CPUs nor masks, which padding and windows need.

It is proven on a small instance before the user's model is changed.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention.bias import CausalBias, CausalVariant

from modular_converter.parallel.choice.small_instances import (
    small_instance,
    small_settings,
    target_like,
    without_trial,
)
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.resolve import Piece, Resolution
from modular_converter.parallel.proof.on_ranks import check_on_threads
from modular_converter.parallel.proof.precision import in_fitting_precision
from modular_converter.parallel.proof.subject import with_mask
from modular_converter.parallel.shard.collectives import SEQUENCE, Group, exchanged, summed
from modular_converter.parallel.styles.layout import SUMMED_GRADIENT
from modular_converter.parallel.tiny.build import copy_of
from modular_converter.parallel.tiny.fields import dropout_rates
from modular_converter.parallel.torch_private import current_graph_task_id, make_subclass, pytree
from modular_converter.parallel.trace.record import bound_arguments, forward_names


CURE = "leave cp out for this model"
CONTEXT = "_context"
_ALONE = (
    "cp: a part of the model was called by itself, or attends to another sequence than its own; only the whole model's forward "
    "cuts sequences into parts"
)
_NUMBERS = itertools.count()
# Arguments that would hand on keys and values of other calls, under their names in several versions.
_CACHES = ("past_key_values", "cache", "use_cache")
# Rotary embeddings whose frequencies depend on the largest position of a forward, which no part knows.
_BY_LENGTH = ("dynamic", "longrope")


@dataclass(frozen=True)
class _Call:
    """A forward of the whole model.

    Attributes:
        length: of the whole sequence.
        rows: the positions of this process's tokens; those beyond the end are the last one again.
        inside: which of them are before the end.
        padded: whether the mask that was given hides tokens.
        keeps: whether outputs stay this process's part.
        kept: the places of the logits that were asked for; None for all.
    """

    length: int
    rows: torch.Tensor
    inside: torch.Tensor
    padded: bool
    keeps: bool
    kept: torch.Tensor | None


class ContextParallel:
    """A model's forwards in parts, and its attention.

    Args:
        group: the processes that share out a sequence.
        keeps_parts: whether a forward with gradients and labels returns this process's logits alone.

    Raises ``ApplyError`` if the model has a form that allows no parts of a sequence.
    """

    def __init__(self, model: Any, group: Group, keeps_parts: bool = True) -> None:
        from transformers import AttentionInterface, AttentionMaskInterface

        self.configs = refuse_forms(model)
        self.group, self.keeps_parts = group, keeps_parts
        self.rates = [(owner, name) for owner in model.modules() for name in dropout_rates(owner)]
        taken = inspect.signature(model.forward).parameters.values()
        named = "use_cache" in forward_names(model) or any(one.kind is one.VAR_KEYWORD for one in taken)
        self.caches = named and hasattr(model.config, "use_cache")
        self.call: _Call | None = None
        name = f"sdpa_of_parts_{next(_NUMBERS)}"
        own = weakref.ref(self)  # the tables of the library stay, and the model must not
        AttentionInterface.register(name, lambda *given, **named: _there(own).attention(*given, **named))
        AttentionMaskInterface.register(name, lambda *given, **named: _there(own).mask(*given, **named))
        for config in self.configs:
            config._attn_implementation = name
        self.name = name

    def run(self, model: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The model's own forward of this process's part; hooks of the model are around it, and see the whole."""
        given = self._cut(model, args, kwargs)
        try:
            return self._whole(own(**given))
        finally:
            self.call = None

    def _cut(self, model: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        given = {name: one for name, one in bound_arguments(model, args, kwargs).items() if one is not None}
        self._refuse(model, given)
        ids, mask = given["input_ids"], given.get("attention_mask")
        length = ids.shape[1]
        rows = self._positions(length, ids.device)
        inside, rows = rows < length, rows.clamp(max=length - 1)
        given["input_ids"] = ids[:, rows]
        given["position_ids"] = given["position_ids"][:, rows] if "position_ids" in given else rows[None]
        # Also where nothing is hidden: without it transformers takes a jump in the positions for another sequence.
        given["attention_mask"] = torch.ones_like(ids) if mask is None else mask
        labelled = "labels" in given
        if labelled:
            self._cut_labels(given, rows, inside)
        if self.caches:
            given["use_cache"] = False
        kept = _kept(given.pop("logits_to_keep", 0), length, ids.device)
        if kept is not None:
            given["logits_to_keep"] = (rows == kept[:, None]).int().argmax(1)
        keeps = self.keeps_parts and labelled and torch.is_grad_enabled()
        padded = mask is not None and not bool(mask.all())
        self.call = _Call(length, rows, inside, padded, keeps, kept)
        return given

    def _positions(self, length: int, device: torch.device) -> torch.Tensor:
        """The places of this process's tokens, some of them beyond the end."""
        pieces = 2 * self.group.size
        size = -(-length // pieces)
        front = torch.arange(size, device=device)
        return torch.cat([front + piece * size for piece in (self.group.rank, pieces - 1 - self.group.rank)])

    def _cut_labels(self, given: dict[str, Any], rows: torch.Tensor, inside: torch.Tensor) -> None:
        """Labels are moved before the cut, and their number is that of the whole sequence."""
        ignored = given.get("ignore_index", -100)
        labels = given.get("shift_labels")
        if labels is None:
            labels = torch.nn.functional.pad(given["labels"], (0, 1), value=ignored)[:, 1:]
        given.setdefault("num_items_in_batch", (labels != ignored).sum())
        given["labels"] = given["shift_labels"] = torch.where(inside, labels[:, rows], ignored)

    def _refuse(self, model: Any, given: dict[str, Any]) -> None:
        ids = given.get("input_ids")
        if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
            raise ApplyError("cp: give input_ids of [batch, tokens], which processes can cut into parts")
        if any(one._attn_implementation != self.name for one in self.configs):
            raise ApplyError(
                "cp: the attention was set to another one; call parallelize again, with a model that has it"
            )
        if torch.compiler.is_compiling():
            raise ApplyError("cp and torch.compile do not go together yet: leave one of them out")
        if said := [name for name in _CACHES if given.get(name) not in (None, False)]:
            raise ApplyError(
                f"{said[0]}: with cp no cache is kept, since a process has only its part of the keys: leave it out, and "
                "generate with another layout, such as tp"
            )
        for name in ("output_attentions", "output_router_logits"):
            if given.get(name, getattr(model.config, name, False)):
                raise ApplyError(f"{name}: with cp a process has only its part of the sequence; leave it out")
        for name in ("labels", "shift_labels", "attention_mask", "position_ids"):
            one = given.get(name)
            rows = (1, ids.shape[0]) if name == "position_ids" else (ids.shape[0],)
            if one is not None and not (one.dim() == 2 and one.shape[0] in rows and one.shape[1] == ids.shape[1]):
                raise ApplyError(
                    f"cp: {name} has the shape {list(one.shape)}; give that of input_ids, {list(ids.shape)}"
                )
        _refuse_packed(given)
        known = ("input_ids", "labels", "shift_labels", "attention_mask", "position_ids", "num_items_in_batch")
        for name in given.keys() - {*known, "logits_to_keep"}:
            if any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(given[name])):
                raise ApplyError(f"cp: {name} is a tensor that no rule cuts into parts of the sequence: leave it out")
        if "labels" in given and not _shifts_labels(model):
            raise ApplyError(
                f"cp: the loss of {type(model).__name__} is not that of a causal model; leave labels out, and compute it from the "
                "outputs, which are whole then"
            )
        if "labels" in given and "logits_to_keep" in given:
            raise ApplyError("cp: a loss needs all logits; leave labels or logits_to_keep out")
        if model.training and any(getattr(owner, name) for owner, name in self.rates):
            raise ApplyError(
                "cp: dropout would draw other numbers than one device; set it to 0 in the configuration before the model is "
                "made, or call eval()"
            )

    def _whole(self, result: Any) -> Any:
        call = self.call
        assert call is not None, "a forward has begun it"
        logits: Any = getattr(result, "logits", result[0] if isinstance(result, tuple) else None)

        def whole(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if leaf.dim() == 0:
                return summed(leaf, self.group)
            if call.kept is not None and leaf is logits:
                own = (call.inside & (call.rows == call.kept[:, None])).any(1)
                return summed(torch.where(own[:, None], leaf, 0), self.group)
            if leaf.dim() < 2 or leaf.shape[1] != len(call.rows):
                raise ApplyError(
                    f"cp: the model returns a tensor of {list(leaf.shape)}, no part of the sequence: {CURE}"
                )
            return _part(leaf) if call.keeps else exchanged(leaf, self.group, _joined, _own)[:, : call.length]

        return pytree.tree_map(whole, result)

    def mask(
        self,
        batch_size: int,
        q_length: int,
        kv_length: int,
        mask_function: Callable[..., Any],
        attention_mask: torch.Tensor | None = None,
        local_size: int | None = None,
        allow_is_causal_skip: bool = True,
        allow_is_bidirectional_skip: bool = False,
        use_vmap: bool = False,
        device: Any = "cpu",
        **more: Any,
    ) -> torch.Tensor | None:
        """The rows of the whole mask that this process has, as ``sdpa_mask`` of transformers; None if none is needed."""
        from transformers.masking_utils import sdpa_mask

        call = self.call
        if call is None or (q_length, kv_length) != (len(call.rows), call.length):
            raise ApplyError(_ALONE)
        even = allow_is_bidirectional_skip and call.length == len(call.rows) * self.group.size
        local = local_size is not None and call.length >= local_size
        if (allow_is_causal_skip or even) and not local and not call.padded:
            return None
        found: torch.Tensor = sdpa_mask(
            batch_size,
            q_length,
            kv_length,
            mask_function=lambda batch, head, q, kv: mask_function(batch, head, call.rows[q], kv),
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            use_vmap=use_vmap,
            device=device,
        )
        return found

    def attention(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        is_causal: bool | None = None,
        **more: Any,
    ) -> tuple[torch.Tensor, None]:
        """Attention of this process's queries [batch, heads, part, features] to the keys and values of all parts."""
        from transformers.integrations.sdpa_attention import sdpa_attention_forward as sdpa

        if self.call is None and current_graph_task_id() == -1:  # a backward may compute layers again
            raise ApplyError(_ALONE)
        if query.shape[2] != key.shape[2] or more.get("position_bias") is not None:
            raise ApplyError(f"cp: {type(module).__name__} attends to more than its own sequence: {CURE}")
        both = exchanged(torch.cat([key, value], -1).transpose(1, 2), self.group, _joined, _sum).transpose(1, 2)
        key, value = both.tensor_split([key.shape[-1]], -1)
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        if attention_mask is not None or not causal:
            end = key.shape[2] if attention_mask is None else attention_mask.shape[-1]
            return sdpa(module, query, key[:, :, :end], value[:, :, :end], attention_mask, is_causal=False, **more)  # type: ignore[no-any-return]
        size, found = query.shape[2] // 2, []
        for piece, own in zip((self.group.rank, 2 * self.group.size - 1 - self.group.rank), query.chunk(2, 2)):
            end = (piece + 1) * size
            mask = causal_mask(size, end, query.device)
            found.append(sdpa(module, own, key[:, :, :end], value[:, :, :end], mask, is_causal=False, **more)[0])
        return torch.cat(found, 1), None


def in_parts(own: Callable[..., Any]) -> Callable[..., Any]:
    """A class's forward, of whose sequences a process computes its part: see ``compute_in_parts``."""

    @functools.wraps(own)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__[CONTEXT].run(self, functools.partial(own, self), args, kwargs)

    return forward


def compute_in_parts(model: Any, group: Group, keeps_parts: bool = True) -> None:
    """Let a model compute this process's part of each sequence."""
    model.__dict__[CONTEXT] = ContextParallel(model, group, keeps_parts)
    model.forward = types.MethodType(in_parts(type(model).forward), model)


def _there(own: weakref.ref[ContextParallel]) -> ContextParallel:
    found = own()
    assert found is not None, "its hooks hold it"
    return found


def causal_mask(rows: int, end: int, device: torch.device) -> torch.Tensor:
    """The causal mask of the last rows; on GPUs, and without data, in the form that fast kernels take."""
    if device.type == "cpu":
        return torch.ones(rows, end, dtype=torch.bool, device=device).tril(end - rows)
    found: Any = make_subclass(
        CausalBias, torch.empty(0)
    )  # its own constructor takes memory for the whole mask, twice
    CausalBias.__init__(found, CausalVariant.LOWER_RIGHT, rows, end)
    return found  # type: ignore[no-any-return]


def _kept(given: Any, length: int, device: torch.device) -> torch.Tensor | None:
    """The places of the logits that ``logits_to_keep`` asks for; None for all."""
    if isinstance(given, torch.Tensor):
        return torch.arange(length, device=device)[given.to(device)]  # also of negative ones
    return torch.arange(length - min(given, length), length, device=device) if given else None


def _part(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part, without a gradient of its own: a mean over it is not that over the whole."""

    def refuse(gradient: torch.Tensor) -> None:
        raise ApplyError(
            "cp: a forward with labels returns this process's part of logits and hidden states; for a loss of your own leave labels "
            "out: they are whole then"
        )

    if tensor.requires_grad:
        tensor = tensor.view_as(tensor)  # the model's own loss has the tensor itself
        tensor.register_hook(refuse)  # type: ignore[no-untyped-call]
    return tensor


def _pieces(tensor: torch.Tensor, group: Group) -> list[torch.Tensor]:
    """The part of each process of a whole sequence."""
    found = tensor.chunk(2 * group.size, SEQUENCE)
    return [torch.cat([found[rank], found[-1 - rank]], SEQUENCE) for rank in range(group.size)]


def _own(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    return _pieces(tensor, group)[group.rank]


def _joined(part: torch.Tensor, group: Group) -> torch.Tensor:
    parts = [one.chunk(2, SEQUENCE) for one in group.all_gather(part)]
    return torch.cat([*(front for front, _ in parts), *(back for _, back in reversed(parts))], SEQUENCE)


def _sum(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    return group.sum_of_parts(_pieces(tensor.detach(), group))


def refuse_forms(model: Any) -> list[Any]:
    """The configurations that choose a model's attention. Raises ``ApplyError`` if its form allows no parts of a sequence."""
    name = type(model).__name__
    if missing := [one for one in ("input_ids", "position_ids", "attention_mask") if one not in forward_names(model)]:
        raise ApplyError(f"cp: {name} takes no {missing[0]}, which a part of a sequence needs: {CURE}")
    configs = {id(one.config): one.config for one in model.modules() if hasattr(one, "config")}
    chosen = {getattr(one, "_attn_implementation", None) for one in configs.values()}
    if chosen != {"sdpa"}:
        said = " and ".join(sorted(map(str, chosen)))
        raise ApplyError(
            f'cp needs the attention "sdpa", and {name} has {said}: load it with attn_implementation="sdpa", or leave cp out'
        )
    for path, module in model.named_modules():
        kinds = getattr(module, "rope_type", "")
        for kind in kinds.values() if isinstance(kinds, dict) else (kinds,):
            if any(word in str(kind) for word in _BY_LENGTH):
                raise ApplyError(
                    f"cp: the frequencies of {path} ({kind}) depend on the whole sequence's length: {CURE}"
                )
    return list(configs.values())


def _shifts_labels(model: Any) -> bool:
    """Whether the loss is that of transformers' causal models, which takes moved labels and the number of all."""
    from transformers.loss.loss_utils import ForCausalLMLoss

    return getattr(model, "loss_function", None) is ForCausalLMLoss


def _refuse_packed(given: dict[str, Any]) -> None:
    positions = given.get("position_ids")
    if positions is not None and bool((positions.diff(dim=1) != 1).any()) and "attention_mask" not in given:
        raise ApplyError(
            "cp: position_ids that begin anew are several sequences in a row, whose masks have no parts yet: give one sequence "
            "a row"
        )


_RANKS = 2
# Longer than the windows of small instances, and no multiple of the pieces.
_LENGTH = 31


def difference_in_parts(model: Any) -> str:
    """The difference between a small instance whole and in parts, in words; empty if there is none."""
    small = small_instance(target_like(model), small_settings(model))
    if untried := without_trial({type(one) for one in model.modules()}, {type(one) for one in small.model.modules()}):
        return untried
    ids: Any = small.inputs.get("input_ids")
    tensors = [name for name, one in small.inputs.items() if isinstance(one, torch.Tensor)]
    if tensors != ["input_ids"] or ids.dim() != 2:
        return "nothing can be tried, since the model takes other inputs than input_ids"
    ids = ids.repeat(1, _LENGTH)[:, :_LENGTH]
    labels = {"labels": ids} if _shifts_labels(small.model) else {}
    summing = Piece(frozenset({SUMMED_GRADIENT}), -1, (), "cp")
    names = [name for name, _ in small.model.named_parameters(remove_duplicate=False)]
    plan = Resolution(dict.fromkeys(names, summing), (), ())
    for given in ({"input_ids": ids, **labels}, with_mask(small.model, {"input_ids": ids})):
        subject = in_fitting_precision(copy_of(small.model), given)
        verdict = check_on_threads(
            subject, plan, _RANKS, lambda applied: compute_in_parts(applied.model, applied.group, keeps_parts=False)
        )
        if not verdict.passed:
            return verdict.reason
    return ""
