"""What the check prints, and where: diffs, findings, counts, and what it says of its cache."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from modular_converter.check.cache.store import unusable
from modular_converter.commands.run_check import DIFF_LINES, print_statistics
from modular_converter.findings import Finding, Location
from modular_converter.rules import by_code
from tests.unit.trees import commit, edit, fix, run


ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("cache")


def test_a_diff_is_bounded_in_time_and_width(zoo):
    pick = random.Random(0)
    lines = [
        "class A:",
        *(f"    x{pick.randrange(150)} = 1" for _ in range(60_000)),
        "y = '" + "a" * 1_000_000 + "\x1b[2J'",
    ]
    (zoo / "models/gemma/modeling_gemma.py").write_text("\n".join(lines))
    started = time.process_time()
    result = run(zoo, "gemma")
    assert result.exit_code == 1 and "more lines" in result.stdout
    assert time.process_time() - started < 20
    assert len(result.output) < 100_000 and "\x1b" not in result.output


def test_a_missing_end_of_a_file_is_shown(zoo):
    path = zoo / "models/gemma/modeling_gemma.py"
    path.write_text(path.read_text().rstrip("\n"))
    result = run(zoo, "gemma")
    assert result.exit_code == 1
    assert "\\ No newline at end of file" in result.stdout and "none at the end of the file" in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
def test_a_checkout_may_lie_anywhere(zoo):
    root = zoo.rename(zoo.parent / "p\udcff")
    for arguments in (("--no-cache",), (), ("--write",)):
        result = run(root, *arguments)
        assert result.exit_code == 0, result.output
    edit(root, "modeling_gemma.py", "class GemmaMLP", "class GemmaMlp")
    for format in ("text", "json", "github", "sarif"):
        assert run(root, "--format", format).exit_code == 1


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
def test_a_model_whose_path_is_no_utf8_stops_no_other(zoo):
    (zoo / "models/gemma/modeling_gemma.py").unlink()
    (zoo / "models/f\udcff").mkdir()
    shutil.copy(zoo / "models/gemma/modular_gemma.py", zoo / "models/f\udcff/modular_gemma.py")
    result = run(zoo)
    assert result.exit_code == 2 and "MC199" not in result.stderr
    assert "MC102" in result.stderr and "MC402" in result.stderr and "1 could not be converted" in result.stderr


def test_a_folder_puts_no_command_into_a_ci_log(zoo):
    folder = zoo / "models/x\n::stop-commands::t"
    folder.mkdir()
    (folder / "modular_x.py").write_text("class (:\n")
    for format in ("text", "github"):
        output = run(zoo, "--format", format).output
        assert "stop-commands" in output and not re.search(r"(?m)^\s*::stop", output)


def test_a_diff_is_bounded_and_coloured_when_asked(zoo, monkeypatch):
    (zoo / "models/gemma/modeling_gemma.py").write_text("x = 1\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = run(zoo, "gemma")
    assert "\x1b[31m-x = 1" in result.stdout and "more lines" in result.stdout
    assert result.stdout.count("\n") <= DIFF_LINES + 1
    assert run(zoo, "gemma", "--quiet").stdout == ""


def test_a_green_hook_prints_one_line_and_a_red_one_at_most_forty(zoo):
    """Also where every model has errors of its own, and much has changed."""
    commit(zoo, new=True)
    fix(zoo)
    assert len(run(zoo).output.splitlines()) == 1
    for number, path in enumerate(sorted(zoo.glob("models/*/modular_*.py"))):
        path.write_text(path.read_text() + "\n\nUNUSED = 1\n" * 3)
        for generated in path.parent.glob("modeling_*.py"):
            generated.write_text(generated.read_text().replace("return ", f"return {number} + ", 9 + number))
    result = run(zoo)
    assert result.exit_code == 1 and 10 < len(result.output.splitlines()) <= 40
    assert "more findings: --full" in result.output and "… the diffs of " in result.output
    full = run(zoo, "--full")
    assert "--full" not in full.output and "error MC4" in result.output
    assert full.output.count("warning MC308") > 0 == result.output.count("warning MC308"), (
        "errors come before warnings"
    )


def test_formats_for_machines_and_statistics(zoo):
    edit(zoo, "modeling_gemma.py", "class GemmaMLP", "class GemmaMlp")
    findings = json.loads(run(zoo, "gemma", "--format", "json").stdout)
    assert [finding["code"] for finding in findings if finding["severity"] == "error"] == ["MC401"]
    assert json.loads(run(zoo, "gemma", "--format", "sarif").stdout)["runs"][0]["results"]
    assert "::error file=" in run(zoo, "gemma", "--format", "github").stdout
    assert "1  MC401 generated-file-differs" in run(zoo, "gemma", "--statistics").stderr


@pytest.mark.parametrize("format", ["json", "github", "sarif"])
def test_diffs_leave_stdout_to_findings_for_programs(zoo, format):
    edit(zoo, "modeling_gemma.py", "class GemmaMLP", "class GemmaMlp")
    result = run(zoo, "gemma", "--format", format)
    assert "+class GemmaMLP" in result.stderr and "+class" not in result.stdout
    assert "+class" not in run(zoo, "gemma", "--format", format, "--quiet").output


def test_statistics_begin_with_the_most_frequent_and_go_on_by_code(capsys):
    findings = [Finding(by_code(code), Location("m.py"), "") for code in ("MC402", "MC202", "MC401", "MC202", "MC308")]
    print_statistics(findings)
    lines = [line.split()[:2] for line in capsys.readouterr().err.splitlines()]
    assert lines == [["2", "MC202"], ["1", "MC308"], ["1", "MC401"], ["1", "MC402"]]


def test_help_imports_only_click():
    code = "import sys; from modular_converter.commands.check import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not set(done.stdout.split()) & {
        "rich",
        "libcst",
        "modular_converter.check.run",
        "modular_converter.settings.load",
    }


def test_the_cache_is_used_left_out_and_cleared(zoo, tmp_path):
    assert run(zoo, "--no-cache").exit_code == 0
    assert not (tmp_path / "cache").exists()
    (tmp_path / "cache").mkdir()
    old = tmp_path / "cache" / f"{'0' * 64}.json"
    old.write_text("")
    assert run(zoo, "--clear-cache", "gemma").exit_code == 0
    assert not old.exists()


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that nothing can be stored in, even by root."""
    (tmp_path / "file").write_text("precious")
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(tmp_path / "file"))
    return tmp_path / "file"


