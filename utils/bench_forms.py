"""The two forms of a sharded model beside each other: `torchrun --nproc-per-node 2 utils/bench_forms.py`.

The same weights in the form with gradients and in the form for inference, in turns: milliseconds of a forward and of a
generated token, in the median of some rounds. On GPUs a llama shape of 5.9 billion parameters in bfloat16, and a third form
whose decoding is compiled; on CPUs a tiny one in float32. Figures go to `--results` as they come, a line for each form;
`python utils/bench_forms.py --render --update docs/figures/training.md` writes the page.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_model import PROMPT, SHAPES, build
from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
FORMS: dict[str, dict[str, bool]] = {
    "with gradients": {},
    "for inference": {"inference": True},
    "for inference, compiled": {"compile": True},
}
ROUNDS = 5
Row = dict[str, Any]


def main() -> None:
    """Measure, or make the page from what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, help="llama-6b on GPUs, tiny on CPUs")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--results", type=Path, default=Path("bench-forms.jsonl"))
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--update", type=Path, help="a page with the two markers")
    options = parser.parse_args()
    if not options.render:
        measure_all(options)
    if options.update and os.environ.get("RANK", "0") == "0":
        rows = [json.loads(line) for line in options.results.read_text(encoding="utf-8").splitlines()]
        write_part(options.update, "bench-forms", table(rows))


def measure_all(options: argparse.Namespace) -> None:
    """Measure all forms in turns, as a process under torchrun; the first one writes the lines."""
    import torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo", device_id=device if gpu else None)
    shape = options.shape or ("llama-6b" if gpu else "tiny")
    first = {form: made(shape, device, FORMS[form]) for form in list(FORMS)[:2]}
    groups = [first, {"for inference, compiled": None}] if gpu else [first]
    for models in groups:  # compiled code comes last: it takes the longest to begin
        for form in models:
            models[form] = models[form] or made(shape, device, FORMS[form])
        for row in measured(models, shape, options.rounds, device):
            if dist.get_rank() == 0:
                row |= {"torch": torch.__version__, "device": torch.cuda.get_device_name() if gpu else "CPU"}
                print(json.dumps(row), flush=True)
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        models.clear()
    torch.compiler.reset()  # NCCL waits for ever where graphs still hold its communicators
    gc.collect()
    dist.destroy_process_group()


def made(shape: str, device: Any, options: dict[str, Any]) -> Any:
    """A model with the same weights in each process and form, in this form."""
    import torch

    from modular_converter.parallel import parallelize

    torch.manual_seed(0)
    whole = build(shape).to(device)
    model = parallelize(whole, device=device.type, probe=False, **options)
    gc.collect()
    return model


def measured(models: dict[str, Any], shape: str, rounds: int, device: Any) -> list[Row]:
    """The figures of some forms, each case in turns."""
    import torch

    lengths = SHAPES[shape]
    tokens, (rows, length) = lengths.tokens, lengths.long
    draw = torch.Generator().manual_seed(2)
    long = torch.randint(2, lengths.sizes["vocab_size"], (rows, length), generator=draw).to(device)

    def decode(model: Any, number: int) -> Any:
        prompt = long[:number, :PROMPT]
        return model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)

    def forward(model: Any, number: int) -> Any:
        with torch.no_grad():
            return model(long[:number], use_cache=False).logits

    cases: dict[str, tuple[Callable[[Any], Any], int]] = {
        f"forward {rows} x {length}": (lambda model: forward(model, rows), 1),
        f"forward 1 x {length}": (lambda model: forward(model, 1), 1),
        "a token of one sequence": (lambda model: decode(model, 1), tokens),
        f"a token of {rows} sequences": (lambda model: decode(model, rows), tokens),
    }
    found: dict[str, dict[str, list[float]]] = {form: {case: [] for case in cases} for form in models}
    for turn in range(-1, rounds):
        for case, (call, steps) in cases.items():
            for form, model in models.items():
                took = seconds(lambda call=call, model=model: call(model), device)  # type: ignore[misc]
                if turn >= 0:
                    found[form][case].append(took * 1e3 / steps)
    own = [{case: statistics.median(times) for case, times in found[form].items()} for form in models]
    logits = {form: forward(model, 1) for form, model in models.items()}
    said = {form: decode(model, rows) for form, model in models.items()}
    return [
        {"form": form, "shape": shape, "ms": ms, **differences(form, logits, said)} for form, ms in zip(models, own)
    ]


def differences(form: str, logits: dict[str, Any], tokens: dict[str, Any]) -> Row:
    """The difference of a form from the form with gradients, if both are measured together."""
    first = next(iter(FORMS))
    if form == first or first not in logits:
        return {"logits_differ": None, "tokens_differ": None}
    furthest = (logits[form] - logits[first]).abs().max() / logits[first].abs().max()
    return {"logits_differ": float(furthest), "tokens_differ": int((tokens[form] != tokens[first]).sum())}


def seconds(call: Callable[[], Any], device: Any) -> float:
    """The time of a call on the device."""
    import torch

    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    wait()
    begin = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - begin


def table(rows: list[Row]) -> str:
    """The lines as Markdown: for each device a table, its last figures, and what a form takes of the one with gradients."""
    found: list[str] = []
    for device in dict.fromkeys(row["device"] for row in rows):
        own = {row["form"]: row for row in rows if row["device"] == device}
        first = own["with gradients"]
        found += [f"torch {first['torch']}, two processes, {device}, {first['shape']}; milliseconds:", ""]
        head = ["form", *first["ms"], "logits differ by", "tokens differ"]
        found += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for form, row in own.items():
            cells = [f"{ms:.2f} ({ms / first['ms'][case]:.2f})" for case, ms in row["ms"].items()]
            known = row["tokens_differ"] is not None
            cells += [f"{row['logits_differ']:.0e}", str(row["tokens_differ"])] if known else ["", ""]
            found.append(f"| {form} | {' | '.join(cells)} |")
        found.append("")
    return "\n".join(found)


if __name__ == "__main__":
    main()
