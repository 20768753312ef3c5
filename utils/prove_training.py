"""Training in a layout beside one process, for 25 families: `python utils/prove_training.py --update docs/figures/training.md`.

Three steps of AdamW in float64, with dropout and clipping: the loss, each gradient, the norm of all gradients and the
weights afterwards. The one process computes each part of the batch with the random numbers of its data rank. A line for
each family and layout goes to `--done`, from which a second call goes on. `tp2+sp` is `tp2` with sequence parallelism. The
exit code is 1 where numbers differ.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
FAMILIES = (
    "llama,gpt2,mixtral,bert,bart,opt,gpt_neo,gptj,gpt_neox,bloom,falcon,phi,phi3,qwen2,qwen3,gemma,gemma2,mistral,"
    "olmo,cohere,starcoder2,stablelm,roberta,electra,qwen2_moe"
)
LAYOUTS = "tp2,fsdp2,ddp2,fsdp2.tp2,ddp2.tp2,ddp2.fsdp2.tp2"
STEPS, BATCH, LENGTH, MAX_NORM, VOCABULARY = 3, 4, 12, 0.5, 158
TOLERANCE = 1e-5
"""Weights are float64, but the library computes losses and routers in float32."""


def main() -> int:
    """Prove the families; the exit code is 1 where training in a layout differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default=FAMILIES)
    parser.add_argument("--layouts", default=LAYOUTS)
    parser.add_argument("--done", type=Path, default=Path("prove-training.jsonl"))
    parser.add_argument("--limit", type=int, default=900, help="seconds for one family in one layout")
    parser.add_argument("--update", type=Path, help="a page with the two markers")
    parser.add_argument("--worker", action="store_true", help="one process under torchrun: print the lines alone")
    options = parser.parse_args()
    if options.worker:
        for kind in options.types.split(","):
            for layout in options.layouts.split(","):
                work(kind, layout)
        return 0
    lines = options.done.read_text(encoding="utf-8").splitlines() if options.done.exists() else []
    rows: dict[tuple[str, str], dict[str, Any]] = {(row["type"], row["layout"]): row for row in map(json.loads, lines)}
    for layout in options.layouts.split(","):
        for kind in options.types.split(","):
            if (kind, layout) not in rows:
                rows[kind, layout] = row = run(kind, layout, options.limit)
                print(json.dumps(row), flush=True)
                with options.done.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    text = table(rows)
    print(text)
    if options.update:
        write_part(options.update, "prove-training", text)
    return int(any("worst" not in row or row["worst"] > TOLERANCE for row in rows.values()))


def run(kind: str, layout: str, limit: int) -> dict[str, Any]:
    """The line of one family in one layout, of processes of its own."""
    sys.path.insert(0, str(ROOT))
    from modular_converter.parallel import Layout

    command = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "c10d"]
    size = Layout.parse(layout.partition("+")[0]).size
    command += ["--rdzv-endpoint", "127.0.0.1:0", "--nproc-per-node", str(size), __file__]
    command += ["--worker", "--types", kind, "--layouts", layout]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    try:
        found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"type": kind, "layout": layout, "error": f"no answer in {limit} s"}
    rows: list[dict[str, Any]] = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    if found.returncode == 0 and rows:
        return rows[0]
    errors = [line for line in found.stderr.splitlines() if "Error: " in line]
    return {"type": kind, "layout": layout, "error": (errors or ["failed"])[0][:300]}


