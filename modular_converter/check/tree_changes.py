"""Two syntax trees compared place by place: what one has and the other has not, what moves, what has another name.

Two files differ in the same way if their changes have the same kind: a decorator of a method is left out, whatever the
decorator and the method are called; a statement moves; `hidden` is written for `states`. So a kind says where in the
syntax tree something is and what happens to it, and holds words of the text only where the words are what changes.
"""

from __future__ import annotations

import ast
import bisect
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from modular_converter.check.compare import comments_of
from modular_converter.findings import UNPARSABLE
from modular_converter.model.bindings import EMPTY, FUNCTIONS, bindings_of, parameter_nodes, signature_of
from modular_converter.model.index import is_docstring
from modular_converter.model.nodes import parse, top_line
from modular_converter.reporting.diffs import differing_parts, matching_blocks


DEFINITIONS = (ast.ClassDef, *FUNCTIONS)
IMPORTS = (ast.Import, ast.ImportFrom)
MOST_WORDS = 3
"""A change of more words in a text is a change of the text, whatever the words."""
_LEFT_OUT = frozenset(("ctx", "type_comment", "type_ignores", "kind", "type_params", "simple"))
_LINES_OF_CODE = frozenset(("body", "orelse", "finalbody"))
_NOUNS = {
    "annotation": "annotations",
    "args": "arguments of calls",
    "bases": "base classes",
    "decorator_list": "decorators of {}",
    "elts": "entries of lists",
    "handlers": "`except` clauses",
    "keywords": "keyword arguments",
    "keys": "keys",
    "names": "imported names",
    "returns": "annotations",
    "test": "conditions",
    "value": "values",
}
"""Field of a node -> what it holds; any other field is named as it is."""


class LineSpan(NamedTuple):
    """Lines of a text: the first, from 1, and the line behind the last. An empty span stands before its line."""

    start: int
    end: int


class FileChange(NamedTuple):
    """A place where two texts differ, such as a generated file and its conversion."""

    kind: str
    """What happens from the first to the second: "leaves out decorators of methods", "writes `{}` for `{}`"."""
    old: LineSpan
    new: LineSpan
    words: tuple[str, ...] = ()
    """The words of the texts that stand in the braces, where the kind has not got them yet."""
    names: tuple[str, ...] = ()
    """The names that an import or a definition at the top binds; none for others."""
    form: str = ""
    """The kind without the words of the text that it holds, too: "writes `…` for `…`"; "" for a kind without any."""


def tree_changes(old: str, new: str) -> list[FileChange]:
    """The changes from one text to another, in the order of the first. Comments and layout count for nothing.

    Raises `RecursionError` for a tree that is nested too deeply.
    """
    found = _Comparison(old.split("\n"), new.split("\n"))
    found.bodies(parse(old), parse(new))
    return sorted(found.changes, key=lambda one: one.old)


def span_of(node: ast.AST) -> LineSpan:
    """The lines of a node that has a place, with its decorators."""
    return LineSpan(top_line(node), node.end_lineno + 1)  # type: ignore[attr-defined]


def _place_of(node: ast.AST | None) -> LineSpan | None:
    return span_of(node) if node is not None and hasattr(node, "lineno") else None


