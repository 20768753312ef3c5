"""Models in stages beside one process: `python utils/prove_stages.py [FAMILY ...] [--update docs/stages.md]`.

Each family is a small model with five layers, random weights and no dropout; eight rows, half of them padded. For each case
(a schedule, its stages a process and its micro-batches) two CPU processes run a forward and three training steps, each of
two batches whose gradients add up, with clipping. Compared with one process: the outputs with all hidden states, the loss and the norm of each
step, each gradient of the first step, and the weights after three steps of AdamW. Without families, all of `FAMILIES`.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
LAYERS, ROWS, STEPS, MAX_NORM = 5, 8, 3, 0.05
CASES = (
    "GPipe:1:4",
    "1F1B:1:4",
    "LoopedBFS:2:4",
    "Interleaved1F1B:2:4",
    "InterleavedZeroBubble:2:4",
    "ZBVZeroBubble:2:4",
)
"""Schedule, stages a process, micro-batches."""
FAMILIES = [
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "phi",
    "phi3",
    "gpt2",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "opt",
    "bloom",
    "falcon",
    "olmo2",
    "cohere",
    "starcoder2",
    "stablelm",
    "granite",
    "glm4",
    "gpt_oss",
    "deepseek_v3",
    "nemotron",
    "xglm",
    "biogpt",
]


def compare(name: str, case: str) -> dict[str, Any]:
    """The furthest differences of this process's stages from the whole model, relative to the largest entry."""
    import torch

    from modular_converter.parallel import Pipeline

    schedule, per_process, chunks = case.split(":")
    whole = _whole(name)
    batch = _batch()
    mine = Pipeline(
        copy.deepcopy(whole), chunks=int(chunks), schedule=schedule, stages_per_process=int(per_process), device="cpu"
    )
    found: dict[str, Any] = {
        "share": sum(p.numel() for p in mine.parameters()) / sum(p.numel() for p in whole.parameters()),
        "outputs": 0.0,
    }
    if schedule != "ZBVZeroBubble":
        more = {"output_hidden_states": True}
        output = mine.eval()(**batch, **more)
        with torch.no_grad():
            expected = whole.eval()(**batch, **more, use_cache=False)
        found["outputs"] = 0.0 if output is None else _furthest(output, expected)
    found["tokens"] = _other_tokens(mine.eval(), whole.eval(), batch) if case.startswith("1F1B") else 0
    losses, gradients = _train(whole.train(), whole, batch)
    own, own_gradients = _train(mine.train(), mine, batch)
    assert set(own_gradients) <= set(gradients), "gradients of parameters that the whole model does not use"
    weights = dict(whole.named_parameters())
    found["steps"] = max(abs(a - b) / abs(b) for one, two in zip(own, losses) for a, b in zip(one, two))
    found["gradients"] = max(_error(own_gradients[n], gradients[n]) for n in own_gradients)
    found["weights"] = max(_error(p, weights[n]) for n, p in mine.named_parameters())
    return found


def _whole(name: str) -> Any:
    from modular_converter.parallel.tiny.build import build, target_of
    from modular_converter.parallel.tiny.dropout_rates import dropout_rates

    target = target_of(name, "causal")
    names = getattr(target.load()[1], "attribute_map", {})
    small = build(target, {names.get("num_hidden_layers", "num_hidden_layers"): LAYERS})
    for module in small.model.modules():
        for rate in dropout_rates(module):
            setattr(module, rate, 0.0)
    return small.model


