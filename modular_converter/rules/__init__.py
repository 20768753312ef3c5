"""The rules. Those about one subject share a file. Each has there its code and name (`DEL_STILL_READ = Rule(…)`), mostly its
check, which words the message (`check_del_still_read` of a finished conversion, `compare_…` of a class with its parent), and
its fix if that is plain (`fix_…`). What its page explains and shows is a text, `texts/del-still-read.txt`. A mistake that
the conversion itself finds while it reads or writes files needs no check: that code calls a function that words the message
(`unknown_parent`). To add a rule, add it to a file, or add a file. Nothing else lists the rules.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from modular_converter.findings import Finding, Fix, Rule, Severity, did_you_mean


if TYPE_CHECKING:
    from modular_converter.facts import Facts, TwoClasses
    from modular_converter.findings import ClassFinding

PACKAGES = ("modular_converter.rules", "modular_converter.parallel.lint")
"""The packages whose files hold rules, but for files that begin with `_`.

The wing is named here and imported by `_modules` alone. An entry point would serve other distributions, too, but reading
them takes longer than a check of current files, and a hostile tree on `sys.path` could register code of its own.
"""

FixOf = Callable[[str, Finding], "Fix | None"]
"""Gives the fix of a finding, from the text of its modular file; None if this case has no plain fix."""

Check = Callable[["Facts"], Iterable[Finding]]
"""Yields the findings of one rule about a finished conversion."""

Comparison = Callable[["TwoClasses"], Iterable["ClassFinding"]]
"""Yields the findings of one rule about a class that is merged with its parent."""


Files = tuple[tuple[str, str], ...]
"""A tiny tree of files, each with its path below the root and its text."""


class RuleText(NamedTuple):
    """What the page of a rule says, with two trees, or none where files cannot show a rule."""

    explanation: str
    """Markdown: what happens, why it matters, and what to write instead."""
    bad: Files = ()
    """Files whose conversion gives the finding of the rule and no other."""
    good: Files = ()
    """The same files put right, whose conversion gives none."""


class UnknownRuleError(LookupError):
    """Raised for a code or name that no rule has; the message holds a spelling hint."""


class NotIgnorableError(LookupError):
    """Raised for rules that cannot be ignored; the message says why."""


@functools.lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the codes."""
    return tuple(rule for rule, _ in _rules())


@functools.lru_cache(maxsize=2)
def checks(*, errors_only: bool = False) -> tuple[Check, ...]:
    """The checks of all rules that have one, or of those that find errors, in the order of the codes."""
    wanted = {one.code for one in all_rules() if not (errors_only and one.severity is Severity.WARNING)}
    return tuple(check for code, check in _functions("check").items() if code in wanted)


@functools.lru_cache(maxsize=1)
def class_comparisons() -> tuple[Comparison, ...]:
    """The comparisons of all rules that have one, in the order of the codes."""
    return tuple(_functions("compare").values())


def page_text(rule: Rule) -> RuleText:
    """The text of a rule, from its file in `texts/`: the explanation, then the files of its examples. Each stands behind a
    line `=== path`, with `(bad)` or `(good)` behind the path where the two trees differ, and before an empty line.
    """
    path = os.path.join(os.path.dirname(__file__), "texts", f"{rule.name}.txt")
    with open(path, encoding="utf-8") as file:
        explanation, *parts = re.split("^=== ", file.read(), flags=re.MULTILINE)
    found: dict[str, list[tuple[str, str]]] = {"(bad)": [], "(good)": []}
    for part in parts:
        heading, _, text = part.partition("\n")
        name, _, tree = heading.partition(" ")
        for files in [found[tree]] if tree else found.values():
            files.append((name, text.rstrip("\n") + "\n"))
    return RuleText(explanation.strip(), *map(tuple, found.values()))


def place_of(rule: Rule) -> str:
    """The file of a rule and its name, by which `rule_at` finds it again."""
    return next(f"{module.__name__}:{one.name}" for one, module in _rules() if one == rule)


def rule_at(place: str) -> Rule:
    """The inverse of `place_of`, for which only the rule's own file is imported. Raises `UnknownRuleError`."""
    dotted, _, name = place.partition(":")
    values = vars(importlib.import_module(dotted)).values() if dotted in _names() else ()
    found = next((one for one in values if isinstance(one, Rule) and one.name == name), None)
    if found is None:
        raise UnknownRuleError(f"there is no rule `{place}`.")
    return found


def by_code(code: str) -> Rule:
    """The rule of a code (`MC105`, in any case) or of a name (`unknown-parent`). Raises `UnknownRuleError`."""
    rules = {rule.code: rule for rule in all_rules()} | {rule.name: rule for rule in all_rules()}
    wanted = code.strip()
    rule = rules.get(wanted.upper()) or rules.get(wanted.lower().replace("_", "-"))
    if rule is None:
        hint = did_you_mean(wanted.upper(), rules) or did_you_mean(wanted.lower(), rules)
        raise UnknownRuleError(f"there is no rule `{code}`. {hint}".strip())
    return rule


def rule_prefix(entry: str) -> str:
    """The code, or the beginning of codes, that a setting means: `MC307`, `colliding-prefix`, `MC3`.

    Raises `UnknownRuleError`.
    """
    wanted = entry.strip().upper()
    if re.fullmatch(r"MC\d{0,2}", wanted) and any(rule.code.startswith(wanted) for rule in all_rules()):
        return wanted
    return by_code(entry).code


def ignorable_prefix(entry: str) -> str:
    """The same for rules to be ignored. Raises `NotIgnorableError` where the entry means errors alone."""
    prefix = rule_prefix(entry)
    if not any(rule.can_be_ignored for rule in all_rules() if rule.is_meant_by(prefix)):
        raise NotIgnorableError(f"`{entry}` cannot be ignored, because an error means a wrong result.")
    return prefix


@functools.lru_cache(maxsize=1)
def fixes() -> Mapping[str, FixOf]:
    """Code -> the fix of each rule that has one."""
    return _functions("fix")


@functools.lru_cache(maxsize=1)
def off_by_default() -> frozenset[str]:
    """The codes of the rules that are only reported where `select` has the whole code."""
    return frozenset(rule.code for rule in all_rules() if not rule.by_default)


def _functions(word: str) -> dict[str, Any]:
    """Code -> the function of this word and the rule's name, for each rule that has one: `check_del_still_read`."""
    named = ((one.code, getattr(module, f"{word}_{one.name.replace('-', '_')}", None)) for one, module in _rules())
    return {code: function for code, function in named if function is not None}


@functools.lru_cache(maxsize=1)
def _rules() -> tuple[tuple[Rule, ModuleType], ...]:
    """Every rule with its file. Importing all takes 4 ms. A file that fails to import raises: no rule is skipped."""
    modules = map(importlib.import_module, _names())
    found = [(value, module) for module in modules for value in vars(module).values() if isinstance(value, Rule)]
    return tuple(sorted(found, key=lambda pair: pair[0].code))


@functools.lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    """The dotted names of the files of rules, sorted."""
    above = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found = (
        f"{package}.{file.removesuffix('.py')}"
        for package in PACKAGES
        for file in os.listdir(os.path.join(above, *package.split(".")))
        if file.endswith(".py") and not file.startswith(("_", "."))
    )
    return tuple(sorted(found))
