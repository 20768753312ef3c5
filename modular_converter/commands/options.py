"""What commands share: their options; how one is run: its exit code, interrupts, errors of the output, and errors of the tool
itself; and its output: text for people goes to stderr, data for programs to stdout. Only click is imported.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from modular_converter.version import __version__


if TYPE_CHECKING:
    from modular_converter.findings import Finding


F = TypeVar("F", bound=Callable[..., Any])
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
    if value is not None:
        from modular_converter.settings.toml_files import EXACT_VERSION  # takes a while to import

        if not EXACT_VERSION.fullmatch(value):
            raise click.BadParameter(f"must be one version such as 5.25, not {value!r}")
    return value


accept_release_option = click.option(
    "--accept-release",
    metavar="VERSION",
    callback=_release,
    help="Let files change in this newer release of the package, although its conventions have not been checked.",
)


def format_option(formats: Sequence[str], help: str, default: str | None = "text") -> Callable[[F], F]:
    """`--format` of a command."""
    names = "--format", "--output-format", "output_format"
    return click.option(*names, type=click.Choice(formats), default=default, help=help)


findings_format = format_option(("text", "json", "github", "sarif"), "The format of the findings.")
answer_format = format_option(("text", "json"), "The form of the answer.")


stdin_option = click.option(
    "--stdin-filename",
    metavar="PATH",
    help="Read the text of this modular file from the standard input; nothing is written.",
)


def given_on_stdin(arguments: Sequence[str], contradicting: Mapping[str, Any]) -> bytes:
    """The standard input. Raises `UsageError` for files beside it, and for an option that contradicts it.

    Args:
        arguments: the files that the command line names.
        contradicting: spelling -> value of the options that would write or look at other files.
    """
    if arguments:
        raise click.UsageError("--stdin-filename names the only file: leave out the others.")
    if found := [spelling for spelling, value in contradicting.items() if value]:
        raise click.UsageError(f"{found[0]} cannot be combined with --stdin-filename, with which nothing is written.")
    return sys.stdin.buffer.read() if sys.stdin is not None else b""


exit_zero_option = click.option(
    "--exit-zero", is_flag=True, help="Exit with 0 also where there are findings or differences."
)


def config_option(command: F) -> F:
    """`--config`, which holds while the command runs."""

    def read_from(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
        if value is None or ctx.resilient_parsing:
            return
        if not os.path.isfile(value):
            raise click.BadParameter(f"there is no file {value!r}.")
        from modular_converter.settings.load import NAMED_FILE

        token = NAMED_FILE.set(os.path.abspath(value))
        ctx.call_on_close(lambda: NAMED_FILE.reset(token))

    return click.option(
        "--config",
        metavar="FILE",
        callback=read_from,
        expose_value=False,
        help="Read the table [tool.modular-converter] of this TOML file, and of no pyproject.toml.",
    )(command)


def tree_options(command: F) -> F:
    """`--package`, `--root` and `--config`: whose models, and by which settings."""
    return package_option(root_option(config_option(command)))


def code_for_shell(code: int, exit_zero: bool) -> int:
    """The exit code with `--exit-zero`, which hides findings, and never that something could not be done."""
    return 0 if exit_zero and code == 1 else code


def version_option(name: str) -> Callable[[F], F]:
    """`--version` of the command `name`."""
    return click.version_option(__version__, prog_name=name)


class RenamedOptions(click.Command):
    """A command that still accepts former names of its options, with a hint."""

    def __init__(self, *given: Any, former: Mapping[str, str] | None = None, **named: Any) -> None:
        """`former`: former name -> present name."""
        super().__init__(*given, **named)
        self.former = former or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as if they had the present names."""
        end = args.index("--") if "--" in args else len(args)
        for name in dict.fromkeys(one for one in args[:end] if one in self.former):
            now = self.former[name]
            click.echo(f"hint: write `{now}` for `{name}`, which applies the cures of findings elsewhere", err=True)
        return super().parse_args(ctx, [self.former.get(one, one) for one in args[:end]] + args[end:])


class FilesCommand(RenamedOptions):
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


FILES_FOR_PROGRESS = 5
"""The number of files from which a terminal shows how many are done."""
SECONDS_FOR_PROGRESS = 1.0
"""A step that cannot be counted is shown if it takes longer."""


