"""``modular-plan schedule --measure``: times of a model's layers on one device, and of its pipeline on all processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.forecast import Forecast, PipelineSetting
from modular_converter.parallel.schedule.report import MeasuredStep
from modular_converter.parallel.schedule.stage_costs import ChainCosts


class MeasuredModel:
    """A model with weights, on each process of a group that torchrun started.

    Args:
        request: a ``CountRequest``.

    Raises:
        ScheduleError: the number of processes is not the setting's number of ranks.
        PlanError: the model is unknown, cannot be built, or is not a chain.
    """

    def __init__(self, request: Any, setting: PipelineSetting) -> None:
        started = int(os.environ.get("WORLD_SIZE", "1"))
        if started != setting.ranks:
            raise ScheduleError(
                f"--measure runs {setting.ranks} processes, {started} are there; start it as `torchrun --nproc-per-node "
                f"{setting.ranks} --no-python modular-plan schedule …`"
            )
        from modular_converter.parallel.costs.full_model import model_at_size
        from modular_converter.parallel.engine.group.process_grid import join_group

        self.setting = setting
        self.device = join_group(None)
        self.model, self.path, self.inputs = model_at_size(request, self.device)

    @property
    def device_name(self) -> str:
        """The name of the device, for messages."""
        import torch

        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU processes"

    @property
    def is_first(self) -> bool:
        """Whether this process prints."""
        return os.environ.get("RANK", "0") == "0"

    def times(self, output: float) -> ChainCosts:
        """The layers' times on the first process's device, and the time of a transfer; the same on all processes.

        Args:
            output: bytes of the transfer.
        """
        import torch.distributed as dist

        from modular_converter.parallel.engine.stages.measure import layer_times, transfer_time

        found: list[Any] = [None]
        if self.is_first:
            found = [layer_times(self.model, self.path, self._whole(self.inputs), self.setting.trains)]
        dist.broadcast_object_list(found, src=0)
        self.model.zero_grad()
        seconds = [transfer_time(int(output), self.device)]
        dist.broadcast_object_list(seconds, src=0)
        times: ChainCosts = found[0]
        return ChainCosts(times.layers, times.before, times.after, seconds[0])

    def step(self, forecast: Forecast) -> MeasuredStep:
        """Run and measure a step of the pipeline; the model cannot be used afterwards."""
        from modular_converter.parallel.engine.stages.measure import measured_step
        from modular_converter.parallel.engine.stages.pipeline import Pipeline

        setting = self.setting
        pipeline = Pipeline(
            self.model,
            chunks=setting.chunks,
            schedule=setting.schedule,
            stages_per_process=setting.per_rank,
            balance=forecast.balance,
            device=self.device,
        ).train(setting.trains)
        rows = {name: self._repeated(value) for name, value in self.inputs.items()}
        return measured_step(pipeline, rows, setting.trains)

    def _whole(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {**inputs, "use_cache": False} if "input_ids" in inputs else dict(inputs)

    def _repeated(self, value: Any) -> Any:
        """The rows of one micro-batch, repeated for all micro-batches."""
        import torch

        return torch.cat([value] * self.setting.chunks) if isinstance(value, torch.Tensor) and value.dim() else value
