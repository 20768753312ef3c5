"""A comparison of two trees, from the values of the command line to its result: older tree -> what is stale -> facts of
each model in both -> changes -> causes -> findings
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from modular_converter.breaking.compare import ModelChange, changes_of_model
from modular_converter.breaking.facts import ModelTree
from modular_converter.breaking.newer import edits_of, newer_tree
from modular_converter.breaking.older import older_tree
from modular_converter.breaking.report import CauseGroup, findings_of, groups
from modular_converter.breaking.values import CodePlace
from modular_converter.check.cache.answers import KeptAnswers
from modular_converter.check.cache.key import key_of, remembered_versions
from modular_converter.check.cache.lookup import OTHER_FORM
from modular_converter.check.cache.store import digest, keep_values, read_values
from modular_converter.convert.batch import Progress, in_processes
from modular_converter.files.arguments import ALL, select_files
from modular_converter.findings import ConversionError, Finding
from modular_converter.rules import input_files


class BreakingOptions(NamedTuple):
    """The command line, as values."""

    against: str
    arguments: tuple[str, ...] = (ALL,)
    package: str | None = None
    root: str | None = None
    workers: int | None = None
    strict: bool = False
    cache: str | None = None


class BreakingResult(NamedTuple):
    """What changes for those who use the models."""

    groups: Sequence[CauseGroup] = ()
    findings: Sequence[Finding] = ()
    models: int = 0
    """The number of models of the older tree that were compared."""
    incomplete: bool = False
    """Whether something could not be compared."""


class _Known(NamedTuple):
    """The changes of a model, and the files that they follow from, by their names in each tree."""

    changes: tuple[ModelChange, ...]
    new: Mapping[str, str]
    old: Mapping[str, str]
    followed: frozenset[str] = frozenset()
    """The functions whose bodies were followed for it, but for those that were followed for another one before."""


def compare_trees(options: BreakingOptions) -> BreakingResult:
    """What an edit changes for those who use the models, itself and its heirs."""
    try:
        overrides = {"workers": options.workers, "strict": options.strict}
        selection = select_files(options.arguments, package=options.package, root=options.root, overrides=overrides)
        settings, models = selection.settings, selection.models or ""
        if not models:
            return BreakingResult(findings=selection.findings, incomplete=True)
        old = older_tree(options.against, models, settings, options.cache)
        key = key_of(settings, remembered_versions(options.cache)) if options.cache else ""
        entry = _Entry(options.cache, key, old.models, models)
        answers = KeptAnswers(options.cache, f"{key} {old.models} {models}" if key else "")
        edits = edits_of(options.against, models, entry.followed)
        new, failures = newer_tree(selection.paths, models, settings, options.cache, edits, answers)
        shared = sorted(model for model in old.names if model in new.names or old.told_of(model))
        if new.names.keys().isdisjoint(shared):
            reason = f"it has no model of those in {models}"
            return BreakingResult(findings=[input_files.unknown_older_tree(options.against, reason)], incomplete=True)
        known, made = _compared(shared, old, new, entry, settings.workers)
        if any(not edits.methods.isdisjoint(one.followed) for one in made.values()):  # some are called only now
            new, failures = newer_tree(selection.paths, models, settings, options.cache, edits.all_read, answers)
            known, made = _compared(shared, old, new, entry, settings.workers)
    except ConversionError as error:
        return BreakingResult(findings=error.findings, incomplete=True)
    entry.store(made, new)
    known |= made
    causes = groups([change for model in shared for change in known[model].changes], new.library, answers)
    answers.store()
    if ALL not in options.arguments:
        wanted = {os.path.basename(os.path.dirname(path)) for path in selection.paths}
        named = {argument.replace("-", "_") for argument in options.arguments} & new.names.keys()
        if not wanted and not named:
            return BreakingResult(findings=selection.findings, incomplete=True)
        wanted |= named
        causes = [one for one in causes if not wanted.isdisjoint(one.models)]
    kept = findings_of(causes, new.library)
    return BreakingResult(causes, [*failures, *kept], len(shared), bool(failures))


def _compared(
    models: Sequence[str], old: ModelTree, new: ModelTree, entry: _Entry, workers: int
) -> tuple[dict[str, _Known], dict[str, _Known]]:
    """The models whose files are as in the last run, which are remembered, and the others, which are compared."""
    known = {model: one for model in models if (one := entry.known(model, old, new)) is not None}
    todo = [model for model in models if model not in known]
    return known, dict(zip(todo, in_processes(_of_models, (old, new), todo, workers, lambda done: None)))


def _of_models(models: Iterable[str], trees: tuple[ModelTree, ModelTree], progress: Progress) -> list[_Known]:
    found = []
    for model in models:
        for tree in trees:
            tree.followed.clear()
        found.append(_of_model(model, *trees)._replace(followed=frozenset().union(*(one.followed for one in trees))))
        progress(1)
    return found


def _of_model(model: str, old: ModelTree, new: ModelTree) -> _Known:
    facts = new.facts(model)
    own = {os.path.join(new.models, model, name) for tree in (old, new) for name in tree.told_of(model)}
    reads = _named(own.union(facts.reads), new)  # also those that only one tree has
    if all(old.hash(name) == given for name, given in reads.items()):
        return _Known((), reads, reads)
    before = old.facts(model)
    return _Known(tuple(changes_of_model(model, before, facts)), reads, _named(before.reads, old))


def _named(paths: Iterable[str], tree: ModelTree) -> dict[str, str]:
    """The hashes of files, by their names below the folder of the package."""
    names = (os.path.relpath(path, os.path.dirname(tree.models)) for path in paths)
    return {name: tree.hash(name) for name in sorted(names)}


class _Entry:
    """What the last comparison of two trees has found."""

    def __init__(self, folder: str | None, key: str, old: str, new: str) -> None:
        """`key` is that of the settings; `old` and `new` are the folders of models."""
        self._folder = folder if key else None
        self._name = digest(f"breaking {key} {old} {new}".encode("utf-8", "surrogatepass"))
        self._models: dict[str, Any] = {}
        self.followed: set[str] = set()
        """The names of all functions whose bodies were followed."""
        with contextlib.suppress(*OTHER_FORM):
            found = read_values(self._folder, self._name) if self._folder else {}
            models, followed = dict(found["models"]), set(found["followed"])
            self._models, self.followed = models, followed

    def known(self, model: str, old: ModelTree, new: ModelTree) -> _Known | None:
        """The changes of a model, if all files that they follow from are the same, and their lines where they were."""
        with contextlib.suppress(*OTHER_FORM):  # of none, too
            record = self._models[model]
            for tree, reads in ((new, record["new"]), (old, record["old"])):
                if any(tree.hash(name) != given for name, given in reads.items()):
                    return None
            found = _Known(tuple(self._read(record["changes"])), record["new"], record["old"])
            return found if _is_in_place(found, new) else None
        return None

    def _read(self, changes: Sequence[Sequence[Any]]) -> Iterator[ModelChange]:
        for rule, model, place, message, word, keys in changes:
            yield ModelChange(rule, model, CodePlace(*place), message, word, tuple(keys))

    def store(self, made: Mapping[str, _Known], new: ModelTree) -> None:
        """Remember the changes of models, and what was followed to find them."""
        self.followed.update(*(one.followed for one in made.values()))
        if made and self._folder:
            kept = {model: one for model, one in made.items() if _is_in_place(one, new)}
            self._models |= {
                model: {"changes": one.changes, "new": one.new, "old": one.old} for model, one in kept.items()
            }
            keep_values(self._folder, self._name, {"models": self._models, "followed": sorted(self.followed)})


def _is_in_place(known: _Known, new: ModelTree) -> bool:
    """Whether the lines of changes are those of the texts that they are remembered for."""
    return new.hashed_as.keys().isdisjoint(one.place.path for one in known.changes)
