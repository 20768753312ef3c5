"""What an author gets wrong and must be told: the findings of a conversion that went through (docs/rules.md)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import GeneratedFiles
from modular_converter.convert.lint.context import Context
from modular_converter.convert.lint.exports import check_exports, check_unused
from modular_converter.convert.lint.overrides import check_overrides
from modular_converter.convert.lint.parents import check_parents
from modular_converter.convert.lint.plans import check_plans, check_uncovered
from modular_converter.convert.lint.prefixes import check_prefixes
from modular_converter.convert.lint.replaced import check_replaced
from modular_converter.convert.source.library import Library
from modular_converter.diagnostics import Diagnostic


CHECKS = (
    check_replaced,
    check_overrides,
    check_prefixes,
    check_unused,
    check_exports,
    check_plans,
    check_uncovered,
    check_parents,
)
"""Each yields the findings of one group of rules."""


def lint(
    neighbours: Neighbourhood, classes: Mapping[str, BuiltClass], collection: GeneratedFiles, library: Library
) -> tuple[Diagnostic, ...]:
    """The findings of one modular file, in the order of its lines."""
    context = Context(neighbours, classes, collection, library)
    found = list(itertools.chain.from_iterable(check(context) for check in CHECKS))
    if not found:
        return ()
    findings = (finding.with_source(context.source) for finding in found)
    return tuple(sorted(findings, key=lambda finding: finding.sort_key))
