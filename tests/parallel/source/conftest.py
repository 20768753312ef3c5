"""Copies of the models of this repository, and processes that all tests share."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.parallel.cli import main  # noqa: E402


ZOO = Path(__file__).parents[3] / "models"


PLANS = re.compile(r"^    (base_model_tp_plan|_tp_plan) = \{.*?\}\n", re.MULTILINE | re.DOTALL)


NUMBERS = itertools.count()


class Zoo:
    """A copy of some of the models in a package of its own; no two have the same name."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.root = folder / f"zoo_{folder.name}_{next(NUMBERS)}".replace("-", "_")
        self.models = self.root / "models"
        for name in (*names, "auto"):
            shutil.copytree(ZOO / name, self.models / name, ignore=shutil.ignore_patterns("__pycache__"))
        for place in (self.root, self.models):
            (place / "__init__.py").write_text("")
        (self.root / "pyproject.toml").write_text('[project]\nname = "zoo"\n')

    def path(self, name: str) -> Path:
        return self.models / re.sub(r"^[a-z]+_|\.py$", "", name) / name

    def text(self, name: str) -> str:
        return self.path(name).read_text()

    def edit(self, name: str, old: str, new: str) -> None:
        assert old in self.text(name)
        self.path(name).write_text(self.text(name).replace(old, new))

    def put(self, name: str, text: str) -> None:
        self.path(name).parent.mkdir(exist_ok=True)
        (self.path(name).parent / "__init__.py").write_text("")
        self.path(name).write_text(text)

    def drop_plans(self, name: str) -> None:
        """Take all plans out of a file."""
        self.path(name).write_text(PLANS.sub("", self.text(name)))

    def files(self) -> dict[str, str]:
        return {str(path): path.read_text() for path in sorted(self.root.rglob("*.py"))}

    def write(self, name: str, *options: str) -> tuple[int, str]:
        """Run the command; the exit code and all that it says."""
        done = CliRunner().invoke(main, ["write", str(self.path(name)), *options])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output


@pytest.fixture
def zoo(tmp_path):
    return lambda *names: Zoo(tmp_path, *names)
