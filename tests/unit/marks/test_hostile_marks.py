"""`modular-convert marks` with copies, replacements and names that nobody means well: a verdict or a refusal for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.commands.subcommands import marks_command
from modular_converter.findings import split_lines
from modular_converter.marks.audit import LONGEST
from modular_converter.marks.units import find_marks
from tests.unit.marks.test_marks import marks, verdict, write


BASE = "# Copied from transformers.models.base.modeling_base"
SOURCE = '''\
def scale(x):
    return 2 * x


class Layer:
    def forward(self, x):
        return x + 1

    def text(self):
        return """
new
"""
'''


def plant(root: Path, copy: str, source: str = SOURCE) -> Path:
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    write(root, "base", source)
    return write(root, "copy", copy)


@pytest.mark.parametrize("replacement", ["x->a-b", "def->if", "def->#", "x->xx," * 60])
def test_a_replacement_that_leaves_no_definition_is_a_drift(replacement: str, tmp_path: Path) -> None:
    text = f"{BASE}.scale with {replacement}\ndef scale(y):\n    return 3 * y\n"
    path = plant(tmp_path, text)
    assert verdict(path) == "drifted"
    assert "-    return 3 * y" in marks(tmp_path, "--diff").stdout
    done = marks(tmp_path, "--write")
    assert done.exit_code == 1 and "is no definition with the replacements" in done.stderr
    assert path.read_text() == text


@pytest.mark.parametrize(("indentation", "body"), [("  ", "    "), ("\t", "\t\t")])
def test_a_method_with_another_indentation_stays_in_its_class(indentation: str, body: str, tmp_path: Path) -> None:
    head = (
        f"class A:\n{indentation}size = 1\n\n{indentation}{BASE}.Layer.forward\n{indentation}def forward(self, x):\n"
    )
    path = plant(tmp_path, f"{head}{body}return x + 2\n")
    done = marks(tmp_path, "--write")
    assert done.exit_code == 1 and "is not indented by 4 spaces" in done.stderr
    assert path.read_text() == f"{head}{body}return x + 2\n"
    path.write_text(f"{head}{body}return x + 1\n")
    assert verdict(path) == "identical"


def test_lines_left_of_a_method_are_compared_and_not_written(tmp_path: Path) -> None:
    text = f'class A:\n    {BASE}.Layer.text\n    def text(self):\n        return """\nnew\n"""\n'
    assert verdict(plant(tmp_path, text)) == "identical"
    path = plant(tmp_path, text.replace("\nnew", "\nold"))
    assert verdict(path) == "drifted"
    done = marks(tmp_path, "--write")
    assert done.exit_code == 1 and "a string over several lines differs" in done.stderr
    assert path.read_text() == text.replace("\nnew", "\nold")
    comment = f"class A:\n    {BASE}.Layer.forward\n    def forward(self, x):\n# left\n        return x + 1\n"
    assert verdict(plant(tmp_path, comment)) == "drifted"


def test_blanks_in_a_string_are_not_lost(tmp_path: Path) -> None:
    source = 'class Layer:\n    def text(self):\n        return """\n        a\n            \n        """\n'
    text = f"class A:\n    {BASE}.Layer.text\n    def text(self):\n        return 1\n"
    path = plant(tmp_path, text, source)
    assert marks(tmp_path, "--write").exit_code == 1
    assert path.read_text() == text


def test_a_refusal_is_about_one_copy(tmp_path: Path) -> None:
    copies = [
        f"class {name}:\n    {BASE}.Layer.forward{replacement}\n    def forward(self, x):\n        return x + 2\n"
        for name, replacement in (("A", " with 1->missing"), ("B", ""))
    ]
    path = plant(tmp_path, "\n\n".join(copies))
    done = marks(tmp_path, "--write")
    assert done.exit_code == 1 and done.stderr.count("MC411") == 1
    assert "`A.forward` differs" in done.stderr and "the file lacks `missing`" in done.stderr
    assert path.read_text() == "\n\n".join([copies[0], copies[1].replace("x + 2", "x + 1")])


def test_many_copies_of_a_file_are_put_right(tmp_path: Path) -> None:
    text = "\n\n".join(f"{BASE}.scale\ndef scale{number}(x):\n    return 3 * x\n" for number in range(12))
    path = plant(tmp_path, text)
    done = marks(tmp_path, "--write")
    assert done.exit_code == 0 and "12 put right" in done.stderr
    assert path.read_text() == text.replace("3 * x", "2 * x")


def test_copies_of_each_other_come_to_an_end(tmp_path: Path) -> None:
    source = "# Copied from transformers.models.copy.modeling_copy.scale\ndef scale(x):\n    return 2 * x\n"
    plant(tmp_path, f"{BASE}.scale\ndef scale(x):\n    return 3 * x\n", source)
    assert marks(tmp_path, "--write").exit_code == 1


def test_a_mark_with_endless_replacements_is_invisible(tmp_path: Path) -> None:
    path = plant(tmp_path, f"{BASE}.scale with {'x->y,' * 101}\ndef scale(y):\n    return 2 * y\n")
    assert verdict(path) == "invisible"
    assert "more than 100 replacements" in marks(tmp_path).stderr


def test_a_mark_in_a_case_is_seen(tmp_path: Path) -> None:
    text = f"match 1:\n    case 1:\n        {BASE}.scale\n        def scale(x):\n            return 2 * x\n"
    assert verdict(plant(tmp_path, text)) == "identical"


def test_a_name_longer_than_any_path_is_not_looked_for(tmp_path: Path) -> None:
    dotted = "transformers" + ".a" * LONGEST
    assert verdict(plant(tmp_path, f"# Copied from {dotted}\ndef scale(x):\n    return 2 * x\n")) == "dangling"


def test_a_notice_without_a_line_end_is_read(tmp_path: Path) -> None:
    plant(tmp_path, "# This file was automatically generated from models/copy/modular_copy.py")
    done = marks(tmp_path)
    assert done.exit_code == 0 and "MC199" not in done.stderr


def test_marks_stand_on_their_lines() -> None:
    text = f"é = 1\n\x0c\n    {BASE}.a\n{BASE}.b"
    found = find_marks(text, "Copied from", "transformers")
    assert [(one.line, one.column) for one in found] == [(3, 5), (4, 1)]
    assert [split_lines(text)[one.line - 1].strip() for one in found] == [one.text for one in found]


def test_an_installed_package_behind_a_link_is_not_written(tmp_path: Path) -> None:
    package = tmp_path / "site-packages/package"
    package.mkdir(parents=True)
    path = plant(package, f"{BASE}.scale\ndef scale(x):\n    return 3 * x\n")
    (tmp_path / "models").symlink_to(package / "models", target_is_directory=True)
    done = CliRunner().invoke(marks_command, ["--write", str(tmp_path / "models")])
    assert done.exit_code == 2 and "belongs to an installed package" in done.stderr
    assert "3 * x" in path.read_text()
