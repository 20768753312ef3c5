"""What docs/advise.md shows beside the measured settings: decisions, published runs, and the estimators of other libraries.

`python utils/compare_advice.py decisions published estimators --update docs/advise.md` makes these parts of the page; none
needs a GPU. The estimators need DeepSpeed, which may be installed elsewhere: `pip install --no-deps --target DIR deepspeed
hjson py-cpuinfo msgpack einops`, with DIR on `PYTHONPATH`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bench_advise import overrides
from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
LARGE_LAYER = "--set hidden_size=32768 --set intermediate_size=196608 --set num_hidden_layers=2 --set head_dim=512"
DECISIONS = (
    ("it fits one device", "mistral --devices H100-80GB --batch 1"),
    ("it fits one device, and there are more", "mistral --devices 8xH100-80GB --batch 16"),
    ("it does not fit one device", "mistral --devices 8xA100-40GB --batch 16"),
    ("the same, with slow links", "mistral --devices 8xL40S-48GB --batch 16"),
    ("the same, on several nodes", "mistral --devices 2x8xA100-40GB --batch 16"),
    ("the same, on several nodes with slow links", "mistral --devices 2x8xL40S-48GB --batch 16"),
    ("its largest layer does not fit one device", f"mistral --devices 4x8xL40S-48GB --batch 32 {LARGE_LAYER}"),
    ("answers of a model that fits one device", "mistral --devices 8xH100-80GB --batch 8 --infer"),
    ("answers of one that does not", "mistral --devices 8xL4-24GB --batch 8 --infer --set num_hidden_layers=64"),
)
"""(situation, arguments of `modular-plan advise`)."""
LENGTH = " --sequence 2048"


def main() -> None:
    """Make the named parts of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=sorted(PARTS))
    parser.add_argument("--update", type=Path, help="a page with two markers for each part")
    options = parser.parse_args()
    for part in options.parts:
        text = PARTS[part]()
        print(text)
        if options.update:
            write_part(options.update, f"advice-{part}", text)


def decisions() -> str:
    """A row for each situation of a user: a command, and what it recommends."""
    rows = ["| situation | `modular-plan advise …` | recommended |", "|---|---|---|"]
    subjects: dict[str, Any] = {}
    for situation, arguments in DECISIONS:
        found = recommended(arguments + LENGTH, subjects)
        rows.append(f"| {situation} | `{arguments}{LENGTH}` | `{found}` |")
    return "\n".join(rows)


def recommended(arguments: str, subjects: dict[str, Any]) -> str:
    """The layout, with its options, that the command recommends.

    Args:
        subjects: models of earlier calls, which are traced once.
    """
    from modular_converter.parallel.advice.candidates import advise
    from modular_converter.parallel.commands.advise import (
        advise_command,
        cluster_asked,
        question_asked,
        subject_asked,
    )

    options = advise_command.make_context("advise", shlex.split(arguments)).params
    model = options["model"]
    key = repr((model, options["settings"], options["infer"], options["length"]))
    if key not in subjects:
        subjects[key] = subject_asked(model, options)
    best = advise(subjects[key], question_asked(options, cluster_asked(options))).best
    return str(best.setting) if best is not None else "none fits"


SIZES = {
    "70B": (8192, 80, 64, 28672),
    "405B": (16384, 126, 128, 53248),
}
"""Llama 3.1: hidden size, layers, heads, inner size."""
SHARED = {"num_key_value_heads": 8, "vocab_size": 128256, "head_dim": 128, "max_position_embeddings": 131072}
ROWS, TOKENS = 16, 8192
PUBLISHED = (
    ("405B", "64x8xH100-80GB", "fsdp8.tp8.pp8", "1F1B", 100.0),
    ("405B", "64x8xH100-80GB", "fsdp8.tp8.pp8", "Interleaved1F1B", 128.0),
)
"""(model, cluster, layout, schedule, published tokens a second a GPU)."""
ASKED = (("70B", 8), ("70B", 64), ("405B", 64))
"""(model, nodes of eight devices) whose advice is timed."""


def sizes_of(name: str) -> dict[str, int]:
    """The configuration of a size of Llama 3.1."""
    hidden, layers, heads, inner = SIZES[name]
    own = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {**own, "intermediate_size": inner, **SHARED}


def published() -> str:
    """Predicted beside published speeds, and the time that the advice takes."""
    from modular_converter.parallel.advice.devices import GIB, cluster_of
    from modular_converter.parallel.advice.memory import LayoutSetting
    from modular_converter.parallel.advice.stages import footprint
    from modular_converter.parallel.advice.step_time import time_of_step
    from modular_converter.parallel.advice.subject import model_in_question
    from modular_converter.parallel.costs import CountRequest
    from modular_converter.parallel.layout import Layout

    rows = [
        "| model | devices | layout | schedule | published | predicted | memory predicted |",
        "|---|---|---|---|---|---|---|",
    ]
    subjects: dict[str, Any] = {}
    for model, devices, layout, schedule, speed in PUBLISHED:
        if model not in subjects:
            subjects[model] = model_in_question(CountRequest("llama", sizes_of(model), None, 1, TOKENS))
        cluster, one = cluster_of(devices), Layout.parse(layout)
        setting = LayoutSetting(one, ROWS, recompute=True, chunks=ROWS, schedule=schedule)
        seconds = time_of_step(subjects[model], setting, cluster).seconds
        each = ROWS * one.data * TOKENS / seconds / cluster.size
        memory = footprint(subjects[model], setting, cluster.device).total / GIB
        rows.append(
            f"| Llama 3.1 {model} | {devices} | `{layout}` | {schedule} | {speed:.0f} | {each:.0f} | {memory:.0f} GiB |"
        )
    rows += [
        "",
        "| model | devices | layouts compared | seconds of CPU | for another batch | the same again |",
        "|---" * 6 + "|",
    ]
    rows += [_timed_advice(model, nodes) for model, nodes in ASKED]
    return "\n".join([*rows, "", f"torch {torch.__version__}, Python {sys.version.split()[0]}, {date()}."])


