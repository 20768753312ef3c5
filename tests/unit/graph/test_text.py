"""The table and the trees, as a terminal shows them."""

from __future__ import annotations

from modular_converter.graph.build import Edge, Graph, InheritedClass, Model
from modular_converter.graph.formats import as_text


def first_column(text: str) -> list[str]:
    lines = text.splitlines()
    return [line.split()[0] for line in lines[1 : lines.index("")]]


def test_the_table_of_all_models(graph):
    assert as_text(graph) == (
        "model   heirs  direct  modular  generated  saved  inherits from\n"
        "llama       3       2        -          -      -\n"
        "gemma       2       1       10         42     32  llama\n"
        "gemma2      1       1        9          4     -5  gemma, llama\n"
        "echo        0       0        5          -      -  gemma2\n"
        "\n"
        "4 models, 3 modular files; 19 -> 46 lines, 27 lines saved\n"
    )


def test_the_table_sorts_by_what_is_asked_for(graph):
    assert first_column(as_text(graph, "saved")) == ["gemma", "echo", "llama", "gemma2"]
    assert first_column(as_text(graph, "name")) == ["echo", "gemma", "gemma2", "llama"]


def test_the_trees_of_one_model(graph):
    assert as_text(graph.around(["gemma2"])) == (
        "gemma2\n"
        "  gemma2/modular_gemma2.py: 9 -> 4 lines, -5 saved\n"
        "\n"
        "  2 ancestors\n"
        "  ├─ gemma: 1 class, 1 imported name\n"
        "  │  │  Gemma2MLP <- GemmaMLP (modeling_gemma.py)\n"
        "  │  │  LOGGER, imported by name (modeling_gemma.py)\n"
        "  │  └─ llama: 2 classes\n"
        "  └─ llama: 3 imported names\n"
        "        LLAMA_SCALE, assignment imported by name (modeling_llama.py)\n"
        "        LlamaModel, class imported by name (modeling_llama.py)\n"
        "        rotate_half, function imported by name (modeling_llama.py)\n"
        "\n"
        "  1 heir\n"
        "  └─ echo: 1 class\n"
    )


def test_what_was_shown_with_its_branches_is_not_shown_with_them_again(graph):
    lines = as_text(graph.around(["llama"])).splitlines()
    assert [line for line in lines if "gemma2" in line] == [
        "  ├─ gemma: 2 classes",
        "  │  └─ gemma2: 1 class, 1 imported name",
        "  └─ gemma2: 3 imported names, see above",
    ][1:]
    assert sum("echo" in line for line in lines) == 1


def test_a_chain_of_any_length_and_a_circle_end():
    size = 5000
    names = [f"m{number:04}" for number in range(size)]
    one = (InheritedClass("A", 1, "B", "f.py"),)
    edges = tuple(Edge(heir, parent, one, ()) for parent, heir in zip(names, names[1:]))
    models = {name: Model(name) for name in names}
    chain = Graph("zoo", models, edges, ("m0000",))
    assert as_text(chain).count("1 class") == size - 1
    circle = Graph("zoo", models, (*edges, Edge("m0000", names[-1], one, ())), ("m0000",))
    assert as_text(circle).count("see above") == 2
