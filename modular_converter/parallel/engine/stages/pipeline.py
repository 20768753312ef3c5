"""``Pipeline``: a model in stages on the processes of a group, with the plan that is derived for it and proven.

The weights of a process's stages: parameters, gradients of weights that stages share, norms, and their checkpoint.
"""

from __future__ import annotations

import contextlib
import pickle
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class

from modular_converter.parallel.choice.loss_of_parts import refuse_mixed_rows, single_rows
from modular_converter.parallel.choice.skeleton import Guesses, on_meta, tried_without_data
from modular_converter.parallel.choice.small_instances import small_instance, small_settings, target_like
from modular_converter.parallel.engine.base.call_state import settings_of
from modular_converter.parallel.engine.base.preflight import refuse_narrow
from modular_converter.parallel.engine.group.gradients import norm_of, refuse_other_type, scale_gradients
from modular_converter.parallel.engine.group.in_process_group import refuse_other_weights
from modular_converter.parallel.engine.group.parts_of_batch import WrittenBuffers
from modular_converter.parallel.engine.group.process_grid import join_group
from modular_converter.parallel.engine.group.same_calls import (
    COUNTS,
    CallsOfAll,
    Marks,
    called_by_all,
    from_first_process,
    together,
)
from modular_converter.parallel.engine.group.same_settings import known_settings, settings_since
from modular_converter.parallel.engine.group.share_tensors import of_other_stage
from modular_converter.parallel.engine.group.spread import Spread
from modular_converter.parallel.engine.group.torch_patches import PATCHES
from modular_converter.parallel.engine.group.training_checkpoint import Checkpoints, Trained, saved_buffers
from modular_converter.parallel.engine.stages.generate import Decoder
from modular_converter.parallel.engine.stages.micro_batches import (
    NO_ROWS,
    ONE_PART,
    WHOLE_BATCH,
    Batch,
    RowDimensions,
    batch_of,
    main_input,
    refuse_hooks,
    refuse_mixed_examples,
    refuse_unequal_labels,
    refuse_what_a_step_lacks,
    what_counts,
)
from modular_converter.parallel.engine.stages.own_loss import Loss, LossOfRows, NextPart, row_of
from modular_converter.parallel.engine.stages.scheduled_stage import (
    ActionClock,
    ClockedStage,
    FirstError,
    ScheduledStage,
    bare_leaves,
    own_loss,
    refuse_parts_of_one_result,
    shared_weights,
    summed_gradients,
    what_was_not_handed_over,
    with_late_receives,
)
from modular_converter.parallel.errors import ApplyError, BuildError, NotHere
from modular_converter.parallel.modules import is_of_library, is_plain
from modular_converter.parallel.pipeline.chain import cuts_of_balance, spans
from modular_converter.parallel.pipeline.flow import LayerFlow, flow_of, layer_paths, layers_entry
from modular_converter.parallel.pipeline.prove import cuts_of, derive_pipeline, proven_pipeline_plan
from modular_converter.parallel.pipeline.stage import StageModule, copy_without_data, do_not_recompute, free_weights
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.plans.resolve import names_of_tied
from modular_converter.parallel.schedule.orders import order_of, schedule_named
from modular_converter.parallel.shard.collectives import ProcessGroup, under_transforms
from modular_converter.parallel.shard.forwards import check_ids, refuse_ids
from modular_converter.parallel.tiny.arguments import inputs_by_name
from modular_converter.parallel.tiny.build import Small
from modular_converter.parallel.tiny.inputs import examples_of, remember_examples
from modular_converter.parallel.torch_private import default_store
from modular_converter.parallel.torch_switches import TorchSwitches
from modular_converter.parallel.trace.record import bound_arguments, forward_names


