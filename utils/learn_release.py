"""Learn the conventions of a new release: `python utils/learn_release.py 5.25.0 --cache ~/releases`.

Downloads the wheel of `transformers`, converts it under today's profile, and prints

* the differences, by the kind of change: how many files, what sets their modular files apart, and one complete example:
  the definition in its sources, as the conversion gives it, and as it is published;
* which switches of the profile's conventions, alone or in pairs, make how many files equal, and how many unequal;
* what is left, and the row of the release for docs/corpus.md.

Each file is converted from the published files of its neighbours, so that a difference counts where it arises.
`--as-of 5.23.0` takes the conventions of that release for the newest known ones, and shows what would have been learnt.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from keyword import kwlist

from check_releases import Result, check, models_of, newest_version, published_files, row
from profile_switches import Explanation, Switches, Trials, explanations, in_words, switches_of, with_switches
from release_examples import IMPORT, definitions, name_at, passage, sources

from modular_converter.check.blame import Cause
from modular_converter.check.compare import StaleFile
from modular_converter.check.differences import FEWEST, find_groups
from modular_converter.check.tree_changes import FileChange, file_changes
from modular_converter.convert.schedule import required_files
from modular_converter.files.arguments import discover
from modular_converter.findings import ConversionError
from modular_converter.model.lexer import identifiers
from modular_converter.settings.load import load_settings


SAMPLES = 2
"""Files of each kind of change that every switch is tried on."""
MOST_KINDS = 8
"""Kinds of change, the most frequent first, that a sample has files of."""
WORDS = 4
"""Words of each kind of change that are tried as entries of conventions."""


@dataclass(frozen=True)
class Kind:
    """The files that differ by one kind of change."""

    said: str
    members: tuple[StaleFile, ...]
    changes: Mapping[str, Sequence[FileChange]]

    def definition_in(self, stale: StaleFile) -> str:
        """The name of the first definition of a file that has this change."""
        first = next((one for one in self.changes[stale.path] if one.kind == self.said), None)
        if stale.old is None or first is None:
            return name_at(stale.new, first.new.start if first else 1)
        return name_at(stale.old, first.old.start)

    @property
    def paths(self) -> frozenset[str]:
        """The files."""
        return frozenset(one.path for one in self.members)


def main() -> int:
    """Print what can be learnt of a release; 1 where a difference stays without an explanation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?", help="a release of transformers, such as 5.25.0; else the newest")
    parser.add_argument("--cache", metavar="FOLDER", help="where wheels and their sources are kept")
    parser.add_argument("--as-of", metavar="RELEASE", help="take the profile as it was for this release")
    parser.add_argument("--workers", type=int, default=0, help="processes at most; 0 chooses")
    options = parser.parse_args()
    version = options.version or newest_version()
    if version is None:
        raise SystemExit("the package index cannot be asked for the newest release")
    with nullcontext(options.cache) if options.cache else tempfile.TemporaryDirectory() as folder:
        models = models_of(version, folder)
        try:
            lesson = Lesson(version, models, options.as_of or version, options.workers)
            for line in lesson.lines():
                print(line, flush=True)
        except ConversionError as error:
            raise SystemExit("\n".join(map(str, error.findings))) from None
    return int(bool(lesson.left))


