"""Models in stages beside one process: `python utils/prove_stages.py [FAMILY ...] [--update docs/stages.md]`.

Each family is a small model with random weights and no dropout, of a layer more than twice the processes; eight rows, half
of them padded. For each case (a schedule, its stages a process and its micro-batches) CPU processes run a forward and three
training steps, each of two batches whose gradients add up, with clipping. Compared with one process: the outputs with all
hidden states, the loss and the norm of each step, each gradient of the first step, and the weights after three steps of
AdamW. The processes start once for all families; a family with which they end early does not stop those after it.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from marked_pages import write_part


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
ROWS, STEPS, MAX_NORM = 8, 3, 0.05
WAIT = datetime.timedelta(minutes=5)  # of a process for another one, before all end
CASES = (
    "GPipe:1:4",
    "1F1B:1:4",
    "LoopedBFS:2:4",
    "Interleaved1F1B:2:4",
    "InterleavedZeroBubble:2:4",
    "ZBVZeroBubble:2:4",
    "DualPipeV:2:4",
)  # schedule, stages a process, micro-batches
FAMILIES = [
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "phi", "phi3", "gpt2",
    "olmoe", "gpt_neox", "gptj", "opt", "bloom", "falcon", "olmo2", "cohere", "starcoder2", "stablelm",
    "granite", "glm4", "gpt_oss", "deepseek_v3", "nemotron", "xglm", "biogpt", "gemma4_text",
]  # fmt: skip


@dataclass(frozen=True)
class Whole:
    """A family's model in one process, and its results.

    Attributes:
        plan: of its stages, derived and proven once for all cases.
        pairs: loss and norm of each training step.
        gradients: of the first step.
        weights: after the last step.
    """

    model: Any
    plan: Any
    outputs: Any
    pairs: list[tuple[float, float]]
    gradients: dict[str, Any]
    weights: dict[str, Any]


def whole_of(name: str, layers: int) -> Whole:
    """A family's small model without dropout, run whole; of a few more layers where it cannot have so many."""
    import torch

    from modular_converter.parallel.engine.stages.pipeline import pipeline_plan
    from modular_converter.parallel.tiny.fields import dropout_rates

    model = _built(name, layers, most=layers + 3)
    for module in model.modules():
        for rate in dropout_rates(module):
            setattr(module, rate, 0.0)
    with torch.no_grad():
        outputs = model.eval()(**_batch(), output_hidden_states=True, use_cache=False)
    trained = copy.deepcopy(model).train()
    pairs, gradients = _train(trained, trained, _batch())
    return Whole(model, pipeline_plan(model), outputs, pairs, gradients, dict(trained.named_parameters()))


def _built(name: str, layers: int, most: int) -> Any:
    """The model of the fewest layers that can be built, such as whole periods of kinds of layers."""
    from modular_converter.parallel.errors import BuildError
    from modular_converter.parallel.tiny.build import build, target_of

    target = target_of(name, "causal")
    names = getattr(target.load()[1], "attribute_map", {})
    try:
        return build(target, {names.get("num_hidden_layers", "num_hidden_layers"): layers}).model
    except BuildError:
        if layers == most:
            raise
    return _built(name, layers + 1, most)


