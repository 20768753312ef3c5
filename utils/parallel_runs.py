"""The single measurements of `bench_parallel.py`, each run in processes of its own: `python utils/parallel_runs.py`.

Each prints JSON lines, one a figure, as soon as it is known. All build the same weights from the same seed.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
from bench_model import SHAPES, build, forward_inputs, prompt, prompts_of  # noqa: E402


# What is true of all figures until it changes.
ABOUT: dict[str, Any] = {}


def emit(name: str, value: Any) -> None:
    """One figure."""
    print(json.dumps({**ABOUT, "name": name, "value": value}), flush=True)


def synchronize() -> None:
    """Wait for the GPU of this process."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def took(call: Callable[[], Any], times: int = 5, warm: int = 2) -> float:
    """The median milliseconds of a call."""
    found = []
    for turn in range(warm + times):
        synchronize()
        start = time.perf_counter()
        call()
        synchronize()
        if turn >= warm:
            found.append((time.perf_counter() - start) * 1e3)
    return statistics.median(found)


def measure(model: Any, shape: str, parts: set[str], say: Callable[[str, Any], None] = emit) -> None:
    """All figures that every way of running a model has; inputs lie on the first device."""
    import torch

    place, tokens = "cuda" if torch.cuda.is_available() else "cpu", SHAPES[shape].tokens
    static = {"cache_implementation": "static"}

    def generate(number: int, **more: Any) -> Any:
        return model.generate(
            **prompt(shape, place), max_new_tokens=number, min_new_tokens=number, do_sample=False, **more
        )

    with torch.no_grad():
        if "forward" in parts:
            for name in ("short", "long"):
                say(f"forward_{name}_ms", took(functools.partial(model, **forward_inputs(shape, name, place))))
        if tokens and "decode" in parts:
            first = took(lambda: generate(1), 3, 1)
            say("decode_ms", (took(lambda: generate(tokens + 1), 3, 1) - first) / tokens)
        if tokens and "compiled" in parts:
            start = time.perf_counter()
            generate(tokens + 1, **static)  # the longest first: shorter ones keep its cache, and need no other graph
            say("compile_s", time.perf_counter() - start)
            longest = took(lambda: generate(tokens + 1, **static), 3, 2)
            say("compiled_decode_ms", (longest - took(lambda: generate(1, **static), 3, 1)) / tokens)
        if tokens and "batches" in parts and not SHAPES[shape].encoded:
            say("batches_tokens_s", batches(model, shape))
        if tokens:
            say("answer", generate(8)[0, -8:].tolist())


def batches(model: Any, shape: str, number: int = 32, new: int = 128) -> float:
    """Tokens a second of so many prompts in one call of the library's continuous batching, as it is set up alone."""
    from transformers import GenerationConfig

    prompts = prompts_of(shape, number)

    def run(tokens: int) -> float:
        settings = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)
        start = time.perf_counter()
        found = model.generate_batch(prompts, generation_config=settings)
        assert [len(one.generated_tokens) for one in found.values()] == [tokens] * number
        return time.perf_counter() - start

    run(8)
    return number * new / run(new)


def run_one(shape: str, devices: int, parts: set[str]) -> None:
    """One device, nothing between."""
    import torch

    from modular_converter.parallel.engine.base.memory import usage
    from modular_converter.parallel.engine.remote.rank_models import profile

    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build(shape).to(place)
    emit("memory_mib", [usage(place)["allocated"] / 2**20])
    emit("weights_bytes", sum(p.numel() * p.element_size() for p in model.parameters()))
    emit("weight_bytes", next(model.parameters()).element_size())
    measure(model, shape, parts)
    if SHAPES[shape].tokens and "profile" in parts:
        with torch.no_grad():
            per_token(
                lambda number, more: [
                    profile(lambda: model.generate(**_of_generate(shape, place, number, more)), place)
                ],
                parts,
            )


def run_ours(shape: str, devices: int, parts: set[str]) -> None:
    """Through `parallelize`, called from the main process."""
    import torch

    from modular_converter.parallel import parallelize

    model = build(shape)
    start = time.perf_counter()
    parallelize(model, num_gpus=devices)
    emit("start_s", time.perf_counter() - start)
    emit("memory_mib", [value / 2**20 for value in model.memory_allocated().values()])
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    measure(model, shape, parts)
    if "forward" in parts:
        emit("overhead_ms", overhead(model, shape, place))
    if SHAPES[shape].tokens and "profile" in parts:

        def profiled(number: int, more: dict[str, Any]) -> list[dict[str, float]]:
            return list(model._placement.profile("generate", (), _of_generate(shape, "cpu", number, more)))

        per_token(profiled, parts)
    emit("peak_memory_mib", [value / 2**20 for value in model.memory_reserved().values()])
    model._placement.end()