class _Comparison:
    """Collects the changes of two texts."""

    def __init__(self, old_lines: Sequence[str], new_lines: Sequence[str]) -> None:
        self.changes: list[FileChange] = []
        self._lines = old_lines, new_lines
        self._places = [(LineSpan(1, 2), LineSpan(1, 2))]
        """The spans of the nodes around, the innermost last."""
        self._owners: list[ast.AST] = []
        """The definitions around."""

    def bodies(self, old: ast.AST, new: ast.AST) -> None:
        """Compare the statements of two modules, classes or functions, each with the docstring on top."""
        (docs, olds), (new_docs, news) = _docstring(old), _docstring(new)
        owner = _plural(old, self._owners[:-1])
        if docs and new_docs:
            self._within(docs[0], new_docs[0], lambda: self._texts(_value(docs[0]), _value(new_docs[0]), "docstrings"))
        elif docs:
            self._add(f"leaves out docstrings of {owner}", span_of(docs[0]), None)
        elif new_docs:
            self._add(f"adds docstrings of {owner}", None, span_of(new_docs[0]))
        self._lists(olds, news, old, "body")

    def _nodes(self, old: ast.AST, new: ast.AST, noun: str) -> None:
        """Compare two nodes that stand in the same place."""
        if type(old) is not type(new):
            self._add(f"changes {noun} from `{type(old).__name__}` to `{type(new).__name__}`", None, None, old, new)
        else:
            self._within(old, new, lambda: self._fields(old, new))

    def _fields(self, old: ast.AST, new: ast.AST) -> None:
        """Compare the fields of two nodes of one type."""
        if isinstance(old, DEFINITIONS):
            self._owners.append(old)
        if isinstance(old, ast.ImportFrom) and isinstance(new, ast.ImportFrom):
            self._sources(old, new)
        elif isinstance(old, ast.Constant) and isinstance(new, ast.Constant):
            self._constants(old.value, new.value)
            return
        elif isinstance(old, ast.arguments) and isinstance(new, ast.arguments):
            self._parameters(old, new)
            return
        for field in old._fields:
            before, after = getattr(old, field, None), getattr(new, field, None)
            if field in _LEFT_OUT or before == after or (isinstance(old, ast.ImportFrom) and field != "names"):
                continue
            if field == "body" and isinstance(old, DEFINITIONS):
                self.bodies(old, new)
            elif isinstance(before, list) and isinstance(after, list):
                self._lists(before, after, old, field)
            else:
                self._values(before, after, old, field)
        if isinstance(old, DEFINITIONS):
            self._owners.pop()

    def _values(self, before: object, after: object, owner: ast.AST, field: str) -> None:
        """Compare two fields that are no lists."""
        noun = self._noun(owner, field, before if isinstance(before, ast.AST) else None)
        if isinstance(before, ast.AST) and isinstance(after, ast.AST):
            if ast.dump(before) != ast.dump(after):
                self._nodes(before, after, noun)
        elif before is None or after is None:
            self._add(f"{'adds' if before is None else 'leaves out'} {noun}", None, None)
        else:
            self._add("writes `{}` for `{}`", None, None, words=(str(after), str(before)))

    def _lists(self, olds: Sequence[ast.AST], news: Sequence[ast.AST], owner: ast.AST, field: str) -> None:
        """Compare two lists of nodes. Equal ones stay or move; of the others, those that are alike are compared."""
        keys, new_keys = _keys(olds), _keys(news)
        blocks = matching_blocks(keys, new_keys)
        home = [(block.a + step, block.b + step) for block in blocks for step in range(block.size)]
        new_home = [other for _, other in home]
        rest = sorted(set(range(len(olds))) - {one for one, _ in home})
        new_rest = sorted(set(range(len(news))) - {*new_home})
        moved = _pairs(rest, new_rest, keys.__getitem__, new_keys.__getitem__)
        for one, other in moved:
            self._add(f"moves {self._noun(owner, field, olds[one])}", None, None, olds[one], news[other])
        rest, new_rest = _without(rest, new_rest, moved)
        alike = _alike(olds, news, rest, new_rest, home)
        rest, new_rest = _without(rest, new_rest, alike)
        for one, other in (*home, *moved, *alike):
            if not self._are_equal(olds[one], news[other], keys[one] == new_keys[other]):
                self._nodes(olds[one], news[other], self._noun(owner, field, olds[one]))
        for one in rest:
            noun = self._noun(owner, field, olds[one])
            self._add(f"leaves out {noun}", None, None, olds[one], names=_bound(olds[one], owner))
        for other in new_rest:
            place = None
            number = bisect.bisect(new_home, other)
            if number and hasattr(olds[home[number - 1][0]], "lineno"):
                line = span_of(olds[home[number - 1][0]]).end
                place = LineSpan(line, line)
            noun = self._noun(owner, field, news[other])
            self._add(f"adds {noun}", place, None, None, news[other], _bound(news[other], owner))

    def _are_equal(self, old: ast.AST, new: ast.AST, same_key: bool) -> bool:
        if not isinstance(old, DEFINITIONS):
            return same_key or ast.dump(old) == ast.dump(new)
        (start, end), (new_start, new_end) = span_of(old), span_of(new)  # the trees of equal texts are not written out
        lines, new_lines = self._lines[0][start - 1 : end - 1], self._lines[1][new_start - 1 : new_end - 1]
        return lines == new_lines or ast.dump(old) == ast.dump(new)

    def _parameters(self, old: ast.arguments, new: ast.arguments) -> None:
        """Compare parameters, each with its default."""
        self._lists(parameter_nodes(old), parameter_nodes(new), old, "parameters")
        defaults, new_defaults = (signature_of(some).parameters for some in (old, new))
        for name in sorted(defaults.keys() & new_defaults.keys()):
            before, after = (
                None if one is EMPTY else one for one in (defaults[name].default, new_defaults[name].default)
            )
            if before or after:
                self._values(before, after, old, "defaults of parameters")

    def _sources(self, old: ast.ImportFrom, new: ast.ImportFrom) -> None:
        before, after = ("." * one.level + (one.module or "") for one in (old, new))
        if before != after:
            first, second = _cut(before, after)
            self._add("imports from `{}` in place of `{}`", None, None, words=(second, first))

    def _constants(self, before: object, after: object) -> None:
        if isinstance(before, str) and isinstance(after, str):
            self._texts(before, after, "strings")
        elif before != after or type(before) is not type(after):
            self._add("writes `{}` for `{}`", None, None, words=(repr(after)[:40], repr(before)[:40]))

    def _texts(self, before: str, after: str, noun: str) -> None:
        """Compare the words of two texts."""
        words, new_words = before.split(), after.split()
        for start, end, first, last in differing_parts(words, new_words):
            kind, changed = _changed_words(words[start:end], new_words[first:last], noun)
            self._add(kind, None, None, words=changed)

    def _within(self, old: ast.AST, new: ast.AST, compare: Callable[[], None]) -> None:
        """Compare parts of two nodes, which give the place of what has none itself."""
        placed = hasattr(old, "lineno") and hasattr(new, "lineno")
        self._places.append((span_of(old), span_of(new)) if placed else self._places[-1])
        compare()
        self._places.pop()

    def _add(
        self,
        kind: str,
        place: LineSpan | None,
        new_place: LineSpan | None,
        old: ast.AST | None = None,
        new: ast.AST | None = None,
        names: tuple[str, ...] = (),
        words: tuple[str, ...] = (),
    ) -> None:
        """Add a change: of the given lines, else of the nodes, else of the nodes around."""
        outer, new_outer = self._places[-1]
        is_gone, is_new = old is not None and new is None, new is not None and old is None
        place = place or _place_of(old) or LineSpan(outer.start, outer.start if is_new else outer.end)
        new_place = (
            new_place or _place_of(new) or LineSpan(new_outer.start, new_outer.start if is_gone else new_outer.end)
        )
        self.changes.append(FileChange(kind, place, new_place, words, names))

    def _noun(self, owner: ast.AST, field: str, node: ast.AST | None) -> str:
        """What a field holds, in the plural."""
        if field in _LINES_OF_CODE and node is not None:
            return _plural(node, [owner])
        noun = _NOUNS.get(field, field)
        return noun.format(_plural(owner, self._owners[:-1]))


