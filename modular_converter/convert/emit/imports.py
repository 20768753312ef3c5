"""The imports of a generated file: each used name once, as the modular file or else a neighbour imports it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from modular_converter.model.bindings import bindings_of
from modular_converter.model.module import ImportedName, Role, Statement
from modular_converter.model.nodes import parse, walk


_QUOTED = re.compile(r"""[:>\[,|(=]\s*(?:"([^"\n]+)"|'([^'\n]+)')""")
"""A string where an annotation may be (`x: "Tensor | None"`); there are false alarms."""
_DEFINES = re.compile(r"^[ \t]+(?:async[ \t]+def|def|class)\b", re.MULTILINE)
_WORD = re.compile(r"\b[^\W\d]\w*")
_TYPE_CALLS = frozenset({"cast", "TypeVar", "NewType"})
_TYPE_SUBSCRIPTS = frozenset(
    {"Optional", "Union", "Callable", "List", "Dict", "Tuple", "Type", "list", "dict", "tuple", "type"}
)


@dataclass(frozen=True)
class ImportSource:
    """The import statements of one module, and how they are written in the generated file."""

    statements: Sequence[Statement]
    rename: Callable[[ImportedName], ImportedName]
    rename_text: Callable[[str], str]
    skips: Callable[[ImportedName], bool]
    """Whether a name is left out: an import from a neighbour, whose definitions are inlined."""


@dataclass(frozen=True)
class OptionalLibraries:
    """The libraries that may be missing, so that a file imports them only after a check."""

    names: tuple[str, ...]
    module: str
    """The module of the check: `...utils`."""
    check: str
    """The function that checks for a library: `is_{library}_available`."""

    def call(self, library: str) -> str:
        """The name of the function that checks for one library."""
        return self.check.replace("{library}", library)

    def checked_in(self, text: str) -> tuple[str, str]:
        """The only library that a protected import checks for, with the imports below the check; two empty texts for an
        import with an `else`, or with a statement of several lines, which cannot be thinned out line by line.
        """
        for library in self.names:
            header = re.match(rf"if {re.escape(self.call(library))}\(\):[ \t]*\n", text)
            block = parse(text).body[0] if header else None
            plain = block.body if isinstance(block, ast.If) and not block.orelse else ()
            if header and plain and all(one.lineno == one.end_lineno for one in plain):
                return library, text[header.end() :]
        return "", ""


@dataclass
class _Gathered:
    """The import statements gathered so far, and the names that they bind."""

    lines: list[str] = field(default_factory=list)
    protected: list[str] = field(default_factory=list)
    optional: dict[str, list[str]] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)


def names_in_annotations(body: str, importable: Collection[str]) -> set[str]:
    """The names that a text uses in annotations that are strings, and in the strings that stand for types elsewhere.

    Args:
        importable: the names that matter; a text is parsed only if one of them occurs in a string.
    """
    used: set[str] = set()
    quoted = {word for match in _QUOTED.finditer(body) for word in _WORD.findall(match[1] or match[2])}
    if not quoted.isdisjoint(importable):
        for node in walk(parse(body)):
            for annotation in _types_at(node):
                texts = (one.value for one in walk(annotation) if isinstance(one, ast.Constant))
                used.update(*(_WORD.findall(one) for one in texts if isinstance(one, str)))
    return used


