"""The report as annotations of a pull request."""

from __future__ import annotations

import pathlib

import pytest

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.reporting import render
from modular_converter.rules import lost_code


RULE = Rule("MC399", "a-warning", "a summary")


@pytest.mark.parametrize(
    ("finding", "command"),
    [
        (
            Finding(RULE, Location("/project/a/m.py", 3, 7, 3, 13), "odd", "Write it."),
            "::warning file=a/m.py,line=3,col=7,endLine=3,endColumn=13,title=MC399 a-warning::odd%0AWrite it.",
        ),
        pytest.param(
            Finding(RULE, Location("m.py", 3, 7, 4, 2), "odd"),
            "::warning file=m.py,line=3,col=7,endLine=4,title=MC399 a-warning::odd",
            id="end columns are for one line only",
        ),
        pytest.param(
            Finding(RULE, Location("a,b:c%.py"), "100%: a, b\r\nc", severity_override=Severity.ERROR),
            "::error file=a%2Cb%3Ac%25.py,line=1,col=1,title=MC399 a-warning::100%25: a, b%0Ac",
            id="escapes",
        ),
        pytest.param(
            Finding(RULE, Location("--changed-since"), "odd"),
            "::warning title=MC399 a-warning::odd",
            id="a place that is no file",
        ),
    ],
)
def test_one_command_a_line(monkeypatch: pytest.MonkeyPatch, finding: Finding, command: str) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    assert render("github", [finding], cwd="/project") == command + "\n"


@pytest.mark.parametrize(
    ("workspace", "path", "file"),
    [
        ("/checkout", "/checkout/sub/a/m.py", "sub/a/m.py"),
        ("/checkout", "a/m.py", "sub/a/m.py"),
        ("/elsewhere", "/checkout/sub/a/m.py", "a/m.py"),
        ("/checkout", "/lib/m.py", "/lib/m.py"),
        ("relative", "/checkout/sub/m.py", "m.py"),
    ],
)
@pytest.mark.parametrize("format", ["github", "sarif"])
def test_paths_are_those_of_the_checkout(
    monkeypatch: pytest.MonkeyPatch, format: str, workspace: str, path: str, file: str
) -> None:
    """A step may work in a folder of its own."""
    monkeypatch.setenv("GITHUB_WORKSPACE", workspace)
    found = Finding(lost_code.UNUSED_DEFINITION, Location(path), "odd")
    report = render(format, [found], cwd="/checkout/sub")
    assert (
        f"file={file}," in report if format == "github" else f'"uri": "{"file://" * (file[0] == "/")}{file}"' in report
    )


def test_a_workspace_may_be_a_link(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    (tmp_path / "real/sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "link"))
    report = render("github", [Finding(RULE, Location(str(tmp_path / "real/sub/m.py")), "odd")])
    assert "file=sub/m.py," in report
