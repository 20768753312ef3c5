"""The commands as a person meets them: help, tables, differences that are judged by running them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner


pytest.importorskip("transformers")
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402


pytestmark = pytest.mark.usefixtures("derived_once")
LLAMA = str(Path(__file__).parents[2] / "models" / "llama" / "modeling_llama.py")


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout + ("" if done.exit_code == 0 else done.stderr)


def cells(output: str, first: str) -> list[str]:
    """The row of a table that begins with a word."""
    [row] = [line.split() for line in output.splitlines() if line.split()[:1] == [first]]
    return row


def test_help_says_that_the_model_is_run():
    code, output = run("--help")
    assert code == 0
    assert "so the file is imported: give files" in " ".join(output.split())
    for command in ("derive", "verify", "write", "show", "diff", "coverage"):
        assert run(command, "--help")[0] == 0
        assert command in output


@pytest.mark.slow
def test_one_plan_in_three_forms():
    text = Plan.parse(run("derive", "llama")[1])
    assert Plan.from_json(run("derive", "llama", "--format", "json")[1]) == text
    library = json.loads(run("derive", "llama", "--format", "transformers")[1])
    assert library == {rule.pattern: rule.style for rule in text.rules}


@pytest.mark.slow
def test_a_table_of_a_plan_with_experts():
    code, output = run("show", "mixtral")
    assert code == 0
    assert cells(output, "layers.*.self_attn.o_proj") == [
        *("layers.*.self_attn.o_proj", "rowwise", "64x64", "64x32", "all-reduce", "16.4", "kB", "8.19", "kB")
    ]
    assert cells(output, "layers.*.mlp.experts.down_proj")[1:4] == ["rowwise", "8x64x112", "8x64x56"]
    assert "all-reduce" not in cells(output, "layers.*.mlp.experts.down_proj")
    assert cells(output, "layers.*.mlp.experts") == ["layers.*.mlp.experts", "moe_tp_experts", "all-reduce"]
    assert cells(output, "layers.*")[-2:] == ["2", "all-reduce"]
    assert cells(output, "the")[-1] == "5"


@pytest.mark.slow
def test_the_table_of_the_default_sizes_on_four_ranks():
    code, output = run("show", "llama", "--full", "--ranks", "4")
    assert code == 0
    assert cells(output, "layers.*.mlp.down_proj")[2:4] == ["4096x11008", "4096x2752"]
    assert cells(output, "layers.*")[1] == "32"
    assert cells(output, "the")[-1] == "65"


def test_what_a_plan_cannot_say_stands_below_the_table():
    output = run("show", "gpt2")[1]
    assert "shrinks with the shard: h.*.attn:split_size" in output
    assert "whole: ln_f.weight: " in output


def changed(tmp_path: Path, old: str, new: str) -> str:
    """A copy of llama of the zoo with a changed plan; the path of its modeling file."""
    import shutil

    root = tmp_path / f"diff_{tmp_path.name}".replace("-", "_")
    shutil.copytree(Path(LLAMA).parent, root / "models" / "llama", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (root, root / "models"):
        (folder / "__init__.py").write_text("")
    path = root / "models" / "llama" / "configuration_llama.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return str(path.with_name("modeling_llama.py"))


@pytest.mark.slow
def test_plans_that_are_the_same(tmp_path):
    code, output = run("diff", LLAMA)
    assert code == 0
    assert [line.partition(";")[0] for line in output.splitlines()] == ["source: verified", "derived: verified"]


@pytest.mark.slow
def test_a_wrong_line_is_called_wrong(tmp_path):
    code, output = run("diff", changed(tmp_path, 'o_proj": "rowwise"', 'o_proj": "colwise"'))
    assert code == 1
    assert "- layers.*.self_attn.o_proj colwise\n+ layers.*.self_attn.o_proj rowwise\n  wrong: " in output
    assert "source: refused" in output


def test_a_missing_line_is_named_as_wrong(tmp_path):
    code, output = run("diff", changed(tmp_path, '        "layers.*.mlp.up_proj": "colwise",\n', ""))
    assert code == 1
    assert "- layers.*.mlp.up_proj (nothing)\n+ layers.*.mlp.up_proj colwise\n  wrong: " in output


@pytest.mark.slow
def test_lines_that_go_together_are_said_to(tmp_path):
    """The feed-forward whole: neither of its lines can be added alone."""
    lines = "".join(
        f'        "layers.*.mlp.{name}_proj": "{style}",\n'
        for name, style in (("gate", "colwise"), ("up", "colwise"), ("down", "rowwise"))
    )
    code, output = run("diff", changed(tmp_path, lines, ""))
    assert code == 1
    assert output.count("goes with other lines: it cannot change alone: ") == 3
    assert "source: verified" in output


def test_a_line_that_may_be_either_way_is_a_choice(tmp_path):
    old = '        "layers.*.mlp.gate_proj": "colwise",\n'
    new = '        "norm.weight": "replicated_with_grad_allreduce",\n' + old
    code, output = run("diff", changed(tmp_path, old, new))
    assert code == 1
    assert "- norm.weight replicated_with_grad_allreduce\n+ norm.weight (nothing)\n" in output


@pytest.mark.slow
def test_a_style_that_is_not_modelled_is_said_so(tmp_path):
    old = '        "layers.*.mlp.gate_proj": "colwise",\n'
    code, output = run("diff", changed(tmp_path, old, '        "norm": "sequence_parallel",\n' + old))
    assert code == 1
    assert "- norm sequence_parallel\n  not judged: this style is not modelled here" in output


def test_a_plan_file_is_verified_on_processes(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(run("derive", LLAMA, "--format", "json")[1])
    code, output = run("verify", LLAMA, str(path))
    assert code == 0, output
    assert "on 2 ranks, our application: verified (outputs" in output


@pytest.mark.slow
def test_a_plan_within_a_number_of_collectives():
    code, output = run("derive", "llama", "--max-collectives", "2")
    assert code == 0
    plan = Plan.parse(output)
    assert {rule.pattern.split(".")[2] for rule in plan.rules} == {"mlp"}
    assert any("to save communication" in reason for _, reason in plan.whole)
