"""`LayoutTrainer` trains and evaluates as transformers' `Trainer` on one process, or refuses before the first step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


pytest.importorskip("transformers")

import torch  # noqa: E402

from modular_converter.parallel.errors import ApplyError, MissingLibraryError  # noqa: E402
from modular_converter.parallel.layout import Layout  # noqa: E402
from modular_converter.parallel.trainer import layout_trainer  # noqa: E402
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


@pytest.mark.parametrize(
    ("args", "config", "said"),
    [
        ({"load_best_model_at_end": True}, {}, "leave out load_best_model_at_end, since Trainer would load whole"),
        ({}, {"dispatch_batches": True}, "leave out dispatch_batches: each"),
        ({}, {"even_batches": False}, "leave out even_batches=False: each"),
        ({"eval_use_gather_object": True}, {}, "leave out eval_use_gather_object: each"),
        ({"average_tokens_across_devices": False}, {}, "leave out average_tokens_across_devices=False: each"),
        ({}, {}, ""),
    ],
)
def test_options_by_which_rows_are_shared_otherwise_are_refused(args, config, said):
    usual = {"load_best_model_at_end": False, "eval_use_gather_object": False, "average_tokens_across_devices": True}
    accelerator = SimpleNamespace(**{"dispatch_batches": None, "even_batches": True, **config})
    try:
        layout_trainer._check_options(SimpleNamespace(**usual | args, accelerator_config=accelerator))
    except ApplyError as error:
        assert said and said in str(error)
    else:
        assert not said


def test_a_model_of_other_processes_is_refused(monkeypatch):
    monkeypatch.setattr(layout_trainer.dist, "get_world_size", lambda: 4)
    for layout, said in (("tp2", "over all processes, and not mesh="), ("pp2.tp2", "no steps of stages")):
        with pytest.raises(ApplyError, match=said):
            layout_trainer._check_model(SimpleNamespace(layout=Layout.parse(layout)))
    with pytest.raises(ApplyError, match="Linear is not parallelized: give LayoutTrainer the result of"):
        layout_trainer._check_model(torch.nn.Linear(2, 2))


def test_a_search_without_optuna_names_the_extra(monkeypatch):
    monkeypatch.setattr(layout_trainer.importlib.util, "find_spec", lambda name: None)
    trainer = SimpleNamespace(model_init=lambda: None)
    with pytest.raises(MissingLibraryError, match=r"optuna is not installed; .*extra `tune`"):
        layout_trainer.LayoutTrainer.hyperparameter_search(trainer)


def test_a_space_names_arguments_alone():
    space, args = layout_trainer._known_only(lambda trial: trial, SimpleNamespace(known=1)), {"known": 2}
    assert space(args) == args
    with pytest.raises(ApplyError, match="hp_space gives lr, wd, which TrainingArguments do not have"):
        space({"lr": 1, **args, "wd": 2})


def test_a_loss_of_ones_own_is_tried_once_with_the_number_doubled():
    calls, three = [], torch.arange(3.0)

    def total(outputs, labels, num_items_in_batch=None):
        calls.append((labels, num_items_in_batch))
        return outputs.sum() / (num_items_in_batch or 1)

    def checked(own, data):
        trainer = SimpleNamespace(model=SimpleNamespace(layout=SimpleNamespace(data=data)), _loss_is_checked=False)
        return layout_trainer.LayoutTrainer._checked_loss(trainer, own)

    loss = checked(total, 2)
    assert loss(three, "labels") == 3.0 and calls == [("labels", None)]
    assert loss(three, "labels", num_items_in_batch=6) == loss(three, "labels", num_items_in_batch=6) == 0.5
    assert calls[1:] == [("labels", 6), ("labels", 12), ("labels", 6)]
    assert checked(lambda outputs, labels, num_items_in_batch: outputs.mean(), 1)(three, None, 3) == 1.0
    with pytest.raises(ApplyError, match="must return a sum divided by num_items_in_batch"):
        checked(lambda outputs, labels, num_items_in_batch: outputs.mean(), 2)(three, None, 3)
