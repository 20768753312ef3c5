"""Pipelines as `modular-plan schedule --measure` predicts and measures them, for many settings, as a table.

`torchrun --nproc-per-node 4 utils/bench_schedule.py --results FILE` takes layers that sleep, so that processes of one
computer do not disturb each other: the times of forwards and of both halves of backwards are artificial, all else is real.
On GPUs, the layers are those of llama shapes, in micro-batches of 4 x 2048 tokens: `torchrun --nproc-per-node 2 utils/bench_schedule.py --results FILE`.
`python utils/bench_schedule.py --update docs/pipeline.md FILE ...` writes the tables of results into the page.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import platform
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from modular_converter.parallel.commands.measure_schedule import MeasuredModel  # noqa: E402
from modular_converter.parallel.costs import CountRequest, chain_work  # noqa: E402
from modular_converter.parallel.schedule.forecast import PipelineSetting, forecast  # noqa: E402
from modular_converter.parallel.schedule.stage_costs import with_times  # noqa: E402


SLEEPS = (0.010, 0.008, 0.006)
"""Seconds of an artificial layer: forward, backward of activations, backward of weights."""
LLAMAS = {
    "sleeping": {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 128},
    "1.3 billion": {"hidden_size": 2048, "intermediate_size": 5504, "num_attention_heads": 16, "vocab_size": 32000},
    "5.9 billion": {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "vocab_size": 32000},
}


@dataclass(frozen=True)
class Case:
    """A model and how it is run."""

    model: str
    layers: int
    schedule: str
    per_rank: int
    chunks: int
    trains: bool = True
    balance: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        each = f", {self.per_rank} stages a rank" if self.per_rank > 1 else ""
        cut = f", layers {'+'.join(map(str, self.balance))}" if self.balance else ""
        return f"{self.model}, {self.layers} layers{'' if self.trains else ', forward'}: {self.schedule}{each}{cut}"


def cases(ranks: int, on_gpu: bool) -> list[Case]:
    """The settings of a table."""
    if not on_gpu:
        plain = [Case("sleeping", 8, name, 1, chunks) for name in ("GPipe", "1F1B") for chunks in (ranks, 2 * ranks)]
        several = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble")
        looped = [Case("sleeping", 16, name, 2, 2 * ranks) for name in several]
        uneven = (1,) * (ranks - 1) + (8 - ranks + 1,)
        return [
            *plain,
            *looped,
            Case("sleeping", 8, "1F1B", 1, 2 * ranks, balance=uneven),
            Case("sleeping", 8, "GPipe", 1, 2 * ranks, balance=uneven[::-1]),
            Case("sleeping", 8, "GPipe", 1, 2 * ranks, trains=False),
            Case("sleeping", 16, "LoopedBFS", 2, ranks, trains=False),
        ]
    training = [Case("1.3 billion", 24, name, each, 8) for name, each in _BOTH]
    return [
        *training,
        Case("1.3 billion", 24, "1F1B", 1, 2),
        Case("1.3 billion", 24, "1F1B", 1, 4),
        Case("1.3 billion", 24, "1F1B", 1, 16),
        Case("1.3 billion", 24, "1F1B", 1, 8, balance=(18, 6)),
        *(Case("5.9 billion", 28, "GPipe", 1, chunks, trains=False) for chunks in (4, 8)),
        Case("5.9 billion", 28, "LoopedBFS", 2, 8, trains=False),
    ]


_BOTH = [("GPipe", 1), ("1F1B", 1), ("Interleaved1F1B", 2), ("InterleavedZeroBubble", 2), ("ZBVZeroBubble", 2)]


class _Sleeps(torch.autograd.Function):
    """Takes its time in the backward."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        time.sleep(ctx.seconds)
        return gradients[0], None


def put_to_sleep(model: Any) -> None:
    """Let each layer take its artificial times besides its own: in its forward, and on the way of both gradients."""
    ahead, activations, weights = SLEEPS
    kind = type(model.model.layers[0].input_layernorm)

    class SleepingNorm(kind):  # type: ignore[misc, valid-type]
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            time.sleep(ahead)
            if not torch.is_grad_enabled():
                return super().forward(hidden)
            return super().forward(_Sleeps.apply(hidden, activations)) + 0 * _Sleeps.apply(self.weight, weights)

    for layer in model.model.layers:
        layer.input_layernorm.__class__ = SleepingNorm


