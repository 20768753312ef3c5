"""What a library repeats: lines that stand in another file of it in the same words, and copies that have a mark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from count_inheritable import count_of_model
from other_libraries import OtherLibrary, laid_out

from modular_converter.authoring.flat_model import read_flat_model
from modular_converter.authoring.library_index import read_index
from modular_converter.convert.source.library import Library
from modular_converter.marks.audit import audit
from modular_converter.marks.units import differing
from modular_converter.settings.load import load_settings, profile_settings


def repeated_lines(library: OtherLibrary, source: Path, folder: Path) -> dict[str, int]:
    """The files of models, their lines, and those of them that one definition of another file has, too.

    Args:
        library: the library.
        source: where it is unpacked.
        folder: an empty folder.
    """
    models = laid_out(library, source, folder)
    read = Library(load_settings(models))
    index = replace(read_index(str(models), read), any_age=True)  # a file without years takes from all
    names = sorted(path.name for path in models.iterdir())
    counts: Counter[str] = Counter()
    for name in names:
        counts += count_of_model(read_flat_model(str(models / name), name, read), index, read)
    return {"files": len(names), "lines": counts["modeling lines"], "repeated": counts["modeling parts"]}


def verdicts_of_marks(library: OtherLibrary, source: Path) -> Mapping[str, int]:
    """The number of marks `# Copied from` by verdict, and of the drifted ones that differ in the signature alone."""
    settings = replace(profile_settings(), package=library.package, formatter="none", pinned_formatter=None)
    marks = audit(sorted(map(str, (source / library.package).rglob("*.py"))), Library(settings)).marks
    counts = Counter(one.verdict.value for one in marks)
    counts["signature alone"] = sum(
        [unit.lines for unit in one.source.body] == [unit.lines for unit in one.copy.body]
        and not (one.source.is_class and any(differing(one.source, one.copy)))
        for one in marks
        if one.source is not None and one.copy is not None
    )
    return dict(sorted(counts.items()))
