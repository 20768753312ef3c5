"""``generate`` in stages: each stage has its own cache, and several groups of sequences are in flight.

While the last stage chooses tokens for one group, the other stages work on other groups. Transformers' own logits
processors and stopping criteria are used.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from modular_converter.parallel import transformers_private
from modular_converter.parallel.choice.skeleton import Guesses, on_meta
from modular_converter.parallel.engine.base.call_state import (
    Changes,
    changed_since,
    objects_in,
    random_states,
    set_random_states,
    take_changes,
)
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.flow import LayerFlow, flow_of, layer_paths
from modular_converter.parallel.pipeline.stage import StageModule
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.trace.record import forward_names


# The state of a group, which the last stage sends with the group's tokens.
_GOES_ON, _DONE, _FAILED = range(3)


@dataclass
class _Group:
    """Sequences that are decoded together.

    Attributes:
        ids: of shape [rows, length].
        given: the model's other inputs, with this stage's cache.
        left: 1 for each unfinished row; used on the last stage.
    """

    ids: torch.Tensor
    given: dict[str, Any]
    left: torch.Tensor
    processors: Any = None
    criteria: Any = None
    is_done: bool = False
    is_new: bool = True

    def inputs(self, model: Any) -> dict[str, Any]:
        """The inputs of the next forward."""
        length = None if self.is_new else 1
        found: dict[str, Any] = model.prepare_inputs_for_generation(
            self.ids, next_sequence_length=length, is_first_iteration=self.is_new, **self.given
        )
        return found | {"return_dict": True}

    def add(self, model: Any, tokens: torch.Tensor) -> None:
        """Append one token to each sequence."""
        self.ids = torch.cat([self.ids, tokens[:, None]], dim=-1)
        self.given = transformers_private.update_model_kwargs(model, {}, self.given)
        self.is_new = False


@dataclass(frozen=True)
class _Shapes:
    """The shapes of the first and of later forwards for a number of rows, and the cache after the first, without data."""

    first: LayerFlow
    later: LayerFlow
    cache: list[Any] = field(repr=False)


class Decoder:
    """The stage of one process in decoding. All processes of the group must make their decoder.

    Args:
        stages: the only stage of this process.
        shapes: the whole model without data.
        group: the processes of the stages, in order, one process for each stage.

    Raises ``ApplyError`` for several stages.
    """

    def __init__(
        self, stages: Mapping[int, StageModule], shapes: Any, plan: PipelinePlan, group: Any, place: torch.device
    ) -> None:
        if len(stages) > 1:
            raise ApplyError(
                "generate needs one stage in each process: make a Pipeline with schedule='1F1B' or 'GPipe' for it"
            )
        stage = next(iter(stages.values()))
        self._stage, self._shapes, self._plan, self._place = stage, shapes, plan, place
        self._group = group
        # A second group: two processes may send to each other at the same time, activations and tokens.
        self._tokens: Any = _beside(group)
        self._count = len(layer_paths(shapes, plan))
        self._rank, self._last = dist.get_rank(group), dist.get_world_size(group) - 1
        self._known: dict[Any, _Shapes] = {}
        self._sent: list[tuple[Any, torch.Tensor]] = []
        self._flow: LayerFlow | None = None

    def generate(self, ids: torch.Tensor, groups: int, options: dict[str, Any]) -> torch.Tensor:
        """Prompts with their continuations, padded on the right, on every process; see ``Pipeline.generate``."""
        code = options.get("logits_processor"), options.get("stopping_criteria")
        counted, changes, states = objects_in(code), Changes(code), random_states()
        config, flying = self._prepared(ids.to(self._place), groups, options)
        self._known, self._flow = {}, None
        is_first = True
        while live := [one for one in flying if not one.is_done]:
            for one in live:
                if not is_first and self._rank != self._last:
                    self._take_tokens(one)
                if not one.is_done:
                    self._work(one, config)
            is_first = False
        for work, _ in self._sent:
            work.wait()
        self._sent = []
        if config.do_sample or counted:  # all go on behind the last process, which has drawn and called code for all
            left: list[Any] = [(changed_since(states, self._place), changes.now())]
            dist.broadcast_object_list(left, group_src=self._last, group=self._group)
            if self._rank != self._last:
                set_random_states(*left[0][0] or states[:2])
                take_changes(counted, left[0][1])
        longest = max(one.ids.shape[1] for one in flying)
        pad = 0 if config._pad_token_tensor is None else int(config._pad_token_tensor)
        ends = [torch.nn.functional.pad(one.ids, (0, longest - one.ids.shape[1]), value=pad) for one in flying]
        return torch.cat(ends)

    def _prepared(self, ids: torch.Tensor, groups: int, options: dict[str, Any]) -> tuple[Any, list[_Group]]:
        """The settings, and the groups, prepared as transformers' ``generate`` prepares the whole batch."""
        model = self._shapes
        asked, processors, criteria = (
            options.pop(name, None) for name in ("generation_config", "logits_processor", "stopping_criteria")
        )
        sources = [one for one in (asked, model.generation_config) if one is not None]
        defaults = {
            f"has_default_{name}": options.get(name) is None and all(getattr(one, name) is None for one in sources)
            for name in ("max_length", "min_length")
        }
        config, given = transformers_private.prepare_generation_config(model, asked, **options)
        refuse_other_decoding(model, config, given)
        given = {name: value.to(self._place) for name, value in given.items() if value is not None}
        transformers_private.prepare_special_tokens(
            model, config, "attention_mask" in given, device=self._place, batch_size=len(ids)
        )
        if "attention_mask" not in given:
            given["attention_mask"] = transformers_private.prepare_attention_mask(model, ids, config, given)
        if "position_ids" in forward_names(model):
            given["position_ids"] = transformers_private.prepare_position_ids(model, ids, given)
            if given["position_ids"].shape != ids.shape:
                raise ApplyError(
                    f"{type(model).__name__} has several positions for a token: generate with the whole model"
                )
        ids, given = transformers_private.expand_inputs(model, config.num_return_sequences, False, ids, **given)
        if bool((given["attention_mask"] == 1).all()):  # as in transformers: no mask is faster
            given["attention_mask"] = None
        config = transformers_private.prepare_generated_length(
            model, config, model_input_name="input_ids", input_ids_length=ids.shape[1], inputs_tensor=ids, **defaults
        )
        parts = [slice(int(rows[0]), int(rows[-1]) + 1) for rows in torch.arange(len(ids)).tensor_split(groups)]
        made = []
        for part in parts:
            own = {name: value if value is None else value[part] for name, value in given.items()}
            left = torch.ones(part.stop - part.start, dtype=torch.long, device=self._place)
            one = _Group(ids[part], own | self._fixed(), left)
            one.processors = transformers_private.get_logits_processor(
                model,
                config,
                ids.shape[1],
                one.ids,
                logits_processor=processors or [],
                device=str(self._place),
                model_kwargs=own,
            )
            _refuse_code_with_a_model(one.processors)
            one.criteria = transformers_private.get_stopping_criteria(model, config, criteria or [])
            made.append(one)
        return config, made

    def _fixed(self) -> dict[str, Any]:
        """The inputs that all forwards have in common, with a new cache."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self._shapes.config.get_text_config(decoder=True))
        kept = {"logits_to_keep": 1} if transformers_private.supports_logits_to_keep(self._shapes) else {}
        return {cache_name(self._shapes): cache, "use_cache": True, **kept}

    def _work(self, one: _Group, config: Any) -> None:
        """This stage's share of the next token of a group."""
        shapes = self._shapes_of(one)
        flow = shapes.first if one.is_new else shapes.later
        if self._flow is not flow:
            self._stage.prepare(flow)
            self._flow = flow
        received = []
        for like in self._stage.takes:
            received.append(torch.empty(like.shape, dtype=like.dtype, device=self._place))
            dist.recv(received[-1], group=self._group, group_src=self._rank - 1)
        result = self._stage(*received, **one.inputs(self._shapes))
        self._follow(one, shapes)
        if self._rank != self._last:
            for tensor in result:
                self._send(tensor.contiguous(), self._group, self._rank + 1)
            return
        state, tokens = self._chosen(one, result.logits[:, -1], config)
        for other in range(self._last):
            self._send(torch.cat([tokens.new_tensor([state]), tokens]), self._tokens, other)
        self._add(one, state, tokens)

    def _chosen(self, one: _Group, last: torch.Tensor, config: Any) -> tuple[int, torch.Tensor]:
        """The state of the group, and the next token of each row."""
        logits = last.to(copy=True, dtype=torch.float32)
        if bool(logits.isnan().all()):
            return _FAILED, one.ids[:, -1]
        scores = one.processors(one.ids, logits)
        if config.do_sample:
            tokens = torch.multinomial(torch.nn.functional.softmax(scores, dim=-1), num_samples=1).squeeze(1)
        else:
            tokens = torch.argmax(scores, dim=-1)
        if any(hasattr(criterion, "eos_token_id") for criterion in one.criteria):
            tokens = tokens * one.left + config._pad_token_tensor * (1 - one.left)
        one.left = one.left & ~one.criteria(torch.cat([one.ids, tokens[:, None]], dim=-1), None)
        return (_GOES_ON if bool(one.left.any()) else _DONE), tokens

    def _take_tokens(self, one: _Group) -> None:
        found = torch.empty(len(one.ids) + 1, dtype=one.ids.dtype, device=self._place)
        dist.recv(found, group=self._tokens, group_src=self._last)
        self._add(one, int(found[0]), found[1:])

    def _add(self, one: _Group, state: int, tokens: torch.Tensor) -> None:
        if state == _FAILED:
            raise ApplyError(
                f"{type(self._shapes).__name__}: all logits are NaN: a forward with a cache uses values inside of other "
                "stages, or the weights are broken; generate with the whole model"
            )
        one.add(self._shapes, tokens)
        one.is_done = state == _DONE

    def _send(self, tensor: torch.Tensor, group: Any, target: int) -> None:
        """Send without waiting, since the receiver may be busy; the tensor is kept until it is sent."""
        self._sent = [(work, kept) for work, kept in self._sent if not work.is_completed()]
        self._sent.append((dist.isend(tensor, group=group, group_dst=target), tensor))

    def _follow(self, one: _Group, shapes: _Shapes) -> None:
        """Give the cache's layers of other stages, which have no data, the length of this stage's layers."""
        layers = one.given[cache_name(self._shapes)].layers
        for number in range(self._count):
            if number in self._stage.span:
                continue
            if one.is_new:
                layers[number:number] = [] if number < len(layers) else [None]
                layers[number] = copy.deepcopy(shapes.cache[number])
            elif getattr(layers[number], "keys", None) is not None:
                layer = layers[number]
                layer.update(layer.keys[..., :1, :], layer.values[..., :1, :])

    def _shapes_of(self, one: _Group) -> _Shapes:
        """The shapes of forwards for a group's number of rows, from runs without data on its prompts."""
        key = len(one.ids)
        if key not in self._known:
            with torch.no_grad(), Guesses():
                bare = _Group(on_meta(one.ids), on_meta(one.given) | self._fixed(), one.left)
                first = self._flow_of(bare)
                layers = bare.given[cache_name(self._shapes)].layers
                if len(layers) != self._count:
                    raise ApplyError(
                        f"the cache has {len(layers)} layers and the model {self._count}: generate with the whole model"
                    )
                left = copy.deepcopy(layers)
                bare.add(self._shapes, on_meta(one.ids[:, 0]))
                later = self._flow_of(bare)
            self._known[key] = _Shapes(first, later, left)
        return self._known[key]

    def _flow_of(self, bare: _Group) -> LayerFlow:
        """What passes between layers in a run of a group without data, which fills the group's own cache."""
        own = {cache_name(self._shapes): bare.given[cache_name(self._shapes)]}
        return flow_of(self._shapes, self._plan, on_meta(bare.inputs(self._shapes)) | own, skips=True)


