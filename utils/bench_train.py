"""Figures of training on two devices: `torchrun --nproc-per-node 2 utils/bench_train.py`, in at most 8 minutes.

A llama-shaped model of 1.3 billion parameters in bfloat16, sequences of 2048 tokens: tokens a second and peak memory of
one device, of layouts of `parallelize`, and of plain torch in the same layout, eager and with each layer compiled.
`torchrun --nproc-per-node 1 utils/bench_train.py --runs dp --forms eager` measures `torch.nn.DataParallel`, and
`--runs tp2,tp2+sp --forms eager` sequence parallelism. Long sequences: `--shape llama-6b --runs one,cp2 --forms eager
--recompute --batch 1 --length 32768 --forward --warm-up 1 --steps 2`; 131072 with `--runs cp2 --optimizer sgd --warm-up 0
--steps 1`. The loss of the first step is that of one device.
Figures go to `--results` as they come; `python utils/bench_train.py --render --update docs/figures/training.md` writes the page.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SHAPES = {
    "llama-1.3b": {"hidden_size": 2048, "intermediate_size": 5504, "num_hidden_layers": 24, "num_attention_heads": 16},
    "llama-6b": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
}
VOCABULARY = 32000
RUNS = "one,ddp2,plain ddp2,fsdp2,plain fsdp2,tp2,plain tp2"
WARM_UP, STEPS = 4, 10
Row = dict[str, Any]


def main() -> None:
    """Measure, or make the page from what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default=RUNS)
    parser.add_argument("--forms", default="eager,compiled")
    parser.add_argument("--shape", choices=SHAPES, default="llama-1.3b")
    parser.add_argument("--batch", type=int, default=4, help="sequences of one data rank")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--recompute", action="store_true", help="layers keep their inputs alone")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--forward", action="store_true", help="also a forward that gives the last logits")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="steps that are not counted")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--limit", type=int, default=420, help="seconds after which no run begins")
    parser.add_argument("--results", type=Path, default=Path("bench-train.jsonl"))
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--update", type=Path, help="a page with the two markers")
    options = parser.parse_args()
    if not options.render:
        measure_all(options)
    if options.update and os.environ.get("RANK", "0") == "0":
        rows = [json.loads(line) for line in options.results.read_text(encoding="utf-8").splitlines()]
        write_part(options.update, "bench-train", table(rows))


def measure_all(options: argparse.Namespace) -> None:
    """Measure each run in each form, as a process under torchrun; the first one writes the lines."""
    import torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo", device_id=device if gpu else None)
    begin = time.perf_counter()
    for form in options.forms.split(","):
        for run in options.runs.split(","):
            spent = torch.tensor([time.perf_counter() - begin], device=device)
            dist.all_reduce(spent, dist.ReduceOp.MAX)
            if float(spent) > options.limit:
                continue
            row: Row = {
                "run": run,
                "form": form,
                "shape": options.shape,
                "length": options.length,
                "batch": options.batch,
            }
            try:
                row |= measured(run, form == "compiled", options, device)
            except Exception as error:  # a run that fails leaves the others
                row["error"] = f"{type(error).__name__}: {str(error)[:200]}"
            free(device)
            if dist.get_rank() == 0:
                row |= {"torch": torch.__version__, "device": torch.cuda.get_device_name() if gpu else "CPU"}
                print(json.dumps(row), flush=True)
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    dist.destroy_process_group()


def measured(run: str, compiled: bool, options: argparse.Namespace, device: Any) -> Row:
    """Tokens a second of all devices together, and the peak of memory on the first one."""
    import torch

    begin = time.perf_counter()
    model, parts = made(run, compiled, options, device)
    ready = time.perf_counter() - begin
    kinds: dict[type, list[Any]] = {}  # a fused step takes no mixed lists, as plain tensor parallelism leaves them
    for parameter in model.parameters():
        kinds.setdefault(type(parameter), []).append(parameter)
    kind = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.SGD
    optimizer = kind([{"params": group} for group in kinds.values()], lr=1e-4, fused=True)
    rows = options.batch * (parts if run == "dp" else 1)  # which divides its batch itself
    torch.manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (rows, options.length), device=device)
    losses = []

    def step() -> None:
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())

    found: Row = forward_of(model, ids, device) if options.forward else {}
    warm = time.perf_counter()
    for _ in range(options.warm_up):
        step()
    wait(device)
    warm = time.perf_counter() - warm
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    begin = time.perf_counter()
    for _ in range(options.steps):
        step()
    wait(device)
    seconds = (time.perf_counter() - begin) / options.steps
    peak = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    tokens = options.batch * options.length * parts / seconds
    found |= {"tokens": tokens, "step_ms": seconds * 1e3, "peak_mib": peak, "ready_s": ready, "warm_up_s": warm}
    return found | {"loss": float(losses[0])}


