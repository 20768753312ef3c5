"""The command line of `modular-convert`. Only click is imported to print the help."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

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
from modular_converter.commands.subcommands import SUBCOMMANDS


if TYPE_CHECKING:
    from modular_converter.commands.run_convert import ConvertOptions


def _explain(ctx: click.Context, _: click.Parameter, code: str | None) -> None:
    """Print the page of a rule, and end the command."""
    if not code or ctx.resilient_parsing:
        return
    from modular_converter.reporting import wants_color
    from modular_converter.reporting.explain import explain
    from modular_converter.rules import UnknownRuleError, by_code

    try:
        click.echo(explain(by_code(code), color=wants_color(sys.stdout)))
    except UnknownRuleError as error:
        raise click.BadParameter(str(error)) from None
    ctx.exit()


class _ConvertCommand(FilesCommand):
    """The command whose first argument may name another one."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the other commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=100)) for name, one in SUBCOMMANDS.items()])


@click.command(cls=_ConvertCommand, context_settings=CONTEXT_SETTINGS)
@files_argument
@tree_options
@accept_release_option
@click.option("--output-dir", metavar="DIR", help="Write to DIR/<model>/ instead of beside the modular files.")
@click.option("--fix", is_flag=True, help="Apply the safe fixes of findings to the modular files first.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix, apply also the fixes that change generated files.")
@click.option("--diff", is_flag=True, help="Print the changes, and write nothing.")
@click.option("--dry-run", is_flag=True, help="Convert and report, and write nothing.")
@click.option("--watch", is_flag=True, help="Keep running, and convert again whenever a file is saved.")
@stdin_option
@workers_option
@click.option("--formatter", type=click.Choice(("ruff", "black", "none")), help="The formatter of generated files.")
@strict_option
@exit_zero_option
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
@click.option("--verbose", "-v", is_flag=True, help="Print the origin of each generated definition.")
@findings_format
@click.option("--list-rules", is_flag=True, help="List all rules, also with --format json.")
@click.option(
    "--explain",
    metavar="CODE",
    callback=_explain,
    expose_value=False,
    is_eager=True,
    help="Explain a rule, such as MC201.",
)
@version_option("modular-convert")
def convert_command(
    files: tuple[str, ...], listed: tuple[str, ...], watch: bool, list_rules: bool, exit_zero: bool, **options: Any
) -> None:
    """Generate single-file models from modular files.

    FILES are modular files, globs, folders, model names, or "all"; with --watch, "all" is the default. The generated
    files are written beside each modular file. A command in place of FILES does something else: see the end.

    \b
    Exit code: 0 success; 1 errors in what is converted, or differences with --diff or --dry-run;
    2 something could not be read or written, which errors MC1.. tell.
    """
    if list_rules:
        return _list_rules(options["output_format"])
    from modular_converter.commands.run_convert import ConvertOptions, run
    from modular_converter.findings import did_you_mean

    arguments = (*files, *listed) or (("all",) if watch else ())
    if filename := options.pop("stdin_filename"):
        writing = {f"--{name.replace('_', '-')}": options[name] for name in ("fix", "output_dir", "package", "root")}
        options["content"] = given_on_stdin(arguments, writing)
        arguments = (filename,)
    elif not arguments:
        raise click.UsageError("Name the files to convert: paths, globs, folders, model names, or `all`.")
    chosen = ConvertOptions(arguments=arguments, **options)
    code = _watch(chosen) if watch else run(chosen)
    if code == 2 and not os.path.exists(arguments[0]) and (hint := did_you_mean(arguments[0], SUBCOMMANDS)):
        click.echo(f"{hint}It is a command: `modular-convert --help` lists them.", err=True)
    raise SystemExit(code_for_shell(code, exit_zero))


def _list_rules(output_format: str) -> None:
    """Print all rules in short."""
    if output_format not in ("text", "json"):
        raise click.UsageError("--list-rules prints text or json.")
    from modular_converter.reporting.explain import render
    from modular_converter.rules import all_rules

    click.echo(render(all_rules(), output_format), nl=False)


def _watch(options: ConvertOptions) -> int:
    """Convert until Ctrl-C. Raises `UsageError` for options that contradict `--watch`, and when no folder can be
    watched.
    """
    if not options.writes or options.fix or options.verbose or options.output_format != "text":
        raise click.UsageError(
            "--watch writes files and prints one line for each change; "
            "it cannot be combined with --fix, --diff, --dry-run, --verbose or --format."
        )
    from modular_converter.commands.watch import WatchError, watch_models

    try:
        return watch_models(options)
    except WatchError as error:
        raise click.UsageError(str(error)) from None


def main(arguments: list[str] | None = None) -> None:
    """Run `modular-convert`, or the command that the first argument names, such as `modular-convert graph`."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in SUBCOMMANDS:
        return run_command(SUBCOMMANDS[given[0]], given[1:], f"modular-convert {given[0]}")
    run_command(convert_command, arguments, "modular-convert")
