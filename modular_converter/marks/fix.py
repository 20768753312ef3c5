"""Correct drifted copies: members that differ become those of the source, and everything else stays; a copy
whose calls in other files would not fit any more is left.
"""

from __future__ import annotations

import ast
import os
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from modular_converter.convert.emit.format import format_files
from modular_converter.convert.emit.format_ruff import undefined_names
from modular_converter.convert.source.library import Library
from modular_converter.findings import UNPARSABLE
from modular_converter.marks.audit import INDENT, Audit, Audited, MarkVerdict, audit, depth, nested, unnested
from modular_converter.marks.units import BodyUnit, DefinitionUnits, differing
from modular_converter.model.bindings import Function, accepts
from modular_converter.model.index import is_docstring
from modular_converter.model.nodes import decorators_of, functions_of, parse
from modular_converter.settings.values import Settings


ROUNDS = 10
"""The most rounds; more than any file has copies. A copy that is the source of another copy needs one round more."""


@dataclass
class Repair:
    """The result of correcting copies; nothing is written."""

    audit: Audit
    """The audit of the corrected texts."""
    texts: dict[str, str] = field(default_factory=dict)
    """Path -> new text, for each file that changes."""
    callers: Collection[str] = ()
    """The files whose calls must go on to fit the signatures of copies."""
    fixed: int = 0
    refused: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """The key of a copy that stays drifted -> the reason."""


def repair(first: Audit, paths: Collection[str], library: Library, unsafe: bool = False) -> Repair:
    """Correct the drifted copies of an audit, in the texts that `library` lays over the files. A copy stays if its
    source would not parse in its place, uses a name that the file lacks, or has a string over several lines, whose
    value depends on its indentation.

    Args:
        paths: the files of the audit.
        unsafe: whether a copy gets a signature that calls of it, in these files, do not fit.
    """
    done = Repair(first, callers=() if unsafe else paths)
    in_files = Counter(one.path for one in first.marks if one.verdict is MarkVerdict.DRIFTED)
    for _ in range(ROUNDS + max(in_files.values(), default=0)):
        drifted = [one for one in done.audit.marks if one.verdict is MarkVerdict.DRIFTED]
        texts = _next_texts(drifted, done, library)
        if not texts:
            break
        done.texts.update(texts)
        library.put(texts)
        done.audit = _audit_again(done.audit, texts, paths, library)
    return done


def _audit_again(last: Audit, changed: Collection[str], paths: Collection[str], library: Library) -> Audit:
    """The audit after some files have changed: of these, and of the files with a mark that names one of them."""
    modules = {os.path.basename(path).removesuffix(".py") for path in changed}
    named = {one.path for one in last.marks if not modules.isdisjoint(one.mark.source.split("."))}
    again = [path for path in paths if path in changed or path in named]
    part = audit(again, library)
    marks: dict[str, list[Audited]] = {}
    for one in (*(one for one in last.marks if one.path not in again), *part.marks):
        marks.setdefault(one.path, []).append(one)
    findings = [one for one in last.findings if one.location.path not in again]
    in_order = tuple(one for path in paths for one in marks.get(path, ()))
    return Audit(in_order, last.in_generated, (*findings, *part.findings))


def _next_texts(drifted: Sequence[Audited], done: Repair, library: Library) -> dict[str, str]:
    """The files with some copies corrected; none if all remaining copies are refused."""
    while waiting := [one for one in drifted if one.key not in done.refused]:
        if texts := _proposed(waiting, done, library):
            return texts
    return {}


def _proposed(waiting: Sequence[Audited], done: Repair, library: Library) -> dict[str, str]:
    """The files, each with its first copy corrected, so that no two edits overlap; files where it is refused are left
    out.
    """
    first = {one.path: one for one in reversed(waiting)}
    proposed: dict[str, str] = {}
    for path, one in first.items():
        replaced = _replaced(one, library.text(path), library.settings)
        if isinstance(replaced, str):
            proposed[path] = replaced
        else:
            done.refused[one.key] = replaced[0]
    lacking = _new_undefined(proposed, library)
    for path, names in lacking.items():
        done.refused[first[path].key] = f"the file lacks {', '.join(f'`{name}`' for name in names)}"
        del proposed[path]
    for path, text in list(proposed.items()) if done.callers else ():
        others = {one: library.text_if_readable(one) or "" for one in done.callers if _may_import(one, path, library)}
        broken = next(broken_calls(path, library.text(path), text, others), None)
        if broken is not None:
            place = f"{os.path.relpath(broken.path)}:{broken.line}"
            done.refused[first[path].key] = f"the call of `{broken.name}` at {place} would not fit its parameters"
            del proposed[path]
    done.fixed += len(proposed)
    return proposed


def _may_import(path: str, other: str, library: Library) -> bool:
    """Whether a file may use another one: it names its module."""
    stem = os.path.basename(other).removesuffix(".py")
    return path != other and stem in (library.text_if_readable(path) or "")


