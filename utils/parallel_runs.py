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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
from bench_model import SHAPES, build, forward_inputs, prompt, prompts_of  # noqa: E402


Row = dict[str, Any]
# What is true of all figures until it changes.
ABOUT: Row = {}
# The numbers of sequences that are decoded together.
ROWS = (1, 8, 32)
# Tokens of compiled decoding: of few, the forward of the prompt, whose time differs by 20 ms from call to call, is a large part.
COMPILED = 128
# Part -> the further arguments of `generate` whose tokens are profiled.
KINDS: dict[str, Row] = {"decode": {}, "compiled": {"cache_implementation": "static"}}


def emit(name: str, value: Any, **about: Any) -> None:
    """One figure."""
    print(json.dumps({**ABOUT, **about, "name": name, "value": value}), flush=True)


def synchronize() -> None:
    """Wait for the GPU of this process."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def took(calls: Sequence[Callable[[], Any]], times: int = 5, warm: int = 2) -> list[list[float]]:
    """The milliseconds of calls that take turns: a list for each call, an entry for each turn."""
    found: list[list[float]] = [[] for _ in calls]
    for turn in range(warm + times):
        for kept, call in zip(found, calls):
            synchronize()
            start = time.perf_counter()
            call()
            synchronize()
            if turn >= warm:
                kept.append((time.perf_counter() - start) * 1e3)
    return found


def measure(models: Sequence[Any], shape: str, parts: set[str], say: Callable[[int, str, Any], None]) -> None:
    """All figures that every way of running a model has, with the number of the model; inputs lie on the first device.

    The models take turns: the speed of a host changes within seconds, and is the same for what is measured at the same time.
    """
    import torch

    place, known = "cuda" if torch.cuda.is_available() else "cpu", SHAPES[shape]
    tokens = known.tokens

    def tell(name: str, times: list[list[float]]) -> None:
        for number, some in enumerate(times):
            say(number, name, statistics.median(some))
            if number:
                ratios = [first / one for first, one in zip(times[0], some)]
                say(number, f"{name}_ratios", [min(ratios), statistics.median(ratios), max(ratios)])

    def generates(new: int, rows: int = 1, **more: Any) -> list[Callable[[], Any]]:
        given = {**_of_generate(shape, place, new, more, rows)}
        return [functools.partial(model.generate, **given) for model in models]

    def token(new: int, times: int, warm: int, **given: Any) -> list[list[float]]:
        """A token is the difference of two lengths. The longest is first: shorter ones keep its cache, and need no other graph."""
        long = took(generates(new + 1, **given), times, warm)
        short = map(statistics.median, took(generates(1, **given), 3, 1))
        return [[(one - first) / new for one in some] for some, first in zip(long, short)]

    with torch.no_grad():
        if "forward" in parts:
            for name in ("short", "long"):
                given = forward_inputs(shape, name, place)
                tell(f"forward_{name}_ms", took([functools.partial(model, **given) for model in models]))
        if tokens and "decode" in parts:
            for rows in ROWS:
                tell(f"decode_{rows}_ms", token(tokens, 5 if rows == 1 else 2, 1, rows=rows))
        if tokens and "compiled" in parts:
            first = generates(COMPILED + 1, cache_implementation="static")
            with ThreadPoolExecutor(
                len(models)
            ) as pool:  # all compile at the same time; the first here, as its graphs need
                others = [pool.submit(_seconds, call) for call in first[1:]]
                for number, seconds in enumerate([_seconds(first[0]), *(one.result() for one in others)]):
                    say(number, "compile_s", seconds)
            tell("compiled_decode_ms", token(COMPILED, 5, 2, cache_implementation="static"))
        if tokens and "batches" in parts and not known.encoded:
            for number, model in enumerate(models):
                say(number, "batches_tokens_s", batches(model, shape))


def _seconds(call: Callable[[], Any]) -> float:
    import torch

    start = time.perf_counter()
    with torch.no_grad():  # in a thread, too
        call()
    return time.perf_counter() - start


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


def run_turns(shape: str, devices: int, parts: set[str]) -> None:
    """One device, nothing between, and ``parallelize``, called from the same process, in turns."""
    import torch
    from profiled_ranks import profile

    from modular_converter.parallel import Session, parallelize
    from modular_converter.parallel.engine.base.memory import usage
    from modular_converter.parallel.engine.base.preflight import devices_for

    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    about: list[Row] = [{"run": "one", "devices": 1}, {"run": "ours", "devices": devices}]

    def say(number: int, name: str, value: Any) -> None:
        emit(name, value, **about[number])

    one = build(shape).to(place)
    say(0, "memory_mib", [int(usage(place)["allocated"]) / 2**20])
    say(0, "weights_bytes", sum(p.numel() * p.element_size() for p in one.parameters()))
    say(0, "weight_bytes", next(one.parameters()).element_size())
    ours = build(shape)
    start = time.perf_counter()
    ranks = Session(devices_for(devices, None), worker="profiled_ranks:ProfiledWorker")
    parallelize(ours, session=ranks, verbose="simple")
    say(1, "start_s", time.perf_counter() - start)
    say(1, "memory_mib", [value / 2**20 for value in ours.memory_allocated().values()])
    measure([one, ours], shape, parts, say)
    if "forward" in parts:
        say(1, "overhead_ms", overhead(ours, shape, place))
    if SHAPES[shape].tokens and "profile" in parts:
        with torch.no_grad():
            for name, more in KINDS.items():
                if name in parts:
                    of_one = _per_token(
                        lambda given: [profile(lambda: one.generate(**given), place)], shape, place, more
                    )
                    say(0, f"profile_{name}", of_one)
                    of_ours = _per_token(
                        lambda given: ranks.ask(("profile", ours._placement.number, "generate", (), given)),
                        shape,
                        "cpu",
                        more,
                    )
                    say(1, f"profile_{name}", of_ours)
    say(1, "peak_memory_mib", [value / 2**20 for value in ours.memory_reserved().values()])
    ranks.end()


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


def _of_generate(shape: str, place: Any, new: int, more: dict[str, Any], rows: int = 1) -> dict[str, Any]:
    return {**prompt(shape, place, rows), "max_new_tokens": new, "min_new_tokens": new, "do_sample": False, **more}


def _per_token(
    profiled: Callable[[dict[str, Any]], Sequence[dict[str, float]]], shape: str, place: Any, more: dict[str, Any]
) -> dict[str, float]:
    """Milliseconds of a decoded token by kind, on the first rank: the difference of two lengths."""
    long, short = (_of_generate(shape, place, number, more) for number in (18, 2))
    for given in (long, short, long, short):  # each length compiles its own graph, and records it the second time
        profiled(given)
    few, many = profiled(short)[0], profiled(long)[0]
    return {key: (many[key] - few.get(key, 0.0)) / 16 for key in sorted(many)}


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

    def say(number: int, name: str, value: Any) -> None:
        if rank == 0:
            emit(name, value)

    if torch.cuda.is_available():
        say(0, "memory_mib", [torch.cuda.memory_allocated() / 2**20])
    measure([model], shape, parts - {"compiled"}, say)
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

    def median(call: Callable[[], Any]) -> float:
        return statistics.median(took([call])[0])

    small = torch.ones(1, 1, hidden, dtype=dtype, device=place)
    long = torch.ones(*batch, hidden, dtype=dtype, device=place)
    figures = {
        "read_gb_s": big.numel() * 8 / median(lambda: [big.amax() for _ in range(10)]) / 1e5,
        "sum_token_us": median(lambda: [dist.all_reduce(small) for _ in range(200)]) / 200 * 1e3,
        "sum_long_ms": median(lambda: [dist.all_reduce(long) for _ in range(10)]) / 10,
    }
    if rank == 0:
        for name, value in figures.items():
            emit(name, value)
    dist.destroy_process_group()


RUNS = {
    "turns": run_turns,
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
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
