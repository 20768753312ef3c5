"""The graph for a terminal: a table of the whole library, or the ancestors and heirs of some models as trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from modular_converter.findings import first_of
from modular_converter.graph.records import Edge, Graph, Model


_Onward = Callable[[str], list[tuple[str, Edge]]]


def render(graph: Graph, sort: str = "heirs") -> str:
    """A table sorted by `heirs`, `saved` or `name`; for a selection, each selected model with its two trees."""
    if graph.selected:
        return "\n".join(_portrait(graph.models[name], graph) for name in graph.selected)
    return _table(graph, sort)


def _table(graph: Graph, sort: str) -> str:
    keys: Mapping[str, Callable[[Model], tuple[int, str]]] = {
        "heirs": lambda model: (-graph.heir_counts[model.name], model.name),
        "saved": lambda model: (-(model.lines_saved or 0), model.name),
        "name": lambda model: (0, model.name),
    }
    rows = [("model", "heirs", "direct", "modular", "generated", "saved", "inherits from")]
    for model in sorted(graph.models.values(), key=keys[sort]):
        shown = first_of([edge.parent for edge in graph.parents[model.name]], 3)
        rows.append(
            (
                model.name,
                str(graph.heir_counts[model.name]),
                str(len(graph.heirs[model.name])),
                str(model.modular_lines) if model.modular else "-",
                str(model.generated_lines) if model.generated else "-",
                str(model.lines_saved) if model.lines_saved is not None else "-",
                shown,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(row[n].rjust(widths[n]) for n in range(1, 6)), row[6]]).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", _totals(graph)]) + "\n"


def _totals(graph: Graph) -> str:
    generated = [model for model in graph.models.values() if model.generated]
    written = sum(model.modular_lines for model in generated)
    given = sum(model.generated_lines for model in generated)
    files = sum(len(model.modular) for model in graph.models.values())
    return (
        f"{len(graph.models)} models, {files} modular files; "
        f"{written:,} -> {given:,} lines, {given - written:,} lines saved"
    )


def _portrait(model: Model, graph: Graph) -> str:
    ancestors, heirs = graph.all_ancestors(model.name), graph.all_heirs(model.name)
    lines = [model.name, f"  {_line_counts(model)}", "", f"  {_counted(ancestors, 'ancestor')}"]
    lines += _tree(model.name, lambda name: [(edge.parent, edge) for edge in graph.parents[name]], True)
    lines += ["", f"  {_counted(heirs, 'heir')}"]
    lines += _tree(model.name, lambda name: [(edge.heir, edge) for edge in graph.heirs[name]], False)
    return "\n".join(lines) + "\n"


def _line_counts(model: Model) -> str:
    if not model.modular:
        return "written by hand"
    files = ", ".join(model.modular)
    if model.lines_saved is None:
        return f"{files}: {model.modular_lines} lines, not generated yet"
    return f"{files}: {model.modular_lines} -> {model.generated_lines} lines, {model.lines_saved} saved"


def _counted(steps: Mapping[str, int], noun: str) -> str:
    number = len(steps)
    direct = sum(step == 1 for step in steps.values())
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}" + (f", {direct} direct" if direct < number else "")


def _tree(start: str, onward: _Onward, with_classes: bool) -> list[str]:
    """The branches below a model; a model with branches shows them only where it occurs first.

    Args:
        with_classes: whether to list the classes of the first branches.
    """
    lines: list[str] = []
    shown = {start}
    branches = onward(start)
    waiting = [(name, edge, "  ", n == len(branches) - 1) for n, (name, edge) in enumerate(branches)][::-1]
    while waiting:
        name, edge, margin, is_last = waiting.pop()
        below = onward(name)
        again = name in shown and bool(below)
        lines.append(f"{margin}{'└─' if is_last else '├─'} {name}: {_contents(edge)}{', see above' if again else ''}")
        inner = margin + ("   " if is_last else "│  ")
        if with_classes and margin == "  ":
            rail = inner + ("│  " if below and not again else "   ")
            lines += [f"{rail}{one.name} <- {one.parent} ({one.file})" for one in edge.classes]
            lines += [f"{rail}{one.name}, {one.description} ({one.file})" for one in edge.things]
        if not again:
            shown.add(name)
            waiting += [(child, to, inner, n == len(below) - 1) for n, (child, to) in enumerate(below)][::-1]
    return lines


def _contents(edge: Edge) -> str:
    counts = ((len(edge.classes), "class", "classes"), (len(edge.things), "imported name", "imported names"))
    return ", ".join(f"{number} {one if number == 1 else many}" for number, one, many in counts if number) or "unread"