def measure(case: Case, ranks: int, on_gpu: bool) -> dict[str, Any]:
    """A row of the table."""
    shape = {**LLAMAS[case.model], "num_key_value_heads": LLAMAS[case.model]["num_attention_heads"]}
    rows, length, dtype, width = (4, 2048, "bfloat16", 2) if on_gpu else (1, 16, "float32", 4)
    request = CountRequest("llama", shape, case.layers, rows, length, case.trains, dtype)
    setting = PipelineSetting(case.schedule, ranks, case.per_rank, case.chunks, case.trains)
    subject = MeasuredModel(request, setting)
    if not on_gpu:
        put_to_sleep(subject.model)
    work = chain_work(request)
    times = subject.times(work.output)
    counted = work.costs(1.0, 1.0, *((4 * width, width) if case.trains else (width, 0)))
    costs = with_times(counted, times, "measured")
    predicted = forecast(setting, replace(costs, transfer=times.transfer), case.balance)
    step = subject.step(predicted)
    line = step.timeline(predicted.timeline)
    return {
        "name": case.name,
        "ranks": ranks,
        "chunks": case.chunks,
        "step": (predicted.timeline.step, line.step),
        "bubble": (predicted.timeline.bubble, line.bubble),
        "peak": (max(use.peak for use in predicted.timeline.uses), max(step.peaks)),
        "peaks": [(use.peak, peak) for use, peak in zip(predicted.timeline.uses, step.peaks)],
        "costs": [asdict(cost) for cost in predicted.stages],
        "measured": [asdict(cost) for cost in step.stage_costs(setting.stages)],
        "transfer": times.transfer,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows for the page."""
    with_memory = any(row["peak"][1] for row in rows)
    head = (
        "| setting | ranks | micro-batches | step: predicted, ms | measured | off by | bubble: predicted | measured |"
    )
    lines = [head + (" peak of the fullest rank: predicted, GiB | measured | off by |" if with_memory else "")]
    lines.append("| --- |" + " ---: |" * (10 if with_memory else 7))
    for row in rows:
        before, after = row["step"]
        cells = [row["name"], str(row["ranks"]), str(row["chunks"]), f"{before * 1e3:.1f}", f"{after * 1e3:.1f}"]
        cells += [f"{after / before - 1:+.1%}", f"{row['bubble'][0]:.1%}", f"{row['bubble'][1]:.1%}"]
        if with_memory:
            first, second = row["peak"]
            cells += [f"{first / 2**30:.2f}", f"{second / 2**30:.2f}", f"{second / first - 1:+.1%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="results, for --update")
    parser.add_argument("--results", type=Path, help="where the rows go, as JSON lines")
    parser.add_argument("--only", default="", help="settings whose name has this text")
    parser.add_argument("--update", type=Path, help="the page to write the tables of FILES into")
    options = parser.parse_args()
    if options.update:
        found = [[json.loads(line) for line in path.read_text().splitlines()] for path in options.files]
        parts = [f"{rows[0]['with']}\n\n{table(rows)}" for rows in found]
        write_part(options.update, "measured", "\n\n".join(parts))
        return
    import os

    ranks, on_gpu = int(os.environ["WORLD_SIZE"]), torch.cuda.is_available()
    torch.set_num_threads(1)
    for case in cases(ranks, on_gpu):
        if options.only not in case.name:
            continue
        row = measure(case, ranks, on_gpu)
        gc.collect()  # the pipeline before, whose peak would count in the next row
        if os.environ["RANK"] == "0":
            print(table([row]).splitlines()[-1], flush=True)
            if options.results:
                with options.results.open("a") as file:
                    file.write(json.dumps({"with": _with(on_gpu), **row}) + "\n")


def _with(on_gpu: bool) -> str:
    device = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}" if on_gpu else "CPU processes, gloo"
    return f"{datetime.date.today()}, {device}, Python {platform.python_version()}, torch {torch.__version__}"


if __name__ == "__main__":
    main()
