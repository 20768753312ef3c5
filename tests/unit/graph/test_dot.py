"""The graphviz text is valid, whatever the names are."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from modular_converter.graph.build import Edge, Graph, InheritedClass, Model
from modular_converter.graph.formats import as_dot, quoted


STRING = r'"(?:[^"\\\n]|\\.)*"'
"""A quoted string of the language, with nothing in it that would end it."""
HOSTILE = ['q"uote', "back\\", 'both\\"', "a];}", "-->", "{rank=same}", "\\N", "日本", "new\nline"]


def hostile() -> Graph:
    models = {name: Model(name, depth=number) for number, name in enumerate(sorted(HOSTILE))}
    classes = (InheritedClass("A", 1, 'B"\\', "f.py"),)
    return Graph('t"', models, tuple(Edge(name, "-->", classes, ()) for name in sorted(HOSTILE)))


def test_every_line_is_a_statement(graph):
    attributes = rf"\[\w+={STRING}(, \w+={STRING})*\]"
    statements = [
        rf"digraph {STRING} {{",
        rf"  rankdir={STRING};",
        rf"  (node|edge) {attributes};",
        r"  subgraph depth_\d+ {",
        rf"    rank={STRING};",
        rf"    {STRING} {attributes};",
        rf"  {STRING} -> {STRING} {attributes};",
        r"  }",
        r"}",
    ]
    for text in (as_dot(graph), as_dot(hostile())):
        unknown = [line for line in text.splitlines() if not any(re.fullmatch(one, line) for one in statements)]
        assert not unknown


@pytest.mark.parametrize("name", HOSTILE)
def test_a_quoted_string_shows_the_text_as_it_is(name):
    inner = re.fullmatch(STRING, quoted(name))[0][1:-1]
    assert re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), inner) == name


def test_arrows_count_classes_and_those_without_are_dashed(graph):
    text = as_dot(graph)
    assert re.search(r'"gemma" -> "llama" \[.*label="2"\]', text)
    assert re.search(r'"gemma2" -> "llama" \[.*style="dashed"\]', text)
    assert re.search(r'"llama" \[label="llama\\n3 heirs", tooltip="written by hand", style="rounded,dashed"\]', text)


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_graphviz_accepts_it():
    done = subprocess.run(["dot", "-Tplain"], input=as_dot(hostile()), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr
    assert len([line for line in done.stdout.splitlines() if line.startswith("node ")]) == len(HOSTILE)
