"""``modular-plan schedule --measure``: times of a model's layers on one device, of a transfer, and of steps of its pipeline."""

from __future__ import annotations

import functools
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.costs import CountRequest, model_at_size
from modular_converter.parallel.engine.group.process_grid import join_group
from modular_converter.parallel.engine.group.same_calls import everywhere, from_first_process
from modular_converter.parallel.engine.stages.pipeline import Pipeline
from modular_converter.parallel.engine.stages.scheduled_stage import Clock
from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.forecast import Forecast, PipelineSetting
from modular_converter.parallel.schedule.report import MeasuredStep
from modular_converter.parallel.schedule.stage_costs import ChainCosts, StageCost
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.trace.record import tensors_in


REPEATS = 5
WARM_UP = 2


def layer_times(model: Any, path: str, inputs: Mapping[str, Any], trains: bool) -> ChainCosts:
    """Seconds of each layer of a model, and of the parts before and after the layers, on one device.

    Args:
        path: of the list of layers.
        inputs: of one micro-batch; with labels if ``trains``.

    Returns:
        Costs without bytes: medians of ``REPEATS`` runs. The backward of weights is the difference between a whole
        backward and a backward of activations only.

    Raises ``ScheduleError`` if the model has no loss to train with.
    """
    layers = list(model.get_submodule(path).children())
    device = next(model.parameters()).device

    def medians(whole: bool) -> list[list[float]]:
        runs = [_Run(layers, device, whole).times(model, inputs, trains) for _ in range(WARM_UP + REPEATS)]
        return [[statistics.median(times) for times in zip(*part)] for part in zip(*runs[WARM_UP:])]

    all_of_it = medians(whole=True)
    activations = medians(whole=False) if trains else all_of_it
    costs = [
        StageCost(forward, min(back, alone), max(back - alone, 0.0))
        for (forward, back), (_, alone) in zip(all_of_it, activations)
    ]
    return ChainCosts(tuple(costs[1:-1]), costs[0], costs[-1])