def refuse_missing_folder(path: str | None, option: str) -> None:
    """Raise `click.BadParameter` if the file of an option is to be in a folder that does not exist, before the work."""
    folder = os.path.dirname(path or "")
    if folder and not os.path.isdir(folder):  # most likely its name is misspelt
        raise click.BadParameter(f"there is no folder {folder!r}; make it first.", param_hint=f"'{option}'")


def report(findings: Sequence[Finding], output_format: str = "text", *, quiet: bool = False) -> None:
    """Print findings in one of `reporting.FORMATS`: text to stderr, the other formats to stdout.

    Args:
        quiet: leave out warnings.
    """
    shown = [finding for finding in findings if finding.is_error or not quiet]
    in_text = output_format == "text"
    if in_text and not shown:
        return  # a check of current files does not load the renderers
    from modular_converter.reporting import render, wants_color

    text = render(output_format, shown, color=in_text and wants_color(sys.stderr))
    if text:
        click.echo(text.rstrip("\n"), err=in_text, color=True)


def fixable(findings: Iterable[Finding]) -> str:
    """How many findings have a fix, for the closing line of a command: ` (3 with a fix, 1 of them unsafe)`."""
    found = [one.applicability for one in findings if one.fix]
    if not found:
        return ""
    unsafe = found.count("unsafe")
    return f" ({len(found)} with a fix{f', {unsafe} of them unsafe' if unsafe else ''}: `modular-convert --fix`)"


def print_diff(path: str, old: str | None, new: str, output_format: str = "text", limit: int | None = None) -> int:
    """Print a unified diff of a generated file, to stderr when stdout is for findings that a program reads; return the
    number of lines.

    Args:
        old: the text on disk; None for a file that does not exist.
        new: the text that it should have.
        limit: the number of lines to print; the lines beyond are counted.
    """
    from modular_converter.reporting import wants_color
    from modular_converter.reporting.diffs import colored, unified

    to_stderr = output_format != "text"
    lines = unified(path, old, new)
    for line in colored(lines[:limit], wants_color(sys.stderr if to_stderr else sys.stdout)):
        click.echo(line, err=to_stderr, color=True)
    if limit is not None and len(lines) > limit:
        click.echo(f"… {len(lines) - limit} more lines", err=to_stderr)
    return len(lines[:limit])


class _Line:
    """A line of stderr that is written again and again, and is gone at the end."""

    def __init__(self, action: str, total: int) -> None:
        self.action, self.total, self.done, self.is_shown = action, total, 0, False

    def show(self) -> None:
        counts = f" {self.done} of {self.total}" if self.total else ""
        self._write(f"{self.action}{counts} …")
        self.is_shown = True

    def advance(self, done: int) -> None:
        self.done += done
        self.show()

    def begin(self, action: str) -> None:
        self.action = action
        if self.is_shown:
            self.show()

    def clear(self) -> None:
        if self.is_shown:
            self._write("")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


@contextmanager
def progress(action: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show on a terminal what a command is busy with; elsewhere nothing. Gives a function to call with how many more
    files are done.

    Args:
        action: what is done, such as `converting`.
        total: the number of files; few show nothing. None for a step that cannot be counted, which is shown once it has
            taken a while.
        quiet: show nothing.
    """
    if quiet or not shows_progress() or (total is not None and total < FILES_FOR_PROGRESS):
        yield lambda done: None
        return
    with _shown(_Line(action, total or 0), at_once=total is not None) as line:
        yield line.advance


@contextmanager
def steps(first: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """The same for several steps that cannot be counted. Gives a function to call with the step that begins."""
    if quiet or not shows_progress():
        yield lambda step: None
        return
    with _shown(_Line(first, 0), at_once=False) as line:
        yield line.begin


@contextmanager
def _shown(line: _Line, *, at_once: bool) -> Iterator[_Line]:
    """A line that is shown at once, or once a step has taken a while, and is gone at the end."""
    later = threading.Timer(SECONDS_FOR_PROGRESS, line.show)
    later.daemon = True
    if at_once:
        line.show()
    else:
        later.start()
    try:
        yield line
    finally:
        later.cancel()
        line.clear()


def shows_progress() -> bool:
    """Whether a person watches stderr."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
