"""The rules: one file each, with its text (`RULE`), its message (`diagnose`), mostly its check (`check` of a finished
conversion, `compare` of a class with its parent), and its fix if that is plain (`fix`). A mistake that the conversion
itself finds while it reads or writes files needs no `check`: that code imports the rule's file and calls `diagnose`. To
add a rule, add its file. Nothing else lists the rules.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Fix, Rule, did_you_mean


if TYPE_CHECKING:
    from modular_converter.facts import Facts, TwoClasses
    from modular_converter.findings import ClassFinding

PACKAGES = ("modular_converter.rules", "modular_converter.parallel.lint")
"""The packages whose files are rules, but for files that begin with `_`.

The wing is named here and imported by `_modules` alone. An entry point would serve other distributions, too, but reading
them takes longer than a check of current files, and a hostile tree on `sys.path` could register code of its own.
"""

FixOf = Callable[[str, Finding], "Fix | None"]
"""Gives the fix of a finding, from the text of its modular file; None if this case has no plain fix."""

Check = Callable[["Facts"], Iterable[Finding]]
"""Yields the findings of one rule about a finished conversion."""

Comparison = Callable[["TwoClasses"], Iterable["ClassFinding"]]
"""Yields the findings of one rule about a class that is merged with its parent."""


class UnknownRuleError(LookupError):
    """Raised for a code or name that no rule has; the message holds a spelling hint."""


class NotIgnorableError(LookupError):
    """Raised for rules that cannot be ignored; the message says why."""


def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the codes."""
    return tuple(module.RULE for module in _modules())


@functools.lru_cache(maxsize=1)
def checks() -> tuple[Check, ...]:
    """The checks of all rules that have one, in the order of the codes."""
    return tuple(module.check for module in _modules() if hasattr(module, "check"))


@functools.lru_cache(maxsize=1)
def class_comparisons() -> tuple[Comparison, ...]:
    """The function `compare` of all rules that have one, in the order of the codes."""
    return tuple(module.compare for module in _modules() if hasattr(module, "compare"))


def by_name(name: str) -> Rule:
    """The rule of an exact name (`unknown-parent`); only its own file is imported. Raises `UnknownRuleError`."""
    for dotted in _names():
        if dotted.rpartition(".")[2] == name.replace("-", "_"):
            rule: Rule = importlib.import_module(dotted).RULE
            return rule
    raise UnknownRuleError(f"there is no rule `{name}`.")


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
    """Code -> the function `fix` of each rule that has a fix."""
    return {module.RULE.code: module.fix for module in _modules() if hasattr(module, "fix")}


@functools.lru_cache(maxsize=1)
def off_by_default() -> frozenset[str]:
    """The codes of the rules that are only reported where `select` has the whole code."""
    return frozenset(rule.code for rule in all_rules() if not rule.by_default)


@functools.lru_cache(maxsize=1)
def _modules() -> tuple[ModuleType, ...]:
    """The files of all rules, imported, which takes 4 ms. A file that fails to import raises: no rule is skipped."""
    return tuple(sorted(map(importlib.import_module, _names()), key=lambda module: module.RULE.code))


@functools.lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    """The dotted names of the files of all rules, sorted."""
    above = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found = (
        f"{package}.{file.removesuffix('.py')}"
        for package in PACKAGES
        for file in os.listdir(os.path.join(above, *package.split(".")))
        if file.endswith(".py") and not file.startswith(("_", "."))
    )
    return tuple(sorted(found))