def _docstring(node: ast.AST) -> tuple[Sequence[ast.AST], Sequence[ast.AST]]:
    """The docstring of a module or definition, if it has one, and its other statements."""
    body: Sequence[ast.stmt] = node.body  # type: ignore[attr-defined]
    has = bool(body) and is_docstring(body[0])
    return body[:has], body[has:]


def _value(statement: ast.AST) -> Any:
    """The value of a statement that is a constant; None for any other."""
    return getattr(getattr(statement, "value", None), "value", None)


def _keys(nodes: Sequence[ast.AST]) -> list[str]:
    """What nodes of two lists that belong together have in common: the name of a definition, any other node itself."""
    seen: Counter[str] = Counter()
    keys = []
    for node in nodes:
        if isinstance(node, DEFINITIONS):
            name = f"{type(node).__name__} {node.name}"
            seen[name] += 1
            keys.append(f"{name} {seen[name]}")
        else:
            keys.append(ast.dump(node) if isinstance(node, ast.AST) else repr(node))
    return keys


def _pairs(
    some: Iterable[int], others: Iterable[int], key: Callable[[int], object], new_key: Callable[[int], object]
) -> list[tuple[int, int]]:
    """Each of some numbers with the first of others that has the same key and no other partner."""
    free: dict[object, deque[int]] = {}
    for other in others:
        free.setdefault(new_key(other), deque()).append(other)
    return [(one, waiting.popleft()) for one in some if (waiting := free.get(key(one)))]


