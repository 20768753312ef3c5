"""What comparisons remember of earlier ones, by content: the whole answer, the changes of each model, and the facts of models in
the older tree. What is damaged, or of another form, counts as absent.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from modular_converter.breaking.compare import ModelChange
from modular_converter.breaking.facts import ModelFacts, ModelTree
from modular_converter.breaking.packed import facts_of_values, values_of_facts
from modular_converter.breaking.report import CauseGroup
from modular_converter.breaking.values import CodePlace
from modular_converter.check.cache.answers import are_same
from modular_converter.check.cache.lookup import OTHER_FORM
from modular_converter.check.cache.store import digest, keep_values, read_values
from modular_converter.convert.source.library import Library, Observations


class WholeAnswer(NamedTuple):
    """What a comparison of whole trees finds."""

    causes: Sequence[CauseGroup]
    names: frozenset[str]
    """The models of the newer tree."""
    models: int
    """The number of models that were compared."""


class KeptAnswer:
    """The last answer about two trees, by the state of both."""

    def __init__(self, folder: str | None, about: str, states: Sequence[str]) -> None:
        """
        Args:
            about: what is compared, and by what settings.
            states: a text for each tree that changes with its content; "" where that is not known.
        """
        self._folder = folder if all(states) else None
        self._name = digest(f"comparison {about}".encode("utf-8", "surrogatepass"))
        self._states = [*states]

    def find(self, library: Library) -> WholeAnswer | None:
        """The answer, if both trees are as they were, and all else that was read as a library reads it."""
        with contextlib.suppress(*OTHER_FORM):  # of none, too
            found = read_values(self._folder, self._name) if self._folder else {}
            files, packages = found["reads"]
            if found["states"] == self._states and are_same(files, packages, library):
                groups = ((CodePlace(*cause), *words, tuple(_changes(all))) for cause, *words, all in found["causes"])
                return WholeAnswer([CauseGroup(*one) for one in groups], frozenset(found["names"]), found["models"])
        return None

    def keep(self, answer: WholeAnswer, states: Sequence[str], outside: Observations) -> None:
        """Remember an answer, unless the trees have changed meanwhile.

        Args:
            outside: what was read that belongs to neither tree.
        """
        if self._folder and [*states] == self._states:
            reads = outside.files, outside.packages
            kept = {"states": self._states, "reads": reads, **answer._asdict(), "names": sorted(answer.names)}
            keep_values(self._folder, self._name, kept)


def _changes(values: Iterable[Sequence[Any]]) -> Iterator[ModelChange]:
    for rule, place, message, word, keys, model in values:
        yield ModelChange(rule, CodePlace(*place), message, word, tuple(keys), model)


class KnownModel(NamedTuple):
    """The changes of a model, and the files that they follow from, by their names in each tree."""

    changes: tuple[ModelChange, ...]
    new: Mapping[str, str]
    old: Mapping[str, str]
    followed: frozenset[str] = frozenset()
    """The functions whose bodies were followed for it, but for those that were followed for another one before; and marks of the
    classes that are told of.
    """
    facts: str = ""
    """The facts in the older tree, packed, if they were made, or are those of the newer one."""
    indexes: Mapping[str, Any] = {}
    """Those of texts that were made for it."""


class KeptModels:
    """What the last comparison of two trees has found of each model."""

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

    def known(self, model: str, old: ModelTree, new: ModelTree) -> KnownModel | None:
        """The changes of a model, if all files that they follow from are the same, and their lines where they were."""
        with contextlib.suppress(*OTHER_FORM):  # of none, too
            record = self._models[model]
            if are_read(record["new"], new) and are_read(record["old"], old):
                found = KnownModel(tuple(_changes(record["changes"])), record["new"], record["old"])
                return found if _is_in_place(found, new) else None
        return None

    def store(self, made: Mapping[str, KnownModel], new: ModelTree) -> None:
        """Remember the changes of models, and what was followed to find them."""
        self.followed.update(*(one.followed for one in made.values()))
        if made and self._folder:
            kept = {model: one for model, one in made.items() if _is_in_place(one, new)}
            self._models |= {
                model: {"changes": one.changes, "new": one.new, "old": one.old} for model, one in kept.items()
            }
            keep_values(self._folder, self._name, {"models": self._models, "followed": sorted(self.followed)})


def _is_in_place(known: KnownModel, new: ModelTree) -> bool:
    """Whether the lines of changes are those of the texts that they are remembered for."""
    return new.hashed_as.keys().isdisjoint(one.place.path for one in known.changes)


def are_read(reads: Mapping[str, str], tree: ModelTree) -> bool:
    """Whether files of these names are in a tree what they were, by their hashes."""
    new = reads.items() - tree.compared  # models read mostly the same files
    if any(tree.hash(name) != given for name, given in new):
        return False
    tree.compared |= new
    return True


MOST_BYTES = 1 << 24
"""Of the facts of a model that are unpacked. Those of a large one have 300 kB."""


class OlderFacts(NamedTuple):
    """The facts of a model in the older tree, as they are kept."""

    files: Sequence[str]
    """The files of the model."""
    reads: Mapping[str, str]
    """All files that they follow from, by their hashes."""
    followed: Sequence[str]
    facts: str
    """Packed to a tenth."""


class KeptFacts:
    """The facts of models of the older tree, which stays the same from edit to edit."""

    def __init__(self, folder: str | None, about: str) -> None:
        """`about` says which tree, and what decides its facts beside the texts; "" to remember nothing."""
        self._folder = folder if about else None
        self._name = digest(f"facts {about}".encode("utf-8", "surrogatepass"))

    @functools.cached_property
    def _known(self) -> Mapping[str, Any]:
        """Loaded on first use: most comparisons of an edit ask for none."""
        return read_values(self._folder, self._name) if self._folder else {}

    def find(self, model: str, old: ModelTree) -> tuple[OlderFacts, ModelFacts] | None:
        """The facts of a model, if all that they follow from is as it was."""
        with contextlib.suppress(*OTHER_FORM, zlib.error):  # of none, too
            known = self._record(model, old)
            text = zlib.decompressobj().decompress(base64.b64decode(known.facts), MOST_BYTES)
            facts = facts_of_values(json.loads(text), os.path.dirname(old.models))
            old.followed.update(map(str, known.followed))
            return known, facts
        return None

    def unchanged(self, model: str, old: ModelTree, new: ModelTree) -> KnownModel | None:
        """A model of which all that its facts follow from is the same in both trees."""
        with contextlib.suppress(*OTHER_FORM):  # of none, too
            files, reads, followed, _ = self._record(model, old)
            if files == new.told_of(model) and are_read(reads, new):
                return KnownModel((), reads, reads, frozenset(map(str, followed)))
        return None

    def _record(self, model: str, old: ModelTree) -> OlderFacts:
        """Raises an error of `OTHER_FORM` where nothing is kept that holds."""
        known = OlderFacts(*self._known[model])
        if known.files != old.told_of(model) or not are_read(known.reads, old):
            raise KeyError(model)
        return known

    def store(self, made: Mapping[str, KnownModel], old: ModelTree) -> None:
        """Remember the facts that were made."""
        new = {
            model: OlderFacts(old.told_of(model), one.old, sorted(one.followed), one.facts)
            for model, one in made.items()
            if one.facts
        }
        if new and self._folder:
            keep_values(self._folder, self._name, {**self._known, **new})


def facts_text(facts: ModelFacts, old: ModelTree) -> str:
    """The facts of a model of the older tree, as they are kept."""
    text = json.dumps(values_of_facts(facts, os.path.dirname(old.models)), separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 1)).decode()
