"""The index of a library: every definition of its flat files by the hashes of its parts, cached by content, and the
models that each model comes from, as comments on copies, imports and modular files tell. And normal forms of a text, by which equal definitions are found despite other line breaks
and names of models.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from modular_converter.check.cache.key import tool_stamp
from modular_converter.check.cache.store import cache_folder, digest, keep_values, read_values
from modular_converter.convert.batch import without_collector
from modular_converter.convert.schedule import reached, required_files
from modular_converter.convert.source.library import Library, ModelNames
from modular_converter.convert.source.rename import Renamer
from modular_converter.model import lexer
from modular_converter.model.class_blocks import class_node
from modular_converter.model.index import first_line, is_docstring
from modular_converter.model.module import Module, Role
from modular_converter.settings.values import Settings, folders_of_models, is_modular, split_stem


PLACEHOLDER = "zz_model"
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_LAYOUT = re.compile(r"[\s(),;]+")
ORIGIN = re.compile(r"^#.*\bfrom (?:[\w.]+\.)?models(?:\.\w+){2,}.*\n", re.MULTILINE)
"""A comment such as `# Adapted from transformers.models.clip.modeling_clip.CLIPMLP`. A merge keeps the parent's."""
_LAST_WORD = re.compile(r"[A-Z][a-z0-9]*$")


@functools.lru_cache(maxsize=4096)  # a definition, and each of its parts, is compared with many
def normal(text: str) -> str:
    """The text without the parts that a formatter decides: white space, parentheses, commas, semicolons. Blank lines
    stay as marks. Two texts of the same form may still differ, so that a conversion has to decide.
    """
    return _LAYOUT.sub("", _BLANK_LINES.sub("¶", text.strip()))


def squeezed(text: str) -> str:
    """The text without white space, parentheses, commas and semicolons."""
    return _LAYOUT.sub("", text)


class Abstraction:
    """Replaces the names of a model in its texts, so that definitions of different models can be compared."""

    def __init__(self, module: Module, model: str, names: ModelNames) -> None:
        classes = {name for name, one in module.definitions.items() if one.role is Role.CLASS}
        classes |= {name.bound for name in module.imported.values() if re.match(r"\.\w", name.module)}
        self._renamer = Renamer.between_models(names.with_written(model, module.classes), model, PLACEHOLDER)
        self._classes = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(classes)))})\b") if classes else None

    def abstract(self, text: str) -> str:
        """The text, line by line, without comments, and with the last word of its name for a class of the model."""
        text = lexer.replace_spans(text, ((*one[1:3], "") for one in lexer.tokens(text) if one.kind == "comment"))
        if self._classes is not None:
            text = self._classes.sub(lambda match: f"@{last_word(match[0])}", text)
        return self._renamer.between(text, 0, len(text))


def last_word(name: str) -> str:
    """`Embedding` of `GemmaRotaryEmbedding`, `P` of `GemmaMLP` and `ViTMLP`: a class name from its last capital on, which
    mostly tells the kind of module.
    """
    match = _LAST_WORD.search(name)
    return match[0] if match else name


def texts_of(module: Module, is_generated: bool = True) -> dict[str, str]:
    """Definition -> its text with the comments above it; in a file written by hand without those on its origin."""
    return {
        name: f"{(one.lead if is_generated else ORIGIN.sub('', one.lead)).strip()}\n{one.text}".strip()
        for name, one in module.definitions.items()
        if name != "__all__"
    }


MOST_OWNERS = 1500
"""A part with more definitions than this is too common to show where a definition may come from."""


@dataclass(frozen=True)
class IndexEntry:
    """A definition of the library."""

    path: str
    """Absolute path of its file."""
    kind: str
    name: str
    model: str
    role: str
    lines: int


