"""The work of `modular-convert new` and `init`: the first files of a model, its entries in tables and what is left to do; the
settings of a project, by the conventions of its tree.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence

import click

from modular_converter.authoring.new_model import (
    NewModel,
    ParentModel,
    Table,
    names_made_by_renaming,
    new_model,
    read_parent,
    table_entries,
    title,
)
from modular_converter.authoring.survey import DEFAULT_LENGTH, Survey, ToolsInUse, survey, survey_files, tools_in_use
from modular_converter.commands.options import print_diff, report
from modular_converter.convert.emit.format import format_files
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import required_models_folder
from modular_converter.files.read import is_installed
from modular_converter.files.write import banner, write_atomically
from modular_converter.findings import ConversionError, Location
from modular_converter.reporting.display import count, message
from modular_converter.rules import input_files
from modular_converter.settings import toml_files
from modular_converter.settings.disk import project_above
from modular_converter.settings.load import TABLE, load_settings, profile_settings
from modular_converter.settings.values import (
    FILES,
    Settings,
    folder_of_model,
    modular_name,
    module_name,
    place_of_model,
)


def run(
    model: str, *, parents: Sequence[str], cased: str | None, root: str | None, dry_run: bool, tables: bool
) -> int:
    """Write the files of a new model, and return the exit code."""
    try:
        models = required_models_folder(None, root)
        if is_installed(models):
            raise ConversionError(input_files.installed(Location(models)))
        library = Library(load_settings(models))
        _refuse_existing(models, model, library.settings)
        given = [read_parent(name, models, library) for name in parents]
        new = new_model(model, cased or title(model), given, models, library)
        entries = [*table_entries(models, new.renamer, new.types, new.classes, library)]
        shown = [one for one in entries if dry_run or not (one.is_generated or tables)]
        _place(new, entries, shown, models, dry_run=dry_run)
    except ConversionError as error:
        report(error.findings)
        return 2
    report(new.conversion.findings)
    by_hand = [] if tables else [one for one in entries if not one.is_generated]
    print("\nleft to you:", *_left(new, model, given, by_hand, library), sep="\n  ", file=sys.stderr)
    return 0


def _refuse_existing(models: str, model: str, settings: Settings) -> None:
    """Raise `ConversionError` for a model that has Python files."""
    folder = folder_of_model(models, model, settings)
    names = os.listdir(folder) if os.path.isdir(folder) else ()
    found = [os.path.join(folder, name) for name in names if name.endswith(".py")]
    place = os.path.join(models, model)
    if found and (folder != models or place in {place_of_model(path, settings) for path in found}):
        raise ConversionError(input_files.model_exists(Location(place)))


def _place(new: NewModel, tables: Sequence[Table], shown: Sequence[Table], models: str, *, dry_run: bool) -> None:
    """Write the files of the model, or show them; write its entries in tables, or show them in `shown`."""
    folder = os.path.dirname(new.modular)
    files = {new.modular: new.text, **new.conversion.files, **new.copies}
    if new.init is not None:
        files[os.path.join(folder, "__init__.py")] = new.init
    for path, text in files.items():
        if dry_run:
            if path not in new.conversion.files:
                print_diff(os.path.relpath(path), None, text)
            continue
        write_atomically(path, text, models)
        print(f"wrote {message(os.path.relpath(path))}", file=sys.stderr)
    for table in tables:
        if table in shown:
            print_diff(os.path.relpath(table.path), table.old, table.new)
        else:
            write_atomically(table.path, table.new, models)
            print(f"wrote {message(os.path.relpath(table.path))}", file=sys.stderr)


def _left(
    new: NewModel, model: str, parents: Sequence[ParentModel], tables: Sequence[Table], library: Library
) -> Iterator[str]:
    """What is left to do, a line each; `tables` are those in which people write the entries."""
    if shown := [message(os.path.relpath(one.path)) for one in tables]:
        yield f"apply the diff above to {', '.join(shown)}, which people write (--tables does it)"
    is_alone = parents[0].folder != os.path.dirname(new.modular)
    if new.init is None and is_alone and os.path.exists(os.path.join(parents[0].folder, "__init__.py")):
        yield f"__init__.py: that of {parents[0].model} cannot be followed"
    for path in new.copies:
        yield f"{message(os.path.basename(path))}: the parent's under new names; no conversion writes it"
    for other in parents[1:]:
        yield f"tables: none has an entry for the classes from {other.model}; remove those classes that you do not need"
    yield from (message(one) for one in names_made_by_renaming(new))
    names = {"{model}": model, "{Model}": new.renamer.new_cased}
    for text in library.settings.left_after_converting:
        for placeholder, name in names.items():
            text = text.replace(placeholder, name)
        yield message(text)


SHOWN = 4
"""The most names that a list of models shows."""


def write_settings(dry_run: bool) -> int:
    """Print what the project of the current folder tells, and write its settings; return the exit code."""
    project = project_above(os.getcwd()) or os.getcwd()
    try:
        base = profile_settings()
        found = survey(project, base) or survey_files(project, base)
        if found is None:
            raise ConversionError(input_files.no_models(Location(project)))
        tools = tools_in_use(project, found.root)
        rows = [*_rows(found, tools, project)]
        table = "\n".join(_table(found, tools, project, base))
        for name, text in rows:
            click.echo(f"{name:<14} {message(text)}")
        if _has_settings(project, table, dry_run):
            return 1
        if not dry_run:
            _compare(found, project)
        return 0
    except ConversionError as error:
        report(error.findings)
        return 2


def _rows(found: Survey, tools: ToolsInUse, project: str) -> Iterator[tuple[str, str]]:
    """What was found, a line each."""
    shown = ", ".join(found.models[:SHOWN]) + (", …" if len(found.models) > SHOWN else "")
    yield "package", found.package or "none: the folder of models lies in no package"
    yield "models", f"{os.path.relpath(found.root, project)}: {count(len(found.models), 'model')} ({shown})"
    for other in found.others[:SHOWN]:
        where = os.path.relpath(other, project)
        yield "", f"{where} holds models, too: put a pyproject.toml above it, and run `modular-convert init` there"
    ends = (f"`{_file_of(kind)}` for classes named …{end}" for end, kind in found.kinds.items())
    yield "files", "; ".join((f"`{_file_of(found.default_kind)}`", *ends))
    if found.layout == FILES:
        yield (
            "",
            "in one folder"
            + (f", without {', '.join(found.no_models)}, which are no models" if found.no_models else ""),
        )
    if found.unnamed:
        yield "", f"no common end of names in {', '.join(found.unnamed)}: name their classes under `kinds`"
    yield "configuration", f"…{found.config_suffix}" if found.config_suffix else "no file of its own"
    odd = [f"{model} is {cased}" for model, cased in found.cased.items() if cased != title(model)]
    yield "names", ", ".join(odd[:SHOWN]) or "as the folders: `big_bird` is `BigBird`"
    yield "base class", found.model_base or "none"
    version = f" {tools.version}" if tools.version else ""
    length = f", line length {tools.line_length}" if tools.line_length else ""
    after = f", then {' and '.join(tools.post_format)}" if tools.post_format else ""
    yield "formatter", f"{tools.formatter}{version}{length}{after}"
    for one in tools.unseen:
        yield "", f"options of a hook are not seen, write them into pyproject.toml: {one}"
    yield "header", found.header.partition("\n")[0] or "none"


def _file_of(kind: str) -> str:
    return f"{module_name(kind, '{model}')}.py".replace("{model}", "<model>")


def _table(found: Survey, tools: ToolsInUse, project: str, base: Settings) -> Iterator[str]:
    """The lines of the settings, without what the profile says anyway."""
    if not tools.has_table:
        yield f"[tool.{tools.formatter}]\nline-length = {DEFAULT_LENGTH}\n"
    yield f"[tool.{TABLE}]"
    is_own = found.package not in ("", base.package)
    is_versioned = tools.version or (is_own and tools.formatter == "ruff")  # else that of the profile
    values: dict[str, object] = {
        "package": found.package or base.package,
        "root": os.path.relpath(found.root, project).replace(os.sep, "/"),
        "formatter": tools.formatter,
        "formatter-version": tools.version if is_versioned and tools.formatter != "none" else None,
        "post-format": list(tools.post_format) or None,
        "layout": found.layout,
        "default-kind": found.default_kind,
        "config-suffix": found.config_suffix or base.config_suffix,
        "model-base": found.model_base or base.model_base,
        "license-header": found.header or None,
        "no-models": list(found.no_models) if found.layout == FILES else None,
    }
    for key, value in values.items():
        if value is not None and value != getattr(base, key.replace("-", "_"), None):
            yield f"{key} = {_in_toml(value)}"
    if kinds := {end: kind for end, kind in found.kinds.items() if base.kinds.get(end) != kind}:
        yield f"\n[tool.{TABLE}.kinds]"
        yield from (f"{_in_toml(end)} = {_in_toml(kind)}" for end, kind in kinds.items())


def _in_toml(value: object) -> str:
    """A string or a list of strings in TOML, which has the escapes of JSON; a terminal can show the text."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in text)


