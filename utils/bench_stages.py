"""A model in stages against one device, on as many GPUs as torchrun starts processes:
`torchrun --nproc-per-node 2 utils/bench_stages.py [--results FILE]`.

Llama shapes with random weights in bfloat16: the forward of a batch, by transformers' own pipeline, too, `generate` (5.9
billion parameters), and a training step with AdamW (1.3 billion), in micro-batches, by each schedule. One device runs the
same batch whole and in the same micro-batches; the faster one counts. Medians of steps after two that warm up.
"""

from __future__ import annotations

import argparse
import copy
import functools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SIZES = {
    "5.9 billion": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 28,
        "num_attention_heads": 32,
    },
    "1.3 billion": {
        "hidden_size": 2048,
        "intermediate_size": 5504,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    },
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 8, "num_attention_heads": 4},
}
FORWARD = ("GPipe", "LoopedBFS")
DECODED = ((8, 32), (64, 1024))
TOKENS = {"max_new_tokens": 32, "do_sample": False, "pad_token_id": 0}
TRAINING = ("GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble")


def model_of(size: str, place: torch.device) -> Any:
    """A model with the same random weights on all processes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**SIZES[size], num_key_value_heads=SIZES[size]["num_attention_heads"], vocab_size=32000)
    with place:
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    return model


def median(run: Callable[[], object], times: int) -> float:
    """Seconds of a call, all processes in step."""
    taken = []
    for number in range(times + 2):
        _wait()
        start = time.perf_counter()
        run()
        _wait()
        if number >= 2:
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    dist.barrier()


def forwards(options: argparse.Namespace, place: torch.device) -> list[str]:
    """The rows of a forward."""
    model = model_of(options.forward, place).eval()
    ids = torch.randint(0, 32000, (options.rows, options.length), device=place)
    one = on_one(options, 1, lambda parts: functools.partial(_forward_alone, model, ids, parts))
    rows = []
    for schedule in FORWARD:
        pipeline = _pipeline(model, schedule, options, place).eval()
        taken = median(functools.partial(pipeline, input_ids=ids), options.times)
        rows.append(_row(f"forward, {options.forward}", schedule, one, taken))
        del pipeline
    taken = _library_seconds(model, ids, options.times)
    rows.append(_row(f"forward, {options.forward}, transformers' `DistributedConfig(pp_size=…)`", "", one, taken))
    return rows


@torch.no_grad()
def _library_seconds(model: Any, ids: torch.Tensor, times: int) -> float:
    """Seconds of transformers' own pipeline, which gives all processes the logits; they are those of the whole model."""
    from torch.distributed.device_mesh import init_device_mesh
    from transformers.distributed.pipeline_parallel import apply_pipeline_parallelism

    expected = model(input_ids=ids[:1], use_cache=False).logits
    mesh = init_device_mesh(ids.device.type, (dist.get_world_size(),), mesh_dim_names=("pp",))
    divided = apply_pipeline_parallelism(copy.deepcopy(model), mesh)
    torch.testing.assert_close(divided(input_ids=ids[:1], use_cache=False).logits, expected)
    return median(functools.partial(divided, input_ids=ids, use_cache=False), times)


def decodings(options: argparse.Namespace, place: torch.device) -> list[str]:
    """The rows of greedy decoding: few short prompts, and many long ones."""
    model = model_of(options.forward, place).eval()
    model.generation_config.eos_token_id = None
    rows = []
    for count, length in DECODED:
        ids = torch.randint(3, 32000, (count, length), device=place)
        run = functools.partial(model.generate, ids, attention_mask=torch.ones_like(ids), **TOKENS)
        one = median(run if dist.get_rank() == 0 else bool, 2)
        pipeline = _pipeline(model, "GPipe", options, place).eval()
        taken = median(functools.partial(pipeline.generate, ids, attention_mask=torch.ones_like(ids), **TOKENS), 2)
        rows.append(
            _row(f"{TOKENS['max_new_tokens']} tokens after {count} x {length}, {options.forward}", "", one, taken)
        )
        del pipeline
    return rows