def _replaced(one: Audited, text: str, settings: Settings) -> str | tuple[str]:
    """The text of a file with one copy corrected, or the reason why it stays."""
    assert one.source is not None and one.copy is not None
    lines = text.split("\n")
    start, end = one.lines
    margin = " " * INDENT * depth(one)
    if lines[start - 1][: one.mark.column - 1] != margin:
        return (f"its file is not indented by {INDENT} spaces",)
    if not (one.source.body and one.copy.body):
        return ("its source is no definition with the replacements of the mark",)
    units = _merged(one.source, one.copy)
    if units is None:
        return ("`# Ignore copy` stands in it where the source has nothing of that name",)
    name = f"{one.path.removesuffix('.py')}_.py"
    formatted = format_files({name: nested(units.text, depth(one))}, settings.formatting(os.path.dirname(one.path)))
    if formatted.failures:
        return ("it would not parse",)
    new = unnested(formatted.texts[name], depth(one)).removesuffix("\n")
    lines[start - 1 : end] = textwrap.indent(new, margin).split("\n")
    result = "\n".join(lines)
    try:
        moved = _strings(parse(result)) - _strings(parse(text))
    except UNPARSABLE:
        return ("it would not parse",)
    return ("a string over several lines differs, and its text depends on the indentation",) if moved else result


def _strings(tree: ast.Module) -> Counter[str]:
    """The strings over several lines that are no docstrings: another indentation would change their value."""
    bodies = (getattr(node, "body", None) for node in ast.walk(tree))
    firsts = (body[0] for body in bodies if isinstance(body, list) and body)
    documentation = {id(first.value) for first in firsts if is_docstring(first)}
    return Counter(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
        if "\n" in node.value and node.end_lineno != node.lineno
    )


def _merged(source: DefinitionUnits, copy: DefinitionUnits) -> DefinitionUnits | None:
    """The source with the parts that the copy keeps: equal members, ignored members, and its own marks."""
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
    """A unit with marks above its first line of code below the decorators."""
    if not marks:
        return unit
    begins = ("def ", "async def ", "class ")
    code = (number for number, line in enumerate(unit.lines) if line.lstrip().startswith(begins))
    place = next(code, len(unit.lines))
    return replace(unit, lines=(*unit.lines[:place], *marks, *unit.lines[place:]), marks=())


def _new_undefined(texts: Mapping[str, str], library: Library) -> dict[str, list[str]]:
    """Text -> the names that it uses and that the file lacks now and did not lack before."""
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


class BrokenCall(NamedTuple):
    """A call that no longer binds."""

    path: str
    line: int
    name: str
    """The function."""


class _Call(NamedTuple):
    node: ast.Call
    owner: str
    """The class that it stands in; "" outside of classes."""


def broken_calls(path: str, old: str, new: str, others: Mapping[str, str]) -> Iterator[BrokenCall]:
    """The calls that bind to functions of the text `old` of a file and do not bind to those of `new`.

    Args:
        others: path -> text of further files, whose calls of the functions with another signature are looked at too.
    """
    before, after = ({(owner, one.name): one for owner, one in functions_of(parse(text))} for text in (old, new))
    changed = {
        place: (before[place], node)
        for place, node in after.items()
        if place in before
        and (ast.dump(before[place].args), _manner(before[place])) != (ast.dump(node.args), _manner(node))
    }
    if not changed:
        return
    names = {name for _, name in changed}
    may_call = {one: text for one, text in others.items() if any(name in text for name in names)}
    for where, text in ((path, new), *may_call.items()):
        try:
            tree = parse(text)
        except UNPARSABLE:
            continue
        defined = {owner for owner, _ in functions_of(tree)}
        for (_, name), (was, now) in changed.items():
            used = (one for one in ast.walk(tree) if isinstance(one, ast.Attribute) and one.attr == name)
            if _manner(was) != _manner(now) and (use := next(used, None)):
                yield BrokenCall(where, use.lineno, name)
        for call in _calls(tree):
            for (owner, name), (was, now) in changed.items():
                if _means(call, owner, name, defined) and _binds(call, owner, was) and not _binds(call, owner, now):
                    yield BrokenCall(where, call.node.lineno, name)


def _manner(function: Function) -> frozenset[str]:
    """The decorators that decide what a method is called with, or that it is not called at all."""
    named = (one.rpartition(".")[2] for one in decorators_of(function))
    return frozenset(named) & {"staticmethod", "classmethod", "property", "cached_property", "setter"}


def _calls(tree: ast.Module) -> Iterator[_Call]:
    for node in tree.body:
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        yield from (_Call(one, owner) for one in ast.walk(node) if isinstance(one, ast.Call))


def _means(call: _Call, owner: str, name: str, defined: Iterable[str]) -> bool:
    """Whether a call may be one of a function: of this name, and on no object that is known to be of another class."""
    called = call.node.func
    if not owner:
        return isinstance(called, ast.Name) and called.id == name
    if not isinstance(called, ast.Attribute) or called.attr != name:
        return False
    receiver = called.value.id if isinstance(called.value, ast.Name) else ""
    if receiver in ("self", "cls"):
        return call.owner == owner or call.owner not in defined
    return receiver in (owner, "") or receiver not in defined


def _binds(call: _Call, owner: str, function: Function) -> bool:
    """Whether the arguments of a call fit."""
    receiver = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    through_class = isinstance(receiver, ast.Name) and receiver.id == owner
    is_static, is_of_class = (one in _manner(function) for one in ("staticmethod", "classmethod"))
    instance = 1 if owner and not is_static and (is_of_class or not through_class) else 0
    return accepts(function, call.node, instance)