def _has_settings(project: str, table: str, dry_run: bool) -> bool:
    """Whether the project's file has settings already; else they are added to it, or printed."""
    path = os.path.join(project, "pyproject.toml")
    exists = os.path.isfile(path)
    known = toml_files.read_pyproject(project)
    if known and known.has_table(TABLE):
        click.echo(
            f"{'settings':<14} {os.path.relpath(path)} has a table [tool.{TABLE}]: nothing is written. It would be:\n"
        )
        click.echo(table)
        return True
    if dry_run:
        click.echo(f"\n{table}")
        return False
    before = toml_files.read_text(path) if exists else ""
    end = "\r\n" if "\r\n" in before else "\n"
    added = table.replace("\n", end) + end
    write_atomically(path, f"{before.rstrip()}{end}{end}{added}" if before.strip() else added, project)
    click.echo(
        f"{'settings':<14} {os.path.relpath(path)}: [tool.{TABLE}] is {'added' if exists else 'new'}\n\n{table}\n"
    )
    return False


def _compare(found: Survey, project: str) -> None:
    """Format the files of the models with the settings, and say which of them the formatter would change."""
    settings = load_settings(found.root)
    library = Library(settings)
    texts = {path: library.text(path) for path in found.files}
    formatted = format_files(texts, settings)
    others = [os.path.relpath(path, project) for path in texts if formatted.texts[path] != texts[path]]
    top = banner(
        os.path.join(folder_of_model(found.root, "MODEL", settings), modular_name("MODEL", settings)), settings
    ).splitlines()
    click.echo("generated files begin with")
    click.echo("".join(f"    {line}\n" for line in top), nl=False)
    click.echo(f"unchanged by the formatter: {len(texts) - len(others)} of {count(len(texts), 'file')}")
    for path in others[:SHOWN]:
        click.echo(
            f"    not {message(path)}: `modular-convert modularize` gives no file back that the formatter changes"
        )
    report([*formatted.failures.values()])
