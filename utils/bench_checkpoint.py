"""Figures of `parallelize("folder")`: `python utils/bench_checkpoint.py FOLDER --make 3g [--update PAGE]`.

`--make` writes a llama-shaped model with random weights into FOLDER, unless it is there. `memory` loads the folder and
counts the bytes that the ranks take out of the files and the memory of their own that they need for it: without the pages
of files, which belong to the system. `time` starts whole processes that end with the first answer, from the folder and
with `from_pretrained` and `parallelize(model)`; the files are in the page cache in both.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from bench_parallel import hardware  # noqa: E402
from marked_pages import write_part  # noqa: E402


# Hidden, intermediate, layers, heads, key/value heads, vocabulary.
SHAPES = {
    "tiny": (64, 160, 4, 8, 8, 320),
    "1g": (2048, 5504, 8, 16, 8, 32000),
    "3g": (2560, 6912, 20, 20, 20, 32000),
    "6b": (4096, 11008, 32, 32, 8, 32000),
}
_BLOCK = 1 << 24
_EVERY_S = 0.02


def config_of(shape: str) -> Any:
    """The configuration of a shape."""
    import torch
    from transformers import LlamaConfig

    hidden, intermediate, layers, heads, pairs, vocabulary = SHAPES[shape]
    return LlamaConfig(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=pairs,
        vocab_size=vocabulary,
        dtype=torch.bfloat16,
        architectures=["LlamaForCausalLM"],
    )


def make(folder: Path, shape: str) -> None:
    """Write a model of random weights in bfloat16, layer by layer, in several files with an index."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaForCausalLM

    config = config_of(shape)
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in LlamaForCausalLM(config).state_dict().items()}
    torch.manual_seed(0)
    block = (torch.randn(_BLOCK) * 0.02).bfloat16()
    parts: dict[str, list[str]] = {}
    for name in shapes:
        found = re.search(r"layers\.(\d+)\.", name)
        parts.setdefault(found[1] if found else name, []).append(name)
    folder.mkdir(parents=True, exist_ok=True)
    placed: dict[str, str] = {}
    for number, names in enumerate(parts.values(), 1):
        file = f"model-{number:05}-of-{len(parts):05}.safetensors"
        tensors = {}
        for name in names:
            count = math.prod(shapes[name])
            start = 997 * len(placed) % _BLOCK
            flat = block.roll(-start).repeat(-(-count // _BLOCK))[:count]
            tensors[name] = torch.ones_like(flat) if name.endswith("norm.weight") else flat
            tensors[name] = tensors[name].reshape(shapes[name]).contiguous()
            placed[name] = file
        save_file(tensors, folder / file, {"format": "pt"})
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    index = {"metadata": {"total_size": size}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config.save_pretrained(folder)


def own_bytes(process: int) -> int:
    """Memory of a process that is not of files: anonymous and shared memory without a file."""
    try:
        text = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return sum(int(found) << 10 for found in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", text, re.M))


class Peak:
    """The largest memory of some processes while a block runs, beyond that of its begin."""

    def __init__(self, processes: list[int]) -> None:
        self.processes = processes
        self.before = [own_bytes(one) for one in processes]
        self.most = list(self.before)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self.over.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        self.most = [max(most, own_bytes(one)) for most, one in zip(self.most, self.processes)]

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        self.thread.join()
        self._look()

    @property
    def grown(self) -> list[int]:
        return [most - before for most, before in zip(self.most, self.before)]


def measure_memory(folder: Path, devices: int) -> dict[str, Any]:
    """Bytes read and memory, of CPU ranks."""
    from transformers import LlamaForCausalLM

    from modular_converter.parallel import Session, parallelize
    from modular_converter.parallel.shard.shares import share_shape

    with Session(("cpu",) * devices, limit_s=600.0) as session:
        session.start()
        with parallelize(LlamaForCausalLM(config_of("tiny")), session=session):
            pass  # the library's code is there then, in the ranks too
        processes = [rank.process.pid for rank in session.ranks]
        with Peak([os.getpid(), *processes]) as peak:
            start = time.perf_counter()
            model = parallelize(folder, session=session)
            seconds = time.perf_counter() - start
        placement = model._placement
        items = list(enumerate(placement.skeleton.items))
        weights = [(n, item) for n, item in items if item.parameter]

        def size(n: int, item: Any, rank: int) -> int:
            return math.prod(share_shape(item.shape, placement.pieces.get(n), rank, devices)) * item.kept.itemsize

        shares = [sum(size(n, item, rank) for n, item in weights) for rank in range(devices)]
        uncut = [(n, item) for n, item in weights if n not in placement.pieces or placement.pieces[n].dim < 0]
        return {
            "seconds": round(seconds, 2),
            "model": sum(math.prod(item.shape) * item.kept.itemsize for _, item in weights),
            "whole_on_each": sum(size(n, item, 0) for n, item in uncut),
            "read": placement.read,
            "tried": [share - read for share, read in zip(shares, placement.read)],
            "shares": shares,
            "grown": peak.grown[1:],
            "grown_main": peak.grown[0],
        }


def one_run(folder: Path, devices: int, device: str, whole: bool) -> None:
    """A whole process: load, one forward; prints the seconds of both."""
    import torch

    from modular_converter.parallel import parallelize

    start = time.perf_counter()
    if whole:
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(folder)
        loaded = time.perf_counter() - start
        model = parallelize(model, num_gpus=devices, device=device)
    else:
        loaded = 0.0
        model = parallelize(folder, num_gpus=devices, device=device)
    ready = time.perf_counter() - start
    answer = model(input_ids=torch.arange(16)[None]).logits.float()
    told = {"loaded": loaded, "ready": ready, "sum": float(answer.double().abs().sum()), "process": time.time()}
    print(json.dumps(told), flush=True)
    model._placement.end()


def measure_time(folder: Path, devices: int, device: str, repeats: int) -> dict[str, Any]:
    """The best seconds of some runs of each way, from the start of the process to the first answer."""
    found: dict[str, Any] = {}
    for _ in range(repeats):
        for way in ("whole", "folder"):
            command = [sys.executable, __file__, str(folder), "--one", way, "--devices", str(devices)]
            begun = time.time()
            done = subprocess.run([*command, "--device", device], check=True, capture_output=True, text=True)
            row = json.loads(done.stdout.strip().splitlines()[-1])
            row["process"] -= begun
            print(way, row, flush=True)
            if way not in found or row["process"] < found[way]["process"]:
                found[way] = row
    apart = abs(found["whole"]["sum"] - found["folder"]["sum"]) / found["whole"]["sum"]
    if not apart < 1e-3:
        raise SystemExit(f"the two ways give other answers: {apart:.1e}")
    return found


def mib(count: float) -> str:
    return f"{count / 2**20:.0f}"


def page(rows: dict[str, Any], folder: Path, devices: int, device: str) -> Iterator[str]:
    """The part of the page."""
    versions = f"torch {version('torch')}, transformers {version('transformers')}"
    config = json.loads((folder / "config.json").read_text())
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    yield f"{datetime.date.today()}, {versions}, {hardware()}. {config['architectures'][0]}, hidden {config['hidden_size']},"
    yield f"{config['num_hidden_layers']} layers, {size / 1e9:.2f} GB of files; {devices} ranks ({device})."
    yield ""
    if "memory" in rows:
        row = rows["memory"]
        most = max(range(devices), key=lambda rank: row["grown"][rank] - row["shares"][rank])
        extra = (devices - 1) * row["whole_on_each"]
        beyond = (row["grown"][most] - row["shares"][most]) / row["model"]
        total = sum(row["read"]) + sum(row["tried"]) - extra
        yield "| `memory`, MiB | |"
        yield "|---|---|"
        yield f"| the model | {mib(row['model'])} |"
        yield f"| weights that each rank holds whole | {mib(row['whole_on_each'])} |"
        yield f"| read by the ranks from the files | {', '.join(map(mib, row['read']))} |"
        yield f"| the layers that were tried, which the main process read | {', '.join(map(mib, row['tried']))} |"
        yield f"| all together, without repeated whole weights, over the model | {total / row['model']:.2f} |"
        yield f"| a rank's share | {', '.join(map(mib, row['shares']))} |"
        yield f"| a rank's own memory at most, beyond that of its start | {', '.join(map(mib, row['grown']))} |"
        yield f"| the furthest beyond its share, over the model | {100 * beyond:.1f} % |"
        yield f"| the main process's own memory at most | {mib(row['grown_main'])} |"
        yield ""
    if "time" in rows:
        row = rows["time"]
        yield "| `time`, seconds | loaded whole | ready | with the start of Python, to the first answer |"
        yield "|---|---|---|---|"
        for way, name in (("whole", "`from_pretrained`, `parallelize(model)`"), ("folder", '`parallelize("folder")`')):
            one = row[way]
            loaded = f"{one['loaded']:.1f}" if one["loaded"] else ""
            yield f"| {name} | {loaded} | {one['ready']:.1f} | {one['process']:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", choices=sorted(SHAPES), help="write a model of this shape first, unless it is there")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--parts", default="memory,time", help="what to measure; memory is of CPU ranks")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each way, of which the best counts")
    parser.add_argument("--update", type=Path, help="a page with the two markers")
    parser.add_argument("--name", default="checkpoint", help="of the part of the page")
    parser.add_argument("--one", choices=("folder", "whole"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make is not None and not (options.folder / "config.json").exists():
        make(options.folder, options.make)
    if options.one is not None:
        one_run(options.folder, options.devices, options.device, options.one == "whole")
        return
    rows: dict[str, Any] = {}
    for part in options.parts.split(","):
        if part == "memory":
            rows[part] = measure_memory(options.folder, options.devices)
        else:
            rows[part] = measure_time(options.folder, options.devices, options.device, options.repeats)
        print(part, json.dumps(rows[part]), flush=True)
    text = "\n".join(page(rows, options.folder, options.devices, options.device))
    print(text)
    if options.update is not None:
        write_part(options.update, options.name, text)


if __name__ == "__main__":
    main()
