"""The only reader of files: source texts, their index, where modules lie, and the names of models: cased and lowercase forms,
as their classes write them, else by the package's own table. Nothing is imported or executed.

What one conversion looks at is observed, so that a cache knows when its result still holds. Comments `# modular:
ignore[MC307]` of a modular file silence findings, and never reach a generated file.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from modular_converter.files.read import find_package, read_inside, text_of_content
from modular_converter.findings import (
    EXISTS,
    MISSING,
    UNPARSABLE,
    UNREADABLE,
    ConversionError,
    Location,
    locate_parse_error,
)
from modular_converter.model import lexer
from modular_converter.model.index import IndexValues, index_module, index_of_values, values_of_index
from modular_converter.model.module import Module
from modular_converter.model.nodes import parse
from modular_converter.model.resolver import Resolver
from modular_converter.rules import input_files
from modular_converter.settings.disk import FileTooLarge
from modular_converter.settings.values import Settings, is_modular


_WORD = re.compile(r"[A-Z][^A-Z]*")
"""A piece of a cased name that no table knows: a capital and what follows it."""


@dataclass(frozen=True, eq=False)
class ModelNames:
    """The models of a package by type, both ways: as their own classes write them, else by the package's table, else by
    a cut at each capital.
    """

    by_type: Mapping[str, str] = field(default_factory=dict)
    """Model type (`big_bird`, `blip-2`) -> the model's cased name (`BigBird`, `Blip2`)."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Model -> its cased name in the names of its classes, for models whose files have been read."""

    def cased(self, model: str) -> str:
        """`big_bird` -> `BigBird`. What begins with a model of a written name begins with it: `vlm_text` -> `VLMText`."""
        found = self.written.get(model) or self.by_type.get(model) or self.by_type.get(model.replace("_", "-"))
        if found is not None:
            return found
        begin = max((one for one in self.written if f"{model}_".startswith(f"{one}_")), key=len, default="")
        return self.written.get(begin, "") + "".join(part.title() for part in model[len(begin) :].split("_"))

    @cached_property
    def _by_name(self) -> Mapping[str, str]:
        """Cased name -> the last model type that has it."""
        return {name: model for model, name in (*self.by_type.items(), *self.written.items())}

    def lowercase(self, cased: str) -> str:
        """`BigBird` -> `big_bird`. What begins with a written name begins with that model: `VLMText` -> `vlm_text`."""
        model = self._by_name.get(cased)
        if model is not None:
            return model.replace("-", "_")
        begin = max(
            (one for one in self.written.values() if re.match(f"{re.escape(one)}[A-Z]", cased)), key=len, default=""
        )
        words = [word.lower() for word in _WORD.findall(cased[len(begin) :])]
        return "_".join([self._by_name[begin], *words] if begin else words) or cased.lower()

    def with_written(self, model: str, classes: Iterable[str]) -> ModelNames:
        """The same names with that of a model as its own classes write it: `VLM` for `vlm`, from `class VLMConfig`.

        A table that lists the model or the name is right where renaming, which ignores case, finds the classes by it:
        `MLCDVision` for `mlcd`, `xclip` for `XCLIP`, but not `nemo_speechlm` for `Nemotron3_5Transcribe`.
        """
        cased, listed = written_name(model, classes), self.cased(model)
        if cased is None or cased == listed:
            return self
        is_listed = bool({model, model.replace("_", "-")} & self.by_type.keys()) or cased in self._by_name
        if is_listed and cased.lower() in (model, listed.lower()):
            return self
        found = self._with_written.get((model, cased))
        if found is None:
            found = self._with_written[model, cased] = replace(self, written={**self.written, model: cased})
        return found

    @cached_property
    def _with_written(self) -> dict[tuple[str, str], ModelNames]:
        return {}


def common_suffix(name: str, other: str) -> str:
    """The longest common suffix of two names."""
    return os.path.commonprefix([name[::-1], other[::-1]])[::-1]


def written_name(model: str, classes: Iterable[str]) -> str | None:
    """The name of a model as most of some class names begin: `Glm4v` for `glm4v`; None if none begins with it."""
    found = Counter(begin for name in classes if (begin := _written_at_beginning(model, name)))
    return found.most_common(1)[0][0] if found else None


def in_other_case(name: str, model: str, classes: Iterable[str]) -> tuple[str, ...]:
    """The classes whose names differ from `name` in the case of the model's name, with which they begin, and in nothing
    else: `PaliGemmaModel` for `PaligemmaModel`.
    """
    begin = _written_at_beginning(model, name)
    pattern = re.compile(f"(?i:{re.escape(begin)}){re.escape(name[len(begin) :])}")
    return tuple(one for one in classes if one != name and pattern.fullmatch(one))


