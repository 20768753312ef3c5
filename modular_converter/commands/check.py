"""The command line of `check-modular-conversion`. Only click is imported to print the help."""

from __future__ import annotations

import gc
from typing import Any

import click

from modular_converter.commands.options import (
    CONTEXT_SETTINGS,
    FilesCommand,
    accept_release_option,
    code_for_shell,
    exit_zero_option,
    files_argument,
    findings_format,
    given_on_stdin,
    run_command,
    stdin_option,
    strict_option,
    tree_options,
    version_option,
    workers_option,
)


@click.command(cls=FilesCommand, former={"--fix": "--write"}, context_settings=CONTEXT_SETTINGS)
@files_argument
@click.option(
    "--write", "--fix_and_overwrite", "--fix-and-overwrite", "fix", is_flag=True, help="Write the files that differ."
)
@click.option("--changed-since", metavar="REF", help="Check only files that changes since this commit can affect.")
@stdin_option
@workers_option
@tree_options
@accept_release_option
@findings_format
@click.option("--statistics", is_flag=True, help="Count the findings by rule, also of rules that are off by default.")
@click.option("--select", multiple=True, metavar="CODE", help="Report also this rule, which is off by default.")
@click.option("--no-cache", is_flag=True, help="Convert every file, and store nothing for the next run.")
@click.option(
    "--clear-cache", is_flag=True, help="Remove the results that earlier runs have stored, before the check."
)
@click.option(
    "--add-ignores", is_flag=True, help="First silence each warning that there is by a comment in its modular file."
)
@strict_option
@exit_zero_option
@click.option(
    "--full",
    is_flag=True,
    help="Print all diffs and findings, also the warnings of files that are current and as in the last commit.",
)
@click.option(
    "--breaking", is_flag=True, help="Tell what changes for those who use the models, since the tree of --against."
)
@click.option(
    "--against", metavar="REF", help="A commit or tag, a folder, a wheel, or package==version; with --breaking."
)
@click.option(
    "--markdown",
    metavar="FILE",
    help="Write a comment for a pull request: stale files, and what --breaking tells; - for stdout.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print errors only, and no diffs.")
@version_option("check-modular-conversion")
def check_command(files: tuple[str, ...], listed: tuple[str, ...], exit_zero: bool, **options: Any) -> None:
    """Check that generated files equal the conversion of their modular files. Nothing is written without --write.

    FILES are modular files, globs, folders, model names, or "all", which is the default.

    \b
    Exit code: 0 all files are current; 1 findings; 2 something could not be checked.
    """
    breaking, against, markdown = (options.pop(name) for name in ("breaking", "against", "markdown"))
    if breaking != (against is not None) or (markdown and not breaking):
        raise click.UsageError("--breaking needs --against REF, such as --against main; --markdown needs both.")
    gc.disable()  # the search for cyclic garbage takes a fortieth of a run that converts nothing
    stdin_filename, content = options.pop("stdin_filename"), None
    if stdin_filename:
        about_files = {"--write": options["fix"], "--breaking": breaking}
        about_files |= {f"--{name.replace('_', '-')}": options[name] for name in _ABOUT_FILES}
        content = given_on_stdin((*files, *listed), about_files)
    arguments = (stdin_filename,) if stdin_filename else (*files, *listed) or ("all",)
    if breaking:
        from modular_converter.commands import run_breaking

        code = run_breaking.run(arguments, against, markdown, **options)
        raise SystemExit(code_for_shell(code, exit_zero))
    from modular_converter.commands.run_check import run

    code = run(arguments, content=content, **options)
    gc.freeze()  # otherwise the interpreter searches once more at its end
    raise SystemExit(code_for_shell(code, exit_zero))


_ABOUT_FILES = ("add_ignores", "changed_since", "package", "root")


def main(arguments: list[str] | None = None) -> None:
    """Run `check-modular-conversion`."""
    run_command(check_command, arguments, "check-modular-conversion")
