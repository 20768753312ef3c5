"""Models at the sizes of their classes, on 2, 3, 4 and 8 devices: `python utils/run_published.py fit|run [TYPE ...]`.

`fit` counts how the derived plans hold at those sizes without data, from the rows that `modular-plan coverage --all --resume
ROWS.jsonl` has written; `run` runs the models that parallelformers supported, or those named, with two layers, random
weights and as many CPU ranks, and compares outputs and greedy tokens with one process. Its rows go to `--done`, from which a
second call goes on. `--update docs/figures/uneven-shares.md` writes the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from marked_pages import write_part
from run_verified import read


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
LIMIT_S = 600
TOLERANCE = 2e-4
SIZES = ("2", "3", "4", "8")


def run_rows(name: str, sessions: dict[int, Any]) -> Iterable[dict[str, Any]]:
    """A type's model at the sizes of its class on each of several sessions, beside the whole model."""
    from modular_converter.parallel.api import parallelize
    from modular_converter.parallel.errors import one_line

    model, inputs, generates = _model(name)
    kind = type(model)
    want = _answers(model, inputs, generates)
    for size, session in sessions.items():
        row: dict[str, Any] = {"model": name, "devices": size, "outputs": "", "tokens": ""}
        start = time.monotonic()
        try:
            parallelize(model, session=session, probe=False)
            row["kept"] = _kept(kind, model)
            got = _answers(model, inputs, generates)
            model.cpu()
            row |= _compared(got, want)
        except Exception as error:  # one model must not stop the table
            row["outputs"] = one_line(error, 200)
            if "_placement" in model.__dict__ and not session.ended:
                model.cpu()
        yield row | {"seconds": round(time.monotonic() - start, 1)}
        if session.ended:
            return


def _model(name: str) -> tuple[Any, dict[str, Any], bool]:
    """The model with a head for text if the type has one, two layers, and random weights; and inputs for it."""
    import torch
    from run_verified import generating

    from modular_converter.parallel.tiny.build import randomise, target_of, targets_of_folder
    from modular_converter.parallel.tiny.inputs import make_inputs
    from modular_converter.parallel.tiny.shrink import published

    folder = name.partition(":")[2]
    head = None if folder else generating(name)
    target = targets_of_folder(folder)[0] if folder else target_of(head or name)
    try:
        bare = published(target)
    except (AssertionError, ValueError):  # a head that the defaults of its configuration do not allow (reformer)
        head, bare = None, published(target_of(name))
    torch.manual_seed(0)
    model: Any = type(bare)(bare.config).eval()
    randomise(model)
    return model, make_inputs(model), head is not None


def _kept(kind: Any, model: Any) -> float:
    """The share of the weights on the rank with most."""
    import torch

    from modular_converter.parallel.choice.select_plan import kept

    placement = model._placement
    with torch.device("meta"):
        return round(kept(kind(model.config), placement.plan, len(placement.session.devices)).share, 3)


def _answers(model: Any, inputs: dict[str, Any], generates: bool) -> tuple[list[Any], Any]:
    import torch

    from modular_converter.parallel.proof.compare import generation_inputs
    from modular_converter.parallel.trace.record import tensors_in

    torch.manual_seed(0)  # reformer draws its hashes
    with torch.no_grad():
        found = [tensor.clone() for tensor in tensors_in(model(**inputs)) if tensor.is_floating_point()]
        given = generation_inputs(model, inputs) if generates and model.can_generate() else None
        tokens = model.generate(**given, max_new_tokens=5, min_new_tokens=5, do_sample=False) if given else None
    return found, tokens


def _compared(got: tuple[list[Any], Any], want: tuple[list[Any], Any]) -> dict[str, str]:
    import torch

    from modular_converter.parallel.commands.run import deviation

    worst = deviation(got[0], want[0])
    outputs = "equal" if worst <= TOLERANCE else f"differ by {worst:.1e}"
    if want[1] is None:
        return {"outputs": outputs, "tokens": "none"}
    return {"outputs": outputs, "tokens": "equal" if torch.equal(got[1], want[1]) else "others"}


