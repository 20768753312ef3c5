"""Write `docs/rules.md` from the rules themselves: `python utils/write_rule_docs.py`."""

from __future__ import annotations

import os
import re
import sys


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from modular_converter.findings import Rule  # noqa: E402
from modular_converter.reporting.explain import page  # noqa: E402
from modular_converter.rules import all_rules, fixes  # noqa: E402


HEAD = """\
<!-- Written by utils/write_rule_docs.py from the rules in modular_converter/rules. Do not edit. -->

# Rules

The findings of `modular-convert` and `check-modular-conversion`. An error stops the conversion of its file and of no
other. A warning does not, unless `--strict` makes it an error. `modular-convert --explain CODE` prints the page of one
rule.

`fix` marks the rules that `modular-convert --fix` cures, `unsafe` those whose fix changes the generated files and asks for
`--unsafe-fixes`, too, and `off` those that are only reported where they are asked for.

| code | name | | | |
| --- | --- | --- | --- | --- |
"""


def render() -> str:
    """The whole page: a table of the rules, then each of them at length."""
    rows = "".join(
        f"| [{rule.code}](#{anchor(rule.code, rule.name)}) | {rule.name} | {rule.severity.value} | {rule.summary} "
        f"| {_mark(rule)} |\n"
        for rule in all_rules()
    )
    return HEAD + rows + "".join("\n" + lowered(page(rule)) for rule in all_rules())


def _mark(rule: Rule) -> str:
    if rule.code in fixes():
        return "unsafe" if rule.unsafe_fix else "fix"
    return "" if rule.by_default else "off"


def anchor(code: str, name: str) -> str:
    """The anchor that Markdown viewers give the heading of a rule."""
    return f"{code} {name}".lower().replace(" ", "-")


def lowered(text: str) -> str:
    """The page with its headings one level further down; comments in code stay."""
    pieces = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(piece if piece.startswith("```") else re.sub(r"(?m)^#", "##", piece) for piece in pieces)


def main() -> None:
    """Write the page."""
    with open(os.path.join(ROOT, "docs", "rules.md"), "w", encoding="utf-8", newline="\n") as file:
        file.write(render())


if __name__ == "__main__":
    main()
