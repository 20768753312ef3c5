"""Expert and pipeline plans through the command line."""

import ast
from types import SimpleNamespace

import pytest
from click.testing import CliRunner


pytest.importorskip("transformers")
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.commands.kinds import print_verdict  # noqa: E402
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan  # noqa: E402
from modular_converter.parallel.proof.judge import Verdict  # noqa: E402


def run(*arguments):
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_an_expert_plan_in_the_library_form():
    result = run("derive", "mixtral", "--kind", "expert", "--format", "transformers")
    assert ast.literal_eval(result.stdout) == {
        "layers.*.mlp.experts.gate_up_proj": "grouped_gemm",
        "layers.*.mlp.experts.down_proj": "grouped_gemm",
        "layers.*.mlp.experts": "ep_dispatch_experts",
    }


def test_a_pipeline_plan_in_the_library_form_is_the_committed_one():
    from transformers import MixtralConfig

    result = run("derive", "mixtral", "--kind", "pipeline", "--format", "transformers")
    assert ast.literal_eval(result.stdout) == MixtralConfig.base_model_pp_plan


def test_a_pipeline_plan_from_a_file_is_verified_or_refused(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(run("derive", "llama", "--kind", "pipeline", "--format", "json").stdout)
    plan = PipelinePlan.from_json(path.read_text())
    result = run("verify", "llama", str(path), "--kind", "pipeline", "--set", "num_hidden_layers=3", "--ranks", "3")
    assert result.exit_code == 0 and "llama on 3 stages: verified" in result.stdout
    path.write_text(str(plan).replace("hidden_states,attention_mask", "hidden_states"))
    result = run("verify", "llama", str(path), "--kind", "pipeline")
    assert result.exit_code == 1 and "refused" in result.stdout


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("derive", "llama", "--kind", "expert"), "no expert plan: no module of stacked experts was run"),
        (("derive", "flaubert", "--kind", "pipeline"), "the members of `attentions` alternate with other modules"),
        (("verify", "llama", "missing.txt", "--kind", "pipeline"), "missing.txt: it cannot be read"),
        (("committed", "--kind", "expert", "llama"), "no expert plan for this model type"),
    ],
)
def test_what_cannot_be_done_is_said(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2 and said in result.stderr


def test_a_table_of_committed_plans():
    result = run("committed", "--kind", "pipeline", "llama", "gpt_neox")
    assert result.exit_code == 0
    assert "2 of them built small: 2 same, 0 differ, 0 no plan derived" in result.stdout


def test_a_table_with_a_plan_that_differs_exits_with_one():
    result = run("committed", "--kind", "pipeline", "glm_moe_dsa")
    assert result.exit_code == 1 and "1 differ" in result.stdout
    assert "prev_topk_indices" in result.stdout and "nothing, committed" not in result.stdout


@pytest.mark.parametrize(
    ("reason", "verbose", "scope"), [("", False, 1), ("", True, 1), ("wrong", False, 0), ("wrong", True, 1)]
)
def test_a_verdict_is_printed_with_its_scope(capsys, reason, verbose, scope):
    evidence = SimpleNamespace(lines=lambda verbose: [f"runs {verbose}"])
    verdict = Verdict(2, 0.25, 0.5, "layers.0" if reason else "", reason, evidence=evidence)
    assert print_verdict("own", "2 ranks", verdict, verbose) is not bool(reason)
    head, *lines = capsys.readouterr().out.splitlines()
    state = "refused: layers.0: wrong" if reason else "verified"
    assert head == f"own on 2 ranks: {state} (outputs 2.5e-01, gradients 5.0e-01)"
    assert lines == scope * [f"  runs {verbose}"]
