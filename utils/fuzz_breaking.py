"""Compare the short ways of `--breaking` with the whole ones: `python utils/fuzz_breaking.py 300 --seed 1`.

Each edit changes a file of the installed transformers from which modular files inherit, in memory. The short way converts only
the heirs that read what differs, and merges only the classes that it reaches; models that read nothing of it are not read.
The whole way converts all heirs. Their texts and errors have to be the same, and the facts of a model that is not read have
to be those before the edit. Files with more than `--most` heirs are left out.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import NamedTuple

from marked_pages import write_outcomes


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from modular_converter.breaking.compare import changes_of_model  # noqa: E402
from modular_converter.breaking.older import tree_at  # noqa: E402
from modular_converter.breaking.unread import UnreadDefinitions  # noqa: E402
from modular_converter.convert.batch import Run, without_collector  # noqa: E402
from modular_converter.convert.inherit.unchanged_classes import UnchangedClasses  # noqa: E402
from modular_converter.convert.schedule import Readings, heirs_of, required_files  # noqa: E402
from modular_converter.convert.source.library import Library  # noqa: E402
from modular_converter.files.arguments import ALL, select_files  # noqa: E402
from modular_converter.findings import Conversion  # noqa: E402


def main() -> None:
    """Try random edits; exits with 1 if one has another answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=12, help="heirs of a file that is edited")
    parser.add_argument("--update", action="store_true", help="put the figures into docs/figures/change.md")
    given = parser.parse_args()
    spec = importlib.util.find_spec("transformers")
    assert spec is not None and spec.origin is not None, "transformers is not installed"
    library = _TheLibrary(os.path.dirname(spec.origin))
    files = library.neighbours(given.most)
    outcomes: Counter[str] = Counter()
    for number in range(1, given.number + 1):
        chance = random.Random(f"{given.seed}:{number}")
        path = chance.choice(files)
        with open(path, encoding="utf-8") as file:
            kind, edited = edit(file.read(), chance)
        outcome = library.outcome(path, edited)
        outcomes[outcome.partition(":")[0]] += 1
        if outcome.startswith("wrong"):
            print(number, path, kind, outcome, flush=True)
        if number % 10 == 0 or number == given.number:
            print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())), flush=True)
    if given.update:
        write_outcomes("short", "edits", f"seed {given.seed}, transformers {version('transformers')}", outcomes)
    sys.exit(outcomes["wrong"] > 0)


class _TheLibrary:
    """The installed transformers."""

    def __init__(self, package: str) -> None:
        selection = select_files((ALL,), package=None, root=package, overrides={"workers": 1})
        self.models, self.settings = selection.models or "", selection.settings.with_any_formatter
        self.disk = Library(self.settings)
        self.required = {one: required_files(one, self.disk) for one in selection.paths}

    @functools.cached_property
    def _heirs(self) -> dict[str, Sequence[str]]:
        return {}

    def heirs(self, path: str) -> Sequence[str]:
        """The modular files that take from a file, directly or not."""
        if path not in self._heirs:
            first = [one for one, files in self.required.items() if path in files]
            found = (heirs_of(one, self.required, self.settings) for one in first)
            self._heirs[path] = sorted(frozenset().union(*found))
        return self._heirs[path]

    def neighbours(self, most: int) -> Sequence[str]:
        """The files that are edited."""
        files = {one for some in self.required.values() for one in some if one.startswith(self.models)}
        return sorted(one for one in files if os.path.isfile(one) and len(self.heirs(one)) <= most)

    @without_collector()
    def outcome(self, path: str, edited: str) -> str:
        """What an edit of a file leads to, by both ways."""
        overlay = {path: edited}
        whole = Run(self.settings, dict(overlay), workers=1).convert(self.heirs(path))
        now = Library(self.settings, dict(overlay))
        stale = Readings(self.required, {path}, {path: self.disk.text(path)}, now)
        stale.unchanged_classes = UnchangedClasses(stale.older, {os.path.dirname(path)})
        known = stale.current(self.heirs(path))
        short = Run(self.settings, dict(overlay), workers=1, stale=stale).convert(self.heirs(path), known)
        for one, other in zip(whole, short):
            if self._told(one) != self._told(other):
                return f"wrong: {one.path} is converted otherwise"
        texts = overlay | {file: text for one in whole for file, text in one.files.items()}
        if wrong := self._wrongly_unread(path, texts):
            return f"wrong: something of {wrong} is read"
        return "with errors" if any(one.failed for one in whole) else "converted"

    def _told(self, one: Conversion) -> tuple[Mapping[str, str], set[tuple[str, str, int]]]:
        """The files of a conversion that differ from those on disk, and its errors."""
        errors = {(it.rule.code, it.message, it.location.line) for it in one.findings if it.is_error}
        return {file: text for file, text in one.files.items() if text != self.disk.text_if_readable(file)}, errors

    def _wrongly_unread(self, path: str, texts: Mapping[str, str]) -> str:
        """A model that counts as one that reads nothing of what differs, and has changed; "" for none."""
        old, new = (tree_at(self.models, self.settings, one) for one in ({}, texts))
        unread = UnreadDefinitions(old, new)
        for model in sorted({os.path.basename(os.path.dirname(one)) for one in (path, *self.heirs(path))}):
            before = old.facts(model)
            names = [os.path.relpath(one, os.path.dirname(self.models)) for one in before.reads]
            reads = {one: old.hash(one) for one in names}
            differs = any(new.hash(one) != given for one, given in reads.items())
            if differs and unread.by(model, reads) and changes_of_model(model, before, new.facts(model)):
                return model
        return ""


