"""``parallelize`` in a layout with stages: a pipeline whose stages are sharded, and spread over data ranks."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.choice.skeleton import Skeleton, kept_types
from modular_converter.parallel.engine.arguments import Arguments
from modular_converter.parallel.engine.base.attention_heads import wants_attentions
from modular_converter.parallel.engine.base.dropout import SharedDropout
from modular_converter.parallel.engine.base.trials_of_model import UNPROVEN, Unproven, refuse_unproven
from modular_converter.parallel.engine.checkpoint.model_files import is_folder, saves_as_library
from modular_converter.parallel.engine.group.gradients import refuse_wrapped
from modular_converter.parallel.engine.group.held_weights import hold_weights
from modular_converter.parallel.engine.group.in_process_group import agreed_unproven, opened, plan_and_skeleton
from modular_converter.parallel.engine.group.kept_gathered import layers_entered
from modular_converter.parallel.engine.group.process_grid import (
    ProcessGrid,
    begun_together,
    join_group,
    process_grid,
    refuse_options,
    spread_over_data,
)
from modular_converter.parallel.engine.group.same_calls import called_by_all, everywhere, refuse_other_options
from modular_converter.parallel.engine.group.spread import Spread, each_once, gathering, mark_parts
from modular_converter.parallel.engine.group.training_checkpoint import InLayout
from modular_converter.parallel.engine.group.weight_sources import WeightSource
from modular_converter.parallel.engine.group.whole_state import made_by_first
from modular_converter.parallel.engine.stages.micro_batches import Batch
from modular_converter.parallel.engine.stages.pipeline import Pipeline
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Training
from modular_converter.parallel.modules import recompute_layers
from modular_converter.parallel.pipeline.stage import StageModule
from modular_converter.parallel.plans.resolve import Resolution, resolve
from modular_converter.parallel.shard.collectives import ProcessGroup, forget_entered
from modular_converter.parallel.tiny.adapters import adapters_of


# The schedules of torch with undivided backwards, which the sums between processes need.
_SCHEDULES = ("GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B")


@begun_together
def parallelize_in_stages(given: Arguments) -> PipelineInLayout:
    """The pipeline of a layout with stages; all processes must call it with the same model, or the same folder.

    Raises ``PlanError`` if the layout does not fit the processes or the model, or an option does not go with stages.
    """
    assert given.layout is not None
    training = given.training or Training()
    _refuse(given, training)
    if not is_folder(given.model):
        refuse_wrapped(given.model)
    place = join_group(given.device)
    refuse_other_options(f"layout={given.layout}, training={training}")
    # For another type of computation, `fully_shard` over one process also converts a stage's results.
    grid = process_grid(given.layout, None, False, place, always_data=training.computes_in is not None)
    model, given, source = opened(given, grid, place)
    refuse_options(model, grid, training, kept_types(model, given.weight_type))
    if training.recompute:
        recompute_layers(model)
        given = replace(given, training=replace(training, recompute=False))
    return PipelineInLayout(given, grid, source)


class PipelineInLayout(InLayout, Pipeline):
    """A pipeline in which several processes of a layout hold each stage."""

    def __init__(self, given: Arguments, grid: ProcessGrid, source: WeightSource) -> None:
        training, model = given.training or Training(), given.model
        self._training, self._grid, self._source = training, grid, source
        self._skeleton: Skeleton | None = None
        unproven: frozenset[str] = frozenset()
        self._saved = tuple(model.state_dict(keep_vars=True))
        self._whole = {name: tuple(one.shape) for name, one in model.named_parameters(remove_duplicate=False)}
        self._resolution = Resolution({}, (), ())
        if grid.group.size > 1:
            kept = kept_types(model, None)
            plan, self._skeleton = plan_and_skeleton(model, given, kept, grid, source)
            unproven = agreed_unproven(model, given.plan, grid.everyone)
            self._resolution = resolve(plan, model)
        self._tensors = grid.group
        assert training.chunks is not None and grid.stages is not None
        super().__init__(
            model,
            chunks=training.chunks,
            schedule=training.schedule,
            loss=training.loss,
            group=grid.stages,
            device=grid.place,
        )
        source.close()
        if training.computes_in is not None:
            for one in self._shapes.parameters():
                if one.dim() and one.is_floating_point():  # as `spread_over_data` does
                    one.data = one.data.to(training.computes_in)
        if self._skeleton is not None:
            self._shapes.__dict__[UNPROVEN] = Unproven(unproven, self._skeleton)

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """As ``Pipeline.__call__``."""
        with gathering(self._grid.data is not None):
            return super().__call__(*args, **inputs)

    def generate(
        self, input_ids: torch.Tensor | None = None, *, groups: int | None = None, **options: Any
    ) -> torch.Tensor:
        """As ``Pipeline.generate``, in a layout of stages alone.

        Raises ``ApplyError`` in others, where the processes of one stage would sample different tokens.
        """
        if self._grid.layout.pp < self._grid.everyone.size:
            raise ApplyError(
                f"generate does not run in {self._grid.layout}: take a layout of stages alone, or one without stages, for it"
            )
        return super().generate(input_ids, groups=groups, **options)

    @called_by_all(lambda one: one._grid.everyone)
    def full_state_dict(self, first_only: bool = False) -> dict[str, torch.Tensor]:
        """The whole weights on the CPU, as the unsharded model's ``state_dict``; all processes must call it.

        Args:
            first_only: other processes than the first get an empty dict, and hold at most one whole weight at a time.
        """
        everyone, found = self._grid.everyone, dict[str, torch.Tensor]()
        kept = everyone.rank == 0 or not first_only
        spreads, buffers = self.spreads(), self._buffers()
        own = {name: (one.shape, one.stored.dtype) for name, one in spreads.items()}
        own |= {name: (tuple(one.shape), one.dtype) for name, one in buffers.items()}
        known = everywhere(own, everyone)
        made: dict[str, torch.Tensor] = {}
        for key in self._saved:
            name = self._names.get(key, key)
            if name not in made:
                owner = next(rank for rank, names in enumerate(known) if name in names)
                shape, kind = known[owner][name]
                value = torch.empty(shape, dtype=kind, device=self._place)
                one = spreads.get(name)
                whole = buffers.get(name) if one is None else one.whole(one.stored)  # all processes of the stage
                if owner == everyone.rank and whole is not None:
                    value.copy_(whole.detach())
                dist.broadcast(value, src=owner)
                made[name] = value.cpu() if kept else value.new_empty(0)
            found[key] = made[name]
        return found if kept else {}

    def save_pretrained(
        self, folder: str | os.PathLike[str], max_shard_size: int | str | None = None, **more: Any
    ) -> None:
        """Save the model from the first process, which holds all of it meanwhile; all processes must call it.

        Args:
            max_shard_size: of a file, such as ``"2GB"``; 5 GB if None.
            more: other arguments of the library's method.

        Raises ``ApplyError`` for a model with a ``save_pretrained`` of its own, or none.
        """
        if not saves_as_library(type(self._shapes)):
            raise ApplyError(
                f"{type(self._shapes).__name__} is not saved as models of transformers are: load full_state_dict() into it"
            )
        state = self.full_state_dict(first_only=True)

        def write() -> None:
            if self._grid.everyone.rank:
                return
            whole = copy.deepcopy(self._shapes)
            for name, one in whole.named_parameters():
                one.data = one.data.to(state[name].dtype)  # of the weights, where products have another one
            size = "5GB" if max_shard_size is None else max_shard_size
            whole.save_pretrained(folder, state_dict=state, is_main_process=True, max_shard_size=size, **more)

        made_by_first(write)

    def spreads(self) -> dict[str, Spread]:
        """First name in the whole model -> the parts of a weight of this process."""
        found: dict[str, Spread] = {}
        for stage in self.stages.values():
            for one in each_once(stage):
                name = self._names[one.name.removeprefix("model.")]
                found[name] = replace(one, name=name)
        return found

    def _everyone_of(self, group: dist.ProcessGroup) -> tuple[ProcessGroup, int, int]:
        return self._grid.everyone, self.data_rank, self._grid.layout.data

    def _batch(self, inputs: dict[str, Any]) -> Batch:
        grid = self._grid
        # With copies of weights, processes meet in the sums of gradients alone.
        own = self.stages if grid.layout.shards > 1 or (grid.data is not None and torch.is_grad_enabled()) else {}
        self._calls.layers = {f" in stage {number}": layers_entered(stage) for number, stage in own.items()}
        for one in self._calls.layers.values():
            one.clear()
        refuse_unproven(self._shapes, type(self._shapes).forward, (), inputs)
        if self._grid.layout.tp > 1 and wants_attentions(self._shapes, (), inputs):
            raise ApplyError(
                f"in {self._grid.layout} a process has the attention weights of its own heads alone: take a layout of stages alone, or "
                "one without stages, for output_attentions"
            )
        return super()._batch(inputs)

    def _check_stages(self) -> None:
        seen: dict[int, StageModule] = {}
        for stage in self.stages.values():
            for one in stage.parameters():
                if seen.setdefault(id(one), stage) is not stage:
                    raise ApplyError(
                        f"{self._schedule.name}: two stages of one process have the same weight, and would train two "
                        "copies; use schedule='1F1B'"
                    )

    def _prepare(self, stage: StageModule) -> None:
        group, model, grid = self._grid.group, stage.model, self._grid
        applied = self._source.apply_plan(model, _part_of(self._resolution, stage), later=grid.data is not None)
        if self._skeleton is not None:
            SharedDropout(model, self._skeleton, group.group, grid.place)
            hold_weights(applied, self._whole, grid.mesh, grid.data is None)
            stage.register_forward_hook(lambda *_: forget_entered(group))
        spread_over_data(stage, grid, self._training)
        stage.give_first()
        self._source.fill(model)
        mark_parts(model)


def _part_of(whole: Resolution, stage: StageModule) -> Resolution:
    """The resolution of a plan for the parts of the model in a stage."""
    held = {name for name, _ in stage.model.named_parameters(remove_duplicate=False)}

    def here(path: str) -> bool:
        return not any(f"{path}.".startswith(f"{one}.") for one in stage.absent)

    return Resolution(
        {name: piece for name, piece in whole.pieces.items() if name in held},
        tuple(hook for hook in whole.hooks if here(hook[0])),
        tuple(one for one in whole.attributes if here(one[0])),
        whole.tails,
    )


def _refuse(given: Arguments, training: Training) -> None:
    """Raise ``ApplyError`` for options that do not work with stages."""
    assert given.layout is not None
    in_memory = not is_folder(given.model)
    if in_memory and adapters_of(given.model) is not None:
        raise ApplyError(f"adapters do not go with stages ({given.layout}): use a layout without pp")
    if training.chunks is None:
        raise ApplyError(f"layout {given.layout} needs training=Training(chunks=8), the micro-batches of a step")
    if training.schedule not in _SCHEDULES:
        raise ApplyError(
            f"schedule={training.schedule!r} in a layout: choose from {', '.join(_SCHEDULES)}; others divide the backward, "
            "and are only for Pipeline"
        )
    refused = {
        "compile": (training.compile, "leave it out"),
        "offload": (training.offload, "leave it out"),
        "dtype": (in_memory and given.weight_type is not None, "convert the model before"),
    }
    for name, (is_given, cure) in refused.items():
        if is_given:
            raise ApplyError(f"{name}= does not go with stages ({given.layout}): {cure}")
