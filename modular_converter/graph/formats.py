"""The graph as text for a terminal, as dot for graphviz, as JSON for programs, and as one page of HTML, without network, other
files or frameworks.

Names come from strangers' files. The page carries them as JSON in which nothing can end the script element, turns them into
text only, and its content security policy allows the one script and the one style by their hashes.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Mapping

from modular_converter.findings import first_of
from modular_converter.graph.build import Edge, Graph, Model


SCHEMA = "modular-converter/graph"
VERSION = 1
"""Increases when a field of the JSON changes its meaning or is removed."""
_Onward = Callable[[str], list[tuple[str, Edge]]]


def as_text(graph: Graph, sort: str = "heirs") -> str:
    """For a terminal: a table of the whole library, sorted by `heirs`, `saved` or `name`; for a selection, each selected model with its two trees."""
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
    generated = [model for model in graph.models.values() if model.generated]
    written = sum(model.modular_lines for model in generated)
    given = sum(model.generated_lines for model in generated)
    files = sum(len(model.modular) for model in graph.models.values())
    total = f"{written:,} -> {given:,} lines, {given - written:,} lines saved"
    return "\n".join([*lines, "", f"{len(graph.models)} models, {files} modular files; {total}"]) + "\n"


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


def as_dot(graph: Graph) -> str:
    """A `digraph` in the language of graphviz: one rank for each depth, from parents on the left to heirs on the right.

    Arrows point from the heir to its parent; their labels count the classes that inherit.
    """
    lines = [
        f"digraph {quoted(graph.title)} {{",
        '  rankdir="RL";',
        '  node [shape="box", style="rounded", fontname="sans-serif"];',
        '  edge [fontname="sans-serif", fontsize="9"];',
    ]
    by_depth: dict[int, list[Model]] = {}
    for model in graph.models.values():
        by_depth.setdefault(model.depth, []).append(model)
    for depth in sorted(by_depth):
        lines += [f"  subgraph depth_{depth} {{", '    rank="same";']
        lines += [f"    {_node(model, graph)}" for model in by_depth[depth]]
        lines.append("  }")
    lines += [f"  {_arrow(edge)}" for edge in graph.edges]
    return "\n".join([*lines, "}"]) + "\n"


def quoted(text: str) -> str:
    """A quoted string of the language, which shows `text` as it is."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _node(model: Model, graph: Graph) -> str:
    heirs = graph.heir_counts[model.name]
    label = f"{model.name}\n{heirs} heir{'' if heirs == 1 else 's'}" if heirs else model.name
    attributes = {"label": label, "tooltip": _tooltip(model)}
    if model.name in graph.selected:
        attributes["penwidth"] = "3"
    if not model.modular:
        attributes["style"] = "rounded,dashed"
    return f"{quoted(model.name)} {_attributes(attributes)};"


def _arrow(edge: Edge) -> str:
    labels = [f"{one.name} ({one.parent}, {one.file})" for one in edge.classes]
    labels += [f"{one.name}, {one.description} ({one.file})" for one in edge.things]
    attributes = {"tooltip": "\n".join(labels)}
    if edge.classes:
        attributes["label"] = str(len(edge.classes))
    else:
        attributes["style"] = "dashed"
    return f"{quoted(edge.heir)} -> {quoted(edge.parent)} {_attributes(attributes)};"


def _attributes(attributes: Mapping[str, str]) -> str:
    return "[" + ", ".join(f"{key}={quoted(value)}" for key, value in attributes.items()) + "]"


def _tooltip(model: Model) -> str:
    if model.lines_saved is None:
        return "not generated" if model.modular else "written by hand"
    return f"{model.modular_lines} -> {model.generated_lines} lines, {model.lines_saved} saved"


def as_json(graph: Graph) -> str:
    """An object with the models and the edges, both sorted by name, for programs; described in the guide."""
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "title": graph.title,
        "selected": list(graph.selected),
        "models": [_model(model, graph) for model in graph.models.values()],
        "edges": [dataclasses.asdict(edge) for edge in graph.edges],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _model(model: Model, graph: Graph) -> dict[str, object]:
    written = bool(model.modular)
    return {
        "name": model.name,
        "modular": list(model.modular),
        "generated": [{"name": file.name, "lines": file.lines} for file in model.generated],
        "modular_lines": model.modular_lines if written else None,
        "generated_lines": model.generated_lines if model.generated else None,
        "lines_saved": model.lines_saved,
        "depth": model.depth,
        "parents": sorted(edge.parent for edge in graph.parents[model.name]),
        "direct_heirs": len(graph.heirs[model.name]),
        "heirs": graph.heir_counts[model.name],
    }


FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page")
SCRIPTS = ("data.js", "dom.js", "list.js", "overview.js", "details.js", "focus.js", "main.js")
"""The files of the script, in the order in which they build on each other."""
_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
"""Characters that could end a script element or a line of a script -> their escapes in JSON."""


def as_page(graph: Graph) -> str:
    """The page. The same graph gives the same bytes."""
    script = '"use strict";\n(() => {\n' + "\n".join(_read(name) for name in SCRIPTS) + "})();\n"
    style = _read("page.css")
    parts = {
        "policy": _policy(script, style),
        "title": html.escape(f"{graph.title}: who inherits from whom"),
        "style": style,
        "data": embedded(_data(graph)),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("page.html"))


def embedded(data: object) -> str:
    """JSON that can stand in a script element, whatever strings it holds."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_UNSAFE)


def _policy(script: str, style: str) -> str:
    """A content security policy that allows only this script and this style."""
    allowed = {
        "default-src": "'none'",
        "script-src": f"'sha256-{_hash(script)}'",
        "style-src": f"'sha256-{_hash(style)}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _read(name: str) -> str:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def _data(graph: Graph) -> Mapping[str, object]:
    """The graph in few bytes: lists instead of objects, and numbers for models and files. `data.js` reads it."""
    places = {name: place for place, name in enumerate(graph.models)}
    names = {one.file for edge in graph.edges for one in edge.classes}
    names.update(one.file for edge in graph.edges for one in edge.things)
    files = {name: place for place, name in enumerate(sorted(names))}
    return {
        "title": graph.title,
        "selected": list(graph.selected),
        "files": list(files),
        "models": [_model_values(model) for model in graph.models.values()],
        "edges": [_edge_values(edge, places, files) for edge in graph.edges],
    }


def _model_values(model: Model) -> list[object]:
    generated = [[file.name, file.lines] for file in model.generated]
    return [model.name, list(model.modular), model.modular_lines, generated, model.depth]


def _edge_values(edge: Edge, places: Mapping[str, int], files: Mapping[str, int]) -> list[object]:
    classes = [[one.name, one.line, one.parent, files[one.file]] for one in edge.classes]
    things = [[one.name, one.kind, files[one.file]] for one in edge.things]
    return [places[edge.heir], places[edge.parent], classes, things]
