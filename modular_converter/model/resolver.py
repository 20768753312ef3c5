"""Where an imported name is defined: the one answer, across files. Modules are read and never imported."""

from __future__ import annotations

import abc
import ast
import builtins
import collections
import enum
import functools
import os
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol

from modular_converter.findings import UNPARSABLE, ConversionError
from modular_converter.model.bindings import bindings_of
from modular_converter.model.class_blocks import class_node, names_in_class
from modular_converter.model.index import index_module
from modular_converter.model.module import ImportedName, Module, Role, Statement, has_unread_names
from modular_converter.model.nodes import dotted, parse


MOST_STEPS = 20
"""The most imports that are followed from file to file; longer chains are of no author."""


MOST_PARTS = 5
"""The most names in an assignment that is looked at as another name for something: `a = b.c.d.e`."""


class Files(Protocol):
    """The files that modules are read from."""

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""

    def text(self, path: str) -> str:
        """The text of a file. Raises `ConversionError`."""

    def module(self, path: str) -> Module:
        """The statements of a file. Raises `ConversionError`."""

    def module_if_readable(self, path: str) -> Module | None:
        """The statements of a file; None for one that cannot be read."""

    def find_package(self, name: str, beside: str) -> str | None:
        """The folder of the package that files in the folder `beside` import as `name`."""


PLAIN_METACLASSES = frozenset({"type", "ABCMeta", "EnumMeta", "EnumType"})
"""The metaclasses for which one class with all members equals two classes that inherit."""
MAKING = frozenset({"__new__", "__init__", "__prepare__", "mro"})
"""The methods of a metaclass that Python calls where it makes a class."""


class Definition(NamedTuple):
    """What a name means: a definition at the top level of a file, or a whole module."""

    path: str
    name: str | None = None
    """None for the module itself."""


class Ancestor(NamedTuple):
    """A base as a module names it, and what that is."""

    name: str
    module: Module
    """The one that names it."""
    home: Module
    """The one that defines it."""
    statement: Statement | None
    """None for what is no class that can be read."""


