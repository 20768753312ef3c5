"""``modular-plan schedule``: its options, its output, and its errors."""

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


SMALL = "--set hidden_size=64 --set intermediate_size=128 --set num_attention_heads=4 --set num_key_value_heads=4"
LLAMA = f"llama {SMALL} --set vocab_size=100 --layers 6 --length 32 --chunks 4 --batch 8".split()


def test_a_model_with_bytes(tmp_path):
    value = told(*LLAMA, "--ranks", "2", "--tflops", "0.001", "--bandwidth", "0.01", "--memory", "0.001")
    assert "0.000" in value["notes"][0] and "(2 x 32 tokens)" in value["notes"][0]
    assert "0.001 TFLOP/s, 0.01 GB/s between ranks, 8 bytes a parameter" in value["notes"][1]
    chosen, layer = value["chosen"], 4 * 64 * 64 + 3 * 64 * 128
    assert chosen["balance"] == [3, 3]
    assert chosen["transfer"] == pytest.approx(2 * 32 * 64 * 2 / 0.01e9)
    assert chosen["by_rank"][0]["state_bytes"] == 8 * (3 * (layer + 128) + 6400)
    forward = 2 * 64 * layer + 4 * 64 * 32 * 64 / 2
    assert chosen["actions"][0][0]["end"] == pytest.approx(3 * forward / 1e9)
    assert "GiB" in value["advice"][-1] or "MiB" in value["advice"][-1]
    times = tmp_path / "times.json"
    times.write_text(json.dumps({"layers": [[1, 2]] * 6}))
    measured = told(*LLAMA, "--ranks", "2", "--layer-times", str(times), "--inference")
    assert measured["chosen"]["actions"][0][0]["end"] == 3
    first, last = (rank["state_bytes"] for rank in measured["chosen"]["by_rank"])
    between = 4 * 2 * 32 * 64 * 2  # what passes between the stages, of all four micro-batches
    assert first == 2 * (3 * (layer + 128) + 6400) + between
    logits = 2 * 32 * 100 * 2  # of a micro-batch: kept for all four, and put together
    assert last == 2 * (3 * (layer + 128) + 6400 + 64) + 8 * logits + between
    times.write_text(json.dumps({"layers": [[1, 2]] * 5}))
    result = run(*LLAMA, "--ranks", "2", "--layer-times", str(times))
    assert (result.exit_code, "has 5 layers, the model has 6" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--chunks 8 --ranks 2", "give a MODEL, --layer-times FILE with measured times, or --even LAYERS"),
        ("llama --chunks 8 --ranks 2 --even 8", "--even stands for a model: give no MODEL"),
        (
            "llama --chunks 8 --ranks 2 --batch 20",
            "a batch of 20 rows does not divide into 8 micro-batches; --batch 16 or 24",
        ),
        ("llama --chunks 8 --ranks 2 --batch 4", "into 8 micro-batches; --batch 8 does"),
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
