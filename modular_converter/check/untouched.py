"""The warnings of models that nobody works on: current, and as in the last commit."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from modular_converter.convert.conversion import Conversion
from modular_converter.files.generated_files import path_of_generated
from modular_converter.findings import Finding
from modular_converter.git.work_tree import GitError, Repository, Snapshot, WorkTrees
from modular_converter.settings.values import Settings


def warnings_of_untouched(
    conversions: Iterable[Conversion], different: Collection[str], settings: Settings, ref: str
) -> frozenset[Finding]:
    """The warnings of conversions whose modular and generated files are those of a commit.

    Args:
        conversions: those of a check.
        different: the modular files whose generated files differ.
        settings: of the check.
        ref: the commit. Where git knows none, nothing counts as untouched.
    """
    trees = WorkTrees()
    snapshots: dict[Repository, Snapshot] = {}

    def is_touched(conversion: Conversion) -> bool:
        places = [conversion.path, *(path_of_generated(path, settings) for path in conversion.files)]
        try:
            tree = trees.of(os.path.dirname(conversion.path))
            if tree not in snapshots:
                snapshots[tree] = tree.snapshot(tree.commit(ref))
        except GitError:
            return True
        return any(place in snapshots[tree] for place in places)

    found = set[Finding]()
    for conversion in conversions:
        warnings = [finding for finding in conversion.findings if not finding.is_error]
        if warnings and conversion.path not in different and not is_touched(conversion):
            found.update(warnings)
    return frozenset(found)
