"""A rule explained at length."""

from __future__ import annotations

import ast
import re

from modular_converter.reporting.explain import explain, page
from modular_converter.rules import all_rules, by_code, page_text


def test_a_page_holds_all_that_a_rule_says() -> None:
    for rule in all_rules():
        text = page(rule)
        assert text.startswith(f"# {rule.code} {rule.name}\n")
        assert page_text(rule).explanation in text
        blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
        assert bool(blocks) == bool(page_text(rule).bad), rule.name
        assert text.count("```") == 2 * len(blocks), rule.name
        if blocks:
            ast.parse(blocks[-1])


def test_the_good_example_shows_what_is_other_than_in_the_bad_one() -> None:
    bad, good = page(by_code("two-parents")).split("## Write")
    assert bad.count("```python") == 3 and good.count("```python") == 1


def test_a_terminal_gets_the_same_words() -> None:
    rule = by_code("MC103")
    assert explain(rule) == page(rule)
    assert "no file" in explain(rule, color=True) and "\x1b[" in explain(rule, color=True)
