"""Figures of `parallelize`: `python utils/bench_parallel.py [--devices 2,4] [--update docs/figures/parallelize.md]`.

Against one device, against transformers' own tensor parallelism on the same weights, and against the lower bound:
bytes of weights that a device reads over its bandwidth, plus the collectives. A llama-shaped model of 5.9 billion
parameters in bfloat16 on GPUs, a tiny one on CPUs. Every measurement runs in processes of its own with a time limit,
and its figures are written to a file of JSON lines as they come; `--render` makes the page from such a file alone.

One device and `parallelize` are measured in turns from one process, because the speed of a host changes within seconds.
`--models t5-3b,gemma3-3b` (or `all`) compares other architectures on one and on two devices instead, all in one process.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from marked_pages import write_part


HERE = Path(__file__).resolve().parent
PARTS = "forward,decode,compiled,batches,profile"
Row = dict[str, Any]


def hardware() -> str:
    """The devices, in words."""
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name(0)}"
    return f"{os.cpu_count()} CPU cores ({platform.machine()}), no GPU"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Bench:
    """Runs measurements one after the other and keeps their figures."""

    def __init__(self, options: argparse.Namespace, weights: str) -> None:
        self.options, self.weights = options, weights
        self.lock = threading.Lock()
        self.port = 0

    def keep(self, row: Row) -> None:
        with self.lock, open(self.options.results, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)

    def run(self, name: str, devices: int, processes: int = 1, shape: str = "") -> None:
        """One measurement: its processes, killed together when the time is up or one fails."""
        start = time.monotonic()
        shape = shape or self.options.shape
        about = {"run": name, "shape": shape, "devices": devices}
        group = [self._start(about, rank, processes) for rank in range(processes)]
        readers = [threading.Thread(target=self._read, args=(child, about)) for child in group]
        for reader in readers:
            reader.start()
        problem = ""
        while not problem and any(child.poll() is None for child in group):
            time.sleep(0.2)
            if time.monotonic() - start > self.options.limit:
                problem = f"more than {self.options.limit} s"
            elif any(child.poll() for child in group):
                problem = "a process failed"
        problem = problem or next((f"exit code {child.returncode}" for child in group if child.returncode), "")
        for child in group:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        for child, reader in zip(group, readers):
            child.wait()
            reader.join()
        if problem:
            self.keep({**about, "name": "problem", "value": problem})
        self.keep({**about, "name": "seconds", "value": round(time.monotonic() - start, 1)})

    def _start(self, about: Row, rank: int, processes: int) -> subprocess.Popen[str]:
        environment = {**os.environ, "BENCH_WEIGHTS": self.weights, "PYTHONUNBUFFERED": "1"}
        if processes > 1:
            self.port = free_port() if rank == 0 else self.port
            environment |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(processes),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self.port),
            }
        command = [sys.executable, str(HERE / "parallel_runs.py"), about["run"], "--shape", about["shape"]]
        command += ["--devices", str(about["devices"]), "--parts", self.options.parts]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=HERE.parent
        )

    def _read(self, child: subprocess.Popen[str], about: Row) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("{"):
                self.keep({**about, **json.loads(line)})
            else:
                print(line, end="", file=sys.stderr)


def figures(rows: list[Row]) -> dict[tuple[str, int], dict[str, Any]]:
    """The last value of each figure, by run and number of devices."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        found.setdefault((row["run"], row["devices"]), {})[row["name"]] = row["value"]
    return found


COLUMNS = (
    ("memory a device, MiB", "memory_mib"),
    ("forward long, ms", "forward_long_ms"),
    ("forward short, ms", "forward_short_ms"),
    ("decode, ms a token", "decode_1_ms"),
    ("compiled decode, ms a token", "compiled_decode_ms"),
    ("tokens a second", "tokens"),
    ("a call's overhead, ms", "overhead_ms"),
)
NAMES = {"one": "one device", "ours": "parallelize, {} devices", "library": "transformers' own, {} devices"}


