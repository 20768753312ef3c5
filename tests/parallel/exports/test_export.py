"""Plans for other tools: run by their own code, reduced to what they say, with what that costs."""

import ast
import json

import pytest
from click.testing import CliRunner


pytest.importorskip("transformers")
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.errors import PlanError  # noqa: E402
from modular_converter.parallel.exports.export import TOOLS, export  # noqa: E402
from modular_converter.parallel.plans.emit import Inexpressible  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model, prove  # noqa: E402
from modular_converter.parallel.tiny.build import target_of  # noqa: E402


pytestmark = pytest.mark.usefixtures("derived_once")


@pytest.fixture(scope="module")
def qwen3():
    return derive_model(target_of("qwen3"))


def styles(plan, end):
    return {rule.style for rule in plan.rules if rule.pattern.endswith(end)}


def test_transformers_takes_the_whole_plan_and_runs_it(qwen3, pool):
    found = export(qwen3, TOOLS["transformers"], 2, pool)
    assert found.plan.rules == qwen3.plan.rules and not found.lost and found.proven == "2 processes"
    assert found.memory.exported == found.memory.full < 0.51 * found.memory.whole
    assert json.loads(found.text)["layers.*.self_attn.q_norm"] == "replicated_with_grad_allreduce"


def test_what_torch_cannot_say_is_gathered_instead(qwen3, pool):
    """Torch has no style that sums the gradient of a norm of heads, so attention is sharded with gathers."""
    found = export(qwen3, TOOLS["torch"], 2, pool)
    assert styles(found.plan, "q_proj") == styles(found.plan, "o_proj") == {"colwise_gather_output"}
    assert styles(found.plan, "down_proj") == {"rowwise"} and not styles(found.plan, "q_norm")
    assert not found.lost and found.memory.exported == found.memory.full
    assert found.collectives[0] > found.collectives[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [("o_proj rowwise", "o_proj colwise_gather_output"), ("v_proj colwise", "v_proj colwise_gather_output")],
)
def test_torch_finds_a_wrong_plan(old, new, pool):
    llama = derive_model(target_of("llama"))
    wrong = Plan.parse(str(llama.plan).replace(old, new))
    assert wrong != llama.plan
    assert prove(llama, llama.plan, pool, "torch").passed
    assert not prove(llama, wrong, pool, "torch").passed


def test_a_part_that_the_tools_code_does_not_run_stays_whole(qwen3, pool, monkeypatch):
    """The largest part without it is found by runs, and each weight has the reason."""
    from modular_converter.parallel.exports import export as module

    def refused(derived, plan, pool, vocabulary):
        return "it fails" if styles(plan, "mlp.down_proj") == {"rowwise"} or styles(plan, "embed_tokens") else ""

    monkeypatch.setattr(module, "_refused_there", refused)
    found = export(qwen3, TOOLS["transformers"], 2, pool)
    assert found.lost == {"embed_tokens.weight": "it fails"}
    assert styles(found.plan, "down_proj") == {"colwise_gather_output"}
    assert styles(found.plan, "o_proj") == {"rowwise"} and styles(found.plan, "q_norm")
    assert found.memory.full < found.memory.exported < found.memory.whole


def test_a_plan_of_which_nothing_is_left_is_refused(qwen3, pool, monkeypatch):
    from modular_converter.parallel.exports import export as module

    monkeypatch.setattr(module, "_refused_there", lambda *arguments: "it fails")
    with pytest.raises(PlanError, match=r"nothing to export to transformers: .*down_proj.weight: it fails"):
        export(qwen3, TOOLS["transformers"], 2, pool)


def test_what_a_tool_cannot_say_is_left_whole_with_its_axis(qwen3):
    """A row-wise layer that cannot be said takes its column-wise layers with it."""
    from dataclasses import replace

    def inexpressible(plan, model):
        return [
            Inexpressible(rule.pattern, f"{rule.pattern}: not so") for rule in plan.rules if rule.style == "rowwise"
        ]

    tool = replace(TOOLS["torch"], inexpressible=inexpressible, route="")
    found = export(qwen3, tool, 2)
    assert not any(rule.style in ("rowwise", "colwise") for rule in found.plan.rules)
    assert found.proven == "" and qwen3.checked(found.plan, 2).passed


def test_the_command_names_what_stays_whole_and_what_it_costs():
    result = CliRunner().invoke(main, ["export", "gpt2", "--to", "transformers", "--unverified"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"wte": "embedding_rowwise"}
    assert "left whole: h.*.mlp.c_fc.weight: h.*.mlp.c_fc: dimension 1" in result.stderr
    assert "210 MB of weights on each of 2 devices, 85 MB more than the derived plan; 249 MB whole" in result.stderr
    assert "not run by the code of transformers" in result.stderr


def test_more_ranks_than_an_axis_has_units_are_refused_as_by_show(qwen3):
    with pytest.raises(PlanError) as refused:
        export(qwen3, TOOLS["vllm"], 999)
    shown = CliRunner().invoke(main, ["show", "qwen3", "--ranks", "999"])
    assert shown.exit_code == 2 and str(refused.value) in shown.output
    assert "units are too few for 999 ranks: one rank would hold nothing" in str(refused.value)


def test_accelerate_gets_the_same_plan_as_a_script():
    from accelerate.parallelism_config import ParallelismConfig

    result = CliRunner().invoke(main, ["export", "llama", "--to", "accelerate", "--unverified"])
    plan = next(node for node in ast.parse(result.stdout).body if isinstance(node, ast.Assign))
    assert ast.literal_eval(plan.value)["layers.*.self_attn.o_proj"] == "rowwise"
    assert ParallelismConfig(tp_size=2).tp_enabled
    compile(result.stdout, "exported", "exec")
