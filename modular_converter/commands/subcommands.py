"""The commands below `modular-convert`, such as `graph` and `init`. Only click is imported to
print their help.
"""

from __future__ import annotations

import re
from typing import Any

import click

from modular_converter.commands.options import (
    CONTEXT_SETTINGS,
    RenamedOptions,
    answer_format,
    code_for_shell,
    config_option,
    exit_zero_option,
    findings_format,
    format_option,
    package_option,
    root_option,
    strict_option,
    tree_options,
    version_option,
)


def _words(value: str) -> tuple[str, ...]:
    """The words of an option, which commas separate."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("models", nargs=-1, metavar="[MODELS]...")
@format_option(
    ("text", "dot", "json", "html"),
    "A table or trees, graphviz, data, or a page for a browser. "
    "The default follows from the name of the output file, else it is text.",
    default=None,
)
@click.option("--output", "-o", metavar="FILE", help="Write to FILE instead of the standard output (-).")
@click.option(
    "--sort",
    type=click.Choice(("heirs", "saved", "name")),
    default="heirs",
    help="The order of the table of all models.",
)
@tree_options
@version_option("modular-convert graph")
def graph_command(models: tuple[str, ...], **options: Any) -> None:
    """Show which models inherit from which.

    MODELS are model names or modular files; with MODELS, only they, their ancestors and their heirs are shown.
    The modular files are only read, never imported or run.

    \b
    Exit code: 0 success; 2 something could not be read or written.
    """
    from modular_converter.commands.run_graph import run

    raise SystemExit(run(models, **options))


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--dry-run", is_flag=True, help="Print the settings, and write nothing.")
@version_option("modular-convert init")
def init_command(dry_run: bool) -> None:
    """Find the conventions of this project, and write its settings.

    The folder of models, the package, the kinds of files, the names of classes and the formatters are found in the tree
    and its hooks of pre-commit. The files are only read, never imported or run. Settings that exist are kept.

    \b
    Exit code: 0 success; 1 the project has settings already; 2 no models were found, or a file could not be read.
    """
    from modular_converter.commands.run_new import write_settings

    raise SystemExit(write_settings(dry_run))


@click.command(
    cls=RenamedOptions,
    former={"--fix": "--write", "--unsafe-fixes": "--write-unsafe"},
    context_settings=CONTEXT_SETTINGS,
)
@click.argument("paths", nargs=-1, metavar="[PATHS]...")
@tree_options
@click.option("--write", is_flag=True, help="Write what the sources say into the copies that have drifted.")
@click.option("--write-unsafe", is_flag=True, help="The same, also where calls would not fit new parameters.")
@click.option(
    "--diff", is_flag=True, help="Print how the drifted copies differ from their sources, and write nothing."
)
@strict_option
@exit_zero_option
@findings_format
@version_option("modular-convert marks")
def marks_command(paths: tuple[str, ...], exit_zero: bool, **options: Any) -> None:
    """Audit comments "# Copied from ...": do the copies still say what their sources say?

    PATHS are files, folders, names of models, or "all", which is the default. A mark is identical, drifted (MC411),
    dangling (MC412: its source does not exist), or invisible (MC393: it does not have the form of a mark). Marks in
    generated files are left out, since nobody edits these.

    \b
    Exit code: 0 success; 1 drifted or dangling marks are left; 2 something could not be read or written.
    """
    from modular_converter.commands.run_marks import run

    raise SystemExit(code_for_shell(run(paths or ("all",), **options), exit_zero))


def _allowed(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """The words of `--allow`; others are refused."""
    for word in (words := _words(value)):
        if word not in ("docstrings", "comments", "unused"):
            raise click.BadParameter(f"{word!r} is none of `docstrings`, `comments` and `unused`.")
    return words


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("models", nargs=-1, required=True, metavar="MODELS...")
@tree_options
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
@answer_format
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
    from modular_converter.commands.run_authoring import ModularizeOptions, write_modular_files

    raise SystemExit(write_modular_files(ModularizeOptions(models, **options)))


def _model_name(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """A name that a folder and a module can have."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", value):
        raise click.BadParameter("must be of small letters, digits and `_`, such as `kiwi_vl`.")
    return value


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("model", metavar="MODEL", callback=_model_name)
@click.option("--from", "parents", required=True, metavar="MODELS", help="The parents: llama, or llama,clip.")
@click.option("--cased", metavar="NAME", help="The name in the names of classes, such as KiwiVL for kiwi_vl.")
@root_option
@click.option("--tables", is_flag=True, help="Write also the entries in tables that people write.")
@click.option("--dry-run", is_flag=True, help="Show the new files, and write nothing.")
@version_option("modular-convert new")
def new_command(model: str, cased: str | None, parents: str, **options: Any) -> None:
    """Begin a new model: a modular file with the configurations and heads of its parents, converted at once.

    A parent is a model of the same folder of models, or of another package (transformers.models.llama). The entries in
    tables such as those of `auto` are shown as a diff where people write them, and what is left to do is named. A folder
    with files is left alone.

    \b
    Exit code: 0 success; 2 something could not be read, written or converted, and nothing was written.
    """
    from modular_converter.commands.run_new import run

    if cased is not None and (cased.lower() != model.replace("_", "") or not cased[0].isupper()):
        raise click.UsageError(f"--cased must have the letters of `{model}` and begin with a capital, not {cased!r}.")
    raise SystemExit(run(model, parents=_words(parents), cased=cased, **options))


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("model", metavar="MODEL")
@tree_options
@answer_format
@version_option("modular-convert suggest")
def suggest_command(model: str, package: str | None, root: str | None, output_format: str) -> None:
    """Show which models a flat model could inherit from.

    MODEL is a folder of a model, a flat file, the name of a model, or - for some classes on the standard input. The
    numbers of lines are estimates; `modular-convert modularize` proves them.

    \b
    Exit code: 0 success; 1 no class has a parent that saves lines; 2 something could not be read.
    """
    from modular_converter.commands.run_authoring import print_suggestions

    raise SystemExit(print_suggestions(model, package, root, output_format))


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("places", nargs=-1, required=True, metavar="FILE:LINE...")
@config_option
@answer_format
@version_option("modular-convert where")
def where_command(places: tuple[str, ...], output_format: str) -> None:
    """Tell where lines of generated files come from, and where lines of modular files end up.

    A line of a generated file comes from the modular file or from a neighbour; where the neighbour is generated too,
    the answer goes on to the files that people have written. A line of a modular file may end up in several generated
    files, its heirs' among them, or in none: imports and `super()` calls, for example, stand for other lines.

    \b
    Exit code: 0 success; 1 a generated file is not what its modular file gives; 2 something could not be read.
    """
    from modular_converter.commands.run_where import run

    raise SystemExit(run(places, output_format))


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("file", metavar="FILE")
@click.option("--neighbour", is_flag=True, help="Carry edits of inherited lines to the neighbour that they come from.")
@click.option("--diff", is_flag=True, help="Print what would change, and write nothing.")
@version_option("modular-convert absorb")
def absorb_command(file: str, neighbour: bool, diff: bool) -> None:
    """Carry an edit that was made in a generated file to the modular file.

    Lines that it inherits or copies become an override. Nothing is written unless a conversion gives exactly the edited
    text, and the model's other files as they are. Anything else is refused, with the place to write it.

    \b
    Exit code: 0 carried over, or nothing to carry; 1 refused; 2 something could not be read or written.
    """
    from modular_converter.commands.run_authoring import carry_edit

    raise SystemExit(carry_edit(file, neighbour=neighbour, diff=diff))


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--stdio", is_flag=True, help="Talk over the standard input and output, which is the only way.")
@config_option
@version_option("modular-convert lsp")
def lsp_command(stdio: bool) -> None:
    """Serve an editor over the language server protocol.

    Findings and their cures while you type, the way from a line to its parent and to the generated file and back, the
    merged text of what is under the cursor, and renames across modular files. Nothing is written, and nothing that is
    read is imported or run.

    \b
    Exit code: 0 the editor has ended it; 2 the package pygls is missing.
    """
    try:
        from modular_converter.lsp.server import serve_editor
    except ModuleNotFoundError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        raise click.UsageError("The language server needs the package `pygls`: `pip install pygls`") from None
    serve_editor()


