"""Check every verdict of `modular-convert marks` over the published library, and write the figures into docs/modularize.md.

The check shares nothing with the command: it finds marks line by line, reads definitions as syntax trees without any
text, and compares these trees and their comments.

    python utils/check_marks.py            # the models of the installed transformers; fails on a false verdict
    python utils/check_marks.py --write    # the same, and write the figures
"""

from __future__ import annotations

import argparse
import ast
import datetime
import functools
import importlib.util
import inspect
import io
import itertools
import platform
import re
import sys
import time
import tokenize
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from marked_pages import write_part

from modular_converter.convert.source.library import Library
from modular_converter.marks.audit import MarkVerdict, audit
from modular_converter.settings.load import profile_settings


LIBRARY = Path(str(importlib.util.find_spec("transformers").origin)).parent  # type: ignore[union-attr]
PAGE = Path(__file__).parents[1] / "docs/modularize.md"
EXACT = re.compile(r"^( *)# Copied from transformers\.([A-Za-z0-9_.]+)(?: with (.+))?$")
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Part(NamedTuple):
    """A member of a class, or a statement of a function."""

    name: str
    is_method: bool
    is_free: bool
    """Whether a comment lets it differ."""
    says: str
    """Its syntax tree and its comments."""


@functools.cache
def lines_of(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8").splitlines())


@functools.lru_cache(maxsize=64)
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def find(path: Path, names: list[str]) -> list[ast.AST]:
    """The definitions of a dotted name in a file."""
    found: list[ast.AST] = [
        node for node in ast.walk(tree_of(path)) if isinstance(node, DEFINITIONS) and node.name == names[0]
    ]
    found = [node for node in found if getattr(node, "col_offset", 0) in (0, 4)]
    for name in names[1:]:
        inside = (child for node in found for child in getattr(node, "body", []))
        found = [node for node in inside if isinstance(node, DEFINITIONS) and node.name == name]
    return found


def source_of(dotted: str) -> list[tuple[Path, ast.AST]]:
    """The definitions that a mark names, by the longest part of the name that is a file."""
    parts = dotted.split(".")
    for length in range(len(parts) - 1, 0, -1):
        path = LIBRARY.joinpath(*parts[:length]).with_suffix(".py")
        if path.is_file():
            return [(path, node) for node in find(path, parts[length:])]
    return []


def comments(lines: list[str]) -> list[str]:
    """The comments in some lines, without those that only speak of copies."""
    text = inspect.cleandoc("\n".join(lines)) + "\n"
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = [token.string.lstrip("#").strip() for token in tokens if token.type == tokenize.COMMENT]
    return [one for one in found if not re.match(r"(Copied from|Ignore copy|End copy)\b", one)]


def tree_text(node: ast.AST) -> str:
    """The tree of a statement without places, and its docstrings without what a formatter decides in them."""
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Expr)
            and isinstance(inner.value, ast.Constant)
            and isinstance(inner.value.value, str)
        ):
            lines = inspect.cleandoc(inner.value.value).split("\n")
            inner.value.value = "\n".join(line.rstrip() for line in lines)
    return ast.dump(node)


def parts_of(path: Path, node: ast.AST, replacing: list[tuple[str, str]], *, is_copy: bool) -> list[Part]:
    """A definition in parts, the header first; of a source, with the replacements made in its text."""
    text = "\n".join(lines_of(path)[node.lineno - 1 : node.end_lineno])  # type: ignore[attr-defined]
    for old, new in replacing:
        text = text.replace(old, new)
    lines = inspect.cleandoc("\n" + text).split("\n")
    ends = [number for number, line in enumerate(lines) if line.strip() == "# End copy"] if is_copy else []
    lines = lines[: ends[0]] if ends else lines
    (new_node,) = ast.parse("\n".join(lines)).body
    assert isinstance(new_node, DEFINITIONS)
    parts: list[Part] = []
    first = new_node.body[0]
    begin = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", ()))]) - 1
    while not lines[begin - 1].strip() or lines[begin - 1].lstrip().startswith("#"):
        begin -= 1
    for child in new_node.body:
        own = lines[begin : child.end_lineno]
        free = is_copy and any("# Ignore copy" in line for line in own)
        is_method = isinstance(child, DEFINITIONS)
        own_text = f"{tree_text(child)} {comments(own)}"
        parts.append(Part(getattr(child, "name", ""), is_method, free, own_text))
        begin = child.end_lineno or 0
    if isinstance(new_node, ast.ClassDef):
        parts = [part for group in groups(parts) for part in group]
    new_node.name, new_node.body, new_node.decorator_list = "_", [ast.Pass()], []
    return [Part("", True, False, ast.dump(new_node)), *parts]


def groups(parts: list[Part]) -> Iterator[list[Part]]:
    """The members of a class; of the statements between two methods all are free where one is."""
    for is_method, some in itertools.groupby(parts, lambda part: part.is_method):
        group = list(some)
        free = not is_method and any(part.is_free for part in group)
        yield [part._replace(is_free=True) for part in group] if free else group


