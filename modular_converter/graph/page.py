"""The graph as one page of HTML, without network, other files or frameworks.

Names come from strangers' files. They are carried as JSON in which nothing can end the script element, the page turns
them into text only, and its content security policy allows the one script and the one style by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping

from modular_converter.graph.records import Edge, Graph, Model


FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page")
SCRIPTS = ("data.js", "dom.js", "list.js", "overview.js", "details.js", "focus.js", "main.js")
"""The files of the script, in the order in which they build on each other."""
_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
"""Characters that could end a script element or a line of a script -> their escapes in JSON."""


def render(graph: Graph) -> str:
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
        "models": [_model(model) for model in graph.models.values()],
        "edges": [_edge(edge, places, files) for edge in graph.edges],
    }


def _model(model: Model) -> list[object]:
    generated = [[file.name, file.lines] for file in model.generated]
    return [model.name, list(model.modular), model.modular_lines, generated, model.depth]


def _edge(edge: Edge, places: Mapping[str, int], files: Mapping[str, int]) -> list[object]:
    classes = [[one.name, one.line, one.parent, files[one.file]] for one in edge.classes]
    things = [[one.name, one.kind, files[one.file]] for one in edge.things]
    return [places[edge.heir], places[edge.parent], classes, things]
