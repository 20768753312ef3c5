"""Models with hostile names: no name breaks an output, reaches a terminal as it is, or becomes code."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.trees import BASE, commit


pytestmark = pytest.mark.skipif(os.name == "nt", reason="names that POSIX alone allows")

NAMES = (
    *(
        "a\x1b[31mb",
        "a\nimport os",
        "a\r\nb",
        "\n::error::x",
        "::error::x",
        "##[error]x",
        "a\u202eb",
        "a\u2028b",
        "a\x85b",
    ),
    *(
        "-a",
        "--write",
        "-",
        "a b",
        'a"q',
        "a'q",
        "$(x)",
        "`x`",
        "a\\x",
        "a\tb",
        "a\x7fb",
        "a%0Ab",
        "a:b",
        "<x>",
        "\u200e",
    ),
    *("{path}", "{name}", "1", "class", "*", "?", "[a]", "~", "Ⅸ", "ﬁ", "a\u0301", "a" * 180, "a,b", "#", "a;b"),
)
BROKEN = ("\udcff", "é\udcfe")
"""Names of bytes that are not UTF-8: no text can hold them, so such a model is refused."""
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u2028\u202e]")
MODULAR = """\
from ..base.modeling_base import BaseMLP


class NewMLP(BaseMLP):
    pass


def unused():
    pass
"""
MAIN = "from modular_converter.commands.{} import main; main()"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("names") / "tree"
    (root / "models/base").mkdir(parents=True)
    (root / "models/base/modeling_base.py").write_text(BASE)
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    for name in (*NAMES, *BROKEN):
        (root / "models" / name).mkdir()
        (root / "models" / name / f"modular_{name}.py").write_text(MODULAR)
    call(root, "check", "--write")
    commit(root, new=True)
    for path in (root / "models").rglob("modeling_*.py"):
        path.write_text(path.read_text() + "# by hand\n")
    return root


def call(tree: Path, command: str, *arguments: str) -> tuple[int, str]:
    code = MAIN.format(command)
    environment = {**os.environ, "MODULAR_CONVERTER_CACHE": str(tree.parent / "cache"), "PYTHONIOENCODING": "utf-8"}
    line = [sys.executable, "-c", code, "--root", str(tree), *arguments]
    done = subprocess.run(line, capture_output=True, env=environment, cwd=tree)
    return done.returncode, (done.stdout if "--format" in arguments else done.stdout + done.stderr).decode()


@pytest.mark.parametrize(
    "command", [("check", "--full"), ("check", "--full", "--changed-since", "HEAD"), ("convert", "--diff", "all")]
)
def test_text_for_people_is_safe(tree, command):
    code, output = call(tree, *command)
    assert code == 2 and "MC199" not in output and output.count("MC308") + output.count("MC401") > len(NAMES) - 2
    assert not UNSAFE.search(output)
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in output.split("\n"))


@pytest.mark.parametrize("output_format", ["json", "sarif"])
def test_data_for_programs_can_be_read(tree, output_format):
    code, output = call(tree, "check", "--format", output_format)
    found = json.loads(output)
    results = found if output_format == "json" else found["runs"][0]["results"]
    assert code == 2 and len(results) > 2 * len(NAMES) - 3
    assert "##[" not in output
    assert "MC199" not in {one.get("code") or one["ruleId"] for one in results}


def test_each_annotation_is_one_line(tree):
    code, output = call(tree, "check", "--format", "github")
    assert code == 2 and all(re.match("::(error|warning) file=", line) for line in output[:-1].split("\n"))


@pytest.mark.parametrize("name", NAMES)
def test_no_name_becomes_code(tree, name):
    generated = tree / "models" / name / f"modeling_{name}.py"
    (statement, definition) = ast.parse(generated.read_text()).body
    assert isinstance(statement, ast.ImportFrom) and isinstance(definition, ast.ClassDef)


def test_names_that_are_not_utf8_are_refused(tree):
    assert all(not (tree / "models" / name / f"modeling_{name}.py").exists() for name in BROKEN)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_named_by_its_path(tree, tmp_path, name):
    shutil.copytree(tree / "models/base", tmp_path / "models/base")
    shutil.copytree(tree / "models" / name, tmp_path / "models" / name)
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    from modular_converter.check.run import CheckOptions, check

    found = check(CheckOptions((str(tmp_path / "models" / name),)))
    assert found.exit_code == 1 and len(found.conversions) == 1
