"""Predicted over measured memory and time: `torchrun --nproc-per-node 2 utils/bench_advise.py`, in at most 9 minutes.

Models of several architectures with random weights train and answer, on one GPU and in layouts on two. Figures go to
`--results` as they come; started again, it measures what is missing there. `python utils/bench_advise.py --render --update
docs/advise.md` predicts each setting, without a GPU, and writes the table. `--tiny` runs all of it on two CPU processes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
WIDE = {"hidden_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 16}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {**WIDE, "intermediate_size": 5504, "num_key_value_heads": 16, "vocab_size": 32000},
    "gpt2": {"n_embd": 1536, "n_layer": 16, "n_head": 16, "n_positions": 2048},
    "qwen3": {**WIDE, "intermediate_size": 6144, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 64000},
    "mixtral": {
        **WIDE,
        "num_hidden_layers": 6,
        "intermediate_size": 3584,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "vocab_size": 32000,
    },
    "gemma2": {
        **WIDE,
        "intermediate_size": 8192,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 64000,
    },
    "opt": {**WIDE, "ffn_dim": 8192, "word_embed_proj_dim": 2048, "vocab_size": 50272},
    "gpt_neox": {**WIDE, "intermediate_size": 8192, "vocab_size": 50432},
    "phi3": {**WIDE, "intermediate_size": 8192, "num_key_value_heads": 16, "vocab_size": 32064, "pad_token_id": 0},
}
TINY: dict[str, dict[str, Any]] = {
    name: {
        key: {"hidden_size": 64, "n_embd": 64, "word_embed_proj_dim": 64, "head_dim": 16, "num_local_experts": 4}.get(
            key, 4 if "head" in key else 2 if "layer" in key else 2048 if "positions" in key else 256
        )
        for key in values
    }
    | {"pad_token_id": 0}
    for name, values in SHAPES.items()
}
TRAINING: tuple[dict[str, Any], ...] = (
    {"layout": "tp1", "rows": 16},
    {"layout": "fsdp2", "rows": 16},
    {"layout": "tp2", "rows": 16},
    {"layout": "tp1"},
    {"layout": "fsdp2"},
    {"layout": "ddp2", "rows": 16},
    *({"layout": "pp2", "chunks": chunks, "rows": 16} for chunks in (4, 8, 16)),
    {"layout": "tp1", "recompute": True, "rows": 16},
    {"layout": "fsdp2", "reshard": False, "rows": 16},
    {"layout": "fsdp2", "recompute": True, "rows": 16},
    {"layout": "fsdp2", "rows": 16, "accumulate": 4},
    {"layout": "fsdp2", "rows": 16, "accumulate": 4, "sync_each_batch": True},
    {"layout": "tp2"},
    {"layout": "tp1", "optimizer": "sgd", "rows": 2},
    {"layout": "fsdp2", "optimizer": "adamw-fused", "rows": 2},
    {"layout": "cp2", "rows": 2, "length": 8192},
    {"layout": "cp2", "rows": 2, "length": 8192, "recompute": True},
    {"layout": "tp1", "rows": 2, "length": 8192, "recompute": True},
    {"layout": "tp2", "rows": 2, "length": 8192, "recompute": True},
    {"layout": "cp2", "rows": 1, "length": 32768, "recompute": True},
    {"layout": "tp2", "rows": 1, "length": 32768, "recompute": True},
)
ANSWERS: tuple[dict[str, Any], ...] = (
    {"layout": "tp1"},
    {"layout": "tp2"},
    {"layout": "tp1", "rows": 1, "length": 8192},
    {"layout": "tp2", "rows": 1, "length": 8192},
    {"layout": "tp1", "rows": 1, "length": 32768},
    {"layout": "tp2", "rows": 1, "length": 32768},
    {"layout": "tp1", "rows": 16},
)
SPLIT = {"accumulate": 1, "sync_each_batch": False}
"""Rows of earlier measurements lack these: their steps have one forward."""
PARTS = {"accumulate": "forwards", "chunks": "micro-batches"}
ROWS, LENGTH, TOKENS = 4, 1024, 16
WARM_UP, STEPS = 2, 3
Row = dict[str, Any]


def main() -> None:
    """Measure, or make the table from what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--only", default="", help="a regular expression: settings such as `answer tp2 4x1024`")
    parser.add_argument("--tiny", action="store_true", help="small models, so that CPU processes can run all settings")
    parser.add_argument("--limit", type=int, default=500, help="seconds after which no run begins")
    parser.add_argument("--results", type=Path, default=ROOT / "utils" / "advise_measured.json")
    parser.add_argument("--render", action="store_true", help="measure nothing: predict, and print the table")
    parser.add_argument("--update", type=Path, help="a page with the two markers")
    options = parser.parse_args()
    if not options.render:
        measure_all(options)
        return
    rows = [one for one in measured_rows(options.results) if "error" not in one]
    found = table([one for one in map(predicted, rows) if one is not None], rows[0])
    print(found)
    if options.update:
        write_part(options.update, "bench-advise", found)