def _written_at_beginning(model: str, name: str) -> str:
    """The name of a model as the name of a class begins with it; "" where it does not."""
    match = re.match(f"(?i:{'_?'.join(map(re.escape, model.split('_')))})(?![a-z])", name)
    return match.group() if match else ""


@functools.lru_cache(maxsize=8)
def read_model_names(sources: tuple[tuple[str, str], ...], variable: str, suffix: str) -> ModelNames:
    """The names in the literals that `variable` is built from, in the order of `sources`. Nothing is executed.

    Raises `SyntaxError`, with the file's name, for a text that cannot be read.

    Args:
        sources: path and text of each file.
        variable: a table of model types and configuration classes.
        suffix: the end of the name of a configuration class, behind the model's name.
    """
    table = _read_table(sources, variable)
    if not any(config.endswith(suffix) for config in table.values()):  # the table of another package
        suffix = os.path.commonprefix([config[::-1] for config in table.values()])[::-1]
    return ModelNames({model: config.replace(suffix, "") for model, config in table.items()})


def _read_table(sources: tuple[tuple[str, str], ...], variable: str) -> dict[str, str]:
    table: dict[str, str] = {}
    for path, source in sources:
        if variable not in source:
            continue
        try:
            for node in parse(source, path).body:
                table = _apply(node, variable, table)
        except (ValueError, RecursionError, MemoryError) as error:
            reason = str(error) or type(error).__name__
            raise SyntaxError(reason, (path, 1, 1, None)) from None
    return table


def _apply(node: ast.stmt, variable: str, table: dict[str, str]) -> dict[str, str]:
    match node:
        case ast.Assign(targets=[target], value=value) if ast.unparse(target) == variable:
            return _literal_pairs(value, variable, table)
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "update"), [first, *_])) if name == variable:
            return {**table, **_literal_pairs(first, variable, table)}
    return table


def _literal_pairs(node: ast.expr, variable: str, table: dict[str, str]) -> dict[str, str]:
    """The pairs of strings in `{…}`, `[(k, v), …]`, `dict(…)`, `OrderedDict(…, **other)` or the variable itself."""
    parts: list[ast.expr | tuple[ast.expr, ...]] = []
    match node:
        case ast.Name(name):
            return dict(table) if name == variable else {}
        case ast.Call():
            parts = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg is None)]
        case ast.Dict():
            parts = [value if key is None else (key, value) for key, value in zip(node.keys, node.values)]
        case ast.List() | ast.Tuple():
            parts = [tuple(one.elts) for one in node.elts if isinstance(one, ast.Tuple)]
    pairs: dict[str, str] = {}
    for part in parts:
        match part:
            case (ast.Constant(str(key)), ast.Constant(str(value))):
                pairs[key] = value
            case ast.expr():
                pairs |= _literal_pairs(part, variable, table)
    return pairs


_COMMENT = re.compile(r"#\s*modular:\s*ignore(?![\w-])(?:\[([^\]\n]*)\])?")


class IgnoreComment(NamedTuple):
    """One comment. Line and columns count from 1, the end is exclusive."""

    line: int
    column: int
    end_column: int
    entries: tuple[str, ...]
    """Codes, names and prefixes as written; empty where the comment names none."""


def ignore_comments(text: str) -> tuple[IgnoreComment, ...]:
    """The comments of a text in order. A text that is not Python has none."""
    if not _COMMENT.search(text):
        return ()
    found = []
    for token, line, column in lexer.placed_tokens(text):
        match = _COMMENT.search(text, token.start, token.end) if token.kind == "comment" else None
        if match is not None:
            entries = tuple(entry.strip() for entry in (match[1] or "").split(",") if entry.strip())
            start = token.start - column - 1
            found.append(IgnoreComment(line + 1, match.start() - start, match.end() - start, entries))
    return tuple(found)


def without_ignore_comments(text: str) -> str:
    """The text without these comments; every line keeps its number, and other comments of a line stay."""
    comments = ignore_comments(text)
    if not comments:
        return text
    lines = text.split("\n")
    for comment in comments:
        line = lines[comment.line - 1]
        before, after = line[: comment.column - 1].rstrip(), line[comment.end_column - 1 :].strip()
        if after:
            after = after if after.startswith("#") else f"# {after}"
        lines[comment.line - 1] = f"{before}  {after}" if before and after else before or after
    return "\n".join(lines)


