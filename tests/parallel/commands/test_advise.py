"""`modular-plan memory` and `modular-plan advise` on a small model: what their options and formats say."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner


pytest.importorskip("transformers")

from modular_converter.parallel.cli import main  # noqa: E402


FIELDS = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 128}
SMALL = [word for name, value in FIELDS.items() for word in ("--set", f"{name}={value}")]


def ran(command, *options):
    return CliRunner().invoke(main, [command, "llama", *SMALL, *options])


def memory(*options):
    return ran("memory", "--layout", "ddp2.tp2", "--devices", "H100-80GB", "--length", "16", *options)


@pytest.mark.usefixtures("nothing_kept")
def test_the_memory_of_a_layout_is_a_table_or_json():
    done = memory("--batch", "6", "--accumulate", "3")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and lines[0].startswith("LlamaForCausalLM, ") and lines[0].endswith(", 3 x 16 tokens")
    assert "ddp2.tp2" in lines[0] and lines[-1].split()[0] == "all"
    whole = memory("--format", "json", "--strict", "--dtype", "float32")
    found = json.loads(whole.stdout)
    assert (whole.exit_code, found["model"], found["device"], found["layout"]) == (0, "llama", "H100-80GB", "ddp2.tp2")
    one = json.loads(memory("--format", "json").stdout)  # bfloat16
    assert 2 * one["weights"] == found["weights"] > 0
    answers = memory("--infer", "--tokens", "5")
    assert answers.exit_code == 0 and "optimizer" not in answers.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--batch", "3"), "--batch 3 does not divide over the 2 data ranks of ddp2.tp2"),
        (("--chunks", "2"), "2 micro-batches need a layout with pp"),
        (("--tokens", "5"), "these are tokens of an answer: give --infer, too, or leave it out"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, said):
    done = memory(*options)
    assert done.exit_code == 2 and said in done.stderr


@pytest.mark.usefixtures("nothing_kept")
def test_advice_is_a_line_and_a_table_json_or_a_page():
    def advice(*options):
        done = ran("advise", "--devices", "2xH100-80GB", "--length", "16", *options)
        assert done.exit_code == 0, done.output
        return done.stdout

    text = advice("--most", "2").splitlines()
    found = json.loads(advice("--format", "json"))
    assert text[0] == found["recommended"] and text[-1] == found["line"] and text[1] == text[-2] == ""
    assert text[2].split()[:3] == ["layout", "options", "memory"]
    assert (found["model"], found["devices"]) == ("LlamaForCausalLM", "2xH100-80GB")
    assert {one["rows"] for one in found["candidates"] if one["layout"].startswith(("ddp", "fsdp"))} == {1}
    page = advice("--format", "html")
    assert page.startswith("<!doctype html>") and found["recommended"][:20] in page
    assert page.count("<tr>") > len(found["candidates"]) and "<h2>All layouts</h2>" in page


def test_devices_are_named_or_measured(tmp_path):
    for options, said in (
        (("--calibrate", str(tmp_path / "no" / "here.toml")), f"there is no folder {tmp_path}/no"),
        (("--calibrate", "here.toml", "--devices", "H100-80GB"), "give it without --devices and --cluster"),
        (("--processes", "2"), "these measure with --calibrate FILE"),
        (("--devices", "H100-80GB", "--train", "adma"), "adma"),
    ):
        done = ran("advise", *options)
        assert done.exit_code == 2 and said in done.stderr, done.output