def trainings(options: argparse.Namespace, place: torch.device) -> list[str]:
    """The rows of a training step."""
    model = model_of(options.training, place).train()
    ids = torch.randint(0, 32000, (options.training_rows, options.length), device=place)
    one = _training_alone(copy.deepcopy(model), options, ids)
    rows = []
    for schedule in TRAINING:
        pipeline = _pipeline(model, schedule, options, place).train()
        taken = median(functools.partial(_step, pipeline, _optimizer(pipeline), ids), options.times)
        rows.append(_row(f"training step, {options.training}", schedule, one, taken))
        del pipeline
    return rows


def _training_alone(model: Any, options: argparse.Namespace, ids: torch.Tensor) -> float:
    optimizer = _optimizer(model)
    whole = max(1, options.training_rows // options.rows)  # more rows at once take more memory than a device has
    return on_one(options, whole, lambda parts: functools.partial(_step_alone, model, optimizer, ids, parts))


def on_one(options: argparse.Namespace, fewest: int, made: Callable[[int], Callable[[], object]]) -> float:
    """Seconds of the first process alone, in the fewest parts or in micro-batches; the others wait."""
    first = dist.get_rank() == 0
    return min(median(made(parts) if first else bool, options.times) for parts in (fewest, options.chunks))


@torch.no_grad()
def _forward_alone(model: Any, ids: torch.Tensor, parts: int) -> None:
    for part in ids.chunk(parts):
        model(input_ids=part, use_cache=False)


def _step_alone(model: Any, optimizer: Any, ids: torch.Tensor, parts: int) -> None:
    for part in ids.chunk(parts):
        (model(input_ids=part, labels=part, use_cache=False).loss / parts).backward()
    optimizer.step()
    optimizer.zero_grad()


def _step(pipeline: Any, optimizer: Any, ids: torch.Tensor) -> None:
    pipeline.step(input_ids=ids, labels=ids)
    optimizer.step()
    optimizer.zero_grad()


def _optimizer(owner: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(owner.parameters(), fused=torch.cuda.is_available())


def _pipeline(model: Any, schedule: str, options: argparse.Namespace, place: torch.device) -> Any:
    """A pipeline of a copy, because it takes the weights of the model that it is made of."""
    from modular_converter.parallel import Pipeline

    if place.type == "cuda":
        torch.cuda.empty_cache()
    return Pipeline(copy.deepcopy(model), chunks=options.chunks, schedule=schedule, device=place)


MEASURED = {"forward": forwards, "decoding": decodings, "training": trainings}


def _row(what: str, schedule: str, one: float, taken: float) -> str:
    return f"| {what} | {schedule} | {one * 1e3:.0f} | {taken * 1e3:.0f} | {one / taken:.2f} |"


def main() -> None:
    """Print the table on the first process; write it into a page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--training-rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--forward", choices=SIZES, default="5.9 billion")
    parser.add_argument("--training", choices=SIZES, default="1.3 billion")
    parser.add_argument("--only", choices=MEASURED, help="leave the other kinds out")
    parser.add_argument("--results", metavar="FILE", help="put the table into a file, too")
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")
    place = torch.device("cuda", dist.get_rank()) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(place)
    processes = dist.get_world_size()
    device = torch.cuda.get_device_name() if gpu else "CPU processes"
    lines = [
        f"{processes} {device}, torch {torch.__version__}; {options.rows} rows of {options.length} in "
        f"a forward, {options.training_rows} in a training step, {options.chunks} micro-batches.\n",
        f"| | schedule | one device, ms | {processes} devices, ms | times as fast |",
        "|---|---|---|---|---|",
    ]
    for kind, measured in MEASURED.items():
        if options.only in (None, kind):
            lines += measured(options, place)
        torch.cuda.empty_cache()
    if dist.get_rank() == 0:
        print("\n".join(lines), flush=True)
        if options.results:
            Path(options.results).write_text("\n".join(lines) + "\n", encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
