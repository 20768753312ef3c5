"""`modular-plan run`: agreement with one device, memory by device, tokens a second; from a type, a folder, a file."""

import pytest
import torch
from click.testing import CliRunner


pytest.importorskip("transformers")
import modular_converter.parallel.ranks.session as sessions  # noqa: E402
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.commands.run import _answers, load  # noqa: E402
from modular_converter.parallel.costs import CountRequest, model_at_size  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


@pytest.fixture
def forked(monkeypatch):
    """Ranks by fork: the command line has no threads, and importing takes seconds."""
    monkeypatch.setattr(sessions.Session, "begin", _begin_forked)


_BEGIN = sessions.Session.begin


def _begin_forked(self):
    self.init_method = "forkserver"
    _BEGIN(self)


@pytest.mark.slow
def test_a_model_type_runs_and_agrees(forked):
    found = CliRunner().invoke(main, ["run", "llama", "--tokens", "4", "--device", "cpu"])
    assert found.exit_code == 0, found.output
    for said in ("cpu:1 ", "MiB allocated", "outputs differ by", "tokens a second: one device", "2 devices"):
        assert said in found.output


def test_folders_configurations_and_types_load(tmp_path):
    small = build(target_of("gpt2", "causal")).model
    small.save_pretrained(tmp_path)
    model, inputs = load(str(tmp_path), ())
    assert type(model) is type(small) and "input_ids" in inputs
    assert (model.lm_head.weight == small.lm_head.weight).all()
    (tmp_path / "model.safetensors").unlink()
    random, _ = load(str(tmp_path / "config.json"), ())
    assert type(random) is type(small) and not (random.lm_head.weight == small.lm_head.weight).all()
    assert type(load("bert", ())[0]).__name__.startswith("Bert")


def test_a_model_type_comes_before_a_folder_of_its_name(tmp_path, monkeypatch):
    build(target_of("llama", "causal"), {"num_hidden_layers": 3}).model.config.save_pretrained(tmp_path / "llama")
    monkeypatch.chdir(tmp_path)
    for name, published in (("llama", 32), ("./llama", 3)):
        assert (len(load(name, ())[0].model.layers) == 3) is (name == "./llama")
        assert (
            model_at_size(CountRequest(name, {}, None, 1, 8), torch.device("meta"))[0].config.num_hidden_layers
            == published
        )


def test_a_folder_runs_from_its_files(forked, tmp_path):
    build(target_of("gpt2", "causal"), {"n_layer": 1}).model.save_pretrained(tmp_path)
    command = ["run", str(tmp_path), "--tokens", "2", "--device", "cpu", "--dtype", "bfloat16"]
    found = CliRunner().invoke(main, command)
    assert found.exit_code == 0, found.output
    assert "2 devices" in found.output and "allowed: 5e-02" in found.output


def test_what_cannot_be_loaded_is_said(tmp_path):
    found = CliRunner().invoke(main, ["run", str(tmp_path)])
    assert found.exit_code == 2 and "has no config.json" in found.output
    (tmp_path / "config.json").write_text("{")
    found = CliRunner().invoke(main, ["run", str(tmp_path)])
    assert found.exit_code == 2 and "config.json: cannot be read" in found.output
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickled")
    found = CliRunner().invoke(main, ["run", str(tmp_path)])
    assert found.exit_code == 2 and "pickled objects and are not read" in found.output
    found = CliRunner().invoke(main, ["run", "lama"])
    assert found.exit_code == 2 and "did you mean" in found.output


@pytest.mark.parametrize(("name", "kind"), [("bert", "base"), ("vit", "base")])
def test_a_model_that_writes_no_text_answers_without_tokens_a_second(name, kind):
    small = build(target_of(name))
    outputs, rate = _answers(small.model, dict(small.inputs), 2, compiled=False)
    assert outputs and rate is None
