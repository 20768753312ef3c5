"""Count what authors of modular files write: `python utils/mine_shapes.py`.

Reads the modular files of the installed `transformers` and the parents that their classes name, and writes how often
each shape occurs to `tests/oracle/shapes.json`: bases, members, calls of `super()`, statements around them, arguments,
and the members of the parents. Random programs are drawn by these numbers (`tests/oracle/authored.py`).
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from modular_converter.files.arguments import discover  # noqa: E402
from modular_converter.model.bindings import FUNCTIONS, Function, is_generator  # noqa: E402
from modular_converter.model.overriding import only_raises  # noqa: E402


TABLE = os.path.join(ROOT, "tests", "oracle", "shapes.json")
MOST = 6
"""Longer lists of statements and members count as this many."""
Counts = defaultdict[str, Counter[str]]


def main() -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    spec = importlib.util.find_spec("transformers")
    assert spec is not None and spec.origin is not None, "transformers is not installed"
    counts: Counts = defaultdict(Counter)
    for path in discover([os.path.join(os.path.dirname(spec.origin), "models")], None).paths:
        count_file(path, counts)
    with open(TABLE, "w", encoding="utf-8") as file:
        json.dump({point: dict(sorted(found.items())) for point, found in sorted(counts.items())}, file, indent=2)
        file.write("\n")
    return 0


def count_file(path: str, counts: Counts) -> None:
    """Count the heirs of one modular file, and the statements that change a class below it."""
    tree = _tree(path)
    parents = {name: found for node in tree.body for name, found in _imported_classes(node, path)}
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
        parent = next((parents[base] for base in bases if base in parents), None)
        if isinstance(node, ast.ClassDef) and parent is not None:
            _count_heir(node, parent, bases, [base for base in bases if base in parents][0], counts)
            _count_parent(parent, counts)
    below = any(isinstance(node, ast.Assign) and _root(node.targets[0]) in own for node in tree.body)
    counts["module.changes_a_class"][_word(below)] += 1


@cache
def _tree(path: str) -> ast.Module:
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def _imported_classes(node: ast.stmt, path: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes of other models that a relative import names."""
    if not isinstance(node, ast.ImportFrom) or not node.level or node.module is None:
        return
    folder = os.path.dirname(path)
    for _ in range(node.level - 1):
        folder = os.path.dirname(folder)
    source = os.path.join(folder, *node.module.split(".")) + ".py"
    if not os.path.exists(source):
        return
    classes = {one.name: one for one in _tree(source).body if isinstance(one, ast.ClassDef)}
    yield from ((one.asname or one.name, classes[one.name]) for one in node.names if one.name in classes)


def _count_heir(node: ast.ClassDef, parent: ast.ClassDef, bases: list[str], base: str, counts: Counts) -> None:
    order = "alone" if len(bases) == 1 else "first" if bases[0] == base else "last"
    counts["heir.bases"][order] += 1
    theirs = {one.name: one for one in parent.body if isinstance(one, FUNCTIONS)}
    attributes = [one for one in node.body if isinstance(one, (ast.Assign, ast.AnnAssign))]
    methods = [one for one in node.body if isinstance(one, FUNCTIONS)]
    counts["heir.attributes"][str(min(len(attributes), MOST))] += 1
    counts["heir.methods"][str(min(len(methods), MOST))] += 1
    given = {name for one in parent.body for name in _bound(one)}
    for one in attributes:
        value = one.value
        is_removed = isinstance(value, ast.Call) and ast.unparse(value.func) == "AttributeError"
        form = "removed" if is_removed else "plain" if isinstance(one, ast.Assign) else "annotated"
        form = "bare" if value is None else form
        counts["heir.attribute"][f"{form} {'override' if _bound(one) & given else 'new'}"] += 1
    for method in methods:
        inherited = theirs.get(method.name)
        kind = "__init__" if method.name == "__init__" else "override" if inherited else "new"
        counts["heir.method"][kind] += 1
        counts[f"{kind}.decorator"][_decorator(method)] += 1
        if inherited is not None:
            _count_override(method, inherited, kind, counts)


def _count_override(method: Function, inherited: Function, kind: str, counts: Counts) -> None:
    call, place = _call(method)
    counts[f"{kind}.call"]["stub" if only_raises(method) else call] += 1
    if call != "statement":
        return
    assert place is not None
    body = method.body[1:] if ast.get_docstring(method) is not None else method.body
    place -= len(method.body) - len(body)
    set_by_parent = {path for part in inherited.body for path in _paths(part)}
    for side, lines in (("before", body[:place]), ("after", body[place + 1 :])):
        counts[f"{kind}.{side}"][str(min(len(lines), MOST))] += 1
        for line in lines:
            counts[f"{kind}.{side}.statement"][_statement(line, set_by_parent)] += 1
    counts[f"{kind}.arguments"][_arguments(body[place], method)] += 1
    counts[f"{kind}.signature"][_signature(method)] += 1


