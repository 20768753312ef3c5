"""Compare the verdicts of the check with a cache, without one, and of a fresh process elsewhere, after random edits.

    python utils/fuzz_check.py --edits 10000 --seed 1 [--models FOLDER]

Edits change files, links, folders, settings, the formatter and the state of git; some are failures of `--fix`. Verdicts
hold the exit code and all findings. Where the check finds nothing, each file is converted alone and compared, too.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from modular_converter import convert_file
from modular_converter.check.run import CheckOptions, check
from modular_converter.diagnostics import ConversionError


MODELS = Path(__file__).parents[1] / "models"
SETTINGS = '[tool.modular-converter]\nruff-config = "profile"\n'


@dataclass
class Tree:
    """A tree of models under edit."""

    root: Path
    random: random.Random
    cache: str

    def files(self, pattern: str) -> list[Path]:
        """The files of a pattern below the models, sorted; links and their contents are left out."""
        found = (self.root / "models").rglob(pattern)
        return sorted(path for path in found if path.is_file() and not path.is_symlink())

    def one(self, pattern: str) -> Path:
        """Any file of a pattern. Raises `LookupError` where there is none."""
        return self.random.choice(self.files(pattern))

    def git(self, *arguments: str) -> None:
        """Run git; what it refuses is left undone."""
        options = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(self.root), *options, *arguments], capture_output=True, check=False)


def change_number(tree: Tree) -> None:
    """Another number in any source."""
    path = tree.one("*.py")
    text = path.read_bytes().decode("utf-8", "replace")
    numbers = list(re.finditer(r"\b\d\b", text))
    if numbers:
        match = tree.random.choice(numbers)
        path.write_text(text[: match.start()] + str(tree.random.randrange(10)) + text[match.end() :])


def rename_class(tree: Tree) -> None:
    """A class of a neighbour or a modular file gets another name, which mostly breaks heirs."""
    path = tree.one("mod*.py")
    text = path.read_bytes().decode("utf-8", "replace")
    names = re.findall(r"(?m)^class (\w+)", text)
    if names:
        name = tree.random.choice(names)
        path.write_text(re.sub(rf"\b{name}\b", f"{name}X", text))


def append(tree: Tree) -> None:
    """Lines at the end of any file, some of which are no Python."""
    line = tree.random.choice([b"# by hand\n", b"x = 1\n", b"class (\n", b"\xff\n", b"\r\n", b"\0"])
    with open(tree.one("*.py"), "ab") as file:
        file.write(line)


def remove(tree: Tree) -> None:
    """Any file, or a whole model."""
    path = tree.one("*.py")
    if tree.random.random() < 0.2:
        shutil.rmtree(path.parent)
    else:
        path.unlink()


def copy_over(tree: Tree) -> None:
    """A file takes the content of another one."""
    shutil.copyfile(tree.one("*.py"), tree.one("*.py"))


def package(tree: Tree) -> None:
    """An `__init__.py` comes or goes: imports get another meaning."""
    path = tree.random.choice([tree.root, tree.root / "models", tree.one("*.py").parent]) / "__init__.py"
    path.unlink() if path.exists() else path.write_text("")


def link(tree: Tree) -> None:
    """A link beside a model, most of which lead nowhere."""
    path = tree.one("*.py").parent / f"link{tree.random.randrange(5)}"
    with contextlib.suppress(FileExistsError):
        path.symlink_to(tree.random.choice(["nowhere", path.name, "x" * 300, "..", ".", "/dev/null", "../..", "/"]))


def link_model(tree: Tree) -> None:
    """A model moves to a store, a hidden folder or an output folder, with a link in its place."""
    folder = tree.one("modular_*.py").parent
    store = tree.root / tree.random.choice(["store", "models/.hidden", "models/store", "build"]) / folder.name
    if not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, store)
        folder.symlink_to(os.path.relpath(store, folder.parent))


def link_file(tree: Tree) -> None:
    """A file becomes a link to a copy of itself, or to another file."""
    path, other = tree.one("*.py"), tree.one("*.py")
    path.unlink()
    path.symlink_to(os.path.relpath(other, path.parent))


def set_project(tree: Tree) -> None:
    """Settings of the project, some of which are wrong."""
    lines = ['formatter = "none"', "strict = true", "max-file-bytes = 5000", 'kinds = { MLP = "layers" }', "wrong = 1"]
    lines += ["", "", "", 'banner-root = "elsewhere"', 'kinds = { MLP = "modular" }', "workers = 2"]
    (tree.root / "pyproject.toml").write_text(SETTINGS + tree.random.choice(lines) + "\n")


def set_ruff(tree: Tree) -> None:
    """The project's own formatter settings, also those of one model."""
    (tree.root / "pyproject.toml").write_text("[tool.modular-converter]\n")
    folder = tree.random.choice([tree.root, tree.root / "models", tree.one("modular_*.py").parent])
    text = tree.random.choice(
        ["line-length = 60\n", "line-length = 110\n", "[format]\nquote-style = 'single'\n", "x = ("]
    )
    (folder / "ruff.toml").write_text(text)


def restore(tree: Tree) -> None:
    """The tree of the last commit."""
    tree.git("checkout", "-q", "-f", ".")
    tree.git("clean", "-q", "-ffdx")


def begin_again(tree: Tree) -> None:
    """The first commit."""
    tree.git("checkout", "-q", "-f", "first")
    tree.git("clean", "-q", "-ffdx")


def commit(tree: Tree) -> None:
    """A commit of all there is."""
    tree.git("add", "-A")
    tree.git("commit", "-qm", "edit")


def fix(tree: Tree) -> None:
    """`--fix`, with or without a cache."""
    check(CheckOptions(root=str(tree.root), fix=True, cache=tree.random.choice([None, tree.cache])))


