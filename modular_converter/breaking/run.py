"""A comparison of two trees, from the values of the command line to its result: older tree -> what is stale -> facts of
each model in both -> changes -> causes -> findings
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from modular_converter.breaking.changes import ModelChange
from modular_converter.breaking.compare import changes_of_model
from modular_converter.breaking.facts import ModelTree
from modular_converter.breaking.older import older_tree, tree_at
from modular_converter.breaking.report import CauseGroup, findings_of, groups
from modular_converter.breaking.values import CodePlace
from modular_converter.check.cache.key import key_of
from modular_converter.check.cache.lookup import Cache
from modular_converter.check.cache.store import digest, read_entry, write_entry
from modular_converter.check.conversions import find_conversions
from modular_converter.convert.source.library import Library
from modular_converter.convert.workers import Progress, in_processes
from modular_converter.files.arguments import ALL, select_files
from modular_converter.findings import ConversionError, Finding
from modular_converter.git.affected import touched_since
from modular_converter.rules import input_files
from modular_converter.settings.values import Settings


class BreakingOptions(NamedTuple):
    """The command line, as values."""

    against: str
    arguments: tuple[str, ...] = (ALL,)
    package: str | None = None
    root: str | None = None
    workers: int = 0
    strict: bool = False
    cache: str | None = None


class BreakingResult(NamedTuple):
    """What changes for those who use the models."""

    groups: Sequence[CauseGroup] = ()
    findings: Sequence[Finding] = ()
    models: int = 0
    """The number of models that both trees have."""
    incomplete: bool = False
    """Whether something could not be compared."""


class _Known(NamedTuple):
    """The changes of a model, and the files that they follow from, by their names in each tree."""

    changes: tuple[ModelChange, ...]
    new: Mapping[str, str]
    old: Mapping[str, str]


def compare_trees(options: BreakingOptions) -> BreakingResult:
    """What an edit changes for those who use the models, itself and its heirs."""
    try:
        selection = select_files(
            options.arguments, package=options.package, root=options.root, overrides={"strict": options.strict}
        )
        settings, models = selection.settings, selection.models or ""
        if not models:
            return BreakingResult(findings=selection.findings, incomplete=True)
        old = older_tree(options.against, models, settings, options.cache)
        overlay, failures = _stale(options, selection.paths, settings)
    except ConversionError as error:
        return BreakingResult(findings=error.findings, incomplete=True)
    new = tree_at(models, settings, overlay)
    shared = sorted(old.names.keys() & new.names.keys())
    if not shared:
        reason = f"it has no model of those in {models}"
        return BreakingResult(findings=[input_files.unknown_older_tree(options.against, reason)], incomplete=True)
    found = _changes(shared, old, new, options)
    made = groups(found, new.library)
    if ALL not in options.arguments:
        wanted = {os.path.basename(os.path.dirname(path)) for path in selection.paths}
        named = {argument.replace("-", "_") for argument in options.arguments} & new.names.keys()
        if not wanted and not named:
            return BreakingResult(findings=selection.findings, incomplete=True)
        wanted |= named
        made = [one for one in made if not wanted.isdisjoint(one.models)]
    kept = findings_of(made, new.library)
    return BreakingResult(made, [*failures, *kept], len(shared), bool(failures))


def _stale(options: BreakingOptions, paths: Sequence[str], settings: Settings) -> tuple[dict[str, str], list[Finding]]:
    """The generated files that edits since the older commit reach, as a conversion gives them, and the reasons why some
    cannot be converted. Without git the files on disk are taken as they are; so are those that an earlier check knows.
    """
    library = Library(settings)
    current = Cache(options.cache, settings.with_any_formatter).look_up(paths) if options.cache else {}
    paths = [path for path in paths if path not in current]
    reached: list[str] = []
    for ref in (options.against, "HEAD"):
        with contextlib.suppress(ConversionError):
            reached = touched_since(ref, paths, library)
            break
    if not reached:
        return {}, []
    found = find_conversions(reached, settings.with_any_formatter, options.cache)
    texts = {path: text for one in found.made.values() for path, text in one.files.items()}
    return texts, [finding for one in found.all for finding in one.findings if finding.is_error]


def _changes(models: Sequence[str], old: ModelTree, new: ModelTree, options: BreakingOptions) -> list[ModelChange]:
    """The changes of all models; those whose files are as in the last run are remembered."""
    entry = _Entry(options.cache, old, new)
    known = {model: one for model in models if (one := entry.known(model)) is not None}
    todo = [model for model in models if model not in known]
    made = in_processes(_of_models, (old, new), todo, options.workers, lambda done: None)
    known |= dict(zip(todo, made))
    if todo:
        entry.store(known)
    return [change for model in models for change in known[model].changes]


def _of_models(models: Iterable[str], trees: tuple[ModelTree, ModelTree], progress: Progress) -> list[_Known]:
    found = []
    for model in models:
        found.append(_of_model(model, *trees))
        progress(1)
    return found


def _of_model(model: str, old: ModelTree, new: ModelTree) -> _Known:
    facts = new.facts(model)
    reads = _named(facts.reads, new)
    if all(old.hash(name) == given for name, given in reads.items()):
        return _Known((), reads, reads)
    before = old.facts(model)
    return _Known(tuple(changes_of_model(model, before, facts)), reads, _named(before.reads, old))


def _named(paths: Iterable[str], tree: ModelTree) -> dict[str, str]:
    """The hashes of files, by their names below the folder of the package."""
    names = (os.path.relpath(path, os.path.dirname(tree.models)) for path in paths)
    return {name: tree.hash(name) for name in sorted(names)}


class _Entry:
    """The changes that the last comparison of two trees has found."""

    def __init__(self, folder: str | None, old: ModelTree, new: ModelTree) -> None:
        self._folder, self._old, self._new = folder, old, new
        key = key_of(new.library.settings) if folder else ""
        self._name = digest(f"breaking {key} {old.models} {new.models}".encode("utf-8", "surrogatepass"))
        body = read_entry(folder, self._name) if folder and key else None
        self._models = json.loads(body) if body else {}
        self._is_used = bool(folder and key)

    def known(self, model: str) -> _Known | None:
        """The changes of a model, if all files that they follow from are the same."""
        record = self._models.get(model)
        if record is None:
            return None
        for tree, reads in ((self._new, record["new"]), (self._old, record["old"])):
            if any(tree.hash(name) != given for name, given in reads.items()):
                return None
        return _Known(tuple(self._read(record["changes"])), record["new"], record["old"])

    def _read(self, changes: Sequence[Sequence[Any]]) -> Iterator[ModelChange]:
        for rule, model, place, message, word, keys in changes:
            yield ModelChange(rule, model, CodePlace(*place), message, word, tuple(keys))

    def store(self, known: Mapping[str, _Known]) -> None:
        """Remember the changes of models."""
        if self._is_used and self._folder:
            records = {model: one._asdict() for model, one in known.items()}
            with contextlib.suppress(OSError):
                write_entry(self._folder, self._name, json.dumps(records).encode("utf-8", "surrogatepass"))