def _call(method: Function) -> tuple[str, int | None]:
    """How a method calls its parent's, and the place of the statement that does."""
    for place, line in enumerate(method.body):
        for node in ast.walk(line):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr != method.name:
                continue
            if ast.unparse(node.func.value).startswith("super("):
                whole = getattr(line, "value", None) is node
                is_statement = whole and isinstance(line, (ast.Expr, ast.Return))
                if is_statement:
                    return "statement" if isinstance(line, ast.Expr) or method.name == "__init__" else "return", place
                return "value" if whole else "inside", place
            if node.args and ast.unparse(node.args[0]) == "self":
                return "base", place
    return "none", None


def _statement(node: ast.stmt, set_by_parent: set[str]) -> str:
    """What a statement beside the call does, in a word that the grammar has a template for."""
    paths = _paths(node)
    if isinstance(node, ast.Delete):
        return "delete" if paths & set_by_parent else "delete other"
    if isinstance(node, ast.AugAssign):
        return "augment"
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        if not paths:
            return "local" if isinstance(getattr(node, "targets", [None])[0], ast.Name) else "change"
        reads = (
            {ast.unparse(one) for one in ast.walk(node.value) if isinstance(one, ast.Attribute)}
            if node.value
            else set()
        )
        if paths & reads:
            return "set from itself"
        from_others = "from others " if any(path.startswith("self.") for path in reads) else ""
        return f"set {from_others}{'override' if paths & set_by_parent else 'new'}"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return "call own" if ast.unparse(node.value.func).startswith("self.") else "call"
    named = {ast.If: "if", ast.For: "for", ast.Return: "return", ast.Raise: "raise", ast.With: "with"}
    return next((word for kind, word in named.items() if isinstance(node, kind)), "other")


def _arguments(line: ast.stmt, method: Function) -> str:
    """How the arguments of a call are given."""
    call = next(node for node in ast.walk(line) if isinstance(node, ast.Call) and "super(" in ast.unparse(node.func))
    texts = [ast.unparse(one) for one in call.args]
    named = [(one.arg, ast.unparse(one.value)) for one in call.keywords]
    if (None, "super_kwargs") in named:
        return "super_kwargs"
    if any(text.startswith("*") for text in texts):
        return "unpacked"
    parameters = {one.arg for one in (*method.args.args, *method.args.kwonlyargs)}
    others = [text for text in texts if text not in parameters]
    others += [value for name, value in named if name is not None and name != value]
    if others:
        return "altered"
    return "nothing" if not texts and not named else "names"


def _signature(method: Function) -> str:
    arguments = method.args
    if arguments.kwarg is not None and arguments.kwarg.arg == "super_kwargs":
        return "super_kwargs"
    if arguments.vararg is not None:
        return "unpacked"
    return "keywords" if arguments.kwarg is not None else "names"


def _count_parent(parent: ast.ClassDef, counts: Counts) -> None:
    """Count the kinds of members of a parent, each once for a class."""
    methods = [one for one in parent.body if isinstance(one, FUNCTIONS)]
    text = ast.unparse(parent)
    features = {
        "property": any(_decorator(one) == "property" for one in methods),
        "classmethod": any(_decorator(one) == "classmethod" for one in methods),
        "staticmethod": any(_decorator(one) == "staticmethod" for one in methods),
        "decorated": any(_decorator(one) == "other" for one in methods),
        "generator": any(is_generator(one) for one in methods),
        "async": any(isinstance(one, ast.AsyncFunctionDef) for one in methods),
        "private": any(_is_private(one.name) for one in methods) or ".__hidden" in text,
        "special": any(one.name.startswith("__") and one.name != "__init__" for one in methods),
        "variadic": any(one.args.vararg is not None for one in methods),
        "attribute": any(isinstance(one, (ast.Assign, ast.AnnAssign)) for one in parent.body),
        "slots": "__slots__" in text,
        "nested": any(isinstance(one, ast.ClassDef) for one in parent.body),
        "block": any(isinstance(one, (ast.If, ast.For, ast.Try, ast.With)) for one in parent.body),
        "early return": any(_returns_early(one) for one in methods),
        "super elsewhere": any("super()" in ast.unparse(one) for one in methods if one.name != "__init__"),
    }
    for feature, found in features.items():
        counts[f"parent.{feature}"][_word(found)] += 1
    init = next((one for one in methods if one.name == "__init__"), None)
    for line in init.body if init is not None else ():
        if "super()" not in ast.unparse(line):
            counts["parent.statement"][_statement(line, set())] += 1


def _returns_early(method: Function) -> bool:
    returns = sum(isinstance(node, ast.Return) for node in ast.walk(method))
    return returns > isinstance(method.body[-1], ast.Return)


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def _decorator(method: Function) -> str:
    names = {ast.unparse(one).partition("(")[0] for one in method.decorator_list}
    return next(
        (one for one in ("property", "classmethod", "staticmethod") if one in names), "other" if names else "none"
    )


def _bound(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {one.id for one in targets if isinstance(one, ast.Name)}


def _paths(node: ast.stmt) -> set[str]:
    """The attributes of the instance that a statement sets or deletes itself."""
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    texts = {ast.unparse(one) for one in targets if isinstance(one, ast.Attribute)}
    return {text for text in texts if text.startswith("self.") and text.count(".") == 1}


def _root(node: ast.expr) -> str:
    return node.value.id if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""


def _word(found: bool) -> str:
    return "yes" if found else "no"


if __name__ == "__main__":
    sys.exit(main())
