"""The command line of `modular-convert modularize`. Only click is imported to print the help."""

from __future__ import annotations

from typing import Any

import click

from modular_converter.commands.entry_point import run_command
from modular_converter.commands.options import CONTEXT_SETTINGS, package_option, root_option, version_option


def _allowed(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """The words of `--allow`; others are refused."""
    words = tuple(word.strip() for word in value.split(",") if word.strip())
    for word in words:
        if word not in ("docstrings", "comments", "unused"):
            raise click.BadParameter(f"{word!r} is none of `docstrings`, `comments` and `unused`.")
    return words


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("models", nargs=-1, required=True, metavar="MODELS...")
@package_option
@root_option
@click.option("--output-dir", metavar="DIR", help="Write to DIR/<model>/ instead of into the folders of the models.")
@click.option("--diff", is_flag=True, help="Print the modular files as diffs, and write nothing.")
@click.option("--dry-run", is_flag=True, help="Only report, and write nothing.")
@click.option("--from", "preferred", multiple=True, metavar="MODEL", help="Prefer this model as a parent.")
@click.option(
    "--younger", is_flag=True, help="Inherit from younger models too, and from models that take code from this one."
)
@click.option(
    "--allow",
    "allowed",
    metavar="WHAT",
    default="",
    callback=_allowed,
    help="Differences to accept, separated by commas: docstrings and comments become those of the parents, "
    "unused definitions go.",
)
@click.option("--format", "output_format", type=click.Choice(("text", "json")), default="text", help="The report.")
@version_option("modular-convert modularize")
def modularize_command(models: tuple[str, ...], **options: Any) -> None:
    """Write flat models as the smallest modular files that convert back to them.

    MODELS are folders of models, flat files, names of models, or "all". Each modular file is converted in memory and
    compared with the files that are there: nothing is written that does not come back. A modular file that exists is
    not overwritten.

    \b
    Exit code: 0 success; 1 some files of a model do not come back, or, with --diff, a modular file would change;
    2 something could not be read or written.
    """
    from modular_converter.commands.run_modularize import ModularizeOptions, run

    raise SystemExit(run(ModularizeOptions(models, **options)))


def main(arguments: list[str] | None = None) -> None:
    """Run `modular-convert modularize`."""
    run_command(modularize_command, arguments, "modular-convert modularize")