def page(rows: list[Row]) -> str:
    """The tables as Markdown."""
    known = figures(rows)
    about = known.get(("about", 0), {})
    head = ", ".join(str(about.get(name, "")) for name in ("date", "versions", "hardware"))
    lines = [f"{head}. {about.get('model', '')}"]
    lines += ["", "| | " + " | ".join(title for title, _ in COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for (run, devices), values in sorted(known.items(), key=lambda item: (item[0][1], item[0][0])):
        if run in NAMES:
            best = min((values[k] for k in ("decode_1_ms", "compiled_decode_ms") if k in values), default=0.0)
            values = {**values, "tokens": 1e3 / best if best else None}
            cells = [_cell(values.get(key)) for _, key in COLUMNS]
            lines.append("| " + " | ".join([NAMES[run].format(devices), *cells]) + " |")
        if run == "bounds":
            lines.append("| " + " | ".join(_bound(devices, values, known)) + " |")
    lines += ["", *_profile(known)]
    problems = [f"* {run}, {n} devices: {v['problem']}" for (run, n), v in known.items() if "problem" in v]
    return "\n".join([*lines, *problems]).rstrip() + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return _cell(max(value))
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def _bound(devices: int, values: dict[str, Any], known: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    """Weights of a device over its bandwidth, plus two sums a layer: the least that a decoded token can take."""
    weights, layers = known.get(("one", 1), {}).get("weights_bytes"), known.get(("about", 0), {}).get("layers")
    if not weights or not layers or "read_gb_s" not in values:
        return [f"lower bound, {devices} devices", *[""] * len(COLUMNS)]
    token = weights / devices / values["read_gb_s"] / 1e6 + (2 * layers + 2) * values["sum_token_us"] / 1e3
    share = f"{weights / devices / 2**20:.0f}"
    return [f"lower bound, {devices} devices", share, "", "", _cell(token), _cell(token), _cell(1e3 / token), ""]


def _profile(known: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    """Where a decoded token's time goes, on the first device."""
    found = [(run, n, name, v[name]) for (run, n), v in known.items() for name in v if name.startswith("profile_")]
    if not found:
        return []
    kinds = sorted({kind for *_, value in found for kind in value} - {"wall", "busy", "kernels"})
    head = ["a decoded token, ms", "wall", *kinds, "no kernel running", "kernels"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for run, devices, name, value in sorted(found):
        title = f"{NAMES[run].format(devices)}, {name.removeprefix('profile_')}"
        gap = max(0.0, value["wall"] - value["busy"])
        cells = [value["wall"], *(value.get(kind, 0.0) for kind in kinds), gap]
        lines.append("| " + " | ".join([title, *(f"{cell:.2f}" for cell in cells), f"{value['kernels']:.0f}"]) + " |")
    return [*lines, ""]


COMPARED = (
    ("forward long, ms", "forward_long_ms"),
    ("forward short, ms", "forward_short_ms"),
    ("decoding, ms a token", "decode_1_ms"),
    ("of 8 sequences", "decode_8_ms"),
    ("of 32 sequences", "decode_32_ms"),
    ("compiled, ms a token", "compiled_decode_ms"),
    ("32 prompts in one `generate_batch`, tokens a second", "batches_tokens_s"),
)


def models_page(rows: list[Row]) -> str:
    """The table of `--models`: each figure on one device, on two, and how much faster two are: in the middle, and in all turns."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["run"] in ("one", "ours", "turns") and "," not in row["shape"]:
            found.setdefault(row["shape"], {}).setdefault(row["run"], {})[row["name"]] = row["value"]
    about = figures([row for row in rows if row["run"] == "about"]).get(("about", 0), {})
    lines = [", ".join(str(about.get(name, "")) for name in ("date", "versions", "hardware")) + ".", ""]
    head = [
        "one device → two",
        "parameters",
        *(title for title, _ in COMPARED),
        "tokens a second of 32 sequences over one",
        "start, s",
        "compiling, s",
    ]
    table = [head]
    for shape, runs in found.items():
        one, ours = runs.get("one", {}), runs.get("ours", {})
        size = f"{one['weights_bytes'] / one['weight_bytes'] / 1e9:.2f} B" if "weight_bytes" in one else ""
        cells = [shape, size, *(_ratio(one, ours, key) for _, key in COMPARED)]
        grown = 32 * ours["decode_1_ms"] / ours["decode_32_ms"] if "decode_32_ms" in ours else None
        table.append([*cells, _cell(grown), _cell(ours.get("start_s")), _cell(ours.get("compile_s"))])
    measured = [number for number in range(len(head)) if any(row[number] for row in table[1:])]
    table = [[row[number] for number in measured] for row in table]
    lines += [f"| {' | '.join(row)} |" for row in table]
    lines.insert(-len(table) + 1, "|---" * len(measured) + "|")
    problems = [
        f"* {shape}, {run}: {v['problem']}"
        for shape, runs in found.items()
        for run, v in runs.items()
        if "problem" in v
    ]
    return "\n".join([*lines, "", *problems]).rstrip() + "\n"


def _ratio(first: Row, second: Row, key: str) -> str:
    """Both figures, and how much faster the second is; where they took turns, of the turns the median, the least and the most."""
    one, two = first.get(key), second.get(key)
    if one is None or two is None:
        return f"{_cell(one)} → {_cell(two)}" if one or two else ""
    if f"{key}_ratios" in second:
        least, middle, most = second[f"{key}_ratios"]
        return f"{_cell(one)} → {_cell(two)} ({middle:.2f} ×; {least:.2f} to {most:.2f})"
    return f"{_cell(one)} → {_cell(two)} ({two / one if key.endswith('_s') else one / two:.2f} ×)"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", help="numbers of devices, such as 2,4; all powers of two that there are")
    parser.add_argument("--runs", default="turns,bounds,library", help="which to do, in this order")
    parser.add_argument("--parts", default=PARTS, help=f"what to measure: {PARTS}")
    parser.add_argument("--shape", help="llama-6b or tiny")
    parser.add_argument("--models", help="shapes of bench_model.py, or `all`: one device against two")
    parser.add_argument("--limit", type=int, default=240, help="seconds for one measurement, or for all models")
    parser.add_argument("--results", default="bench-parallel.jsonl", help="file of JSON lines, appended to")
    parser.add_argument("--weights", help="folder for the weights of transformers' run; a temporary one")
    parser.add_argument("--update", type=Path, help="a page with the two markers")
    parser.add_argument("--render", action="store_true", help="measure nothing; make the page from --results")
    return parser.parse_args()


def measure_all(options: argparse.Namespace) -> None:
    """All runs that were asked for; transformers' own needs the weights in a folder first."""
    import torch

    sys.path.insert(0, str(HERE))
    from bench_model import SHAPES

    gpus = torch.cuda.device_count()
    options.shape = options.shape or ("llama-6b" if gpus else "tiny")
    if not gpus:
        options.parts = ",".join(part for part in options.parts.split(",") if part != "compiled")
    every = [n for n in (2, 4, 8) if n <= max(gpus, 2)]
    counts = [int(n) for n in options.devices.split(",")] if options.devices else every
    weights = options.weights or tempfile.mkdtemp(prefix="bench-parallel-")
    bench = Bench(options, weights)
    shape = SHAPES[options.shape]
    sizes = ", ".join(f"{name} {value}" for name, value in shape.sizes.items())
    about = {
        "date": datetime.date.today().isoformat(),
        "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers")),
        "hardware": hardware(),
        "layers": shape.sizes["num_hidden_layers"],
        "model": "{}: {}; long forward {} × {} tokens, short {} × {}.".format(
            shape.kind, sizes, *shape.long, *shape.short
        ),
    }
    for name, value in about.items():
        bench.keep({"run": "about", "devices": 0, "name": name, "value": value})
    if options.models:
        chosen = [name for name in SHAPES if not name.startswith("tiny")]
        bench.run("turns", 2, shape=",".join(chosen) if options.models == "all" else options.models)
        return
    try:
        for run in options.runs.split(","):
            if run == "library":
                bench.run("save", 1)
            for devices in counts:
                several = run in ("bounds", "library")
                bench.run(run, devices, devices if several else 1)
    finally:
        if not options.weights:
            shutil.rmtree(weights, ignore_errors=True)


def main() -> None:
    options = parse()
    if not options.render:
        measure_all(options)
    rows = [json.loads(line) for line in Path(options.results).read_text(encoding="utf-8").splitlines()]
    text = models_page(rows) if options.models else page(rows)
    if options.update:
        write_part(options.update, "bench-models" if options.models else "bench", text)
    print(text)


if __name__ == "__main__":
    main()
