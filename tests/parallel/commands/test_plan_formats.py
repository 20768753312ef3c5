"""Faulty plan files, and the forms in which plans are printed."""

import pytest
from click.testing import CliRunner


pytest.importorskip("transformers")
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof import prove  # noqa: E402
from modular_converter.parallel.proof.judge import Verdict  # noqa: E402


pytestmark = pytest.mark.usefixtures("derived_once")
JSON = '{"version": 1, "model": "llama", "rules": [{"pattern": "layers.*.mlp.up_proj", "style": "colwise", %s}]}'


def run(*arguments):
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (JSON % '"parts": ["9//0", "rest"]', "layers.0.mlp.up_proj.weight: part 9//0: "),
        (JSON % f'"dim": {"9" * 6000}', "a number in it is too large"),
        (JSON % f'"dim": {"[" * 200_000}', "nested too deep"),
        (JSON % f'"parts": ["{"n+" * 50_000}n"]', "is not a part"),
        (
            "plan llama\nrule layers.*.mlp.up_proj colwise dim=²\n",
            "line 2: layers.*.mlp.up_proj: dim=² is not a dimension",
        ),
        ("plan llama\nwhole no.such.layer because\n", "whole no.such.layer: matches no module and no parameter"),
    ],
    ids=["zero", "digits", "deep", "sum", "superscript", "whole"],
)
@pytest.mark.parametrize("command", ["verify", pytest.param("show", marks=pytest.mark.slow)])
def test_a_bad_plan_file_is_an_error_and_no_refusal(command, text, said, tmp_path):
    path = tmp_path / "plan"
    path.write_text(text)
    result = run(command, "llama", str(path))
    assert result.exit_code == 2 and said in result.stderr and len(result.stderr) < 1000


def test_a_dimension_as_a_float_is_one(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(JSON % '"dim": 0.0')
    assert "layers.*.mlp.up_proj" in run("show", "llama", str(path)).stdout


def test_the_form_for_torch():
    result = run("derive", "llama", "--format", "torch")
    assert result.exit_code == 0
    pasted = {}
    exec(result.stdout, pasted)
    plan = Plan.parse(run("derive", "llama").stdout)
    assert list(pasted["parallelize_plan"]) == [rule.pattern for rule in plan.rules]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gpt2",), "torch has no style for h.*.attn.c_attn: packed_colwise dim=1 parts=1:1:1; "),
        (("qwen3",), "layers.*.self_attn.q_norm: replicated_with_grad_allreduce"),
        (("mixtral", "--kind", "expert"), "torch has no style for layers.*.mlp.experts.gate_up_proj: grouped_gemm"),
        (("llama", "--kind", "pipeline"), "torch's parallelize_module has no pipeline plans"),
    ],
)
def test_what_torch_cannot_say_is_refused(arguments, said):
    result = run("derive", *arguments, "--format", "torch")
    assert result.exit_code == 2 and said in result.stderr and not result.stdout


def test_a_refusal_without_a_layer_names_none(monkeypatch):
    monkeypatch.setattr(prove, "prove", lambda *a, **k: Verdict(2, 1.0, 1.0, "", "it hangs"))
    result = run("verify", "llama")
    assert result.exit_code == 1 and "refused: it hangs (" in result.stdout
