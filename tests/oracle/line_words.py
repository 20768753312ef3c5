"""An oracle for the sources of lines: a generated line has no words but those of its source, names of models aside.

It knows nothing of how a conversion renames, merges and formats.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from modular_converter.provenance.generated import LineSource


MAY_DIFFER = frozenset(("super", "__class__", "self"))
"""Words that the converter writes by itself, in calls of `super()`."""


def words(text: str, models: list[str]) -> Counter[str]:
    """The words of a text without those of names of models, however they are written."""
    names = "|".join(model.replace("_", "_?") for model in sorted({*models}, key=len, reverse=True))
    text = re.sub(names, "@", text, flags=re.IGNORECASE)
    return Counter(re.findall(r"[\w@]+", text))


def made_by_itself(text: str) -> set[int]:
    """The lines that a conversion makes: imports, the notice on top, `pass`, blank lines."""
    lines = text.split("\n")
    found = {number for number, line in enumerate(lines, 1) if not re.search(r"\w", line) or line.strip() == "pass"}
    tree = ast.parse(text)
    for node in tree.body:
        is_protected = isinstance(node, (ast.If, ast.Try))
        if isinstance(node, (ast.Import, ast.ImportFrom)) or is_protected:
            found.update(range(node.lineno, (node.end_lineno or 0) + 1))
    first = tree.body[0].lineno if tree.body else len(lines)
    return found | set(range(1, first)) | set(_comments(text))


def _may_be_new(word: str, there: Counter[str]) -> bool:
    """Whether a word is the converter's own, or a name behind a longer prefix: `@VisionMLP` for `@MLP`, or that of a parent which
    stands beside its heir: `@MLPBase`.
    """
    prefixed = [one for one in there if one.startswith("@")]
    names = (word, word.replace("Base", "", 1))
    is_longer = word.startswith("@") and any(name.endswith(one[1:]) for one in prefixed for name in names)
    return word in MAY_DIFFER or names[1] in there or is_longer


def _comments(text: str) -> Iterator[int]:
    """Comments at the top level stand above imports or definitions, wherever the formatter puts them."""
    lines = iter(text.splitlines(keepends=True))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type == tokenize.COMMENT and token.start[1] == 0:
            yield token.start[0]


def wrong_lines(
    text: str, sources: list[LineSource], models: list[str], bound: frozenset[str] = frozenset()
) -> Iterator[str]:
    """What is wrong with the sources that are told for the lines of a generated file."""
    may_be_made = made_by_itself(text)
    for number, (line, source) in enumerate(zip(text.split("\n"), sources), 1):
        if not source.places:
            if number not in may_be_made:
                yield f"{number}: {line!r} is said to be made by the converter"
            continue
        there: Counter[str] = Counter()
        for place in source.places:
            lines = Path(place.path).read_text(encoding="utf-8-sig").split("\n")
            assert 1 <= place.first <= place.last <= len(lines)
            there += words("\n".join(lines[place.first - 1 : place.last]), models)
        new = {word for word in words(line, models) - there if word not in bound and not _may_be_new(word, there)}
        if new:
            yield f"{number}: {line!r} has {new}, which {source.places} have not"
