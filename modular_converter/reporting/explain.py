"""Rules for readers: one at length, for `--explain CODE` and its page in the docs; all in short, for `--list-rules`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable

from modular_converter.findings import Rule
from modular_converter.rules import Files, fixes, page_text


_OFF = (
    " It is off by default: `check-modular-conversion --select {code}` reports it, `select` in the settings too, and "
    "`--statistics` counts it."
)


def page(rule: Rule) -> str:
    """The rule in Markdown: its explanation, files that break it, and the same files corrected."""
    text = page_text(rule)
    parts = [
        f"# {rule.code} {rule.name}",
        f"*{rule.severity.value.capitalize()}*: {rule.summary}. It {'can' if rule.can_be_ignored else 'cannot'} be "
        f"ignored.{_cure(rule)}"
        f"{'' if rule.by_default else _OFF.format(code=rule.code)}",
        text.explanation,
    ]
    if text.bad:
        changed = tuple(file for file in text.good if file not in text.bad)
        parts += ["## Instead of", _in_markdown(text.bad), "## Write", _in_markdown(changed)]
    return "\n\n".join(parts) + "\n"


def _cure(rule: Rule) -> str:
    if rule.code not in fixes():
        return ""
    return f" `modular-convert --fix{' --unsafe-fixes' if rule.unsafe_fix else ''}` fixes it."


def explain(rule: Rule, *, color: bool = False) -> str:
    """The page for a terminal: the Markdown itself, or the same in colours."""
    if not color:
        return page(rule)
    from rich.console import Console
    from rich.markdown import Markdown

    buffer = io.StringIO()
    Console(file=buffer, force_terminal=True, color_system="standard").print(Markdown(page(rule)))
    return buffer.getvalue()


def _in_markdown(files: Files) -> str:
    return "\n\n".join(f"`{path}`\n\n```python\n{text.rstrip()}\n```" for path, text in files)


def render(rules: Iterable[Rule], output_format: str = "text") -> str:
    """The list as `text` or `json`, one line or object for each rule.

    An object has the keys `code`, `name`, `severity`, `summary`, `can_be_ignored`, `by_default` and `fix`, which is
    `safe`, `unsafe` or null.
    """
    entries = [_entry(rule) for rule in rules]
    if output_format == "json":
        return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"
    widest = max((len(str(rule["name"])) for rule in entries), default=0)
    return "".join(
        f"{rule['code']}  {rule['name']:<{widest}}  {rule['severity']:<7}  {rule['summary']}\n" for rule in entries
    )


def _entry(rule: Rule) -> dict[str, str | bool | None]:
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "summary": rule.summary,
        "can_be_ignored": rule.can_be_ignored,
        "by_default": rule.by_default,
        "fix": rule.fix_applicability if rule.code in fixes() else None,
    }
