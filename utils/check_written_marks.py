"""Write the drifted copies of diffusers, and check the result by other means: `python utils/check_written_marks.py --cache ~/wheels`.

The check shares nothing with the command. Each file that was written compiles and uses no name that it lacks; and each call
of a method on `self`, or of a function of the package by its name, that Python bound to a signature before is still bound.
Signatures are those of Python itself, of stubs without bodies and defaults.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from other_libraries import LIBRARIES, undefined_names, unpack


NAME = "diffusers (pipelines)"


class Method(NamedTuple):
    """A function, or a method with its class."""

    signature: inspect.Signature
    is_bound: bool
    """Whether a call on the instance passes the instance."""
    is_called: bool
    """Whether its name with parentheses calls it; a property is no function."""


def main() -> int:
    """Unpack, write, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", required=True, type=Path, metavar="FOLDER", help="where wheels are kept")
    options = parser.parse_args()
    library = next(one for one in LIBRARIES if one.name == NAME)
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        unpack(library, top, options.cache)
        (top / "pyproject.toml").write_text('[tool.modular-converter]\npackage = "diffusers"\nformatter = "none"\n')
        paths = sorted((top / library.package).rglob("*.py"))
        before = {path: path.read_text(encoding="utf-8") for path in paths}
        undefined, unbound = undefined_names(top), set(calls_that_fail(before))
        started, code = time.time(), "from modular_converter.commands.convert import main; main()"
        command = [sys.executable, "-c", code, "marks", "--write", library.package]
        done = subprocess.run(command, cwd=top, capture_output=True, text=True)
        seconds = time.time() - started
        after = {path: path.read_text(encoding="utf-8") for path in paths}
        wrong = [f"undefined: {one}" for one in undefined_names(top) - undefined]
        wrong += [f"{path.relative_to(top)}: {error}" for path, error in not_compiled(after)]
        wrong += [f"no longer bound: {one}" for one in sorted(set(calls_that_fail(after)) - unbound)]
        written = sum(before[path] != after[path] for path in paths)
    print("\n".join((*done.stdout.splitlines()[-1:], *done.stderr.splitlines()[-1:])))
    print(f"{written} files written in {seconds:.0f} s, {len(wrong)} wrong", *wrong, sep="\n")
    return int(bool(wrong) or not written)


def not_compiled(texts: dict[Path, str]) -> Iterator[tuple[Path, SyntaxError]]:
    """The files that are no Python."""
    for path, text in texts.items():
        try:
            compile(text, str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            yield path, error


def calls_that_fail(texts: dict[Path, str]) -> Iterator[str]:
    """The calls that Python would refuse, each by file, function around it and text."""
    trees = {path: ast.parse(text) for path, text in texts.items()}
    classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for node in (node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)):
        classes[node.name].append(node)
    for path, tree in trees.items():
        functions = {node.name: method_of(node, False) for node in tree.body if isinstance(node, ast.FunctionDef)}
        for owner in tree.body:
            found = inherited(owner, classes) if isinstance(owner, ast.ClassDef) else {}
            for call in (node for node in ast.walk(owner) if isinstance(node, ast.Call)):
                method = meant(call, found, functions)
                if method is not None and not is_bound(call, method):
                    yield f"{path.name}: {getattr(owner, 'name', '')}: {ast.unparse(call)}"


def inherited(node: ast.ClassDef, classes: dict[str, list[ast.ClassDef]], depth: int = 8) -> dict[str, Method]:
    """The methods of a class and its bases, which are found by their names where these are unique."""
    found: dict[str, Method] = {}
    for base in reversed(node.bases):
        name = re.sub(r".*\.", "", ast.unparse(base))
        if depth and len(classes.get(name, ())) == 1:
            found |= inherited(classes[name][0], classes, depth - 1)
    own = (one for one in node.body if isinstance(one, ast.FunctionDef))
    return found | {one.name: method_of(one, True) for one in own}


def method_of(node: ast.FunctionDef, in_class: bool) -> Method:
    """A function by its header alone."""
    words = {ast.unparse(one) for one in node.decorator_list}
    return Method(
        signature_of(node.args),
        in_class and "staticmethod" not in words,
        not any("property" in word or word.endswith(".setter") for word in words),
    )


def signature_of(given: ast.arguments) -> inspect.Signature:
    """The signature of a stub with these parameters, which Python makes."""
    none = ast.Constant(None)
    plain: dict[str, Any] = {
        name: [ast.arg(one.arg) for one in getattr(given, name)] for name in ("posonlyargs", "args", "kwonlyargs")
    }
    stars: dict[str, Any] = {
        name: one and ast.arg(one.arg) for name in ("vararg", "kwarg") for one in [getattr(given, name)]
    }
    keyword_defaults = [one and none for one in given.kw_defaults]
    defaults: list[ast.expr] = [none] * len(given.defaults)
    arguments = ast.arguments(**plain, **stars, defaults=defaults, kw_defaults=keyword_defaults)
    stub = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, none)))
    return inspect.signature(eval(compile(stub, "stub", "eval")))


def meant(call: ast.Call, methods: dict[str, Method], functions: dict[str, Method]) -> Method | None:
    """The function that a call means, if it is known."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return methods.get(name)
        case ast.Name(id=name):
            return functions.get(name)
    return None


def is_bound(call: ast.Call, method: Method) -> bool:
    """Whether Python binds the arguments; unpacked ones may be any."""
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return True
    try:
        given = [None] * (method.is_bound + len(call.args))
        method.signature.bind(*given, **{str(one.arg): None for one in call.keywords})
    except TypeError:
        return False
    return method.is_called


if __name__ == "__main__":
    sys.exit(main())