def forward_of(model: Any, ids: Any, device: Any) -> Row:
    """Time and peak of the second of two forwards without gradients, of which the last logits alone are kept."""
    import torch

    with torch.no_grad():
        model(input_ids=ids, logits_to_keep=1, use_cache=False)
        wait(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        begin = time.perf_counter()
        model(input_ids=ids, logits_to_keep=1, use_cache=False)
        wait(device)
    peak = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    return {"forward_ms": (time.perf_counter() - begin) * 1e3, "forward_peak_mib": peak}


def made(run: str, compiled: bool, options: argparse.Namespace, device: Any) -> tuple[Any, int]:
    """The model of a run, and the number of devices over which its batch is divided."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from modular_converter.parallel import Training, parallelize

    torch.manual_seed(0)
    config = LlamaConfig(**SHAPES[options.shape], vocab_size=VOCABULARY, attn_implementation="sdpa")
    with torch.device(device):
        model: Any = LlamaForCausalLM(config).to(torch.bfloat16)
    kind = run.rpartition(" ")[2]
    if "plain" not in run and run not in ("one", "dp"):
        layout, _, more = kind.partition("+")
        training = Training(compile=compiled, sequence_parallel=more == "sp", recompute=options.recompute)
        parallelize(model, layout=layout, training=training, device=device.type, probe=False)
        return model.train(), model.layout.data
    model.train()
    if options.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if run == "dp":
        return torch.nn.DataParallel(model), max(1, torch.cuda.device_count())
    if run == "plain tp2":
        plain_tensors(model, device)
    if compiled:
        for layer in model.model.layers:
            layer.compile()
    spread: Callable[[Any], Any] = {"ddp2": plain_replicas, "fsdp2": plain_shards}.get(kind, lambda one: one)
    return spread(model), 1 if kind in ("one", "tp2") else 2


def plain_replicas(model: Any) -> Any:
    """The model as people write it for replicated data."""
    import torch

    gpu = torch.cuda.is_available()
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if gpu else None)


def plain_shards(model: Any) -> Any:
    """The model as people write it for sharded data."""
    from torch.distributed.fsdp import fully_shard

    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def plain_tensors(model: Any, device: Any) -> None:
    """The model as people write it for tensor parallelism."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("tp",))
    columns = [f"self_attn.{one}_proj" for one in "qkv"] + ["mlp.gate_proj", "mlp.up_proj"]
    styles: dict[str, Any] = {name: ColwiseParallel() for name in columns}
    styles |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    for layer in model.model.layers:
        parallelize_module(layer, mesh, styles)
    outer = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, outer)


def wait(device: Any) -> None:
    """Wait for the device."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def free(device: Any) -> None:
    """Give back all memory of the last run."""
    import torch

    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.distributed.barrier()


def table(rows: list[Row]) -> str:
    """The lines as Markdown: ours beside plain torch in the same layout."""
    known = {(row["run"], row["form"], row["batch"]): row for row in rows}
    first = rows[0]
    found = [
        f"torch {first['torch']}, two of {first['device']}, {first['shape']}, bfloat16, sequences of {first['length']}.",
        "",
        "| layout | form | sequences | tokens a second | of plain torch | of one device | peak memory, MiB | of plain torch |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (run, form, batch), row in known.items():
        plain, one = known.get((f"plain {run}", form, batch), {}), known.get(("one", form, batch), {})
        if "error" in row:
            found.append(f"| {run} | {form} | {batch} | {row['error']} | | | | |")
            continue
        speed, memory = (f"{row[key] / plain[key]:.3f}" if plain.get(key) else "" for key in ("tokens", "peak_mib"))
        times = f"{row['tokens'] / one['tokens']:.2f}" if "tokens" in one else ""
        found.append(
            f"| {run} | {form} | {batch} | {row['tokens']:.0f} | {speed} | {times} | {row['peak_mib']:.0f} | {memory} |"
        )
    return "\n".join(found)


if __name__ == "__main__":
    main()
