"""The reports of `modularize` and `suggest`, as JSON values and as text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from modular_converter.authoring.attempt import FileDifference, Proof
from modular_converter.authoring.draft import How
from modular_converter.authoring.modularize import Modularized
from modular_converter.reporting.display import count


def summary_values(result: Modularized) -> dict[str, Any]:
    """One model as values: its lines, parents, definitions, and the files that are not proven."""
    proof = result.proof
    return {
        "model": result.flat.model,
        "modular_file": result.flat.modular,
        "flat_lines": result.flat.lines,
        "lines_back": result.lines_back,
        "modular_lines": proof.lines if proof else None,
        "parents": parents_of(proof) if proof else {},
        "definitions": _definitions(proof) if proof else [],
        "warnings": [f"{one.code} {one.message}" for one in proof.conversion.findings] if proof else [],
        "changes": _changes(result),
        "accepted": sorted(result.accepted),
        "left": {os.path.basename(path): reason for path, reason in result.left.items()},
    }


def parents_of(proof: Proof) -> dict[str, int]:
    """Model -> the number of classes that inherit from it, the largest number first."""
    draft = proof.draft
    heirs = (draft.placed[name].source.model for name, how in draft.how.items() if how is How.HEIR)
    return dict(sorted(Counter(heirs).items(), key=lambda one: (-one[1], one[0])))


def _definitions(proof: Proof) -> list[dict[str, Any]]:
    draft = proof.draft
    found = []
    for name, how in draft.how.items():
        placed = draft.placed.get(name) if how is How.HEIR else None
        entry: dict[str, Any] = {"name": name, "how": how.value}
        if placed:
            entry |= {"parent": f"{placed.source.dotted}.{placed.original}", "differences": list(placed.heir.notes)}
        if how is How.IMPORTED:
            taken = draft.imports[name][0]
            entry["from"] = f"{taken.dotted}.{taken.original}"
        if name in proof.reasons:
            entry["reason"] = proof.reasons[name]
        found.append(entry)
    return found


def _changes(result: Modularized) -> list[str]:
    """The changes of the next conversion in the files of a model."""
    found = [change for one in result.proof.differences for change in changes_of(one)] if result.proof else []
    return found + [_unused(path, names) for path, names in result.unused.items()]


def _unused(path: str, names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names)
    return f"{os.path.basename(path)}: nothing uses {shown}, which {'goes' if len(names) == 1 else 'go'}"


def changes_of(difference: FileDifference) -> Iterator[str]:
    """The changes of a file written by hand when it is generated, in a few words each."""
    name = os.path.basename(difference.file.path)
    if not difference.bytes_differ:
        return
    if not difference.file.is_generated:
        yield f"{name}: a notice on top says that it is generated"
    if change := difference.rewritten or difference.moved:
        yield f"{name}: {change}"
    if difference.dropped:
        yield _unused(name, difference.dropped)
    if difference.idle:
        yield f"{name}: {', '.join(f'`{one}`' for one in difference.idle)} does nothing, and goes"
    if difference.guarded:
        yield f"{name}: imported under the condition of another file: {', '.join(f'`{one}`' for one in difference.guarded)}"
    if difference.origins:
        yield f"{name}: another comment on the origin of {', '.join(f'`{one}`' for one in difference.origins)}, or none"
    if difference.file.marks:
        yield f"{name}: {count(difference.file.marks, 'mark')} of copied code removed"
    if difference.file.has_docstring:
        yield f"{name}: the docstring of the module is removed"


def text(result: Modularized) -> str:
    """One model for people: a line, and one for each thing to know."""
    proof = result.proof
    if proof is None:
        lines = [f"{result.flat.model}: no modular file gives back any of its files"]
    else:
        parents = ", ".join(parents_of(proof)) or "no model"
        whole = f" of {result.flat.lines:,}" if result.left else ""
        lines = [
            f"{result.flat.model}: {result.lines_back:,}{whole} lines -> {proof.lines:,}, inherits from {parents}"
        ]
        if proof.conversion.findings:
            lines.append(f"  {count(len(proof.conversion.findings), 'warning')} when it is converted")
        lines += (f"  {change}" for change in _changes(result))
    if result.accepted:
        lines.append(f"  docstrings or comments become those of the parent: {', '.join(result.accepted)}")
    lines += (f"  {os.path.basename(path)} stays as it is: {reason}" for path, reason in result.left.items())
    return "\n".join(lines)
