"""The order in which modular files are converted, by the generated files that each needs of others; a file that has read
one which has changed since is converted again.

And which definitions of a neighbour's file a modular file reads, so that heirs of an edited file are converted only where
what differs in it is theirs: what a conversion takes of a neighbour is what the modular file names and what the generated
files have from it, with all that these need. A neighbour's definition in whose place the modular file has its own is not
read.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from modular_converter.convert.inherit.resolve import is_sibling, modules_of, neighbour_module
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import Conversion, ConversionError
from modular_converter.model.module import Module, Role, Statement
from modular_converter.settings.values import (
    Settings,
    depth_of_files,
    models_folder_of,
    modular_of,
    module_name,
    parts_below_models,
)


def required_files(path: str, library: Library) -> frozenset[str]:
    """The neighbour files that the top level of a modular file imports from, whether they exist or not. A package of a
    model that hands on a base stands for all files of the model.

    None for a file that cannot be read or is not Python: its conversion reports the error.
    """
    statements, settings, folder = _module(path, library).statements, library.settings, os.path.dirname(path)
    imported = [name for one in statements if one.role is Role.IMPORT for name in one.imports]
    modules = {name.module for name in imported}
    owners = {base.partition(".")[0] for one in statements for base in one.bases}
    for module in {module for name in imported if name.bound in owners for module in modules_of(name)}:
        parts = parts_below_models(module, settings)
        if parts is not None and len(parts) < depth_of_files(settings):
            modules.update(f"{module}.{module_name(kind, parts[0])}" for kind in settings.file_kinds)
    neighbours = (one for one in modules if neighbour_module(one, settings))
    return frozenset(file for one in neighbours if (file := library.resolver.path(one, folder)))


def ancestor_files(path: str, library: Library) -> frozenset[str]:
    """The files in which the ancestors of a module's classes are looked for, whether they exist or not.

    A conversion reads them when a modular file removes attributes, to know which attributes exist.
    None for a file that cannot be read or is not Python: the conversion stops there, too.
    """
    seen = Observations()
    observed = library.observing(seen)
    module = _module(path, observed)
    for name in module.classes:
        deque(observed.resolver.lineage(name, module), maxlen=0)
    library.observations.files.update(seen.files)
    library.observations.packages.update(seen.packages)
    return frozenset(one for one in seen.files if os.path.isdir(os.path.dirname(one)))


def removes_attributes(path: str, library: Library) -> bool:
    """Whether a modular file may remove attributes of a parent."""
    return any("AttributeError" in one.text for one in _module(path, library).statements)


def _module(path: str, library: Library) -> Module:
    return library.module_if_readable(path) or Module(path, "", ())


def dependencies(required: Mapping[str, Collection[str]], settings: Settings) -> dict[str, frozenset[str]]:
    """For each modular file of a run, the others of the run whose generated files it needs.

    Args:
        required: modular file -> the neighbour files that it imports from.
        settings: they tell which files are generated.
    """
    giver = {file: modular_of(file, settings) for file in frozenset().union(*required.values())}
    return {
        path: frozenset(one for file in files if (one := giver[file]) in required and one != path)
        for path, files in required.items()
    }


def levels(needs: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Sort files so that each comes after the files that it needs.

    Members of cycles, and files that need them, are left out.
    """
    sorter = TopologicalSorter({path: [one for one in needed if one in needs] for path, needed in needs.items()})
    with contextlib.suppress(CycleError):  # the sorter still gives all files that no cycle blocks
        sorter.prepare()
    ordered: list[list[str]] = []
    while ready := sorter.get_ready():
        ordered.append(sorted(ready))
        sorter.done(*ready)
    return ordered


