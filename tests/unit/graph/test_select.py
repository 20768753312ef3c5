"""From arguments to the files that a graph is read from, and to its models."""

from __future__ import annotations

import pytest

from modular_converter.findings import ConversionError
from modular_converter.graph.select import chosen_models, modular_files


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