_BESIDE: WeakKeyDictionary[dist.ProcessGroup, Any] = WeakKeyDictionary()


def _beside(group: dist.ProcessGroup) -> Any:
    """A second group of the same processes, made once, since its communicators stay on the GPUs.

    Without local synchronization all processes of the job would have to call.
    """
    if group not in _BESIDE:
        ranks = dist.get_process_group_ranks(group)
        _BESIDE[group] = dist.new_group(ranks, use_local_synchronization=len(ranks) < dist.get_world_size())
    return _BESIDE[group]


def cache_name(model: Any) -> str:
    """The argument that takes a cache of keys and values; "" for none."""
    names = forward_names(model)
    return next((name for name in ("cache", "past_key_values") if name in names), "")


def _refuse_code_with_a_model(processors: Iterable[Any]) -> None:
    """Raise ``ApplyError`` for a processor that runs the model, such as that of ``guidance_scale``."""
    for one in processors:
        if any(isinstance(value, torch.nn.Module) for value in vars(one).values()):
            raise ApplyError(
                f"{type(one).__name__} runs the model for each token, of which a process has its own stages alone: generate with the "
                "whole model, or leave it out (guidance_scale=)"
            )


def refuse_other_decoding(model: Any, config: Any, given: Mapping[str, Any]) -> None:
    """Raise ``ApplyError`` for kinds of decoding that stages do not support."""
    mode = config.get_generation_mode()
    if str(getattr(mode, "value", mode)) not in ("greedy_search", "sample"):
        raise ApplyError(f"stages decode greedily or by sampling, not by {mode}: generate with the whole model")
    if (
        config.return_dict_in_generate
        or config.use_cache is False
        or config.cache_implementation not in (None, "dynamic")
    ):
        raise ApplyError(
            "generate in stages returns ids and keeps dynamic caches: leave return_dict_in_generate, use_cache and "
            "cache_implementation out"
        )
    if config.stop_strings is not None or config.prefill_chunk_size is not None:
        raise ApplyError("generate in stages supports neither stop_strings nor prefill_chunk_size: leave them out")
    other = sorted(name for name, value in given.items() if name != "attention_mask" and value is not None)
    if other:
        raise ApplyError(f"{other[0]}: generate in stages takes input_ids and attention_mask alone; leave it out")
    if model.config.is_encoder_decoder or not cache_name(model):
        raise ApplyError(f"{type(model).__name__} has no plain key/value cache: generate with the whole model")
    if not transformers_private.supports_default_cache(model):
        raise ApplyError(f"{type(model).__name__} has a cache of its own kind: generate with the whole model")