@dataclass(frozen=True)
class LibraryIndex:
    """All definitions of a library, and the files that each modular file needs."""

    entries: Sequence[IndexEntry]
    needs: Mapping[str, frozenset[str]]
    """Modular file -> the files that it takes definitions from."""
    years: Mapping[str, int]
    """File -> the year of its copyright notice; models of the same code are told apart by age."""
    by_part: Mapping[int, Sequence[int]] = field(repr=False, default_factory=dict)
    """Hash of a part or of a whole -> places in `entries`."""
    ancestors: Mapping[str, frozenset[str]] = field(repr=False, default_factory=dict)
    """Folder of a model -> the folders of the models that it comes from, as its comments, imports and modular file say."""
    any_age: bool = False
    """Whether a model may inherit from younger models, and from those that come from it."""

    def places(self, part: int) -> Sequence[int]:
        """The places in `entries` of the definitions with a part; none for a very common part."""
        found = self.by_part.get(part, ())
        return found if len(found) <= MOST_OWNERS else ()

    def with_modular(self, path: str, files: Iterable[str]) -> LibraryIndex:
        """The index with one more modular file and the files that it takes from, so that no circle arises."""
        return replace(self, needs={**self.needs, path: frozenset(files)})

    @cached_property
    def popularity(self) -> Mapping[str, int]:
        """File -> the number of modular files that take from it."""
        return Counter(path for files in self.needs.values() for path in files)


