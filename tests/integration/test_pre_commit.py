"""Real `pre-commit` in a repository of its own: the check refuses a stale commit, the fixer makes it right."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml


ROOT = Path(__file__).parents[2]
PRE_COMMIT = shutil.which("pre-commit", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])))
INSTALLED_FROM = ("modular_converter", ".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE")
UNREACHABLE = re.compile(r"NewConnectionError|Could not fetch URL|name resolution|Network is unreachable|timed out")
PACKAGED = """\
repos:
  - repo: {source}
    rev: {revision}
    hooks:
      - id: modular-convert
      - id: check-modular-conversion
"""

needs_pre_commit = pytest.mark.skipif(PRE_COMMIT is None, reason="pre-commit is not installed")


class Repository:
    """A git repository with our models, and nothing in its environment that leads to another one."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHONPATH"))}
        self.environment = {
            **kept,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "PRE_COMMIT_HOME": str(folder / "home"),
            "MODULAR_CONVERTER_CACHE": str(folder / "cache"),
        }
        shutil.copytree(ROOT / "models", self.work / "models", ignore=shutil.ignore_patterns("__pycache__"))
        (self.work / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
        for name in ("click", "modular_converter", "ruff"):  # nothing of the tree is imported
            (self.work / f"{name}.py").write_text("raise SystemExit('the tree was executed')\n")
        assert self.call("git", "init", "-q").returncode == 0

    def call(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = self.environment
        return subprocess.run(command, cwd=cwd or self.work, env=environment, capture_output=True, text=True)

    def hook(self, name: str, config: str) -> subprocess.CompletedProcess[str]:
        (self.work / ".pre-commit-config.yaml").write_text(config)
        self.call("git", "add", "-A")
        return self.call(str(PRE_COMMIT), "run", name, "--all-files", "--verbose")

    def commit(self) -> subprocess.CompletedProcess[str]:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        self.call("git", "add", "-A")
        return self.call("git", *identity, "commit", "-m", "some change")

    def make_stale(self) -> None:
        neighbour = self.work / "models/llama/modeling_llama.py"
        neighbour.write_text(neighbour.read_text().replace("        return ", "        # edited\n        return "))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_the_hooks_call_the_check():
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert re.findall(r"(?m)^- id: (.*)", text) == ["modular-convert", "check-modular-conversion"]
    entries = re.findall(r"(?m)^  entry: (.*)", text)
    assert entries == ["check-modular-conversion --write", "check-modular-conversion"]


def local(*names: str) -> str:
    """The packaged hooks, as they would be without an environment of their own: with the script of this tree."""
    script = f'"{sys.executable}" "{ROOT / "utils/check_modular_conversion.py"}"'
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    changed = [
        {
            **hooks[name],
            "language": "system",
            "entry": hooks[name]["entry"].replace("check-modular-conversion", script),
        }
        for name in names
    ]
    return str(yaml.safe_dump({"repos": [{"repo": "local", "hooks": changed}]}))


@needs_pre_commit
def test_pre_commit_refuses_what_is_stale_and_puts_it_right(repository):
    def hook(name: str) -> subprocess.CompletedProcess[str]:
        return repository.hook(name, local(name))

    repository.make_stale()
    refused = hook("check-modular-conversion")
    assert refused.returncode == 1 and re.search("MC40[14]", refused.stdout), refused.stdout + refused.stderr
    assert "files were modified" in hook("modular-convert").stdout
    passed = hook("check-modular-conversion")
    assert passed.returncode == 0, passed.stdout + passed.stderr


@needs_pre_commit
@pytest.mark.parametrize(
    ("removed", "said"),
    [
        ("models/gemma/modular_gemma.py", "MC403"),
        pytest.param("models/gemma/modeling_gemma.py", "MC402", marks=pytest.mark.slow),
    ],
)
def test_a_commit_that_only_deletes_is_checked(repository, removed, said):
    assert "files were modified" in repository.hook("modular-convert", local("modular-convert")).stdout
    repository.hook("check-modular-conversion", local("check-modular-conversion"))
    assert repository.call(str(PRE_COMMIT), "install").returncode == 0
    done = repository.commit()
    assert done.returncode == 0, done.stdout + done.stderr
    (repository.work / removed).unlink()
    refused = repository.commit()
    assert refused.returncode == 1 and said in refused.stdout + refused.stderr, refused.stdout + refused.stderr


@needs_pre_commit
def test_a_generated_file_that_was_deleted_is_written_again(repository):
    repository.hook("modular-convert", local("modular-convert"))
    assert repository.call(str(PRE_COMMIT), "install").returncode == 0
    assert repository.commit().returncode == 0
    (repository.work / "models/gemma/modeling_gemma.py").unlink()
    repository.commit()
    assert (repository.work / "models/gemma/modeling_gemma.py").exists()


def packaged(repository: Repository, source: Path) -> str:
    """Commit what the package is installed from, as it is now, to a repository at `source`; return a configuration."""
    source.mkdir()
    for name in INSTALLED_FROM:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, source / name, **({"ignore": COMPILED} if copy is shutil.copytree else {}))
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for command in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "as it is now")):
        done = repository.call("git", *command, cwd=source)
        assert done.returncode == 0, done.stderr
    revision = repository.call("git", "rev-parse", "HEAD", cwd=source).stdout.strip()
    return PACKAGED.format(source=source, revision=revision)


COMPILED = shutil.ignore_patterns("__pycache__", ".*_cache")


@pytest.mark.slow
@needs_pre_commit
def test_the_packaged_hooks_are_installed_from_a_clone_and_do_the_same(repository, tmp_path):
    """pre-commit clones this repository and installs it, with its dependencies, into an environment of its own."""
    constraints = tmp_path / "constraints.txt"  # the versions that are here are mostly in pip's cache
    constraints.write_text("".join(f"{name}=={version(name)}\n" for name in ("click", "platformdirs", "rich", "ruff")))
    repository.environment |= {"PIP_CONSTRAINT": str(constraints), "PIP_NO_COMPILE": "1"}
    config = packaged(repository, tmp_path / "source")
    repository.make_stale()
    refused = repository.hook("check-modular-conversion", config)
    if refused.returncode != 1 and UNREACHABLE.search(refused.stdout + refused.stderr):
        pytest.skip("the package index cannot be reached")
    assert refused.returncode == 1 and re.search("MC40[14]", refused.stdout), refused.stdout + refused.stderr
    assert "files were modified" in repository.hook("modular-convert", config).stdout
    passed = repository.hook("check-modular-conversion", config)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "check that generated files are current" in passed.stdout
