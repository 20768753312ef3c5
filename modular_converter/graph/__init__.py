"""The graph of a library: the models and their inheritance, as text, dot, JSON, or a page of HTML."""

from __future__ import annotations

from modular_converter.graph.build import Graph
from modular_converter.graph.formats import as_dot, as_json, as_page, as_text


FORMATS = ("text", "dot", "json", "html")


def render(format: str, graph: Graph, *, sort: str = "heirs") -> str:
    """The graph in one of `FORMATS`, ending with a line break; `sort`, a column (heirs, saved, name), orders the text."""
    renderers = {"dot": as_dot, "json": as_json, "html": as_page}
    return renderers[format](graph) if format in renderers else as_text(graph, sort)
