"""Write the pages that the rules give: `python utils/write_rule_docs.py`.

* `docs/rules.md` and a page for each rule;
* `docs/writing.md`: what to write instead, of all rules about the text of a modular file;
* `docs/llms.txt`: the pages of the site, for programs that read it.
"""

from __future__ import annotations

import difflib
import os
import pathlib
import re
import sys
from collections.abc import Iterator


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from modular_converter.findings import Rule  # noqa: E402
from modular_converter.reporting.explain import page  # noqa: E402
from modular_converter.rules import all_rules, fixes, page_text, place_of  # noqa: E402


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


WRITING_HEAD = """\
<!-- Written by utils/write_rule_docs.py from the rules in modular_converter/rules. Do not edit. -->

# Write a modular file so that it converts

Each rule about the text of a modular file, with what to write instead: `-` is found, `+` is right. The
[guide](guide.md) explains what an override, `super()` or a removal becomes.
"""
LLMS_HEAD = """\
# modular-converter

> New models as their difference from existing ones: `modular-convert` generates single-file modules from modular files
> (`modular_x.py`), `check-modular-conversion` keeps them current, `modular-plan` derives and proves parallel plans, and
> `parallelize` runs a model on several devices. To write a modular file, read [writing.md](writing.md) first.

"""
TOPICS = re.compile(r'^  \{ "([^"]+)" = \[$|"([\w/-]+\.md)"', re.MULTILINE)
"""The sections and the pages of the site's navigation."""


def pages() -> dict[str, str]:
    """Path below `docs` -> text."""
    rows = "".join(
        f"| [{rule.code}](rules/{rule.code}.md) | {rule.name} | {rule.severity.value} | {rule.summary} "
        f"| {_mark(rule)} |\n"
        for rule in all_rules()
    )
    singles = {f"rules/{rule.code}.md": page(rule) for rule in all_rules()}
    written = {"rules.md": HEAD + rows, "writing.md": WRITING_HEAD + "".join(_topics()), **singles}
    return {**written, "llms.txt": LLMS_HEAD + "".join(_site(written))}


def _by_file() -> dict[str, list[Rule]]:
    """What each file of rules is about, with its rules in the order of the codes; the files by their first code."""
    found: dict[str, list[Rule]] = {}
    for rule in all_rules():
        file = sys.modules[place_of(rule).partition(":")[0]]
        found.setdefault(file.__doc__ or "", []).append(rule)
    return found


def _topics() -> Iterator[str]:
    """A section for each file of rules that has examples, with each rule and the difference of its examples."""
    for about, rules in _by_file().items():
        shown = [(rule, changes) for rule in rules if (changes := _changes(rule))]
        if shown:
            yield f"\n## {about.partition(':')[0].partition('.')[0]}\n"
        for rule, changes in shown:
            yield f"\n[{rule.code}](rules/{rule.code}.md): {rule.summary}\n\n```diff\n{changes}```\n"


def _changes(rule: Rule) -> str:
    """The lines of modular files in which the good example of a rule differs from the bad one, with those around."""
    examples = page_text(rule)
    good = dict(examples.good)
    found: list[str] = []
    for path, text in examples.bad:
        if "/modular_" in path and path in good:
            lines = difflib.unified_diff(text.split("\n"), good[path].split("\n"), n=2, lineterm="")
            found += [
                "…" if line.startswith("@@") else line.rstrip() for line in lines if line[:3] not in ("---", "+++")
            ]
    shown = re.sub(r"\n{2,}", "\n", "\n".join(found)).strip("…\n")
    return f"{shown}\n" if shown else ""


def _site(written: dict[str, str]) -> Iterator[str]:
    """The sections of the site with a line for each page."""
    for section, name in TOPICS.findall(pathlib.Path(ROOT, "zensical.toml").read_text(encoding="utf-8")):
        if section:
            yield f"\n## {section}\n\n"
            continue
        text = written.get(name) or pathlib.Path(ROOT, "docs", name).read_text(encoding="utf-8")
        title = re.sub(r"<!--.*?-->\n*", "", text, flags=re.DOTALL).partition("\n")[0]
        yield f"- [{title.removeprefix('# ')}]({name})\n"


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
