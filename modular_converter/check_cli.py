"""The `check-modular-conversion` command. Only click is imported to print the help."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from modular_converter import __version__
from modular_converter.cli import spread_files


if TYPE_CHECKING:
    from modular_converter.check import CheckResult, Difference

DIFF_LINES = 120
"""Lines of a diff that are shown of one file; the rest are counted."""
_COLORS = {"+": "32", "-": "31", "@": "36"}


class _FilesCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread_files(args))


@click.command(cls=_FilesCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, metavar="[FILES]...")
@click.option(
    "--files",
    "--files-to-parse",
    "-f",
    "listed",
    multiple=True,
    metavar="FILES...",
    help="The same as plain arguments.",
)
@click.option("--fix", "--fix_and_overwrite", "--fix-and-overwrite", "fix", is_flag=True, help="Write what differs.")
@click.option("--changed-since", metavar="REF", help="Check only what changes since this commit affect.")
@click.option("--workers", "--num_workers", "workers", type=click.IntRange(0), metavar="N", help="Processes at most.")
@click.option("--package", metavar="NAME", help="The installed package whose models are meant.")
@click.option("--root", metavar="DIR", help="The folder of models, or the package folder that holds it.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("text", "json", "github", "sarif")),
    default="text",
    help="Form of the findings.",
)
@click.option("--statistics", is_flag=True, help="Count the findings by rule.")
@click.option("--no-cache", is_flag=True, help="Convert every file, and remember nothing.")
@click.option("--clear-cache", is_flag=True, help="Forget what earlier runs have remembered, first.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only, and no diffs.")
@click.version_option(__version__, prog_name="check-modular-conversion")
def check_command(
    files: tuple[str, ...],
    listed: tuple[str, ...],
    output_format: str,
    statistics: bool,
    quiet: bool,
    no_cache: bool,
    clear_cache: bool,
    **options: Any,
) -> None:
    """Check that generated files are what their modular files give. Nothing is written without --fix.

    FILES are modular files, globs, folders, model names, or "all", which is the default.

    \b
    Exit code: 0 all well; 1 findings; 2 something could not be checked.
    """
    from modular_converter.cache import cache_folder, clear
    from modular_converter.check import CheckOptions, check

    started = time.perf_counter()
    if clear_cache:
        clear(cache_folder())
    cache = None if no_cache else cache_folder()
    result = check(CheckOptions(arguments=(*files, *listed) or ("all",), cache=cache, **options))
    if output_format == "text" and not quiet:
        for difference in result.differences:
            _print_diff(difference)
    _report(result, output_format, quiet)
    if statistics:
        _count(result)
    if not quiet:
        _summarize(result, time.perf_counter() - started)
    raise SystemExit(result.exit_code)


def diff_lines(difference: Difference, limit: int = DIFF_LINES) -> tuple[list[str], int]:
    """A unified diff from the file to what it should be, at most `limit` lines, and how many were left out."""
    import difflib

    name = os.path.relpath(difference.path)
    old, new = (difference.old or "").splitlines(), difference.new.splitlines()
    before = "/dev/null" if difference.old is None else f"a/{name}"
    lines = list(difflib.unified_diff(old, new, before, f"b/{name}", lineterm=""))
    return lines[:limit], max(0, len(lines) - limit)


def _print_diff(difference: Difference) -> None:
    from modular_converter.reporting import wants_color

    colors = _COLORS if wants_color(sys.stdout) else {}
    lines, left_out = diff_lines(difference)
    for line in lines:
        color = colors.get(line[:1])
        click.echo(f"\x1b[{color}m{line}\x1b[0m" if color else line, color=True)
    if left_out:
        click.echo(f"… {left_out} more lines")


def _report(result: CheckResult, output_format: str, quiet: bool) -> None:
    """Findings for people go to stderr, for programs to stdout."""
    from modular_converter.reporting import render, wants_color

    shown = [one for one in result.diagnostics if one.is_error or not quiet]
    in_text = output_format == "text"
    text = render(output_format, shown, color=in_text and wants_color(sys.stderr))
    if text:
        click.echo(text.rstrip("\n"), err=in_text)


def _count(result: CheckResult) -> None:
    """Print how often each rule is broken, the most frequent first."""
    counts: dict[str, int] = {}
    for diagnostic in result.diagnostics:
        key = f"{diagnostic.code} {diagnostic.rule.name}"
        counts[key] = counts.get(key, 0) + 1
    for key, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        click.echo(f"{number:>6}  {key}", err=True)


def _summarize(result: CheckResult, seconds: float) -> None:
    failed = sum(conversion.failed for conversion in result.conversions)
    files = sum(len(conversion.files) for conversion in result.conversions)
    parts = [f"{len(result.conversions)} modular files", f"{files} generated files"]
    parts += [f"{len(result.differences)} differ"] if result.differences else []
    parts += [f"{len(result.written)} written"] if result.written else []
    parts += [f"{failed} could not be converted"] if failed else []
    click.echo(", ".join(parts) + f", {seconds:.2f} s", err=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; an error of our own ends with a message that asks for a report, never a bare traceback."""
    try:
        check_command.main(arguments, prog_name="check-modular-conversion", standalone_mode=True)
    except KeyboardInterrupt:
        click.echo("Interrupted; every file is either as it was or finished.", err=True)
        raise SystemExit(130) from None
    except Exception as error:
        if os.environ.get("MODULAR_CONVERTER_DEBUG"):
            raise
        from modular_converter.diagnostics import Location
        from modular_converter.reporting import render
        from modular_converter.rules import internal_error

        click.echo(render("text", [internal_error.diagnose(Location("check-modular-conversion"), error)]), err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