def measured_rows(path: Path) -> list[Row]:
    """What was measured."""
    return [SPLIT | row for row in json.loads(path.read_text(encoding="utf-8"))]


def settings(models: list[str]) -> Iterator[Row]:
    """The settings, each kind of all models before the next kind."""
    trains, answers = (
        [{"task": task, **one} for one in some] for task, some in (("train", TRAINING), ("answer", ANSWERS))
    )
    for kind in (*trains[:3], *answers[:2], *trains[3:], *answers[2:]):  # what is most different first
        for model in models:
            yield {
                "model": model,
                "rows": ROWS,
                "length": LENGTH,
                "optimizer": "adamw",
                "recompute": False,
                "reshard": True,
                "chunks": 1,
                **SPLIT,
                **kind,
            }


def measure_all(options: argparse.Namespace) -> None:
    """Measure each setting; the first process writes the file."""
    import torch
    import torch.distributed as dist

    begin, gpu = time.perf_counter(), torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    alone = "RANK" not in os.environ
    if not alone:
        dist.init_process_group("nccl" if gpu else "gloo", device_id=device if gpu else None)
    first = alone or dist.get_rank() == 0
    known = measured_rows(options.results) if options.results.is_file() else []
    done = {identity(row) for row in known}
    for row in settings(options.models.split(",")):
        if not re.search(options.only, "{task} {layout} {rows}x{length} {accumulate}".format(**row)):
            continue
        row |= {"tiny": options.tiny, "devices": 1 if alone else 2}
        row |= {"length": 64} if options.tiny else {}
        row |= {"torch": torch.__version__, "device": torch.cuda.get_device_name() if gpu else "CPU"}
        late = torch.tensor([time.perf_counter() - begin > options.limit, identity(row) in done], device=device)
        if not alone:
            dist.broadcast(late, 0)
        if bool(late.any()) or alone and row["layout"] != "tp1":
            continue
        try:
            found = measured(row, device) if first or row["layout"] != "tp1" else {}
        except Exception as error:  # a run that fails leaves the others
            found = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        free(device, alone)
        if row["layout"] != "tp1":
            peaks: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(peaks, found.get("peak"))
            if all(peaks):
                found |= {"peak": max(peaks), "peaks": peaks}
        if first:
            known.append({**row, **found})
            print(json.dumps(known[-1]), flush=True)
            options.results.write_text(json.dumps(known, indent=1), encoding="utf-8")
    if not alone:
        dist.destroy_process_group()


def identity(row: Row) -> tuple[Any, ...]:
    """What tells settings apart."""
    keys = (
        "model",
        "task",
        "layout",
        "rows",
        "length",
        "optimizer",
        "recompute",
        "reshard",
        "chunks",
        "tiny",
        "device",
    )
    return tuple(row[key] for key in (*keys, *SPLIT))