def _without(
    rest: Sequence[int], new_rest: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> tuple[list[int], list[int]]:
    """The numbers that have no partner."""
    gone, come = {one for one, _ in pairs}, {other for _, other in pairs}
    return [one for one in rest if one not in gone], [other for other in new_rest if other not in come]


def _alike(
    olds: Sequence[ast.AST],
    news: Sequence[ast.AST],
    rest: Sequence[int],
    new_rest: Sequence[int],
    home: Sequence[tuple[int, int]],
) -> list[tuple[int, int]]:
    """Pairs of nodes between the same neighbours that are alike: about the same thing, else of one type."""
    found: list[tuple[int, int]] = []
    for head in (_head, _source, _kind):
        keys = [
            {n: (bisect.bisect(gaps, n), type(nodes[n]), head(nodes[n])) for n in some}
            for nodes, some, gaps in (
                (olds, rest, [one for one, _ in home]),
                (news, new_rest, [other for _, other in home]),
            )
        ]
        found += _pairs(*_without(rest, new_rest, found), keys[0].__getitem__, keys[1].__getitem__)
    return found


def _head(node: ast.AST) -> str:
    """The part of a node that tells what it is about."""
    if isinstance(node, ast.ImportFrom):
        return repr([one.name for one in node.names])
    if isinstance(node, ast.Expr):
        return _head(node.value)
    if isinstance(node, ast.Call):
        return ast.dump(node.func)
    if isinstance(node, ast.Assign):
        return repr([*map(ast.dump, node.targets)])
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        return ast.dump(node.target)
    if isinstance(node, (ast.keyword, ast.arg)):
        return str(node.arg)
    return ast.dump(node)


def _source(node: ast.AST) -> str:
    """The module that names are imported from; of two other imports no two are alike."""
    if isinstance(node, ast.ImportFrom):
        return "." * node.level + (node.module or "")
    return str(id(node))


def _kind(node: ast.AST) -> str:
    """The type of a node. Imports of other names from other modules have nothing to do with each other."""
    return str(id(node)) if isinstance(node, IMPORTS) else type(node).__name__


def _bound(node: ast.AST, owner: ast.AST) -> tuple[str, ...]:
    """The names that a statement of a module, or an entry of an import, binds."""
    if isinstance(node, ast.alias):
        return (node.asname or node.name,)
    return tuple(sorted(bindings_of(node).binds)) if isinstance(owner, ast.Module) else ()


def _plural(node: ast.AST, owners: Sequence[ast.AST]) -> str:
    """What a statement is, in the plural, given the definitions around it. A function within a method counts as one."""
    if isinstance(node, FUNCTIONS):
        return "methods" if any(isinstance(owner, ast.ClassDef) for owner in owners) else "functions"
    if isinstance(node, ast.ClassDef):
        return "classes"
    if isinstance(node, ast.Module):
        return "files"
    if isinstance(node, IMPORTS):
        return "imports"
    if isinstance(node, ast.Expr):
        return "calls" if isinstance(node.value, ast.Call) else "expressions"
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if owners and isinstance(owners[-1], ast.ClassDef):
            return "class variables"
        return "assignments of attributes" if isinstance(targets[0], ast.Attribute) else "assignments"
    return f"`{type(node).__name__.lower()}` statements"


def _changed_words(gone: Sequence[str], come: Sequence[str], noun: str) -> tuple[str, tuple[str, ...]]:
    """What happens to words of a text, and these words. Many words are not named."""
    before, after = " ".join(gone), " ".join(come)
    signs, new_signs = _cut(before, after)
    if not re.search(r"[\w\s]", signs + new_signs):  # the words stay, and only signs differ
        gone, come = signs.split(), new_signs.split()
        before, after = signs, new_signs
    if len(gone) > MOST_WORDS or len(come) > MOST_WORDS or len(before) + len(after) > 80:
        return (
            f"{'leaves out words of' if not come else 'adds words to' if not gone else 'changes words of'} {noun}",
            (),
        )
    if not come:
        return f"leaves out `{{}}` in {noun}", (before,)
    return (f"writes `{{}}` for `{{}}` in {noun}", (after, before)) if gone else (f"adds `{{}}` in {noun}", (after,))


def _cut(before: str, after: str) -> tuple[str, str]:
    """Two texts without their common beginning and end."""
    start = len(os.path.commonprefix((before, after)))
    end = len(os.path.commonprefix((before[start:][::-1], after[start:][::-1])))
    return before[start : len(before) - end], after[start : len(after) - end]


MOST = 1000
"""Files with more changes are not told apart."""
_IMPORT = re.compile(r"^[ \t]*(?:from\s+\S+\s+import\s*(?:\([^)]*\)|[^(\n]*)|import\s[^\n]*)$", re.MULTILINE)
_EXPORTS = re.compile(r"^__all__\s*=\s*\[[^\]]*\]", re.MULTILINE)


def file_changes(path: str, old: str, new: str) -> list[FileChange]:
    """The changes from a generated file to its conversion, in order; none where a text is no Python, or has too many.

    Args:
        path: the file. The name of its folder is that of the model, which counts for nothing.
        old: its text on disk.
        new: the text of the conversion.
    """
    try:
        trees = tree_changes(old, new)
        if len(trees) > MOST:
            return []
        comments = _comments(old, new, trees)
    except UNPARSABLE:
        return []
    uses = [Counter(re.findall(r"\w+", _EXPORTS.sub("", _IMPORT.sub("", text)))) for text in (old, new)]
    found = [one for one in trees if not _follows(one, uses)] or trees
    model = os.path.basename(os.path.dirname(path))
    named = [_in_words(one, model) for one in found] + comments or [_layout(old, new)]
    return sorted(named, key=lambda one: one.old) if len(named) <= MOST else []


def _in_words(change: FileChange, model: str) -> FileChange:
    """A change with its words, in which the name of the model is `~`."""
    if not change.words:
        return change
    forms = sorted({re.escape(model), re.escape(model.replace("_", ""))}, key=len, reverse=True)
    name = re.compile("|".join(forms) if model else "(?!)", re.IGNORECASE)
    words = [name.sub(_unless_inside, word) for word in change.words]
    form = change.kind.format(*("…" for _ in words))
    return change._replace(kind=change.kind.format(*words), words=(), form=form)


def _unless_inside(name: re.Match[str]) -> str:
    """`~` for a name that is a word or begins a hump (`OptLayer`), and what stands there within another word (`option`)."""
    before, after = name.string[: name.start()][-1:], name.string[name.end() :][:1]
    is_inside = before.isalpha() and (name[0][0].islower() or (before.isupper() and name[0].isupper()))
    return name[0] if is_inside or after.islower() else "~"


def _follows(change: FileChange, uses: Sequence[Counter[str]]) -> bool:
    """Whether an import or a definition differs because its name is used in one of the texts alone.

    Args:
        uses: the words of both texts, without imports and `__all__`.
    """
    own = 0 if "import" in change.kind else 1
    names = [name.partition(".")[0] for name in change.names]
    return bool(names) and all(len({words[name] > own for words in uses}) == 2 for name in names)


def _comments(old: str, new: str, trees: Iterable[FileChange]) -> list[FileChange]:
    """The changes of comments, but for those that stand in or above what has come or gone."""
    if [one for one in old.split("\n") if "#" in one] == [one for one in new.split("\n") if "#" in one]:
        return []
    olds, news = comments_of(old), comments_of(new)
    gone = [with_comments(one.old, old) for one in trees if one.kind.startswith("leaves out")]
    come = [with_comments(one.new, new) for one in trees if one.kind.startswith("adds")]
    olds = [one for one in olds if not any(start <= one[0] < end for start, end in gone)]
    news = [one for one in news if not any(start <= one[0] < end for start, end in come)]
    blocks = matching_blocks([text for _, text in olds], [text for _, text in news])
    stays = {block.a + step for block in blocks for step in range(block.size)}
    stays_new = {block.b + step for block in blocks for step in range(block.size)}
    only_old = [one for at, one in enumerate(olds) if at not in stays]
    only_new = [one for at, one in enumerate(news) if at not in stays_new]
    texts, new_texts = {text for _, text in only_old}, {text for _, text in only_new}
    found = []
    for line, text in only_old:
        kind = "moves comments" if text in new_texts else "leaves out comments"
        found.append(FileChange(kind, LineSpan(line, line + 1), LineSpan(line, line)))
    found += [
        FileChange("adds comments", LineSpan(at, at), LineSpan(at, at + 1))
        for at, text in only_new
        if text not in texts
    ]
    return found


def with_comments(span: LineSpan, text: str) -> LineSpan:
    """A span with the comments directly above it."""
    lines = text.split("\n")
    start = span.start
    while start > 1 and lines[start - 2].lstrip().startswith("#"):
        start -= 1
    return LineSpan(start, span.end)


def _layout(old: str, new: str) -> FileChange:
    """The change of two texts with the same code and the same comments."""
    olds, news = old.splitlines(), new.splitlines()
    line = next((at for at, pair in enumerate(zip(olds, news), start=1) if pair[0] != pair[1]), len(olds) + 1)
    if olds == news:
        return FileChange("changes line ends", LineSpan(line, line), LineSpan(line, line))
    blank = _written(olds) == _written(news)
    kind = (
        "changes the layout of code"
        if not blank
        else f"{'leaves out' if len(olds) > len(news) else 'adds'} blank lines"
    )
    return FileChange(kind, LineSpan(line, line + 1), LineSpan(line, line + 1))


def _written(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line.strip()]