def fit_table(rows: list[dict[str, Any]]) -> str:
    """The number of verified types that fit each number of devices, and the other types with the reason."""
    from modular_converter.parallel.tables.coverage import WHOLE

    verified = {str(row["model"]): row for row in rows if row["state"] == "verified"}
    known = [row for row in verified.values() if row.get("holds_at")]
    late = sorted(verified.keys() - {str(row["model"]) for row in known})
    lines = ["| devices | in full | with parts whole | not |", "|---|---|---|---|"]
    for size in SIZES:
        said = [row["holds_at"][size] for row in known]
        parts = sum(one.startswith(WHOLE) for one in said)
        lines.append(f"| {size} | {said.count('')} | {parts} | {len(said) - said.count('') - parts} |")
    said_late = f" No result within the time limit: {', '.join(late)}." if late else ""
    lines += [
        "",
        f"Of {len(known)} verified types.{said_late} Those with parts that stay whole, or that do not fit:",
        "",
    ]
    lines += ["| type | devices | what |", "|---|---|---|"]
    for row in sorted(known, key=lambda one: str(one["model"])):
        by_reason: dict[str, list[str]] = {}
        for size in SIZES:
            if row["holds_at"][size]:
                by_reason.setdefault(row["holds_at"][size][:160].replace("|", "/"), []).append(size)
        lines += [f"| {row['model']} | {', '.join(sizes)} | {reason} |" for reason, sizes in by_reason.items()]
    return "\n".join(lines)


def run_table(rows: list[dict[str, Any]]) -> str:
    """The types by number of devices: outputs and tokens, and the share of the weights on the device with most."""
    by_model: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_model.setdefault(row["model"], {})[str(row["devices"])] = row
    equal = [
        f"{sum(_is_equal(found[size]) for found in by_model.values() if size in found)} of "
        f"{sum(size in found for found in by_model.values())} on {size}"
        for size in SIZES
    ]
    lines = [
        f"Outputs and tokens equal: {', '.join(equal)}. The share is that of the weights on the device with most.",
        "",
    ]
    lines += [f"| type | {' | '.join(SIZES)} |", "|---|" + "---|" * len(SIZES)]
    for name, found in sorted(by_model.items()):
        lines.append(f"| {name} | " + " | ".join(_cell(found.get(size)) for size in SIZES) + " |")
    return "\n".join(lines)


def _is_equal(row: dict[str, Any]) -> bool:
    return row["outputs"] == "equal" and row["tokens"] in ("equal", "none")


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    said = f"{row['outputs']}, tokens {row['tokens']}"[:90].replace("|", "/")
    return f"equal, {row['kept']:.0%}" if _is_equal(row) else said


def _classics() -> list[str]:
    from modular_converter.parallel.tables.coverage import CLASSICS

    return CLASSICS.split()


def _fill(names: list[str], sizes: list[int], done: Path) -> None:
    """Append the rows of all types that have none yet."""
    from modular_converter.parallel.ranks.session import Session
    from modular_converter.parallel.tables.coverage import limited

    known = {(row["model"], row.get("devices")) for row in read(done)}
    sessions: dict[int, Any] = {}
    for name in names:
        left = [size for size in sizes if (name, size) not in known]
        if not left:
            continue
        for size in left:
            if size not in sessions or sessions[size].ended:
                sessions[size] = Session(("cpu",) * size, init_method="forkserver", limit_s=float(LIMIT_S))
                sessions[size].start()
        own = {size: sessions[size] for size in left}
        try:
            with limited(LIMIT_S):
                for row in run_rows(name, own):
                    with done.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    print(json.dumps(row), flush=True)
        except Exception as error:  # one model must not stop the table
            print(json.dumps({"model": name, "failed": str(error)[:200]}), flush=True)
            for session in own.values():
                session.end("a model failed")
    for session in sessions.values():
        session.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "run"))
    parser.add_argument("types", nargs="*", help="to run")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[int(size) for size in SIZES], help="numbers of ranks to run"
    )
    parser.add_argument("--done", type=Path, required=True, metavar="ROWS.jsonl")
    parser.add_argument("--update", type=Path, help="a page with the two markers")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    transformers.logging.set_verbosity_error()
    if options.what == "run":
        _fill(options.types or _classics(), options.sizes, options.done)
    rows = read(options.done)
    text = fit_table(rows) if options.what == "fit" else run_table(rows)
    if options.update:
        write_part(options.update, f"published-{options.what}", text)
    print(text)


if __name__ == "__main__":
    main()
