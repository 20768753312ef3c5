"""The costs for ``modular-plan schedule``: from a model, from a file of measured times, or of equal layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modular_converter.parallel.commands.common import overrides_of, quiet_library
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.schedule.chain_work import ChainWork
from modular_converter.parallel.schedule.forecast import PipelineSetting
from modular_converter.parallel.schedule.layer_times import read_layer_times, with_times
from modular_converter.parallel.schedule.stage_costs import ChainCosts, even_costs


if TYPE_CHECKING:
    from modular_converter.parallel.commands.measure_schedule import MeasuredModel
    from modular_converter.parallel.costs.full_model import CountRequest

WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4}
UNIT_OF_EVEN = "forward passes of a layer"
NUMBERS_TRAINED = 4
"""The numbers of each parameter in training: weight, gradient and two of AdamW, all of the same type."""


def costs_from_options(
    model: str | None, setting: PipelineSetting, options: dict[str, Any], measured: MeasuredModel | None = None
) -> tuple[ChainCosts, str, list[str]]:
    """The costs, the unit of their times, and lines about the origin of the costs.

    Args:
        measured: the model to time; its times replace the times from counted operations.

    Raises ``PlanError`` if no source of costs is given, sources exclude each other, or a source cannot be read.
    """
    even, file, transfer = options["even"], options["layer_times"], options["transfer"]
    if even is not None and (model is not None or file is not None):
        raise PlanError("--even stands for a model: give no MODEL and no --layer-times with it")
    if even is not None:
        costs, notes = even_costs(even), [f"times in {UNIT_OF_EVEN}"]
    elif model is not None:
        from modular_converter.parallel.costs.full_model import chain_work

        request = count_request(model, setting, options)
        work = chain_work(request)
        costs, notes = _timed(work, request.samples, setting, options)
        if measured is not None:
            times = measured.times(work.output)
            costs = replace(with_times(costs, times, "--measure"), transfer=times.transfer)
            notes[1:] = [f"times of layers and transfers measured on {measured.device_name}"]
    elif file is not None:
        costs, notes = read_layer_times(file), []
    else:
        raise PlanError("give a MODEL, --layer-times FILE with measured times, or --even LAYERS without any")
    if file is not None:
        costs = costs if model is None else with_times(costs, read_layer_times(file), file)
        notes.append(f"times of {file}")
    if transfer is not None:
        costs = replace(costs, transfer=transfer)
    return costs, "s" if even is None else UNIT_OF_EVEN, notes


def count_request(model: str, setting: PipelineSetting, options: dict[str, Any]) -> CountRequest:
    """The model and micro-batch of the options. Raises ``PlanError`` if the micro-batches do not divide the rows."""
    batch, chunks = options["batch"] or setting.chunks, setting.chunks
    if batch % chunks:
        below = batch // chunks * chunks
        raise PlanError(
            f"a batch of {batch} rows does not divide into {chunks} micro-batches; --batch "
            f"{f'{below} or ' * bool(below)}{below + chunks} does"
        )
    from modular_converter.parallel.costs.full_model import CountRequest

    quiet_library()
    overrides = overrides_of(options["settings"])
    return CountRequest(
        model, overrides, options["layers"], batch // chunks, options["length"], setting.trains, options["dtype"]
    )


def _timed(
    work: ChainWork, rows: int, setting: PipelineSetting, options: dict[str, Any]
) -> tuple[ChainCosts, list[str]]:
    width = WIDTHS[options["dtype"]]
    state = options["state"] or width * (NUMBERS_TRAINED if setting.trains else 1)
    notes = [
        f"{work.model}: {work.parameters / 1e9:.3g} billion parameters, {len(work.layers)} layers; "
        f"a forward of a micro-batch ({rows}{f' x {work.length} tokens' * bool(work.length)}) takes "
        f"{work.flops / 1e12:.3g} TFLOP",
        f"assumed: {options['tflops']:g} TFLOP/s, {options['bandwidth']:g} GB/s between ranks, "
        f"{state:g} bytes a parameter",
    ]
    gradient = width if setting.trains and not options["state"] else 0
    return work.costs(options["tflops"], options["bandwidth"], state, gradient), notes
