"""The newer tree of a comparison: the files on disk, with the generated files that edits reach as conversions give them;
and the edits of which it reads nothing: of bodies of methods that it does not follow, such as `forward`, and of functions.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from modular_converter.breaking.facts import FILE, ModelTree
from modular_converter.breaking.older import tree_at
from modular_converter.breaking.signatures import UntoldMethods, is_told
from modular_converter.check.cache.answers import KeptAnswers
from modular_converter.check.conversions import find_conversions
from modular_converter.convert.schedule import Readings, caseless, required_files, words_in_code
from modular_converter.convert.source.library import Library, Observations
from modular_converter.files.read import text_of_content
from modular_converter.findings import UNPARSABLE, ConversionError, Finding
from modular_converter.git.affected import affected
from modular_converter.git.work_tree import MOST_BYTES, GitError, WorkTrees
from modular_converter.model.bindings import Function, bindings_in
from modular_converter.model.lexer import code_only, placed_tokens
from modular_converter.model.nodes import functions_of, parse, walk
from modular_converter.settings.disk import NO_FOLLOW, is_below, read_regular
from modular_converter.settings.values import Settings


def edits_of(against: str, models: str, untold: UntoldMethods) -> Edits:
    """The edits of the package since the older commit, or since the last one where the older tree is no commit. Without
    git none are known, and the files on disk are taken as they are.
    """
    for ref in (against, "HEAD"):
        with contextlib.suppress(GitError):
            return edits_since(ref, os.path.dirname(models), untold)
    return Edits()


def newer_tree(
    paths: Sequence[str],
    models: str,
    settings: Settings,
    cache: str | None,
    edits: Edits,
    answers: KeptAnswers,
    outside: Observations,
) -> tuple[ModelTree, list[Finding]]:
    """The newer tree, and the reasons why some files that edits reach cannot be converted.

    Args:
        paths: all modular files.
        cache: the folder that keeps conversions; None for none.
        edits: what has been edited. Other generated files are taken as they are on disk.
        answers: those of earlier runs.
        outside: gets what conversions have read outside of the package.
    """
    settings = settings.with_any_formatter
    texts: dict[str, str] = {}
    failures: list[Finding] = []
    if edits.read or edits.callers:
        library = Library(settings)
        required = {one: required_files(one, library) for one in paths if library.module_if_readable(one)}
        reached = affected(edits.read, paths, library, required, answers.get) if edits.read else ()
        stale = Readings(required, edits.read, edits.before, library, edits.callers)
        reached = sorted(edits.callers.union(reached))
        for one in find_conversions(reached, settings, cache, stale=stale).made.values():
            texts |= one.files
            beyond = (path for path in one.reads if not is_below(path, os.path.dirname(models)))
            outside.files.update((path, one.reads[path]) for path in beyond)
            outside.packages.update(one.packages)
            failures += (finding for finding in one.findings if finding.is_error)
    tree = tree_at(models, settings, texts)
    tree.hashed_as = edits.unread
    return tree, failures


class _Outside(NamedTuple):
    """A text as a comparison reads it, whatever its comments are, and the bodies of methods that it does not follow, and whole
    functions.
    """

    text: str
    bodies: Mapping[tuple[str, str], str]
    """Class and method, or "" and function -> what is left out of it."""
    marks: frozenset[str]
    """Of the classes whose methods are left out with their parameters."""


class Edits(NamedTuple):
    """The Python files of a package that differ from a commit."""

    read: frozenset[str] = frozenset()
    """Those in which something differs that a comparison reads, and those that are new or gone."""
    unread: Mapping[str, str] = {}
    """The others, with their texts at the commit."""
    methods: frozenset[str] = frozenset()
    """The methods and functions of these others whose bodies may have changed, and marks of classes whose methods have other
    parameters.
    """
    before: Mapping[str, str] = {}
    """The texts at the commit of the files in `read` that were there."""
    callers: frozenset[str] = frozenset()
    """The modular files that may be no longer convertible by an edit of a body that a comparison does not read."""

    def is_read(self, followed: Collection[str]) -> bool:
        """Whether what a comparison has followed and told of is among what counted as not read."""
        return any(is_told(one, followed) for one in self.methods)

    @property
    def all_read(self) -> Edits:
        """The same, where a comparison reads all of them."""
        return Edits(self.read.union(self.unread), before={**self.before, **self.unread})


def edits_since(ref: str, package: str, untold: UntoldMethods) -> Edits:
    """What has changed in the folder of a package since a commit. Raises `GitError`."""
    followed = untold.followed
    repository, real = WorkTrees().of(package), os.path.realpath(package)
    snapshot = repository.snapshot(repository.commit(ref))
    changed = list(snapshot.changes_below(real, lambda name: name.endswith(".py")))
    blobs = {path: blob for path in changed if (blob := snapshot.blob(path))}
    older: dict[str, bytes] = {}
    with contextlib.suppress(GitError):  # then all of them count as read
        older.update(zip(blobs, repository.contents([*blobs.values()])))
    before, unread, methods, callers = {}, {}, set[str](), set[str]()
    for path, content in older.items():
        try:
            before[path] = old = text_of_content(path, content)
            if not followed or os.path.basename(path) == FILE:  # whose tables stand in functions, too
                continue
            new = text_of_content(path, read_regular(path, MOST_BYTES, NO_FOLLOW))
            word = os.path.basename(os.path.dirname(path)).replace("_", "")
            marks = functools.cache(functools.partial(untold.marks, path))
            functions = [_functions(text) for text in (old, new)]
            sides = [
                _outside(text, one, other, followed, word, marks)
                for text, one, other in zip((old, new), functions, functions[::-1])
            ]
        except (ConversionError, OSError, *UNPARSABLE):
            continue
        if sides[0].text == sides[1].text:
            unread[path] = old
            methods |= {name for _, name in sides[0].bodies} | sides[0].marks
            words: dict[tuple[str, str], set[str]] = {}
            for key, body in sides[0].bodies.items() ^ sides[1].bodies.items():
                words.setdefault(key, set()).update(words_in_code(body))
            callers.update(*(untold.callers(*key, said) for key, said in words.items() if key[0]))
    places = {path: os.path.join(package, os.path.relpath(path, real)) for path in changed}
    return Edits(
        frozenset(place for path, place in places.items() if path not in unread),
        {places[path]: text for path, text in unread.items()},
        frozenset(methods),
        {places[path]: text for path, text in before.items() if path not in unread},
        frozenset(callers),
    )


class _Written(NamedTuple):
    """A function with its text."""

    node: Function
    head: str
    whole: str


_Functions = dict[tuple[str, str], list[_Written]]
"""Class and method, or "" and function -> each of that name, as a getter and its setter."""


def _functions(text: str) -> _Functions:
    lines, found = text.split("\n"), _Functions()
    for owner, node in functions_of(parse(text)):
        head, whole = (lines[node.lineno - 1 : end] for end in (node.body[0].lineno - 1, node.end_lineno))
        found.setdefault((owner, node.name), []).append(_Written(node, "\n".join(head), "\n".join(whole)))
    return found


def _outside(
    text: str,
    functions: _Functions,
    others: _Functions,
    followed: Collection[str],
    word: str,
    marks: Callable[[str], frozenset[str]],
) -> _Outside:
    """A text without comments, and with a summary in place of each body that differs and is not followed, with the parameters
    where these differ and nobody is told of them.

    Args:
        others: the functions of the other text.
        word: the model's name: a method whose name has it is called otherwise in heirs, and may be followed there.
        marks: those of a class, see `UntoldMethods.marks`.
    """
    lines = text.split("\n")
    for number in _comments(text):
        lines[number] = ""
    bodies, found = dict[tuple[str, str], str](), set[str]()
    for (owner, name), all_of_name in functions.items():
        given = others.get((owner, name), [])
        is_same = [one.whole for one in all_of_name] == [one.whole for one in given]
        if is_same or name in followed or word in caseless(name):
            continue
        is_head_same = [one.head for one in all_of_name] == [one.head for one in given]
        for node, _, _ in all_of_name:
            if not (body := _body(node)):
                continue
            untold = marks(owner) if owner and not is_head_same else frozenset()
            first = body[0].lineno if is_head_same or (owner and not untold) else node.lineno
            last = body[-1].end_lineno or 0
            key = owner, name
            bodies[key] = "\n".join([bodies.get(key, ""), *lines[first - 1 : last]])
            lines[first - 1 : last] = [" ".join((name, *_summary(node))), *[""] * (last - first)]
            found |= untold
    return _Outside("\n".join(line for line in lines if line.strip()), bodies, frozenset(found))


def _comments(text: str) -> Iterator[int]:
    """The lines, from 0, of comments on lines of their own behind the first statement, but for those to this tool and those
    within brackets, at which conversions look. They go into generated files, and mean nothing to users.
    """
    found = {line for token, line, _ in placed_tokens(text) if token.kind == "comment"}
    depth, is_behind = 0, False
    for number, (line, code) in enumerate(zip(text.split("\n"), code_only(text).split("\n"))):
        is_comment = number in found and line.lstrip().startswith("#")
        if is_comment and is_behind and not depth and "modular:" not in line:
            yield number
        is_behind |= bool(line.strip()) and not is_comment
        depth += sum(map(code.count, "([{")) - sum(map(code.count, ")]}"))


def _body(node: Function) -> list[ast.stmt]:
    """The statements of a method behind its docstring; none where a conversion looks at them, as at one that only raises."""
    rest = node.body[ast.get_docstring(node, clean=False) is not None :]
    is_stub = len(rest) < 2 and isinstance(rest[0] if rest else None, (ast.Raise, ast.Pass, ast.Expr, type(None)))
    on_own_line = bool(rest) and rest[0].lineno > node.lineno
    is_local = not any(one.declared_global for one in bindings_in(node).everywhere)
    return rest if not is_stub and on_own_line and is_local else []


def _summary(node: Function) -> Iterator[str]:
    """What a method has an effect by though nothing follows it: the names of its module, and the attributes that it sets."""
    yield from sorted(bindings_in(node).module_names - vars(builtins).keys())
    stored = (one for one in walk(node) if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load))
    yield from sorted({f".{one.attr}" for one in stored})
