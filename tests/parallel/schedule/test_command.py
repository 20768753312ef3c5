"""``modular-plan schedule`` without a model."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from modular_converter.parallel.cli import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["schedule", *arguments])


def told(*arguments: str) -> dict:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_textbook_on_a_terminal():
    result = run("--stages", "4", "--chunks", "8", "--even", "32")
    assert result.exit_code == 0, result.output
    assert "1F1B: 4 ranks, 8 micro-batches" in result.output
    assert "rank 3 .........F0-B0----F1-B1----" in result.output
    assert "predicted step 264, bubble 27.3%, 2.91 times one device of 4" in result.output
    assert "ZBVZeroBubble" in result.output
    assert "even balance 8,8,8,8: step 264" in result.output


def test_json_has_the_actions_and_the_memory_counts():
    value = told("--ranks", "4", "--chunks", "8", "--even", "32")
    chosen = value["chosen"]
    assert chosen["bubble"] == pytest.approx(3 / 11)
    assert [rank["held"] for rank in chosen["by_rank"]] == [4, 3, 2, 1]
    assert chosen["actions"][3][1] == {"action": "3B0", "start": 32.0, "end": 48.0}
    assert value["others"]["GPipe"]["step"] == chosen["step"] == 264


def test_stages_are_counted_in_all():
    value = told(
        "--stages", "8", "--stages-per-rank", "2", "--schedule", "interleaved", "--chunks", "8", "--even", "8"
    )
    assert (value["chosen"]["ranks"], value["chosen"]["balance"]) == (4, [1] * 8)
    assert told("--ranks", "4", "--schedule", "ZBV", "--chunks", "8", "--even", "8")["chosen"]["stages_per_rank"] == 2


def test_inference_and_transfers():
    value = told(
        "--ranks", "2", "--chunks", "3", "--even", "2", "--inference", "--transfer", "1", "--schedule", "gpipe"
    )
    assert value["chosen"]["step"] == 5
    value = told("--ranks", "2", "--chunks", "3", "--even", "2", "--inference", "--transfer", "1", "--no-overlap")
    assert value["chosen"]["step"] == 7


def test_measured_times_and_the_best_balance(tmp_path):
    file = tmp_path / "times.json"
    file.write_text(json.dumps({"layers": [[0.01, 0.02]] * 7 + [[0.01, 0.01, 0.01]], "after": [0.03, 0.06]}))
    value = told("--ranks", "2", "--chunks", "16", "--layer-times", str(file))
    assert value["unit"] == "s"
    assert value["best_balance"]["balance"] == [5, 3] or value["best_balance"]["balance"] == [6, 2]
    assert value["best_balance"]["step"] < value["chosen"]["step"]
    assert "--balance" in value["advice"][-1]


def test_a_picture_is_written(tmp_path):
    picture = tmp_path / "grid.svg"
    assert run("--ranks", "2", "--chunks", "2", "--even", "2", "--svg", str(picture)).exit_code == 0
    assert "predicted step 9, bubble 33.3%" in picture.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--chunks 8 --even 8", "give --ranks (devices) or --stages (in all), and not both"),
        ("--chunks 8 --even 8 --ranks 2 --stages 2", "and not both"),
        (
            "--chunks 8 --stages 5 --schedule zbv --even 8",
            "does not divide 5 stages; give --ranks, or --stages 4 or 6",
        ),
        ("--chunks 8 --ranks 2 --even 8 --balance 4;4", "--balance takes numbers of layers, such as 8,8,8,8"),
        ("--chunks 8 --ranks 2 --even 8 --balance 4,5", "adds up to 9 layers, the model has 8"),
        ("--chunks 2 --ranks 4 --even 8", "at least 4, not 2; GPipe works with 2"),
        ("--chunks 8 --ranks 4 --even 8 --schedule vpp", "unknown schedule 'vpp'; known: GPipe"),
        ("--chunks 8 --ranks 4 --layer-times none.json", "none.json: cannot be read as JSON"),
    ],
)
def test_errors_teach(arguments, said):
    result = run(*arguments.split())
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "write it like"),
        ('{"layers": []}', "`layers` has no entry"),
        ('{"layers": [[1, 2]], "head": [1, 2]}', "write it like"),
        ('{"layers": [[1, 2], [1, -2]]}', "layers[1]: seconds of forward and backward expected"),
        ('{"layers": [[1, NaN]]}', "layers[0]: seconds"),
        ('{"layers": [[1, true]]}', "layers[0]: seconds"),
        ('{"layers": [[1]]}', "layers[0]: seconds"),
        ('{"layers": [[1, 2]], "after": 3}', "after: seconds"),
        ("{", "cannot be read as JSON"),
        ("[" * 100000, "cannot be read as JSON"),
    ],
)
def test_files_of_times_that_are_wrong(text, said, tmp_path):
    file = tmp_path / "times.json"
    file.write_text(text)
    result = run("--ranks", "1", "--chunks", "1", "--layer-times", str(file))
    assert result.exit_code == 2, result.output
    assert said in result.output
