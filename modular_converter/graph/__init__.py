"""The graph of a library of models: who inherits from whom, as text, dot, JSON, or a page to look at.

`render` gives one of `FORMATS`; each format is a module, loaded when it is asked for.
"""

from __future__ import annotations

from modular_converter.graph.records import Graph


FORMATS = ("text", "dot", "json", "html")
SORTS = ("heirs", "saved", "name")


def render(format: str, graph: Graph, *, sort: str = "heirs") -> str:
    """The graph in one of `FORMATS`, ending with a line break. `sort` is for the table of the text."""
    if format == "dot":
        from modular_converter.graph.dot import render as render_dot

        return render_dot(graph)
    if format == "json":
        from modular_converter.graph.json_format import render as render_json

        return render_json(graph)
    if format == "html":
        from modular_converter.graph.page import render as render_page

        return render_page(graph)
    from modular_converter.graph.text import render as render_text

    return render_text(graph, sort)


__all__ = ["FORMATS", "SORTS", "Graph", "render"]
