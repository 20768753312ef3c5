"""`LayoutTrainer` trains and evaluates as transformers' `Trainer` on one process, or refuses before the first step."""

from __future__ import annotations

import pytest


pytest.importorskip("transformers")

from tests.parallel.launch import launch, line_of  # noqa: E402


LAYOUTS = ("ddp2.tp2", "fsdp4", "fsdp2.cp2/2", "fsdp2.tp2/2", "ddp2.fsdp2/2", "tp4/2")
"""A layout, and the forwards of a step."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("trainer") / "alone.pt"
    assert (done := launch(1, "tests/parallel/trainer_script.py", path)).code == 0, done.errors[-3000:]
    return path


@pytest.fixture(scope="module")
def found(alone):
    return line_of(4, "tests/parallel/trainer_script.py", alone, *LAYOUTS, "refused")


def test_two_processes_train_and_evaluate_as_one(alone):
    found = line_of(2, "tests/parallel/trainer_script.py", alone, "fsdp2", "classifier")
    same(found["fsdp2"])
    assert found["classifier"] < 1e-4, found


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_trains_and_evaluates_as_one_process(found, layout):
    same(found[layout])


def same(one):
    assert one["norms"] < 1e-5 and one["weights"] < 1e-4 and one["losses"] < 1e-3 and one["held out"] < 1e-3, one


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("plain shares", "ApplyError: tp4: this model has shares that are plain tensors"),
        ("shares of joined projections", "such as transformer.h.0.attn.c_attn.bias, which a Trainer would count once"),
        ("not parallelized", "ApplyError: LlamaForCausalLM is not parallelized: give LayoutTrainer the result of"),
        ("stages", "a Trainer has no steps of stages: take a layout without pp"),
        ("best model", "leave out load_best_model_at_end, since Trainer would load whole weights into shares"),
        ("loss of a mean", "compute_loss_func must return a sum divided by num_items_in_batch"),
        ("other rows", "leave out dispatch_batches, average_tokens_across_devices=False: each data rank"),
    ],
)
def test_what_would_train_otherwise_is_refused(found, case, reason):
    assert reason in found[case]
