"""All rules in short, for `--list-rules`: a table for people, or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable

from modular_converter.findings import Rule
from modular_converter.rules import fixes


def render(rules: Iterable[Rule], output_format: str = "text") -> str:
    """The list as `text` or `json`, one line or object for each rule.

    An object has the keys `code`, `name`, `severity`, `summary`, `can_be_ignored`, `by_default` and `has_fix`.
    """
    entries = [_entry(rule) for rule in rules]
    if output_format == "json":
        return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"
    widest = max((len(str(rule["name"])) for rule in entries), default=0)
    return "".join(
        f"{rule['code']}  {rule['name']:<{widest}}  {rule['severity']:<7}  {rule['summary']}\n" for rule in entries
    )


def _entry(rule: Rule) -> dict[str, str | bool]:
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "summary": rule.summary,
        "can_be_ignored": rule.can_be_ignored,
        "by_default": rule.by_default,
        "has_fix": rule.code in fixes(),
    }