def cycles(needs: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """The cycles of files that need each other, each from its first member on. Every file on a cycle is in a result."""
    sortable = {path for level in levels(needs) for path in level}
    left = {path: sorted(set(needed) - sortable) for path, needed in needs.items() if path not in sortable}
    found: list[tuple[str, ...]] = []
    for start in sorted(left):
        if not any(start in cycle for cycle in found) and (cycle := _cycle_from(start, left)):
            found.append(cycle)
    return found


def _cycle_from(start: str, needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The shortest way from a file through the files that it needs back to itself; empty if there is none."""
    seen: set[str] = set()
    ways: deque[tuple[str, ...]] = deque([(start,)])
    while ways:
        way = ways.popleft()
        for needed in needs.get(way[-1], ()):
            if needed == start:
                return way
            if needed not in seen:
                seen.add(needed)
                ways.append((*way, needed))
    return ()


def reached(starts: Iterable[str], step: Callable[[str], Iterable[str]]) -> set[str]:
    """Some files or names, and all that steps lead to from them."""
    found, waiting = {*starts}, [*starts]
    while waiting:
        new = {*step(waiting.pop())} - found
        found |= new
        waiting += new
    return found


def heirs_of(path: str, required: Mapping[str, Iterable[str]], settings: Settings) -> frozenset[str]:
    """A modular file, and those that take from it, directly or not.

    Args:
        required: modular file -> the files that it imports from.
    """
    givers = {heir: {modular_of(file, settings) for file in files} for heir, files in required.items()}
    return frozenset(reached([path], lambda giver: (heir for heir in givers if giver in givers[heir])))


class Schedule:
    """The files still to be converted. Each round looks only at files that the last round has touched."""

    def __init__(
        self,
        required: Mapping[str, Collection[str]],
        needs: Mapping[str, Collection[str]],
        known: Mapping[str, Conversion],
        refused: Collection[str],
        exists: Callable[[str], bool],
        concerns: Callable[[str, str], bool] | None = None,
        *,
        speculates: bool,
    ) -> None:
        """Begin with all files that are neither known nor refused.

        Args:
            required: modular file -> the neighbour files that it imports from.
            needs: modular file -> the others of the run whose generated files it needs.
            known: conversions that hold so far.
            refused: files that are not converted at all.
            exists: whether there is a file, on disk or among the texts of the run.
            concerns: whether a modular file that is not yet converted reads what has changed in a file; None for yes.
            speculates: whether a file is converted as soon as its neighbours can be read. Where they have mostly
            changed, as where most files are known, a conversion before them would be in vain.
        """
        self._required, self._needs, self._exists = required, needs, exists
        self._place = {path: number for number, path in enumerate(_in_order(needs))}
        self._heirs: defaultdict[str, list[str]] = defaultdict(list)
        self._readers: defaultdict[str, set[str]] = defaultdict(set)
        self._times: Counter[str] = Counter()
        self._speculates, self._concerns = speculates, concerns
        self._pending = needs.keys() - known.keys() - set(refused)
        self._touched = set(self._pending)
        for path, needed in needs.items():
            for one in needed:
                self._heirs[one].append(path)
        for conversion in known.values():
            self._add_reads(conversion)

    def next_round(self) -> list[str]:
        """The files to convert now, in order of dependency; none at the end.

        These are the files whose neighbours are converted or, when hardly anything is known, can at least be read.
        """
        ready = self._readable() if self._speculates else self._not_behind()
        ready = ready or self._pending.copy()  # files that wait for each other
        self._pending -= ready
        self._touched = {heir for path in ready for heir in self._heirs[path]}
        self._times.update(ready)
        return sorted(ready, key=self._place.__getitem__)

    def settle(self, batch: Iterable[Conversion], changed: Mapping[str, str], done: Mapping[str, Conversion]) -> None:
        """Register a round: the files that have read a changed file must be converted again. Files may go on changing
        each other although their imports form no cycle, so the number of times is limited.

        Args:
            changed: file -> the modular file that it comes from.
            done: all conversions so far.
        """
        for conversion in batch:
            self._add_reads(conversion)
        for file, source in changed.items():
            for path in self._readers[file]:
                if path == source or file not in _reads(done[path]) or self._times[path] > len(self._needs):
                    continue
                if path in self._pending or self._times[path] or not self._concerns or self._concerns(path, file):
                    self._pending.add(path)
                    self._touched.add(path)

    def _add_reads(self, conversion: Conversion) -> None:
        for file in _reads(conversion):
            self._readers[file].add(conversion.path)

    def _readable(self) -> set[str]:
        """The pending files that build on no other pending file, or whose neighbours can all be read."""
        return {
            path
            for path in self._touched & self._pending
            if self._pending.isdisjoint(self._needs[path]) or all(map(self._exists, self._required[path]))
        }

    def _not_behind(self) -> set[str]:
        """The pending files that build on no other pending file, directly or through others."""
        unsettled = self._pending.copy()
        for path in self._place:
            if not unsettled.isdisjoint(self._needs[path]):
                unsettled.add(path)
        return {path for path in self._pending if unsettled.isdisjoint(self._needs[path])}


def _reads(conversion: Conversion) -> Set[str]:
    """The files that a conversion imports from or has read."""
    return conversion.requires | conversion.reads.keys()


def _in_order(needs: Mapping[str, Collection[str]]) -> list[str]:
    """The files, each after the files that it needs; those on or behind a cycle come last."""
    order = [path for level in levels(needs) for path in level]
    return [*order, *sorted(needs.keys() - set(order))]


_WORD = re.compile(r"\w+")
_BETWEEN = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) == "_")}
"""What parts words in code; a translation and `split` take a quarter of the time of `\\w+`."""
_LAST_WORD = re.compile(r"(?:[A-Z]+|[A-Z]?[a-z]*)\d*_*$")
"""`Norm` of `LlamaRMSNorm`: a copy in another model has it, too."""
_DEFINED = [re.compile(one) for one in (r"class[ \t]+(\w+)", r"def[ \t]+(\w+)", r"\n(\w+)(?=[ \t]*[:=])")]
"""Each begins with characters that are found fast: texts of 20 MB are searched for the heirs of llama. In strings, too."""
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_IMPORTED = re.compile(r"^\s*from\s+([\w.]+)\s+import", re.MULTILINE)
_WITH_BODY = (Role.CLASS, Role.FUNCTION, Role.ASSIGNMENT)


def caseless(name: str) -> str:
    """A name as all its spellings have it in common: `big_bird` and `BigBird` are `bigbird`."""
    return name.replace("_", "").lower()


def words_in_code(text: str) -> frozenset[str]:
    """The words of a text of code."""
    return frozenset(text.translate(_BETWEEN).split())


class _Heir(NamedTuple):
    """A modular file, as it names what it reads."""

    model: str
    words: frozenset[str]
    own: frozenset[str]
    """The names that it defines."""
    copied: frozenset[str]
    """The names that its generated files define beside those."""


class Readings:
    """What modular files read of their neighbours. Where that is not certain, they read everything."""

    def __init__(
        self,
        required: Mapping[str, frozenset[str]],
        edited: Set[str],
        before: Mapping[str, str],
        disk: Library,
        asked: Set[str] = frozenset(),
    ) -> None:
        """
        Args:
            required: modular file -> the neighbour files that it imports from.
            edited: the files that have been edited.
            before: edited file -> its text before. The generated files on disk were made when it was so.
            disk: it reads the files on disk.
            asked: modular files of which nothing is known.
        """
        self.required, self._edited, self._before, self._disk = required, edited, before, disk
        self._asked = asked
        self._older = Library(disk.settings, dict(before))
        self._heirs: dict[str, _Heir | None] = {}
        self._differences: dict[tuple[str, str], _Difference | None] = {}

    def current(self, paths: Iterable[str]) -> dict[str, Conversion]:
        """Those modular files of which the generated files are what they give while their neighbours are as on disk, as
        conversions without texts.
        """
        settings = self._disk.settings
        if settings.strict or settings.output_dir:  # any finding of an heir counts; copies lie elsewhere
            return {}
        folders = {os.path.dirname(one) for one in self._edited}
        for path in paths:
            if path not in self.required or os.path.dirname(path) in folders:
                continue
            self._heirs[path] = self._read_heir(path)
            edited = self.required[path] & self._edited
            if path in self._asked or any(self.concerns(self._disk, path, one) for one in edited):
                self._heirs[path] = None
        return {
            path: Conversion(path, {}, requires=self.required[path])
            for path, heir in self._heirs.items()
            if heir is not None
        }

    def concerns(self, library: Library, path: str, file: str) -> bool:
        """Whether a modular file reads something of a neighbour's file that differs, as a library reads it, from before."""
        heir = self._heirs.get(path)
        if heir is None or (file in self._edited and file not in self._before):
            return True
        try:
            old, new = self._older.module(file), library.module(file)
        except ConversionError:
            return True
        asked = file, library.hash(file)
        if asked not in self._differences:
            self._differences[asked] = _difference(old, new)
        changed = self._differences[asked]
        return changed is None or _is_concerned(heir, old, new, changed)

    def _read_heir(self, path: str) -> _Heir | None:
        """None for a file that may read more than the definitions of which it says the names."""
        with contextlib.suppress(ConversionError, OSError):
            return self._named_by(path)
        return None

    def _named_by(self, path: str) -> _Heir | None:
        module, text = self._disk.module(path), self._disk.text(path)
        words = words_in_code(text)
        if "import *" in text or self._takes_handed_on(path, module):
            return None
        if "AttributeError" in words and self._reads_ancestors(path):
            return None
        with os.scandir(os.path.dirname(path)) as found:
            files = [*found]
        if any(one.is_symlink() for one in files):
            return None
        own = frozenset(module.definitions)
        texts = (self._disk.text(one.path) for one in files if modular_of(one.path, self._disk.settings) == path)
        defined = {name for one in texts for kind in _DEFINED for name in kind.findall(one)}
        model = caseless(os.path.basename(os.path.dirname(path)))
        return _Heir(model, words, frozenset(map(caseless, own)), frozenset(map(caseless, defined - own)))

    def _reads_ancestors(self, path: str) -> bool:
        """Whether ancestors of the neighbours' classes may lie in files that are edited or made anew, which a modular file
        reads that removes attributes: in other files of models, or where a file outside of models is edited.
        """
        settings = self._disk.settings
        models = models_folder_of(path, settings)
        if any(models_folder_of(one, settings) != models for one in self._edited):
            return True
        texts = (self._older.text_if_readable(one) or "" for one in self.required[path])
        imported = {one for text in texts for one in _IMPORTED.findall(text)}
        return any(neighbour_module(one, settings) and not is_sibling(one) for one in imported)

    def _takes_handed_on(self, path: str, module: Module) -> bool:
        """Whether a base is of a neighbour that only hands it on."""
        bases = {base for one in module.statements for base in one.bases}
        roots = {base.partition(".")[0] for base in bases}
        imported = [name for one in module.statements for name in one.imports if name.bound in roots]
        below = [one for one in imported if any(parts_below_models(x, self._disk.settings) for x in modules_of(one))]
        asked = {base.rpartition(".")[2] for base in bases for one in below if base.startswith(f"{one.bound}.")}
        asked |= {one.name for one in below if one.bound in bases}
        defined = (_classes_in(self._older.text_if_readable(one) or "") for one in self.required[path])
        return not asked <= frozenset().union(*defined)


@functools.lru_cache(maxsize=1024)  # many heirs ask for the same neighbours
def _classes_in(text: str) -> frozenset[str]:
    return frozenset(_CLASS.findall(text))


class _Difference(NamedTuple):
    """What differs between two texts of a file."""

    definitions: frozenset[str]
    imports: frozenset[str]
    """The names that other import statements bind."""


def _difference(old: Module, new: Module) -> _Difference | None:
    """The definitions and imports that differ, or that one of the texts lacks; None where anything else does, or their order."""
    sides = [{_mark(one): one for one in module.statements} for module in (old, new)]
    shared, others = ([mark for mark in side if all(mark in one for one in sides)] for side in sides)
    is_unique = all(len(side) == len(module.statements) for side, module in zip(sides, (old, new)))
    if not is_unique or shared != others or old.header != new.header:
        return None
    definitions, imports = set[str](), set[str]()
    for mark in sides[0] | sides[1]:
        found = [one for side in sides if (one := side.get(mark)) is not None]
        is_named = found[0].role in _WITH_BODY
        if len(found) == 2 and (not is_named or (found[0].text, found[0].lead) == (found[1].text, found[1].lead)):
            continue
        for one in found:
            if is_named:
                definitions |= one.names_bound
            elif one.role is Role.IMPORT:
                imports |= {name.bound for name in one.imports}
            else:
                return None
    read = {name for one in old.statements if one.role not in (*_WITH_BODY, Role.IMPORT) for name in one.uses}
    return _Difference(frozenset(definitions), frozenset(imports)) if read.isdisjoint(definitions | imports) else None


def _mark(statement: Statement) -> tuple[object, ...]:
    """What makes statements of two texts the same one. Blank lines between imports are the formatter's."""
    if statement.role in _WITH_BODY:
        return statement.role, statement.names_bound
    return statement.role, statement.lead if statement.lead.strip() else "", statement.text


def _is_concerned(heir: _Heir, old: Module, new: Module, changed: _Difference) -> bool:
    """Whether an heir reads something of what differs in a neighbour."""
    model = caseless(os.path.basename(os.path.dirname(old.path)))
    defined = old.definitions.keys() | new.definitions.keys()
    starts = {name for name in defined if name in heir.words or _is_copied(name, model, heir)}
    words = {*heir.words}

    def needed(name: str) -> Iterator[str]:
        for module in (old, new) if name != "__all__" else ():
            if (statement := module.definitions.get(name)) is None:
                continue
            found = {*_WORD.findall(statement.text), *module.registered.get(name, ())}
            words.update(found)
            for one in found & defined:
                if one in starts or heir.model + caseless(one).replace(model, "", 1) not in heir.own:
                    yield one

    return not (changed.definitions.isdisjoint(reached(starts, needed)) and changed.imports.isdisjoint(words))


def _is_copied(name: str, model: str, heir: _Heir) -> bool:
    """Whether a definition of a neighbour may stand in a generated file of the heir, with whatever prefix."""
    found = _LAST_WORD.search(name)
    last = caseless(found[0]) if found is not None else ""
    return model in last or any(one.endswith(last) for one in heir.copied)