def work(kind: str, layout: str) -> None:
    """One family in one layout, as a process under torchrun; the first one prints the line."""
    import torch
    import torch.distributed as dist

    from modular_converter.parallel import Layout, Training, parallelize
    from modular_converter.parallel.tiny.build import build, target_of
    from modular_converter.parallel.tiny.fields import dropout_rates

    whole: Any = build(target_of(kind, "causal"), {"vocab_size": VOCABULARY}).model.double().train()
    whole.config._experts_implementation = "eager"  # grouped products know no float64
    processes, _, sequence = layout.partition("+")
    training = Training(sequence_parallel=True) if sequence == "sp" else None
    if Layout.parse(processes).pp > 1:  # stages draw other numbers
        training = Training(chunks=2)
        for module in whole.modules():
            vars(module).update(dict.fromkeys(dropout_rates(module), 0.0))
    model = parallelize(copy.deepcopy(whole), layout=processes, training=training, device="cpu", probe=False)
    errors: dict[str, float] = dict.fromkeys(("loss", "gradients", "norm", "weights"), 0.0)
    optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-3) for one in (whole, model)]
    for step in range(STEPS):
        for name, error in compared_step(whole, model, step):
            errors[name] = max(errors[name], error)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    full = model.full_state_dict()
    errors["weights"] = max(relative(full[name], value) for name, value in whole.named_parameters())
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, errors)
    errors = {name: max(one[name] for one in every) for name in errors}
    if dist.get_rank() == 0:
        print(json.dumps({"type": kind, "layout": layout, **errors, "worst": max(errors.values())}), flush=True)
    dist.barrier()


def compared_step(whole: Any, model: Any, step: int) -> Iterator[tuple[str, float]]:
    """The errors of the loss, of each gradient and of the norm of a step; gradients are clipped afterwards."""
    import torch
    import torch.distributed as dist

    from modular_converter.parallel.engine.group.spread import each_once

    torch.manual_seed(step)
    ids = torch.randint(4, VOCABULARY - 8, (BATCH, LENGTH))
    parts, want = ids.chunk(model.layout.data), 0.0
    for rank, part in enumerate(parts):
        torch.manual_seed(100 * step + rank)
        loss = whole(input_ids=part, labels=part).loss / len(parts)
        loss.backward()
        want += float(loss.detach())
    torch.manual_seed(100 * step + model.data_rank)
    own = parts[model.data_rank]
    staged = model.layout.pp > 1
    loss = model.step(input_ids=own, labels=own) if staged else model(input_ids=own, labels=own).loss
    if not staged:
        loss.backward()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    yield "loss", abs(float(mean) - want) / abs(want)
    gradients = {name: one.grad for name, one in whole.named_parameters()}
    largest = max(float(one.abs().max()) for one in gradients.values() if one is not None)
    spreads = model.spreads() if staged else {one.name: one for one in each_once(model)}
    for name, one in spreads.items():
        found, expected = one.stored.grad, gradients[name]
        if (found is None) != (expected is None):
            raise AssertionError(f"{name}: a gradient on one side only")
        if found is not None:
            yield "gradients", relative(one.whole(found), expected, largest * 1e-6)
    norm = float(torch.nn.utils.clip_grad_norm_(whole.parameters(), MAX_NORM))
    yield "norm", abs(float(model.clip_grad_norm_(MAX_NORM)) - norm) / norm


def relative(found: Any, expected: Any, floor: float = 1e-12) -> float:
    """The largest difference over the largest entry."""
    return float((found - expected).abs().max()) / max(float(expected.abs().max()), floor)


def table(rows: dict[tuple[str, str], dict[str, Any]]) -> str:
    """The lines as Markdown: a family each, the largest error in each layout."""
    layouts = list(dict.fromkeys(layout for _, layout in rows))
    equal = sum(row.get("worst", 1.0) <= TOLERANCE for row in rows.values())
    found = [
        f"{equal} of {len(rows)} equal to {TOLERANCE:g}. The largest relative error of a loss, gradient, norm or weight:",
        "",
    ]
    found += [f"| type | {' | '.join(layouts)} |", "|---" * (len(layouts) + 1) + "|"]
    for kind in dict.fromkeys(kind for kind, _ in rows):
        cells = [rows.get((kind, layout), {}) for layout in layouts]
        said = [f"{one['worst']:.0e}" if "worst" in one else one.get("error", "")[:80] for one in cells]
        found.append(f"| {kind} | {' | '.join(said)} |")
    return "\n".join(found)


if __name__ == "__main__":
    sys.exit(main())
