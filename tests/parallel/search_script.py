"""The work of each process of `test_search.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import weakref

import optuna
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments, default_data_collator

from modular_converter.parallel import LayoutTrainer, parallelize
from modular_converter.parallel.trainer import search
from tests.parallel.trainer_script import SIZES, error_of


ROWS = [{"input_ids": ids, "labels": ids} for ids in torch.arange(1, 9 * 16 + 1).remainder(61).view(-1, 9)]
MADE = []
"""Each model, for as long as it is there, and how many were there when it was made."""


def trainer_of(layout, **more):
    def model_init(trial=None):
        gc.collect()
        heads = 4 if trial is None else trial.suggest_categorical("heads", [2, 4])
        config = LlamaConfig(**SIZES, num_attention_heads=heads, num_key_value_heads=heads)
        made = parallelize(LlamaForCausalLM(config), layout=layout, device="cpu", probe=False)
        MADE.append((weakref.ref(made), sum(one() is not None for one, _ in MADE)))
        return made

    usual = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4}
    usual |= {"save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True}
    given = TrainingArguments(output_dir=tempfile.mkdtemp(), **(usual | more))
    data = {"train_dataset": ROWS, "eval_dataset": ROWS[:8], "data_collator": default_data_collator}
    return LayoutTrainer(model_init=model_init, args=given, **data)


def space(trial):
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
        "per_device_train_batch_size": trial.suggest_int("per_device_train_batch_size", 1, 4),
        "gradient_accumulation_steps": trial.suggest_int("gradient_accumulation_steps", 1, 2),
        "seed": trial.suggest_int("seed", 0, 9),
    }


class Noted:
    """What each process draws in each trial."""

    def __init__(self, draw=space):
        self.draw, self.trials = draw, []

    def __call__(self, trial):
        drawn = self.draw(trial)
        self.trials.append([trial.number, drawn])
        return drawn


class OddTrials(optuna.pruners.BasePruner):
    """Stops every other trial at its first figure."""

    def prune(self, study, trial):
        return trial.number % 2 == 1


def everywhere(value):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def one_objective(layout, folder):
    """Trials that are drawn, pruned and repeated by hand, and more of the same study."""
    noted, trainer = Noted(), trainer_of(layout)
    kept = {"storage": f"sqlite:///{folder}/{layout}.db", "study_name": "own", "load_if_exists": True}
    kept |= {"pruner": OddTrials(), "sampler": optuna.samplers.RandomSampler(seed=1)}
    best = trainer.hyperparameter_search(noted, n_trials=4, **kept)
    before = trainer.args.learning_rate, trainer.args.per_device_train_batch_size
    for name, value in best.hyperparameters.items():
        if name != "heads":
            setattr(trainer.args, name, value)
    models = [there for _, there in MADE[1:]]
    again = by_hand(trainer, best.hyperparameters["heads"])
    more = trainer.hyperparameter_search(Noted(), n_trials=1, **kept)
    summary = best.run_summary
    return {
        "drawn": everywhere(noted.trials),
        "best": everywhere([best.run_id, best.objective, best.hyperparameters]),
        "states": [[one.number, one.state, one.params] for one in summary.trials],
        "values": [one.values[0] for one in summary.trials if one.state == "complete"],
        "again": again,
        "own arguments": before,
        "models there": models,
        "trials in the end": len(more.run_summary.trials),
        "picture": summary.picture(["loss"]),
    }


def by_hand(trainer, heads):
    """The objective of a training with the arguments of a trial, without a search."""
    init = trainer.model_init
    fixed = optuna.trial.FixedTrial({"heads": heads})
    trainer.model_init = lambda: init(fixed)
    trainer.train()
    trainer.model_init = init
    return trainer.evaluate()["eval_loss"]


def several_objectives(layout):
    trainer = trainer_of(layout)
    objectives = lambda found: (found["eval_loss"], float(trainer.args.per_device_train_batch_size))  # noqa: E731
    sampler = optuna.samplers.RandomSampler(seed=2)
    best = trainer.hyperparameter_search(
        space, objectives, n_trials=5, direction=["minimize", "maximize"], sampler=sampler, pruner=OddTrials()
    )
    summary = best[0].run_summary
    return {
        "best": everywhere([[one.run_id, one.objective] for one in best]),
        "values": [one.values for one in summary.trials],
        "picture": summary.picture(["loss", "rows"]),
        "table": summary.table(["loss", "rows"]),
    }


def troubled(layout, folder):
    """Trials that fail on all processes, or on one of them at their end; and searches that are refused."""

    def some_fail(trial):
        drawn = space(trial)
        if trial.number == 0:
            raise ValueError("of the space")
        return drawn

    def objective(found):
        if dist.get_rank() == 1 and last.trials[-1][0] == 1:
            raise ValueError("of one process")
        return found["eval_loss"]

    trainer, last = trainer_of(layout, eval_strategy="no"), Noted(some_fail)  # evaluated at the end of a trial
    best = trainer.hyperparameter_search(last, objective, n_trials=3, catch=(ValueError,))
    rank = dist.get_rank()
    other = lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-4, (rank + 1) * 1e-1)}  # noqa: E731
    never = {"pruner": type("All", (optuna.pruners.BasePruner,), {"prune": lambda *given: True})()}
    search_of = trainer.hyperparameter_search
    kept = {"storage": f"sqlite:///{folder}/two.db", "study_name": "own", "load_if_exists": True}
    ways, both = (["minimize", "maximize"], ["minimize", "minimize"]), lambda found: (found["eval_loss"], 1.0)
    return {
        "states": [[one.state, one.why] for one in best.run_summary.trials],
        "best": everywhere(best.run_id),
        "other space": error_of(lambda: search_of(other, n_trials=1)),
        "unknown": error_of(lambda: search_of(lambda trial: {"lr": 1.0}, n_trials=1)),
        "figures": error_of(lambda: search_of(space, n_trials=1, direction=["minimize"] * 2)),
        "directions": error_of(lambda: [search_of(space, both, n_trials=1, direction=one, **kept) for one in ways]),
        "storage": error_of(lambda: search_of(space, n_trials=1, storage="nowhere://")),
        "ray": error_of(lambda: search_of(space, n_trials=1, backend="ray")),
        "endless": error_of(lambda: search_of(space, n_trials=None)),
        "jobs": error_of(lambda: search_of(space, n_trials=1, n_jobs=2)),
        "all pruned": error_of(lambda: trainer_of(layout).hyperparameter_search(space, n_trials=1, **never)),
        "no model_init": error_of(
            lambda: LayoutTrainer(model=trainer.call_model_init(), args=trainer.args).hyperparameter_search(space)
        ),
    }


def alone(layout):
    """A process leaves a trial that the others are still in."""
    search.ALONE_S = 2.0

    def objective(found):
        if dist.get_rank() == 1:
            raise optuna.TrialPruned
        dist.barrier()  # in which the first process waits for it
        return found["eval_loss"]

    trainer_of(layout).hyperparameter_search(space, objective, n_trials=2)


def main(case, layout, folder):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    cases = {"one": lambda: one_objective(layout, folder), "several": lambda: several_objectives(layout)}
    cases |= {"troubled": lambda: troubled(layout, folder), "alone": lambda: alone(layout)}
    found = cases[case]()
    if dist.get_rank() == 0:
        print(json.dumps({"found": found}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
