"""What names mean in the files of a tree, as values: classes, functions, constants, and things of other packages; and the names
that a body sees.
"""

from __future__ import annotations

import ast
import builtins
import functools
import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from modular_converter.breaking.values import (
    Ancestors,
    ClassValue,
    Expression,
    External,
    FunctionValue,
    ObjectValue,
    Value,
)
from modular_converter.convert.source.library import Library, Observations
from modular_converter.model.bindings import FUNCTIONS
from modular_converter.model.class_blocks import class_node
from modular_converter.model.module import ImportedName, Role, Statement
from modular_converter.model.nodes import dotted, named_values, parse, top_line, walk, written
from modular_converter.model.resolver import Definition, Resolver


AUTOMATIC = "Auto"
"""The beginning of the names of automatic classes."""
EXCHANGED = frozenset({"__init__", "__new__", "__setattr__", "__class__", "__bases__", "register_buffer"})
"""The attributes of a class that decide what its objects hold."""
T = TypeVar("T")
Assigned = tuple[str, ast.expr, int]
"""An assignment at the top level: its file, the expression, and the line above the statement."""


class Names:
    """The meanings of names at the top level of the files of a tree. Each is found once, for all models; the files that
    it follows from count as read whenever it is asked for.
    """

    def __init__(self, library: Library, models: str) -> None:
        """`models` is the folder of models."""
        self.library = library
        self._package = os.path.join(os.path.dirname(models), "")
        self._automatic_files = [
            os.path.join(models, "auto", f"{kind}_auto.py") for kind in ("modeling", "configuration")
        ]
        self.followed: set[str] = set()
        """The names of the functions whose bodies were followed."""
        self._parsed: dict[Definition, Value | Assigned | None] = {}
        self._known: dict[tuple[object, ...], tuple[Any, Mapping[str, str]]] = {}

    def remembered(self, make: Callable[..., T], *key: object) -> T:
        """`make(*key)`, which is called once; the files that it reads are noted each time."""
        whole = make.__name__, *key
        outer = self.library.observations
        if whole not in self._known:
            self._known[whole] = None, {}  # for names that need each other
            self.library.observations = own = Observations()
            try:
                self._known[whole] = make(*key), own.files
            except BaseException:
                del self._known[whole]
                raise
            finally:
                self.library.observations = outer
        found, reads = self._known[whole]
        outer.files.update(reads)
        return found  # type: ignore[no-any-return]

    def meaning(self, path: str, name: str) -> Value | Assigned | None:
        """What a name at the top level of a file means; None where nothing tells it."""
        return self.remembered(self._find, path, name)

    def class_named(self, path: str, name: str) -> ClassValue | None:
        """The class that a name means in a file."""
        found = self.meaning(path, name)
        return found if isinstance(found, ClassValue) else None

    def _find(self, path: str, name: str) -> Value | Assigned | None:
        module = self.library.module_if_readable(path)
        if module is None:
            return None
        imported = None if module.is_made(name) else module.imported.get(name)
        if imported is not None and (known := self._of_import(path, imported)) is not None:
            return known
        found = Resolver(self.library).name_in(path, name)  # one that knows nothing: all its reads are noted
        if found is None:
            return External(f"builtins.{name}") if hasattr(builtins, name) else None
        if not found.path.startswith(self._package) and name in module.definitions:  # `LayerNorm = nn.LayerNorm`
            return _value_of(path, name, module.definitions[name])
        return self._defined(found)

    def imported(self, path: str, module: str, name: str) -> Value | Assigned | None:
        """What `from module import name` in the body of a function means."""
        return self.remembered(self._behind, path, ImportedName(module, name))

    def _behind(self, path: str, imported: ImportedName) -> Value | Assigned | None:
        if (known := self._of_import(path, imported)) is not None:
            return known
        found = Resolver(self.library).definition(imported.module, imported.name, os.path.dirname(path))
        return self._defined(found) if found is not None else None

    def _of_import(self, path: str, imported: ImportedName) -> Value | Assigned | None:
        """What is imported from another package, or an automatic class, which the package hands on with all models."""
        if not self.library.resolver.is_own(imported.module, os.path.dirname(path)):
            return External(external_name(imported))
        for one in self._automatic_files if imported.name.startswith(AUTOMATIC) else ():
            if self.library.exists(one) and imported.name in self.library.module(one).definitions:
                return self._defined(Definition(one, imported.name))
        return None

    def _defined(self, found: Definition) -> Value | Assigned | None:
        if found.name is None:
            return External(f"file:{found.path}")
        module = self.library.module(found.path)
        statement = module.definitions.get(found.name)
        if statement is None:
            imported = module.imported.get(found.name)
            return External(external_name(imported)) if imported is not None else None
        if found not in self._parsed:
            calls = (one for one in module.statements if one.role is Role.OTHER and one.line > statement.line)
            behind = "\n".join(one.text for one in calls if found.name in one.uses)
            self._parsed[found] = _value_of(found.path, found.name, statement, behind)
        return self._parsed[found]

    def ancestors(self, cls: ClassValue) -> Ancestors:
        """A class and its bases, in the order in which Python looks methods up."""
        return self.remembered(self._order, cls) or Ancestors((cls,))  # for classes that are bases of each other

    def exchanges(self, function: FunctionValue) -> bool:
        """Whether a function that gets a class may give back another one, or with another `__init__`, as far as its text and
        those of the functions that it gives things to tell.
        """
        return bool(self.remembered(self._exchanges, function))  # nothing new of those that call each other

    def leaves_classes(self, path: str, name: str) -> bool:
        """Whether each of the functions that a name may mean on some condition leaves the classes that it gets as they are."""
        return self.remembered(self._leaves_classes, path, name)

    def _leaves_classes(self, path: str, name: str) -> bool:
        found = Resolver(self.library).name_in(path, name)
        return found is not None and self.remembered(self._leaves_all, found)

    def _leaves_all(self, found: Definition) -> bool:
        statement = self.library.module(found.path).definitions.get(found.name or "")
        if statement is None:
            return False
        nodes = [
            one for one in walk(*_parsed(statement.text)) if isinstance(one, FUNCTIONS) and one.name == found.name
        ]
        return bool(nodes) and not any(self.exchanges(FunctionValue(found.path, one, 0)) for one in nodes)

    def _exchanges(self, function: FunctionValue) -> bool:
        for node in walk(function.node):  # type: ignore[arg-type]
            if isinstance(node, ast.ClassDef):
                return True
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in EXCHANGED:
                return True
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                word = node.args[1] if node.func.id == "setattr" and len(node.args) > 2 else None
                if word is not None and not (isinstance(word, ast.Constant) and word.value not in EXCHANGED):
                    return True
                if node.func.id == "type" and len(node.args) > 2:
                    return True
                called = self.meaning(function.path, node.func.id)
                if isinstance(called, FunctionValue) and self.exchanges(called):
                    return True
        return False

    def _order(self, cls: ClassValue) -> Ancestors:
        bases = [found for base in cls.bases if (found := self._base(cls.path, base)) is not None]
        orders: list[list[ClassValue | External]] = [
            list(self.ancestors(one)) if isinstance(one, ClassValue) else [one] for one in bases
        ]
        return Ancestors((cls, *_merged([*orders, list(bases)])))

    def _base(self, path: str, base: str) -> ClassValue | External | None:
        first, _, rest = base.partition("[")[0].strip().partition(".")
        found = self.meaning(path, first) if first else None
        if isinstance(found, External):
            return External(f"{found.name}.{rest}" if rest else found.name)
        return found if isinstance(found, ClassValue) and not rest else None


