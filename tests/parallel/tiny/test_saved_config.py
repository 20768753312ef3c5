"""Folders from anyone: no code of theirs runs, no question is asked, nothing is looked for elsewhere."""

from __future__ import annotations

import ast
import builtins
import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner


pytest.importorskip("transformers")
from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.errors import PlanError  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402
from modular_converter.parallel.tiny.saved_config import saved_config, saved_model  # noqa: E402


PACKAGE = Path(__file__).parents[3] / "modular_converter"
CODE = """
from pathlib import Path
from transformers import PretrainedConfig, PreTrainedModel
(Path(__file__).parent / "RAN").touch()
Path({mark!r}).touch()
class OwnConfig(PretrainedConfig):
    model_type = {kind!r}
class OwnModel(PreTrainedModel):
    config_class = OwnConfig
"""
MAP = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel", "AutoModelForCausalLM": "own.OwnModel"}


@pytest.fixture
def alone(monkeypatch):
    """Any connection, any question and any answer to one are failures."""

    def no(*given, **more):
        raise AssertionError(f"it reached out: {given}")

    monkeypatch.setattr(socket.socket, "connect", no)
    monkeypatch.setattr(socket, "getaddrinfo", no)
    monkeypatch.setattr(builtins, "input", no)


def hostile(folder, mark, kind="evil", **settings):
    """A folder whose configuration names code of its own."""
    folder.mkdir()
    (folder / "own.py").write_text(CODE.format(mark=str(mark), kind=kind))
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "auto_map": MAP, **settings}))
    return folder


@pytest.mark.parametrize("kind", ["evil", "llama"])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("given", [(), ("--set", "trust_remote_code=True"), ("--set", "code_revision=main")])
def test_no_command_runs_code_of_a_folder(alone, tmp_path, kind, weights, given):
    mark = tmp_path / "ran"
    more = {"trust_remote_code": True, "code_revision": "main"}
    folder = hostile(tmp_path / "evil", mark, kind, **more)
    if weights:
        (folder / "model.safetensors").write_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00{}")
    for command in (["run"], ["schedule", "--chunks", "2", "--ranks", "2"]):
        for path in (folder, folder / "config.json"):
            found = CliRunner().invoke(main, [*command, str(path), *given], input="y\ny\ny\n")
            assert found.exit_code == 2, found.output
            assert "auto_map names code of the folder, which is not run" in found.output
    for model in (folder, str(folder)):
        with pytest.raises(PlanError, match="auto_map names code"):
            parallelize(model, device="cpu")
    assert not mark.exists() and not (folder / "RAN").exists()


def test_arguments_of_loaders_are_no_values_of_a_configuration(alone, tmp_path):
    folder = tmp_path / "plain"
    build(target_of("llama", "causal")).model.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    for name in ("trust_remote_code", "local_files_only", "cache_dir", "subfolder", "revision", "_from_auto"):
        for command in (["run"], ["schedule", "--chunks", "2", "--ranks", "2"]):
            found = CliRunner().invoke(main, [*command, str(folder), "--set", f"{name}=True"])
            assert found.exit_code == 2 and f"LlamaConfig has no value '{name}'" in found.output, found.output
    settings["trust_remote_code"] = True  # a value of the file is none, either
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(PlanError, match="has no value 'trust_remote_code'"):
        saved_config(folder, {"trust_remote_code": True})


def test_values_reach_the_configuration_and_its_inner_configurations(tmp_path):
    build(target_of("llama", "causal")).model.save_pretrained(tmp_path / "llama")
    found = saved_config(tmp_path / "llama", {"rms_norm_eps": 0.5, "attn_implementation": "eager"})
    assert (found.rms_norm_eps, found._attn_implementation) == (0.5, "eager")
    assert found.hidden_size == saved_config(tmp_path / "llama").hidden_size
    build(target_of("llava")).model.config.save_pretrained(tmp_path / "llava")
    whole = saved_config(tmp_path / "llava")
    found = saved_config(tmp_path / "llava" / "config.json", {"text_config.rms_norm_eps": 0.25})
    assert found.text_config.rms_norm_eps == 0.25
    assert found.text_config.hidden_size == whole.text_config.hidden_size
    with pytest.raises(PlanError, match="has no value 'rms_norm_epsilon'; did you mean rms_norm_eps"):
        saved_config(tmp_path / "llama", {"rms_norm_epsilon": 0.5})


def test_a_class_of_the_caller_needs_no_code_of_the_folder(alone, tmp_path):
    model = build(target_of("llama", "causal")).model
    model.save_pretrained(tmp_path / "own")
    settings = json.loads((tmp_path / "own" / "config.json").read_text())
    (tmp_path / "own" / "config.json").write_text(json.dumps({**settings, "auto_map": MAP}))
    config = saved_config(tmp_path / "own", None, type(model))
    found = saved_model(type(model), tmp_path / "own", None, config)
    assert all((one == found.state_dict()[name]).all() for name, one in model.state_dict().items())


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"model_type": 3}', '{"model_type": "none such"}'])
def test_a_damaged_configuration_is_an_error_of_one_line(alone, tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(PlanError, match=r"config\.json: (cannot be read|is not a table)") as caught:
        saved_config(tmp_path)
    assert "\n" not in str(caught.value)


# Files that call a loader of the library, and why they may.
LOADERS = {
    "parallel/tiny/saved_config.py": "the one place for folders of others",
    "parallel/engine/checkpoint/model_files.py": "gives no folder: the tensors are read here",
    "parallel/engine/checkpoint/folder.py": "PeftModel, whose files hold no code",
    "parallel/proof/on_ranks.py": "a temporary folder that it has written itself",
}


def test_no_other_file_gives_the_library_a_folder():
    names = ("from_pretrained", "from_config", "get_config_dict", "get_class_from_dynamic_module")
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in names:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == set(LOADERS)