# What a model has and its pipeline lacks -> what to write; `_BEFORE` for all else.
_INSTEAD = {
    "forward": "call the pipeline itself",
    "state_dict": "take full_state_dict() of parallelize(model, layout='pp2', …), or save_checkpoint",
    "save_pretrained": "take that of parallelize(model, layout='pp2', …), or save_checkpoint",
    **dict.fromkeys(
        ("load_state_dict", "load_full_state_dict"), "load before it is cut into stages, or take load_checkpoint"
    ),
    "no_sync": "a step sums the gradients of its micro-batches, and backward() of none is called: leave it out",
    "module": "it is no wrapper: take the pipeline itself",
    "unshard": "load what full_state_dict() gives into a model of its class",
    **dict.fromkeys(
        ("gradient_checkpointing_enable", "activation_checkpointing_enable"),
        "call it before it is cut into stages, or give Training(recompute=True)",
    ),
    **dict.fromkeys(
        ("modules", "named_modules", "children", "named_children", "get_submodule", "buffers", "named_buffers"),
        "they are in pipeline.stages[number].model",
    ),
}
_BEFORE = "what changes or asks the whole model comes before it is cut into stages"
# What is read of the model without data; each call looks for changes of the first two.
_OF_MODEL = ("config", "generation_config", "can_generate", "add_model_tags", "model_tags")
# Options of `generate` that are code of the caller's.
_OWN_CODE = ("logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn")
# Methods of a module that convert all weights by its `_apply`.
_CONVERTING = ("to", "type", "cpu", "cuda", "float", "double", "half", "bfloat16")


Made = TypeVar("Made")
Stages = TypeVar("Stages", bound="Pipeline")


def pipeline_plan(model: Any, parts: int = 1) -> PipelinePlan:
    """The derived plan; of the model itself if it has example inputs.

    Raises ``ApplyError`` if rows depend on each other, and a batch is divided into ``parts``, ``PlanError`` if no small
    instance can be built, the model is no chain of layers, or stages give other numbers.
    """
    examples = examples_of(model)
    if examples is not None:
        return derive_pipeline(model, examples)
    target = target_like(model)
    small = _tried(model, parts)
    plan = proven_pipeline_plan(small.model, small.inputs, target.name)
    layers_entry(model, plan)
    return plan


def _tried(model: Any, parts: int) -> Small:
    """A small instance of a model, whose rows do not depend on each other if a batch is divided."""
    small = small_instance(target_like(model), small_settings(model))
    if parts > 1:
        refuse_mixed_rows(model, small.model, small.inputs, single_rows(small.inputs), *WHOLE_BATCH)
    return small


def _given(model: Any, plan: PipelinePlan, parts: int) -> PipelinePlan:
    """A plan that was given, for a model whose rows are looked at as those of others."""
    if parts > 1 and is_of_library(model) and examples_of(model) is None:
        with contextlib.suppress(BuildError):
            _tried(model, parts)
    return plan


def agreed_pipeline_plan(model: Any, given: PipelinePlan | None, group: ProcessGroup, parts: int = 1) -> PipelinePlan:
    """The first process's plan, on all processes. Raises ``ApplyError`` on all processes if it has none."""
    with torch.random.fork_rng(devices=[]):  # the proof is seeded
        text = from_first_process(
            lambda: str(_given(model, given, parts) if given else pipeline_plan(model, parts)), group
        )
    return PipelinePlan.parse(text)


_NO_STAGES = "stages need a PipelinePlan, such as modular_converter.parallel.derive_pipeline(module, inputs) makes"


