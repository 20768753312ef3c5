"""Lengths of the packed blocks of a weight: numbers in proportion, or expressions in the model's own attributes.

A plan is derived from a small instance but is applied to models of any size. Where blocks have unequal lengths (fused
queries, keys and values under grouped attention), their proportion is the small instance's alone; the attributes that
the model's own code cuts them by, ``num_heads*head_dim``, say it for all.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import gcd
from typing import Any

from modular_converter.parallel.axes import SUM, Seq, size
from modular_converter.parallel.errors import ApplyError, PlanFormatError
from modular_converter.parallel.flow import Flow
from modular_converter.parallel.graph import Source


Part = int | str
REST = "rest"
"""The one block whose length is what the others leave."""
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//"}


def checked_parts(values: Sequence[Any], pattern: str) -> tuple[Part, ...]:
    """Parts as read from a plan. Raises ``PlanFormatError`` for what is neither a length nor an expression."""
    found: list[Part] = []
    for value in values:
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if isinstance(value, str):
            try:
                _evaluate(ast.parse(value, mode="eval").body, lambda name: 1)
            except (SyntaxError, ValueError) as error:
                raise PlanFormatError(
                    f"{pattern}: {value!r} is no part: a number, or attribute names with + - * //"
                ) from error
        elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise PlanFormatError(f"{pattern}: {value!r} is no part: a number of at least 1, or an expression")
        found.append(value)
    return tuple(found)


def lengths_of(parts: Sequence[Part], length: int, look_up: Callable[[str], int], where: str) -> tuple[int, ...]:
    """The blocks of an axis in lowest terms.

    Args:
        parts: as in a rule.
        length: of the whole axis.
        look_up: attribute name -> its value in the model.
        where: the weight, for messages.

    Raises:
        ApplyError: the parts do not add up to the axis.
    """
    if all(isinstance(part, int) for part in parts):
        return tuple(int(part) for part in parts)
    values = [part if isinstance(part, int) else _part(part, look_up, where) for part in parts]
    known = sum(value for value in values if value is not None)
    filled = [length - known if value is None else value for value in values]
    if sum(filled) != length or min(filled) < 1:
        said = ", ".join(f"{part} = {value}" for part, value in zip(parts, filled))
        raise ApplyError(f"{where}: its parts do not add up to {length}: {said}")
    return reduced(filled)


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
    """Names, integers and four operators; nothing else of Python."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        name = ast.unparse(node)
        if any(isinstance(inner, (ast.Call, ast.Lambda)) for inner in ast.walk(node)):
            raise ValueError(f"{name} is no attribute")
        return look_up(name)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left, look_up), _evaluate(node.right, look_up))
    raise ValueError(f"{ast.unparse(node)} is not understood")


def look_up_from(module_path: str, get: Callable[[str], Any]) -> Callable[[str], int]:
    """Attributes of a module, or of the nearest module around it that has them.

    Args:
        module_path: of the module that owns the weight.
        get: module path -> module; raises ``AttributeError`` where there is none.
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


def parts_of(flow: Flow, seq: Seq, lengths: Sequence[int]) -> tuple[Part, ...]:
    """The parts to write for the blocks of an axis: none for one, else what the code cuts by, else their proportion.

    Blocks of one length in the small instance that the code cuts by different attributes need not be equal elsewhere.
    """
    if len(lengths) < 2:
        return ()
    flat = flow.axes.flat(seq)
    segments = flat[0].parts if len(flat) == 1 and flat[0].kind == SUM else []
    if [size(segment) for segment in segments] != list(lengths):
        return reduced(lengths)
    said = _stretches(flow, seq)
    ends = list(accumulate(lengths))
    texts = [_length(said, end - length, end) for length, end in zip(lengths, ends)]
    if texts.count(None) == 1:
        texts[texts.index(None)] = REST
    found = tuple(text for text in texts if text is not None)
    return found if len(found) == len(texts) and len(set(found)) > 1 else reduced(lengths)


def _length(said: Mapping[tuple[int, int], Source], start: int, stop: int) -> str | None:
    """What the model's code calls the length of a stretch: a split size, or the difference of two slice borders."""
    own, before, upto = said.get((start, stop)), said.get((0, start)), said.get((0, stop))
    if own is not None:
        return text_of(own)
    if before is None or upto is None:
        return None
    if upto.kind == "add" and upto.args[0] == before:
        return text_of(upto.args[1])
    return f"({text_of(upto)})-({text_of(before)})"


def _stretches(flow: Flow, seq: Seq) -> dict[tuple[int, int], Source]:
    """Start and stop -> the first source that can be written down, of all cuts of an axis."""
    found: dict[tuple[int, int], Source] = {}
    key = _key(flow, seq)
    for stretch in flow.stretches:
        if stretch.source.leaves() and text_of(stretch.source) and _key(flow, stretch.seq) == key:
            found.setdefault((stretch.start, stretch.stop), stretch.source)
    return found


def _key(flow: Flow, seq: Seq) -> tuple[int, ...]:
    return tuple(atom.number for atom in flow.axes.leaves(seq))


def text_of(source: Source) -> str | None:
    """An integer's source as an expression in attributes; None where a shape or a bare number is behind it."""
    if source.kind == "attr":
        return source.name
    if source.kind == "const":
        return str(source.value)
    if source.kind not in _SIGNS or not source.leaves():
        return None
    left, right = (text_of(arg) for arg in source.args)
    if left is None or right is None:
        return None
    return f"{_wrapped(left, source.args[0])}{_SIGNS[source.kind]}{_wrapped(right, source.args[1])}"


def _wrapped(text: str, source: Source) -> str:
    return text if source.kind in ("attr", "const") else f"({text})"