def hash_of(form: str) -> int:
    """A hash of 48 bits, which JSON holds exactly."""
    return int.from_bytes(hashlib.blake2b(form.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big")


@without_collector()
def read_index(models: str, library: Library, cached: bool = True) -> LibraryIndex:
    """Index the flat files below a folder of models. Files that the cache knows by their content are not read again."""
    key = digest(f"authoring {tool_stamp()!r} {models}".encode("utf-8", "surrogatepass"))
    known = read_values(cache_folder(), key) if cached else {}
    names = library.names(models)
    names_key = digest(repr(sorted(names.by_type.items())).encode())[:16]
    found: dict[str, list[Any]] = {}
    paths = list(_files(models, library.settings))
    facts = {}
    for path in paths:
        text = library.text_if_readable(path)
        if text is not None:
            stamp = digest(f"{names_key}{os.path.basename(path)}\n{text}".encode("utf-8", "surrogatepass"))[:32]
            found[stamp] = known.get(stamp) or _facts(path, names, library)
            facts[path] = found[stamp]
    if cached and found.keys() != known.keys():
        keep_values(cache_folder(), key, found)
    return _index(facts, library.settings)


def _files(models: str, settings: Settings) -> Iterable[str]:
    """The flat and modular files in the folders of models, sorted."""
    for folder in folders_of_models(models, settings):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py") and (is_modular(name, settings) or split_stem(name[:-3], settings)):
                yield os.path.join(folder, name)


def _facts(path: str, names: ModelNames, library: Library) -> list[Any]:
    """The part of the index for one file, as JSON values."""
    module = library.module_if_readable(path)
    if module is None:
        return [0, [], []]
    if is_modular(path, library.settings):
        folder = os.path.dirname(path)
        return [0, sorted(os.path.relpath(one, folder) for one in required_files(path, library)), []]
    split = split_stem(os.path.basename(path)[:-3], library.settings)
    assert split is not None
    abstraction = Abstraction(module, split[1], names)
    facts = [facts_of(name, module, abstraction) for name in module.definitions]
    return [year_of(module), facts, models_named(library.text(path))]


class DefinitionFacts(NamedTuple):
    """What the cache keeps of one definition."""

    name: str
    role: str
    lines: int
    whole: int
    """The hash of the whole definition, in the form without names of models."""
    parts: tuple[tuple[int, int], ...]
    """Hash and number of lines of each part: a method, an attribute, a statement of `__init__`."""


def facts_of(name: str, module: Module, abstraction: Abstraction) -> DefinitionFacts:
    statement = module.definitions[name]
    abstract = abstraction.abstract(statement.text)
    forms = forms_of_parts(statement.text, abstract) if statement.role is Role.CLASS else []
    parts = tuple((hash_of(form), lines) for form, lines in forms)
    return DefinitionFacts(
        name, statement.role.value, statement.text.count("\n") + 1, hash_of(squeezed(abstract)), parts
    )


def year_of(module: Module) -> int:
    """The year of the copyright notice; a year in the far future if there is none."""
    found = re.search(r"Copyright\D{0,20}(\d{4})", module.header)
    return int(found[1]) if found else 9999


def _index(facts: Mapping[str, list[Any]], settings: Settings) -> LibraryIndex:
    entries: list[IndexEntry] = []
    needs: dict[str, frozenset[str]] = {}
    years: dict[str, int] = {}
    by_part: dict[int, list[int]] = {}
    named: dict[str, set[str]] = {}
    for path, (year, items, models) in facts.items():
        folder, base = os.path.split(path)
        origins = named.setdefault(os.path.basename(folder), set())
        origins.update(models)
        if is_modular(base, settings):
            needs[path] = frozenset(os.path.normpath(os.path.join(folder, one)) for one in items)
            origins.update(os.path.basename(os.path.dirname(one)) for one in needs[path])
            continue
        years[path] = year
        split = split_stem(base[:-3], settings)
        assert split is not None
        for name, role, lines, whole, parts in items:
            place = len(entries)
            entries.append(IndexEntry(path, split[0], name, split[1], role, lines))
            for part in {whole, *(part for part, _ in parts)}:
                by_part.setdefault(part, []).append(place)
    return LibraryIndex(entries, needs, years, by_part, ancestors(named))


SMALLEST = 12
"""The fewest characters of a part that is characteristic."""


def forms_of_parts(text: str, abstract: str) -> list[tuple[str, int]]:
    """The form and the number of lines of each part of a class; see `places_of_parts`."""
    found: dict[str, int] = {}
    for form, first, last in places_of_parts(text, abstract):
        found.setdefault(form, last - first)
    return list(found.items())


def places_of_parts(text: str, abstract: str) -> Iterator[tuple[str, int, int]]:
    """The form, the first line (from 0) and the line behind each part of a class: members, bodies below a docstring,
    `__init__`'s lines. Parts overlap.

    Args:
        abstract: the same lines without the names of the model.
    """
    try:
        node = class_node(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    lines = abstract.split("\n")
    for first, last in _parts(node, lines):
        form = squeezed("".join(lines[first:last]))
        if len(form) >= SMALLEST:
            yield form, first, last


def _parts(node: ast.ClassDef, lines: list[str]) -> Iterator[tuple[int, int]]:
    """The first line of each part, counted from 0, and the line behind its last."""
    for member in node.body:
        if not is_docstring(member):
            yield first_line(member, lines) - 1, member.end_lineno or member.lineno
        if isinstance(member, ast.FunctionDef) and is_docstring(member.body[0]) and len(member.body) > 1:
            yield member.body[0].end_lineno or 0, member.end_lineno or 0
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            for one in member.body:
                if not is_docstring(one):
                    yield first_line(one, lines) - 1, one.end_lineno or one.lineno


_IN_COMMENT = re.compile(r"^[ \t]*#.*\bfrom (?:[\w.]+\.)?models\.(\w+)\.", re.MULTILINE)
"""`# Copied from transformers.models.bert.modeling_bert.BertLayer`, or `# Adapted from …`."""
_IN_IMPORT = re.compile(r"^[ \t]*from \.\.(?:\.models\.)?(\w+)(?:\.\w+)* import\b", re.MULTILINE)
"""`from ..superpoint import SuperPointConfig`: a model is built on those that it imports."""


def models_named(text: str) -> list[str]:
    """The folders of the models that a file names as the origin of its code, or imports from; sorted."""
    return sorted({*_IN_COMMENT.findall(text), *_IN_IMPORT.findall(text)})


def ancestors(named: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
    """For each model the models that it comes from, directly or not. Models that name each other, directly or not, tell
    nothing about their age.

    Args:
        named: model -> the models that its own files name.
    """
    above = {model: reached(named[model], lambda one: named.get(one, ())) for model in named}
    return {
        model: frozenset(other for other in found if model not in above.get(other, ()))
        for model, found in above.items()
    }
