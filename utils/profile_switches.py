"""The switches of a profile's conventions, and what each of them and each pair gives."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from modular_converter.convert.batch import Workers, convert_each
from modular_converter.convert.emit.format import FormatMemory
from modular_converter.convert.source.library import Library
from modular_converter.findings import Conversion
from modular_converter.settings.load import conventions, parse_release
from modular_converter.settings.profiles.transformers import TABLE
from modular_converter.settings.toml_files import TomlFile, read_table
from modular_converter.settings.values import Settings


NO_CONVENTIONS = frozenset(
    ("package", "banner-root", "auto-tables", "config-table", "no-models", "no-inherit-module", "plan-names")
    + (
        "default-kind",
        "formatter",
        "formatter-version",
        "replaced-dependency",
        "max-file-bytes",
        "checked-release",
        "older",
    )
)
"""Keys that say where something is, or what is written by which program; another value of them is no convention."""
FEW = 20
"""Modular files that are converted in this process."""
Table = Mapping[str, Any]


class Switch(NamedTuple):
    """One change of one convention."""

    key: str
    said: str
    """What it does, as a part of a sentence."""
    apply: Callable[[Any], Any]
    """From the value of the key to its new value."""


Switches = tuple[Switch, ...]
"""Switches that are tried together, in order."""


def in_words(switches: Switches) -> str:
    """What some switches do."""
    return " and ".join(f"{one.key} {one.said}" for one in switches)


def conventions_of(release: str) -> dict[str, Any]:
    """The conventions that the profile has for a release, by key."""
    table = conventions(TABLE, _older(), parse_release(release))
    return {key: value for key, value in table.items() if key not in NO_CONVENTIONS}


def switches_of(release: str, words: Sequence[str]) -> list[Switch]:
    """Each convention as older releases had it, off, without one of its entries, and with one more.

    Args:
        release: the release as which the profile is taken; of younger ones nothing is known.
        words: the entries to be added.
    """
    table = conventions_of(release)
    found = []
    for one in _older():
        before = one["before"]
        if parse_release(before) <= parse_release(release):
            old = conventions(TABLE, _older(), (*parse_release(before)[:-1], parse_release(before)[-1] - 1))
            keys = sorted(table.keys() & one.keys())
            found += [Switch(key, f"as before {before}", _constant(old[key])) for key in keys]
    for key, value in table.items():
        if isinstance(value, list):
            found += [Switch(key, f"with `{word}`", _with(word)) for word in words if word not in value]
    for key, value in table.items():
        if value:
            found.append(Switch(key, "off", _constant(type(value)())))
        if not isinstance(value, str) and len(value) > 1:
            found += [Switch(key, f"without `{entry}`", _without(entry)) for entry in value]
    return found


def _older() -> Sequence[Table]:
    older = TABLE["older"]
    assert isinstance(older, list)
    return older


def _constant(value: object) -> Callable[[Any], Any]:
    return lambda old: value


def _with(word: str) -> Callable[[Any], Any]:
    return lambda old: [*old, word]


def _without(entry: str) -> Callable[[Any], Any]:
    def apply(old: Any) -> Any:
        if isinstance(old, dict):
            return {key: value for key, value in old.items() if key != entry}
        return [one for one in old if one != entry] if isinstance(old, list) else old

    return apply


def with_switches(settings: Settings, release: str, switches: Switches = ()) -> Settings:
    """Settings with the conventions of a release, and with some of them changed."""
    table = conventions_of(release)
    for one in switches:
        table[one.key] = one.apply(table[one.key])
    return replace(settings, **read_table(TomlFile("profile", "", {}), table))


class Trial(NamedTuple):
    """The result of a trial."""

    conversions: Sequence[Conversion]
    texts: Mapping[str, str]
    """The files that differ from the published ones, by path, each with its text: "" for one that is not given."""


@dataclass
class Trials:
    """Converts files of a release under changed conventions, each from the published files of its neighbours."""

    settings: Settings
    release: str
    """The release as which the profile is taken."""
    published: Mapping[str, str]
    workers: int = 0
    memory: FormatMemory = field(default_factory=FormatMemory)

    def __post_init__(self) -> None:
        self.library = Library(self.settings)

    def different(self, modular: Collection[str], switches: Switches = ()) -> Trial:
        """Convert modular files, and compare what they give with what is published."""
        settings = with_switches(self.settings, self.release, switches)
        library = replace(self.library, settings=settings)  # what was read is the same under all conventions
        workers = self.workers if len(modular) > FEW else 1  # one process reads and parses each file once
        with Workers(library, workers) as processes:
            conversions = processes.do(convert_each, sorted(modular), lambda number: None)
        given = {path: text for one in conversions for path, text in one.files.items()}
        texts = self.memory.format(given, settings).texts
        folders = {os.path.dirname(one) for one in modular}
        paths = {*texts, *(path for path in self.published if os.path.dirname(path) in folders)}
        compared = ((path, texts.get(path, ""), self.published.get(path)) for path in sorted(paths))
        return Trial(conversions, {path: new for path, new, old in compared if new != old})


class Explanation(NamedTuple):
    """Switches that make files equal to the published ones."""

    switches: Switches
    files: frozenset[str]
    """The files that become equal."""


def explanations(trials: Trials, switches: Sequence[Switch], sample: Collection[str]) -> Iterator[Explanation]:
    """What makes files of a sample equal: single switches, then pairs for the files that no single one explains.

    A pair is tried if one of its switches changes a text alone: two that change nothing are left out.
    """
    waiting = set(sample)
    now = trials.different(sample).texts
    alive = set()
    for one in switches:
        texts = trials.different(sample, (one,)).texts
        if texts != now:
            alive.add(one)
        if solved := frozenset(now.keys() - texts.keys()):
            waiting = {path for path in waiting if _has_any(path, texts.keys())}
            yield Explanation((one,), solved)
    now = trials.different(waiting).texts
    for pair in itertools.combinations(switches, 2):
        solved = frozenset()
        if waiting and alive.intersection(pair):
            solved = frozenset(now.keys() - trials.different(waiting, pair).texts.keys())
        if solved:
            yield Explanation(pair, solved)


def _has_any(modular: str, files: Collection[str]) -> bool:
    return any(os.path.dirname(one) == os.path.dirname(modular) for one in files)
