"""Set a dictionary in a class, ``base_model_tp_plan = {...}``, and keep the rest of the text unchanged."""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator, Mapping

import libcst as cst
import libcst.matchers as m
from libcst.metadata import ExpressionContext, ExpressionContextProvider, MetadataWrapper, PositionProvider

from modular_converter.parallel.errors import WriteError


BOM = "\ufeff"
"""The byte order mark that some editors put before the text of a file; it is kept."""


def set_dictionary(text: str, class_name: str, attribute: str, entries: Mapping[str, str]) -> str:
    """The text in which the class ``class_name`` sets ``attribute`` to ``entries``.

    Lines of unchanged entries keep their comments; new lines follow the same entries as in ``entries``. A new attribute
    goes below the plain attributes at the top of the class.

    Raises ``WriteError`` if there is no such class, or the present value cannot be edited, such as a computed value.
    """
    if text.startswith(BOM):
        return BOM + set_dictionary(text.removeprefix(BOM), class_name, attribute, entries)
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    module = wrapper.module
    found = [node for node in module.body if isinstance(node, cst.ClassDef) and node.name.value == class_name]
    if len(found) != 1:
        state = "defined twice" if found else "no class of this name stands at the top level"
        raise WriteError(f"{class_name}: {state}")
    statement = _statement(wrapper, found[0], attribute)
    made = cst.parse_expression(_rendered(entries, module.default_newline), module.config_for_parsing)
    if statement is None:
        new = cst.Assign([cst.AssignTarget(cst.Name(attribute))], made)
        return _code(module, found[0], _with_statement(found[0], new))
    value = statement.value
    if value is None:
        return _code(module, statement, statement.with_changes(value=made))
    line, literal = wrapper.resolve(PositionProvider)[value].start.line, module.code_for_node(value)
    if entries and _has_one_entry_a_line(literal):
        made = cst.parse_expression(_edited(literal, entries, line), module.config_for_parsing)
    elif not _is_literal(literal) or m.findall(value, m.Comment()):
        state = "has comments and several entries on a line" if _is_literal(literal) else "is computed"
        raise WriteError(
            f"{class_name}.{attribute}: line {line}: its value {state}; write it as a dictionary with one entry a line "
            "first"
        )
    return _code(module, value, made)


def _code(module: cst.Module, old: cst.CSTNode, new: cst.CSTNode) -> str:
    changed = module.deep_replace(old, new)
    assert isinstance(changed, cst.Module)
    return changed.code


def _statement(wrapper: MetadataWrapper, node: cst.ClassDef, attribute: str) -> cst.Assign | cst.AnnAssign | None:
    """The only assignment of the attribute, a plain statement of the class; None if there is none. Raises ``WriteError``."""
    places, contexts = wrapper.resolve(PositionProvider), wrapper.resolve(ExpressionContextProvider)
    name, plain = m.Name(attribute), m.Assign(targets=[m.AssignTarget(m.Name(attribute))])
    found: list[cst.Assign | cst.AnnAssign] = []
    lines: list[int] = []
    for one in _statements(node):
        line = places[one].start.line
        if isinstance(one, (cst.Assign, cst.AnnAssign)) and m.matches(one, plain | m.AnnAssign(target=name)):
            found.append(one)
            lines.append(line)
        elif not isinstance(one, (cst.FunctionDef, cst.ClassDef)) and any(
            contexts.get(use) in (ExpressionContext.STORE, ExpressionContext.DEL) for use in m.findall(one, name)
        ):
            raise WriteError(f"{node.name.value}.{attribute}: line {line}: it is set by more than a plain assignment")
    if len(found) > 1:
        raise WriteError(f"{node.name.value}.{attribute}: lines {lines[0]} and {lines[1]}: it is set twice")
    return found[0] if found else None


def _statements(node: cst.ClassDef) -> Iterator[cst.CSTNode]:
    for one in node.body.body:
        yield from one.body if isinstance(one, cst.SimpleStatementLine) else (one,)


def _rendered(entries: Mapping[str, str], newline: str) -> str:
    """A dictionary as text: on one line if it has at most one short entry, else one entry a line."""
    items = [f'"{key}": "{style}"' for key, style in entries.items()]
    if len(items) < 2 and sum(map(len, items)) < 76:
        return "{" + ", ".join(items) + "}"
    return newline.join(["{", *(f"    {item}," for item in items), "}"])


