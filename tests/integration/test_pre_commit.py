"""Real `pre-commit`, offline, in a repository of its own: the check refuses a stale commit, the fixer makes it right."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
PRE_COMMIT = shutil.which("pre-commit", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])))
HOOKS = """\
repos:
  - repo: local
    hooks:
      - id: {id}
        name: {id}
        entry: '"{python}" {script}'
        language: system
        files: \\.(py|toml)$
        pass_filenames: false
"""


def test_the_hooks_call_the_check():
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert re.findall(r"(?m)^- id: (.*)", text) == ["modular-convert", "check-modular-conversion"]
    assert re.findall(r"entry: python -m ([\w.]+)(.*)", text) == [
        ("modular_converter.check_cli", " --fix"),
        ("modular_converter.check_cli", ""),
    ]


@pytest.mark.skipif(PRE_COMMIT is None, reason="pre-commit is not installed")
def test_pre_commit_refuses_what_is_stale_and_puts_it_right(tmp_path):
    work = tmp_path / "work"
    shutil.copytree(ROOT / "models", work / "models", ignore=shutil.ignore_patterns("__pycache__"))
    (work / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    environment = {
        **os.environ,
        "PRE_COMMIT_HOME": str(tmp_path / "home"),
        "MODULAR_CONVERTER_CACHE": str(tmp_path / "cache"),
    }

    def call(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)

    def hook(name: str, *options: str) -> subprocess.CompletedProcess[str]:
        script = " ".join((f'"{ROOT / "utils/check_modular_conversion.py"}"', *options))
        (work / ".pre-commit-config.yaml").write_text(HOOKS.format(id=name, python=sys.executable, script=script))
        call("git", "add", "-A")
        return call(str(PRE_COMMIT), "run", "--all-files", "--verbose")

    assert call("git", "init", "-q").returncode == 0
    hook("modular-convert", "--fix")
    passed = hook("check-modular-conversion")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    neighbour = work / "models/llama/modeling_llama.py"
    neighbour.write_text(neighbour.read_text().replace("        return ", "        # edited\n        return "))
    refused = hook("check-modular-conversion")
    assert refused.returncode == 1 and "MC401" in refused.stdout
    assert "files were modified" in hook("modular-convert", "--fix").stdout
    assert hook("check-modular-conversion").returncode == 0
