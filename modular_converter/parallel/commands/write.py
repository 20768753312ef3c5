"""``modular-plan write`` and ``export``: a derived plan put into the model's source, or into the form that another tool takes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from modular_converter.parallel.commands.common import (
    derived_of,
    overrides_of,
    quiet_library,
    ranks_option,
    reports_errors,
    set_option,
    write_text,
)
from modular_converter.parallel.errors import WriteError
from modular_converter.parallel.plans.text_checks import placed


if TYPE_CHECKING:
    from modular_converter.parallel.exports.export import Export, Memory
    from modular_converter.parallel.source import SourceChange
    from modular_converter.parallel.tiny.target import ModelingFile


@click.command()
@click.argument("model")
@set_option
@ranks_option
@click.option("--json", "json_path", metavar="FILE", help="Write the plan to FILE as JSON, and no source.")
@click.option("--dry-run", is_flag=True, help="Name the files that would change, and write nothing.")
@click.option("--diff", is_flag=True, help="Print what would change, and write nothing.")
@click.option("--no-convert", is_flag=True, help="Leave the generated files as they are.")
@click.option("--unverified", is_flag=True, help="Write the plan without proving it.")
@reports_errors
def write(
    model: str,
    settings: tuple[str, ...],
    ranks: int,
    json_path: str | None,
    dry_run: bool,
    diff: bool,
    no_convert: bool,
    unverified: bool,
) -> None:
    """Write the plan of MODEL into its source, once it is proven.

    MODEL is a file: modular_x.py, or modeling_x.py for a model without one; with :Class, that base model only. The
    plan goes into the configuration classes (base_model_tp_plan) and the head classes (_tp_plan), of the modular file
    where there is one; its generated files are converted with it. The model is imported and run.

    \b
    Exit code: 0 written or already so; 1 differences with --dry-run or --diff; 2 refused.
    """
    if json_path:
        _write_json(model, settings, ranks, json_path, unverified)
        return
    from modular_converter.parallel.source import heirs, write_changes

    file, found = _changes(model, settings, ranks, convert=not no_convert, unverified=unverified)
    if not found:
        click.echo("nothing to write: the source already has this plan")
        return
    if dry_run or diff:
        _show(found, diff)
        sys.exit(1)
    write_changes(found)
    for change in found:
        click.echo(f"{os.path.relpath(change.path)}: written")
    for path in heirs(file, found):
        click.echo(f"{os.path.relpath(path)} inherits from it: `modular-plan write {os.path.relpath(path)}`", err=True)


def _changes(
    model: str, settings: tuple[str, ...], ranks: int, convert: bool, unverified: bool
) -> tuple[ModelingFile, list[SourceChange]]:
    from modular_converter.parallel.proof.on_ranks import RankPool
    from modular_converter.parallel.source import changes, refuse_installed, settings_to_write
    from modular_converter.parallel.tiny.target import base_classes, chosen

    quiet_library()
    file, name = _file(model)
    refuse_installed(file.path)
    bases = [chosen(file, name)] if name else base_classes(file)
    with RankPool(ranks) as pool:
        found = settings_to_write(file, bases, overrides_of(settings), None if unverified else pool, _say)
    return file, changes(file, found, convert)


def _file(model: str) -> tuple[ModelingFile, str]:
    """The file of MODEL (its modular file if there is one), and the class in MODEL ("" if there is none)."""
    from modular_converter.parallel.tiny.target import is_file, open_file, split_class

    if is_file(model):
        path, name = split_class(model)
    else:
        from modular_converter.parallel.tiny.build import target_of

        target = target_of(model)
        name = target.model_class.rpartition(".")[2] if "." in model else ""
        path = sys.modules[target.load()[0].__module__].__file__ or ""
    file = open_file(path)
    return (open_file(file.modular) if file.modular else file), name


def _show(found: list[SourceChange], diff: bool) -> None:
    from modular_converter.reporting import wants_color
    from modular_converter.reporting.diffs import colored, unified

    for change in found:
        if diff:
            for line in colored(unified(change.path, change.old, change.new), wants_color(sys.stdout)):
                click.echo(line)
        else:
            state = "would be new" if change.old is None else "would change"
            click.echo(f"{os.path.relpath(change.path)}: {state}")


def _write_json(model: str, settings: tuple[str, ...], ranks: int, path: str, unverified: bool) -> None:
    from modular_converter.parallel.proof.on_ranks import RankPool
    from modular_converter.parallel.proof.prove import prove

    found: Any = derived_of(model, settings)
    if not unverified:
        with RankPool(ranks) as pool:
            verdict = found.verdict if not found.verdict.passed else prove(found, found.plan, pool)
        if not verdict.passed:
            raise WriteError(f"{model}: the derived plan is refused: {placed(verdict.layer, verdict.reason)}")
        _say(f"{model}: verified on {ranks} ranks")
    write_text(path, found.plan.to_json())
    click.echo(f"{path}: written")


def _say(text: str) -> None:
    click.echo(text, err=True)


NAMES = ("transformers", "accelerate", "torch", "vllm", "sglang", "torchtitan", "deepspeed")


@click.command("export")
@click.argument("model")
@click.option("--to", "name", type=click.Choice(NAMES), required=True, help="The tool that takes the plan.")
@set_option
@click.option("--head", type=click.Choice(["base", "causal"]), default="base", show_default=True)
@ranks_option
@click.option("--output", metavar="FILE", help="Write the plan to FILE instead of stdout.")
@click.option("--unverified", is_flag=True, help="Do not run the plan through the tool's own code.")
@reports_errors
def export_command(
    model: str, name: str, settings: tuple[str, ...], head: str, ranks: int, output: str | None, unverified: bool
) -> None:
    """Write the plan of MODEL for another tool, and run it through the tool's own loader.

    What the tool cannot say, or does not run as the whole model, stays whole: each such weight is named on stderr with the
    reason, and the memory that this costs on each of --ranks devices.

    \b
    Exit code: 0 written, 2 nothing of the plan can be handed over.
    """
    from modular_converter.parallel.exports.export import TOOLS, export
    from modular_converter.parallel.proof.on_ranks import RankPool

    derived = derived_of(model, settings, head)
    with RankPool(2) as pool:
        found = export(derived, TOOLS[name], ranks, None if unverified else pool)
    for line in lines(found, ranks):
        click.echo(f"modular-plan: {model}: {line}", err=True)
    if output:
        write_text(output, found.text)
    else:
        click.echo(found.text, nl=False)


def lines(found: Export, ranks: int) -> list[str]:
    """What to know about an export: its place, its proof, what stays whole, and the memory that this costs."""
    tool = found.vocabulary
    notes = [f"for {tool.name} {tool.version}: {tool.use}"]
    runner = "transformers' loader" if tool.route == "library" else f"the code of {tool.name}"
    proven = f"outputs and gradients equal the whole model's, by {runner} on {found.proven}"
    notes.append(proven if found.proven else f"not run by the code of {tool.name}")
    notes += [f"left whole: {pattern}: {reason}" for pattern, reason in found.lost.items()]
    own, full = found.collectives
    notes += (
        [f"{own} collectives in a forward of the small instance, {full} with the derived plan"] if own != full else []
    )
    return [*notes, memory_in_words(found.memory, ranks)]


def memory_in_words(memory: Memory, ranks: int) -> str:
    """The bytes of weights on a device, beside those of the derived plan and of the whole model."""
    from modular_converter.parallel.tables.summary import amount

    more = memory.exported - memory.full
    beside = f"{amount(more)} more than the derived plan" if more else "the same as the derived plan"
    return (
        f"{amount(memory.exported)} of weights on each of {ranks} devices, {beside}; {amount(memory.whole)} whole"
        f" (16 bits, {memory.sizes})"
    )
