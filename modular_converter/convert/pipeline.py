"""The conversion of one modular file, as one line of steps:

read -> index -> resolve neighbours -> rename -> merge classes -> close dependencies -> split -> imports -> text

Formatting and writing are done for all files of a run together (`batch.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from modular_converter.convert.emit.assemble import assemble
from modular_converter.convert.examine.collisions import report_changed_meanings
from modular_converter.convert.examine.top_level import report_lost_statements, report_redefined
from modular_converter.convert.inherit.build import BuiltClass, build_classes
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood, rename_neighbours
from modular_converter.convert.inherit.resolve import open_target, resolve_imports
from modular_converter.convert.inline.collect import GeneratedFiles, collect_definitions
from modular_converter.convert.lint import lint
from modular_converter.convert.source.library import Library
from modular_converter.findings import Conversion, ConversionError, Finding


def convert(path: str, library: Library) -> Conversion:
    """Convert the modular file at an absolute path. The texts are not formatted yet.

    Faults of the input are never raised: they are in the findings, and then there are no files.

    Args:
        library: a library that observes this conversion alone (`Library.observing`).
    """
    seen = library.observations
    try:
        neighbours, classes, collection = first_steps(path, library)
        files = assemble(neighbours, collection, library)
        changed = report_changed_meanings(neighbours, classes, collection, library)
        lost = report_lost_statements(neighbours, collection, library)
        redefined = report_redefined(neighbours, collection, library)
        found = (
            *neighbours.resolution.findings,
            *lint(neighbours, classes, collection, library),
            *changed,
            *lost,
            *redefined,
        )
        findings = _findings(classes, found)
    except ConversionError as error:
        return Conversion(path, {}, error.findings, reads=seen.reads)
    if any(finding.is_error for finding in findings):
        return Conversion(path, {}, findings, reads=seen.reads)
    folder = os.path.dirname(path)
    texts = {os.path.join(folder, name): text for name, text in files.items()}
    origins = {os.path.join(folder, file.name): tuple(one.origin for one in file.ordered) for file in collection.files}
    return Conversion(path, texts, findings, origins, seen.reads, dict(sorted(seen.packages.items())))


def first_steps(path: str, library: Library) -> tuple[Neighbourhood, Mapping[str, BuiltClass], GeneratedFiles]:
    """The first steps: the neighbours, renamed; the classes, merged; the definitions of each generated file.

    Raises `ConversionError` with the faults of the input.
    """
    target = open_target(path, library)
    neighbours = rename_neighbours(resolve_imports(target, library), library)
    classes = build_classes(neighbours, library)
    return neighbours, classes, collect_definitions(neighbours, classes, library)


def _findings(classes: Mapping[str, BuiltClass], others: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings of merging the classes and those of the checks, in the order of the lines."""
    merging = [finding for built in classes.values() for finding in built.findings]
    return tuple(sorted((*merging, *others), key=lambda finding: finding.sort_key))
