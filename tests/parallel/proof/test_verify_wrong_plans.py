"""``modular-plan verify`` refuses the wrong plans of the folder beside this file, with a layer and a reason."""

from pathlib import Path

import pytest
from click.testing import CliRunner


pytest.importorskip("transformers")
from modular_converter.parallel.cli import main  # noqa: E402


FILES = sorted((Path(__file__).parent / "wrong_plans").glob("*.txt"))
# What is said of a plan: the layer, and how far the numbers are off.
SAID = {
    "buffer": ("the outputs: output 0 differs by", "of its scale"),
    "codes": ("the outputs: output 1 differs by inf",),
    "drown": (": the gradient of", "of its scale"),
    "masked": ("the outputs: output 0 differs by", "of its scale"),
    "nan": (": the gradient of", "of its scale"),
    "nan_stack": (": the gradient of", "of its scale"),
    "tiny": ("the outputs: output 0 differs by", "of its scale"),
    "tiny2": ("the outputs: output 0 differs by", "of its scale"),
}


def test_every_file_is_tried():
    assert {file.stem for file in FILES} == SAID.keys()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_wrong_plan_is_refused_with_the_layer_and_the_reason(file, one_pool):
    model = file.read_text(encoding="utf-8").split()[1]
    result = CliRunner().invoke(main, ["verify", model, str(file)])
    assert result.exit_code == 1, result.output
    assert "our application: refused: " in result.stdout and "verified" not in result.stdout
    for said in SAID[file.stem]:
        assert said in result.stdout
