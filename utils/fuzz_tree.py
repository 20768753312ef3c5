"""A tree of models for random edits: small models, those of this repository, or some of the published library."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fuzz_models import write_small

from modular_converter.check.run import CheckOptions, check
from modular_converter.settings.load import profile_settings


ZOO = Path(__file__).parents[1] / "models"
SETTINGS = '[tool.modular-converter]\nruff-config = "profile"\n'
CORPUS_BYTES = 150_000
"""Sources that one tree takes of the published library: more would make the edits fewer."""
_NEIGHBOUR = re.compile(r"(?:from \.\.|\bmodels\.)(\w+)\b")


@dataclass
class Tree:
    """A tree of models under edit."""

    root: Path
    random: random.Random
    cache: str
    programs: Path
    """The folder at the end of `PATH` in which a formatter may appear."""

    @classmethod
    def copied(cls, kind: str, folder: Path, programs: Path, seed: str) -> Tree:
        """A new tree in an empty folder; all is current and committed.

        Args:
            kind: `small`, `zoo`, or the folder of models of a library to take some from.
            folder: the folder.
            programs: see `Tree.programs`.
            seed: decides all edits.
        """
        tree = cls(folder / "tree", random.Random(seed), str(folder / "cache"), programs)
        models = tree.root / "models"
        if kind == "small":
            write_small(models)
        elif kind == "zoo":
            shutil.copytree(ZOO, models, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy_some(Path(kind), models, tree.random)
        (tree.root / "pyproject.toml").write_text(SETTINGS)
        tree.git("init", "-q", "-b", "main")
        check(CheckOptions(root=str(tree.root), fix=True))
        tree.git("add", "-A")
        tree.git("commit", "-qm", "first")
        tree.git("tag", "first")
        return tree

    def files(self, pattern: str) -> list[Path]:
        """The files of a pattern below the models, sorted; links and their contents are left out."""
        found = (self.root / "models").rglob(pattern)
        return sorted(path for path in found if path.is_file() and not path.is_symlink() and ".git" not in path.parts)

    def one(self, pattern: str) -> Path:
        """Any file of a pattern. Raises `LookupError` where there is none."""
        return self.random.choice(self.files(pattern))

    def git(self, *arguments: str) -> None:
        """Run git; a refusal is ignored."""
        options = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(self.root), *options, *arguments], capture_output=True, check=False)


def copy_some(library: Path, models: Path, chance: random.Random) -> None:
    """Copy models of a library, all that they build on, and its tables of names."""
    wanted: set[str] = set()
    for name in chance.sample(sorted(path.parent.name for path in library.glob("*/modular_*.py")), 40):
        more = wanted | set(_with_neighbours(library, name))
        if sum(_size(library / one) for one in more) <= CORPUS_BYTES:
            wanted = more
    for name in sorted(wanted):
        shutil.copytree(library / name, models / name, ignore=shutil.ignore_patterns("__pycache__"))
    for table in profile_settings().auto_tables:
        (models / table).parent.mkdir(exist_ok=True)
        shutil.copyfile(library / table, models / table)


def _with_neighbours(library: Path, name: str) -> Iterator[str]:
    """A model and the models that its modular file and theirs name."""
    waiting, seen = [name], {name}
    while waiting:
        here = waiting.pop()
        yield here
        text = "".join(path.read_text(encoding="utf-8") for path in sorted((library / here).glob("modular_*.py")))
        found = {one for one in _NEIGHBOUR.findall(text) if one != "auto" and (library / one).is_dir()}
        waiting += sorted(found - seen)
        seen |= found


def _size(folder: Path) -> int:
    return sum(os.path.getsize(path) for path in folder.glob("*.py"))