def compare(whole: Whole, case: str) -> dict[str, Any]:
    """The furthest differences of this process's stages from the whole model, relative to the largest entry."""
    import torch

    from modular_converter.parallel import Pipeline
    from modular_converter.parallel.schedule.orders import schedule_named

    schedule, per_process, chunks = case.split(":")
    batch = _batch()
    mine = Pipeline(
        copy.deepcopy(whole.model),
        chunks=int(chunks),
        schedule=schedule,
        stages_per_process=int(per_process),
        plan=whole.plan,
        device="cpu",
    )
    own = {n: p for n, p in mine.named_parameters() if not p.is_meta}
    found: dict[str, Any] = {
        "share": sum(p.numel() for p in own.values()) / sum(p.numel() for p in whole.model.parameters()),
        "outputs": 0.0,
    }
    if not schedule_named(schedule).v_shaped:
        output = mine.eval()(**batch, output_hidden_states=True)
        found["outputs"] = 0.0 if output is None else _furthest(output, whole.outputs)
    found["tokens"] = _other_tokens(mine.eval(), whole.model, batch) if case.startswith("1F1B") else 0
    pairs, gradients = _train(mine.train(), mine, batch)
    found["steps"] = max(abs(a - b) / abs(b) for one, two in zip(pairs, whole.pairs) for a, b in zip(one, two))
    none = {name: torch.zeros_like(p) for name, p in own.items()}  # a gradient that only one of the two has
    found["gradients"] = max(_error(*({**none, **some}[n] for some in (gradients, whole.gradients))) for n in own)
    found["weights"] = max(_error(p, whole.weights[n]) for n, p in own.items())
    return found


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
            gradients = {
                n: p.grad.clone() for n, p in owner.named_parameters() if not p.is_meta and p.grad is not None
            }
        norm = clip(MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        pairs.append((float(loss), float(norm)))
    return pairs, gradients


def _other_tokens(mine: Any, whole: Any, batch: dict[str, Any]) -> int:
    """The number of tokens that differ from the library's ``generate``: greedy, with ends of sequences, and sampled."""
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


def work(names: Sequence[str], cases: Sequence[str]) -> None:
    """The work of a process; the first one prints the differences of all for each family, as a line of JSON."""
    import torch.distributed as dist

    from modular_converter.parallel.errors import PlanError

    dist.init_process_group("gloo", timeout=WAIT)
    size = dist.get_world_size()
    for name in names:
        rows: dict[str, list[Any]] = {}
        whole: Whole | None = None
        for case in cases:
            try:
                whole = whole or whole_of(name, 2 * size + 1)
                own: Any = compare(whole, case)
            except PlanError as error:
                own = str(error)
            rows[case] = [None] * size
            dist.all_gather_object(rows[case], own)
        if dist.get_rank() == 0:
            print(json.dumps({"name": name, "rows": rows}), flush=True)
    dist.destroy_process_group()


def launch(
    names: Sequence[str], cases: Sequence[str], processes: int = 2
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Each family with its results: case -> the differences on each process, or the reason."""
    left = list(names)
    while left:
        said = yield from _start(left, cases, processes)
        if left:
            yield left.pop(0), dict.fromkeys(cases, [said])


def _start(left: list[str], cases: Sequence[str], processes: int) -> Any:
    """Run families until all are done or the processes end early: takes those done off `left`, returns the reason."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", __file__, *left, "--cases", *cases]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as run:
            for line in run.stdout or ():
                if line.startswith("{"):
                    row = json.loads(line)
                    left.remove(row["name"])
                    yield row["name"], row["rows"]
        errors.seek(0)
        found = [line.strip() for line in errors if "Error: " in line and "ChildFailedError" not in line]
    return (found or ["no answer"])[-1][:300]


def _cell(ranks: list[Any]) -> str:
    said = next((one for one in ranks if isinstance(one, str)), "")
    if said:
        return f"refused: {' '.join(said.split())}".replace("|", "/")[:120]
    worst = max(one[kind] for one in ranks for kind in ("outputs", "tokens", "steps", "gradients", "weights"))
    return f"{worst:.0e}" if worst < 1e-3 else f"**{worst:.0e}**"


def main() -> None:
    """Run the families, print the tables and, if asked to, write them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--processes", type=int, nargs="+", default=(2, 4))
    parser.add_argument(
        "--update", metavar="PAGE", help="write each table to the part of the page named stages-PROCESSES"
    )
    options = parser.parse_args()
    if "RANK" in os.environ:
        return work(options.families, options.cases)
    for processes in options.processes:
        text = table(options.families, options.cases, processes)
        if options.update:
            write_part(ROOT / options.update, f"stages-{processes}", text)


def table(names: Sequence[str], cases: Sequence[str], processes: int) -> str:
    """A row a family, printed as soon as it is done."""
    lines = [
        f"{processes} CPU processes; {datetime.date.today()}, torch {version('torch')}, "
        f"transformers {version('transformers')}. The furthest difference from one process, relative to the largest entry "
        "of its tensor.\n",
        f"| family | {' | '.join(case.replace(':', ', ') for case in cases)} |",
        "|---" * (len(cases) + 1) + "|",
    ]
    print("\n".join(lines), flush=True)
    for name, rows in launch(names, cases, processes):
        lines.append(f"| {name} | {' | '.join(map(_cell, rows.values()))} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