def _batch() -> dict[str, Any]:
    import torch

    ids = torch.randint(3, 60, (ROWS, 12), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[1::2, :3] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _train(model: Any, owner: Any, batch: dict[str, Any]) -> tuple[list[tuple[float, float]], dict[str, Any]]:
    """Loss and norm of each step, and the gradients of the first."""
    import torch

    optimizer = torch.optim.AdamW(owner.parameters(), lr=1e-3)
    labels = batch["input_ids"]
    pairs, gradients = [], {}
    for number in range(STEPS):
        if hasattr(owner, "step"):
            owner.step(**batch, labels=labels)  # gradients of two steps add up
            loss, clip = owner.step(**batch, labels=labels), owner.clip_grad_norm_
        else:
            loss = model(**batch, labels=labels, use_cache=False).loss
            (2 * loss).backward()

            def clip(most: float) -> Any:
                return torch.nn.utils.clip_grad_norm_(model.parameters(), most)

        if not number:
            gradients = {n: p.grad.clone() for n, p in owner.named_parameters() if p.grad is not None}
        norm = clip(MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        pairs.append((float(loss), float(norm)))
    return pairs, gradients


def _other_tokens(mine: Any, whole: Any, batch: dict[str, Any]) -> int:
    """How many tokens are not those of transformers' own ``generate``: greedy, with ends of sequences, and sampled."""
    import torch

    batch = {**batch, "attention_mask": batch["attention_mask"].sort(dim=1).values}  # padded on the left
    plain: dict[str, Any] = {**batch, "max_new_tokens": 6, "eos_token_id": None, "pad_token_id": 0}
    free = whole.generate(**plain)
    ends = {**plain, "eos_token_id": [int(free[0, -4]), int(free[3, -3])], "repetition_penalty": 1.3}
    sampled = {**plain, "do_sample": True, "top_k": 20, "temperature": 0.8}
    found = 0
    for options, groups in ((plain, None), (plain, 3), (ends, None), (ends, 8), (sampled, 1)):
        torch.manual_seed(5)
        expected = whole.generate(**options)
        torch.manual_seed(5)
        own = mine.generate(groups=groups, **options)
        found += int((own != expected).sum()) if own.shape == expected.shape else expected.numel()
    return found


def _furthest(mine: Any, other: Any) -> float:
    """The furthest difference of two outputs, infinite where one has what the other lacks."""
    from torch.utils import _pytree as pytree

    own, expected = (dict(pytree.tree_flatten_with_path(output)[0]) for output in (mine, other))
    if own.keys() != expected.keys():
        return math.inf
    return max(_error(own[path], value) for path, value in expected.items() if value is not None)


def _error(mine: Any, other: Any) -> float:
    return float((mine - other).abs().max()) / max(float(other.abs().max()), 1e-3)


def work(names: list[str], cases: list[str]) -> None:
    """What each process does; the first one prints what it found for each family and case as JSON."""
    import torch.distributed as dist

    from modular_converter.parallel.errors import PlanError

    dist.init_process_group("gloo")
    rows: dict[str, Any] = {}
    for name, case in itertools.product(names, cases):
        try:
            own: Any = compare(name, case)
        except PlanError as error:
            own = str(error)
        everywhere: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, own)
        rows[f"{name} {case}"] = everywhere
    if dist.get_rank() == 0:
        print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


def launch(names: list[str], cases: list[str], processes: int = 2) -> dict[str, Any]:
    """What processes of their own found: family and case -> the differences on each process."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", __file__, *names, "--cases", *cases]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    if line is None:
        last = next((one for one in reversed(done.stderr.splitlines()) if "Error: " in one), "no answer")
        return {f"{name} {case}": [last[:160]] for name, case in itertools.product(names, cases)}
    found: dict[str, Any] = json.loads(line)
    return found


def _cell(ranks: list[Any]) -> str:
    said = next((one for one in ranks if isinstance(one, str)), "")
    if said:
        return f"refused: {said}".replace("|", "/")[:120]
    worst = max(one[kind] for one in ranks for kind in ("outputs", "tokens", "steps", "gradients", "weights"))
    return f"{worst:.0e}" if worst < 1e-3 else f"**{worst:.0e}**"


def main() -> None:
    """Run the families, print the table and, if asked to, write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--update", metavar="PAGE")
    options = parser.parse_args()
    if "RANK" in os.environ:
        return work(options.families, options.cases)
    from importlib.metadata import version

    lines = [
        f"{datetime.date.today()}, torch {version('torch')}, transformers {version('transformers')}; {options.processes}"
    ]
    lines[0] += (
        " CPU processes. The furthest difference from one process, relative to the largest entry of its tensor.\n"
    )
    lines += [
        f"| family | {' | '.join(case.replace(':', ', ') for case in options.cases)} |",
        "|---" * (len(options.cases) + 1) + "|",
    ]
    print("\n".join(lines), flush=True)
    for name in options.families:
        rows = launch([name], list(options.cases), options.processes)
        lines.append(f"| {name} | {' | '.join(map(_cell, rows.values()))} |")
        print(lines[-1], flush=True)
    if options.update:
        write_part(ROOT / options.update, "stages", "\n".join(lines))


if __name__ == "__main__":
    main()
