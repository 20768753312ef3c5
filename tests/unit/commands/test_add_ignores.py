"""`--add-ignores`: a baseline of comments, which changes no generated file and silences what there is, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modular_converter.authoring.fixes import with_ignores
from modular_converter.commands.check import check_command
from modular_converter.findings import Finding, Location
from modular_converter.rules import by_code


def check(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(check_command, ["--root", str(root), *arguments])


def test_a_baseline_silences_what_there_is(zoo: Path) -> None:
    modular = zoo / "models/gemma/modular_gemma.py"
    modular.write_text(modular.read_text() + "\n\nUNUSED = 1\nALSO = 2  # noqa\n", encoding="utf-8")
    generated = {path: path.read_bytes() for path in zoo.glob("models/*/modeling_*.py")}
    assert check(zoo, "--strict").exit_code == 1
    done = check(zoo, "--strict", "--add-ignores")
    assert done.exit_code == 0 and "2 warnings silenced by comments in 1 file" in done.stderr
    assert {path: path.read_bytes() for path in generated} == generated
    comment = "# modular: ignore[MC308]"
    assert modular.read_text().endswith(f"UNUSED = 1  {comment}\nALSO = 2  # noqa  {comment}\n")
    assert check(zoo, "--strict").exit_code == 0
    assert "0 warnings silenced by comments in 0 files" in check(zoo, "--add-ignores").stderr
    modular.write_text(modular.read_text() + "NEW = 1\n", encoding="utf-8")
    assert check(zoo, "--strict").exit_code == 1, "a new warning is reported"


def test_no_comment_is_written_into_an_installed_package(zoo: Path, tmp_path: Path) -> None:
    modular = zoo / "models/gemma/modular_gemma.py"
    modular.write_text(modular.read_text() + "\n\nUNUSED = 1\n", encoding="utf-8")
    (tmp_path / "site-packages").mkdir()
    package = zoo.rename(tmp_path / "site-packages/zoo")
    done = check(package, "--add-ignores")
    assert done.exit_code == 2 and "belongs to an installed package" in done.stderr and "silenced" not in done.stderr
    assert "ignore[" not in (package / "models/gemma/modular_gemma.py").read_text()


@pytest.mark.parametrize(
    ("line", "lines", "expected"),
    [
        ("x = 1", (1, 1), "x = 1  # modular: ignore[MC307]"),
        ("x = 1  # modular: ignore[MC308] why", (1, 1), "x = 1  # modular: ignore[MC308, MC307] why"),
        ("x = (\n    1\n)", (1, 3), "x = (  # modular: ignore[MC307]\n    1\n)"),
        ('x = """\n"""', (1, 2), 'x = """\n"""  # modular: ignore[MC307]'),
        ('x = """\n"""', (1, 1), 'x = """\n"""'),
        ("x = 1 + \\\n    1", (1, 2), "x = 1 + \\\n    1  # modular: ignore[MC307]"),
        ('x = f"""\n{1}\n"""', (1, 3), 'x = f"""\n{1}\n"""  # modular: ignore[MC307]'),
    ],
)
def test_a_comment_stands_where_there_is_room(line: str, lines: tuple[int, int], expected: str) -> None:
    finding = Finding(by_code("MC307"), Location("m.py", lines[0], 1, lines[1]), "")
    assert with_ignores(f"{line}\n", [finding]) == f"{expected}\n"
