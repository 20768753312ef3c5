"""``modular-plan``: derive, verify, write, show, compare and count tensor-parallel plans. Only commands import torch."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import click

from modular_converter.commands.options import CONTEXT_SETTINGS, version_option
from modular_converter.parallel.commands.advise import advise_command, memory_command
from modular_converter.parallel.commands.common import (
    derived_of,
    form_option,
    plan_text,
    quiet_library,
    ranks_option,
    reports_errors,
    set_option,
)
from modular_converter.parallel.commands.kinds import (
    committed,
    derive_kind,
    kind_option,
    print_json,
    print_plan,
    print_verdict,
    verify_kind,
)
from modular_converter.parallel.commands.run import run
from modular_converter.parallel.commands.schedule import predict_schedule
from modular_converter.parallel.commands.show import diff, show
from modular_converter.parallel.commands.tune import tune_command
from modular_converter.parallel.commands.write import export_command, write
from modular_converter.parallel.tested_versions import tell_untested


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
    tell_untested()


@main.command("derive")
@click.argument("model")
@set_option
@click.option("--head", type=click.Choice(["base", "causal"]), default="base", show_default=True)
@form_option
@click.option("--unverified", is_flag=True, help="Print the plan even if it fails its check.")
@click.option(
    "--max-collectives", "limit", type=click.IntRange(0), metavar="N", help="The most collectives of a forward."
)
@kind_option
@reports_errors
def derive_command(
    model: str, settings: tuple[str, ...], head: str, form: str, unverified: bool, limit: int | None, kind: str
) -> None:
    """Print the plan of MODEL, checked on two ranks (a pipeline plan: in two stages) within this process."""
    if kind != "tensor":
        derive_kind(kind, model, settings, head, form, unverified)
        return
    found = derived_of(model, settings, head)
    if limit is not None:
        from modular_converter.parallel.choice.same_numbers import derived_with_numbers
        from modular_converter.parallel.proof.prove import restricted_to

        found = derived_with_numbers(restricted_to(found, limit))
    print_plan(model, plan_text(found, form), found.verdict, unverified)
    for hindrance in found.hindrances:
        click.echo(f"modular-plan: {model}: {hindrance}", err=True)


@main.command()
@click.argument("model")
@click.argument("plan_file", required=False)
@set_option
@ranks_option
@click.option("--library", is_flag=True, help="Prove the plan through transformers' own loader, too.")
@click.option("--verbose", is_flag=True, help="Print the whole scope: sizes, kinds of layers, operators, weights.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each verdict, with its whole scope.")
@kind_option
@reports_errors
def verify(
    model: str,
    plan_file: str | None,
    settings: tuple[str, ...],
    ranks: int,
    library: bool,
    verbose: bool,
    as_json: bool,
    kind: str,
) -> None:
    """Prove the plan in PLAN_FILE (or the derived one) on gloo processes: outputs and parameter gradients.

    A pipeline plan runs stage by stage in this process instead; only the named tensors are handed over.
    """
    say = print_json if as_json else functools.partial(print_verdict, verbose=verbose)
    sys.exit(0 if verify_kind(kind, model, plan_file, settings, ranks, library, say) else 1)


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


ADVICE = (memory_command, advise_command, tune_command)
for command in (show, diff, write, export_command, committed, run, predict_schedule, *ADVICE):
    main.add_command(command)


if __name__ == "__main__":
    main()
