"""How layouts start: `python utils/bench_start.py FOLDER --make 6b --cap-gib 7 [--update docs/figures/training.md]`.

`--make` writes a llama-shaped model with random weights into FOLDER, unless it is there. Each run starts processes of its
own under torchrun, which call `parallelize` with a layout, from the folder or from a model in memory, and take some steps:
seconds, bytes that process 0 takes out of the files, the highest memory of a device (of a process, on CPUs) beyond that
of the begin, and the bytes that stay. A step is of two sequences a data rank. With `--cap-gib` a device gives no more memory; where that is too little, the run
says so. `--package PATH` runs another version of this package, whose lines are marked. Lines go to `--results` as they
come; `--render` measures nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench_checkpoint import SHAPES, Peak, config_of, make, own_bytes
from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
RUNS = "folder:fsdp2,memory:fsdp2,folder:fsdp2:offload,folder:pp2"
GIB = 2**30
Row = dict[str, Any]


def main() -> None:
    """Measure, or make the page from what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", choices=sorted(SHAPES))
    parser.add_argument("--runs", default=RUNS, help="source:layout, with :offload and :recompute where wanted")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cap-gib", type=float, help="of a device, for PyTorch's allocator")
    parser.add_argument("--steps", type=int, default=0, help="after the start")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--package", type=Path, help="the root of another version of this package")
    parser.add_argument("--limit", type=int, default=200, help="seconds for one run")
    parser.add_argument("--results", type=Path, default=Path("bench-start.jsonl"))
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--update", type=Path, help="a page with the two markers")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options)
        return
    if options.make is not None and not (options.folder / "config.json").exists():
        make(options.folder, options.make)
    for run in options.runs.split(",") if not options.render else ():
        row = measured(run, options)
        print(json.dumps(row), flush=True)
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    text = table([json.loads(line) for line in options.results.read_text(encoding="utf-8").splitlines()])
    print(text)
    if options.update:
        write_part(options.update, "bench-start", text)


def measured(run: str, options: argparse.Namespace) -> Row:
    """The line of one run, of processes of its own."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
    ]
    command += ["--nproc-per-node", str(options.processes), __file__, str(options.folder), "--worker", run]
    command += ["--steps", str(options.steps), "--length", str(options.length)]
    command += ["--cap-gib", str(options.cap_gib)] if options.cap_gib else []
    command += ["--package", str(options.package.resolve())] if options.package else []
    environment = {"OMP_NUM_THREADS": "8", "HF_HUB_OFFLINE": "1", **os.environ}
    row: Row = {"run": run, "cap_gib": options.cap_gib, "package": options.package and options.package.name}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=options.limit, check=False
        )
    except subprocess.TimeoutExpired:
        return row | {"error": f"no answer in {options.limit} s"}
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return row | lines[-1]
    errors = [line.strip() for line in done.stderr.splitlines() if "Error: " in line]
    return row | (lines[-1] if lines else {}) | {"error": (errors or ["failed"])[0][:200]}


def work(options: argparse.Namespace) -> None:
    """One run, as a process under torchrun; the first one prints its figures after the start, and after the steps."""
    sys.path.insert(0, str(options.package or ROOT))
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    from modular_converter.parallel import Training, parallelize
    from modular_converter.parallel.engine.checkpoint import reader

    source, layout, *words = options.worker.split(":")
    gpu, local = torch.cuda.is_available(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
        if options.cap_gib:
            whole = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(options.cap_gib * GIB / whole, device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
    switches: dict[str, Any] = {**dict.fromkeys(words, True), **({"chunks": 2} if "pp" in layout else {})}
    training = Training(**switches)
    torch.manual_seed(0)
    whole_layout = layout.replace("pp", "fsdp")
    parallelize(LlamaForCausalLM(config_of("tiny")), layout=whole_layout)  # what is imported and connected stays
    read = counted_bytes(reader)
    given: Any = options.folder
    if source == "memory":
        given = AutoModelForCausalLM.from_pretrained(options.folder)
        for one in given.parameters():
            one.data = one.data.clone()  # not the pages of a file
    gc.collect()
    dist.barrier()
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) if gpu else own_bytes(os.getpid())
    begin = time.perf_counter()
    with Peak([os.getpid()]) as host:
        model = parallelize(given, layout=layout, training=training)
        if gpu:
            torch.cuda.synchronize(device)
        dist.barrier()
    seconds = time.perf_counter() - begin
    peak = torch.cuda.max_memory_allocated(device) - before if gpu else host.grown[0]
    row: Row = {"seconds": seconds, "read": read[0], "peak": peak, "kept": kept_bytes(model)}
    row |= {"torch": torch.__version__, "device": torch.cuda.get_device_name() if gpu else "CPU"}
    row["model"] = sum(path.stat().st_size for path in options.folder.glob("*.safetensors"))
    report(row)
    if options.steps:
        report(row | steps(model, options, device))
    dist.barrier()
    dist.destroy_process_group()


def steps(model: Any, options: argparse.Namespace, device: Any) -> Row:
    """The time of the last step, the highest memory of the device while they run, and the losses."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model.train()
    losses, seconds = [], 0.0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for number in range(options.steps):
        torch.manual_seed(number)
        ids = torch.randint(0, 300, (2 * model.layout.data, options.length), device=device)
        part = ids.chunk(model.layout.data)[model.data_rank]
        begin = time.perf_counter()
        if model.layout.pp > 1:
            loss = model.step(input_ids=part, labels=part)
        else:
            loss = model(input_ids=part, labels=part, use_cache=False).loss
            loss.backward()
        losses.append(round(float(loss.detach()), 3))
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - begin
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return {"step_s": seconds, "step_peak": peak, "losses": losses}


