"""Faulty input ends with exit code 2 and a message that names the fault and the remedy."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner


pytest.importorskip("transformers")
from modular_converter.parallel.cli import main  # noqa: E402


pytestmark = pytest.mark.usefixtures("derived_once")
NUMBERS = itertools.count()
MODEL = """\
import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel
from huggingface_hub.dataclasses import strict


@strict
class ToyConfig(PreTrainedConfig):
    model_type = "toy"
    hidden_size: int = 480336
    group_count: int = 48
    vocab_size: int = 1000

    def validate_architecture(self):
        if self.hidden_size % self.group_count:
            raise ValueError(f"hidden_size {self.hidden_size} must be a multiple of group_count {self.group_count}")


class ToyModel(PreTrainedModel):
    config: ToyConfig
    base_model_prefix = "model"

    def __init__(self, config: ToyConfig):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.up = nn.Linear(config.hidden_size, 64)
        self.down = nn.Linear(64, config.hidden_size)
        self.post_init()

    def forward(self, input_ids):
        return self.down(torch.relu(self.up(self.embed(input_ids))))
"""


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.fixture
def toy(tmp_path):
    """Writes a model file of a name of its own; returns its path."""

    def write(*changes: tuple[str, str]) -> str:
        text = MODEL
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / f"bad_{next(NUMBERS)}_{tmp_path.name}".replace("-", "_") / "modeling_toy.py"
        path.parent.mkdir()
        (path.parent / "__init__.py").write_text("")
        path.write_text(text)
        return str(path)

    return write


FORMS = (
    "Give a model type (llama), a class path (package.module.Class), {}or a file (./modeling_x.py, ./modular_x.py)\n"
)


def test_an_unknown_model_type_lists_the_nearest_and_what_else_names_a_model():
    said = "modular-plan: unknown model type 'lama'; did you mean llama, mllama, llama4? "
    assert run("derive", "lama") == (2, said + FORMS.format(""))


@pytest.mark.parametrize(
    ("command", "saved"),
    [
        ("derive", False),
        ("verify", False),
        ("show", False),
        ("diff", False),
        ("export", False),
        ("run", True),
        ("memory", True),
        ("advise", True),
        ("tune", True),
        ("schedule", True),
    ],
)
def test_every_command_says_what_to_give_for_a_model(command, saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = {
        "advise": ["--devices", "H100-80GB"],
        "export": ["--to", "vllm"],
        "schedule": ["--chunks", "2", "--ranks", "2"],
    }
    code, output = run(command, "nosuch", *more.get(command, []))
    assert code == 2
    said = FORMS.format("a saved model's folder or config.json (./folder), " if saved else "")
    assert output == f"modular-plan: unknown model type 'nosuch'. {said}", output


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nopackage.models.Model", "No module named 'nopackage'); install the library"),
        ("transformers.models.llama.modeling_llama.LlamaMoodel", "has no attribute 'LlamaMoodel'"),
        ("torch.nn.Linear", "has no config_class; give a model class, not a layer"),
        ("nothing/modeling_here.py", "nothing/modeling_here.py: no such file"),
        (__file__, "give a file `modeling_<model>.py` or `modular_<model>.py`"),
        ("models/llama/modeling_llama.py:LlamaMLP", "it has no model class 'LlamaMLP'; it has LlamaModel, LlamaFor"),
    ],
)
def test_a_model_that_is_not_there(model, said, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    code, output = run("derive", model)
    assert code == 2
    assert said in output


def test_a_value_that_would_help_is_named_and_helps(toy):
    """The widths that are tried are no multiples of 48."""
    path = toy()
    code, output = run("derive", path)
    assert code == 2
    assert "cannot be built small and run" in output
    assert "hidden_size 64 must be a multiple of group_count 48" in output
    assert "values that are named there: hidden_size, group_count; give what fits with --set hidden_size=" in output
    code, output = run("derive", path, "--set", "group_count=16")
    assert code == 0, output
    assert "\nrule up " in output


def test_a_value_that_the_configuration_does_not_have(toy):
    code, output = run("derive", toy(), "--set", "hiden_size=3")
    assert code == 2
    assert "ToyConfig has no value 'hiden_size'; did you mean hidden_size?" in output
    code, output = run("derive", "llama", "--set", "hidden_size")
    assert code == 2
    assert "--set takes field=value, not 'hidden_size'" in output


def test_a_missing_library_is_named(toy):
    path = toy(("        self.embed =", "        import a_missing_library\n\n        self.embed ="))
    code, output = run("derive", path, "--set", "group_count=16")
    assert code == 2
    assert "it needs the library a_missing_library, which is not installed" in output


@pytest.mark.parametrize("name", ["torch", "transformers", "accelerate"])
def test_without_the_extra_the_way_to_get_it_is_said(name, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted, *rest: None if wanted == name else found(wanted))
    code, output = run("derive", "llama")
    assert code == 2
    assert f"{name} is not installed; install this project with its extra `parallel`" in output


def test_a_forward_that_fails_is_quoted_once(toy):
    path = toy(("    def forward(self, input_ids):\n", "    def forward(self, input_ids):\n        1 / 0\n"))
    code, output = run("derive", path, "--set", "group_count=16")
    assert code == 2
    assert output.count("ZeroDivisionError: division by zero") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("import torch\n", "import torch\n1 / 0\n"), "fails: ZeroDivisionError: division by zero"),
        (("class ToyModel(PreTrainedModel)", "class ToyModel(nn.Module)"), "it defines no model class"),
        (("from torch import nn\n", "from ....far import x\nfrom torch import nn\n"), "its imports go 4 folders up"),
    ],
)
def test_a_file_that_cannot_be_imported(change, said, toy):
    code, output = run("derive", toy(change))
    assert code == 2
    assert said in output


def test_two_packages_of_one_name_are_told_apart(tmp_path):
    package = tmp_path / "click"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "modeling_toy.py").write_text(MODEL)
    code, output = run("derive", str(package / "modeling_toy.py"))
    assert code == 2
    assert "importing it as click.modeling_toy fails" in output or "another package 'click' comes first" in output


RULE = {"pattern": "layers.*.mlp.up_proj", "style": "colwise"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "plan llama\nrule layers.*.mlp.up_proj sideways\n",
            "layers.*.mlp.up_proj: unknown style 'sideways'; known are",
        ),
        ("plan llama\nlayer a colwise\n", "line 2: unknown word 'layer'"),
        ("rule a colwise\n", "a plan begins with a line `plan MODEL`"),
        (
            json.dumps({"version": 1, "model": "llama", "rules": [{**RULE, "style": "sideways"}]}),
            "$.rules[0].style: 'sideways' is not one of ['all_reduce'",
        ),
        (json.dumps({"version": 1, "model": "llama", "rules": [], "layers": []}), "'layers' was unexpected"),
        (json.dumps({"version": 1, "model": "llama", "rules": [{**RULE, "dims": 1}]}), "'dims' was unexpected"),
        (json.dumps({"version": 1, "model": "llama", "rules": [{"pattern": "a"}]}), "'style' is a required property"),
        (json.dumps({"version": 1, "model": "llama", "rules": 3}), "$.rules: 3 is not of type 'array'"),
        ("{", "not JSON"),
        ("plan llama\nrule layers.*.mlp.up colwise\n", "layers.*.mlp.up: matches no module and no parameter"),
    ],
)
@pytest.mark.parametrize("command", ["verify", "show"])
def test_a_plan_file_that_is_wrong(text, said, command, tmp_path):
    path = tmp_path / "plan.txt"
    path.write_text(text)
    code, output = run(command, "llama", str(path))
    assert code == 2
    assert said in output


def test_a_plan_file_that_is_not_there(tmp_path):
    code, output = run("verify", "llama", str(tmp_path / "none.json"))
    assert code == 2
    assert "none.json: it cannot be read (" in output


@pytest.mark.parametrize("content", ["{", "5\n", '{"model": "llama"}\n'])
def test_rows_to_go_on_from_that_are_none(content, tmp_path):
    (tmp_path / "rows.jsonl").write_text(content)
    code, output = run("coverage", "llama", "--resume", str(tmp_path / "rows.jsonl"))
    assert code == 2 and "give another file to --resume" in output
    code, output = run("coverage", "llama", "--resume", str(tmp_path))
    assert code == 2 and "give another file to --resume" in output


def test_a_coverage_of_nothing():
    code, output = run("coverage")
    assert code == 2 and "give --all or --classics" in output
    assert run("coverage", "llama", "--ranks", "0")[0] == 2
