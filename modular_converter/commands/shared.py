"""What the commands share: any number of files behind one option, and an end without a bare traceback."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys

import click


INTERRUPTED = 130
"""The exit code, as shells give it for a program that ends so."""
_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE)
"""Errors that only writing has. Whatever writes to a file of its own catches them, so what is left is the output."""
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
        code = _exit_code(command, arguments, name)
        if sys.stdout is not None:  # as it is where a shell has closed it
            sys.stdout.flush()
        raise SystemExit(code)
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.Abort:
        click.echo("Interrupted; every file is either as it was or finished.", err=True)
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OUTPUT and error.filename is None:
            raise SystemExit(_give_up(error)) from None
        if os.environ.get("MODULAR_CONVERTER_DEBUG"):
            raise
        from modular_converter.diagnostics import Location
        from modular_converter.reporting import render
        from modular_converter.rules import internal_error

        click.echo(render("text", [internal_error.diagnose(Location(name), error)]), err=True)
        raise SystemExit(2) from None


def _exit_code(command: click.Command, arguments: list[str] | None, name: str) -> object:
    """Run a command to its end, whichever way it tells its exit code."""
    try:
        return command.main(arguments, prog_name=name, standalone_mode=False)
    except SystemExit as end:
        return end.code


def _give_up(error: OSError) -> int:
    """Say that the output cannot be written, throw the rest of it away, and return the exit code."""
    with contextlib.suppress(OSError, ValueError):
        if error.errno != errno.EPIPE:
            click.echo(f"Error: the output could not be written: {error.strerror}", err=True)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # else Python tries again at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return 1 if error.errno == errno.EPIPE else 2  # `| head` has seen enough; 1 is click's own code for it
