"""Make a failing text small: statements go and expressions become `1` as long as it fails in the same way."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping


def reduce_texts(texts: Mapping[str, str], still_fails: Callable[[Mapping[str, str]], bool]) -> dict[str, str]:
    """The texts made as small as single steps can make them.

    Args:
        texts: name -> Python source.
        still_fails: whether smaller texts fail as the first ones did.
    """
    current = dict(texts)
    progress = True
    while progress:
        progress = False
        for name in current:
            smaller = _reduce_one(current[name], lambda text, name=name: still_fails({**current, name: text}))
            progress = progress or smaller != current[name]
            current[name] = smaller
    return current


def _reduce_one(text: str, still_fails: Callable[[str], bool]) -> str:
    """One round: each step that is tried once, the ones that remove most first."""
    tried: set[str] = set()
    while True:
        for candidate in candidates(text):
            if candidate not in tried and still_fails(candidate):
                text = candidate
                break
            tried.add(candidate)
        else:
            return text


def candidates(text: str) -> Iterator[str]:
    """Texts that are one step smaller."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    lines = text.split("\n")
    blocks = [(block, parent) for parent in ast.walk(tree) for block in _blocks(parent)]
    statements = [(node, len(block) == 1 and parent is not tree) for block, parent in blocks for node in block]
    for node, alone in sorted(statements, key=lambda found: -_length(found[0])):
        if not (alone and isinstance(node, ast.Pass)):
            yield _without(lines, node, alone)
    for node, _ in statements:
        value = getattr(node, "value", None)
        if isinstance(value, ast.expr) and not isinstance(value, ast.Constant) and "super" not in ast.unparse(value):
            yield _with_one(lines, value)


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    blocks = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
    return [block for block in blocks if isinstance(block, list) and block]


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - _first(node)


def _without(lines: list[str], node: ast.stmt, alone: bool) -> str:
    indentation = lines[node.lineno - 1][: node.col_offset]
    rest = [f"{indentation}pass"] if alone else []
    return "\n".join([*lines[: _first(node) - 1], *rest, *lines[node.end_lineno :]])


def _with_one(lines: list[str], value: ast.expr) -> str:
    start, end = value.lineno - 1, (value.end_lineno or value.lineno) - 1
    before = lines[start].encode()[: value.col_offset].decode()
    after = lines[end].encode()[value.end_col_offset :].decode()
    return "\n".join([*lines[:start], f"{before}1{after}", *lines[end + 1 :]])
