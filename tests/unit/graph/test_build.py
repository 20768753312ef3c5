"""What modular files say about who inherits from whom, and what is wrong with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError
from modular_converter.graph.build import (
    ImportedThing,
    InheritedClass,
    ModelFile,
    build_graph,
    chosen_models,
    model_name,
    modular_files,
    printable,
)
from modular_converter.settings.load import profile_settings
from tests.unit.graph.conftest import GEMMA


def edge(graph, heir, parent):
    return next(one for one in graph.edges if (one.heir, one.parent) == (heir, parent))


def test_classes_have_the_parent_under_its_own_name_and_the_line_of_their_header(graph):
    assert edge(graph, "gemma", "llama").classes == (
        InheritedClass("GemmaMLP", 4, "LlamaMLP", "modeling_llama.py"),
        InheritedClass("GemmaModel", 9, "LlamaModel", "modeling_llama.py"),
    )


def test_what_is_imported_by_name_says_what_it_is(graph):
    assert edge(graph, "gemma2", "llama").classes == ()
    assert edge(graph, "gemma2", "llama").things == (
        ImportedThing("LLAMA_SCALE", "assignment", "modeling_llama.py"),
        ImportedThing("LlamaModel", "class", "modeling_llama.py"),
        ImportedThing("rotate_half", "function", "modeling_llama.py"),
    )
    assert edge(graph, "gemma2", "gemma").things == (ImportedThing("LOGGER", "unknown", "modeling_gemma.py"),)


def test_only_files_with_the_banner_of_the_modular_file_count_as_generated(graph):
    gemma = graph.models["gemma"]
    assert gemma.generated == (ModelFile("modeling_gemma.py", 42),)
    assert (gemma.modular_lines, gemma.lines_saved) == (GEMMA.count("\n"), 42 - GEMMA.count("\n"))
    assert graph.models["echo"].lines_saved is None, "not generated yet"
    assert graph.models["llama"].lines_saved is None and not graph.models["llama"].modular


def test_depth_is_the_longest_way(graph):
    assert {name: model.depth for name, model in graph.models.items()} == {
        "echo": 3,
        "gemma": 1,
        "gemma2": 2,
        "llama": 0,
    }


def test_a_neighbour_that_is_yet_to_be_generated_counts(write, read):
    root = write({"a/modular_a.py": "class AMLP: ...\n", "b/modular_b.py": "from ..a.modeling_a import AMLP\n"})
    graph, findings = read(root)
    assert not findings
    assert edge(graph, "b", "a").things == (ImportedThing("AMLP", "unknown", "modeling_a.py"),)


def test_a_file_that_cannot_be_parsed_is_named_and_the_rest_goes_on(zoo, read):
    (zoo / "echo" / "modular_echo.py").write_text("from ..gemma.modeling_gemma import X\nclass EchoMLP(X\n")
    graph, (finding,) = read(zoo)
    assert (finding.code, os.path.basename(finding.location.path)) == ("MC101", "modular_echo.py")
    assert edge(graph, "gemma", "llama").classes
    assert "echo" in graph.models and not [one for one in graph.edges if one.heir == "echo"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = " + "(" * 3000 + ")" * 3000, "MC101"),
        ("x = '\0'", "MC101"),
        ("x = '\udcff'", "MC102"),
        ("from ..nowhere.modeling_nowhere import A, B\n", "MC104"),
    ],
    ids=["too deep", "null byte", "not UTF-8", "unknown neighbour"],
)
def test_bad_files_give_one_finding_each(zoo, read, text, code):
    (zoo / "echo" / "modular_echo.py").write_text(text, encoding="utf-8", errors="surrogateescape")
    graph, findings = read(zoo)
    assert [finding.code for finding in findings] == [code]
    assert set(graph.models) == {"echo", "gemma", "gemma2", "llama"}


@pytest.mark.parametrize(
    ("module", "missing"),
    [
        ("..nowhere.modeling_nowhere", "../nowhere/modeling_nowhere.py"),
        ("elsewhere.models.old.modeling_old", "elsewhere"),
    ],
)
def test_an_unknown_neighbour_is_told_with_what_is_missing(zoo, read, module, missing):
    (zoo / "echo" / "modular_echo.py").write_text(f"from {module} import A\n")
    (finding,) = read(zoo)[1]
    assert finding.message.endswith(f"`{module}` does not exist: there is no {missing}")


def test_a_neighbour_that_is_not_utf8_is_named_once(zoo, read):
    (zoo / "llama" / "modeling_llama.py").write_bytes(b"\xff\xfe")
    graph, findings = read(zoo)
    assert [os.path.basename(finding.location.path) for finding in findings] == ["modeling_llama.py"]
    assert edge(graph, "gemma", "llama").classes


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_not_waited_for(zoo, read):
    for name in ("gemma/modeling_pipe.py", "pipe/modular_pipe.py"):
        (zoo / name).parent.mkdir(exist_ok=True)
        os.mkfifo(zoo / name)
    graph, findings = read(zoo)
    assert [os.path.basename(finding.location.path) for finding in findings] == ["modular_pipe.py"]
    assert edge(graph, "gemma", "llama").classes


def test_circles_and_a_model_that_takes_from_itself_end(write, read):
    root = write(
        {
            "a/modular_a.py": "from ..b.modeling_b import B\nfrom ..a.modeling_a_text import T\nclass A(B): ...\n",
            "a/modeling_a.py": "class A: ...\n",
            "a/modeling_a_text.py": "class T: ...\n",
            "b/modular_b.py": "from ..a.modeling_a import A\nclass B(A): ...\n",
            "b/modeling_b.py": "class B: ...\n",
            "c/modular_c.py": "from ..a.modeling_a import A\nclass C(A): ...\n",
        }
    )
    graph, findings = read(root)
    assert not findings
    assert [(one.heir, one.parent) for one in graph.edges] == [("a", "b"), ("b", "a"), ("c", "a")]
    assert graph.all_heirs("a") == {"b": 1, "c": 1}


def test_two_modular_files_of_one_folder_are_one_model(write, read):
    root = write(
        {
            "duo/modular_duo_text.py": "from ..base.modeling_base import B\nclass D(B): ...\n",
            "duo/modular_duo_audio.py": "from ..base.modeling_base import C\nclass E(C): ...\n",
            "base/modeling_base.py": "class B: ...\nclass C: ...\n",
        }
    )
    graph, _ = read(root)
    assert graph.models["duo"].modular == ("duo/modular_duo_audio.py", "duo/modular_duo_text.py")
    assert [one.name for one in edge(graph, "duo", "base").classes] == ["E", "D"]


def test_a_neighbour_in_another_package_goes_by_its_dotted_name(tmp_path, read):
    for folder in ("own/models/new", "other/models/old"):
        here = tmp_path / folder
        here.mkdir(parents=True)
        for package in (here, here.parent, here.parent.parent):
            (package / "__init__.py").write_text("")
    (tmp_path / "other/models/old/modeling_old.py").write_text("class Old: ...\n")
    assert (
        model_name(str(tmp_path / "other/models/old/x.py"), str(tmp_path / "own/models"), profile_settings())
        == "other.models.old"
    )


def test_the_order_of_the_paths_changes_nothing(zoo, graph):
    paths = sorted(str(path) for path in zoo.glob("*/modular_*.py"))
    again, _ = build_graph(reversed([*paths, *paths]), str(zoo), Library(profile_settings()))
    assert again == graph


def test_names_of_hostile_folders_are_made_visible():
    assert printable("a\x1b[31m\n\u202e\udcff") == "a\\x1b[31m\\n\\u202e\\udcff"
    assert printable("schön_日本") == "schön_日本"


def test_nothing_is_imported_or_run(zoo, read, tmp_path):
    marker = Path(tmp_path, "ran")
    (zoo / "echo" / "modular_echo.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    read(zoo)
    assert not marker.exists()


def test_all_modular_files_of_the_folder_are_read(zoo):
    root, paths = modular_files(["gemma"], str(zoo))
    assert root == str(zoo)
    assert [path.rsplit("/", 1)[1] for path in paths] == ["modular_echo.py", "modular_gemma.py", "modular_gemma2.py"]


def test_without_a_folder_a_path_says_where_it_is(zoo):
    root, paths = modular_files(["gemma", str(zoo / "gemma" / "modular_gemma.py")], None)
    assert root == str(zoo) and len(paths) == 3
    with pytest.raises(ConversionError):
        modular_files(["gemma"], None)


@pytest.mark.parametrize(
    ("argument", "chosen"),
    [
        ("gemma", ["gemma"]),
        ("llama", ["llama"]),
        ("gemma/modular_gemma.py", ["gemma"]),
        ("gemma*/modular_*.py", ["gemma", "gemma2"]),
        ("./echo", ["echo"]),
    ],
)
def test_arguments_are_names_or_paths(zoo, graph, monkeypatch, argument, chosen):
    monkeypatch.chdir(zoo)
    assert chosen_models([argument], graph, str(zoo)) == (chosen, [])


def test_dashes_are_underscores(write, read):
    root = write({"big_bird/modular_big_bird.py": ""})
    assert chosen_models(["big-bird"], read(root)[0], str(root)) == (["big_bird"], [])


def test_the_last_part_of_a_name_is_enough_if_one_model_has_it(write, read):
    root = write(dict.fromkeys(["a/x/modular_x.py", "a/y/modular_y.py", "b/y/modular_y.py", "y/modular_y.py"], ""))
    graph = read(root)[0]
    assert chosen_models(["x", "y", "a/y"], graph, str(root)) == (["a/x", "y", "a/y"], [])


@pytest.mark.parametrize(("argument", "code"), [("gema", "MC111"), ("nowhere/modular_x.py", "MC103")])
def test_an_argument_that_means_nothing_is_a_finding(zoo, graph, argument, code):
    chosen, (finding,) = chosen_models([argument], graph, str(zoo))
    assert (chosen, finding.code) == ([], code)
    if argument == "gema":
        assert "`gemma`" in finding.help