class _Edit(NamedTuple):
    """A kind of edit."""

    name: str
    pattern: str
    """What is looked for, of which one place is chosen."""
    replaced: Callable[[re.Match[str], str, random.Random], str]
    """The new text, from the place and the old text."""


def _exchanged(new: str) -> Callable[[re.Match[str], str, random.Random], str]:
    """Exchanges one place."""
    return lambda found, text, chance: text[: found.start()] + found.expand(new) + text[found.end() :]


def _everywhere(found: re.Match[str], text: str, chance: random.Random) -> str:
    return re.sub(rf"\b{found[1]}\b", f"{found[1]}_more", text)


def _other_base(found: re.Match[str], text: str, chance: random.Random) -> str:
    above = re.findall(r"^class (\w+)", text[: found.start()], re.MULTILINE)
    return text[: found.start(2)] + chance.choice([*above, "nn.Module", f"{found[2]}, object"]) + text[found.end(2) :]


def _edit(name: str, pattern: str, new: str) -> _Edit:
    return _Edit(name, pattern, _exchanged(new))


EDITS = (
    _Edit("member renamed", r"self\.(\w+)", _everywhere),
    _Edit("definition renamed", r"^(?:class|def) (\w+)", _everywhere),
    _edit("parameter added", r"(def \w+\(\s*self)\b", r"\1, more"),
    _edit("parameter of a function added", r"^(def \w+\()(?=\w)", r"\1more, "),
    _edit("default", r"= (\d+)\b", r"= 1\1"),
    _edit("default of another kind", r"= (None|True|False)\b", r"= 17"),
    _edit("new class", r"\n\n\n(?=class |def |@)", "\n\n\nclass LlamaMore:\n    more = 1\n\n\n"),
    _edit("new function that a class calls", r"\n\n\n(class \w+[^\n]*:)\n", "\n\n\ndef more():\n    return 1\n\n\n\\1\n    more = more()\n"),
    _edit("line removed", r"^ +[^\s\"'#][^\n]*\n", ""),
    _edit("line doubled", r"^( +(?:self\.|return )[^\n(\[{]*\n)", r"\1\1"),
    _edit("member added", r"^(    def \w+\(self)", r"    def more(self):\n        return 1\n\n\1"),
    _edit("variable added", r"^(class \w+[^\n]*:\n)", r"\1    more = 1\n"),
    _Edit("base", r"^class (\w+)\(([\w.]+)\)", _other_base),
    _edit("import removed", r"^from [^\n(]+\n", ""),
    _edit("import added", r"^(from \.[^\n]+\n)", r"from ...activations import ACT2FN as MORE\n\1"),
    _edit("import by another name", r"^(from [^\n(]+ import )(\w+)\n", r"\1\2 as \2More\n"),
    _edit("decorator removed", r"^ *@[^\n(]+\n", ""),
    _edit("statement between", r"\n\n\n(?=class |def )", "\n\n\nMORE = [1]\nMORE.append(2)\n\n\n"),
    _edit("word of a docstring", r"(?<=`)(\w+)(?=`,? ?\(?\*optional)", r"\1_more"),
    _edit("operator", r" \+ ", " - "),
)  # fmt: skip


def edit(text: str, chance: random.Random) -> tuple[str, str]:
    """A random edit of a text that leaves it Python: its kind, and the new text."""
    while True:
        kind = chance.choice(EDITS)
        places = [*re.finditer(kind.pattern, text, re.MULTILINE)]
        new = kind.replaced(chance.choice(places), text, chance) if places else text
        try:
            ast.parse(new)
        except SyntaxError:
            continue
        if new != text:
            return kind.name, new


if __name__ == "__main__":
    main()