class Pipeline(Checkpoints):
    """A model in stages; every process of the group makes one, with the same model and arguments.

    It moves the weights of the process's own stages to the process's device, and frees all others, so that the model itself
    can no longer be used. ``clock`` records actions, for ``modular-plan schedule --measure``.

    Args:
        model: the whole model, the same on all processes.
        chunks: the number of micro-batches in a step.
        schedule: a schedule of torch: ``GPipe``, ``1F1B``, ``LoopedBFS``, ``Interleaved1F1B``, ``InterleavedZeroBubble``,
            ``ZBVZeroBubble`` or ``DualPipeV``.
        stages_per_process: for the last five; 2 if None.
        balance: the number of layers of each stage, such as ``(10, 12, 10)``; stages of about the same bytes if None.
        plan: if None, it is derived from the model and proven on a small instance, or with ``example_inputs``.
        example_inputs: for a module without a configuration of transformers, the arguments of one forward, by name or in
            order; the plan is derived from a copy of the module, as ``derive_pipeline`` does. The module keeps them.
        loss: function of the model's output and the rows of ``target``; if None, the model's own loss from ``labels``.
        group: all processes if None.
        device: of this process; if None, its GPU, or the CPU without GPUs.

    Raises:
        ScheduleError: the schedule does not allow these numbers (the message names the numbers that it allows), or the
            balance does not fit.
        ApplyError: processes have different weights, or the model is no chain of enough layers.
    """

    _tensors: ProcessGroup | None = None  # the processes that divide each stage

    _untried_loss = False
    """Whether example inputs do not show of what the model's own loss is the mean."""

    def __init__(
        self,
        model: Any,
        *,
        chunks: int,
        schedule: str = "1F1B",
        stages_per_process: int | None = None,
        balance: Sequence[int] | None = None,
        plan: PipelinePlan | None = None,
        loss: Loss | None = None,
        group: dist.ProcessGroup | None = None,
        device: str | torch.device | None = None,
        example_inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    ) -> None:
        if plan is not None and not isinstance(plan, PipelinePlan):
            raise ApplyError(f"plan= is a {type(plan).__name__}: {_NO_STAGES}")
        if example_inputs is not None:
            remember_examples(model, inputs_by_name(model, example_inputs))
        refuse_narrow(model)
        self._place = join_group(device)
        own_group: Any = dist.group.WORLD if group is None else group
        self._group, self._chunks = own_group, chunks
        self._everyone, self._part, data = self._everyone_of(own_group)
        self._parts = chunks * data
        self._loss = None if loss is None else LossOfRows(loss, chunks, data)
        self._marks, self._errors = Marks(), FirstError(self._everyone.size == dist.get_world_size(own_group))
        self._calls, self._settings = CallsOfAll(dist.get_process_group_ranks(self._everyone.group)), dict[str, str]()
        self._schedule = schedule_named(schedule)
        rank, size = dist.get_rank(own_group), dist.get_world_size(own_group)
        order = order_of(self._schedule, size, stages_per_process or self._schedule.usual, chunks)
        self._stages_in_all = order.stages
        refuse_other_weights(model, ProcessGroup(own_group), self._place)
        self._plan = agreed_pipeline_plan(model, plan, ProcessGroup(own_group), self._parts)
        count, stages = len(layer_paths(model, self._plan)), self._stages_in_all
        cuts = cuts_of(model, self._plan, stages) if balance is None else cuts_of_balance(balance, count, stages)
        self._layers = spans(cuts, count)
        check_ids(model)
        self._shapes: Any = copy_without_data(model)
        do_not_recompute(self._shapes)
        vars(self._shapes).update(vars(settings_of(model)))  # the caller's own
        self._known_settings = known_settings(model)
        self.clock = ActionClock(self._place)
        self._rows = RowDimensions(self._without_data, main_input(self._shapes))
        examples = examples_of(model)
        if self._parts > 1 and examples is not None:
            refuse_mixed_examples(model, examples, self._rows)
        if self._parts > 1 and (examples is not None or not is_of_library(model)):
            self._untried_loss = "labels" not in (examples or ())
        self._decoder: Decoder | None = None
        self._made: Any = None
        self._made_for: Any = None
        self._wrapped: dict[int, ScheduledStage] = {}
        self.stages = {
            number: StageModule(model, self._plan, self._layers[number])
            for number, owner in enumerate(order.stage_ranks)
            if owner == rank
        }
        names = self._names = names_of_tied(model)
        self._check_stages()
        free_weights(model)  # before the stages make their shares
        for stage in self.stages.values():
            self._prepare(stage)
            stage.to(self._place)
        held = (one for stage in self.stages.values() for one in stage.model.named_parameters())
        self._own = {names[name]: value for name, value in held}
        self._all = {
            name: self._own[name] if name in self._own else of_other_stage(name, one, self._place)
            for name, one in self._shapes.named_parameters()
        }
        self._shared = shared_weights(self._own, own_group, self._place)
        self._written = WrittenBuffers(pair for one in self.stages.values() for pair in one.model.named_modules())
        PATCHES.enter(self)

    def _check_stages(self) -> None:
        """For subclasses: refuse the stages of this process, while the model is still whole."""

    def __repr__(self) -> str:
        each = " + ".join(str(len(one)) for one in self._layers)
        path = layers_entry(self._shapes, self._plan).module or "the model"
        own = ", ".join(
            f"stage {number} with layers {stage.span.start} to {stage.span.stop - 1}"
            for number, stage in self.stages.items()
        )
        return (
            f"{type(self).__name__}({type(self._shapes).__name__}, {len(self._layers)} stages of {each} layers of {path}, "
            f"{self._schedule.name}, {self._chunks} micro-batches; here {own})"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_torchdynamo"):  # which `torch.compile` looks for
            raise ApplyError(
                f"torch.compile takes no {type(self).__name__}, whose processes exchange tensors in a step: leave it out, or take "
                "Training(compile=True) in a layout without pp"
            )
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._shapes, name, self)
        if found is self and name not in _INSTEAD:
            raise AttributeError(f"a {type(self).__name__} of a {type(self._shapes).__name__} has no {name}")
        if is_plain(found) or name in _OF_MODEL:
            return found
        raise NotHere(
            f"a {type(self).__name__} has no {name}, since each process has its own stages alone: {_INSTEAD.get(name, _BEFORE)}"
        )

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """As in a model of transformers; of all stages."""
        here = types.SimpleNamespace(named_modules=self._shapes.named_modules, named_parameters=self.named_parameters)
        return int(type(self._shapes).num_parameters(here, only_trainable, exclude_embeddings))

    def __setattr__(self, name: str, value: Any) -> None:
        of_model = name not in self.__dict__ and not hasattr(type(self), name) and "_written" in self.__dict__
        if of_model and hasattr(self._shapes, name):
            raise NotHere(f"{name} would be set on the {type(self).__name__}, and on no stage: {_BEFORE}")
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ApplyError(
            "a pipeline cannot be copied or pickled, since a process has its own stages alone: take save_checkpoint, or in a "
            "layout full_state_dict()"
        )

    def __iter__(self) -> Any:  # by which `fully_shard` takes modules
        raise ApplyError(
            f"a {type(self).__name__} is no module and no list of modules: for shares of its stages, take "
            "parallelize(model, layout='pp2.fsdp2', training=Training(chunks=8))"
        )

    def _prepare(self, stage: StageModule) -> None:
        """For subclasses: change how a stage holds its weights, before other code has them."""

    def _everyone_of(self, group: dist.ProcessGroup) -> tuple[ProcessGroup, int, int]:
        """All processes that have the model, the index of this process's part of a batch, and the number of parts."""
        return ProcessGroup(group), 0, 1

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """All parameters of the model, in its order; those of other processes' stages have no data (``is_meta``)."""
        for name, _ in self._shapes.named_parameters("", recurse, remove_duplicate):
            yield f"{prefix}.{name}" if prefix else name, self._all[self._names[name]]

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]:
        """All parameters, as in ``named_parameters``; an optimizer takes those of this process."""
        yield from (one for _, one in self.named_parameters(recurse=recurse))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As in a module; of this process's stages."""
        for one in self._own.values():
            if one.grad is not None:
                one.grad = None if set_to_none else torch.zeros_like(one.grad)

    @property
    def device(self) -> torch.device:
        """Of this process."""
        return self._place

    def _apply(self: Stages, change: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Stages:
        """What the methods of ``_CONVERTING`` call."""
        refuse_other_type(change, next(iter(self._own.values()), torch.empty(0, device=self._place)))
        return self

    def train(self: Stages, mode: bool = True) -> Stages:
        """As in a module."""
        for stage in self.stages.values():
            stage.train(mode)
        return self

    def eval(self: Stages) -> Stages:
        """As in a module."""
        return self.train(False)

    @property
    def training(self) -> bool:
        """As in a module."""
        return next(iter(self.stages.values())).training

    @called_by_all(lambda one: one._everyone)
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scale all gradients so that their norm, as if the model were whole, is at most ``max_norm``.

        Returns:
            The norm before, the same on every process.
        """
        second = {one.name for one in self._shared.own if one.ranks[0] != dist.get_rank()}
        weights = self.spreads()
        counted = [one for name, one in weights.items() if name not in second]
        norm = norm_of(counted, norm_type, self._tensors, self._place, ProcessGroup(self._group))
        scale_gradients(weights.values(), norm, max_norm)
        return norm

    def spreads(self) -> dict[str, Spread]:
        """First name in the whole model -> the parts of a weight of this process."""
        return {name: Spread(name, value, None) for name, value in self._own.items()}

    def _trained(self) -> Trained:
        return Trained(list(self.spreads().values()), self._buffers(), self._everyone)

    def _buffers(self) -> dict[str, torch.Tensor]:
        """Name in the whole model -> buffer that is saved."""
        return {name: one for stage in self.stages.values() for name, one in saved_buffers(stage.model).items()}

    def step(self, *args: Any, target: torch.Tensor | None = None, **inputs: Any) -> torch.Tensor:
        """Run forward and backward of a batch, and add the gradients; gradients of shared weights are summed first.

        Args:
            args: inputs in the order of the model's forward.
            target: of ``loss``; its rows are divided like those of the inputs.
            inputs: of the model, the whole batch on every process; in a layout this process's part, with index
                ``data_rank`` of ``layout.data``.

        Returns:
            The mean loss of the micro-batches in float32, on every process.

        Raises ``ApplyError`` without target and labels, and for batches that cannot be divided, as `batch_of` does. An error of
        ``loss``, or of a hook where a process has its stages alone, is one on all; gradients are then of a part of the batch.
        """
        batch = self._begun(
            "step", args, inputs | {"target": target}, lambda: self._batch_of_step(args, inputs, target)
        )
        losses: list[torch.Tensor] = []
        with together([self._calls]):
            goal = (batch.inputs["labels"] if target is None else target).to(self._place)
            scheduled = self._scheduled(batch, trains=True)
            given = None if self._last_stage is None else losses
            if self._loss is not None:
                self._loss.begin(batch.size, self._next_part())
            with summed_gradients(self._shared):
                scheduled.step(micro_batch=torch.arange(self._chunks), losses=given, return_outputs=False, target=goal)
                other = self._calls.of_other_layers()  # before this process waits for those that wait in a layer
                total = self._everywhere(losses)  # which a process that has ended cannot join
                self._calls.ended(self._errors.error or other or self._of_written_buffers())
            return total

    def _of_written_buffers(self) -> ApplyError | None:
        """The error of a step whose micro-batches have written buffers, one after the other."""
        written = self._written.since()
        if not written or self._parts == 1:
            return None
        return ApplyError(
            f"forwards wrote {next(iter(written))} from parts of the batch, so it is not that of the batch: put its module into eval "
            f"mode, take a norm of each row (LayerNorm, GroupNorm), or {ONE_PART}"
        )

    def _batch_of_step(self, args: tuple[Any, ...], inputs: dict[str, Any], target: torch.Tensor | None) -> Batch:
        inputs = self._named(args, inputs) if args else inputs
        if not torch.is_grad_enabled():
            raise ApplyError("a step computes gradients: call it outside of torch.no_grad() and inference_mode()")
        if self._loss is None and inputs.get("labels") is None:
            raise ApplyError("the model's own loss needs labels=; or give Pipeline a loss= and step a target=")
        if self._loss is None and self._untried_loss:
            raise ApplyError(
                "the model's own loss may be no mean over parts of a batch, which its example inputs do not show: give labels in "
                f"example_inputs=, or {ONE_PART}"
            )
        if (self._loss is None) != (target is None):
            raise ApplyError("target= is for the loss= of Pipeline: give both, or neither and labels=")
        refuse_what_a_step_lacks(inputs, getattr(self._shapes, "config", None))
        refuse_hooks(self._own if self._chunks > 1 else {one.name: one.parameter for one in self._shared.own})
        batch = self._batch(inputs)
        refuse_unequal_labels(batch, self._chunks)
        if self._loss is not None and target is not None and self._parts > self._chunks:
            part = NextPart(batch.size, row_of(target))
            default_store().set(f"{self._calls.key}/part/{self._part}", pickle.dumps(part))
        return batch

    def _next_part(self) -> NextPart | None:
        """What the next data rank has told before this step; None without data ranks."""
        data = self._parts // self._chunks
        place = f"{self._calls.key}/part/{(self._part + 1) % data}"
        return None if data == 1 else pickle.loads(default_store().get(place))

    def _begun(self, method: str, args: Any, kwargs: Any, check: Callable[[], Made]) -> Made:
        """What a check of a call makes, which all processes begin; an error of it, or another setting or batch, on one is one on all.

        Args:
            args, kwargs: of the method.
        """
        found, refused = list[Made](), cast("Exception | None", None)
        now = {f"torch's {name}": repr(value) for name, value in TorchSwitches.here().as_dict().items()}
        now |= {"training": repr(self.training), "grad mode": repr(torch.is_grad_enabled())}
        try:
            if under_transforms():
                raise ApplyError(
                    "torch.func does not go with stages: give all rows as one batch, or take a layout such as tp2"
                )
            now |= self._changed_settings()
            found.append(check())
        except Exception as error:
            refused = error
        said = {name: value for name, value in now.items() if value != self._settings.get(name)}
        called = {"call": method, f"batch {self._part}": self._marks.of(method, args, kwargs)}
        if self._parts > self._chunks and method == "step" and found and self._loss is None:
            called[COUNTS] = what_counts(cast("Any", found[0]))
        self._calls.begin(said, refused, called)
        self._settings = now
        return found[0]

    @torch.no_grad()
    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """The model's output for a batch, without gradients, on the process of the last stage; None on the others.

        Hidden states, attentions and router logits of all layers are passed to the last stage if the caller asks for them.

        Raises ``ApplyError`` as `batch_of` does, and for a result that does not consist of rows.
        """
        batch = self._begun("a forward", args, inputs, lambda: self._batch_of_forward(args, inputs))
        with together([self._calls]):
            merged = self._scheduled(batch, trains=False).eval(micro_batch=torch.arange(self._chunks))
            output = None if self._last_stage is None else self._last_stage.output(merged)
            error = self._errors.error
            said = "" if error else what_was_not_handed_over(output)
            self._calls.ended(ApplyError(said) if said else error or self._calls.of_other_layers())
            return output

    def _batch_of_forward(self, args: tuple[Any, ...], inputs: dict[str, Any]) -> Batch:
        inputs = self._named(args, inputs) if args else inputs
        if "labels" in inputs:
            raise ApplyError("labels are for step(); a forward gives no loss")
        if self._schedule.v_shaped:
            raise ApplyError(f"{self._schedule.name} has no forward without a backward: use another schedule for it")
        if len(self.stages) == self._stages_in_all > 1:
            raise ApplyError(
                "torch runs no forward without a backward with all stages on one process: run the whole model"
            )
        return self._batch(inputs)

    @torch.no_grad()
    def generate(
        self, input_ids: torch.Tensor | None = None, *, groups: int | None = None, **options: Any
    ) -> torch.Tensor:
        """Continue prompts, which are padded on the left, greedily or by sampling.

        The last stage samples, group by group: with one group, the tokens are those of the whole model.

        Args:
            input_ids: of shape [rows, length], on every process.
            groups: the number of parts of the batch in flight, each of which uses one stage at a time; if None, the number of
                stages, or one with code of your own, which may count its calls.
            options: of transformers' ``generate``, such as attention_mask, max_new_tokens, do_sample, logits_processor.

        Returns:
            Prompts with their continuations, on every process.

        Raises ``ApplyError`` for other kinds of decoding, inputs or caches, and for several stages in a process.
        """
        ids: Any = options.pop("inputs", None) if input_ids is None else input_ids
        decoder = self._begun(
            "generate", (ids,), options | {"groups": groups}, lambda: self._decoder_for(ids, options)
        )
        self._shapes.train(self.training)
        self._made_for = None  # the decoder changes the shapes of the stage
        with together([self._calls]):
            usual = 1 if any(options.get(name) for name in _OWN_CODE) else self._stages_in_all
            return decoder.generate(ids, min(groups or usual, len(ids)), options)

    def _changed_settings(self) -> dict[str, str]:
        """What is another in ``generation_config`` than at first; raises ``NotHere`` for ``config``."""
        found = settings_since(self._known_settings, self._shapes)
        if lost := [name for name in found if name.startswith("config")]:
            raise NotHere(f"{lost[0]} was set, which no stage sees: undo it; {_BEFORE}")
        return found

    def _decoder_for(self, input_ids: Any, options: Mapping[str, Any]) -> Decoder:
        if input_ids is None:
            others = ", ".join(name for name, one in options.items() if isinstance(one, torch.Tensor))
            raise ApplyError(
                f"generate in stages begins with input_ids: give them{others and ' in place of '}{others}"
            )
        if not len(input_ids):
            raise ApplyError(NO_ROWS)
        self._refuse_ids(input_ids)
        if self._decoder is None:
            self._decoder = Decoder(self.stages, self._shapes, self._plan, self._group, self._place)
        return self._decoder

    def _named(self, args: tuple[Any, ...], inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs by name."""
        own = dict(zip(examples_of(self._shapes) or (), args)) if not forward_names(self._shapes) else {}
        try:  # without names those of the example inputs, of a forward of *args, **kwargs
            return own | bound_arguments(self._shapes, args[len(own) :], inputs)
        except TypeError as error:
            names = ", ".join(forward_names(self._shapes))
            raise ApplyError(f"{len(args)} inputs in order: the forward takes {names}: {error}") from error

    def _batch(self, inputs: dict[str, Any]) -> Batch:
        if "use_cache" in forward_names(self._shapes) and inputs.get("use_cache") is None:
            inputs = {**self._as_with_a_cache(inputs), "use_cache": False}
        self._refuse_ids(inputs.get("input_ids"))
        return batch_of(inputs, self._chunks, self._place, self._rows)

    def _refuse_ids(self, ids: Any) -> None:
        """Raise ``IndexError`` for ids that the first stage would meet alone, while the others wait for it."""
        with contextlib.suppress(AttributeError, NotImplementedError):  # of a module that names no table
            refuse_ids(self._shapes.get_input_embeddings(), ids)

    def _as_with_a_cache(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Inputs by which a forward without a cache computes what a forward with one does, where the model would keep one.

        Without it and without a mask, transformers takes positions that begin anew for another sequence in the row.
        """
        keeps = getattr(getattr(self._shapes, "config", None), "use_cache", None)
        main = inputs.get(main_input(self._shapes), inputs.get("inputs_embeds"))
        hidden = inputs.get("position_ids") is None or inputs.get("attention_mask") is not None
        if hidden or not keeps or main is None or "attention_mask" not in forward_names(self._shapes):
            return inputs
        return {**inputs, "attention_mask": torch.ones(main.shape[:2], dtype=torch.long, device=main.device)}

    @property
    def _last_stage(self) -> ScheduledStage | None:
        """The last stage; None on other processes."""
        return self._wrapped.get(self._stages_in_all - 1)

    def _scheduled(self, batch: Batch, trains: bool) -> Any:
        """A schedule of torch for batches of these shapes; cached for the latest shapes."""
        key = (batch.shapes, trains, self.training)
        parts = batch.parts(self._chunks)
        if self._made_for != key:
            flow = self._flow(parts[0], trains)
            if trains and self._loss is None and own_loss(flow.output) is None:
                kind = type(flow.output).__name__
                raise ApplyError(f"the model returns a {kind} without a loss: give Pipeline, or Training(…), a loss=")
            if not trains and self._chunks > 1:
                refuse_parts_of_one_result(flow.output, self._without_data(on_meta(batch.inputs)), self._chunks)
            self._made, self._made_for = self._schedule_of(flow, trains), key
        for wrapped in self._wrapped.values():
            wrapped.inputs = parts
        self._errors.error = None
        return self._made

    def _schedule_of(self, flow: LayerFlow, trains: bool) -> Any:
        stages = []
        self._wrapped = {}
        part = own_loss if trains and self._loss is None else None
        for number, stage in self.stages.items():
            stage.prepare(flow)
            wrapped = self._wrapped[number] = ScheduledStage(stage, flow, self._errors, self._place, part)
            takes, gives = bare_leaves(stage.takes), bare_leaves(wrapped.gives)
            where = (self._stages_in_all, self._place)
            stages.append(ClockedStage(wrapped, number, *where, takes, gives, group=self._group, clock=self.clock))
        made: Any = get_schedule_class(self._schedule.name)
        wanted = stages if issubclass(made, PipelineScheduleMulti) else stages[0]
        loss = self._loss_of_chunk if trains else None
        return with_late_receives(made(wanted, self._chunks, loss_fn=loss, scale_grads=False))

    def _flow(self, inputs: dict[str, Any], trains: bool) -> LayerFlow:
        """The shapes of a micro-batch, from a run of the whole model without data."""
        self._shapes.train(self.training)
        with torch.set_grad_enabled(trains), Guesses(), self._own_settings():
            # A caller's loss may read all of the output.
            asks = not trains or self._loss is not None
            run = partial(flow_of, self._shapes, self._plan, on_meta(inputs), asks=asks, skips=True)
            return tried_without_data(run)

    def _without_data(self, inputs: Mapping[str, Any]) -> Any:
        self._shapes.train(self.training)
        with torch.no_grad(), Guesses(), self._own_settings():
            return tried_without_data(partial(self._shapes, **inputs))

    @contextlib.contextmanager
    def _own_settings(self) -> Iterator[None]:
        """A run of the model's code, which may set what the caller has not, as classifiers do ``config.problem_type``."""
        try:
            yield
        finally:
            self._known_settings = known_settings(self._shapes)

    def _loss_of_chunk(self, output: Any, target: torch.Tensor) -> torch.Tensor:
        """A micro-batch's contribution to the mean loss."""
        assert self._last_stage is not None
        try:
            found = self._last_stage.output(output)
            return found / self._chunks if self._loss is None else self._loss(found, target)
        except Exception as error:  # of the caller's function
            self._errors.error = self._errors.error or error
            parts = output if isinstance(output, (tuple, list)) else [output]
            return sum(
                (one.float().sum() * 0 for one in parts if one.requires_grad), torch.zeros((), device=self._place)
            )

    def _everywhere(self, losses: Sequence[torch.Tensor]) -> torch.Tensor:
        # In float32, since the other processes do not know the type of the last stage's losses.
        nothing = torch.zeros((), dtype=torch.float32, device=self._place)
        total = torch.stack(list(losses)).detach().sum().float() if losses else nothing
        dist.all_reduce(total, group=self._group)
        return total


for _name in _CONVERTING:
    setattr(Pipeline, _name, getattr(torch.nn.Module, _name))
