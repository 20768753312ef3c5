"""What the commands share: any number of files behind one option, and an end without a bare traceback."""

from __future__ import annotations

import io
import os
import sys

import click


INTERRUPTED = 130
"""The exit code, as shells give it for a program that ends so."""
_SPELLINGS = ("--files-to-parse", "--files_to_parse", "--files", "-f")


def spread_files(arguments: list[str]) -> list[str]:
    """`--files-to-parse A B C` -> `A B C`: an option that takes any number of files is a run of plain arguments."""
    plain: list[str] = []
    for position, argument in enumerate(arguments):
        if argument == "--":
            return plain + arguments[position:]
        name, equals, value = argument.partition("=")
        if name in _SPELLINGS:
            if equals:
                plain.append(value)
        else:
            plain.append(argument)
    return plain


class FilesCommand(click.Command):
    """A command whose plain arguments are files, also behind `--files-to-parse`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, spread first."""
        return super().parse_args(ctx, spread_files(args))


def run_command(command: click.Command, arguments: list[str] | None, name: str) -> None:
    """Run a command; an error of our own ends with a message that asks for a report, never a bare traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a banner has signs that an encoding such as cp1252 lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        raise SystemExit(command.main(arguments, prog_name=name, standalone_mode=False))
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.Abort:
        click.echo("Interrupted; every file is either as it was or finished.", err=True)
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if os.environ.get("MODULAR_CONVERTER_DEBUG"):
            raise
        from modular_converter.diagnostics import Location
        from modular_converter.reporting import render
        from modular_converter.rules import internal_error

        click.echo(render("text", [internal_error.diagnose(Location(name), error)]), err=True)
        raise SystemExit(2) from None
