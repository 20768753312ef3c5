"""The commands `modularize` and `suggest`: what they print and write, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modular_converter.commands.subcommands import modularize_command, suggest_command


pytestmark = pytest.mark.usefixtures("cache")


def _modularize(zoo: Path, *arguments: str) -> Result:
    return CliRunner().invoke(modularize_command, ["--root", str(zoo), *arguments])


def _suggest(zoo: Path, *arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(suggest_command, ["--root", str(zoo), *arguments], input=given)


def test_it_writes_a_modular_file_once(zoo: Path) -> None:
    modular = zoo / "models/roberta/modular_roberta.py"
    modular.unlink()
    first = _modularize(zoo, "roberta")
    assert first.exit_code == 0 and "inherits from bert" in first.stdout
    text = modular.read_text()
    second = _modularize(zoo, "roberta")
    assert second.exit_code == 2 and "exists, and is not overwritten" in second.stderr
    assert modular.read_text() == text


def test_dry_runs_and_diffs_write_nothing(zoo: Path, tmp_path: Path) -> None:
    modular = zoo / "models/roberta/modular_roberta.py"
    text = modular.read_text()
    done = _modularize(zoo, "roberta", "--dry-run", "--format", "json")
    (model,) = json.loads(done.stdout)["models"]
    assert done.exit_code == 0 and model["left"] == {} and model["modular_lines"] < model["flat_lines"]
    assert {"name": "RobertaLayer", "how": "comes along"} in model["definitions"]
    shown = _modularize(zoo, "roberta", "--diff")
    assert shown.exit_code == 1 and "+++" in shown.stdout
    assert modular.read_text() == text


def test_it_writes_elsewhere(zoo: Path, tmp_path: Path) -> None:
    assert _modularize(zoo, "gemma", "--output-dir", str(tmp_path / "out")).exit_code == 0
    assert (tmp_path / "out/gemma/modular_gemma.py").is_file()


def test_an_unknown_model_is_refused_with_a_hint(zoo: Path) -> None:
    done = _modularize(zoo, "gema", "--dry-run")
    assert done.exit_code == 2 and "gemma" in done.stderr


def test_a_folder_without_a_modeling_file_is_a_model(zoo: Path) -> None:
    configuration = (zoo / "models/llama/configuration_llama.py").read_text()
    (zoo / "models/ox").mkdir()
    (zoo / "models/ox/configuration_ox.py").write_text(configuration.replace("llama", "ox").replace("Llama", "Ox"))
    for argument in ("ox", str(zoo / "models/ox")):
        done = _modularize(zoo, argument, "--dry-run", "--format", "json")
        (model,) = json.loads(done.stdout)["models"]
        assert done.exit_code == 0 and model["model"] == "ox" and model["left"] == {}, done.output
        assert 0 < model["modular_lines"] < model["lines_back"] == model["flat_lines"]


def test_what_the_next_conversion_changes_is_told(zoo: Path) -> None:
    text = (zoo / "models/llama/configuration_llama.py").read_text().replace("llama", "ox").replace("Llama", "Ox")
    mark = "# Copied from transformers.models.llama.configuration_llama.LlamaConfig with Llama->Ox\n"
    (zoo / "models/ox").mkdir()
    flat = zoo / "models/ox/configuration_ox.py"
    changes = []
    docstring = '"""LLaMA: configuration."""\n'
    assert docstring in text
    for written in (text.replace(docstring, ""), text.replace("@strict\n", f"{mark}@strict\n")):
        flat.write_text(written)
        done = _modularize(zoo, "ox", "--dry-run")
        assert done.exit_code == 0, done.output
        changes.append([line.strip() for line in done.stdout.splitlines()[1:]])
    notice = "configuration_ox.py: a notice on top says that it is generated"
    assert changes == [
        [notice],
        [
            notice,
            "configuration_ox.py: 1 mark of copied code removed",
            "configuration_ox.py: the docstring of the module is removed",
        ],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models/roberta/modeling_robert.py", "--dry-run"], "no such file"),
        (["models", "--dry-run"], "this folder holds no file of a model"),
        (["roberta", "--from", "ber", "--dry-run"], "Did you mean `bert`?"),
        (["roberta", "--allow", "typos"], "none of `docstrings`, `comments` and `unused`"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], message: str, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(zoo)
    done = CliRunner().invoke(modularize_command, arguments)
    assert done.exit_code == 2 and message in done.stderr and "Did you mean `models`" not in done.stderr


def test_it_suggests_class_by_class(zoo: Path) -> None:
    done = _suggest(zoo, "roberta")
    assert done.exit_code == 0
    assert "RobertaSelfAttention" in done.stdout and "of bert: the same" in done.stdout


def test_it_suggests_for_a_snippet(zoo: Path) -> None:
    source = (zoo / "models/llama/modeling_llama.py").read_text()
    start = source.index("class LlamaMLP")
    snippet = source[start : source.index("\n\n\n", start)].replace("Llama", "My")
    done = _suggest(zoo, "-", "--format", "json", given=snippet)
    (model,) = json.loads(done.stdout)["models"]
    assert model["classes"][0]["parent"].endswith("LlamaMLP")


def test_a_snippet_that_is_no_python_is_refused(zoo: Path) -> None:
    done = _suggest(zoo, "-", given="class (:\n")
    assert done.exit_code == 2 and "not valid Python" in done.stderr


OWN = "class MyThing:\n    def zap(self):\n        return 41\n"


def test_classes_without_a_parent_are_told(zoo: Path) -> None:
    done = _suggest(zoo, "-", given=OWN)
    assert done.exit_code == 1 and "no class of another model would save lines" in done.stdout
    source = (zoo / "models/llama/modeling_llama.py").read_text()
    mlp = "class LlamaMLP" + source.partition("class LlamaMLP")[2].partition("\n\n\n")[0]
    done = _suggest(zoo, "-", given=f"{mlp}\n\n\n{OWN}")
    assert done.exit_code == 0 and "lines saved by one model alone: " in done.stdout
    (line,) = (one for one in done.stdout.splitlines() if "MyThing" in one)
    assert line.split() == ["MyThing", "3", "no", "parent", "saves", "lines"]


def test_nothing_is_written_into_an_installed_package(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    package = zoo.rename(tmp_path / "site-packages/zoo")
    (package / "models/roberta/modular_roberta.py").unlink()
    done = _modularize(package, "roberta")
    assert done.exit_code == 2 and "installed" in done.stderr
    assert not (package / "models/roberta/modular_roberta.py").exists()
    assert _modularize(package, "roberta", "--dry-run").exit_code == 0
