"""``modular-plan``: derive, verify, write, show, compare and count tensor-parallel plans. Only commands import torch."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modular_converter.commands.options import CONTEXT_SETTINGS, version_option
from modular_converter.parallel.commands.advise import advise_command, memory_command
from modular_converter.parallel.commands.common import (
    derived_of,
    print_table,
    quiet_library,
    ranks_option,
    reports_errors,
    set_option,
)
from modular_converter.parallel.commands.kinds import committed, derive_command, plan_in_question, verify
from modular_converter.parallel.commands.run import run
from modular_converter.parallel.commands.schedule import predict_schedule
from modular_converter.parallel.commands.tune import tune_command
from modular_converter.parallel.commands.write import export_command, write
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.tested_versions import tell_untested


if TYPE_CHECKING:
    import torch

    from modular_converter.parallel.proof.prove import Derived

PIPE_WIDTH = 200
"""The columns of a table that is written to a file or a pipe."""


@click.group(context_settings=CONTEXT_SETTINGS)
@version_option("modular-plan")
def main() -> None:
    """Derive tensor-parallel plans from a model's own arithmetic, and prove them.

    MODEL is a model type (llama), a class path (package.module.Class), or a file of a models folder: modeling_x.py, or
    modular_x.py, which is converted in memory; with :Class behind it, another class than its base model. Deriving
    builds the model small with random weights and runs it, so the file is imported: give files that you trust. The
    converter itself never runs what it reads.

    \b
    Exit code: 0 success, 1 refused or different, 2 not possible.
    """
    # 0.83 of the CPU time of `derive llama` with Python's own thresholds, and the same peak of memory.
    gc.set_threshold(100_000, 20, 100)
    tell_untested()


@main.command()
@click.argument("models", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every model folder of the library with a modeling file.")
@click.option("--classics", is_flag=True, help="The 55 models that parallelformers had policies for.")
@click.option("--resume", type=click.Path(path_type=Path), help="A JSON-lines file to continue from and to append to.")
@ranks_option
@click.option("--date", default="", help="The date to print in the table.")
@reports_errors
def coverage(
    models: tuple[str, ...], everything: bool, classics: bool, resume: Path | None, ranks: int, date: str
) -> None:
    """Derive and prove many MODELS (model types, or folder:NAME); the table goes to stdout as Markdown.

    \b
    Exit code: 0 all of MODELS verified, 1 some not. Other rows of a file to resume from do not count.
    """
    if not (models or everything or classics):
        raise click.UsageError("name MODELS, or give --all or --classics")
    import torch
    import transformers
    from rich.console import Console
    from rich.progress import Progress

    from modular_converter.parallel.tables.coverage import CLASSICS, cover, folders, markdown

    quiet_library()
    names = [*models, *(CLASSICS.split() if classics else ()), *(f"folder:{name}" for name in folders() if everything)]
    versions = f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}"
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("models", total=len(names))
        rows = cover(names, resume, ranks, lambda row: progress.update(task, advance=1, description=row["model"]))
    click.echo(markdown(rows, versions, date), nl=False)
    asked = [row for row in rows if row["name"] in names]
    sys.exit(0 if all(row["state"] == "verified" for row in asked) else 1)


@main.command()
@click.argument("model")
@click.argument("plan_file", required=False)
@set_option
@ranks_option
@click.option("--full", is_flag=True, help="Shapes and bytes of the default configuration, in 2-byte numbers.")
@reports_errors
def show(model: str, plan_file: str | None, settings: tuple[str, ...], ranks: int, full: bool) -> None:
    """Print the derived plan, or that of PLAN_FILE, as a table.

    For each layer its style, its shape whole and on a rank, its communication, and its bytes; then bytes and
    collectives of each kind of layer. The shapes are those of the small instance that was traced, unless --full.
    """
    found, plan = plan_in_question(plan_file, lambda: derived_of(model, settings))
    if full:
        from modular_converter.parallel.tables.summary import full_model

        _show(found, plan, full_model(found.small.model), ranks, 2)
    else:
        _show(found, plan, found.small.model, ranks, 4)


def _show(found: Derived, plan: Plan, model: torch.nn.Module, ranks: int, width: int) -> None:
    from rich.console import Console

    from modular_converter.parallel.solve.choose import hindrances
    from modular_converter.parallel.solve.cost import collectives
    from modular_converter.parallel.tables.summary import amount, layers, rows

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    lines = []
    for row in rows(plan, model, ranks, width):
        sizes = (amount(row.bytes_whole), amount(row.bytes_rank)) if row.whole else ("", "")
        lines.append((row.layer, row.style, row.whole, row.local, row.communication, *sizes))
    head = ("layer", "style", "whole", f"1 of {ranks} ranks", "communication", "bytes", "a rank")
    print_table(console, head, lines, right=("bytes", "a rank"))
    calls = collectives(follow(found.trace), plan)
    kinds = layers(plan, model, found.small.model, calls, ranks, width)
    sums = []
    for kind in kinds:
        counts = ", ".join(f"{number} {name}" for name, number in kind.collectives.items()) or "none"
        sums.append((kind.name, str(kind.count), amount(kind.bytes_whole), amount(kind.bytes_rank), counts))
    whole = sum(kind.count * kind.bytes_whole for kind in kinds)
    share = sum(kind.count * kind.bytes_rank for kind in kinds)
    number = sum(kind.count * sum(kind.collectives.values()) for kind in kinds)
    sums.append(("the model", "1", amount(whole), amount(share), str(number)))
    titles = ("of each", "number", "bytes", "a rank", "collectives a forward")
    print_table(console, titles, sums, right=("number", "bytes", "a rank"))
    for line in plan.attributes:
        click.echo(f"shrinks with the shard: {line}")
    for pattern, reason in plan.whole:
        click.echo(f"whole: {pattern}: {reason}")
    for hindrance in hindrances(found.trace, plan):
        click.echo(f"not sharded by heads or blocks: {hindrance}")


@main.command()
@click.argument("model")
@set_option
@ranks_option
@reports_errors
def diff(model: str, settings: tuple[str, ...], ranks: int) -> None:
    """Compare the plan in MODEL's source with the derived one, line by line.

    Each line that differs is put into the plan of the source, which is then run against the whole model: the source's
    line is wrong, is needed, or is a choice. The source's plan is what transformers gathers for the model: of its
    configuration classes, and the vocabulary of embed_tokens that its loader adds.

    \b
    Exit code: 0 the same, 1 they differ, 2 it could not be compared.
    """
    from modular_converter.parallel.proof.compare_plans import outcome, points, source_plan

    found = derived_of(model, settings)
    source, unknown = source_plan(found)
    differ = False
    if not source.rules and not unknown:
        click.echo("the source has no plan")
    for point in points(found, source, ranks):
        differ = True
        click.echo(f"- {point.source or f'{point.pattern} (nothing)'}")
        click.echo(f"+ {point.derived or f'{point.pattern} (nothing)'}")
        if source.rules:
            click.echo(f"  {point.judgement}: {point.reason}")
    for key, style in unknown.items():
        click.echo(f"- {key} {style}\n  not judged: this style is not modelled here")
    for line in found.plan.attributes:
        click.echo(f"+ attribute {line}\n  not judged: transformers' plans cannot say that an integer shrinks")
    for name, plan in (("source", source), ("derived", found.plan)):
        ran = outcome(found, plan, ranks)
        state = f"refused: {ran.reason}" if ran.reason else "verified"
        click.echo(f"{name}: {state}; {ran.bytes_rank} bytes a rank, {ran.collectives} collectives a forward")
    sys.exit(1 if differ or unknown or found.plan.attributes else 0)


ADVICE = (memory_command, advise_command, tune_command)
for command in (derive_command, verify, write, export_command, committed, run, predict_schedule, *ADVICE):
    main.add_command(command)


if __name__ == "__main__":
    main()
