"""The work of `modular-convert init`: find the conventions of a tree, print them, and write the settings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import click

from modular_converter.authoring.survey import Survey, survey, survey_files
from modular_converter.authoring.tools_in_use import DEFAULT_LENGTH, ToolsInUse, tools_in_use
from modular_converter.commands.output import report
from modular_converter.convert.emit.banner import banner
from modular_converter.convert.emit.format import format_files
from modular_converter.convert.source.library import Library
from modular_converter.files.atomic_write import write_atomically
from modular_converter.findings import ConversionError, Location
from modular_converter.reporting.display import count, message
from modular_converter.rules import input_files
from modular_converter.settings import toml_files
from modular_converter.settings.disk import project_above
from modular_converter.settings.layout import folder_of_model, modular_name, module_name
from modular_converter.settings.load import TABLE, load_settings, profile_settings
from modular_converter.settings.values import FILES, Settings


SHOWN = 4
"""The most names that a list of models shows."""


def run(dry_run: bool) -> int:
    """Print what the project of the current folder tells, and write its settings; return the exit code."""
    project = project_above(os.getcwd()) or os.getcwd()
    try:
        base = profile_settings()
        found = survey(project, base) or survey_files(project, base)
        if found is None:
            raise ConversionError(input_files.no_models(Location(project)))
        tools = tools_in_use(project, found.root)
        rows = [*_facts(found, tools, project)]
        table = "\n".join(_table(found, tools, project, base))
        for name, text in rows:
            click.echo(f"{name:<14} {message(text)}")
        return _write(project, table, dry_run) or (0 if dry_run else _compare(found, project))
    except ConversionError as error:
        report(error.findings)
        return 2


def _facts(found: Survey, tools: ToolsInUse, project: str) -> Iterator[tuple[str, str]]:
    """What was found, a line each."""
    shown = ", ".join(found.models[:SHOWN]) + (", …" if len(found.models) > SHOWN else "")
    yield "package", found.package or "none: the folder of models lies in no package"
    yield "models", f"{os.path.relpath(found.root, project)}: {count(len(found.models), 'model')} ({shown})"
    for other in found.others[:SHOWN]:
        where = os.path.relpath(other, project)
        yield "", f"{where} holds models, too: put a pyproject.toml above it, and run `modular-convert init` there"
    ends = (f"`{_file(kind)}` for classes named …{end}" for end, kind in found.kinds.items())
    yield "files", "; ".join((f"`{_file(found.default_kind)}`", *ends))
    if found.layout == FILES:
        yield (
            "",
            "in one folder"
            + (f", without {', '.join(found.no_models)}, which are no models" if found.no_models else ""),
        )
    if found.unnamed:
        yield "", f"no common end of names in {', '.join(found.unnamed)}: name their classes under `kinds`"
    yield "configuration", f"…{found.config_suffix}" if found.config_suffix else "no file of its own"
    odd = [f"{model} is {cased}" for model, cased in found.cased.items() if cased != _title(model)]
    yield "names", ", ".join(odd[:SHOWN]) or "as the folders: `big_bird` is `BigBird`"
    yield "base class", found.model_base or "none"
    version = f" {tools.version}" if tools.version else ""
    length = f", line length {tools.line_length}" if tools.line_length else ""
    after = f", then {' and '.join(tools.post_format)}" if tools.post_format else ""
    yield "formatter", f"{tools.formatter}{version}{length}{after}"
    for one in tools.unseen:
        yield "", f"options of a hook are not seen, write them into pyproject.toml: {one}"
    yield "header", found.header.partition("\n")[0] or "none"


def _file(kind: str) -> str:
    return f"{module_name(kind, '{model}')}.py".replace("{model}", "<model>")


def _title(model: str) -> str:
    return "".join(part.title() for part in model.split("_"))


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
            yield f"{key} = {_toml(value)}"
    if kinds := {end: kind for end, kind in found.kinds.items() if base.kinds.get(end) != kind}:
        yield f"\n[tool.{TABLE}.kinds]"
        yield from (f"{_toml(end)} = {_toml(kind)}" for end, kind in kinds.items())


def _toml(value: object) -> str:
    """A string or a list of strings in TOML, which has the escapes of JSON; a terminal can show the text."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in text)


def _write(project: str, table: str, dry_run: bool) -> int:
    """Add the settings to the project's file, or print them; return 1 where it has some already."""
    path = os.path.join(project, "pyproject.toml")
    exists = os.path.isfile(path)
    known = toml_files.read_pyproject(project)
    if known and TABLE in known.tools:
        click.echo(
            f"{'settings':<14} {os.path.relpath(path)} has a table [tool.{TABLE}]: nothing is written. It would be:\n"
        )
        click.echo(table)
        return 1
    if dry_run:
        click.echo(f"\n{table}")
        return 0
    before = toml_files.read_text(path) if exists else ""
    end = "\r\n" if "\r\n" in before else "\n"
    added = table.replace("\n", end) + end
    write_atomically(path, f"{before.rstrip()}{end}{end}{added}" if before.strip() else added, project)
    click.echo(
        f"{'settings':<14} {os.path.relpath(path)}: [tool.{TABLE}] is {'added' if exists else 'new'}\n\n{table}\n"
    )
    return 0


def _compare(found: Survey, project: str) -> int:
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
    click.echo(f"{len(texts) - len(others)} of {count(len(texts), 'file')} are as the formatter leaves them")
    for path in others[:SHOWN]:
        click.echo(
            f"    not {message(path)}: `modular-convert modularize` gives no file back that the formatter changes"
        )
    report([*formatted.failures.values()])
    return 0