def run_again(shape: str, devices: int, parts: set[str]) -> None:
    """The start alone, of a model that has started before."""
    from modular_converter.parallel import parallelize

    model = build(shape)
    start = time.perf_counter()
    parallelize(model, num_gpus=devices)
    emit("start_s", time.perf_counter() - start)
    model._placement.end()


def overhead(model: Any, shape: str, place: Any) -> float:
    """The median time of a call beyond the slowest rank's own time, in milliseconds."""
    given = forward_inputs(shape, "short", place)
    found = []
    for _ in range(20):
        synchronize()
        start = time.perf_counter()
        model(**given)
        found.append((time.perf_counter() - start - max(model._placement.times)) * 1e3)
    return statistics.median(found)


def _of_generate(shape: str, place: Any, number: int, more: dict[str, Any]) -> dict[str, Any]:
    return {**prompt(shape, place), "max_new_tokens": number, "min_new_tokens": number, "do_sample": False, **more}


def per_token(profiled: Callable[[int, dict[str, Any]], list[dict[str, float]]], parts: set[str]) -> None:
    """Milliseconds of a decoded token by kind, on the first rank: the difference of two lengths."""
    kinds: dict[str, dict[str, Any]] = {"eager": {}}
    if "compiled" in parts:
        kinds["compiled"] = {"cache_implementation": "static"}
    for name, more in kinds.items():
        for number in (18, 2, 18, 2):  # each length compiles its own graph, and records it the second time
            profiled(number, more)
        short, long = profiled(2, more)[0], profiled(18, more)[0]
        emit(f"profile_{name}", {key: (long[key] - short.get(key, 0.0)) / 16 for key in sorted(long)})


def run_library(shape: str, devices: int, parts: set[str]) -> None:
    """transformers' own tensor parallelism: this process is one of its ranks."""
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    rank = int(os.environ["RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
    folder = os.environ["BENCH_WEIGHTS"]
    config = DistributedConfig(tp_size=devices)
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, distributed_config=config, dtype=dtype).eval()
    model.generation_config.eos_token_id = None

    def say(name: str, value: Any) -> None:
        if rank == 0:
            emit(name, value)

    if torch.cuda.is_available():
        say("memory_mib", [torch.cuda.memory_allocated() / 2**20])
    measure(model, shape, parts - {"compiled"}, say)
    dist.barrier()
    os._exit(0)


def run_save(shape: str, devices: int, parts: set[str]) -> None:
    """Write the weights for the run of transformers' own loader."""
    start = time.perf_counter()
    build(shape).save_pretrained(os.environ["BENCH_WEIGHTS"])
    emit("save_s", time.perf_counter() - start)


def run_bounds(shape: str, devices: int, parts: set[str]) -> None:
    """The speed of the devices: bytes read a second, and a sum of one token's and of a long forward's hidden states."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    gpu = torch.cuda.is_available()
    place = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if gpu else "gloo", device_id=place if gpu else None)
    hidden, batch = next(iter(SHAPES[shape].sizes.values())), SHAPES[shape].long
    dtype = torch.bfloat16 if gpu else torch.float32
    big = torch.ones((1 << 31) if gpu else (1 << 24), dtype=torch.uint8, device=place).view(torch.int64)
    reading = took(lambda: [big.amax() for _ in range(10)]) / 10
    small = torch.ones(1, 1, hidden, dtype=dtype, device=place)
    long = torch.ones(*batch, hidden, dtype=dtype, device=place)
    figures = {
        "read_gb_s": big.numel() * 8 / reading / 1e6,
        "sum_token_us": took(lambda: [dist.all_reduce(small) for _ in range(200)]) / 200 * 1e3,
        "sum_long_ms": took(lambda: [dist.all_reduce(long) for _ in range(10)]) / 10,
    }
    if rank == 0:
        for name, value in figures.items():
            emit(name, value)
    dist.destroy_process_group()


RUNS = {
    "one": run_one,
    "ours": run_ours,
    "again": run_again,
    "library": run_library,
    "save": run_save,
    "bounds": run_bounds,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", choices=sorted(RUNS))
    parser.add_argument("--shape", required=True, help="one, or several with commas, one after the other")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--parts", default="forward,decode")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    shapes = options.shape.split(",")
    for shape in shapes:
        if len(shapes) > 1:
            run_among_others(options.run, shape, options.devices, set(options.parts.split(",")))
        else:
            RUNS[options.run](shape, options.devices, set(options.parts.split(",")))


def run_among_others(run: str, shape: str, devices: int, parts: set[str]) -> None:
    """A measurement whose failure is a figure, so that the next ones run; its figures bear their shape."""
    import torch

    ABOUT["shape"] = shape
    try:
        RUNS[run](shape, devices, parts)
    except Exception as error:
        emit("problem", f"{type(error).__name__}: {error}"[:300])
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
