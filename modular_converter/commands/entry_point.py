"""Run a command: its exit code, interrupts, errors of the output, and errors of the tool itself."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys

import click


INTERRUPTED = 130
"""The exit code that shells give for a program ended by Ctrl-C."""
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE)
"""Errors of writing. Code that writes files catches its own, so the rest come from stdout or stderr."""


def run_command(command: click.Command, arguments: list[str] | None, name: str) -> None:
    """Run a command and exit. Without `arguments`, those of the program's command line are used, and the process ends
    at once.

    An error of the tool itself is reported as MC199 with a request for a report; `--verbose` shows its traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the banner has characters that cp1252 lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        os.getcwd()
    except OSError as error:
        click.echo(f"Error: the current folder cannot be used ({error.strerror}); change to another one.", err=True)
        raise SystemExit(2) from None
    try:
        code = _exit_code(command, arguments, name)
        if sys.stdout is not None:  # None where the shell closed it: `>&-`
            sys.stdout.flush()
        if arguments is None and isinstance(code, int):
            _end_at_once(code)
        raise SystemExit(code)
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.Abort:
        click.echo("Interrupted; every file is either as it was or finished.", err=True)
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OUTPUT_ERRORS and error.filename is None:
            raise SystemExit(_discard_output(error)) from None
        from modular_converter.findings import Location
        from modular_converter.reporting import render
        from modular_converter.rules import tool_errors

        finding = tool_errors.internal_error(Location(name), error)
        click.echo(render("text", [finding]), err=True)
        if not {"-v", "--verbose"}.isdisjoint(sys.argv[1:] if arguments is None else arguments):
            click.echo(finding.details, err=True)
        raise SystemExit(2) from None


def _end_at_once(code: int) -> None:
    """End the process without the interpreter's own clean-up, which takes 5 % of a check without changes. The clean-up
    is kept where worker processes or a measurement of coverage need it.
    """
    if not {"multiprocessing", "coverage"} & sys.modules.keys():
        if sys.stderr is not None:
            sys.stderr.flush()
        os._exit(code)


def _exit_code(command: click.Command, arguments: list[str] | None, name: str) -> object:
    """The exit code of a command, returned or raised."""
    try:
        return command.main(arguments, prog_name=name, standalone_mode=False)
    except SystemExit as end:
        return end.code


def _discard_output(error: OSError) -> int:
    """Say that the output cannot be written, discard the rest of it, and return the exit code."""
    with contextlib.suppress(OSError, ValueError):
        if error.errno != errno.EPIPE:
            click.echo(f"Error: the output could not be written: {error.strerror}", err=True)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # otherwise Python writes the rest at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return 1 if error.errno == errno.EPIPE else 2  # `| head` has read enough; click also exits with 1