def alike(source: list[Part], copy: list[Part], in_class: bool) -> bool:
    """Whether a copy equals its source, except for the parts that may differ."""
    free = {part.name for part in copy if part.is_free and part.is_method}
    source = [part for part in source if not (part.is_method and part.name in free)]
    copy = [part for part in copy if not (part.is_method and part.name in free)]

    def rest_is_alike(left: int, right: int) -> bool:
        if right == len(copy):
            return left == len(source)
        if not copy[right].is_free:
            same = left < len(source) and source[left].says == copy[right].says
            return same and rest_is_alike(left + 1, right + 1)
        if rest_is_alike(left, right + 1):
            return True
        takes = left < len(source) and not (in_class and source[left].is_method)
        return takes and rest_is_alike(left + 1, right)

    return rest_is_alike(0, 0)


def replacements(words: str) -> list[tuple[str, str]]:
    """The pairs behind `with`, without those that have blanks in them."""
    pairs: list[tuple[str, str]] = []
    for piece in re.split(r"\s*,\s*", words.strip()):
        match = re.match(r"(?:with )?([^\s,]+?)->([^\s,]+)(.*)", piece)
        if match:
            pairs.append((match[1], match[2]))
            if "all-casing" in match[3]:
                pairs += [(match[1].lower(), match[2].lower()), (match[1].upper(), match[2].upper())]
    return pairs


def expected(path: Path, line: int) -> MarkVerdict:
    """The verdict on the comment in a line, from 1."""
    lines = lines_of(path)
    match = EXACT.match(lines[line - 1].rstrip())
    below = lines[line] if line < len(lines) else ""
    if match is None or not re.match(rf"{match[1]}(async def|def|class) ", below):
        return MarkVerdict.INVISIBLE
    sources = source_of(match[2])
    if not sources:
        return MarkVerdict.DANGLING
    (copy,) = (node for node in ast.walk(tree_of(path)) if isinstance(node, DEFINITIONS) and node.lineno == line + 1)
    if any(where == path and node is copy for where, node in sources):
        return MarkVerdict.INVISIBLE
    own = parts_of(path, copy, [], is_copy=True)
    pairs = replacements(match[3] or "")
    found = (parts_of(where, node, pairs, is_copy=False) for where, node in sources)
    same = any(alike(one, own, isinstance(copy, ast.ClassDef)) for one in found)
    return MarkVerdict.IDENTICAL if same else MarkVerdict.DRIFTED


def missed(path: Path, seen: set[int]) -> list[int]:
    """The lines with a mark in the exact form that the command has not found."""
    return [number for number, line in enumerate(lines_of(path), 1) if EXACT.match(line) and number not in seen]


def table(verdicts: Counter[str], in_generated: int, wrong: int, seconds: float) -> str:
    """The figures of the page."""
    rows = [
        f"| marks in files written by hand | {sum(verdicts.values()):,} |",
        *(f"| {verdict.value} | {verdicts[verdict.value]:,} |" for verdict in MarkVerdict),
        f"| marks in generated files, left out | {in_generated} |",
        f"| verdicts that the independent check contradicts | {wrong} |",
        f"| CPU seconds | {seconds:.0f} |",
    ]
    today = datetime.date.today().isoformat()
    made = f"transformers {version('transformers')}, Python {platform.python_version()}, {today}."
    return "\n".join(["| | |", "| --- | --- |", *rows, "", made])


def main() -> None:
    """Audit, check each verdict, print the false ones; with `--write`, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the figures into docs/modularize.md")
    options = parser.parse_args()
    paths = sorted((LIBRARY / "models").rglob("*.py"))
    started = time.process_time()
    result = audit(map(str, paths), Library(profile_settings()))
    seconds = time.process_time() - started
    wrong = 0
    for one in result.marks:
        right = expected(Path(one.path), one.mark.line)
        if right is not one.verdict:
            wrong += 1
            print(f"{one.path}:{one.mark.line}: {one.verdict.value}, but {right.value}")
    by_file: dict[str, set[int]] = {}
    for one in result.marks:
        by_file.setdefault(one.path, set()).add(one.mark.line)
    for path in paths:
        if "# Copied from" in "\n".join(lines_of(path)) and not is_generated(lines_of(path)):
            for line in missed(path, by_file.get(str(path), set())):
                wrong += 1
                print(f"{path}:{line}: not told of")
    text = table(Counter(one.verdict.value for one in result.marks), result.in_generated, wrong, seconds)
    print(text)
    if options.write:
        write_part(PAGE, "marks", text)
    sys.exit(1 if wrong else 0)


def is_generated(lines: tuple[str, ...]) -> bool:
    """Whether the notice on top says that a file is generated."""
    return any("This file was automatically generated from" in line for line in lines[:10])


if __name__ == "__main__":
    main()
