"""Scopes are those of Python's own symbol tables, for every file of the installed transformers and for made programs."""

from __future__ import annotations

import ast
import re
import symtable
import sys
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.model import bindings as bindings_module
from modular_converter.model.bindings import EVERYTHING, Bindings, ScopeKind, bindings_of
from modular_converter.model.nodes import parse


spec = find_spec("transformers")
assert spec is not None and spec.origin is not None
MODELS = Path(spec.origin).parent / "models"
NAMES = {ast.Lambda: "lambda", ast.ListComp: "listcomp", ast.SetComp: "setcomp", ast.DictComp: "dictcomp"}
POSTPONED = re.compile(r"^from __future__ import annotations$", re.MULTILINE)
Facts = tuple[str, int, list[str], list["Facts"]]


def by_python(
    table: symtable.SymbolTable, augmented: frozenset[str], walrus: frozenset[str], class_name: str = ""
) -> Facts:
    """A table of Python's as plain values: its name, its line, its names with their facts, the tables within it.

    Args:
        augmented: the names of `x += 1`, which Python's tables do not count as read.
        walrus: the names of `:=`, which Python's tables may count as global and not as assigned.
        class_name: the class around it, with which private names are mangled.
    """
    is_module = table.get_type() == "module"
    class_name = table.get_name() if table.get_type() == "class" else class_name
    facts = [
        facts_of(
            one.get_name(),
            parameter=one.is_parameter(),
            local=one.is_local() and not is_module,
            free=one.is_free(),
            declared=one.is_declared_global() and not is_module and one.get_name() not in walrus,
            imported=one.is_imported(),
            assigned=one.is_assigned() and not (is_module and one.get_name() in walrus),
            read=one.is_referenced() and one.get_name() not in augmented,
        )
        for one in table.get_symbols()
        if not re.match(r"\.|__(class|classdict)__$", one.get_name())
    ]
    children = sorted(by_python(child, augmented, walrus, class_name) for child in table.get_children())
    return "" if is_module else table.get_name(), 0 if is_module else table.get_lineno(), sorted(facts), children


def facts_of(name: str, **facts: bool) -> str:
    """A name with those facts that hold."""
    return " ".join([name, *(fact for fact, holds in facts.items() if holds)])


def by_us(
    scope: Bindings, around: frozenset[str], augmented: frozenset[str], walrus: frozenset[str], class_name: str = ""
) -> Facts:
    """The same values of a scope. `around` are the names of the functions around it."""
    node = scope.node
    class_name = node.name if isinstance(node, ast.ClassDef) else class_name
    found = scope._found
    own = scope.local | scope.reads | scope.declared_global | scope.binds | found.of_function | found.set_around
    if node is None:  # the module's table has the names that functions declare global
        own |= frozenset[str]().union(*(one.declared_global for one in scope.everywhere))
    set_ = scope.assigns | found.deleted | scope.declares | found.set_around
    facts = []
    for name in (own | free(scope) & around) - {EVERYTHING, "__class__"}:
        is_local = name in scope.local and node is not None
        facts.append(
            facts_of(
                mangled(name, class_name),
                parameter=name in scope.parameters,
                local=is_local,
                free=not is_local and name in around - scope.declared_global,
                declared=name in scope.declared_global and node is not None and name not in walrus,
                imported=name in scope.imports,
                assigned=name in set_ and not (node is None and name in walrus),
                read=name in scope.reads and mangled(name, class_name) not in augmented,
            )
        )
    inner = around if scope.kind is ScopeKind.CLASS or node is None else (around | scope.local) - scope.declared_global
    children = sorted(by_us(one, inner, augmented, walrus, class_name) for one in scope.inner)
    name = "" if node is None else getattr(node, "name", NAMES.get(type(node), "genexpr"))
    name = getattr(name, "id", name)  # of a `type` statement
    return name, getattr(node, "lineno", 0), sorted(facts), children


def free(scope: Bindings) -> frozenset[str]:
    """The names that a scope or an inner one takes from around it."""
    own = scope.reads.union(scope._found.of_function, scope._found.set_around) - scope.local - scope.declared_global
    hidden = frozenset() if scope.kind is ScopeKind.CLASS else scope.local
    return own.union(*(free(one) - hidden for one in scope.inner))


def mangled(name: str, class_name: str) -> str:
    """A private name as Python writes it in a class."""
    if not class_name.strip("_") or not name.startswith("__") or name.endswith("__"):
        return name
    return f"_{class_name.lstrip('_')}{name}"


