"""The rules of modular files: one file a rule, each with a `RULE` and a `diagnose` that words the diagnostic.

A conversion imports the one rule that it needs. Only listing or explaining rules imports them all.
"""

from __future__ import annotations

import functools
import importlib
from typing import cast

from modular_converter.diagnostics import Rule, did_you_mean


MODULES = (
    "syntax_error",
    "not_utf8",
    "missing_file",
    "unknown_neighbour",
    "unknown_parent",
    "config_from_modeling",
    "import_from_package_root",
    "two_parents",
    "base_not_a_name",
    "cycle",
    "nothing_to_convert",
    "too_large",
    "read_only_target",
    "outside_root",
    "formatter_failed",
    "bad_setting",
    "unknown_revision",
    "internal_error",
    "replaced_dependency",
    "remove_unknown_attribute",
    "super_kwargs_without_parent",
    "super_call_not_in_parent",
    "super_call_not_a_statement",
    "del_unknown_attribute",
    "del_still_read",
    "stub_still_called",
    "ambiguous_prefix",
    "colliding_prefix",
    "unused_definition",
    "missing_from_all",
    "unknown_in_all",
    "plan_names_missing_layer",
    "deep_inheritance",
    "undefined_name",
    "plan_lacks_new_layer",
    "generated_file_differs",
    "generated_file_missing",
    "generated_file_orphaned",
)
"""The modules of this package, in the order of their codes."""


class UnknownRuleError(LookupError):
    """Raised for a code or name that no rule has; the message holds a spelling hint."""


@functools.lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the codes."""
    return tuple(cast(Rule, importlib.import_module(f"{__name__}.{module}").RULE) for module in MODULES)


def by_code(code: str) -> Rule:
    """The rule of a code (`MC105`, in any case) or of a name (`unknown-parent`)."""
    rules = {rule.code: rule for rule in all_rules()} | {rule.name: rule for rule in all_rules()}
    wanted = code.strip()
    rule = rules.get(wanted.upper()) or rules.get(wanted.lower().replace("_", "-"))
    if rule is None:
        hint = did_you_mean(wanted.upper(), rules) or did_you_mean(wanted.lower(), rules)
        raise UnknownRuleError(f"there is no rule `{code}`. {hint}".strip())
    return rule