def counted_bytes(reader: Any) -> list[int]:
    """The bytes that safetensors gives out from now on, as the only entry of a list."""
    own, found = reader.Reader._stored, [0]

    def stored(self: Any, *given: Any) -> Any:
        tensor = own(self, *given)
        found[0] += tensor.nbytes
        return tensor

    reader.Reader._stored = stored
    return found


def kept_bytes(model: Any) -> int:
    """The bytes of this process's entries of the weights."""
    from modular_converter.parallel.engine.group.spread import each_once

    weights = model.spreads().values() if hasattr(model, "spreads") else each_once(model)
    return sum(one.local(one.stored).nbytes for one in weights)


def report(row: Row) -> None:
    """Print a line from the first process."""
    import torch.distributed as dist

    if dist.get_rank() == 0:
        print(json.dumps(row), flush=True)


def table(rows: list[Row]) -> str:
    """The part of the page: the figures of process 0."""
    about = next((row for row in rows if "torch" in row), {})
    lines = [
        f"torch {about.get('torch')}, two of {about.get('device')}, files of {about.get('model', 0) / GIB:.2f} GiB.",
        "",
        "| layout, from | capped at, GiB | start, s | read, GiB | highest at the start, GiB | kept, GiB | a step, s | "
        "highest in steps, GiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        source, layout, *words = row["run"].split(":")
        name = f"{', '.join([layout, *words])}, {source}" + (f" (version {row['package']})" if row["package"] else "")
        # Without the number of the process, and the advice that follows.
        error = re.sub(r"^\[rank\d+\]: ", "", row.get("error", "")).split(". ")[0].replace("|", "/")[:80]
        cells = [f"{row['seconds']:.1f}" if "seconds" in row else error]
        cells += [f"{row[key] / GIB:.2f}" if key in row else "" for key in ("read", "peak", "kept")]
        cells += [f"{row['step_s']:.1f}" if "step_s" in row else ""]
        cells += [f"{row['step_peak'] / GIB:.2f}" if row.get("step_peak") else ""]
        if "error" in row and "seconds" in row:
            cells[-1] = error
        lines.append(f"| {name} | {row['cap_gib'] or ''} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
