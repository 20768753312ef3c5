"""Plans in files and as JSON; errors name the place of the fault."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.text_checks import shortened, shown


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
        said = f"{shown(fault.instance)}: {wanted}" if wanted else shortened(fault.message, 400)
        raise PlanFormatError(f"{shortened(fault.json_path)}: {said}")
    return value
