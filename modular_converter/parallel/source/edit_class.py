"""Set a dictionary that a class holds, ``base_model_tp_plan = {...}``, in a text: everything outside it stays.

The text is cut at the places that ``ast`` gives, as the converter does; what is not touched keeps its bytes.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass

from modular_converter.parallel.errors import WriteError


BOM = "\ufeff"
"""The mark that some editors put before the text of a file; it is kept."""


@dataclass(frozen=True)
class _Text:
    """A text by lines, each with its line break."""

    lines: list[str]

    @classmethod
    def of(cls, text: str) -> _Text:
        return cls(list(io.StringIO(text, newline="")))

    def offset(self, line: int, column: int) -> int:
        """The index of a place that ``ast`` gives: lines from 1, columns in bytes of UTF-8."""
        before = self.lines[line - 1].encode("utf-8")[:column].decode("utf-8")
        return self.start(line) + len(before)

    def start(self, line: int) -> int:
        return sum(map(len, self.lines[: line - 1]))

    def margin(self, line: int, offset: int) -> str:
        """What stands between the start of a line and an index within it."""
        return "".join(self.lines)[self.start(line) : offset]


def set_dictionary(text: str, class_name: str, attribute: str, entries: Mapping[str, str]) -> str:
    """The text in which the class ``class_name`` sets ``attribute`` to ``entries``.

    Lines of entries that stay are kept with their comments; new ones follow the entry that they follow in ``entries``.
    Without the attribute, it goes below the plain attributes at the top of the class.

    Raises:
        WriteError: no such class, or a value that is computed and cannot be edited as text.
    """
    if text.startswith(BOM):
        return BOM + set_dictionary(text.removeprefix(BOM), class_name, attribute, entries)
    lines = _Text.of(text)
    body = _class(text, class_name)
    statement = _statement(body, attribute)
    newline = "\r\n" if lines.lines and lines.lines[0].endswith("\r\n") else "\n"
    if statement is None:
        return _inserted(lines, body, attribute, entries, newline)
    value = statement.value
    indent = " " * statement.col_offset
    if value is None:
        end = lines.offset(*_end(statement))
        return text[:end] + " = " + _rendered(entries, indent, newline) + text[end:]
    start, end = lines.offset(value.lineno, value.col_offset), lines.offset(*_end(value))
    if isinstance(value, ast.Dict) and value.keys and entries and _one_a_line(lines, value):
        return _edited(lines, value, entries)
    known = _is_literal(value) or ast.unparse(value) == "AttributeError()"
    if not known or _has_comment(text[start:end]):
        what = "is computed" if not known else "has comments and several entries on a line"
        raise WriteError(
            f"{class_name}.{attribute}: line {value.lineno}: its value {what}; write it as a dictionary with one entry "
            "a line first"
        )
    return text[:start] + _rendered(entries, indent, newline) + text[end:]


def _class(text: str, name: str) -> ast.ClassDef:
    found = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name]
    if len(found) != 1:
        raise WriteError(f"{name}: {'defined twice' if found else 'no class of this name stands at the top level'}")
    return found[0]


def _statement(body: ast.ClassDef, attribute: str) -> ast.Assign | ast.AnnAssign | None:
    """The one assignment of the attribute; a plain statement of the class."""
    found: list[ast.Assign | ast.AnnAssign] = []
    for node in body.body:
        if (
            isinstance(node, ast.Assign)
            and [ast.unparse(target) for target in node.targets] == [attribute]
            or isinstance(node, ast.AnnAssign)
            and ast.unparse(node.target) == attribute
        ):
            found.append(node)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and any(
            isinstance(name, ast.Name) and name.id == attribute and not isinstance(name.ctx, ast.Load)
            for name in ast.walk(node)
        ):
            raise WriteError(f"{body.name}.{attribute}: line {node.lineno}: it is set by more than a plain assignment")
    if len(found) > 1:
        raise WriteError(f"{body.name}.{attribute}: lines {found[0].lineno} and {found[1].lineno}: it is set twice")
    return found[0] if found else None


def _end(node: ast.stmt | ast.expr) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _rendered(entries: Mapping[str, str], indent: str, newline: str) -> str:
    """A dictionary as text: on one line for a single short entry, else one entry a line."""
    items = [f'"{key}": "{style}"' for key, style in entries.items()]
    if len(items) < 2 and len(indent) + sum(map(len, items)) < 80:
        return "{" + ", ".join(items) + "}"
    return newline.join(["{", *(f"{indent}    {item}," for item in items), f"{indent}}}"])


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _has_comment(text: str) -> bool:
    tokens = tokenize.generate_tokens(io.StringIO(f"({text})").readline)
    return any(token.type == tokenize.COMMENT for token in tokens)


def _inserted(lines: _Text, body: ast.ClassDef, attribute: str, entries: Mapping[str, str], newline: str) -> str:
    text = "".join(lines.lines)
    first = body.body[0]
    start = lines.offset(first.lineno, first.col_offset)
    margin = lines.margin(first.lineno, start)
    own_line = not margin.strip()
    indent = margin if own_line else " " * (body.col_offset + 4)
    made = f"{attribute} = {_rendered(entries, indent, newline)}"
    stand_in = body.body[-1]
    if _stands_in(stand_in) and len(body.body) <= (2 if ast.get_docstring(body) is not None else 1):
        begin, end = lines.offset(stand_in.lineno, stand_in.col_offset), lines.offset(*_end(stand_in))
        if own_line:
            return text[:begin] + made + text[end:]
        return text[:begin].rstrip(" ") + newline + indent + made + text[end:]
    if not own_line:
        return text[:start].rstrip(" ") + f"{newline}{indent}{made}{newline}{indent}" + text[start:]
    after = _anchor(body)
    if after is None:
        line = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))])
        while not lines.lines[line - 2].strip() or lines.lines[line - 2].lstrip().startswith("#"):
            line -= 1  # blank lines and comments stay with the statement below them
        place = lines.start(line)
        return text[:place] + f"{indent}{made}{newline}" + text[place:]
    line = max(_end(node)[0] for node in body.body if node.lineno <= _end(after)[0])
    place = lines.start(line + 1)
    apart = isinstance(after, ast.Expr) and (line >= len(lines.lines) or not lines.lines[line].strip())
    lead = "" if lines.lines[line - 1].endswith(("\n", "\r")) else newline
    gap = newline if apart and len(body.body) > 1 else ""
    return text[:place] + f"{lead}{gap}{indent}{made}{newline}" + text[place:]


def _stands_in(node: ast.stmt) -> bool:
    """``pass`` and ``...``: a body that is there because there must be one."""
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...
    return isinstance(node, ast.Pass) or constant


def _anchor(body: ast.ClassDef) -> ast.stmt | None:
    """The last of the plain assignments with which a class begins, else its docstring."""
    found = None
    for node in body.body:
        docstring = node is body.body[0] and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not isinstance(node, ast.Assign):
            break
        found = node
    return found


def _one_a_line(lines: _Text, value: ast.Dict) -> bool:
    """Whether each entry is a pair of strings that begins a line of its own, and the closing brace does too."""
    last = value.lineno
    for key, style in zip(value.keys, value.values):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(style, ast.Constant)):
            return False
        before = lines.margin(key.lineno, lines.offset(key.lineno, key.col_offset))
        if key.lineno <= last or before.strip():
            return False
        last = _end(style)[0]
    line, column = _end(value)
    closing = lines.margin(line, lines.offset(line, column))
    return line > last and closing.strip() == "}"


def _edited(lines: _Text, value: ast.Dict, entries: Mapping[str, str]) -> str:
    """The text with single entries replaced, removed and added."""
    text = "".join(lines.lines)
    newline = "\r\n" if lines.lines[value.lineno - 1].endswith("\r\n") else "\n"
    present: dict[str, tuple[ast.expr, ast.expr]] = {}
    for key, style in zip(value.keys, value.values):
        assert isinstance(key, ast.Constant)
        if key.value in present:
            raise WriteError(f"line {key.lineno}: the key {key.value!r} is there twice")
        present[str(key.value)] = (key, style)
    keys = list(present)
    margin = lines.margin(
        present[keys[0]][0].lineno, lines.offset(present[keys[0]][0].lineno, present[keys[0]][0].col_offset)
    )
    edits: list[tuple[int, int, str]] = []
    last = lines.offset(*_end(present[keys[-1]][1]))
    if set(entries) - set(present) and keys[-1] in entries and not text[last:].lstrip().startswith(","):
        edits.append((last, last, ","))
    for name, (key, style) in present.items():
        begin, end = lines.start(key.lineno), lines.start(_end(style)[0] + 1)
        if name not in entries:
            edits.append((begin, end, ""))
        elif ast.literal_eval(style) != entries[name]:
            edits.append(
                (lines.offset(style.lineno, style.col_offset), lines.offset(*_end(style)), f'"{entries[name]}"')
            )
    place = lines.start(present[keys[0]][0].lineno)
    for name, wanted in entries.items():
        if name in present:
            place = lines.start(_end(present[name][1])[0] + 1)
        else:
            edits.append((place, place, f'{margin}"{name}": "{wanted}",{newline}'))
    edits.sort(key=lambda edit: edit[:2])
    for begin, end, made in reversed(edits):
        text = text[:begin] + made + text[end:]
    return text