@dataclass
class Observations:
    """The files and packages that one conversion has looked at, and the class that it is working on.

    The library fills this in while the steps read; the steps do not return it. A conversion that ends with an error
    depends on the files read so far, and most files are read deep inside functions that return something else.
    """

    files: dict[str, str] = field(default_factory=dict)
    """File -> its hash, or the word that takes its place (see `Conversion.reads`)."""
    packages: dict[str, str] = field(default_factory=dict)
    """Folder of the file that imports, joined with the name of a package -> its folder, "" where none was found."""
    class_name: str = ""
    """The class that is being worked on, for the report of an internal error."""

    @property
    def reads(self) -> Mapping[str, str]:
        """The files, sorted."""
        return dict(sorted(self.files.items()))


class _KnownNames(NamedTuple):
    """The table of a folder of models; it is asked for thousands of times, so its files are looked for once."""

    names: ModelNames
    paths: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(eq=False)
class Library:
    """The sources that a run has read, and the texts that it has generated in place of files on disk. Each conversion
    reads through a library of its own (`observing`), which notes the files read.
    """

    settings: Settings
    overlay: MutableMapping[str, str] = field(default_factory=dict)
    """Absolute path -> the text that this run reads in place of the file."""
    observations: Observations = field(default_factory=Observations)
    """The notes of this library on the files that it reads."""
    _texts: dict[str, bytes] = field(default_factory=dict)
    """In UTF-8: the one emoji of a banner would make each text four times as large."""
    _modules: dict[str, Module] = field(default_factory=dict)
    _names: dict[str, _KnownNames] = field(default_factory=dict)
    _hashes: dict[str, str] = field(default_factory=dict)
    _line_ends: dict[str, str] = field(default_factory=dict)
    _packages: dict[str, str | None] = field(default_factory=dict)
    """Folder of the importing file, joined with the name of a package -> the folder of the package."""
    errors_only: bool = False
    """Whether whoever asks for conversions wants no warnings of rules, which then are not searched for."""

    def observing(self, observations: Observations) -> Library:
        """A library that shares everything read so far, and from now on notes the files read in `observations`."""
        return replace(self, observations=observations)

    def under(self, overlay: MutableMapping[str, str]) -> Library:
        """A library of its own with these texts in place of others, which need not read again what this one has read."""
        texts, modules, names, hashes = dict(self._texts), dict(self._modules), dict(self._names), dict(self._hashes)
        new = Library(self.settings, overlay, Observations(), texts, modules, names, hashes, dict(self._line_ends))
        new._forget((*self.overlay, *overlay))
        return new

    def note(self, name: str) -> None:
        """Note the class that is being worked on."""
        self.observations.class_name = name

    def put(self, texts: Mapping[str, str]) -> None:
        """Lay generated texts over the files on disk."""
        for path, text in texts.items():
            self.overlay[path] = text
            self._modules.pop(path, None)
            self._hashes.pop(path, None)

    def take_back(self, paths: Collection[str]) -> None:
        """Remove texts that were laid over: the files on disk count again."""
        for path in paths:
            self.overlay.pop(path, None)
        self._forget(paths)

    def _forget(self, paths: Iterable[str]) -> None:
        for path in paths:
            for known in (self._texts, self._modules, self._hashes):
                known.pop(path, None)

    def exists(self, path: str) -> bool:
        """Whether there is such a file, on disk or in the overlay."""
        found = path in self.overlay or os.path.isfile(path)
        self.observations.files.setdefault(path, EXISTS if found else MISSING)
        return found

    def find_package(self, name: str, beside: str) -> str | None:
        """`files.read.find_package`; the answer is noted."""
        asked = os.path.join(beside, name)
        if asked not in self._packages:
            self._packages[asked] = find_package(
                name, beside, lambda path: path in self.overlay or os.path.isfile(path)
            )
        self.observations.packages[asked] = self._packages[asked] or ""
        return self._packages[asked]

    @functools.cached_property
    def resolver(self) -> Resolver:
        """The modules and definitions behind imports, as the run sees them; the files that it reads are noted."""
        return Resolver(self)

    def text_if_readable(self, path: str) -> str | None:
        """The text of a file as the run sees it; None for one that is missing or cannot be read."""
        try:
            return self.text(path) if self.exists(path) else None
        except ConversionError:
            return None

    def text(self, path: str) -> str:
        """The text of a file, with `\\n` line ends.

        Raises `ConversionError` for a file that is missing, too large, not UTF-8, or behind a link out of the root.
        """
        self.observations.files[path] = UNREADABLE
        text = self.overlay.get(path)
        if text is not None:
            text = text.replace("\r\n", "\n")
        elif path in self._texts:
            text = self._texts[path].decode("utf-8")
        else:
            text = self._from_disk(path)
            self._texts[path] = text.encode("utf-8")
        self.observations.files[path] = self.hash(path)
        return text

    def hash(self, path: str) -> str:
        """The hash of a file that was read; for a text of the overlay, the hash that the file will have on disk."""
        if path in self.overlay and path not in self._hashes:
            self._hashes[path] = hashlib.sha256(self.overlay[path].encode("utf-8")).hexdigest()
        return self._hashes.get(path, "")

    def _from_disk(self, path: str) -> str:
        try:
            content = read_inside(path, self.settings)
        except FileTooLarge as error:
            limit = self.settings.max_file_bytes
            raise ConversionError(input_files.too_large(Location(path), error.size, limit)) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConversionError(input_files.missing_file(Location(path), reason=reason)) from None
        text = text_of_content(path, content)
        self._hashes[path] = hashlib.sha256(content).hexdigest()
        self._line_ends[path] = _line_end(content[:4096].decode("utf-8", "replace"))
        return text

    def line_end(self, path: str) -> str:
        """How the first line of a file ends: `\\n`, or `\\r\\n` as on Windows."""
        if path in self.overlay:
            return _line_end(self.overlay[path])
        self.text(path)
        return self._line_ends[path]

    def module(self, path: str) -> Module:
        """The index of a file, read once.

        Raises `ConversionError` for a file that cannot be read or is not Python.
        """
        module = self._modules.get(path)
        if module is None:
            module = self._modules[path] = self._index(path)
        self.observations.files[path] = self.hash(path)
        return module

    def module_if_readable(self, path: str) -> Module | None:
        """The index of a file; None for one that is missing, cannot be read or is not Python."""
        try:
            return self.module(path)
        except ConversionError:
            return None

    def _index(self, path: str) -> Module:
        text = self.text(path)
        content = text.encode("utf-8")
        try:
            return _index_of(content, path, is_modular(path, self.settings))
        except UNPARSABLE as error:
            finding = input_files.syntax_error(*locate_parse_error(path, error))
            raise ConversionError(finding.with_source(text)) from None

    def names(self, models_folder: str) -> ModelNames:
        """The table of model names below a folder of models, read from literals.

        Raises `ConversionError` for a file of the table that cannot be read or is not Python.
        """
        known = self._names.get(models_folder)
        if known is None:
            known = self._names[models_folder] = self._read_names(models_folder)
        for path in known.missing:
            self.observations.files.setdefault(path, MISSING)
        self.observations.files.update({path: self.hash(path) for path in known.paths})
        return known.names

    def _read_names(self, models_folder: str) -> _KnownNames:
        tables = [os.path.join(models_folder, *table.split("/")) for table in self.settings.auto_tables]
        paths = tuple(path for path in tables if self.exists(path))
        sources = tuple((path, self.text(path)) for path in paths)
        try:
            names = read_model_names(sources, self.settings.config_table, self.settings.config_suffix)
        except SyntaxError as error:
            path = str(error.filename)
            finding = input_files.syntax_error(*locate_parse_error(path, error))
            raise ConversionError(finding.with_source(self.text(path))) from None
        return _KnownNames(names, paths, tuple(path for path in tables if path not in paths))


