"""Random edits of a tree of models: files, links, folders, settings, the formatter, git, and failures of `--fix`."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz_models import write_small

from modular_converter.check.run import CheckOptions, check


SETTINGS = '[tool.modular-converter]\nruff-config = "profile"\n'


@dataclass
class Tree:
    """A tree of models under edit."""

    root: Path
    random: random.Random
    cache: str

    @classmethod
    def copied(cls, models: Path | None, folder: Path, seed: int) -> Tree:
        """A new tree in an empty folder: a copy of some models, or small ones; all is current and committed."""
        tree = cls(folder / "tree", random.Random(seed), str(folder / "cache"))
        if models is None:
            write_small(tree.root / "models")
        else:
            shutil.copytree(models, tree.root / "models", ignore=shutil.ignore_patterns("__pycache__"))
        (tree.root / "pyproject.toml").write_text(SETTINGS)
        tree.git("init", "-q", "-b", "main")
        fix(tree)
        commit(tree)
        tree.git("tag", "first")
        return tree

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


def hide(tree: Tree) -> None:
    """What a repository can say about a file to hide its changes: flags of the index, ignore rules, attributes."""
    path = tree.one("*.py")
    name = path.relative_to(tree.root).as_posix()
    match tree.random.randrange(4):
        case 0:
            tree.git("update-index", "--assume-unchanged", name)
        case 1:
            tree.git("update-index", "--skip-worktree", name)
        case 2:
            tree.git("rm", "-q", "--cached", name)
            (tree.root / ".gitignore").write_text(f"{name}\n")
        case _:
            (tree.root / ".gitattributes").write_text("*.py text eol=crlf\n")


def settings_beside(tree: Tree) -> None:
    """Files of settings in the folder of one model, or links with their names."""
    path = tree.one("modular_*.py").parent / tree.random.choice(["pyproject.toml", ".ruff.toml", "ruff.toml"])
    texts = [
        "",
        "[tool.black]\n",
        "[tool.modular-converter]\n",
        "[tool.ruff]\nline-length = 50\n",
        "line-length = 50\n",
    ]
    path.unlink(missing_ok=True)
    if tree.random.random() < 0.2:
        path.symlink_to(tree.random.choice(["nowhere", path.name, "/dev/null", "../../pyproject.toml"]))
    else:
        path.write_text(tree.random.choice(texts))


def special(tree: Tree) -> None:
    """A pipe, a folder or a file without rights in the place of a file."""
    path = tree.one("*.py")
    path.unlink()
    match tree.random.randrange(3):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case _:
            path.write_text("x = 1\n")
            path.chmod(0)


def same_size_and_time(tree: Tree) -> None:
    """Another content of the same size, with the times of before."""
    path = tree.one("*.py")
    facts, content = path.stat(), bytearray(path.read_bytes())
    if content:
        content[tree.random.randrange(len(content))] ^= 1
        path.write_bytes(content)
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


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
    hide: 2,
    settings_beside: 2,
    special: 1,
    same_size_and_time: 4,
}
