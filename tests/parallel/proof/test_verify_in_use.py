"""``modular-plan`` holds a plan against all uses of the small instance, and against the default sizes of the classes."""

import pytest
from click.testing import CliRunner


pytest.importorskip("transformers")
from modular_converter.parallel.cli import main  # noqa: E402


PLAN = "plan x\nrule layers.*.up colwise\nrule layers.*.down rowwise\n"
OTHERWISE, NUMBERS = "tests.parallel.used_otherwise", "tests.parallel.numbers_of_shapes"
REFUSED = {
    f"{OTHERWISE}.InOneRow": "with one row",
    f"{OTHERWISE}.WithLargeNumbers": "with the other side of the branch on data in used_otherwise.py:",
    f"{OTHERWISE}.WithGate": "with gate",
    f"{NUMBERS}.Scaled": "on a rank (numbers_of_shapes.py:",
}


@pytest.mark.parametrize("model", REFUSED)
def test_a_plan_that_is_wrong_in_one_use_is_refused(model, tmp_path, one_pool):
    file = tmp_path / "plan.txt"
    file.write_text(PLAN)
    result = CliRunner().invoke(main, ["verify", model, str(file)])
    assert result.exit_code == 1 and "our application: refused: " in result.stdout, result.output
    assert REFUSED[model] in result.stdout


@pytest.mark.parametrize("model", [f"{OTHERWISE}.InOneRow", f"{NUMBERS}.Scaled"])
def test_the_printed_plan_holds_in_all_uses(model):
    result = CliRunner().invoke(main, ["derive", model])
    assert result.exit_code == 0, result.output
    assert "rule embed embedding_rowwise" in result.stdout and "layers.*.up colwise\n" not in result.stdout
    assert "also with one token" in result.stderr


def test_an_argument_without_a_run_is_named():
    result = CliRunner().invoke(main, ["derive", f"{OTHERWISE}.WithOddGate"])
    assert "not covered: the argument gate;" in result.stderr


def test_a_plan_of_experts_is_held_against_uses():
    result = CliRunner().invoke(main, ["derive", "mixtral", "--kind", "expert"])
    assert result.exit_code == 0 and "also with one token" in result.stderr
    assert "past_key_values" not in result.stderr  # an earlier call gives it
