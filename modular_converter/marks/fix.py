"""Drifted copies put right: the members that differ become those of the source, and all else stays as it is."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modular_converter.convert.emit.format import format_files
from modular_converter.convert.emit.format_ruff import undefined_names
from modular_converter.convert.source.library import Library
from modular_converter.marks.audit import INDENT, Audit, Audited, MarkVerdict, audit, depth, nested, unnested
from modular_converter.marks.compare import differing
from modular_converter.marks.units import BodyUnit, DefinitionUnits, parse
from modular_converter.settings.values import Settings


ROUNDS = 10
"""A copy may be the source of another one, whose turn comes in the next round."""


@dataclass
class Repair:
    """The outcome of putting copies right; nothing is written."""

    audit: Audit
    """What is left."""
    texts: dict[str, str] = field(default_factory=dict)
    """Path -> new text, for each file that changes."""
    fixed: int = 0
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    """Path and name of a copy that stays drifted -> the reason."""


def repair(first: Audit, paths: Collection[str], library: Library) -> Repair:
    """Put the drifted copies of an audit right, in the texts that `library` lays over the files.

    A copy stays where its source would not parse in its place, or uses a name that the file lacks.
    """
    done = Repair(first)
    for _ in range(ROUNDS):
        drifted = [one for one in done.audit.marks if one.verdict is MarkVerdict.DRIFTED]
        waiting = [one for one in drifted if (one.path, one.name) not in done.refused]
        texts = _next_texts(waiting, done, library)
        if not texts:
            break
        done.texts.update(texts)
        library.put(texts)
        done.audit = audit(paths, library)
    return done


def _next_texts(drifted: Sequence[Audited], done: Repair, library: Library) -> dict[str, str]:
    """The files with some copies put right: in each file one, so that no two edits meet."""
    first = {one.path: one for one in reversed(drifted)}
    proposed: dict[str, str] = {}
    for path, one in first.items():
        replaced = _replaced(one, library.text(path), library.settings)
        if isinstance(replaced, str):
            proposed[path] = replaced
        else:
            done.refused[path, one.name] = replaced[0]
    lacking = _new_undefined(proposed, library)
    for path, names in lacking.items():
        done.refused[path, first[path].name] = f"the file lacks {', '.join(f'`{name}`' for name in names)}"
        del proposed[path]
    done.fixed += len(proposed)
    if not proposed and first:  # all refused: the next of each file
        rest = [one for one in drifted if (one.path, one.name) not in done.refused]
        return _next_texts(rest, done, library) if rest else {}
    return proposed


def _replaced(one: Audited, text: str, settings: Settings) -> str | tuple[str]:
    """The text of a file with one copy put right, or the reason why not."""
    assert one.source is not None and one.copy is not None
    units = _merged(one.source, one.copy)
    if units is None:
        return ("`# Ignore copy` stands in it where the source has nothing of that name",)
    name = f"{one.path.removesuffix('.py')}_.py"
    formatted = format_files({name: nested(units.text, depth(one))}, settings)
    if formatted.failures:
        return ("it would not parse",)
    new = unnested(formatted.texts[name], depth(one)).removesuffix("\n")
    lines = text.split("\n")
    start, end = one.lines
    lines[start - 1 : end] = textwrap.indent(new, " " * INDENT * depth(one)).split("\n")
    result = "\n".join(lines)
    try:
        parse(result)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ("it would not parse",)
    return result


def _merged(source: DefinitionUnits, copy: DefinitionUnits) -> DefinitionUnits | None:
    """The source with what the copy may keep: members that do not differ, ignored ones, and marks of its own."""
    if not source.is_class:
        return None if any(unit.is_ignored for unit in copy.body) else source
    other = set(differing(source, copy))
    own: dict[str, list[BodyUnit]] = {}
    for unit in copy.body:
        if unit.is_ignored and not (unit.name and any(one.name == unit.name for one in source.body)):
            return None
        own.setdefault(unit.name, []).append(unit)
    body: list[BodyUnit] = []
    placed: set[str] = set()
    for unit in source.body:
        mine = own.get(unit.name, []) if unit.name else []
        if not mine or unit.name in other:
            body.append(_marked(unit, mine[0].marks if mine and unit.name not in placed else ()))
        elif unit.name not in placed:
            body += (_marked(one, one.marks) for one in mine)
        placed.add(unit.name)
    return replace(source, body=tuple(body))


def _marked(unit: BodyUnit, marks: Sequence[str]) -> BodyUnit:
    """A unit with marks above its first line of code that is no decorator."""
    if not marks:
        return unit
    begins = ("def ", "async def ", "class ")
    code = (number for number, line in enumerate(unit.lines) if line.lstrip().startswith(begins))
    place = next(code, len(unit.lines))
    return replace(unit, lines=(*unit.lines[:place], *marks, *unit.lines[place:]), marks=())


def _new_undefined(texts: Mapping[str, str], library: Library) -> dict[str, list[str]]:
    """For each text that uses names which the file lacks and did not lack before: the names."""
    if not texts:
        return {}
    after = undefined_names(texts, library.settings)
    before = undefined_names({path: library.text(path) for path in texts}, library.settings) if after else {}
    found = {}
    for path, names in after.items():
        known = {one.name for one in before.get(path, ())}
        new = sorted({one.name for one in names} - known)
        if new:
            found[path] = new
    return found