def external_name(imported: ImportedName) -> str:
    """The dotted name of what an import binds."""
    if imported.name:
        return f"{imported.module}.{imported.name}"
    return imported.module if imported.asname else imported.bound


def _value_of(path: str, name: str, statement: Statement, behind: str = "") -> Value | Assigned | None:
    above = statement.line - 1
    if statement.role is Role.CLASS and not statement.joined:
        return ClassValue(path, name, statement.line, statement.text, statement.bases, behind)
    body = _parsed(statement.text)
    for node in body if statement.role is Role.ASSIGNMENT else walk(*body):
        if isinstance(node, ast.ClassDef) and node.name == name:
            first = top_line(node)
            lines = statement.text.split("\n")[first - 1 : node.end_lineno]
            below = (one for one in body if one.lineno > node.lineno)
            behind = "\n".join([*map(ast.unparse, below), behind])
            source = textwrap.dedent("\n".join(lines))
            return ClassValue(path, name, above + first, source, tuple(map(written, node.bases)), behind)
        if isinstance(node, FUNCTIONS) and node.name == name:
            return FunctionValue(path, node, above)
        if (value := dict(named_values([node])).get(name)) is not None:
            return path, value, above
    return Expression(name)


@functools.lru_cache(maxsize=2048)
def _parsed(text: str) -> list[ast.stmt]:
    """The statements of a text, which both trees mostly have."""
    return parse(text).body


@functools.lru_cache(maxsize=2048)
def given_to_heirs(source: str) -> Mapping[str, str]:
    """The attributes that the `__init_subclass__` of a class, given as text, sets in heirs, with the text of that method."""
    found: dict[str, str] = {}
    body = class_node(source).body if "__init_subclass__" in source else ()
    for node in (one for one in body if isinstance(one, FUNCTIONS) and one.name == "__init_subclass__"):
        for one in walk(node):
            if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
                found[one.attr] = ast.unparse(node)
            elif isinstance(one, ast.Call) and dotted(one.func) == "setattr":
                names = (word.value for word in one.args[1:2] if isinstance(word, ast.Constant))
                found.update((name, ast.unparse(node)) for name in names if isinstance(name, str))
    return found


def _merged(orders: list[list[ClassValue | External]]) -> list[ClassValue | External]:
    """The linear order of several orders (C3); where there is none, a base stands where it comes first."""
    found: list[ClassValue | External] = []
    rest = [[*order] for order in orders if order]
    while rest:
        heads = [order[0] for order in rest]
        behind = [other for order in rest for other in order[1:]]
        free = next((one for one in heads if not any(_same(one, other) for other in behind)), heads[0])
        found.append(free)
        rest = [kept for order in rest if (kept := [one for one in order if not _same(one, free)])]
    return found


def _same(one: ClassValue | External, other: ClassValue | External) -> bool:
    if isinstance(one, External) and isinstance(other, External):
        return one.name == other.name
    return one is other


@dataclass
class Frame:
    """The names that a body sees."""

    path: str
    above: int
    """The line of the file above the text that the body was parsed from."""
    names: dict[str, Value] = field(default_factory=dict)
    instance: ObjectValue | None = None
    owner: ClassValue | None = None
    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] = field(default_factory=list)
    has_left: bool | None = False
    """Whether the loop that is followed has ended with `break`; None where that is not known."""
