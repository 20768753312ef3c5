"""The JSON holds what the guide says."""

from __future__ import annotations

import json

from modular_converter.graph.formats import as_json


def test_models_and_edges_have_every_field(graph):
    document = json.loads(as_json(graph))
    assert (document["schema"], document["version"]) == ("modular-converter/graph", 1)
    assert (document["title"], document["selected"]) == ("zoo", [])
    models = {model["name"]: model for model in document["models"]}
    assert models["gemma"] == {
        "name": "gemma",
        "modular": ["gemma/modular_gemma.py"],
        "generated": [{"name": "modeling_gemma.py", "lines": 42}],
        "modular_lines": 10,
        "generated_lines": 42,
        "lines_saved": 32,
        "depth": 1,
        "parents": ["llama"],
        "direct_heirs": 1,
        "heirs": 2,
    }
    assert models["llama"]["modular_lines"] is models["llama"]["lines_saved"] is None
    assert document["edges"][1] == {
        "heir": "gemma",
        "parent": "llama",
        "classes": [
            {"name": "GemmaMLP", "line": 4, "parent": "LlamaMLP", "file": "modeling_llama.py"},
            {"name": "GemmaModel", "line": 9, "parent": "LlamaModel", "file": "modeling_llama.py"},
        ],
        "things": [],
    }
    assert document["edges"][2]["things"] == [{"name": "LOGGER", "kind": "unknown", "file": "modeling_gemma.py"}]


def test_a_selection_says_what_was_asked_for(graph):
    document = json.loads(as_json(graph.around(["gemma"])))
    assert document["selected"] == ["gemma"]
    assert [model["name"] for model in document["models"]] == ["echo", "gemma", "gemma2", "llama"]
