"""The `modular-convert` command. Only click is imported to print the help."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from modular_converter import __version__
from modular_converter.commands.shared import FilesCommand, run_command


if TYPE_CHECKING:
    from modular_converter.commands.run_convert import ConvertOptions

_FORMATS = ("text", "json", "github", "sarif")


def _explain(ctx: click.Context, _: click.Parameter, code: str | None) -> None:
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


@click.command(cls=FilesCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, metavar="[FILES]...")
@click.option(
    "--files-to-parse",
    "--files",
    "-f",
    "listed",
    multiple=True,
    metavar="FILES...",
    help="The modular files, one or more; the same as plain arguments.",
)
@click.option("--package", metavar="NAME", help="The installed package whose models are meant.")
@click.option("--root", metavar="DIR", help="The folder of models, or the package folder that holds it.")
@click.option("--output-dir", metavar="DIR", help="Write below this folder instead of beside the modular files.")
@click.option("--diff", is_flag=True, help="Print what would change, and write nothing.")
@click.option("--dry-run", is_flag=True, help="Convert and report, and write nothing.")
@click.option("--watch", is_flag=True, help="Convert again what a saved file affects, until Ctrl-C.")
@click.option("--workers", type=click.IntRange(0), metavar="N", help="Processes at most; 0 chooses by the files.")
@click.option("--formatter", type=click.Choice(("ruff", "black", "none")), help="What formats the generated files.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
@click.option("--verbose", "-v", is_flag=True, help="Say where each generated definition comes from.")
@click.option("--format", "output_format", type=click.Choice(_FORMATS), default="text", help="Form of the findings.")
@click.option(
    "--explain", metavar="CODE", callback=_explain, expose_value=False, is_eager=True, help="Explain a code."
)
@click.version_option(__version__, prog_name="modular-convert")
def convert_command(files: tuple[str, ...], listed: tuple[str, ...], watch: bool, **options: Any) -> None:
    """Flatten modular files into single-file models.

    FILES are modular files, globs, folders, model names, or "all", which --watch takes for granted. The generated
    files are written beside each modular file. `modular-convert graph` shows which models inherit from which.

    \b
    Exit code: 0 all well; 1 only findings, or differences with --diff or --dry-run;
    2 something could not be converted.
    """
    from modular_converter.commands.run_convert import ConvertOptions, run

    arguments = (*files, *listed) or (("all",) if watch else ())
    if not arguments:
        raise click.UsageError("Name the files to convert: paths, globs, folders, model names, or `all`.")
    chosen: ConvertOptions = ConvertOptions(arguments=arguments, **options)
    raise SystemExit(_watch(chosen) if watch else run(chosen))


def _watch(options: ConvertOptions) -> int:
    if not options.writes or options.verbose or options.output_format != "text":
        raise click.UsageError(
            "--watch writes and prints one line a change: no --diff, --dry-run, --verbose, --format."
        )
    from modular_converter.commands.watch import WatchError, watch

    try:
        return watch(options)
    except WatchError as error:
        raise click.UsageError(str(error)) from None


def main(arguments: list[str] | None = None) -> None:
    """Run the command; with `graph` as the first argument, the one that shows who inherits from whom."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["graph"]:
        from modular_converter.commands.graph import main as show_graph

        return show_graph(given[1:])
    run_command(convert_command, arguments, "modular-convert")
