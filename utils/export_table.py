"""Export many verified models to other tools, for the table of docs/exports.md.

`python utils/export_table.py --done exports.jsonl --limit 50 transformers torch` takes 50 more models of docs/figures/plans.md, in
a random order that is always the same, so that the rows so far are a sample; `--causal` takes only models with a head for
generation. `--update docs/exports.md` writes the table of all rows. Each model has a limit of time. Tools with code that runs
here run each plan on two processes, vLLM's and SGLang's rules are followed by
`modular_converter/parallel/exports/serving.py` (`utils/check_exports.py` compares these with the packages), and
`utils/train_exports.py` adds the rows of DeepSpeed and accelerate, whose own code runs each export.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import re
import statistics
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from marked_pages import write_part


PAGE = Path(__file__).resolve().parent.parent / "docs"
LIMIT_S = 120
NOT_HOSTED = "does not let an engine replace"
LIGHT = 1.001
"""Up to this factor of the derived plan's bytes a share counts as full."""


def verified() -> list[str]:
    """The verified models of docs/figures/plans.md, in a fixed random order."""
    found = re.findall(
        r"^\| ([\w.-]+) \| verified[^|]*\| \d+% \|", (PAGE / "figures" / "plans.md").read_text(), re.MULTILINE
    )
    names = sorted(set(found))
    random.Random(0).shuffle(names)
    return names