class Resolver:
    """The modules and definitions behind imports.

    A name is followed through the modules that only import it: by a plain import, by `*`, by an import under a condition
    if it is the only one, and by one for type checkers where nothing else binds the name, as in packages that import
    their modules when they are first used. A name with several definitions, one for each condition, is defined where
    the condition stands.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._exported: dict[str, frozenset[str]] = {}

    def stem(self, module: str, beside: str) -> str | None:
        """The path of a module without `.py`, whether it exists or not; None for an unknown package.

        Args:
            module: dotted, relative or absolute.
            beside: the folder of the file that imports it.
        """
        names = module.lstrip(".")
        parts = names.split(".") if names else []
        if names != module:
            folder = beside
            for _ in range(len(module) - len(names) - 1):
                folder = os.path.dirname(folder)
        else:
            package = self._files.find_package(parts[0], beside)
            if package is None:
                return None
            folder, parts = package, parts[1:]
        return os.path.join(folder, *parts)

    def is_own(self, module: str, beside: str) -> bool:
        """Whether a module belongs to the package that the file which imports it lies in."""
        if module.startswith("."):
            return True
        package = self._files.find_package(module.partition(".")[0], beside)
        return package is not None and os.path.join(beside, "").startswith(os.path.join(package, ""))

    def path(self, module: str, beside: str) -> str | None:
        """The path that the file of a module has if it is no package; None for an unknown package."""
        stem = self.stem(module, beside)
        return None if stem is None else f"{stem}.py"

    def file(self, module: str, beside: str) -> str | None:
        """The file of a module or package that exists."""
        stem = self.stem(module, beside)
        return None if stem is None else self.file_of_stem(stem)

    def file_of_stem(self, stem: str) -> str | None:
        """The file of the module or package at a path without `.py`. A package hides a module, as for Python."""
        candidates = os.path.join(stem, "__init__.py"), f"{stem}.py"
        return next((one for one in candidates if self._files.exists(one)), None)

    def definition(self, module: str, name: str, beside: str) -> Definition | None:
        """What `from module import name` in a file of the folder `beside` means; None if it cannot be found.

        `name` is "" for `import module`.
        """
        stem = self.stem(module, beside)
        if stem is None:
            return None
        path = self.file_of_stem(stem)
        if path is not None:
            return self.name_in(path, name) if name else Definition(path)
        return self._submodule(stem, name) if name else None  # of a folder without `__init__.py`

    def name_in(self, path: str, name: str) -> Definition | None:
        """What a name at the top level of a file means, or `a.b` where `a` is a module.

        None for a name that the file does not have, for a circle, and for attributes of what is no module.
        """
        return self._meaning(path, name, set())

    def lineage(self, name: str, module: Module, mentions: str = "") -> Iterator[Statement | None]:
        """A class that a module names, and its ancestors; None for each that cannot be read, or whose module does not hold
        the text `mentions`. `object` is left out.
        """
        yield from (one.statement for one in self.ancestors(name, module, mentions))

    def makes_otherwise(self, metaclass: str, module: Module) -> bool:
        """Whether a metaclass that a module names may do something where a class is made, which the plain ones do not."""
        above = (one.statement for one in self.ancestors(metaclass, module, but=is_plain_metaclass))
        return any(
            one is None or not MAKING.isdisjoint(bindings_of(*class_node(one.text).body).binds) for one in above
        )

    def may_bind(self, name: str, module: Module, attribute: str) -> bool:
        """Whether a class that a module names, or an ancestor other than `object`, binds an attribute, or cannot be read."""
        for one in self.ancestors(name, module):
            if one.statement is not None:
                known: Container[str] | None = names_in_class(one.statement.text)
            else:
                known = attributes_of_known_class(_foreign_path(one.name, one.module))
            if known is None or attribute in known:
                return True
        return False

    def ancestors(
        self,
        name: str,
        module: Module,
        mentions: str = "",
        but: Callable[[str], bool] = lambda name: False,
        *,
        anywhere: bool = False,
    ) -> Iterator[Ancestor]:
        """A class and its ancestors, each once, whatever circles a file may write. A class that takes the name of its base has
        one that cannot be read.

        Args:
            mentions: see `lineage`.
            but: says by its name of a class whether it is left out as `object` is.
            anywhere: whether those of other packages are read, too.
        """
        waiting: list[tuple[str, Module, Statement | None]] = [(name, module, None)]
        seen = set[tuple[str, str]]()
        while waiting:
            name, module, heir = waiting.pop()
            if name == "object" or but(name):
                continue
            home, statement = self.statement(name, module, mentions, anywhere)
            if statement is None or statement is heir or statement.role is not Role.CLASS:
                yield Ancestor(name, module, home, None)
            elif (home.path, statement.name) not in seen:
                seen.add((home.path, statement.name))
                yield Ancestor(name, module, home, statement)
                waiting += ((base, home, statement) for base in reversed(statement.bases))

    def statement(
        self, name: str, module: Module, mentions: str = "", anywhere: bool = False
    ) -> tuple[Module, Statement | None]:
        """The definition that a module names, with the module that has it; None for what cannot be read. See `lineage`."""
        found = self.name_in(module.path, name) if anywhere or self._may_hold(name, module, mentions) else None
        home = self._files.module(found.path) if found is not None else module
        return home, home.definitions.get(found.name or "") if found is not None else None

    def _may_hold(self, name: str, module: Module, mentions: str) -> bool:
        """Whether a class is looked for: in its own package alone, and there only in files that hold a text.

        Parsing the base of all models takes as long as converting a small one.
        """
        first = name.partition(".")[0]
        imported = module.imported.get(first) if first not in module.definitions else None
        if imported is None:
            return True
        folder = os.path.dirname(module.path)
        if not self.is_own(imported.module, folder):
            return False
        file = self.file(imported.module, folder) if mentions else None
        return file is None or os.path.basename(file) == "__init__.py" or mentions in self._text(file)

    def _meaning(self, path: str, name: str, seen: set[tuple[str, str]]) -> Definition | None:
        first, *rest = name.split(".")
        found = self._follow(path, first, seen)
        for part in rest:
            if found is None or found.name is not None:
                return None
            found = self._follow(found.path, part, seen)
        return found

    def _follow(self, path: str, name: str, seen: set[tuple[str, str]]) -> Definition | None:
        module = self._files.module_if_readable(path)
        if module is None:
            return None
        if (path, name) not in seen and len(seen) <= MOST_STEPS:
            seen.add((path, name))
            if sources := self._sources(name, path, module):
                found = (self._behind_import(one, name, path, seen) for one in sources)
                return next((one for one in found if one is not None), None)
            if alias := aliased(name, module):
                return self._meaning(path, alias, seen) or Definition(path, name)
            if name in module.names or any(name in one.uses and name in _bound(one) for one in module.statements):
                return Definition(path, name)
        folder, file_name = os.path.split(path)
        return self._submodule(folder, name) if file_name == "__init__.py" else None

    def _behind_import(
        self, imported: ImportedName, name: str, path: str, seen: set[tuple[str, str]]
    ) -> Definition | None:
        folder = os.path.dirname(path)
        if not imported.name:
            return self.definition(imported.module if imported.asname else imported.bound, "", folder)
        name = name if imported.name == "*" else imported.name
        file = self.file(imported.module, folder)
        return self.definition(imported.module, name, folder) if file is None else self._follow(file, name, seen)

    def _submodule(self, folder: str, name: str) -> Definition | None:
        path = self.file_of_stem(os.path.join(folder, name))
        return None if path is None else Definition(path)

    def _sources(self, name: str, path: str, module: Module) -> list[ImportedName]:
        """The imports that a name may come from, the most likely first; none for a name that is made in the module, on
        some condition at least.
        """
        if module.is_made(name):
            return []
        plain, guarded, for_checkers = _imports(module)
        named = [one for one in (*plain, *guarded) if one.bound == name] or [
            one for one in for_checkers if one.bound == name
        ]
        if named:
            are_the_same = len({(one.module, one.name) for one in named}) == 1
            return named[-1:] if are_the_same or named[-1] in plain else []
        folder, file_name = os.path.split(path)
        for group in (plain, guarded, for_checkers):
            if group is not plain and file_name == "__init__.py" and self._submodule(folder, name) is not None:
                return []  # what runs is the submodule; the hundreds of models behind such a star need not be read
            stars = [one for one in group if one.name == "*" and name in self._star(one.module, path)]
            if stars:
                return stars[::-1] if len(stars) == 1 or group is plain else []
        return []

    def _star(self, module: str, path: str) -> frozenset[str]:
        """The names that `from module import *` binds in a file."""
        file = self.file(module, os.path.dirname(path))
        return self.exported(file) if file is not None else frozenset()

    def with_named_imports(self, module: Module) -> Module:
        """The module with `from x import *` as an import of those names that its code uses, where the file of `x` is found."""
        if not any(one.name == "*" for statement in module.statements for one in statement.imports):
            return module
        used = frozenset[str]().union(*(one.uses for one in module.statements if not one.imports))
        found: list[Statement] = []
        for statement in reversed(module.statements):  # what is bound below counts
            is_star = [name.name for name in statement.imports] == ["*"]
            found.append(self._named(statement, used, module.path) if is_star else statement)
            used -= {*statement.names_bound, *(name.bound for name in found[-1].imports)}
        return replace(module, statements=tuple(reversed(found)))

    def _named(self, statement: Statement, used: frozenset[str], path: str) -> Statement:
        if statement.role is not Role.IMPORT:
            return statement
        source = statement.imports[0].module
        names = sorted(used & self._star(source, path))
        text = f"from {source} import {', '.join(names)}" if names else statement.text
        found = tuple(ImportedName(source, name) for name in names) or statement.imports
        return replace(statement, imports=found, text=text)

    def exported(self, path: str) -> frozenset[str]:
        """The names that `*` stands for: those of `__all__`, else all public names, also where a list is computed."""
        if path not in self._exported:
            self._exported[path] = frozenset()  # for modules with star imports of each other
            self._exported[path] = frozenset(self._read_exported(path))
        return self._exported[path]

    def _read_exported(self, path: str) -> Iterator[str]:
        text = self._text(path)
        at_end = f"\n{text}".find("\n__all__")
        listed = _listed_at_end(text[at_end:]) if at_end >= 0 else None
        if listed is not None:
            yield from listed
            return
        module = self._files.module_if_readable(path)
        if module is None:
            return
        yield from module.exported
        if lists_all_exports(module):
            return
        names = module.names.union(*map(_bound, module.statements))
        yield from (name for name in names if not name.startswith("_"))
        for statement in module.statements:
            for one in (*statement.imports, *statement.inner_imports):
                if one.name == "*":
                    yield from self._star(one.module, path)

    def _text(self, path: str) -> str:
        try:
            return self._files.text(path)
        except ConversionError:
            return ""


@functools.lru_cache(maxsize=4096)  # each model that asks for a name of the package asks the same 1,500 files
def _listed_at_end(text: str) -> tuple[str, ...] | None:
    """The names of the `__all__` that the last lines of a file begin with; None if they do not list all of them."""
    try:
        module = index_module(text, "")
    except UNPARSABLE:  # such as a line of a docstring
        return None
    return module.exported if lists_all_exports(module) else None


def lists_all_exports(module: Module) -> bool:
    """Whether the `__all__` of a module is a list of strings that no other statement reads or changes."""
    listed = module.definitions.get("__all__")
    others = (one for one in module.statements if one is not listed and "__all__" in one.uses)
    return listed is not None and not has_unread_names(listed.text) and not any(others)


def aliased(name: str, module: Module) -> str | None:
    """What a definition gives another name to: `b.c` of `a = b.c`, where `b` is imported, or bound above it."""
    statement = module.definitions.get(name)
    if statement is None or statement.role is not Role.ASSIGNMENT or len(statement.uses) > MOST_PARTS:
        return None
    node = parse(statement.text).body
    value = node[0].value if len(node) == 1 and isinstance(node[0], (ast.Assign, ast.AnnAssign)) else None
    path = dotted(value) if value is not None else ""
    first = path.partition(".")[0]
    is_above = module.places.get(first, len(module.statements)) < module.places[name]
    return path if path and (is_above or first in module.imported) else None


def _bound(statement: Statement) -> frozenset[str]:
    """The names that a statement binds which is no definition: `one, two = …`, a loop, a function under a condition."""
    return bindings_of(parse(statement.text)).binds if statement.role is Role.OTHER else frozenset()


def _imports(module: Module) -> tuple[list[ImportedName], list[ImportedName], list[ImportedName]]:
    """The imports of a module: without a condition, on one, and for type checkers."""
    groups: tuple[list[ImportedName], list[ImportedName], list[ImportedName]] = ([], [], [])
    for statement in module.statements:
        kind = 0 if statement.role is Role.IMPORT else 2 if "TYPE_CHECKING" in statement.condition else 1
        groups[kind].extend((*statement.imports, *statement.inner_imports))
    return groups


def is_plain_metaclass(name: str) -> bool:
    """Whether a metaclass, by its dotted name, is one of `PLAIN_METACLASSES`."""
    return name.rpartition(".")[2] in PLAIN_METACLASSES


def _foreign_path(name: str, module: Module) -> str:
    """The dotted path of what a module imports under a name: `torch.nn.Module` of `nn.Module`; a built-in name stays."""
    first, _, rest = name.partition(".")
    imported = module.imported.get(first)
    if imported is None:
        return "" if first in module.names else name
    return ".".join(filter(None, (imported.dotted, rest)))


# Of torch 2.13. `forward` is left out: there it only says that the heir has to define it.
_OF_MODULE = """
    T_destination __call__ __delattr__ __dir__ __getattr__ __getstate__ __init__ __repr__ __setattr__
    __setstate__ _apply _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl
    _forward_hooks _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks
    _forward_pre_hooks_with_kwargs _get_backward_hooks _get_backward_pre_hooks _get_name _is_full_backward_hook
    _load_from_state_dict _load_state_dict_post_hooks _load_state_dict_pre_hooks
    _maybe_warn_non_full_backward_hook _modules _named_members _non_persistent_buffers_set _parameters
    _register_load_state_dict_pre_hook _register_state_dict_hook _replicate_for_data_parallel
    _save_to_state_dict _slow_forward _state_dict_hooks _state_dict_pre_hooks _version _wrapped_call_impl
    add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval
    extra_repr float get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules
    mtia named_buffers named_children named_modules named_parameters parameters register_backward_hook
    register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook
    register_module register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_
    set_extra_state set_submodule share_memory state_dict to to_empty train training type xpu zero_grad
"""

_KNOWN = {"torch.nn.Module": frozenset(_OF_MODULE.split()), "typing.Generic": frozenset[str]()}

_STANDARD = {module.__name__: module for module in (abc, builtins, collections, enum)}
"""The modules whose classes are looked at. None of protocols: each name that one binds is asked of what is to conform."""


def attributes_of_known_class(path: str) -> frozenset[str] | None:
    """What a class and its ancestors but `object` bind; None for an unknown one. `path` is dotted, of a built-in class its name."""
    if path == "typing.NamedTuple":
        return frozenset({*dir(collections.namedtuple("_", ""))})
    module, _, name = path.rpartition(".")
    found = getattr(_STANDARD.get(module or "builtins"), name, None)
    if isinstance(found, type):
        return frozenset[str]().union(*(vars(one) for one in found.__mro__ if one is not object))
    return _KNOWN.get(path)