def measured(row: Row, device: Any) -> Row:
    """The highest memory and the time of a step, or of an answer."""
    import torch

    left = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    model, vocabulary = made(row, device)
    torch.manual_seed(1)
    ids = torch.randint(1, vocabulary, (row["rows"], row["length"]), device=device)
    step = training_step(model, ids, row) if row["task"] == "train" else answer(model, ids)
    for _ in range(WARM_UP):
        step()
    times, issued = [], []
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        issued.append(time.perf_counter() - begin)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    found: Row = {"seconds": statistics.median(times), "issued": statistics.median(issued)}
    if device.type == "cuda":
        free_bytes, total = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved()
        found |= {
            "peak": torch.cuda.max_memory_allocated(),  # what libraries keep between runs, too: a first run allocates it
            "left": left,
            "reserved": torch.cuda.max_memory_reserved(),
        }
        found |= {"outside": total - free_bytes - reserved, "total": total}  # of all processes on the GPU
    if row["task"] == "train":
        found["parts"] = parts_of(step, device)
    return found


def parts_of(step: Any, device: Any) -> dict[str, float]:
    """The seconds of the parts of a step, the device idle at the border of each: forward, backward, update."""
    import torch

    found: dict[str, float] = {}
    last = [time.perf_counter()]

    def ended(part: str) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        found[part], last[0] = now - last[0], now

    step(ended)
    return found


def overrides(row: Row) -> dict[str, Any]:
    """The configuration of a row's model."""
    tokens = row["length"] + (TOKENS if row["task"] == "answer" else 0)
    sizes = (TINY if row["tiny"] else SHAPES)[row["model"]]
    name = "n_positions" if "n_positions" in sizes else "max_position_embeddings"
    return sizes | ({name: tokens} if row["length"] > LENGTH else {})