def _with_statement(node: cst.ClassDef, new: cst.Assign) -> cst.ClassDef:
    """The class with a new statement, below its docstring and plain attributes, or in place of its ``pass``."""
    suite = node.body
    block = suite if isinstance(suite, cst.IndentedBlock) else cst.IndentedBlock(())
    lines = list(block.body)
    if isinstance(suite, cst.SimpleStatementSuite):  # ``class C: pass``
        lines = [cst.SimpleStatementLine(suite.body, trailing_whitespace=suite.trailing_whitespace)]
    string = m.Expr(m.SimpleString() | m.ConcatenatedString())
    at = int(m.matches(lines[0], m.SimpleStatementLine([string, m.ZeroOrMore()])))
    stand_in = m.SimpleStatementLine([m.Pass() | m.Expr(m.Ellipsis())])
    if len(lines) == at + 1 and m.matches(lines[at], stand_in):
        lines[at] = lines[at].with_changes(body=[new])
    else:
        above = getattr(lines[at], "leading_lines", ()) if at and at < len(lines) else ()
        plain = m.SimpleStatementLine([m.Assign(), m.ZeroOrMore()])
        first = at
        while block is suite and at < len(lines) and m.matches(lines[at], plain):
            at += 1
        apart = at == first and above and above[0].comment is None  # with a blank line, as below the docstring
        blank = [cst.EmptyLine(indent=False)] if apart else []
        lines.insert(at, cst.SimpleStatementLine([new], leading_lines=blank))
    return node.with_changes(body=block.with_changes(body=lines))


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except ValueError:
        return text == "AttributeError()"
    return True


def _pairs(literal: str) -> list[tuple[ast.Constant, ast.Constant]]:
    """The entries of a dictionary with string keys and constant values; empty for other expressions."""
    value = ast.parse(literal, mode="eval").body
    pairs = list(zip(value.keys, value.values)) if isinstance(value, ast.Dict) else []
    found = [(k, v) for k, v in pairs if isinstance(k, ast.Constant) and isinstance(v, ast.Constant)]
    return found if len(found) == len(pairs) and all(isinstance(key.value, str) for key, _ in found) else []


def _has_one_entry_a_line(literal: str) -> bool:
    """Whether a dictionary of strings has each entry, and its closing brace, on a line of its own."""
    lines = list(io.StringIO(literal, newline=""))
    starts = [0, *(key.lineno for key, _ in _pairs(literal)), len(lines)]
    rising = all(before < after for before, after in zip(starts[1:], starts[2:]))
    alone = all(
        not lines[key.lineno - 1].encode()[: key.col_offset].strip() and key.lineno == style.end_lineno
        for key, style in _pairs(literal)
    )
    return len(starts) > 2 and rising and alone and lines[-1].strip() == "}"


def _edited(literal: str, entries: Mapping[str, str], line: int) -> str:
    """A dictionary with single entries replaced, removed and added.

    Args:
        line: the first line of the dictionary in its file, for messages.
    """
    lines = [part.encode() for part in io.StringIO(literal, newline="")]
    pairs = _pairs(literal)
    first, last = pairs[0][0], pairs[-1][0]
    margin = lines[first.lineno - 1][: first.col_offset].decode()
    newline = "\r\n" if lines[0].endswith(b"\r\n") else "\n"
    present = {str(key.value): key.lineno for key, _ in pairs}
    added: dict[int, str] = {}
    place = first.lineno - 1
    for name, style in entries.items():
        place = present.get(name, place)
        if name not in present:
            added[place] = added.get(place, "") + f'{margin}"{name}": "{style}",{newline}'
    for key, value in pairs:
        number, start, end = key.lineno - 1, value.col_offset, value.end_col_offset
        if present[str(key.value)] != key.lineno:
            raise WriteError(f"line {line + number}: the key {key.value!r} is there twice")
        text, comma = lines[number], b","
        if key is not last or not added or text[end:].lstrip().startswith(b","):
            comma = b""
        style = entries.get(str(key.value), "")
        kept = text[start:end] if value.value == style else f'"{style}"'.encode()
        lines[number] = text[:start] + kept + comma + text[end:] if style else b""
    return "".join(added.get(number, "") + text.decode() for number, text in enumerate(lines))