@click.group(context_settings=CONTEXT_SETTINGS)
def merge_driver_command() -> None:
    """Let git resolve conflicts in generated files by converting them from the merged modular files."""


@merge_driver_command.command("install")
@package_option
@root_option
@click.option("--yes", "-y", is_flag=True, help="Write without asking.")
def install_command(package: str | None, root: str | None, yes: bool) -> None:
    """Name the generated files in .gitattributes, and the driver in the configuration of this clone."""
    from modular_converter.commands.run_merge_driver import set_up

    raise SystemExit(set_up(root, package, yes=yes))


@merge_driver_command.command("uninstall")
def uninstall_command() -> None:
    """Remove what install has written."""
    from modular_converter.commands.run_merge_driver import take_away

    raise SystemExit(take_away())


@merge_driver_command.command("resolve", hidden=True)
@click.argument("versions", nargs=4, metavar="BASE OURS THEIRS PATH")
def resolve_command(versions: tuple[str, str, str, str]) -> None:
    """Resolve one file; git calls this."""
    from modular_converter.commands.run_merge_driver import resolve_versions

    raise SystemExit(resolve_versions(*versions))


SUBCOMMANDS = {
    "absorb": absorb_command,
    "graph": graph_command,
    "init": init_command,
    "lsp": lsp_command,
    "marks": marks_command,
    "merge-driver": merge_driver_command,
    "modularize": modularize_command,
    "new": new_command,
    "suggest": suggest_command,
    "where": where_command,
}
"""The commands that the first argument of `modular-convert` may name."""