def made(row: Row, device: Any) -> tuple[Any, int]:
    """The model in its layout, and the size of its vocabulary."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from modular_converter.parallel import Training, parallelize

    torch.manual_seed(0)
    config = AutoConfig.for_model(row["model"], **overrides(row))
    with torch.device(device):
        model: Any = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    layout, trains, words = row["layout"], row["task"] == "train", int(config.vocab_size)
    if layout == "tp1":
        if row["recompute"]:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        return model.train(trains), words
    training = Training(recompute=row["recompute"], reshard=row["reshard"])
    if layout == "pp2":
        training = Training(chunks=row["chunks"])
    if not trains:
        return parallelize(model, inference=True, device=device.type, probe=False), words
    model = parallelize(model, layout=layout, training=training, device=device.type, probe=False)
    return model.train(), words


def training_step(model: Any, ids: Any, row: Row) -> Any:
    """A function that makes a step."""
    import torch

    weights = list(model.parameters())
    fused = row["optimizer"] == "adamw-fused"
    kind: Any = torch.optim.SGD if row["optimizer"] == "sgd" else torch.optim.AdamW
    optimizer = kind(weights, lr=1e-5, **({"fused": True} if fused else {}))
    parts = ids.chunk(row["accumulate"])

    def step(ended: Callable[[str], None] = lambda part: None) -> None:
        for number, part in enumerate(parts):
            if len(parts) > 1:
                model.set_requires_gradient_sync(row["sync_each_batch"] or number == len(parts) - 1)
            if row["layout"] == "pp2":
                model.step(input_ids=part, labels=part)
            else:
                loss = model(input_ids=part, labels=part, use_cache=False).loss / len(parts)
                ended("forward")
                loss.backward()
        ended("backward")
        optimizer.step()
        optimizer.zero_grad()
        ended("update")

    return step


def answer(model: Any, ids: Any) -> Any:
    """A function that answers with ``TOKENS`` tokens."""
    import torch

    def step() -> None:
        with torch.no_grad():
            model.generate(ids, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, pad_token_id=0)

    return step


def free(device: Any, alone: bool) -> None:
    """Give back all memory of the last run."""
    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if not alone:
        torch.distributed.barrier()


_SUBJECTS: dict[Any, Any] = {}


def predicted(row: Row) -> Row | None:
    """The row with the predicted bytes and seconds; None, with the reason printed, if the advice refuses. Needs no GPU."""
    from modular_converter.parallel.errors import AdviceError

    try:
        return _predicted(row)
    except AdviceError as error:
        print(f"refused: {row['model']}, {row['task']}, {row['layout']}: {error}", file=sys.stderr)
        return None


def _predicted(row: Row) -> Row:
    from modular_converter.parallel.advice.devices import cluster_of
    from modular_converter.parallel.advice.memory import LayoutSetting
    from modular_converter.parallel.advice.stages import footprint
    from modular_converter.parallel.advice.step_time import time_of_step
    from modular_converter.parallel.advice.subject import model_in_question
    from modular_converter.parallel.commands.common import quiet_library
    from modular_converter.parallel.costs import CountRequest
    from modular_converter.parallel.layout import Layout

    quiet_library()
    trains = row["task"] == "train"
    key = row["model"], trains, row["length"], row["tiny"]
    if key not in _SUBJECTS:
        _SUBJECTS[key] = model_in_question(CountRequest(row["model"], overrides(row), None, 1, row["length"], trains))
    names = [word for word in ("H200", "H100", "A100") if word in row["device"]] or ["H100"]
    cluster = cluster_of(f"2x{names[0]}")
    setting = LayoutSetting(
        Layout.parse(row["layout"]),
        row["rows"],
        row["optimizer"],
        row["recompute"],
        row["reshard"],
        chunks=row["chunks"],
        tokens=0 if trains else TOKENS,
        **{name: row[name] for name in SPLIT},
    )
    found = footprint(_SUBJECTS[key], setting, cluster.device)
    seconds = time_of_step(_SUBJECTS[key], setting, cluster).seconds
    return {**row, "predicted": found.allocated, "predicted_seconds": seconds, "moment": found.peak.name}


def table(rows: list[Row], first: Row) -> str:
    """The ratios of predicted to measured figures by kind of setting, as Markdown."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        more = [name for name in ("recompute", "sync_each_batch") if row[name]]
        more += ["reshard=False"] * (not row["reshard"])
        more += [f"{row[key]} {word}" for key, word in PARTS.items() if row[key] > 1]
        kinds.setdefault(f"{row['task']}, {row['layout']}{''.join(f', {one}' for one in more)}", []).append(row)
    kinds["all"] = rows
    devices = " and ".join(dict.fromkeys(row["device"] for row in rows))
    found = [
        f"torch {first['torch']}, {devices}, {len(rows)} settings of {len({row['model'] for row in rows})} "
        "architectures; predicted over measured.",
        "",
        "| setting | runs | memory: minimum | median | maximum | below the truth | time: minimum | median | maximum |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, some in kinds.items():
        memory = [row["predicted"] / row["peak"] for row in some if row.get("peak")]
        seconds = [row["predicted_seconds"] / row["seconds"] for row in some]
        below = sum(ratio < 1 for ratio in memory)
        figures = [f"{f(memory):.3f}" for f in (min, statistics.median, max)] if memory else ["", "", ""]
        times = [f"{f(seconds):.2f}" for f in (min, statistics.median, max)]
        found.append(f"| {name} | {len(some)} | {' | '.join(figures)} | {below or 'none'} | {' | '.join(times)} |")
    return "\n".join([*found, "", f"Order of the layouts of each model by time: {agreement(rows)}."])


def agreement(rows: list[Row]) -> str:
    """Kendall's tau of predicted and measured times a token, over the settings of each model, task and kind of device."""
    agree = pairs = 0
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["task"], row["device"]), []).append(row)
    for some in groups.values():
        speeds = [(per_row(one, "predicted_seconds"), per_row(one, "seconds")) for one in some]
        for number, (a, b) in enumerate(speeds):
            for c, d in speeds[:number]:
                if abs(b - d) > 0.05 * max(b, d):  # closer times are equal, within what runs differ
                    agree, pairs = agree + (1 if (a < c) == (b < d) else -1), pairs + 1
    return (
        f"Kendall's tau {agree / pairs:.2f} over {pairs} pairs whose times differ by more than 5 %"
        if pairs
        else "none"
    )


def per_row(row: Row, key: str) -> float:
    """Seconds for each row of all devices."""
    from modular_converter.parallel.layout import Layout

    return float(row[key]) / (row["rows"] * Layout.parse(row["layout"]).data)


if __name__ == "__main__":
    main()
