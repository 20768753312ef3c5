"""The work of `modular-convert merge-driver`: set it up, take it away, and resolve a file when git asks."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from modular_converter.check.cache.key import tool_stamp
from modular_converter.check.cache.store import cache_folder, digest, keep_values, read_values
from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.options import report
from modular_converter.files.arguments import ALL
from modular_converter.files.write import replace_file
from modular_converter.findings import ConversionError
from modular_converter.git import merge_driver
from modular_converter.git.merge_driver import OutcomeCache, Unresolved, resolved
from modular_converter.git.work_tree import GitError, Repository, WorkTrees
from modular_converter.reporting.display import count, report_line, shown_path


NOTE = "# modular-converter: "
"""The beginning of the line that stands above a file which could not be resolved."""


def _outcomes(folder: str) -> OutcomeCache:
    """The files of merges in the folder of the cache, for this tool as it is."""

    def entry(name: str) -> str:
        return digest(f"merge {tool_stamp()!r} {name}".encode("utf-8", "surrogatepass"))

    return OutcomeCache(
        lambda name: read_values(folder, entry(name)), lambda name, values: keep_values(folder, entry(name), values)
    )


def set_up(root: str | None, package: str | None, *, yes: bool) -> int:
    """Name the generated files in `.gitattributes`, and the driver in the configuration of this clone."""
    result = check(CheckOptions((ALL,), package, root))
    generated = [path for one in result.conversions for path in one.files]
    if not generated:
        raise click.UsageError("no generated file was found; give --root DIR.")
    repository = _repository(os.path.dirname(generated[0]))
    where = shown_path(os.path.join(repository.top, merge_driver.ATTRIBUTES), os.getcwd())
    click.echo(f"{count(len(generated), 'generated file')} will be named in {where}, and the driver in the")
    click.echo(f"configuration of this clone: {merge_driver.COMMAND}")
    try:
        if not (yes or click.confirm("Write both?")):
            click.echo("Nothing was written.")
            return 0
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        raise click.UsageError("nobody has answered: `--yes` writes without asking.") from None
    if _done(lambda: merge_driver.install_driver(repository, generated)) is None:
        return 2
    click.echo(f"Commit {where}; others run `modular-convert merge-driver install` in their clones.")
    return 0


def take_away() -> int:
    """Remove what `set_up` has written."""
    path = _done(lambda: merge_driver.uninstall_driver(_repository(os.getcwd())))
    if path is None:
        return 2
    click.echo(f"The driver is no longer in the configuration of this clone, nor in {shown_path(path, os.getcwd())}.")
    return 0


def _done(change: Callable[[], str]) -> str | None:
    """The path that a change of the set-up returns; None where something cannot be written, which is reported."""
    try:
        return change()
    except ConversionError as error:
        report(error.findings)
    except GitError as error:
        raise click.UsageError(f"git cannot write the configuration of this clone: {error}.") from None
    return None


def resolve_versions(base: str, ours: str, theirs: str, path: str) -> int:
    """Write the merged text into `ours`; 1 for a conflict that stays.

    Args:
        base: the version of the common ancestor, a file of git's.
        ours: our version, which git takes as the result.
        theirs: the other version.
        path: the file in the work tree.
    """
    with open(base, "rb") as file, open(theirs, "rb") as other:
        versions = file.read(), other.read()
    try:
        text = resolved(_repository(os.getcwd()), path, *versions, _outcomes(cache_folder()))
    except (Unresolved, GitError, ConversionError) as error:
        with open(ours, encoding="utf-8", errors="surrogateescape", newline="") as old:
            kept = old.read()
        text = f"{NOTE}{report_line(str(error))}\n{kept}"
        replace_file(os.path.abspath(ours), text.encode("utf-8", "surrogateescape"))
        click.echo(f"{path}: {report_line(str(error))}", err=True)
        return 1
    replace_file(os.path.abspath(ours), text.encode("utf-8"))
    return 0


def _repository(folder: str) -> Repository:
    try:
        return WorkTrees().of(folder)
    except GitError as error:
        raise click.UsageError(f"git cannot be asked here: {error}.") from None
