"""A module as it is read: a list of top-level statements with their text, frozen and free of syntax trees, and the
names that it exports.
"""

from __future__ import annotations

import ast
import enum
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from modular_converter.model import lexer
from modular_converter.model.bindings import bindings_of
from modular_converter.model.nodes import parse, running_parts, walk


_HEADING = re.compile(r"^(?:async\s+def|def|class)\b", re.MULTILINE)


@functools.lru_cache(maxsize=1024)  # the checks ask for the names of one neighbour once for each of its heirs
def exported_names(text: str) -> tuple[str, ...]:
    """The names in `__all__ = […]` and in the statements that extend it; lists may be added, and computed names are
    left out.
    """
    return tuple(str(one.value) for node in parse(text).body for one in exported_constants(node))


def has_unread_names(text: str) -> bool:
    """Whether an `__all__` holds names that `exported_names` cannot read, such as computed ones."""
    return any(one is None for node in parse(text).body for one in _listed(node))


def exported_constants(node: ast.stmt) -> Iterator[ast.Constant]:
    """The names that `__all__ = […]`, `__all__ += […]`, `__all__.extend([…])` or `__all__.append("…")` adds."""
    return (one for one in _listed(node) if one is not None)


def _listed(node: ast.stmt) -> Iterator[ast.Constant | None]:
    """The names that a statement adds to `__all__`; None for each part that cannot be read."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        yield from _strings(node.value) if node.value is not None else ()
        return
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "extend"):
        for argument in [ast.List(call.args)] if call.func.attr == "append" else call.args:
            yield from _strings(argument)
    elif not isinstance(call, ast.Constant):
        yield None


def _strings(node: ast.expr) -> Iterator[ast.Constant | None]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _strings(node.left)
        yield from _strings(node.right)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            yield item if isinstance(item, ast.Constant) and isinstance(item.value, str) else None
    else:
        yield None


class Role(enum.Enum):
    """The kinds of top-level statement that the converter tells apart."""

    IMPORT = "import"
    PROTECTED_IMPORT = "protected import"
    ASSIGNMENT = "assignment"
    FUNCTION = "function"
    CLASS = "class"
    OTHER = "other"


DEFINITIONS = frozenset({Role.ASSIGNMENT, Role.FUNCTION, Role.CLASS})


@dataclass(frozen=True)
class ImportedName:
    """One name that an import statement binds: `from module import name as asname` (`name` is "" for `import module`)."""

    module: str
    """Dotted module with its leading dots, as written."""
    name: str
    asname: str = ""

    @property
    def bound(self) -> str:
        """The name that the statement defines; for `import a.b` this is `a`."""
        return self.asname or self.name or self.module.partition(".")[0]

    @property
    def dotted(self) -> str:
        """The dotted name of what it binds: `torch.nn` for `import torch.nn as nn`, `torch` for `import torch.nn`."""
        if not self.name:
            return self.module if self.asname else self.bound
        return f"{self.module}{'' if self.module.endswith('.') else '.'}{self.name}"

    @property
    def key(self) -> str:
        """The bound name, but `import a` and `import a.b` have different keys: a file may need both."""
        return self.asname or self.name or self.module

    @property
    def is_relative(self) -> bool:
        """Whether the module begins with a dot."""
        return self.module.startswith(".")


@dataclass(frozen=True)
class Statement:
    """One top-level statement of a module, whole: decorators, body, trailing comments."""

    role: Role
    name: str
    """The name that it defines; "" for imports."""
    text: str
    line: int
    """The line, from 1, of its first token, which may be a decorator."""
    lead: str = ""
    """The blank lines and comments above it: whole lines, each with its newline."""
    imports: tuple[ImportedName, ...] = ()
    condition: frozenset[str] = frozenset()
    """For a protected import: the identifiers of its tests."""
    bases: tuple[str, ...] = ()
    """For a class: its bases as written, without subscripts (`Generic` for `Generic[T]`)."""
    binds: frozenset[str] = frozenset()
    """For a block: every name that it binds, or that the definitions joined with it bind."""
    needs: frozenset[str] = frozenset()
    """For a block that imports: the names that it reads when it runs."""
    changes: frozenset[str] = frozenset()
    """For a block: the globals whose objects it changes, as in `TABLE[key] = value`."""
    inner_imports: tuple[ImportedName, ...] = ()
    """For a definition: the imports of the block that it is, among the names that it binds."""
    rebinds_import: bool = False
    """For an assignment: whether it makes the name anew from an import above: `sqrt = checked(sqrt)`."""
    is_store: bool = False
    """For an assignment: whether it only stores into the global `name`, which is bound elsewhere."""
    joined: tuple[tuple[int, int], ...] = ()
    """For a definition with changes joined to it: (line of `text`, from 0, line of the file) at which each change
    begins.
    """
    known_uses: frozenset[str] | None = None
    """The identifiers in `text`, if they are known without searching it."""

    def line_at(self, row: int) -> int:
        """The line of the file at which a line of `text`, from 0, stands."""
        first, line = max([(0, self.line), *(one for one in self.joined if one[0] <= row)])
        return line + row - first

    @property
    def header_line(self) -> int:
        """The line of a definition with its name, below its decorators; of other statements the first."""
        head = re.search(r"^(?:async\s+)?(?:class|def)\s", self.text, re.MULTILINE)
        return self.line + (self.text.count("\n", 0, head.start()) if head else 0)

    @property
    def names_bound(self) -> frozenset[str]:
        """The names that a definition binds."""
        return self.binds | {self.name}

    @cached_property
    def uses(self) -> frozenset[str]:
        """Every identifier in its code."""
        return lexer.identifiers(self.text) if self.known_uses is None else self.known_uses


@dataclass(frozen=True)
class Module:
    """A module as a list of top-level statements."""

    path: str
    header: str
    """The comments and blank lines above the first statement."""
    statements: tuple[Statement, ...]

    @cached_property
    def definitions(self) -> Mapping[str, Statement]:
        """Functions, classes and assignments by name, in order; the last of several with one name."""
        return {
            name: statement
            for statement in self.statements
            if statement.role in DEFINITIONS
            for name in (statement.name, *sorted(statement.binds - {statement.name}))
        }

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The position of the statement that defines each name."""
        positions = {id(statement): position for position, statement in enumerate(self.statements)}
        return {name: positions[id(statement)] for name, statement in self.definitions.items()}

    @property
    def exported(self) -> tuple[str, ...]:
        """The names in its `__all__`."""
        listed = self.definitions.get("__all__")
        return exported_names(listed.text) if listed is not None else ()

    @cached_property
    def registered(self) -> Mapping[str, frozenset[str]]:
        """Definition -> the functions and classes that their decorators enter in it, so that it needs them: `TABLE` ->
        `relu` for `@register` with `TABLE[name] = function` in it, `show` -> `show_int` for `@show.register`.
        """
        found: dict[str, set[str]] = {}
        for name, statement in self.definitions.items():
            for holder in self.registered_in(statement) if statement.text.startswith("@") else ():
                found.setdefault(holder, set()).add(name)
        return {holder: frozenset(names) for holder, names in found.items()}

    def registered_in(self, statement: Statement) -> frozenset[str]:
        """The definitions in which the decorators of a function or class enter it."""
        holders = {name: one for name, one in self.definitions.items() if one.role is not Role.CLASS}
        lines = _HEADING.split(statement.text, maxsplit=1)[0]  # parsing each decorated class would take long
        if holders.keys().isdisjoint(re.findall(r"\w+", lines)):
            return frozenset()
        parts = list(walk(*getattr(parse(statement.text).body[0], "decorator_list", ())))
        found = {one.value.id for one in parts if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)}
        for one in parts:
            if isinstance(one, ast.Name) and one.id in holders and holders[one.id].role is Role.FUNCTION:
                scopes = bindings_of(*parse(holders[one.id].text).body).everywhere
                paths = (path for scope in scopes for path in scope.changed_paths)
                found |= {name for path in paths if (name := path.partition(".")[0]) in holders}
        return frozenset(found & holders.keys() - {statement.name})

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes, in order."""
        return tuple(name for name, one in self.definitions.items() if one.role is Role.CLASS)

    @cached_property
    def imported(self) -> Mapping[str, ImportedName]:
        """The imported names by the name that each binds, protected imports included."""
        found = (name for one in self.statements for name in (*one.imports, *one.inner_imports))
        return {name.bound: name for name in found}

    @cached_property
    def quoted(self) -> frozenset[str]:
        """The strings in its code that are one word."""
        return frozenset[str]().union(*(lexer.QUOTED_WORD.findall(one.text) for one in self.statements))

    def is_made(self, name: str) -> bool:
        """Whether it defines a name in another way than by an import within a block."""
        found = self.definitions.get(name)
        return found is not None and all(one.bound != name for one in found.inner_imports)

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """The names that an import gives to something with another one: `d` for `from a import b as d`."""
        return {bound: one.name for bound, one in self.imported.items() if one.name and one.asname}

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that it defines or imports."""
        return frozenset(self.definitions) | frozenset(self.imported)


POSTPONED = "from __future__ import annotations"


def has_postponed(module: Module) -> bool:
    """Whether a module postpones its annotations."""
    return any(one.module == "__future__" and one.name == "annotations" for one in module.imported.values())


def is_postponed(tree: ast.Module) -> bool:
    """The same for a syntax tree."""
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__")
    return any(alias.name == "annotations" for node in imports for alias in node.names)


def needs_postponed(tree: ast.Module) -> bool:
    """Whether an annotation fails where Python up to 3.13 evaluates it: it reads a name that is bound further down, or for
    type checkers alone, or joins a string with `|`.
    """
    unbound = set(bindings_of(*tree.body).binds)
    for statement in tree.body:
        scope = bindings_of(*running_parts(statement))
        if not unbound.isdisjoint(scope.reads_now - scope.needs):
            return True
        unbound -= scope.binds
    return any(map(_joins_string, walk(tree)))


def _joins_string(node: ast.AST) -> bool:
    annotations = (getattr(node, "annotation", None), getattr(node, "returns", None))
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.BitOr)
        and any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (part.left, part.right))
        for annotation in annotations
        if isinstance(annotation, ast.expr)
        for part in walk(annotation)
    )
