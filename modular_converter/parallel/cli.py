"""``modular-plan``: derive, show, verify, compare and count tensor-parallel plans. Only the commands import torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plan import Plan


@click.group()
def main() -> None:
    """Derive tensor-parallel plans from a model's own arithmetic, and prove them.

    MODEL is a model type (llama) or the dotted path of a model class. Exit code: 0 well, 1 refused, 2 could not.
    """


def _fail(error: PlanError) -> None:
    click.echo(f"modular-plan: {error}", err=True)
    sys.exit(2)


def _overrides(settings: tuple[str, ...]) -> dict[str, Any]:
    import ast

    found: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"--set takes field=value, not {text!r}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def _derived(model: str, settings: tuple[str, ...], head: str = "base") -> Any:
    from transformers.utils import logging

    from modular_converter.parallel.prove import derive_model
    from modular_converter.parallel.tiny.build import target_of

    logging.set_verbosity_error()
    return derive_model(target_of(model, head), _overrides(settings))


def _read(path: str) -> Plan:
    text = Path(path).read_text(encoding="utf-8")
    return Plan.from_json(text) if text.lstrip().startswith("{") else Plan.parse(text)


_SET = click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="a configuration value")
_RANKS = click.option("--ranks", default=2, show_default=True, help="number of ranks")


@main.command()
@click.argument("model")
@_SET
@click.option("--head", type=click.Choice(["base", "causal"]), default="base", show_default=True)
@click.option("--format", "form", type=click.Choice(["text", "json", "transformers"]), default="text")
@click.option("--unverified", is_flag=True, help="print the plan even if it fails its screen")
def derive(model: str, settings: tuple[str, ...], head: str, form: str, unverified: bool) -> None:
    """Print the plan of MODEL, screened on two ranks within this process."""
    from modular_converter.parallel.emit import to_library

    try:
        found = _derived(model, settings, head)
        if not found.screen.passed and not unverified:
            click.echo(f"modular-plan: {model}: {found.screen.layer}: {found.screen.reason}", err=True)
            sys.exit(1)
        if form == "transformers":
            import json

            text = json.dumps(to_library(found.plan), indent=4) + "\n"
        else:
            text = found.plan.to_json() if form == "json" else str(found.plan)
        click.echo(text, nl=False)
    except PlanError as error:
        _fail(error)


@main.command()
@click.argument("model")
@click.argument("plan_file", required=False)
@_SET
@_RANKS
@click.option("--library", is_flag=True, help="also through transformers' own loader")
def verify(model: str, plan_file: str | None, settings: tuple[str, ...], ranks: int, library: bool) -> None:
    """Prove the plan in PLAN_FILE (or the derived one) on gloo processes: outputs and parameter gradients."""
    from modular_converter.parallel.prove import prove
    from modular_converter.parallel.ranks import RankPool
    from modular_converter.parallel.report import static_findings
    from modular_converter.parallel.resolve import resolve

    try:
        found = _derived(model, settings)
        plan = _read(plan_file) if plan_file else found.plan
        findings = static_findings(found.trace, plan, resolve(plan, found.small.model).pieces, ranks)
        for line in findings:
            click.echo(line)
        passed = not findings
        with RankPool(ranks) as pool:
            for route in [False, True] if library else [False]:
                verdict = prove(found, plan, pool, library=route)
                name = "library loader" if route else "our application"
                state = "verified" if verdict.passed else f"refused: {verdict.layer}: {verdict.reason}"
                errors = f"outputs {verdict.output_error:.1e}, gradients {verdict.gradient_error:.1e}"
                click.echo(f"{model} on {ranks} ranks, {name}: {state} ({errors})")
                passed = passed and verdict.passed
    except PlanError as error:
        _fail(error)
    sys.exit(0 if passed else 1)


@main.command()
@click.argument("model")
@_SET
@_RANKS
def show(model: str, settings: tuple[str, ...], ranks: int) -> None:
    """A table of the derived plan: layer, style, shape whole and a rank, communication; bytes and collectives."""
    from rich.console import Console
    from rich.table import Table

    from modular_converter.parallel.report import cost, table
    from modular_converter.parallel.resolve import resolve

    try:
        found = _derived(model, settings)
    except PlanError as error:
        _fail(error)
    grid = Table("layer", "style", "whole", f"1 of {ranks} ranks", "communication")
    for row in table(found.trace, found.plan, ranks):
        grid.add_row(*row)
    total = cost(found.trace, found.plan, resolve(found.plan, found.small.model).pieces, ranks)
    Console().print(grid)
    click.echo(
        f"small instance: {total.whole} bytes whole, {total.rank} a rank; {total.collectives} collectives a forward"
    )
    for name in found.plan.attributes:
        click.echo(f"shrinks with the shard: {name}")
    for pattern, reason in found.plan.whole:
        click.echo(f"whole: {pattern}: {reason}")


@main.command()
@click.argument("model")
@_SET
def diff(model: str, settings: tuple[str, ...]) -> None:
    """The derived plan against the one in the model's configuration class, each screened on two ranks."""
    from modular_converter.parallel.compare import check_in_threads
    from modular_converter.parallel.emit import from_library

    try:
        found = _derived(model, settings)
        committed = getattr(found.small.model.config, "base_model_tp_plan", None) or {}
        source = from_library(model, committed)
    except PlanError as error:
        _fail(error)
    left = {rule.pattern: str(rule) for rule in source.rules}
    right = {rule.pattern: str(rule) for rule in found.plan.rules}
    for pattern in sorted(left | right):
        if left.get(pattern) != right.get(pattern):
            click.echo(f"- {left[pattern]}" if pattern in left else f"- {pattern} (nothing)")
            click.echo(f"+ {right[pattern]}" if pattern in right else f"+ {pattern} (nothing)")
    for name, plan in (("source", source), ("derived", found.plan)):
        verdict = check_in_threads(found.small.model, plan, found.small.inputs, 2)
        click.echo(f"{name}: {'verified' if verdict.passed else 'refused: ' + verdict.reason}")
    sys.exit(0 if left == right else 1)


@main.command()
@click.argument("models", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="every model type with a base model")
@click.option("--resume", type=click.Path(path_type=Path), help="a JSON-lines file to go on from and append to")
@click.option("--ranks", "sizes", multiple=True, type=int, default=(2,), show_default=True)
@click.option("--date", default="", help="the date to print in the table")
def coverage(
    models: tuple[str, ...], everything: bool, resume: Path | None, sizes: tuple[int, ...], date: str
) -> None:
    """Derive and prove many MODELS; the table goes to stdout as markdown."""
    import torch
    import transformers
    from rich.console import Console
    from rich.progress import Progress
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    from modular_converter.parallel.coverage import cover, markdown

    transformers.logging.set_verbosity_error()
    names = sorted(MODEL_MAPPING_NAMES) if everything else list(models)
    versions = f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}"
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("models", total=len(names))
        rows = cover(names, resume, sizes, lambda row: progress.update(task, advance=1, description=row["model"]))
    click.echo(markdown(rows, versions, date), nl=False)
    sys.exit(0 if all(row["state"] == "verified" for row in rows) else 1)


if __name__ == "__main__":
    main()