def _types_at(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions below a node in which a string stands for a type."""
    for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
        if isinstance(annotation, ast.expr):
            yield annotation
    if isinstance(node, ast.Call) and _last_name(node.func) in _TYPE_CALLS:
        yield from (*node.args, *(keyword.value for keyword in node.keywords))
    elif isinstance(node, ast.Subscript) and _last_name(node.value) in _TYPE_SUBSCRIPTS:
        yield node.slice


def _last_name(node: ast.expr) -> str:
    """`cast` of `cast` and of `typing.cast`."""
    return str(getattr(node, "id", getattr(node, "attr", "")))


def render_imports(
    sources: Sequence[ImportSource],
    used: Collection[str],
    defined: Collection[str],
    siblings: Iterable[tuple[str, str]],
    optional: OptionalLibraries | None,
    keep_conditions: bool,
) -> str:
    """The import statements of a file, ordinary ones first, then protected ones.

    Args:
        sources: the modular file, then the neighbours; of imports that bind one name the first counts.
        used: the names that the file uses.
        defined: the names that it defines.
        siblings: `(module, name)` of the classes that it takes from other files of its model.
        optional: the libraries that this kind of file must work without, if any.
        keep_conditions: keep the names in the tests of all protected imports, also of those that are left out. Ruff
            removes these names again; published files show that an import which was too long with them stays broken.
    """
    wanted = set(used) - set(defined)
    for source in sources:
        for statement in source.statements:
            if statement.role is not Role.PROTECTED_IMPORT:
                continue
            if any(source.rename(name).bound in wanted for name in statement.imports):
                wanted |= statement.condition | _read_in_substitutes(statement)
            elif keep_conditions:
                wanted |= statement.condition
    gathered = _Gathered(optional={library: [] for library in optional.names} if optional else {})
    siblings = [one for one in siblings if not _is_protected(*one, sources)]
    behind = [f"from {module} import {name}" for module, name in siblings]
    gathered.bound.update(name for _, name in siblings)
    for source in sources:
        for statement in source.statements:
            if statement.role is Role.IMPORT:
                _gather(statement, source, wanted, gathered)
            elif statement.role is Role.PROTECTED_IMPORT:
                _gather_protected(statement, source, wanted, gathered, optional)
    return _render(gathered, behind, sources[0], optional)


def _read_in_substitutes(statement: Statement) -> frozenset[str]:
    """The names that functions and classes in place of the imports of a block read (`else: def fast(): raise Missing`)."""
    if not _DEFINES.search(statement.text):
        return frozenset()
    found = bindings_of(*parse(statement.text).body)
    return found.reads_now | found.reads_later


def _is_protected(module: str, name: str, sources: Sequence[ImportSource]) -> bool:
    """Whether a protected import takes a name from a module already."""
    return any(
        (renamed := source.rename(imported)).module == module and renamed.bound == name
        for source in sources
        for statement in source.statements
        if statement.role is Role.PROTECTED_IMPORT
        for imported in statement.imports
    )


def _gather(statement: Statement, source: ImportSource, wanted: Collection[str], gathered: _Gathered) -> None:
    kept: list[ImportedName] = []
    for name in statement.imports:
        if source.skips(name) or name.module == "__future__":
            continue
        renamed = source.rename(name)
        # `import a.b` is needless where `a` is imported already and `b` is not named.
        is_submodule = not renamed.name and not renamed.asname and "." in renamed.module
        if is_submodule and renamed.bound in gathered.bound and not set(renamed.module.split(".")).issubset(wanted):
            continue
        is_star = renamed.name == "*" and not renamed.is_relative  # of another library: nobody knows what it binds
        key = f"{renamed.module}.*" if is_star else renamed.key
        if (is_star or renamed.bound in wanted) and key not in gathered.bound:
            gathered.bound.add(key)
            kept.append(renamed)
    lead = statement.lead
    for line in _import_lines(kept):
        library = kept[0].module.partition(".")[0]
        if library in gathered.optional:
            gathered.optional[library].append(line)
        else:
            gathered.lines.append(lead + line)
            lead = ""


def _import_lines(names: Sequence[ImportedName]) -> list[str]:
    """The statements that bind these names: at most one for each module, since all come from one statement."""
    by_module: dict[str, list[str]] = {}
    for name in names:
        alias = f" as {name.asname}" if name.asname else ""
        by_module.setdefault(name.module, []).append(f"{name.name or name.module}{alias}")
    if names and not names[0].name:
        return ["import " + ", ".join(text for texts in by_module.values() for text in texts)]
    return [f"from {module} import {', '.join(texts)}" for module, texts in by_module.items()]


def _gather_protected(
    statement: Statement,
    source: ImportSource,
    wanted: Collection[str],
    gathered: _Gathered,
    optional: OptionalLibraries | None,
) -> None:
    names = [source.rename(name) for name in statement.imports if not source.skips(name)]
    copied = {source.rename(name).bound for name in statement.imports if source.skips(name)}
    text = _without_unwanted(source.rename_text(statement.text), wanted, gathered.bound | copied, copied)
    if not text or not any(name.bound in wanted and name.bound not in gathered.bound for name in names):
        return
    gathered.bound.update(name.key for name in names)
    library, body = optional.checked_in(text) if optional else ("", "")
    if library:
        gathered.optional[library] += [line.strip() for line in body.splitlines() if line.strip()]
    else:
        gathered.protected.append(statement.lead + text)


def _without_unwanted(text: str, wanted: Collection[str], bound: Collection[str], copied: Collection[str] = ()) -> str:
    """A protected import without the statements that bind no wanted name, and without the names of definitions that
    are copied; "" when nothing is left.

    Names are removed only from a plain `if` that holds nothing but imports; in any other block a branch could become
    empty. As for an ordinary import, a statement of several lines is written anew, without the comments in its
    parentheses.
    """
    block = parse(text).body[0]
    inner = block.body if isinstance(block, ast.If) and not block.orelse else []
    if not inner or not all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in inner):
        return text
    lines: list[str | None] = list(text.split("\n"))
    for node in inner:
        assert isinstance(node, (ast.Import, ast.ImportFrom)) and node.end_lineno is not None
        names = {(alias.asname or alias.name).partition(".")[0]: alias for alias in node.names}
        is_wanted = any(name in wanted and name not in bound for name in names)
        node.names = [alias for name, alias in names.items() if name not in copied]
        if not is_wanted or node.end_lineno > node.lineno or len(node.names) < len(names):
            lines[node.lineno - 1 : node.end_lineno] = [None] * (node.end_lineno - node.lineno + 1)
            lines[node.lineno - 1] = " " * node.col_offset + ast.unparse(node) if is_wanted else None
    if lines == text.split("\n"):
        return text
    kept = [line for line in lines if line is not None and line.strip()]
    return "\n".join(kept) if len(kept) > 1 else ""


def _render(gathered: _Gathered, behind: list[str], modular: ImportSource, optional: OptionalLibraries | None) -> str:
    lines, blocks = gathered.lines, list(gathered.protected)
    checks: list[str] = []
    if optional is not None:
        needed = [library for library in optional.names if gathered.optional[library]]
        known = {optional.call(library) for library in optional.names}
        if needed and any(name.bound in known for statement in modular.statements for name in statement.imports):
            lines = [line.strip() for line in lines]
        checks = [f"from {optional.module} import {optional.call(library)}" for library in needed]
        for library in needed:
            body = "".join(f"    {line}\n" for line in gathered.optional[library])
            blocks.append(f"if {optional.call(library)}():\n{body}")
    protected = [text.rstrip("\n") + "\n" for text in blocks]
    return "".join(line + "\n" for line in (*lines, *behind, *checks)) + "".join(protected)