def is_causal(name: str) -> bool:
    """Whether the library has a head for generation over this model type."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def target(name: str) -> Any:
    """What to build for a name of the table: a model type, or a type of the folder with this name."""
    from modular_converter.parallel.errors import PlanError
    from modular_converter.parallel.tiny.build import target_of, targets_of_folder

    try:
        return target_of(name)
    except PlanError:
        return next(iter(targets_of_folder(name)))


def rows_of(
    name: str, tools: list[str], pool: Any = None, check: Callable[[Any, Any], str] | None = None
) -> list[dict[str, Any]]:
    """A row for each tool.

    Args:
        pool: for tools whose code runs in the package.
        check: runs an export of a model by the code of the tool, and says how; in the row of a ``DIFFERENT`` nothing is
            exported.
    """
    from modular_converter.parallel.errors import PlanError, one_line
    from modular_converter.parallel.exports.export import TOOLS, export
    from modular_converter.parallel.proof.prove import derive_model
    from modular_converter.parallel.tables.coverage import limited

    found = []
    derived = None
    for tool in tools:
        row: dict[str, Any] = {"model": name, "to": tool, "causal": is_causal(name), "state": "failed"}
        row["versions"] = f"transformers {version('transformers')}, torch {version('torch').partition('+')[0]}"
        try:
            with limited(LIMIT_S, 10 * LIMIT_S):
                derived = derived or derive_model(target(name))
                made = export(derived, TOOLS[tool], 2, pool if TOOLS[tool].route else None)
                ran = made.proven if check is None else check(derived, made)
            size = made.memory
            row |= {"state": "exported", "whole": size.whole, "full": size.full, "bytes": size.exported}
            row |= {"collectives": made.collectives, "lost": made.lost, "sizes": size.sizes, "proven": ran}
            if "DIFFERENT" in ran:
                row |= {"state": "failed", "reason": f"{name}: {ran}"}
        except PlanError as error:
            row |= {"state": "refused", "reason": one_line(error, 300)}
        except Exception as error:  # one model must not stop the table
            row["reason"] = one_line(error, 300)
        found.append(row)
    return found


def todo(tools: list[str], done: Path, limit: int, causal: bool) -> list[str]:
    """Up to ``limit`` models that lack a row for one of the tools."""
    known = {(row["model"], row["to"]) for row in read(done)}
    names = [name for name in verified() if not causal or is_causal(name)]
    return [name for name in names if any((name, tool) not in known for tool in tools)][:limit]


def note(done: Path, rows: list[dict[str, Any]]) -> None:
    """Append rows."""
    with done.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def run(tools: list[str], done: Path, limit: int, causal: bool) -> None:
    """Append the rows of up to ``limit`` models that lack a row for one of the tools."""
    from modular_converter.parallel.proof.on_ranks import RankPool

    known = {(row["model"], row["to"]) for row in read(done)}
    with RankPool(2) as pool:
        for name in todo(tools, done, limit, causal):
            note(done, rows_of(name, [tool for tool in tools if (name, tool) not in known], pool))


def read(done: Path) -> list[dict[str, Any]]:
    """The rows so far."""
    return [json.loads(line) for line in done.read_text().splitlines()] if done.exists() else []


def table(rows: list[dict[str, Any]], date: str, before: str = "") -> str:
    """How many models each tool takes, with their full share or less.

    Args:
        before: a page with a table, whose lines of tools without rows are kept.
    """
    from modular_converter.parallel.exports.export import TOOLS

    tools = {row["to"] for row in rows}

    total, heads = len(verified()), sum(map(is_causal, verified()))
    lines = [
        f"{'; '.join(sorted({row['versions'] for row in rows}))}; {date}. Models drawn at random of the {total} verified"
        f" types, or of the {heads} among them that have a causal head in the library. Bytes are those on a device of two,"
        " beside those of the derived plan, in the median of the plans with less than the full share.",
        "",
        "| tool | models | exported | full share | full share, more collectives | less, stated | nothing | bytes if less |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for tool in TOOLS:
        own = [row for row in rows if row["to"] == tool]
        if own and not all(row["causal"] for row in own):
            lines.append(_line(tool, own))
        elif not own:
            lines += re.findall(rf"^\| {tool}\b.*$", before.partition("| tool | models")[2], re.MULTILINE)
        else:
            hosted = [row for row in own if NOT_HOSTED not in row.get("reason", "")]
            lines.append(_line(f"{tool}, causal", own))
            if len(hosted) < len(own):
                lines.append(_line(f"{tool}, of these with replaceable attention", hosted))
    others = [line for line in re.findall(r"^\* [a-z, ]+: .*$", before, re.MULTILINE) if not tools & set(_tools(line))]
    return "\n".join([*lines, "", *_reasons(rows), *(line for line in others if set(_tools(line)) <= TOOLS.keys())])


def _tools(line: str) -> list[str]:
    return line[2:].partition(":")[0].split(", ")


def _line(name: str, rows: list[dict[str, Any]]) -> str:
    out = [row for row in rows if row["state"] == "exported"]
    full = [row for row in out if row["bytes"] <= LIGHT * row["full"]]
    more = [row for row in full if row["collectives"][0] > row["collectives"][1]]
    less = [row["bytes"] / row["full"] for row in out if row not in full]
    median = f"{statistics.median(less):.2f}" if less else ""
    share = f"{len(out)} ({len(out) / len(rows):.0%})"
    cells = (name, len(rows), share, len(full) - len(more), len(more), len(less), len(rows) - len(out), median)
    return "| " + " | ".join(map(str, cells)) + " |"


def _reasons(rows: list[dict[str, Any]]) -> list[str]:
    """The models that tools do not take, by reason; tools with the same models for a reason share a line."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["state"] != "exported":
            found.setdefault((_said(row.get("reason", "")), row["to"]), []).append(row["model"])
    tools: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (said, tool), names in found.items():
        tools.setdefault((said, tuple(sorted(names))), []).append(tool)
    lines = sorted(tools.items(), key=lambda item: (-len(item[0][1]), item[0]))
    return [f"* {', '.join(own)}: {said}: {', '.join(names)}" for (said, names), own in lines]


def _said(reason: str) -> str:
    """A reason without the names of a model and its parts."""
    after = reason.partition(": ")[2]
    said = reason.partition("cannot run it: ")[2] or after.partition(": ")[2] or after
    said = "nothing that it says or runs is left" if "nothing to export" in reason else said
    return re.sub(r"^(… and )*…:? ", "", re.sub(r"[\w.]+\.\d+(\.\w+)+", "…", said))[:110]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*")
    parser.add_argument("--done", type=Path, default=Path("exports.jsonl"))
    parser.add_argument("--limit", type=int, default=0, help="how many more models")
    parser.add_argument("--causal", action="store_true", help="only models with a head for generation")
    parser.add_argument("--update", type=Path, help="a page with the two markers")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.simplefilter("ignore")
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if options.limit:
        run(options.tools, options.done, options.limit, options.causal)
    before = options.update.read_text(encoding="utf-8") if options.update else ""
    text = table(read(options.done), datetime.date.today().isoformat(), before)
    if options.update:
        write_part(options.update, "table", text)
    print(text)


if __name__ == "__main__":
    main()
