"""The graph in the language of graphviz: one rank for each depth, from parents on the left to heirs on the right."""

from __future__ import annotations

from collections.abc import Mapping

from modular_converter.graph.records import Edge, Graph, Model


def render(graph: Graph) -> str:
    """A `digraph`. Arrows point from the heir to its parent; their labels count the classes that inherit."""
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
    attributes = {"label": label, "tooltip": _line_counts(model)}
    if model.name in graph.selected:
        attributes["penwidth"] = "3"
    if not model.modular:
        attributes["style"] = "rounded,dashed"
    return f"{quoted(model.name)} {_list(attributes)};"


def _arrow(edge: Edge) -> str:
    labels = [f"{one.name} ({one.parent}, {one.file})" for one in edge.classes]
    labels += [f"{one.name}, {one.description} ({one.file})" for one in edge.things]
    attributes = {"tooltip": "\n".join(labels)}
    if edge.classes:
        attributes["label"] = str(len(edge.classes))
    else:
        attributes["style"] = "dashed"
    return f"{quoted(edge.heir)} -> {quoted(edge.parent)} {_list(attributes)};"


def _list(attributes: Mapping[str, str]) -> str:
    return "[" + ", ".join(f"{key}={quoted(value)}" for key, value in attributes.items()) + "]"


def _line_counts(model: Model) -> str:
    if model.lines_saved is None:
        return "not generated" if model.modular else "written by hand"
    return f"{model.modular_lines} -> {model.generated_lines} lines, {model.lines_saved} saved"
