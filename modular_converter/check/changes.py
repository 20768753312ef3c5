"""What differs between a generated file and its conversion, each place with its kind: the change without its names.

Two files differ in the same way if their changes have the same kind: a decorator of a method is left out, whatever the
decorator and the method are called; a statement moves; `hidden` is written for `states`. So a kind says where in the
syntax tree something is and what happens to it, and holds words of the text only where the words are what changes.
"""

from __future__ import annotations

import io
import os
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from modular_converter.check.tree_changes import LineSpan, TreeChange, tree_changes
from modular_converter.findings import UNPARSABLE
from modular_converter.reporting.diffs import matching_blocks


MOST = 1000
"""Files with more changes are not told apart."""
_IMPORT = re.compile(r"^[ \t]*(?:from\s+\S+\s+import\s*(?:\([^)]*\)|[^(\n]*)|import\s[^\n]*)$", re.MULTILINE)
_EXPORTS = re.compile(r"^__all__\s*=\s*\[[^\]]*\]", re.MULTILINE)


class FileChange(NamedTuple):
    """A place where a generated file differs from its conversion."""

    kind: str
    """What the conversion does, without names: "leaves out decorators of methods"."""
    old: LineSpan
    """The lines on disk; an empty span stands before its line."""
    new: LineSpan
    """The lines of the conversion."""
    form: str = ""
    """The kind without the words of the text that it holds, too: "writes `…` for `…`"; "" for a kind without any."""


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
    except (*UNPARSABLE, tokenize.TokenError):
        return []
    uses = [Counter(re.findall(r"\w+", _EXPORTS.sub("", _IMPORT.sub("", text)))) for text in (old, new)]
    found = [one for one in trees if not _follows(one, uses)] or trees
    model = os.path.basename(os.path.dirname(path))
    named = [_in_words(one, model) for one in found] + comments or [_layout(old, new)]
    return sorted(named, key=lambda one: one.old) if len(named) <= MOST else []


def _in_words(change: TreeChange, model: str) -> FileChange:
    """A change with its words, in which the name of the model is `~`."""
    if not change.words:
        return FileChange(change.kind, change.old, change.new)
    forms = sorted({re.escape(model), re.escape(model.replace("_", ""))}, key=len, reverse=True)
    name = re.compile("|".join(forms) if model else "(?!)", re.IGNORECASE)
    words = [name.sub(_unless_inside, word) for word in change.words]
    form = change.kind.format(*("…" for _ in words))
    return FileChange(change.kind.format(*words), change.old, change.new, form)


def _unless_inside(name: re.Match[str]) -> str:
    """`~` for a name that is a word or begins a hump (`OptLayer`), and what stands there within another word (`option`)."""
    before, after = name.string[: name.start()][-1:], name.string[name.end() :][:1]
    is_inside = before.isalpha() and (name[0][0].islower() or (before.isupper() and name[0].isupper()))
    return name[0] if is_inside or after.islower() else "~"


def _follows(change: TreeChange, uses: Sequence[Counter[str]]) -> bool:
    """Whether an import or a definition differs because its name is used in one of the texts alone.

    Args:
        change: the change.
        uses: the words of both texts, without imports and `__all__`.
    """
    own = 0 if "import" in change.kind else 1
    names = [name.partition(".")[0] for name in change.names]
    return bool(names) and all(len({words[name] > own for words in uses}) == 2 for name in names)


def _comments(old: str, new: str, trees: Iterable[TreeChange]) -> list[FileChange]:
    """The changes of comments, but for those that stand in or above what has come or gone."""
    if [one for one in old.split("\n") if "#" in one] == [one for one in new.split("\n") if "#" in one]:
        return []  # the tokenizer takes longer than all else
    olds, news = _comments_of(old), _comments_of(new)
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


def _comments_of(text: str) -> list[tuple[int, str]]:
    """The comments with their lines."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [(one.start[0], one.string.lstrip("#").strip()) for one in tokens if one.type == tokenize.COMMENT]


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
