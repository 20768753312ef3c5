"""Whether two texts differ by layout alone: the same code and the same comments, set out in another way."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
import warnings


_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def differ_by_layout_alone(old: str, new: str) -> bool:
    """Whether both texts have the same syntax tree and the same comments in the same order.

    The indentation of docstrings, line breaks, quotes and parentheses are layout. A text that is not Python has none.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _tree(old) == _tree(new) and _comments(old) == _comments(new)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return False


def _tree(text: str) -> str:
    """The syntax tree as text, without places; docstrings as `help` would show them."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            constant = node.body[0].value  # type: ignore[attr-defined]
            constant.value = "\n".join(line.rstrip() for line in inspect.cleandoc(constant.value).splitlines())
        elif isinstance(node, ast.Delete) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple):
            node.targets = node.targets[0].elts  # `del (a, b)` is `del a, b`
    return ast.dump(tree)


def _comments(text: str) -> list[str]:
    """The comments in order, without the blanks around their words."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string.lstrip("#").strip() for token in tokens if token.type == tokenize.COMMENT]
