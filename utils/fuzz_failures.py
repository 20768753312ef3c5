"""Random edits that are states of git, formatters, and failures of `--write`: killed, without space, overtaken by edits."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from fuzz_tree import SETTINGS, Tree

from modular_converter.check.run import CheckOptions, check
from modular_converter.convert.batch import Run
from modular_converter.convert.emit.formatters import own_ruff
from modular_converter.files import write as atomic_write


RUFF = """\
#!/bin/sh
case "$1" in
    --version) echo "ruff {version}";;
    format) exec {real} "$@" --config line-length={length};;
    *) exec {real} "$@";;
esac
"""


def restore(tree: Tree) -> None:
    """The tree of the last commit."""
    _unlock(tree)
    tree.git("checkout", "-q", "-f", ".")
    tree.git("clean", "-q", "-ffdx")


def begin_again(tree: Tree) -> None:
    """The first commit, and no formatter but the usual one."""
    _unlock(tree)
    tree.git("merge", "--abort")
    tree.git("checkout", "-q", "-f", "first")
    tree.git("clean", "-q", "-ffdx")
    (tree.programs / "ruff").unlink(missing_ok=True)


def _unlock(tree: Tree) -> None:
    """Give git back what an edit has taken from it."""
    away = tree.root.parent / "git"
    if away.exists():
        (tree.root / ".git").unlink(missing_ok=True)
        away.rename(tree.root / ".git")
    (tree.root / ".git/index.lock").unlink(missing_ok=True)


def commit(tree: Tree) -> None:
    """A commit of all there is."""
    tree.git("add", "-A")
    tree.git("commit", "-qm", "edit")


def merge(tree: Tree) -> None:
    """A merge of two branches that change the same line; mostly it leaves the marks of a conflict."""
    path = tree.one("mod*.py")
    text = path.read_text(errors="replace")
    tree.git("checkout", "-qb", "side")
    for name, number in (("side", 1), ("main", 2)):
        tree.git("checkout", "-qB", name, "first") if name == "main" else None
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text}VALUE = {number}\n")
        commit(tree)
    tree.git("merge", "-q", "side")
    tree.git("branch", "-qD", "side")


def move_git(tree: Tree) -> None:
    """The repository moves out of the tree, with a file in its place as in work trees; or only away."""
    inside, away = tree.root / ".git", tree.root.parent / "git"
    if inside.is_dir():
        inside.rename(away)
        if tree.random.random() < 0.5:
            inside.write_text(f"gitdir: {away}\n")


def lock_index(tree: Tree) -> None:
    """Another git is at work, or was killed."""
    (tree.root / ".git/index.lock").write_text("")


def nest(tree: Tree) -> None:
    """A model becomes a repository of its own."""
    tree.git("init", "-q", str(tree.one("modular_*.py").parent))


def detach(tree: Tree) -> None:
    """No branch is checked out."""
    tree.git("checkout", "-q", "--detach")


def hide(tree: Tree) -> None:
    """Means of a repository to hide changes of a file: flags of the index, ignore rules, attributes."""
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


def change_ruff(tree: Tree) -> None:
    """Another ruff appears at the end of PATH, which formats otherwise, or is replaced by one of the same size."""
    path = tree.programs / "ruff"
    version, length = tree.random.choice(["0.14.10", "0.14.9", "99.1.0"]), tree.random.choice([60, 70, 80])
    path.write_text(RUFF.format(version=version, length=length, real=own_ruff()))
    path.chmod(0o755)


def change_version(tree: Tree) -> None:
    """The project asks for a version of ruff, often for the one on PATH."""
    version = tree.random.choice(["0.14.10", "0.14.9", "99.1.0", "99.1.0"])
    lines = [f'formatter-version = "{version}"', f'[tool.ruff]\nrequired-version = "=={version}"']
    (tree.root / "pyproject.toml").write_text(f"{SETTINGS}{tree.random.choice(lines)}\n")


def fix(tree: Tree) -> None:
    """`--write`, with or without a cache."""
    check(CheckOptions(root=str(tree.root), fix=True, cache=tree.random.choice([None, tree.cache])))


def fix_in_part(tree: Tree) -> None:
    """`--write` while one folder cannot be written."""
    folder = tree.one("modular_*.py").parent
    folder.chmod(0o555)
    try:
        fix(tree)
    finally:
        folder.chmod(0o755)


def fix_and_kill(tree: Tree) -> None:
    """`--write` is killed at one of its first writes, before or after the file has its name."""
    left, before = tree.random.randrange(1, 6), tree.random.random() < 0.5
    replace = os.replace

    def killing(source: str, target: str, **folders: int | None) -> None:
        nonlocal left
        left -= 1
        if left or not before:
            replace(source, target, **folders)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    _in_child(tree, lambda: setattr(os, "replace", killing))


def fix_without_space(tree: Tree) -> None:
    """The disk is full after some writes of `--write`, its cache included."""
    left = tree.random.randrange(5)
    write = atomic_write._replace

    def failing(name: str, content: bytes, folder: atomic_write.Folder) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(name, content, folder)

    _in_child(tree, lambda: setattr(atomic_write, "_replace", failing))


def fix_during(tree: Tree, edit: Callable[[Tree], None]) -> None:
    """An edit is made while `--write` has converted and not yet formatted."""
    batch = Run._format

    def overtaken(run: Run, *arguments: object) -> object:
        Run._format = batch  # type: ignore[method-assign]
        edit(tree)
        return batch(run, *arguments)  # type: ignore[arg-type]

    _in_child(tree, lambda: setattr(Run, "_format", overtaken))


def _in_child(tree: Tree, prepare: Callable[[], None]) -> None:
    """Run `--write` with a cache in a process of its own, whose failure is part of the plan."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            prepare()
            check(CheckOptions(root=str(tree.root), fix=True, cache=tree.cache))
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def damage_cache(tree: Tree) -> None:
    """A bit of each cache file changes, or the cache is lost."""
    if tree.random.random() < 0.2:
        shutil.rmtree(tree.cache, ignore_errors=True)
    for path in sorted(Path(tree.cache).glob("*.json")):
        content = bytearray(path.read_bytes())
        content[tree.random.randrange(len(content))] ^= 1
        path.write_bytes(content)
