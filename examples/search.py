"""Search hyper-parameters of a causal model on a text, in any layout without pp: a script to copy.

    torchrun --nproc-per-node 2 examples/search.py gpt2 text.txt --layout fsdp2 --trials 12 --picture front.svg

The model is a folder or a type, as for train.py. Change `space` to what you search. All processes run each trial together;
one owns the study. With --storage, the trials of a later run are added to those that are there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import torch
import torch.distributed as dist
from train import model_and_tokenizer, text_of
from transformers import TrainerCallback, TrainingArguments

from modular_converter.parallel import LayoutTrainer, parallelize
from modular_converter.parallel.errors import PlanError


UNITS = {"loss": "loss of the last tenth of the text", "seconds": "seconds of training"}


def space(trial: optuna.Trial) -> dict[str, Any]:
    """What a trial draws, by the names of `TrainingArguments`."""
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
        "weight_decay": trial.suggest_float("weight_decay", 0.0, 0.3),
        "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [1, 2, 4]),
    }


class Clock(TrainerCallback):
    """When the training of a trial began."""

    begin = 0.0

    def on_train_begin(self, *given: Any, **more: Any) -> None:
        self.begin = time.perf_counter()


def main() -> None:
    """Search, and write down the best."""
    options = arguments()
    rows = rows_of(options)
    held_out = max(1, len(rows) // 10)
    clock = Clock()

    def objectives(metrics: dict[str, float]) -> list[float]:
        found = {"loss": metrics["eval_loss"], "seconds": time.perf_counter() - clock.begin}
        return [found[name] for name in options.objectives]

    trainer = LayoutTrainer(
        model_init=lambda: parallelize(
            model_and_tokenizer(options)[0], layout=options.layout, device="cpu" if options.cpu else None
        ),
        args=TrainingArguments(
            output_dir=str(options.folder),
            max_steps=options.steps,
            eval_strategy="steps",
            eval_steps=max(1, options.steps // 4),  # where a trial may be pruned
            save_strategy="no",
            report_to=[],
            use_cpu=options.cpu,
            disable_tqdm=True,
            seed=options.seed,
        ),
        train_dataset=rows[:-held_out],
        eval_dataset=rows[-held_out:],
        callbacks=[clock],
    )
    several = len(options.objectives) > 1
    storage = f"sqlite:///{options.storage.resolve()}" if options.storage else None
    best = trainer.hyperparameter_search(
        space,
        objectives if several else lambda metrics: objectives(metrics)[0],
        n_trials=options.trials,
        direction=["minimize"] * len(options.objectives),
        sampler=optuna.samplers.TPESampler(seed=options.seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
        storage=storage,
        study_name="search",
        load_if_exists=True,
    )
    if dist.get_rank() == 0:
        report(best if several else [best], options)
    dist.destroy_process_group()


def report(best: list[Any], options: argparse.Namespace) -> None:
    """Print the trials, and write the best of the first objective, and the picture of all."""
    summary = best[0].run_summary
    head, rows = summary.table(options.objectives)
    for row in (head, *rows):
        sys.stdout.write(" | ".join(row) + "\n")
    options.output.write_text(json.dumps(best[0].hyperparameters, indent=2) + "\n", encoding="utf-8")
    if options.picture:
        options.picture.write_text(summary.picture([UNITS[name] for name in options.objectives]), encoding="utf-8")


def rows_of(options: argparse.Namespace) -> list[dict[str, torch.Tensor]]:
    """The text, cut into sequences."""
    tokenizer = model_and_tokenizer(options)[1]
    tokens = torch.tensor(tokenizer(text_of(options.text))["input_ids"])
    found = [{"input_ids": ids, "labels": ids} for ids in tokens.split(options.length) if len(ids) == options.length]
    if len(found) < 2:
        raise SystemExit(
            f"{options.text} has {len(tokens)} tokens, and a sequence is --length {options.length}: give a longer text, "
            "or a shorter length"
        )
    return found


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model's folder, or a type of transformers such as gpt2")
    parser.add_argument("text", type=Path)
    parser.add_argument("--layout", default="tp1", help="such as fsdp2.tp2")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100, help="of a trial")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--objective", dest="objectives", choices=UNITS, action="append", help="several may be given")
    parser.add_argument("--storage", type=Path, help="a file of sqlite that keeps the study")
    parser.add_argument("--output", type=Path, default=Path("hyperparameters.json"))
    parser.add_argument("--picture", type=Path, help="a file for an SVG of all trials")
    parser.add_argument("--folder", type=Path, default=Path("run"))
    parser.add_argument("--settings", nargs="*", default=[], metavar="NAME=VALUE", help="of a model given by its type")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.objectives = list(dict.fromkeys(options.objectives or ["loss"]))
    options.cpu = options.cpu or not torch.cuda.is_available()
    return options


if __name__ == "__main__":
    try:
        main()
    except PlanError as error:  # which says what to write instead
        raise SystemExit(str(error)) from None