def fix_in_part(tree: Tree) -> None:
    """`--fix` while one folder cannot be written."""
    folder = tree.one("modular_*.py").parent
    folder.chmod(0o555)
    try:
        fix(tree)
    finally:
        folder.chmod(0o755)


def damage_cache(tree: Tree) -> None:
    """A byte of a cache file changes, or the cache is lost."""
    for path in sorted(Path(tree.cache).glob("*.json")):
        content = bytearray(path.read_bytes())
        content[tree.random.randrange(len(content))] ^= 1
        path.write_bytes(content)


EDITS: dict[Callable[[Tree], None], int] = {
    change_number: 12,
    rename_class: 4,
    append: 4,
    remove: 3,
    copy_over: 2,
    package: 2,
    link: 3,
    link_model: 2,
    link_file: 2,
    set_project: 3,
    set_ruff: 3,
    restore: 6,
    begin_again: 4,
    commit: 2,
    fix: 10,
    fix_in_part: 2,
    damage_cache: 1,
}


def verdict(root: Path, cache: str | None) -> list[str]:
    """The exit code and the errors of a check, with paths relative to the tree."""
    found = check(CheckOptions(root=str(root), cache=cache, errors_only=True))
    errors = sorted(repr(one) for one in found.diagnostics if one.is_error)
    return [str(found.exit_code), *(one.replace(str(root), "ROOT") for one in errors)]


def fresh_verdict(root: Path, elsewhere: Path) -> list[str]:
    """The verdict of a new process about a copy in another folder."""
    copy = elsewhere / "copy"
    shutil.copytree(root, copy, symlinks=True)
    try:
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import fuzz_check, pathlib;"
        code += "print(*map(ascii, fuzz_check.verdict(pathlib.Path(sys.argv[1]), None)), sep='\\n')"
        done = subprocess.run([sys.executable, "-c", code, str(copy)], capture_output=True, text=True, check=False)
        return done.stdout.splitlines() or [done.stderr]
    finally:
        shutil.rmtree(copy)


def stale_files(tree: Tree) -> Iterator[str]:
    """The generated files that differ from those of each modular file converted alone."""
    for modular in tree.files("modular_*.py"):
        conversion = convert_file(modular)
        for path, text in conversion.files.items():
            if not os.path.isfile(path) or Path(path).read_bytes() != text.encode():
                yield path


@dataclass
class Figures:
    """What a run of edits has shown."""

    edits: Counter[str] = field(default_factory=Counter)
    exit_codes: Counter[str] = field(default_factory=Counter)
    fresh: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        codes = ", ".join(f"{number} with exit code {code}" for code, number in sorted(self.exit_codes.items()))
        return (
            f"{self.edits.total()} edits, {self.exit_codes.total()} comparisons with a cache and without ({codes}), "
            f"{self.fresh} with a fresh process, {len(self.failures)} failures"
        )


def compare(tree: Tree, elsewhere: Path, figures: Figures, *, fresh: bool) -> None:
    """Compare the verdicts about a tree as it is."""
    warm, cold = verdict(tree.root, tree.cache), verdict(tree.root, None)
    figures.exit_codes[cold[0]] += 1
    if warm != cold:
        figures.failures.append(f"warm {warm}\n  cold {cold}")
    if fresh:
        figures.fresh += 1
        if (other := fresh_verdict(tree.root, elsewhere)) != [ascii(line) for line in cold]:
            figures.failures.append(f"cold {cold}\n  fresh {other}")
    if cold[0] == "0":
        figures.failures += (f"stale with exit code 0: {path}" for path in stale_files(tree))


def fuzz(models: Path, edits: int, seed: int, fresh_every: int = 10) -> Figures:
    """Edit a copy of a folder of models at random, and compare the verdicts after each edit."""
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="fuzz-check-") as folder:
        root, elsewhere = Path(folder, "tree"), Path(folder, "elsewhere")
        elsewhere.mkdir()
        shutil.copytree(models, root / "models", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "pyproject.toml").write_text(SETTINGS)
        tree = Tree(root, random.Random(seed), os.path.join(folder, "cache"))
        tree.git("init", "-q", "-b", "main")
        fix(tree)
        commit(tree)
        tree.git("tag", "first")
        for number in range(1, edits + 1):
            edit = tree.random.choices(list(EDITS), list(EDITS.values()))[0]
            try:
                edit(tree)
            except (LookupError, OSError, ConversionError):
                restore(tree)
            figures.edits[edit.__name__] += 1
            before = len(figures.failures)
            compare(tree, elsewhere, figures, fresh=number % fresh_every == 0)
            for failure in figures.failures[before:]:
                print(f"seed {seed}, edit {number} ({edit.__name__}): {failure}", flush=True)
    return figures


@click.command()
@click.option("--edits", default=100, show_default=True, help="How many edits to make.")
@click.option("--seed", type=int, help="The seed of the edits; another one in each run when left out.")
@click.option("--models", type=click.Path(exists=True, path_type=Path), default=MODELS, help="The folder to copy.")
@click.option("--fresh-every", default=10, show_default=True, help="After how many edits to start a fresh process.")
def main(edits: int, seed: int | None, models: Path, fresh_every: int) -> None:
    """Compare the verdicts of the check after random edits; exit with 1 where they differ."""
    seed = random.randrange(1_000_000) if seed is None else seed
    print(f"seed {seed}", flush=True)
    start = time.perf_counter()
    figures = fuzz(models, edits, seed, fresh_every)
    print(f"{figures}, {time.perf_counter() - start:.0f} s")
    sys.exit(bool(figures.failures))


if __name__ == "__main__":
    main()
