"""The graph as JSON, for programs. `VERSION` increases when a field changes its meaning or is removed."""

from __future__ import annotations

import json

from modular_converter.graph.records import Edge, Graph, Model


SCHEMA = "modular-converter/graph"
VERSION = 1


def render(graph: Graph) -> str:
    """An object with the models and the edges, both sorted by name; described in the guide."""
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "title": graph.title,
        "selected": list(graph.selected),
        "models": [_model(model, graph) for model in graph.models.values()],
        "edges": [_edge(edge) for edge in graph.edges],
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


def _edge(edge: Edge) -> dict[str, object]:
    return {
        "heir": edge.heir,
        "parent": edge.parent,
        "classes": [
            {"name": one.name, "line": one.line, "parent": one.parent, "file": one.file} for one in edge.classes
        ],
        "things": [{"name": one.name, "kind": one.kind, "file": one.file} for one in edge.things],
    }