def _timed_advice(model: str, nodes: int) -> str:
    """Seconds of CPU of the command: with a new folder of kept values, then of another batch, and of the first one again."""
    import os
    import resource
    import tempfile

    words = [f"--set={name}={value}" for name, value in sizes_of(model).items()]
    devices = f"{nodes}x8xH100-80GB"
    words += ["--devices", devices, "--sequence", str(TOKENS), "--format", "json"]
    command = [sys.executable, "-m", "modular_converter.parallel.cli", "advise", "llama", *words]
    seconds, output = [], b""
    with tempfile.TemporaryDirectory() as folder:
        for rows in (8, 16, 8):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            output = subprocess.run(
                [*command, "--batch", str(nodes * rows)],
                env={**os.environ, "MODULAR_CONVERTER_CACHE": folder},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=False,
            ).stdout
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    layouts = len(json.loads(output)["candidates"])
    return " | ".join([f"| Llama 3.1 {model} | {devices} | {layouts}", *(f"{one:.1f}" for one in seconds)]) + " |"


def date() -> str:
    """Today, as the pages write it."""
    return time.strftime("%-d %B %Y", time.gmtime())


def estimators() -> str:
    """The ratios of estimated to measured memory of three estimators, over the measured settings that each knows."""
    import accelerate
    import deepspeed
    from bench_advise import measured_rows, predicted

    measured = measured_rows(ROOT / "utils/advise_measured.json")
    rows = [row for row in measured if row.get("peak")]
    ours = {id(row): known["predicted"] for row in rows if (known := predicted(row)) is not None}
    models = {name: model_on_meta(name) for name in {row["model"] for row in rows}}
    table = [
        "| estimator | settings | minimum | median | maximum | below the truth |",
        "|---|---|---|---|---|---|",
    ]
    others = (
        (f"accelerate {accelerate.__version__}", of_accelerate),
        (f"DeepSpeed {deepspeed.__version__}", of_deepspeed),
    )
    for name, estimate in others:
        theirs = [(found, row) for row in rows if (found := estimate(models[row["model"]], row)) is not None]
        table.append(_ratios(name, theirs))
        table.append(
            _ratios("ours, the same settings", [(ours[id(row)], row) for _, row in theirs if id(row) in ours])
        )
    table.append(_ratios("ours, all settings", [(ours[id(row)], row) for row in rows if id(row) in ours]))
    return "\n".join(table)


def _ratios(name: str, known: list[tuple[float, dict[str, Any]]]) -> str:
    ratios = [found / row["peak"] for found, row in known]
    figures = [f"{f(ratios):.3f}" for f in (min, statistics.median, max)]
    below = sum(one < 1 for one in ratios)
    return f"| {name} | {len(ratios)} | {' | '.join(figures)} | {below or 'none'} |"


def model_on_meta(name: str) -> Any:
    """A measured model without data, in float32, as `accelerate estimate-memory` makes it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(name, **overrides({"model": name, "tiny": False, "length": 0, "task": "train"}))
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config).float()


def of_accelerate(model: Any, row: dict[str, Any]) -> float | None:
    """What `accelerate estimate-memory` says of one device and 16 bits: for answers the weights, else the step with Adam."""
    from accelerate.commands.estimate import calculate_maximum_sizes, estimate_training_usage

    if row["layout"] != "tp1" or row["optimizer"] != "adamw":
        return None
    size, _ = calculate_maximum_sizes(model)
    return size / 2 if row["task"] == "answer" else float(max(estimate_training_usage(size, "float16").values()))


def of_deepspeed(model: Any, row: dict[str, Any]) -> float | None:
    """What DeepSpeed says that ZeRO 3 (or 2, where gathered weights stay) needs of a GPU for weights and optimizer."""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    if row["layout"] != "fsdp2" or row["task"] != "train":
        return None
    weights = sum(one.numel() for one in model.parameters())
    largest = max(sum(one.numel() for one in module.parameters(recurse=False)) for module in model.modules())
    if not row["reshard"]:
        return float(estimate_zero2_model_states_mem_needs(weights, 2, 1, cpu_offload=False)[1])
    return float(
        estimate_zero3_model_states_mem_needs(weights, largest, 2, 1, cpu_offload=False, cpu_offload_params=False)[1]
    )


PARTS: dict[str, Callable[[], str]] = {"decisions": decisions, "published": published, "estimators": estimators}


if __name__ == "__main__":
    main()
