"""Texts of plans: shortened for messages, and checked where they must be a single line."""

from __future__ import annotations

from typing import Any

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
