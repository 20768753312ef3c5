"""Texts of plans: files, patterns of names, shortened for messages, and checked where they must be a single line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from modular_converter.parallel.errors import PlanFormatError


LONGEST = 1000
"""The most characters of a layer pattern."""
_HEAD, _TAIL = 120, 60
LINE: dict[str, Any] = {
    "type": "string",
    "not": {"pattern": "[\\n\\r\\u000b\\u000c\\u001c-\\u001e\\u0085\\u2028\\u2029]|^\\s|\\s$"},
    "description": "write it on one line, without blanks before and after it",
}
"""The JSON schema of the texts that ``checked_line`` accepts."""


def record_schema(required: str, **properties: Any) -> dict[str, Any]:
    """The JSON schema of a record with these properties and no others."""
    return {"type": "object", "additionalProperties": False, "required": required.split(), "properties": properties}


def shortened(text: str, head: int = _HEAD) -> str:
    """A text for messages; the start and the end of a long text."""
    if len(text) <= 2 * head:
        return text
    return f"{text[:head]}… ({len(text)} characters) …{text[-_TAIL:]}"


def shown(value: object) -> str:
    """The shortened ``repr`` of a value in a plan, or its type if ``repr`` fails."""
    try:
        return repr(shortened(value)) if isinstance(value, str) else shortened(repr(value))
    except (ValueError, RecursionError, MemoryError):  # an integer of too many digits, a list too deep
        return f"a value of type {type(value).__name__}"


def checked_line(text: str, what: str) -> str:
    """The text, if it is one line without blanks around it; else raises ``PlanFormatError``."""
    if text != text.strip() or len(text.splitlines()) > 1:
        raise PlanFormatError(f"{what}: {shown(text)}: write it on one line, without blanks before and after it")
    return text


def checked_path(text: str, what: str) -> str:
    """The layer pattern, if it is one word of at most ``LONGEST`` characters; else raises ``PlanFormatError``."""
    if any(map(str.isspace, text)) or len(text) > LONGEST:
        raise PlanFormatError(
            f"{what}: {shown(text)} is not a layer pattern: write it without blanks, {LONGEST} characters at most"
        )
    return text


def placed(layer: str, reason: str) -> str:
    """``layer: reason``, without an empty part."""
    return ": ".join(filter(None, (layer, reason)))


class _Parsed(Protocol):
    """A plan of some kind: it has a text and a JSON form."""

    @classmethod
    def parse(cls, text: str) -> Any: ...

    @classmethod
    def from_json(cls, text: str) -> Any: ...


T = TypeVar("T", bound=_Parsed)


def read_plan(path: str | os.PathLike[str], kind: type[T]) -> T:
    """A plan file, JSON or text.

    Raises ``PlanFormatError`` if the file cannot be read or is invalid; the message names it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise PlanFormatError(f"{os.fspath(path)}: it cannot be read ({error})") from error
    try:
        return parse_plan(text, kind)
    except PlanFormatError as error:
        raise PlanFormatError(f"{os.fspath(path)}: {error}") from error


def parse_plan(text: str, kind: type[T]) -> T:
    """A plan from its text or JSON. Raises ``PlanFormatError``."""
    found: T = kind.from_json(text) if text.lstrip().startswith("{") else kind.parse(text)
    return found


def from_json(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """An object that fits a JSON schema. Raises ``PlanFormatError`` with the path of the fault, ``$.rules[0].dim``."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    try:
        value: dict[str, Any] = json.loads(text)
        fault = best_match(Draft202012Validator(schema).iter_errors(value))
    except json.JSONDecodeError as error:
        raise PlanFormatError(f"not JSON: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise PlanFormatError("its lists and objects are nested too deep; a plan has four levels of them") from error
    except (ValueError, OverflowError) as error:
        raise PlanFormatError(f"a number in it is too large ({shortened(str(error))})") from error
    if fault is not None:
        wanted = fault.schema.get("description") if isinstance(fault.schema, Mapping) else None
        message = f"{shown(fault.instance)}: {wanted}" if wanted else shortened(fault.message, 400)
        raise PlanFormatError(f"{shortened(fault.json_path)}: {message}")
    return value


_LAYER = re.compile(r"(^|\.)\d+(?=\.|$)")


def wildcard(path: str) -> str:
    """``layers.0.mlp`` -> ``layers.*.mlp``, the same for paths that differ only in numbers of layers."""
    return _LAYER.sub(r"\1*", path)


def first_number_wild(path: str) -> str:
    """``h.0.ffn.2`` -> ``h.*.ffn.2``, the same for one place in all layers, but not for members of a sequence."""
    return _LAYER.sub(r"\1*", path, count=1)


def matches(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that match a pattern, in which ``*`` stands for a number."""
    if "*" not in pattern:
        return [name for name in names if name == pattern]
    expression = re.compile(re.escape(pattern).replace(r"\*", r"\d+"))
    return [name for name in names if expression.fullmatch(name)]


def is_inside(name: str, part: str) -> bool:
    """Whether a path is a part or inside of it; the empty path is the whole model."""
    return not part or name == part or name.startswith(f"{part}.")


def names_of_parts(model: Any) -> list[str]:
    """The paths of a model's modules and the names of its parameters, which patterns can match."""
    modules = [path for path, _ in model.named_modules(remove_duplicate=False)]
    return modules + [name for name, _ in model.named_parameters(remove_duplicate=False)]


def entries_for(entries: Mapping[str, str], model: Any) -> dict[str, str]:
    """The entries of a transformers plan whose patterns match a part of the model."""
    names = names_of_parts(model)
    return {pattern: style for pattern, style in entries.items() if matches(pattern, names)}


@dataclass(frozen=True)
class SomeLayers:
    """Parts of a model that were changed, and similar parts that were not."""

    paths: tuple[str, ...]
    others: tuple[str, ...]

    @staticmethod
    def of(paths: Collection[str], model: Any) -> SomeLayers:
        """The parts at ``paths`` among the modules of a model."""
        patterns = {wildcard(path) for path in paths}
        known = (path for path, _ in model.named_modules() if wildcard(path) in patterns)
        return SomeLayers(tuple(paths), tuple(path for path in known if path not in paths))

    def same_in(self, model: Any) -> list[str]:
        """The parts of a small instance to change in the same way.

        These are parts with the names of changed parts, and parts in layers that the model lacks; if a pattern matches none
        of these, all its matches.
        """
        patterns = {wildcard(path) for path in self.paths}
        like = [path for path, _ in model.named_modules() if wildcard(path) in patterns]
        found = {path for path in like if path not in self.others}
        missing = patterns - {wildcard(path) for path in found}
        return [path for path in like if path in found or wildcard(path) in missing]
