"""Write what the code knows of itself: `python utils/write_reference.py`.

* `docs/reference/commands.md`: every command with its options, from their definitions;
* `docs/reference/python.md`, below its mark: the public functions and records, from their docstrings;
* `modular_converter/settings/schema.json`: the JSON schema of the settings, with the words of their table.
"""

from __future__ import annotations

import inspect
import json
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click


ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import modular_converter  # noqa: E402
from modular_converter.commands.check import check_command  # noqa: E402
from modular_converter.commands.convert import convert_command  # noqa: E402
from modular_converter.commands.subcommands import SUBCOMMANDS  # noqa: E402
from modular_converter.findings import Severity  # noqa: E402
from modular_converter.parallel.cli import main as plan_group  # noqa: E402
from modular_converter.settings.toml_files import LISTS, MOST_NUMBER, READERS  # noqa: E402
from modular_converter.settings.values import FORMATTERS, LAYOUTS, SIBLING_IMPORTS  # noqa: E402


COMMANDS_HEAD = """\
<!-- Written by utils/write_reference.py. Do not edit. -->

# Commands

The same words as behind `--help`, which each command has. [Exit codes and formats](findings.md) are the same in all of them.
"""
PYTHON_MARK = "<!-- written by utils/write_reference.py below this line -->\n"


def pages() -> dict[str, str]:
    """Path below the root -> text of each written file."""
    python = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    return {
        "docs/reference/commands.md": COMMANDS_HEAD + "".join(map(_command, *zip(*_commands()))),
        "docs/reference/python.md": python.partition(PYTHON_MARK)[0] + PYTHON_MARK + "".join(_public()),
        "modular_converter/settings/schema.json": json.dumps(_schema(_descriptions()), indent=2) + "\n",
    }


def _commands() -> Iterator[tuple[str, click.Command]]:
    yield "modular-convert", convert_command
    yield from ((f"modular-convert {name}", one) for name, one in SUBCOMMANDS.items())
    yield "check-modular-conversion", check_command
    context = click.Context(plan_group)
    for name in plan_group.list_commands(context):
        found = plan_group.get_command(context, name)
        assert found is not None
        yield f"modular-plan {name}", found


def _command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    words = inspect.cleandoc(command.help or "").replace("\b\n", "")
    rows = "".join(_option(one, context) for one in command.params)
    table = f"\n| option | |\n| --- | --- |\n{rows}" if rows else ""
    return f"\n## {name}\n\n`{name} {usage}`\n\n{words}\n{table}"


def _option(option: click.Parameter, context: click.Context) -> str:
    record = option.get_help_record(context)
    if record is None:
        return ""
    names, words = (one.replace("|", "\\|") for one in record)
    return f"| `{names}` | {words} |\n"


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_NAMES = {"type": "string", "minLength": 1}
_TABLE = {"type": "object", "additionalProperties": _NAMES}
_TYPES: Mapping[str, Mapping[str, Any]] = {
    "max-file-bytes": {"type": "integer", "minimum": 1, "maximum": MOST_NUMBER},
    "workers": {"type": "integer", "minimum": 0, "maximum": MOST_NUMBER},
    "strict": {"type": "boolean"},
    "sibling-imports": {"enum": list(SIBLING_IMPORTS)},
    "formatter": {"enum": list(FORMATTERS)},
    "replaced-dependency": {"enum": [one.value for one in Severity]},
    "kinds": _TABLE,
    "copied-kinds": _TABLE,
    "implied-bases": _TABLE,
    "per-file-ignores": {"type": "object", "additionalProperties": _TEXTS},
    "default-kind": _NAMES,
    "modular-kind": _NAMES,
    "layout": {"enum": list(LAYOUTS)},
    **dict.fromkeys(LISTS, _TEXTS),
}
"""The form of each value; those of other keys are strings."""


def _schema(descriptions: Mapping[str, str]) -> dict[str, Any]:
    """The JSON schema of `[tool.modular-converter]`, with the words for each key. The readers of the settings judge more than a
    schema can; what the schema refuses, they refuse.
    """
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://json.schemastore.org/partial-modular-converter.json",
        "title": "modular-converter",
        "description": "How modular model files are converted and checked",
        "type": "object",
        "additionalProperties": False,
        "properties": {key: {"description": descriptions[key], **_TYPES.get(key, _TEXT)} for key in sorted(READERS)},
    }


def _public() -> Iterator[str]:
    for name in modular_converter.__all__:
        found = getattr(modular_converter, name)
        if inspect.isfunction(found):
            yield f"\n## `{name}`\n\n```text\n{name}{_signature(found)}\n```\n\n{_docstring(found)}\n"
        elif inspect.isclass(found):
            yield f"\n## `{name}`\n\n{_docstring(found)}\n"


def _docstring(found: object) -> str:
    """The docstring; its sections with indented lines become lists."""
    text = inspect.getdoc(found) or ""
    text = re.sub(r"(?m)^(Args|Returns|Raises):$", r"**\1**\n", text)
    text = re.sub(r"(?m)^    (\w+): ", r"* `\1`: ", text)
    return re.sub(r"(?m)^    (?=\S)", "", text)


def _signature(found: Callable[..., object]) -> str:
    """The signature without the quotes of postponed annotations."""
    return str(inspect.signature(found)).replace("'", "")


def _descriptions() -> dict[str, str]:
    """Key -> its words in the table of settings, without links."""
    text = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    found = {}
    for keys, words in re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", words).strip()
        found.update(dict.fromkeys(re.findall(r"`([\w-]+)`", keys), plain))
    return found


def main() -> None:
    """Write the files."""
    for name, text in pages().items():
        (ROOT / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
