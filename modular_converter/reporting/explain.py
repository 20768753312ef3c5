"""A rule explained at length, for `--explain CODE` and for its page in the docs."""

from __future__ import annotations

import io

from modular_converter.findings import Example, Rule
from modular_converter.rules import fixes


_OFF = (
    " It is off by default: `check-modular-conversion --select {code}` reports it, `select` in the settings too, and "
    "`--statistics` counts it."
)


def page(rule: Rule) -> str:
    """The rule in Markdown: its explanation, files that break it, and the same files corrected."""
    parts = [
        f"# {rule.code} {rule.name}",
        f"*{rule.severity.value.capitalize()}*: {rule.summary}. It {'can' if rule.can_be_ignored else 'cannot'} be "
        f"ignored.{' `modular-convert --fix` cures it.' if rule.code in fixes() else ''}"
        f"{'' if rule.by_default else _OFF.format(code=rule.code)}",
        rule.explanation.strip(),
    ]
    if rule.bad:
        parts += ["## Instead of", _files(rule.bad), "## Write", _files(_changed(rule))]
    return "\n\n".join(parts) + "\n"


def explain(rule: Rule, *, color: bool = False) -> str:
    """The page for a terminal: the Markdown itself, or the same in colours."""
    if not color:
        return page(rule)
    from rich.console import Console
    from rich.markdown import Markdown

    buffer = io.StringIO()
    Console(file=buffer, force_terminal=True, color_system="standard").print(Markdown(page(rule)))
    return buffer.getvalue()


def _changed(rule: Rule) -> Example:
    """The files of the good example that differ from the bad example."""
    return tuple(file for file in rule.good if file not in rule.bad)


def _files(example: Example) -> str:
    return "\n\n".join(f"`{path}`\n\n```python\n{text.rstrip()}\n```" for path, text in example)
