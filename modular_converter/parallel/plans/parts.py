"""Lengths of the packed blocks of a weight: numbers in proportion, or expressions in the model's own attributes.

A plan is derived from a small instance and applied to models of any size. The proportion of unequal blocks (fused
queries, keys and values of grouped attention) holds only for the small instance; the attributes with which the model's
own code cuts them, ``num_heads*head_dim``, hold for all sizes.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import gcd
from typing import Any

from modular_converter.parallel.errors import ApplyError, PlanFormatError
from modular_converter.parallel.plans.text_checks import shown


Part = int | str
REST = "rest"
"""The block whose length is the rest of the axis."""
LENGTH = "length"
"""The name of the axis's length in the number of equal blocks."""
LONGEST_EXPRESSION = 300
"""The most characters of an expression; expressions in code are much shorter."""
LARGEST = 2**63
"""A limit above every length of a tensor."""
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def checked_parts(values: Sequence[Any], pattern: str) -> tuple[Part, ...]:
    """Parts from a plan, with expressions in normal form.

    Raises ``PlanFormatError`` if a part is neither a length nor an expression.
    """
    return tuple(_checked(value, pattern) for value in values)


def _checked(value: Any, pattern: str) -> Part:
    if isinstance(value, str):
        try:
            value = _normal(value)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise PlanFormatError(
                f"{pattern}: {shown(value)} is not a part: give a number, or attribute names with + - * //, "
                f"of {LONGEST_EXPRESSION} characters at most"
            ) from error
    elif isinstance(value, float) and value.is_integer():  # 2.0 is an integer to JSON Schema
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value < LARGEST
    if not isinstance(value, str) and not is_number:
        raise PlanFormatError(
            f"{pattern}: {shown(value)} is not a part: give a number of at least 1, or an expression"
        )
    found: Part = value
    return found


@lru_cache(maxsize=1000)
def _normal(text: str) -> Part:
    """An expression in normal form; a number as an integer. Raises ``ValueError`` or ``SyntaxError`` for anything else."""
    if len(text) > LONGEST_EXPRESSION:
        raise ValueError("too long")
    node = ast.parse(text.strip(), mode="eval").body
    _check(node)
    found = ast.unparse(node).replace(" ", "")
    if len(found) > LONGEST_EXPRESSION:  # Python's normal form may be longer
        raise ValueError("too long")
    return int(found) if found.isdecimal() else found


def _check(node: ast.expr) -> None:
    """Raise ``ValueError`` for anything but names, integers and four operators."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        _check(node.left)
        _check(node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        _check(node.operand)
    elif not _is_number(node):
        _check_name(node)


def _check_name(node: ast.expr) -> None:
    """Raise ``ValueError`` for anything but names such as ``name.name[0]``."""
    while isinstance(node, ast.Attribute) or isinstance(node, ast.Subscript) and _is_number(node.slice):
        node = node.value
    if not isinstance(node, ast.Name):
        raise ValueError(f"{ast.unparse(node)} is not understood")


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value < LARGEST


def lengths_of(parts: Sequence[Part], length: int, look_up: Callable[[str], int], where: str) -> tuple[int, ...]:
    """The blocks of an axis in lowest terms.

    Args:
        parts: as in a rule; a single part is the number of equal blocks.
        length: of the whole axis.
        look_up: attribute name -> its value in the model.
        where: the weight, for messages.

    Raises ``ApplyError`` if the parts do not add up to the axis.
    """
    if len(parts) == 1:
        return _equal(parts[0], length, look_up, where)
    if all(isinstance(part, int) for part in parts):
        return tuple(int(part) for part in parts)
    values = [part if isinstance(part, int) else _part(part, look_up, where) for part in parts]
    known = sum(value for value in values if value is not None)
    filled = [length - known if value is None else value for value in values]
    if sum(filled) != length or min(filled) < 1:
        given = ", ".join(f"{part} = {value}" for part, value in zip(parts, filled))
        raise ApplyError(f"{where}: its parts do not add up to {length}: {given}")
    return reduced(filled)


def value_of(part: Part, look_up: Callable[[str], int], where: str) -> int:
    """A number of units in a model. Raises ``ApplyError`` for an expression without a value of at least 1."""
    found = part if isinstance(part, int) else _part(part, look_up, where)
    if found is None or found < 1:
        raise ApplyError(f"{where}: {part} = {found} is not a number of units")
    return found


def _equal(number: Part, length: int, look_up: Callable[[str], int], where: str) -> tuple[int, ...]:
    def known(name: str) -> int:
        return length if name == LENGTH else look_up(name)

    count = number if isinstance(number, int) else _part(number, known, where)
    if count is None or count < 1 or length % count:
        raise ApplyError(f"{where}: {length} does not divide into {number} = {count} equal blocks")
    return (1,) * count


def reduced(lengths: Sequence[int]) -> tuple[int, ...]:
    """Lengths in lowest terms: ``(36, 36)`` -> ``(1, 1)``."""
    divisor = gcd(*lengths) if lengths else 1
    return tuple(length // divisor for length in lengths)


def _part(text: str, look_up: Callable[[str], int], where: str) -> int | None:
    if text == REST:
        return None
    try:
        return _evaluate(ast.parse(text, mode="eval").body, look_up)
    except (ValueError, LookupError, ZeroDivisionError) as error:
        raise ApplyError(f"{where}: part {text}: {error}") from error


def _evaluate(node: ast.expr, look_up: Callable[[str], int]) -> int:
    """The value of an expression that ``_check`` has passed."""
    if isinstance(node, ast.Constant):
        return int(ast.unparse(node))
    if isinstance(node, ast.UnaryOp):
        return -_evaluate(node.operand, look_up)
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_evaluate(node.left, look_up), _evaluate(node.right, look_up))
    return look_up(ast.unparse(node))


def look_up_from(module_path: str, get: Callable[[str], Any]) -> Callable[[str], int]:
    """A function from the name of an attribute to its integer, in a module or its nearest parent that has it.

    Args:
        module_path: of the module that owns the weight.
        get: module path -> module.
    """
    words = module_path.split(".") if module_path else []
    around = [".".join(words[:count]) for count in range(len(words), -1, -1)]

    def look_up(name: str) -> int:
        for path in around:
            found: Any = get(path)
            try:
                for word in name.replace("]", "").replace("[", ".").split("."):
                    found = found[int(word)] if word.isdigit() else getattr(found, word)
            except (AttributeError, IndexError, TypeError):
                continue
            if isinstance(found, int):
                return found
        raise LookupError(f"no module around {module_path} has {name}")

    return look_up