class _Run:
    """The points in time at which a run enters each part: before the layers, each layer, and after the layers.

    Args:
        whole: compute the gradients of weights, too; else only the gradient of the first layer's input.
    """

    def __init__(self, layers: list[torch.nn.Module], device: torch.device, whole: bool) -> None:
        self.layers, self.clock, self.whole = layers, Clock(device), whole
        self.entering: Any = None
        self.handles: list[Any] = []
        self.forward: list[Any] = []
        self.backward: dict[int, Any] = {}

    def times(self, model: Any, inputs: Mapping[str, Any], trains: bool) -> list[tuple[float, float]]:
        """Seconds of forward and backward of each part."""
        self.handles = [
            layer.register_forward_pre_hook(functools.partial(self._enter, number), with_kwargs=True)
            for number, layer in enumerate(self.layers)
        ]
        self.handles.append(self.layers[-1].register_forward_hook(self._leave))
        try:
            with torch.set_grad_enabled(trains):
                start = self.clock.now()
                result = model(**inputs)
                forward = [start, *self.forward, self.clock.now()]
            backward = self._backward(model, result) if trains else [start] * len(forward)
        finally:
            # Break a reference cycle that Python cannot collect: tensor, its hook, this object.
            for handle in self.handles:
                handle.remove()
            self.entering = None
        seconds = self.clock.seconds
        return [
            (seconds(a, b), seconds(d, c))
            for a, b, c, d in zip(forward, forward[1:], backward, backward[1:], strict=False)
        ]

    def _backward(self, model: Any, result: Any) -> list[Any]:
        """The end of each part's backward, in order of the parts, then the start of the last part's."""
        loss: Any = getattr(result, "loss", None)
        if loss is None:
            raise ScheduleError(f"{type(model).__name__} has no loss of its own: measure it with --inference")
        began = self.clock.now()
        if self.whole:
            loss.backward()
        else:
            torch.autograd.backward(loss, inputs=[self.entering])
        ended = self.clock.now()
        # A part is done when the gradient of its input is computed.
        return [ended, *(self.backward.get(number, ended) for number in range(len(self.layers) + 1)), began]

    def _enter(self, number: int, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        self.forward.append(self.clock.now())
        tensor = self._mark_gradient(number, (args, kwargs))
        self.entering = tensor if number == 0 else self.entering

    def _leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        self.forward.append(self.clock.now())
        self._mark_gradient(len(self.layers), result)

    def _mark_gradient(self, number: int, value: Any) -> Any:
        """Record when the gradient of a value is computed: of its first tensor with a gradient, the hidden states."""
        tensor: Any = next((one for one in tensors_in(value) if one.requires_grad), None)
        if tensor is not None:
            self.handles.append(tensor.register_hook(functools.partial(self._note_gradient, number)))
        return tensor

    def _note_gradient(self, number: int, gradient: torch.Tensor) -> None:
        self.backward[number] = self.clock.now()


def transfer_time(size: int, device: torch.device) -> float:
    """Seconds to send bytes from the first process to the second: half of a median round trip."""
    if dist.get_world_size() < 2 or dist.get_rank() > 1:
        return 0.0
    clock, data, taken = Clock(device), torch.empty(size, dtype=torch.uint8, device=device), []
    for _ in range(WARM_UP + REPEATS):
        start = clock.now()
        for sender in (0, 1):
            (dist.send if dist.get_rank() == sender else dist.recv)(data, 1 - dist.get_rank())
        taken.append(clock.seconds(start, clock.now()) / 2)
    return statistics.median(taken[WARM_UP:])


def measured_step(pipeline: Pipeline, inputs: Mapping[str, Any], trains: bool) -> MeasuredStep:
    """The step of median length among ``REPEATS``, on every process. In training, AdamW follows each step, untimed."""
    run: Callable[[], object] = functools.partial(pipeline.step if trains else pipeline, **inputs)
    optimizer = torch.optim.AdamW(pipeline.parameters()) if trains else None
    steps = []
    for number in range(WARM_UP + REPEATS):
        found = _step(pipeline, run)
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        if number >= WARM_UP:
            steps.append(found)
    return sorted(steps, key=lambda step: step.seconds)[REPEATS // 2]


def _step(pipeline: Pipeline, run: Callable[[], object]) -> MeasuredStep:
    """One step, with the times and memory of all processes."""
    clock = Clock(pipeline.clock.device)
    is_gpu = pipeline.clock.device.type == "cuda"
    if is_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    dist.barrier()
    start = clock.now()
    with pipeline.clock.on():
        run()
    seconds = clock.seconds(start, clock.now())
    peak = float(torch.cuda.max_memory_allocated()) if is_gpu else 0.0
    lengths, actions, peaks = zip(*everywhere((seconds, pipeline.clock.timed(), peak), ProcessGroup()))
    return MeasuredStep(max(lengths), actions, peaks)


class MeasuredModel:
    """A model with weights, on each process of a group that torchrun started.

    Raises:
        ScheduleError: the number of processes is not the setting's number of ranks.
        PlanError: the model is unknown, cannot be built, or is not a chain.
    """

    def __init__(self, request: CountRequest, setting: PipelineSetting) -> None:
        started = int(os.environ.get("WORLD_SIZE", "1"))
        if started != setting.ranks:
            raise ScheduleError(
                f"--measure runs {setting.ranks} processes, {started} are there; start it as `torchrun --nproc-per-node "
                f"{setting.ranks} --no-python modular-plan schedule …`"
            )
        self.setting = setting
        self.device = join_group(None)
        self.is_first = dist.get_rank() == 0
        self.model, self.path, self.inputs = model_at_size(request, self.device)

    @property
    def device_name(self) -> str:
        """The name of the device, for messages."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU processes"

    def times(self, output: float) -> ChainCosts:
        """The layers' times on the first process's device, and the time of a transfer; the same on all processes.

        Args:
            output: bytes of the transfer.
        """
        whole = {**self.inputs, "use_cache": False} if "input_ids" in self.inputs else self.inputs
        times = from_first_process(
            lambda: layer_times(self.model, self.path, whole, self.setting.trains), ProcessGroup()
        )
        self.model.zero_grad()
        seconds = everywhere(transfer_time(int(output), self.device), ProcessGroup())
        return replace(times, transfer=seconds[0])

    def step(self, forecast: Forecast) -> MeasuredStep:
        """Run and measure a step of the pipeline; the model cannot be used afterwards."""
        setting = self.setting
        pipeline = Pipeline(
            self.model,
            chunks=setting.chunks,
            schedule=setting.schedule,
            stages_per_process=setting.per_rank,
            balance=forecast.balance,
            device=self.device,
        ).train(setting.trains)
        # The rows of one micro-batch, repeated for all micro-batches.
        rows = {
            name: torch.cat([value] * setting.chunks) if isinstance(value, torch.Tensor) and value.dim() else value
            for name, value in self.inputs.items()
        }
        return measured_step(pipeline, rows, setting.trains)
