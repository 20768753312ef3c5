"""The options that several commands have. Only click is imported."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from modular_converter import __version__


F = TypeVar("F", bound=Callable[..., Any])
RELEASE = re.compile(r"\d{1,6}(\.\w{1,9}){0,4}")
"""The versions that `--accept-release` takes; `settings.keys` takes a while to import."""

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}
FILES_SPELLINGS = ("--files-to-parse", "--files_to_parse", "--files", "-f")


def files_argument(command: F) -> F:
    """FILES as plain arguments, and behind `--files-to-parse`; see `FilesCommand`."""
    option = click.option(
        "--files-to-parse", "--files", "-f", "listed", multiple=True, metavar="FILES...", help="The same as FILES."
    )
    return click.argument("files", nargs=-1, metavar="[FILES]...")(option(command))


package_option = click.option("--package", metavar="NAME", help="Use the models of this installed package.")
root_option = click.option(
    "--root", metavar="DIR", help="The folder of models, or the package folder that contains it."
)
workers_option = click.option(
    "--workers",
    "--num_workers",
    "workers",
    type=click.IntRange(0),
    metavar="N",
    help="The largest number of processes; 0 chooses by the number of files.",
)
strict_option = click.option("--strict", is_flag=True, help="Treat warnings as errors.")


def _release(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A release, as the setting has it."""
    if value is not None and not RELEASE.fullmatch(value):
        raise click.BadParameter(f"must be one version such as 5.25, not {value!r}")
    return value


accept_release_option = click.option(
    "--accept-release",
    metavar="VERSION",
    callback=_release,
    help="Let files change in this newer release of the package, although its conventions have not been checked.",
)
format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(("text", "json", "github", "sarif")),
    default="text",
    help="The format of the findings.",
)


def version_option(name: str) -> Callable[[F], F]:
    """`--version` of the command `name`."""
    return click.version_option(__version__, prog_name=name)


class FilesCommand(click.Command):
    """A command that also accepts any number of files behind `--files-to-parse`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as if the files stood without the option."""
        return super().parse_args(ctx, spread_files(args))


def spread_files(arguments: list[str]) -> list[str]:
    """`--files-to-parse A B C` -> `A B C`: click knows no option with any number of values, but such an argument."""
    plain: list[str] = []
    for position, argument in enumerate(arguments):
        if argument == "--":
            return plain + arguments[position:]
        name, equals, value = argument.partition("=")
        if name in FILES_SPELLINGS:
            if equals:
                plain.append(value)
        else:
            plain.append(argument)
    return plain
