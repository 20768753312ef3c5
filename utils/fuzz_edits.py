"""Random edits of a tree of models: its files, links, folders and settings; `EDITS` lists them with all others."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable

from fuzz_failures import (
    begin_again,
    change_ruff,
    change_version,
    commit,
    damage_cache,
    detach,
    fix,
    fix_and_kill,
    fix_during,
    fix_in_part,
    fix_without_space,
    hide,
    lock_index,
    merge,
    move_git,
    nest,
    restore,
)
from fuzz_tree import SETTINGS, Tree


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


def copy_model(tree: Tree) -> None:
    """A model once more, under another name, or deeper."""
    folder = tree.one("modular_*.py").parent
    copy = tree.root / "models" / tree.random.choice(["copy", "deep/copy", f"{folder.name}_copy"])
    if not copy.exists():
        shutil.copytree(folder, copy, symlinks=True)


def rename_model(tree: Tree) -> None:
    """The folder of a model gets another name, its files do not."""
    folder = tree.one("*.py").parent
    other = folder.with_name(tree.random.choice(["renamed", folder.name.upper(), "build", ".renamed", "ren amed"]))
    if not other.exists():
        folder.rename(other)


def silence(tree: Tree) -> None:
    """A comment that leaves out findings, mostly in vain."""
    path = tree.one("modular_*.py")
    text = path.read_bytes().decode("utf-8", "replace")
    code = tree.random.choice(["MC307", "MC401", "MC313", "MC999", ""])
    path.write_text(text.replace("\n", f"  # modular: ignore[{code}]\n", 1))


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
    lines += ['ignore = ["MC3"]', 'select = ["MC2"]', 'output-dir = "models/out"', 'root = "models"', "\ufeff", "\r"]
    (tree.root / "pyproject.toml").write_text(SETTINGS + tree.random.choice(lines) + "\n")


def set_ruff(tree: Tree) -> None:
    """The project's own formatter settings, also those of one model."""
    (tree.root / "pyproject.toml").write_text("[tool.modular-converter]\n")
    folder = tree.random.choice([tree.root, tree.root / "models", tree.one("modular_*.py").parent])
    text = tree.random.choice(
        ["line-length = 60\n", "line-length = 110\n", "[format]\nquote-style = 'single'\n", "x = ("]
    )
    (folder / "ruff.toml").write_text(text)


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


def fix_overtaken(tree: Tree) -> None:
    """A file changes while `--write` runs."""
    fix_during(tree, tree.random.choice([change_number, append, remove, link_file, set_project]))


EDITS: dict[Callable[[Tree], None], int] = {
    change_number: 12,
    rename_class: 4,
    append: 4,
    remove: 3,
    copy_over: 2,
    copy_model: 1,
    rename_model: 1,
    silence: 1,
    package: 2,
    link: 3,
    link_model: 2,
    link_file: 2,
    set_project: 3,
    set_ruff: 3,
    change_version: 2,
    change_ruff: 3,
    restore: 6,
    begin_again: 5,
    commit: 2,
    merge: 1,
    move_git: 1,
    lock_index: 1,
    nest: 1,
    detach: 1,
    fix: 10,
    fix_in_part: 1,
    fix_and_kill: 3,
    fix_without_space: 2,
    fix_overtaken: 2,
    damage_cache: 1,
    hide: 2,
    settings_beside: 2,
    special: 1,
    same_size_and_time: 4,
}
"""Each edit with its weight."""