def test_that_nothing_is_remembered_is_said(zoo, unwritable):
    result = run(zoo)
    (line,) = [line for line in result.stderr.splitlines() if "remembers nothing" in line]
    assert str(unwritable) in line and "MODULAR_CONVERTER_CACHE" in line and "--no-cache" in line
    assert result.exit_code == 0
    for arguments in (("--quiet",), ("--no-cache",)):
        assert "remembers" not in run(zoo, *arguments).output
    assert "could not be cleared" in run(zoo, "--clear-cache").stderr
    assert "could not be cleared" not in run(zoo, "--clear-cache", "--quiet").stderr
    assert unwritable.read_text() == "precious"


def test_a_cache_that_can_only_be_read_is_used_without_a_word(zoo, tmp_path, monkeypatch):
    assert "remembers" not in run(zoo).stderr
    monkeypatch.setattr("modular_converter.commands.run_check.unusable", lambda folder: "Read-only file system")
    assert "remembers" not in run(zoo).stderr
    edit(zoo, "modeling_gemma.py", "class GemmaMLP", "class GemmaMlp")
    assert "Read-only file system" in run(zoo).stderr


def test_trying_a_cache_folder_leaves_nothing(tmp_path):
    assert unusable(str(tmp_path / "new/folder")) == ""
    assert list((tmp_path / "new/folder").iterdir()) == []


def test_what_cannot_be_cleared_is_told(zoo, tmp_path):
    run(zoo)
    (tmp_path / "cache" / f"{'0' * 64}.json").mkdir()
    result = run(zoo, "--clear-cache", "--no-cache")
    assert result.exit_code == 0 and "could not be cleared" in result.stderr
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"{'0' * 64}.json"]


def test_warnings_are_printed_of_files_that_somebody_works_on(zoo):
    """Of files that are current, as in the last commit, and not named, they are counted."""
    for name in ("gemma", "mistral"):
        edit(zoo, f"modular_{name}.py", "__all__", "UNUSED = 1\n\n__all__")
    fix(zoo)
    everything = run(zoo)
    assert everything.output.count("warning MC308") == 2, "without git, nothing is known to be unchanged"
    commit(zoo, new=True)
    result = run(zoo)
    assert result.exit_code == 0 and len(result.output.splitlines()) == 1
    assert "2 warnings (2 of unchanged files not shown: --full)" in result.output
    assert run(zoo, "--full").output.count("warning MC308") == 2
    assert run(zoo, "gemma", "mistral").output.count("warning MC308") == 2, "they are named by themselves"
    assert run(zoo, "gemma").output.count("warning MC308") == 1
    assert json.loads(run(zoo, "--format", "json").stdout), "programs compare runs, and are given all"
    assert run(zoo, "--strict").exit_code != 0
    edit(zoo, "modular_gemma.py", "UNUSED = 1", "UNUSED = 2")
    result = run(zoo)
    assert result.output.count("warning MC308") == 1 and "(1 of unchanged files not shown" in result.output


def test_errors_come_last_and_a_red_hook_is_short(zoo):
    edit(zoo, "modular_gemma.py", "__all__", "UNUSED = 1\n\n__all__")
    edit(zoo, "modeling_gemma.py", "class GemmaMLP", "class GemmaMlp")
    commit(zoo, new=True)
    output = run(zoo).output
    assert output.index("warning MC308") < output.index("error MC4")
    assert len(output.splitlines()) <= 40
