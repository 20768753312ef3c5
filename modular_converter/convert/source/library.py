"""The only reader of files: source texts, their index, and where modules lie. Nothing is imported or executed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import warnings
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass, field

from modular_converter.convert.conversion import EXISTS, UNREADABLE, Part
from modular_converter.convert.source.index import index_module
from modular_converter.convert.source.module import Module
from modular_converter.convert.source.names import ModelNames, read_model_names
from modular_converter.convert.source.observed import part_of, shape_of, watch
from modular_converter.diagnostics import ConversionError, Location, locate_parse_error
from modular_converter.files import packages
from modular_converter.files.links import refuse_link_out
from modular_converter.rules import missing_file, not_utf8, syntax_error, too_large
from modular_converter.settings.values import Settings


@dataclass
class Library:
    """What a run has read, and, over the disk, what it has regenerated.

    `overlay` maps absolute paths to the texts that this run gives them; they are seen in place of the files.
    """

    settings: Settings
    overlay: MutableMapping[str, str] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _modules: dict[str, Module] = field(default_factory=dict)
    _names: dict[str, ModelNames] = field(default_factory=dict)
    _reads: dict[str, str] = field(default_factory=dict)
    _packages: dict[str, str] = field(default_factory=dict)
    _hashes: dict[str, str] = field(default_factory=dict)
    _whole: set[str] = field(default_factory=set)
    _opened: set[str] = field(default_factory=set)
    _seen: dict[str, set[int]] = field(default_factory=dict)
    _shapes: dict[str, str] = field(default_factory=dict)
    _working_on: str = ""

    @property
    def working_on(self) -> str:
        """The class that is being worked on, for the report of an internal error."""
        return self._working_on

    def note(self, name: str) -> None:
        """Say which class is being worked on."""
        self._working_on = name

    def start(self) -> None:
        """Forget which files were read, so that `reads` tells those of the next conversion alone."""
        for noted in (self._reads, self._packages, self._whole, self._opened):
            noted.clear()
        for seen in self._seen.values():
            seen.clear()
        self._working_on = ""

    @property
    def reads(self) -> dict[str, str]:
        """The files that were asked for since `start`, in order, each with what was seen of it.

        That is the SHA-256 hash of its content, `EXISTS` where nobody asked for that, "" for one that is missing, and
        `UNREADABLE` for one that could not be read.
        """
        return dict(sorted(self._reads.items()))

    @property
    def parts(self) -> dict[str, Part]:
        """Of the files that were opened since `start` as modules only: the parts that were looked at."""
        return {path: self._part(self._modules[path], self._seen[path]) for path in sorted(self._opened - self._whole)}

    @property
    def packages(self) -> dict[str, str]:
        """The packages that were looked for by name since `start`, each with its folder, "" for one not found."""
        return dict(sorted(self._packages.items()))

    def part(self, path: str, statements: Collection[int]) -> Part:
        """What these statements of a module are now. Raises `ConversionError`, `IndexError` where there are none."""
        return self._part(self.module(path), statements)

    def _part(self, module: Module, statements: Collection[int]) -> Part:
        shape = self._shapes.get(module.path)
        if shape is None:
            shape = self._shapes[module.path] = shape_of(module)
        return part_of(module, statements, shape)

    def put(self, texts: Mapping[str, str]) -> None:
        """Lay regenerated files over the disk."""
        for path, text in texts.items():
            self.overlay[path] = text
            self._modules.pop(path, None)
            self._shapes.pop(path, None)
            self._hashes.pop(path, None)

    def exists(self, path: str) -> bool:
        """Whether there is such a file, on disk or in the overlay."""
        found = path in self.overlay or os.path.isfile(path)
        self._reads.setdefault(path, EXISTS if found else "")
        return found

    def package_of(self, folder: str) -> tuple[str, str]:
        """`packages.package_of`, noted in `reads`."""
        return packages.package_of(folder, self.exists)

    def find_package(self, name: str, beside: str) -> str | None:
        """`packages.find_package`, noted in `packages`."""
        found = packages.find_package(name, beside)
        self._packages[name] = found or ""
        return found

    def text(self, path: str) -> str:
        """The text of a file, with `\\n` line ends.

        Raises `ConversionError` for a file that is missing, too large, not UTF-8, or behind a link out of the root.
        """
        self._whole.add(path)
        return self._text(path)

    def _text(self, path: str) -> str:
        self._reads[path] = UNREADABLE
        text = self.overlay.get(path)
        if text is None:
            text = self._texts.get(path)
        if text is None:
            text = self._texts[path] = self._from_disk(path)
        self._reads[path] = self._hash(path)
        return text

    def _hash(self, path: str) -> str:
        """The hash of a file that was read; of one in the overlay, as it will be on disk."""
        if path in self.overlay and path not in self._hashes:
            self._hashes[path] = hashlib.sha256(self.overlay[path].encode("utf-8")).hexdigest()
        return self._hashes.get(path, "")

    def _from_disk(self, path: str) -> str:
        refuse_link_out(path, self.settings)
        try:
            with open(path, "rb", opener=_open_regular) as file:
                content = file.read(self.settings.max_file_bytes + 1)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConversionError(missing_file.diagnose(Location(path), reason=reason)) from None
        if len(content) > self.settings.max_file_bytes:
            raise ConversionError(
                too_large.diagnose(Location(path), os.path.getsize(path), self.settings.max_file_bytes)
            )
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConversionError(
                not_utf8.diagnose(_place(path, content, error.start), content[error.start], error.start)
            ) from None
        self._hashes[path] = hashlib.sha256(content).hexdigest()
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def module(self, path: str) -> Module:
        """The index of a file, read once.

        Raises `ConversionError` for a file that cannot be read or is not Python.
        """
        module = self._modules.get(path)
        if module is None:
            seen: set[int] = set()
            module = self._modules[path] = watch(self._index(path), seen)
            self._seen[path] = seen
        self._opened.add(path)
        self._reads[path] = self._hash(path)
        return module

    def _index(self, path: str) -> Module:
        text = self._text(path)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape in a stranger's string is none of ours
                return index_module(text, path)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            diagnostic = syntax_error.diagnose(*locate_parse_error(path, error))
            raise ConversionError(diagnostic.with_source(text)) from None

    def names(self, models_folder: str) -> ModelNames:
        """The table of model names below a folder of models, read from literals."""
        names = self._names.get(models_folder)
        paths = [os.path.join(models_folder, *table.split("/")) for table in self.settings.auto_tables]
        paths = [path for path in paths if self.exists(path)]
        if names is None:
            sources = [self.text(path) for path in paths]
            names = self._names[models_folder] = read_model_names(
                sources, self.settings.config_table, self.settings.config_suffix
            )
        self._reads.update({path: self._hash(path) for path in paths})
        self._whole.update(paths)
        return names


def _open_regular(path: str, flags: int) -> int:
    """Open a file, but none that might never end: a pipe or a device. Raises `OSError`."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return handle


def _place(path: str, content: bytes, offset: int) -> Location:
    """The line and column of a byte."""
    before = content[:offset].decode("utf-8", "replace")
    return Location(path, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
