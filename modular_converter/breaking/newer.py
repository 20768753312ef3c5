"""The newer tree of a comparison: the files on disk, with the generated files that edits reach as conversions give them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Sequence

from modular_converter.breaking.facts import ModelTree
from modular_converter.breaking.older import tree_at
from modular_converter.breaking.untouched import Edits, edits_since
from modular_converter.check.cache.answers import KeptAnswers
from modular_converter.check.cache.outlines import load_outlines, store_outlines
from modular_converter.check.conversions import find_conversions
from modular_converter.convert.schedule import neighbour_files
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError, Finding
from modular_converter.git.affected import affected
from modular_converter.git.work_tree import GitError
from modular_converter.graph.records import key_of_text, outline_of
from modular_converter.settings.values import Settings


def edits_of(against: str, models: str, followed: Collection[str]) -> Edits:
    """The edits of the package since the older commit, or since the last one where the older tree is no commit. Without
    git none are known, and the files on disk are taken as they are.
    """
    for ref in (against, "HEAD"):
        with contextlib.suppress(GitError):
            return edits_since(ref, os.path.dirname(models), followed)
    return Edits()


def newer_tree(
    paths: Sequence[str], models: str, settings: Settings, cache: str | None, edits: Edits, answers: KeptAnswers
) -> tuple[ModelTree, list[Finding]]:
    """The newer tree, and the reasons why some files that edits reach cannot be converted.

    Args:
        paths: all modular files.
        models: the folder of models.
        settings: those of the run.
        cache: the folder that keeps conversions; None for none.
        edits: what has been edited. Other generated files are taken as they are on disk.
        answers: those of earlier runs.
    """
    settings = settings.with_any_formatter
    texts: dict[str, str] = {}
    failures: list[Finding] = []
    if edits.read:
        library = Library(settings)
        required = _required(paths, models, library, cache)
        reached = affected(edits.read, paths, library, required, answers.get)
        for one in find_conversions(reached, settings, cache, stale=required).made.values():
            texts |= one.files
            failures += (finding for finding in one.findings if finding.is_error)
    tree = tree_at(models, settings, texts)
    tree.hashed_as = edits.unread
    return tree, failures


def _required(paths: Iterable[str], models: str, library: Library, cache: str | None) -> dict[str, frozenset[str]]:
    """`required_files` of modular files, but for those that cannot be read. No text is parsed twice."""
    outlines = load_outlines(cache, models) if cache else {}
    known, found = set(outlines), {}
    for path in paths:
        with contextlib.suppress(ConversionError):
            key = key_of_text(library.text(path))
            if key not in outlines:
                outlines[key] = outline_of(library.module(path).statements)
            found[path] = neighbour_files((name for _, name in outlines[key].imports), path, library)
    if cache and outlines.keys() != known:
        store_outlines(cache, models, outlines)
    return found
