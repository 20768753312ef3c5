"""The rows of a coverage run as Markdown: the derived plans, the classics, and the plans in the source beside them."""

from __future__ import annotations

import statistics
from collections import Counter

from modular_converter.parallel.tables.coverage import CLASSICS, Row


SLOW_S = 3
"""A step of more seconds counts as slow."""
_HEAD = (
    "| model | plan | layer weights sharded | all bytes | collectives | gathers | library's loader | holds at published size |",
    "|---|---|---|---|---|---|---|---|",
)


def markdown(rows: list[Row], versions: str, date: str) -> str:
    """The coverage as Markdown: counts, the derived plans, and the plans in the source beside them."""
    parts = [summary(rows, versions, date), "", *_HEAD, *(_line(row) for row in _sorted(rows))]
    beside = committed_section(rows)
    return "\n".join(parts + (["", beside] if beside else [])) + "\n"


def summary(rows: list[Row], versions: str, date: str) -> str:
    """The counts of verified plans, and the times of deriving and proving."""
    named = {row["folder"] for row in rows if row["folder"]}
    verified = {row["folder"] for row in rows if row["state"] == "verified"} & named
    counts = [f"{sum(row['state'] == 'verified' for row in rows)} of {len(rows)} model types verified"]
    counts += [f"{len(verified)} of {len(named)} model folders have a verified plan"] if named else []
    took = [_took("deriving", "derive_s", rows), _took("proving on processes", "prove_s", rows)]
    said = [", ".join(counts) + f" ({versions}, {date}).", *took, _sizes(rows) + scope(rows)]
    return " ".join(filter(None, said))


def scope(rows: list[Row]) -> str:
    """The number of verified plans that were proven in each situation."""
    found = [row["evidence"] for row in rows if row["state"] == "verified" and "evidence" in row]
    counted = Counter(situation for evidence in found for situation in evidence["situations"])
    said = [f"{counted[situation]} with {situation}" for situation in sorted(counted)]
    twice = sum(evidence["draws"] > 1 for evidence in found)
    return (
        f"Proven on 2 and 4 ranks, {twice} of {len(found)} with two draws of weights, {', '.join(said)}."
        if found
        else ""
    )


def _took(what: str, key: str, rows: list[Row]) -> str:
    """The seconds of a step; the first step includes build and trace of the small instance."""
    times = sorted(row[key] for row in rows if key in row)
    if not times:
        return ""
    slow = sum(time > SLOW_S for time in times)
    return f"{what.capitalize()} took {statistics.median(times):.2f} s in the median, {slow} of {len(times)} more than {SLOW_S} s."


def classics(rows: list[Row]) -> str:
    """The table of the models with policies in parallelformers, and how many have 90 % of their layer weights sharded."""
    wanted = {name.removeprefix("folder:") for name in CLASSICS.split()}
    own = [row for row in rows if row["model"] in wanted]
    good = sum(row["state"] == "verified" and row.get("share", 0) >= 0.9 for row in own)
    said = f"{good} of {len(wanted)} verified with at least 90 % sharded. {_sizes(own)}{scope(own)}".strip()
    return "\n".join([said, "", *_HEAD, *map(_line, _sorted(own))])


def _sizes(rows: list[Row]) -> str:
    """The number of plans that hold at published sizes, for each number of devices."""
    found = [row["holds_at"] for row in rows if "holds_at" in row]
    counts = [f"{sum(not one[size] for one in found)} on {size} devices" for size in found[0]] if found else []
    return f"At published sizes hold {', '.join(counts)}. " if counts else ""


def others(rows: list[Row]) -> str:
    """The table of the models that are not among the classics."""
    wanted = {name.removeprefix("folder:") for name in CLASSICS.split()}
    return "\n".join([*_HEAD, *(_line(row) for row in _sorted(rows) if row["model"] not in wanted)])


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(row["model"]))


def _line(row: Row) -> str:
    cells = [row["model"], _state(row), "", "", "", "", "", ""]
    if "share" in row:
        shares = f"{row['share']:.0%}", f"{row['sharded']:.0%}"
        cells[2:] = *shares, row["collectives"], row["gathered"], _loader(row), _holds(row)
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def _state(row: Row) -> str:
    notes = [f"after {row['retreat'][:60]}"] if row.get("retreat") else []
    notes += [f"outputs alone for {row['unproven']} weights"] if row.get("unproven") else []
    text = row["state"] if row["state"] in ("verified", "empty") else f"{row['state']}: {row['reason'][:110]}"
    return f"{text} ({'; '.join(notes)})" if notes else text


def _holds(row: Row) -> str:
    """The numbers of devices on which a plan holds, and the first reason against a number."""
    found = row.get("holds_at", {})
    yes = ", ".join(size for size, reason in found.items() if not reason)
    no = next((f"{size}: {reason.rpartition('Error: ')[2][:70]}" for size, reason in found.items() if reason), "")
    return "; ".join(filter(None, (yes, no)))


def _loader(row: Row) -> str:
    text = str(row.get("loader", ""))
    return text if text == "verified" else "its vocabulary lacks it" if text.startswith("not in") else text[:80]


def committed_section(rows: list[Row]) -> str:
    """The table of the plans in the source; empty if no model has one."""
    having = [row for row in rows if row.get("committed")]
    if not having:
        return ""
    outcomes: dict[str, int] = {}
    for row in having:
        name = row["committed"]["outcome"] or row["committed"]["state"]
        outcomes[name] = outcomes.get(name, 0) + 1
    said = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items(), key=lambda item: -item[1]))
    there = sum(row["committed"].get("loader") == "verified" for row in having)
    lines = [
        f"{len(having)} model types carry a `base_model_tp_plan`, of their own or in their parts: {said}. "
        f"{there} run in transformers' loader.{_silent(having)}",
        "",
    ]
    lines += [
        "| model | committed plan | runs there | all bytes | collectives | derived plan in these collectives | outcome |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in _sorted(having):
        own = row["committed"]
        size = f"{own['sharded']:.0%}" if "sharded" in own else ""
        ours = f"{own['beside']:.0%}, {own['beside_collectives']}" if "beside" in own else ""
        there = "yes" if own.get("loader") == "verified" else own.get("loader", "").removeprefix("refused: ")[:110]
        cells = (
            row["model"],
            _judged(own),
            there,
            size,
            own.get("collectives", ""),
            ours,
            own["outcome"] or own["state"],
        )
        lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines)


def _silent(having: list[Row]) -> str:
    """The models for which the library's loader gives other numbers without an error."""
    wrong = " loader differ"
    names = [row["model"] for row in _sorted(having) if wrong in row["committed"].get("loader", "")]
    return f" It gives other outputs or gradients, without an error, for {', '.join(names)}." if names else ""


def _judged(own: Row) -> str:
    """The verdict on a committed plan, with the reason against it."""
    return "verified" if own["state"] == "verified" else f"{own['state']}: {own['reason'][:130]}"
