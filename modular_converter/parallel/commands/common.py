"""Options, values, printed forms of plans and errors that the commands share. It imports no slow library."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

import click
from click.core import ParameterSource

from modular_converter.commands.options import progress
from modular_converter.parallel.errors import LIBRARIES, MissingLibraryError, PlanError


if TYPE_CHECKING:
    from rich.console import Console

    from modular_converter.parallel.proof.prove import Derived

P = ParamSpec("P")

set_option = click.option(
    "--set", "settings", multiple=True, metavar="FIELD=VALUE", help="A configuration value, such as hidden_size=64."
)
ranks_option = click.option("--ranks", default=2, show_default=True, type=click.IntRange(1), help="Number of ranks.")


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """A decorator: for errors that a user can correct, the command prints the message and exits with 2."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            missing = next((name for name in LIBRARIES if importlib.util.find_spec(name) is None), None)
            if missing is not None:
                raise PlanError(str(MissingLibraryError(missing)))
            command(*args, **kwargs)
        except PlanError as error:
            click.echo(f"modular-plan: {error}", err=True)
            sys.exit(2)

    return run


def refuse_without_effect(names: Iterable[str], reason: str) -> None:
    """Raise ``click.UsageError`` if options of the running command, by the names of their values, are on its command line."""
    context = click.get_current_context()
    idle = [
        "/".join(one.opts)
        for one in context.command.params
        if one.name in names and context.get_parameter_source(one.name) is ParameterSource.COMMANDLINE
    ]
    if idle:
        raise click.UsageError(f"{', '.join(idle)}: {reason}")


def write_text(path: str, text: str) -> None:
    """Write a file. Raises ``PlanError`` if this fails."""
    from modular_converter.files.write import write_atomically
    from modular_converter.findings import ConversionError

    target = os.path.abspath(path)
    try:
        write_atomically(target, text, os.path.dirname(target))
    except ConversionError as error:
        raise PlanError(str(error)) from error


def overrides_of(settings: tuple[str, ...]) -> dict[str, Any]:
    """Field -> value, from texts ``field=value``: a Python literal if possible, else a string."""
    found: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"--set takes field=value, not {text!r}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = {"true": True, "false": False, "none": None}.get(value.lower(), value)
    return found


def derived_of(model: str, settings: tuple[str, ...], head: str = "base") -> Derived:
    """Build and trace MODEL, and derive a plan that holds in all uses and keeps the model's numbers at its default sizes."""
    from modular_converter.parallel.choice.same_numbers import derived_with_numbers
    from modular_converter.parallel.proof.prove import derive_model
    from modular_converter.parallel.tiny.build import target_of

    quiet_library()
    with progress(f"{model}: deriving a plan"):
        return derived_with_numbers(derive_model(target_of(model, head), overrides_of(settings), uses=True))


def quiet_library() -> None:
    """Switch off warnings and progress bars of transformers, and of torchao, which it imports wherever it is installed."""
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
    from transformers.utils import logging as messages

    messages.set_verbosity_error()
    messages.disable_progress_bar()


def print_table(
    console: Console, head: Sequence[str], rows: Iterable[Sequence[str]], right: Container[str] = ()
) -> None:
    """A table with a line below its head; the columns of ``right`` hold numbers."""
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in head:
        grid.add_column(title, overflow="fold", justify="right" if title in right else "left")
    for row in rows:
        grid.add_row(*row)
    console.print(grid)


form_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "transformers", "torch"]),
    default="text",
    show_default=True,
    help="A plan file; base_model_tp_plan of transformers; parallelize_plan of torch's parallelize_module.",
)


def plan_text(found: Derived, form: str) -> str:
    """A derived plan in a form; for ``transformers``, rules that its loader cannot run are printed to stderr.

    Raises ``PlanFormatError`` if the form cannot express the plan; the message names the rules.
    """
    from modular_converter.parallel.plans.emit import refused_by_loader, to_library, torch_text

    if form == "torch":
        return torch_text(found.plan, found.small.model)
    if form == "transformers":
        entries = to_library(found.plan, found.small.model)
        for reason in refused_by_loader(found.plan, found.small.model):
            click.echo(f"modular-plan: {found.plan.model}: {reason}", err=True)
        return json.dumps(entries, indent=4) + "\n"
    return found.plan.to_json() if form == "json" else str(found.plan)
