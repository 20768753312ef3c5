"""The two workflows of the comment: the one that reads code of forks has no rights, the one with rights reads none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parents[3] / ".github" / "workflows"


def workflow(name: str) -> dict[Any, Any]:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def test_the_job_that_reads_the_fork_has_no_rights() -> None:
    make = workflow("model-comment.yml")
    assert make["permissions"] == {"contents": "read"}
    assert make[True] == "pull_request"  # `on`, and not `pull_request_target`
    runs = [step["run"] for step in make["jobs"]["make"]["steps"] if "run" in step]
    assert not any("${{" in run for run in runs), "an expression in a script is an injection"
    assert "pip install ./tool ruff" in runs


def test_the_job_with_rights_checks_nothing_out() -> None:
    post = workflow("model-comment-post.yml")
    assert post[True]["workflow_run"]["workflows"] == [workflow("model-comment.yml")["name"]]
    steps = post["jobs"]["post"]["steps"]
    assert not any("checkout" in step.get("uses", "") or "run" in step for step in steps)
    assert "${{" not in steps[-1]["with"]["script"]