def _line_end(text: str) -> str:
    return "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"


@functools.lru_cache(maxsize=1024)
def _index_of(content: bytes, path: str, has_ignores: bool) -> Module:
    """The index of a text. It depends on the text alone, so `--watch` reads the tree again without parsing it again."""
    return replace(_statements_of(content, has_ignores), path=path)


@functools.lru_cache(maxsize=1024)
def _statements_of(content: bytes, has_ignores: bool) -> Module:
    """The same for whatever path: two trees that are compared have most texts in both."""
    text = content.decode("utf-8")
    text = without_ignore_comments(text) if has_ignores else text
    if KNOWN.indexes is None:
        return index_module(text, "")
    key = hashlib.sha256(content).hexdigest() + "m" * has_ignores
    with suppress(ValueError, TypeError, LookupError):  # of none, too
        return index_of_values(KNOWN.indexes[key], text)
    module = index_module(text, "")
    KNOWN.indexes[key] = KNOWN.made[key] = values_of_index(module, text)
    return module


class _Known:
    """What this process knows of texts from earlier runs: the indexes as values by a key of the text; None for runs that keep
    none.
    """

    def __init__(self) -> None:
        self.indexes: dict[str, IndexValues] | None = None
        self.made: dict[str, IndexValues] = {}
        """Those that are new."""

    def take_made(self) -> dict[str, IndexValues]:
        """The new ones since the last call."""
        made, self.made = self.made, {}
        return made


KNOWN = _Known()
