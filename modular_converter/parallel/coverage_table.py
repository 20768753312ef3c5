"""The rows of a coverage run as Markdown: what was derived, the classics, and the plans in the source beside it."""

from __future__ import annotations

from modular_converter.parallel.coverage import Row


def markdown(rows: list[Row], versions: str, date: str) -> str:
    """The coverage as Markdown: counts, what was derived, and the plans in the source beside it."""
    named = sorted({row["folder"] for row in rows if row["folder"]})
    verified = {row["folder"] for row in rows if row["state"] == "verified"}
    counts = [f"{sum(row['state'] == 'verified' for row in rows)} of {len(rows)} model types verified"]
    counts += [f"{len(verified & set(named))} of {len(named)} model folders have a verified plan"] if named else []
    lines = [", ".join(counts) + f" ({versions}, {date}).", ""]
    lines += [
        "| model | plan | layer weights sharded | all bytes | collectives | gathers | library's loader |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: str(r["model"])):
        cells = [row["model"], _state(row), "", "", "", "", ""]
        if "share" in row:
            cells[2:] = (
                f"{row['share']:.0%}",
                f"{row['sharded']:.0%}",
                row["collectives"],
                row["gathered"],
                _loader(row),
            )
        lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return "\n".join([*lines, "", *_beside(rows)]) + "\n"


def _state(row: Row) -> str:
    notes = [f"after {row['retreat'][:60]}"] if row.get("retreat") else []
    notes += [f"outputs alone for {row['unproven']} weights"] if row.get("unproven") else []
    text = row["state"] if row["state"] in ("verified", "empty") else f"{row['state']}: {row['reason'][:110]}"
    return f"{text} ({'; '.join(notes)})" if notes else text


def _loader(row: Row) -> str:
    text = str(row.get("loader", ""))
    return text if text == "verified" else "its vocabulary lacks it" if text.startswith("not in") else text[:80]


def _beside(rows: list[Row]) -> list[str]:
    """The table of the plans in the source."""
    having = [row for row in rows if row.get("committed")]
    if not having:
        return []
    outcomes: dict[str, int] = {}
    for row in having:
        name = row["committed"]["outcome"] or row["committed"]["state"]
        outcomes[name] = outcomes.get(name, 0) + 1
    said = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items(), key=lambda item: -item[1]))
    lines = [f"{len(having)} model types carry a `base_model_tp_plan`: {said}.", ""]
    lines += [
        "| model | committed plan | all bytes | collectives | derived plan in these collectives | outcome |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(having, key=lambda r: str(r["model"])):
        own = row["committed"]
        state = own["state"] if own["state"] == "verified" else f"{own['state']}: {own['reason'][:110]}"
        size = f"{own['sharded']:.0%}" if "sharded" in own else ""
        ours = f"{own['beside']:.0%}, {own['beside_collectives']}" if "beside" in own else ""
        cells = (row["model"], state, size, own.get("collectives", ""), ours, own["outcome"])
        lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return lines
