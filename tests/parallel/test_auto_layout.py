"""`layout="auto"`: the advice for the processes at hand, and the next where a step runs out of memory."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest


pytest.importorskip("transformers")

from modular_converter.parallel import AutoLayout, Training, read_chosen  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.layout import Layout  # noqa: E402
from modular_converter.parallel.tuning import auto  # noqa: E402
from modular_converter.parallel.tuning.chosen import ChosenLayout, chosen_of  # noqa: E402
from tests.parallel.launch import launch, line_of  # noqa: E402


def found(case, processes=2):
    return line_of(processes, "tests/parallel/auto_script.py", case)


@pytest.mark.slow
def test_the_advice_is_taken_and_said_in_a_line_and_the_weights_are_the_callers():
    one = found("plain")
    assert one["same"] and len(one["said"]) == 1
    assert re.match(rf"Take {one['layout']}.* on 2xCPU: [\d.]+ GiB of [\d.]+ GiB a device", one["said"][0])


@pytest.mark.slow
def test_where_memory_runs_out_at_the_first_step_the_next_that_needs_less_is_taken():
    one = found("limited")
    assert one["layout"] in ("fsdp2", "tp2") and one["same"]
    assert one["said"][0].startswith("ddp2 ran out of memory: OutOfMemoryError: CUDA out of memory")
    assert "the next is taken" in one["said"][0] and one["said"][-1].startswith(f"Take {one['layout']}")


@pytest.mark.slow
def test_a_process_that_the_system_kills_has_run_out_of_memory_on_all():
    one = found("killed")
    assert one["layout"] in ("fsdp2", "tp2") and one["same"]
    assert "ran out of memory: a process was killed" in one["said"][0]


@pytest.mark.slow
def test_if_no_step_runs_all_processes_say_so():
    assert "no step ran: ddp2 ran out of memory" in found("nowhere")["error"]


@pytest.mark.slow
def test_if_nothing_fits_the_nearest_is_named():
    assert re.match(r'AdviceError: layout="auto": No layout of Llama.* the nearest, .*, needs', found("tiny")["error"])


@pytest.mark.parametrize(
    ("case", "cause"),
    [
        ("unknown GPU", "Own Graphics 9000 is a GPU of which no figures are known: name a layout"),
        pytest.param(
            "operations",
            r"give a smaller --sequence; here --sequence and --length are AutoLayout\(length=…\); or name a",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_message_says_what_a_caller_of_parallelize_writes(case, cause):
    error = found(case)["error"]
    assert re.search(cause, error) and error.startswith('AdviceError: layout="auto": ')
    assert 'name a layout, such as layout="fsdp2"' in error and "devices.toml" not in error


@pytest.mark.slow
def test_given_options_are_kept_and_stages_are_taken_only_if_asked_for():
    one = found("stages")
    assert one["layout"] == "pp2" and one["same"], one


def test_one_device(tmp_path):
    assert found("plain", 1)["layout"] == "tp1"


@pytest.mark.slow
def test_the_script_takes_it_and_the_file_of_a_choice(tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    chosen = {"layout": "fsdp2", "training": {"recompute": True}, "batch": 8, "accumulate": 2, "length": 24}
    (tmp_path / "best.json").write_text(json.dumps(chosen))
    for layout in ("auto", tmp_path / "best.json"):
        given = ["gpt2", tmp_path / "text.txt", "--folder", tmp_path / "run", "--length", 16, "--batch", 4]
        given += ["--device", "cpu", "--settings", "n_layer=2", "n_embd=32", "n_head=2", "attn_pdrop=0.0"]
        done = launch(2, "examples/train.py", *given, "--layout", layout, "--steps", 2 if layout == "auto" else 4)
        assert done.code == 0, done.errors[-3000:]
        assert ("Take " in done.errors) is (layout == "auto")
    assert "4/4 loss" in done.errors


CHOICE = {"layout": "fsdp2.tp2", "training": {"recompute": True}, "batch": 8, "accumulate": 2, "length": 64}


def test_a_choice_comes_back_from_its_file(tmp_path):
    (tmp_path / "best.json").write_text(json.dumps(CHOICE | {"measured": {"seconds": 1}}))
    made = read_chosen(tmp_path / "best.json")
    assert (
        made == ChosenLayout(Layout.parse("fsdp2.tp2"), Training(recompute=True), 8, 2, 64) and made.values() == CHOICE
    )
    assert made.rows == 2 and str(made) == "tp2.fsdp2 (recompute, 2 forwards)" or str(made).startswith("fsdp2.tp2")


def test_a_choice_says_whether_each_forward_sums_up_gradients():
    given = CHOICE | {"sync_each_batch": True}
    made = chosen_of(given, "f")
    assert made.sync_each_batch and made.values() == given and str(made).endswith("2 forwards, sync_each_batch)")


def test_the_callers_options_stay_beside_those_of_the_choice():
    made = chosen_of(CHOICE, "f")
    assert made.beside(Training(compute_type="bf16")) == Training(recompute=True, compute_type="bf16")
    staged = chosen_of({"layout": "pp2", "training": {"chunks": 4}, "batch": 8}, "f")
    with pytest.raises(ApplyError, match="training= has chunks=2, and the choice chunks=4: leave one out"):
        staged.beside(Training(chunks=2))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layout": "zero3"}, "zero3"),
        ({"batch": 3}, "batch 3 does not divide into 2 forwards of 2 ranks"),
        ({"batch": 0}, "does not divide"),
        ({"batch": "8"}, "whole numbers|TypeError"),
        ({"accumulate": 0}, "ZeroDivisionError|does not divide"),
        ({"sync_each_batch": 1}, "sync_each_batch is true or false"),
        ({"training": {"loss": 1}}, "unknown names loss"),
        ({"training": {"chunks": 0}}, "chunks=0"),
        ({"training": 3}, "no choice of a layout"),
        ({"more": 1}, "unknown names more"),
    ],
)
def test_other_files_are_refused(tmp_path, change, said):
    (tmp_path / "best.json").write_text(json.dumps(CHOICE | change))
    with pytest.raises(ApplyError, match=rf"best.json: .*({said})"):
        read_chosen(tmp_path / "best.json")


@pytest.mark.parametrize(
    ("missing", "cure"), [("batch", "rows of a step over all data ranks"), ("layout", '"layout": "fsdp2"')]
)
def test_a_file_that_lacks_something_says_what_to_write(tmp_path, missing, cure):
    (tmp_path / "best.json").write_text(json.dumps({k: v for k, v in CHOICE.items() if k != missing}))
    with pytest.raises(ApplyError, match=f"best.json: lacks {missing}: write the {cure}".replace('the "', '.*"')):
        read_chosen(tmp_path / "best.json")


def test_files_that_hold_no_choice_are_refused(tmp_path):
    with pytest.raises(ApplyError, match="none.json: cannot be read"):
        read_chosen(tmp_path / "none.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ApplyError, match="not an object"):
        read_chosen(tmp_path / "list.json")


@pytest.mark.parametrize("change", [{"batch": 0}, {"length": True}, {"timeout": 0}])
def test_values_that_a_question_cannot_have_are_refused(change):
    with pytest.raises(ApplyError, match=f"AutoLayout\\({next(iter(change))}="):
        AutoLayout(**change)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("pp2", "stages: give AutoLayout(stages=True), and call the result's step"),
        ("cp2", 'parts of each sequence, of which processes need the same rows: name layout="cp2"'),
        ("ddp2", "3 forwards a step: make them, and give AutoLayout(batch=4)"),
    ],
)
def test_what_the_callers_loop_must_do_is_told(layout, said):
    setting = SimpleNamespace(layout=Layout.parse(layout), accumulate=3, rows=6)
    assert auto._kind_of(SimpleNamespace(setting=setting)) == said