class Lesson:
    """What a release teaches."""

    def __init__(self, version: str, models: str, as_of: str, workers: int = 0) -> None:
        self.version, self.models, self.as_of, self.workers = version, models, as_of, workers
        settings = replace(with_switches(load_settings(models), as_of), checked_release=as_of)
        self.paths = discover([models], None).paths
        self.trials = Trials(settings, as_of, dict(published_files(models)), workers)
        self.chosen: list[Explanation] = []
        """What makes more files equal than unequal; no two change the same convention."""
        self.left: list[str] = []
        """The files without an explanation."""

    def lines(self) -> Iterator[str]:
        """The lines of the report, each as soon as it is known."""
        result = check(self.version, self.models, self.workers, self.trials.settings)
        refused = [one for one in result.differences if one.reason == "refused"]
        concerned, wrong = ({os.path.dirname(one.path) for one in some} for some in (result.differences, refused))
        differing = [path for path in self.paths if os.path.dirname(path) in concerned - wrong]
        equal = [path for path in self.paths if os.path.dirname(path) not in concerned]
        kinds = self._kinds(differing)
        own = {one.path for kind in kinds for one in kind.members}
        yield f"transformers {self.version} under the conventions of {self.as_of}: {len(result.differences)} of "
        yield f"{result.published} generated files differ: {len(own)} by themselves, {len(refused)} refused, "
        yield f"{len(result.differences) - len(refused) - len(own)} for what they are made from."
        for one in refused:
            yield f"\nrefused: {one.file}: {one.detail}"
        for number, kind in enumerate(kinds, start=1):
            yield f"\n## {number}. {self._title(kind)}\n"
            yield from self._described(kind)
        if kinds:
            yield "\n## What explains them\n"
            yield from self._explained(kinds, differing, equal)
        switches = tuple(one for some in self.chosen for one in some.switches)
        left = self._kinds(differing, switches) if switches else kinds
        yield "\n## What is left\n"
        yield from self._left(result, left, {kind.said for kind in kinds})
        yield "\n## The row for docs/corpus.md\n"
        yield row(result)

    def _kinds(self, modular: Sequence[str], switches: Switches = ()) -> list[Kind]:
        """The kinds of change between the published files and the conversions; the most frequent first."""
        conversions, different = self.trials.different(modular, switches)
        by_folder = {os.path.dirname(one.path): one for one in conversions}
        stale = [
            StaleFile(path, path, by_folder[os.path.dirname(path)], self.trials.published.get(path), text)
            for path, text in different.items()
        ]
        found = find_groups(stale, {one.path: Cause("") for one in stale}, self.trials.settings)
        by_path = {one.path: one for one in stale}
        kinds = [Kind(one.kind, tuple(by_path[path] for path in sorted(one.members)), one.changes) for one in found]
        alone: dict[str, list[StaleFile]] = {}
        changes = {
            one.path: file_changes(one.path, one.old or "", one.new)
            for one in stale
            if not any(one.path in kind.paths for kind in kinds)
        }
        for path, some in changes.items():
            for kind in dict.fromkeys(change.kind for change in some) or ["differs in more than can be told"]:
                alone.setdefault(kind, []).append(by_path[path])
        return kinds + [Kind(kind, tuple(members), changes) for kind, members in alone.items()]

    def _title(self, kind: Kind) -> str:
        files = len(kind.members)
        return f"{files} file{'s' * (files != 1)}: the conversion {kind.said}"

    def _described(self, kind: Kind) -> Iterator[str]:
        """The files of a kind, what sets them apart, and an example."""
        names = [os.path.basename(one.path) for one in kind.members]
        yield ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        for word, inside, outside in self._words(kind):
            yield f"`{word}` stands in {inside} of these definitions in modular files, and in {outside} others."
        yield from self._example(kind)

    def _words(self, kind: Kind) -> list[tuple[str, str, str]]:
        """The words that set the definitions of a kind apart in modular files: word, how many of both have it."""
        keys = {(one.conversion.path, kind.definition_in(one)) for one in kind.members}
        texts = [self.definitions[key] for key in sorted(keys & self.definitions.keys())]
        others = [words for key, words in self.words.items() if key not in keys]
        inside = Counter(word for text in texts for word in identifiers(text) - {*kwlist})
        outside = Counter(word for words in others for word in words)
        shares = {word: count / len(texts) - outside[word] / max(1, len(others)) for word, count in inside.items()}
        place = {word: texts[0].find(word) % (len(texts[0]) + 1) for word in shares}
        best = sorted(shares, key=lambda word: (-round(shares[word], 1), place[word], word))[:WORDS]
        return [
            (word, f"{inside[word]} of {len(texts)}", f"{outside[word]} of {len(others)}")
            for word in best
            if len(texts) > 1 and shares[word] > 0.3
        ]

    @cached_property
    def definitions(self) -> Mapping[tuple[str, str], str]:
        """The text of each definition of the modular files, by path and name."""
        return {
            (path, name): "\n".join(lines[span.start - 1 : span.end - 1])
            for path in self.paths
            for lines in [self.trials.library.text(path).split("\n")]
            for name, span in definitions("\n".join(lines))
            if name != IMPORT
        }

    @cached_property
    def words(self) -> Mapping[tuple[str, str], frozenset[str]]:
        """The words of each definition that has no others in it."""
        outer = {(path, name.partition(".")[0]) for path, name in self.definitions if "." in name}
        return {key: identifiers(text) for key, text in self.definitions.items() if key not in outer}

    def _example(self, kind: Kind) -> Iterator[str]:
        """The shortest definition with this change: in its sources, as converted, as published."""
        found = []
        for one in kind.members:
            name = kind.definition_in(one)
            texts = [passage(one.path, text, name) for text in (one.new, one.old or "")]
            size = max((text.text.count("\n") for text in texts if text), default=0)
            found.append((size, one.path, one, name, texts))
        _, _, one, name, texts = min(found, key=lambda item: item[:2])
        for source in sources(one.conversion.path, name, self.trials.library):
            yield f"\nbefore, {source.place}:\n\n```python\n{source.text}\n```"
        for said, text in zip(("after, as converted", "published"), texts):
            yield f"\n{said}, {text.place}:\n\n```python\n{text.text}\n```" if text else f"\n{said}: no `{name}`"

    def _explained(self, kinds: Sequence[Kind], differing: Sequence[str], equal: Sequence[str]) -> Iterator[str]:
        """What explains the differences, the best first, and chooses among it."""
        words = list(dict.fromkeys(word for kind in kinds[:MOST_KINDS] for word, _, _ in self._words(kind)))
        switches = switches_of(self.as_of, words)
        sample = self._sample(kinds)
        candidates: dict[frozenset[str], Explanation] = {}
        for one in explanations(self.trials, switches, sample):
            candidates.setdefault(one.files, one)
        now = self.trials.different(differing).texts.keys()
        solved = [
            Explanation(one.switches, frozenset(now - self.trials.different(differing, one.switches).texts.keys()))
            for one in candidates.values()
        ]
        explained: set[str] = set()
        for one in sorted(solved, key=lambda one: (-len(one.files), len(one.switches))):
            if one.files <= explained or {some.key for some in one.switches} & {
                some.key for other in self.chosen for some in other.switches
            }:
                continue
            damaged = self.trials.different(equal, one.switches).texts
            yield f"* {in_words(one.switches)}: {len(one.files)} of {len(now)} files become equal, {len(damaged)} equal "
            yield f"  ones become unequal{': no explanation' if len(damaged) >= len(one.files) else ''}"
            if len(damaged) < len(one.files):
                self.chosen.append(one)
                explained |= one.files
        yield f"\nTried on {len(sample)} modular files: {len(switches)} switches, and for what none of them explains their "
        yield "pairs. What explains one of them was tried on all."

    def _sample(self, kinds: Sequence[Kind]) -> list[str]:
        """The modular files of each kind that are made of the least text, those with one kind of change first."""
        found: dict[str, None] = {}
        for kind in kinds[:MOST_KINDS]:
            sizes = {
                one.conversion.path: (
                    len({some.kind for some in kind.changes[one.path]}),
                    self._size(one.conversion.path),
                )
                for one in kind.members
            }
            found.update(dict.fromkeys(sorted(sizes, key=lambda path: sizes[path])[:SAMPLES]))
        return list(found)

    def _size(self, modular: str) -> int:
        library = self.trials.library
        return sum(len(library.text(path)) for path in required_files(modular, library) if library.exists(path))

    def _left(self, result: Result, kinds: Sequence[Kind], shown: set[str]) -> Iterator[str]:
        """What no chosen explanation makes equal, by kind, with the reasons that can be proven."""
        reasons = {one.path: one for one in result.differences if one.reason}
        for kind in kinds:
            known = [reasons[one.path] for one in kind.members if one.path in reasons]
            yield f"* {self._title(kind)}{'' if len(known) < len(kind.members) else ': ' + known[0].reason}"
            for one in known:
                yield f"  * {one.file}: {one.reason}: {one.detail}"
            if kind.said not in shown:
                yield from self._example(kind)
            is_alone = len(kind.members) < FEWEST  # what no source has is one file's, or a convention
            self.left += (one.path for one in kind.members if not (one.path in reasons and is_alone))
        if not kinds:
            yield "nothing"


if __name__ == "__main__":
    sys.exit(main())
