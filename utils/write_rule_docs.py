"""Write `docs/rules.md` and a page for each rule from the rules themselves: `python utils/write_rule_docs.py`."""

from __future__ import annotations

import os
import pathlib
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


def pages() -> dict[str, str]:
    """Path below `docs` -> text: the table of the rules, and a page for each rule."""
    rows = "".join(
        f"| [{rule.code}](rules/{rule.code}.md) | {rule.name} | {rule.severity.value} | {rule.summary} "
        f"| {_mark(rule)} |\n"
        for rule in all_rules()
    )
    return {"rules.md": HEAD + rows, **{f"rules/{rule.code}.md": page(rule) for rule in all_rules()}}


def _mark(rule: Rule) -> str:
    if rule.code in fixes():
        return "unsafe" if rule.unsafe_fix else "fix"
    return "" if rule.by_default else "off"


def main() -> None:
    """Write the pages, and remove those of rules that are gone."""
    docs, written = pathlib.Path(ROOT, "docs"), pages()
    (docs / "rules").mkdir(exist_ok=True)
    for path in (docs / "rules").glob("*.md"):
        if f"rules/{path.name}" not in written:
            path.unlink()
    for name, text in written.items():
        (docs / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