class Generators(ast.NodeTransformer):
    """Makes generators of comprehensions, which Python inlines from 3.12 on, so that they have no table."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.DictComp):
            return ast.GeneratorExp(ast.Tuple([node.key, node.value], ast.Load()), node.generators)
        return ast.GeneratorExp(node.elt, node.generators) if isinstance(node, (ast.ListComp, ast.SetComp)) else node


def compare(text: str) -> None:
    """Both answers are the same. Postponed annotations are looked at as all others."""
    text = POSTPONED.sub("", text)
    if sys.version_info >= (3, 12):
        text = ast.unparse(Generators().visit(parse(text)))
    tree = parse(text)
    augmented = {
        one.target.id for one in ast.walk(tree) if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name)
    }
    classes = [one.name for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
    left_out = frozenset(mangled(name, class_name) for name in augmented for class_name in ("", *classes))
    walrus = frozenset(one.target.id for one in ast.walk(tree) if isinstance(one, ast.NamedExpr))
    table = symtable.symtable(text, "<text>", "exec")
    scope = bindings_of(tree)
    assert by_us(scope, frozenset(), left_out, walrus) == by_python(table, left_out, walrus)
    symbols = [one for part in tables(table) for one in part.get_symbols() if one.is_global()]
    used = {one.get_name() for one in symbols if one.is_referenced() or one.is_declared_global()}
    used, ours = ({one for one in names - left_out if "__" not in one} for names in (used, scope.module_names))
    assert used == ours  # private names apart, which are mangled


def tables(*roots: symtable.SymbolTable) -> list[symtable.SymbolTable]:
    """Some tables and all within them."""
    found = [*roots]
    for table in found:  # the list grows meanwhile
        found += table.get_children()
    return found


NAME = st.sampled_from(["a", "b", "c", "d", "e"])
SIMPLE = [
    "{0} = {1}",
    "{0}: {1}",
    "({0}): {1}",
    "{0}: {1} = {2}",
    "{0} += {1}",
    "del {0}, {1}.x, {2}[0]",
    "{0}.x = {1}[{2}] = 1",
    "({0}, [*{1}]) = {2}",
    "import {0}.x, {1} as {2}",
    "from x import {0}, {1} as {2}",
    "{0}({1}, *{2}, {0}=1)",
    "({0} := {1})",
    "global {0}",
    "nonlocal {0}",
    "{0} = lambda {1}={2}, *{2}: ({1} := {0})",
    "[({0} := {1}) for {2} in {1}]",
    "{0} = {{{1}: [{2} for {0} in {1}] for {1} in {2} if {0}}}",
    "({0} for {1} in {2} for {0} in {1})",
    "[lambda: ({0}, {2}) for {0}, {1} in {2}]",
    "assert {0}, f'{{{1}}} {{{2}!r:{0}}}'",
]
COMPOUND = [
    "if ({0} := {1}):",
    "for {0} in {1}:",
    "while {0}:",
    "with {0} as {1}, {2} as {1}.x:",
    "try: {0}\nexcept {1} as {2}:",
    "match {0}:\n case {{'k': {1}, **{2}}}: pass\n case [{0}, *{1}] if {2}: pass\n case {1}() as {2}: pass\n case _:",
    "def {0}({1}, {2}: {1}={0}, *args: {2}, **kwargs) -> {0}:",
    "@{0}\ndef f({1}=[{2} for {0} in {1}], *, {0}: (lambda: {2})): ",
    "class {0}({1}, x={2}):",
    "@{0}\nclass C({1}):",
    "def f():",
    "class C:",
]
if sys.version_info >= (3, 11):
    COMPOUND.append("try: pass\nexcept* {0} as {1}:")
if sys.version_info >= (3, 12):
    SIMPLE += ["type {0}[{1}] = {2}[{1}]", "type {0} = {1}"]
    COMPOUND += ["def {0}[{1}: {2}, *{0}]({0}: {1}) -> {2}:", "class {0}[{1}: ({2}, {0})]({2}[{1}]):"]


def filled(text: str) -> st.SearchStrategy[str]:
    """A statement with names in its places."""
    return st.tuples(NAME, NAME, NAME).map(lambda names: text.format(*names))


def indented(header: str, body: list[str]) -> str:
    """A compound statement with its body."""
    return header + "".join(f"\n  {line}" for part in body for line in part.split("\n"))


STATEMENTS = st.recursive(
    st.sampled_from(SIMPLE).flatmap(filled),
    lambda inner: st.builds(
        indented, st.sampled_from(COMPOUND).flatmap(filled), st.lists(inner, min_size=1, max_size=4)
    ),
    max_leaves=12,
)


@given(st.lists(STATEMENTS, min_size=1, max_size=4))
def test_a_made_program_has_the_scopes_of_python(statements: list[str]) -> None:
    text = "\n".join(statements)
    try:
        symtable.symtable(text, "<text>", "exec")
    except SyntaxError:  # such as `nonlocal` of an unknown name
        hypothesis.reject()
    compare(text)


FOLDERS = sorted(one.name for one in MODELS.iterdir() if one.is_dir() and "__" not in one.name)


@pytest.mark.parametrize(
    "folder", [pytest.param(one, marks=[pytest.mark.slow] if number % 8 else []) for number, one in enumerate(FOLDERS)]
)
def test_a_published_file_has_the_scopes_of_python(folder: str) -> None:
    for file in sorted((MODELS / folder).glob("*.py")):
        compare(file.read_text("utf-8"))


PACKAGE = Path(bindings_module.__file__).parents[1]
OTHERS = {
    "breaking/expressions.py": "values of expressions",
    "breaking/interpret.py": "cases that hold in any case",
    "convert/inherit/super_calls.py": "expressions that may have an effect",
    "convert/inherit/differences.py": "objects that are kept",
}
"""The other files that tell apart the kinds of node that bind, and what they look for."""


def test_no_other_file_finds_bindings() -> None:
    kinds = re.compile(r"\b(?:symtable|NamedExpr|MatchAs|MatchStar|MatchMapping|ast\.Nonlocal|ast\.Global)\b")
    core = (path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in ("parallel", "model"))
    found = {str(path.relative_to(PACKAGE)) for path in core if kinds.search(path.read_text("utf-8"))}
    assert found == OTHERS.keys()
