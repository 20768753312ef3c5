"""A comparison of two trees, from the values of the command line to its result: older tree -> what is stale -> facts of
each model in both -> changes -> causes -> findings
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from modular_converter.breaking.compare import ModelChange, changes_of_model
from modular_converter.breaking.facts import ModelTree
from modular_converter.breaking.kept import (
    KeptAnswer,
    KeptFacts,
    KeptModels,
    KnownModel,
    WholeAnswer,
    are_read,
    facts_text,
)
from modular_converter.breaking.newer import Edits, edits_of, newer_tree
from modular_converter.breaking.older import older_tree, state_of_folder, state_of_older
from modular_converter.breaking.report import CauseGroup, findings_of, groups
from modular_converter.breaking.signatures import UntoldMethods, told_classes
from modular_converter.breaking.values import CodePlace
from modular_converter.check.cache.answers import KeptAnswers, KeptIndexes
from modular_converter.check.cache.key import key_of, remembered_versions
from modular_converter.check.run import CheckOptions
from modular_converter.convert.batch import Progress, in_processes
from modular_converter.convert.schedule import caseless
from modular_converter.convert.source.library import KNOWN, Library, Observations
from modular_converter.files.arguments import ALL, Selection, select_files
from modular_converter.findings import ConversionError, Finding
from modular_converter.rules import input_files
from modular_converter.settings.values import is_modular


LEAST_NAMES, LEAST_LINES = 0.5, 0.75
"""The shares of a model's names, and of its lines, by which another one is known to be the same. Models that are copies of one
architecture share most lines, too: each name that is gone is told all the same.
"""


class BreakingResult(NamedTuple):
    """What changes for those who use the models."""

    groups: Sequence[CauseGroup] = ()
    findings: Sequence[Finding] = ()
    models: int = 0
    """The number of models of the older tree that were compared."""
    incomplete: bool = False
    """Whether something could not be compared."""


def compare_trees(against: str, options: CheckOptions) -> BreakingResult:
    """What an edit changes for those who use the models, itself and its heirs.

    Args:
        against: the older tree, as `older_tree` takes it.
        options: those of a check of the same models.
    """
    try:
        overrides = {"workers": options.workers, "strict": options.strict}
        selection = select_files(options.arguments, package=options.package, root=options.root, overrides=overrides)
        if not selection.models:
            return BreakingResult(findings=selection.findings, incomplete=True)
        library = Library(selection.settings.with_any_formatter)
        whole = selection  # an heir that is asked for changes by models that are not
        if ALL not in options.arguments:
            whole = select_files((ALL,), package=options.package, root=options.root, overrides=overrides)
        found, failures = _answer(against, whole, selection.models, options.cache, library)
    except ConversionError as error:
        return BreakingResult(findings=error.findings, incomplete=True)
    causes, models = found.causes, found.models
    lost = [one for one in selection.findings if one.location.path.replace("-", "_") not in found.names]
    if ALL not in options.arguments:
        wanted = {os.path.basename(os.path.dirname(path)) for path in selection.paths}
        wanted |= {argument.replace("-", "_") for argument in options.arguments} & found.names
        causes = [one for one in causes if not wanted.isdisjoint(one.models)]
        models = models if wanted else 0
    kept = findings_of(causes, library)
    return BreakingResult(causes, [*failures, *lost, *kept], models, bool(failures or lost))


def _answer(
    against: str, selection: Selection, models: str, cache: str | None, library: Library
) -> tuple[WholeAnswer, Sequence[Finding]]:
    """The answer about all models, and the reasons why some could not be compared. Of trees that are as they were in the last
    comparison nothing is read but their files.
    """
    key = key_of(selection.settings, remembered_versions(cache)) if cache else ""
    states = _states(against, models, key)
    kept = KeptAnswer(cache, f"{key} {against} {models} {selection.settings.strict}", states)
    if (found := kept.find(library)) is not None:
        return found, ()
    run = _Run(against, selection, models, cache, key)
    found, failures = run.answer()
    if not failures:
        kept.keep(found, _states(against, models, key), run.outside)
    return found, failures


def _states(against: str, models: str, key: str) -> Sequence[str]:
    return (state_of_older(against, models), state_of_folder(os.path.dirname(models))) if key else ("", "")


class _Run:
    """A comparison of two trees of which something is not remembered."""

    def __init__(self, against: str, selection: Selection, models: str, cache: str | None, key: str) -> None:
        self._against, self._selection, self._models, self._cache = against, selection, models, cache
        self._old = older_tree(against, models, selection.settings, cache)
        self._kept = KeptModels(cache, key, self._old.models, models)
        self._indexes = KeptIndexes(cache)
        self._facts = KeptFacts(cache, f"{key} {models}" if key else "")
        self._answers = KeptAnswers(cache, f"{key} {self._old.models} {models}" if key else "")
        self.outside = Observations()
        """What conversions have read outside of the newer tree."""

    def answer(self) -> tuple[WholeAnswer, Sequence[Finding]]:
        """The answer, and the reasons why some files could not be compared. Raises `ConversionError`."""
        library = Library(self._selection.settings)
        untold = UntoldMethods(self._kept.followed, self._selection.paths, library)
        edits = edits_of(self._against, self._models, untold)
        new, failures = self._newer(edits)
        shared = sorted(model for model in self._old.names if model in new.names or self._old.told_of(model))
        if new.names.keys().isdisjoint(shared):
            reason = f"it has no model of those in {self._models}"
            raise ConversionError(input_files.unknown_older_tree(self._against, reason))
        known, made = self._compared(shared, new)
        if any(edits.is_read(one.followed) for one in made.values()):  # some are called only now
            new, failures = self._newer(edits.all_read)
            known, made = self._compared(shared, new)
        self._kept.store(made, new)
        self._facts.store(made, self._old)
        known |= made
        causes = groups([change for model in shared for change in known[model].changes], new.library, self._answers)
        self._answers.store()
        self._indexes.store(one.indexes for one in made.values())
        counted = len({*shared}.difference(self._selection.settings.no_models))
        return WholeAnswer(causes, frozenset(new.names), counted), failures

    def _newer(self, edits: Edits) -> tuple[ModelTree, list[Finding]]:
        selection, cache = self._selection, self._cache
        return newer_tree(selection.paths, self._models, selection.settings, cache, edits, self._answers, self.outside)

    def _compared(self, models: Sequence[str], new: ModelTree) -> tuple[dict[str, KnownModel], dict[str, KnownModel]]:
        """The models whose files are as in the last run, which are remembered, and the others, which are compared."""
        there = (model for model in models if not _is_gone(model, self._old, new))
        known = {model: one for model in there if (one := self._kept.known(model, self._old, new)) is not None}
        todo = [model for model in models if model not in known]
        trees, workers = (self._old, new, self._facts), self._selection.settings.workers
        return known, dict(zip(todo, in_processes(_of_models, trees, todo, workers, lambda done: None)))


def _of_models(
    models: Iterable[str], trees: tuple[ModelTree, ModelTree, KeptFacts], progress: Progress
) -> list[KnownModel]:
    old, new, kept = trees
    found = []
    for model in models:
        old.followed.clear()
        new.followed.clear()
        made = _of_model(model, old, new, kept)
        followed = made.followed.union(old.followed, new.followed)
        found.append(made._replace(followed=followed, indexes=KNOWN.take_made()))
        progress(1)
    return found


def _of_model(model: str, old: ModelTree, new: ModelTree, kept: KeptFacts) -> KnownModel:
    if (same := kept.unchanged(model, old, new)) is not None:
        return same
    moved = _moved_to(model, old, new) if _is_gone(model, old, new) else ""
    facts = new.facts(moved or model)
    place = CodePlace(facts.init, 1)
    changes = [ModelChange("export-removed", place, f"moves to `{moved}`", moved, model=model)] if moved else []
    renamed = _renamed(model, moved, old, new) if moved else {}
    own = {os.path.join(new.models, model, name) for tree in (old, new) for name in tree.told_of(model)}
    reads = _named(own.union(facts.reads), new)  # also those that only one tree has
    is_heir = any(is_modular(name, new.library.settings) for name in new.names.get(moved or model, ()))
    told = frozenset(told_classes(facts, is_heir=is_heir))
    if are_read(reads, old):
        is_older = new.hashed_as.keys().isdisjoint(facts.reads)  # its lines are those of the older texts, too
        return KnownModel((), reads, reads, told, facts=facts_text(facts, new) if is_older else "")
    if (known := kept.find(model, old)) is not None:
        record, before = known
        return KnownModel((*changes, *changes_of_model(model, before, facts, renamed)), reads, record.reads, told)
    before = old.facts(model)
    changes += changes_of_model(model, before, facts, renamed)
    return KnownModel(tuple(changes), reads, _named(before.reads, old), told, facts_text(before, old))


def _is_gone(model: str, old: ModelTree, new: ModelTree) -> bool:
    """Whether a model has no files any more. Where it is now depends on all models, so that nothing of it is remembered."""
    return bool(old.told_of(model)) and not new.told_of(model)


def _moved_to(model: str, old: ModelTree, new: ModelTree) -> str:
    """The new model that exports most names of one that is gone, and at least half of them; else the one that has most of its
    lines, but for the names of the two models; "" for none.
    """
    come = sorted(one for one in new.names if not old.told_of(one))
    names = Counter(old.exported(model))
    if found := _most_alike(names, {one: Counter(new.exported(one)) for one in come}, LEAST_NAMES):
        return found
    return _most_alike(_lines(model, old), {one: _lines(one, new) for one in come}, LEAST_LINES)


def _most_alike(wanted: Counter[str], found: Mapping[str, Counter[str]], least: float) -> str:
    """The first of those that have most of what is wanted; "" where none has this share of it."""
    shares = {one: (wanted & other).total() / max(wanted.total(), 1) for one, other in found.items()}
    best = max(shares, key=shares.__getitem__, default="")
    return best if best and shares[best] >= least else ""


def _lines(model: str, tree: ModelTree) -> Counter[str]:
    """The lines of a model's files without its name, and without comments, such as a banner."""
    texts = (tree.library.text_if_readable(os.path.join(tree.models, model, name)) for name in tree.told_of(model))
    lines = (line.partition("#")[0].strip() for text in texts for line in (text or "").split("\n"))
    return Counter(_nameless(one, model) for one in lines if one)


def _nameless(text: str, model: str) -> str:
    return caseless(text).replace(caseless(model), "")


def _renamed(model: str, moved: str, old: ModelTree, new: ModelTree) -> dict[str, str]:
    """The names that a model exports by which those of one that is gone are told: they differ by the names of the two."""
    now = {_nameless(one, moved): one for one in new.exported(moved)}
    return {one: now.get(_nameless(one, model), one) for one in old.exported(model) - new.exported(moved)}


def _named(paths: Iterable[str], tree: ModelTree) -> dict[str, str]:
    """The hashes of files, by their names below the folder of the package."""
    names = (os.path.relpath(path, os.path.dirname(tree.models)) for path in paths)
    return {name: tree.hash(name) for name in sorted(names)}
