"""Merge, rebase and cherry-pick random histories with real git: `python utils/fuzz_merges.py 200 --seed 1`.

Each history has three models that inherit from each other, and two branches with random edits of modular files and of
the flat one, each committed with its generated files. After git is done, either every generated file equals a fresh
conversion, or git has left a conflict and each generated file among it says why in its first line. A generated file that
only one side has changed is none that git asks the driver for; where it is stale then, the outcome is `not asked`.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from marked_pages import write_outcomes


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from modular_converter.api import convert_paths  # noqa: E402
from modular_converter.git.merge_driver import install_driver  # noqa: E402
from modular_converter.git.work_tree import WorkTrees  # noqa: E402


METHOD = "    def {name}(self, x):\n        x = x + {number}\n        return x\n"
HEADS = {
    "old/modeling_old.py": "from torch import nn\n\n\nclass OldMLP(nn.Module):\n",
    "new/modular_new.py": "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n",
    "next/modular_next.py": "from ..new.modeling_new import NewMLP\n\n\nclass NextMLP(NewMLP):\n",
}
TAILS = {
    "old/modeling_old.py": "",
    "new/modular_new.py": '\n\n__all__ = ["NewMLP"]\n',
    "next/modular_next.py": '\n\n__all__ = ["NextMLP"]\n',
}
HOW = ("merge", "rebase", "cherry-pick")
SIDES = ("theirs", "before")
"""The branch that is joined, and a tag of the other one as it was."""
Methods = dict[str, dict[str, int]]
"""File -> its methods, each with the number in its body."""


def main() -> None:
    """Try random histories; exits with 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="histories at a time")
    parser.add_argument("--update", action="store_true", help="put the figures into docs/figures/change.md")
    given = parser.parse_args()
    made = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    outcomes: Counter[str] = Counter()
    with ThreadPoolExecutor(given.jobs) as pool:
        tried = pool.map(lambda number: _outcome(given.seed, number), range(given.number))
        for number, outcome in enumerate(tried, start=1):
            outcomes[outcome] += 1
            if outcome.startswith("wrong"):
                print(f"history {given.seed}:{number - 1}: {outcome}", flush=True)
            if number % 20 == 0 or number == given.number:
                print(", ".join(f"{count} {one}" for one, count in sorted(outcomes.items())), flush=True)
                if given.update:
                    write_outcomes("merges", "histories", f"seed {given.seed}, {made}", outcomes)
    sys.exit(any(outcome.startswith("wrong") for outcome in outcomes))


def _outcome(seed: int, number: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return try_history(Path(folder), random.Random(f"{seed}:{number}"))


def try_history(top: Path, chance: random.Random) -> str:
    """Make a history, let git join its branches, and judge the outcome: `resolved`, `told`, `not asked`, or `wrong: …`."""
    start: Methods = {name: {f"m{n}": n for n in range(chance.randint(1, 3))} for name in HEADS}
    _git(top, "init", "-q", "-b", "main")
    _commit(top, start)
    install_driver(WorkTrees().of(str(top)), [str(top / name) for name in _generated(top)])
    _commit(top, start)
    for branch in ("theirs", "ours"):
        _git(top, "checkout", "-q", "-b", branch, "main")
        methods = {name: dict(found) for name, found in start.items()}
        for _ in range(chance.randint(1, 2)):
            _edit(methods, chance)
        _commit(top, methods)
    _git(top, "tag", "before")
    done = _git(top, chance.choice(HOW), "theirs", check=False)
    return _judged(top, done.returncode)


def _edit(methods: Methods, chance: random.Random) -> None:
    """Add, change or remove a method of one file."""
    found = methods[chance.choice(list(methods))]
    name = f"m{chance.randint(0, 5)}"
    if name in found and len(found) > 1 and chance.random() < 0.3:
        del found[name]
    else:
        found[name] = chance.randint(10, 99)


def _judged(top: Path, code: int) -> str:
    unmerged = set(_git(top, "diff", "--name-only", "--diff-filter=U").stdout.split())
    if (code != 0) != bool(unmerged):
        return f"wrong: git ended with {code} and {len(unmerged)} conflicts"
    generated = set(_generated(top))
    for name in generated & unmerged:
        if not (top / name).read_text().startswith("# modular-converter: "):
            return f"wrong: {name} conflicts and does not say why"
    if unmerged:
        return "told" if unmerged - generated else "wrong: only generated files conflict"
    for result in convert_paths([str(path) for path in top.rglob("modular_*.py")]):
        for path, text in result.files.items():
            if Path(path).read_text() != text:
                sides = [_git(top, "diff", "--quiet", "main", side, "--", path, check=False) for side in SIDES]
                if any(side.returncode == 0 for side in sides):
                    return "not asked"
                return f"wrong: {os.path.relpath(path, top)} is not what a fresh conversion gives"
    return "resolved"


def _generated(top: Path) -> list[str]:
    return [f"models/{name.replace('modular_', 'modeling_')}" for name in HEADS if "modular_" in name]


def _commit(top: Path, methods: Methods) -> None:
    for name, found in methods.items():
        path = top / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        bodies = (METHOD.format(name=method, number=number) for method, number in sorted(found.items()))
        path.write_text(HEADS[name] + "\n".join(bodies) + TAILS[name])
    for result in convert_paths([str(path) for path in top.rglob("modular_*.py")]):
        for target, text in result.files.items():
            Path(target).write_text(text)
    _git(top, "add", "-A")
    _git(top, "commit", "-qm", "a commit", "--allow-empty")


def _git(top: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    options = ("user.name=a", "user.email=a@b", "core.editor=true", "commit.gpgsign=false")
    command = ["git", "-C", str(top), *(word for option in options for word in ("-c", option)), *arguments]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=check)


if __name__ == "__main__":
    main()
