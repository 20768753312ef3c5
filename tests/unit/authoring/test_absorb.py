"""Edits of generated files: carried to the modular file where a conversion proves it, else refused with the place."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.subcommands import absorb_command
from tests.unit.trees import TWO_METHODS as OLD
from tests.unit.trees import commit, edit, fix


NEW = """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def second(self, x):
        return x * 2

    def own(self, x):
        y = x * 3
        return y


__all__ = ["NewMLP"]
"""


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    for name, text in {"old/modeling_old.py": OLD, "new/modular_new.py": NEW}.items():
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    fix(tmp_path)
    return tmp_path / "models/new/modeling_new.py"


CARRIED = {
    "a line": ("x * 3", "x * 30"),
    "an override": ("x * 2", "x - 2"),
    "an insertion": ("        return y\n", "        y = y + 1\n        return y\n"),
    "a removal": ("        y = x * 3\n        return y\n", "        return x\n"),
    "two places": ("x * 3", "x * 4"),
    "a method": ("    def own(self, x):", "    def other(self):\n        return 0\n\n    def own(self, x):"),
}


@pytest.mark.parametrize("case", CARRIED)
def test_an_edit_of_own_lines_is_carried(case: str, generated: Path) -> None:
    edit(generated.parent, generated.name, *CARRIED[case])
    if case == "two places":
        edit(generated.parent, generated.name, "x * 2", "x * 5")
    wanted = generated.read_text()
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert result.exit_code == 0, result.output
    assert generated.read_text() == wanted
    assert check(CheckOptions((str(generated.parent),))).exit_code == 0


INHERITED = {
    "a line": (("x + 1", "x + 10"), "    def first(self, x):\n        return x + 10\n"),
    "a comment": (("return x + 1", "return x + 1  # one"), "    def first(self, x):\n        return x + 1  # one\n"),
    "a decorator": (
        ("    def first", "    @staticmethod\n    def first"),
        "    @staticmethod\n    def first(self, x):\n        return x + 1\n",
    ),
    "a removal": (
        ("    def first(self, x):\n        return x + 1\n\n", ""),
        '    def first(self):\n        raise AttributeError("Not needed for NewMLP")\n',
    ),
}


@pytest.mark.parametrize("case", INHERITED)
def test_an_edit_of_inherited_lines_becomes_an_override(case: str, generated: Path) -> None:
    change, override = INHERITED[case]
    edit(generated.parent, generated.name, *change)
    wanted = generated.read_text()
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert result.exit_code == 0, result.output
    modular = (generated.parent / "modular_new.py").read_text()
    assert override in modular
    assert NEW.split("    def own")[1].partition("\n\n\n")[0] in modular
    assert (generated.read_text(), check(CheckOptions((str(generated.parent),))).exit_code) == (wanted, 0)


MIXED = {
    "a function of its own": ("NewMLP(OldMLP)", "NewMLP(OldMLP)", "    return x * 7", "    return x * 8"),
    "another name than the parent's": ("NewMLP", "NewGate", "        return x * 2", "        return x * 6"),
    "an override with a comment": (
        "    def second",
        "    # ours\n    def second",
        "        return x * 2",
        "        return x * 6",
    ),
}


@pytest.mark.parametrize("case", MIXED)
def test_edits_of_own_and_of_inherited_lines_are_carried_together(case: str, generated: Path) -> None:
    old, new, line, edited = MIXED[case]
    text = (
        NEW.replace(old, new)
        .replace("\n\nclass", "\n\ndef scaled(x):\n    return x * 7\n\n\nclass")
        .replace("x * 3", "scaled(x)")
    )
    modular = generated.parent / "modular_new.py"
    modular.write_text(text)
    fix(generated.parents[2])
    edit(generated.parent, generated.name, "x + 1", "x + 10")
    edit(generated.parent, generated.name, line, edited)
    wanted = generated.read_text()
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert result.exit_code == 0, result.output
    assert modular.read_text().count("return x + 10\n") == modular.read_text().count(edited) == 1
    assert modular.read_text().count("# ours") == text.count("# ours")
    assert (generated.read_text(), check(CheckOptions((str(generated.parent),))).exit_code) == (wanted, 0)


def test_a_removal_leaves_the_other_members_as_they_are_written(generated: Path) -> None:
    modular = generated.parent / "modular_new.py"
    modular.write_text(NEW.replace("    def second", "    # ours\n    def second"))
    fix(generated.parents[2])
    edit(generated.parent, generated.name, *INHERITED["a removal"][0])
    assert CliRunner().invoke(absorb_command, [str(generated)]).exit_code == 0
    assert INHERITED["a removal"][1] in modular.read_text() and "    # ours\n    def second" in modular.read_text()


@pytest.mark.parametrize("has_marker", [True, False])
def test_a_decorator_is_dropped_where_the_package_can_say_so(has_marker: bool, generated: Path) -> None:
    old = generated.parents[1] / "old/modeling_old.py"
    old.write_text("import torch\n" + OLD.replace("    def ", "    @torch.no_grad()\n    def "))
    fix(generated.parents[2])
    if has_marker:
        (generated.parents[2] / "utils").mkdir()
        (generated.parents[2] / "utils/generic.py").write_text("def no_inherit_decorator(obj):\n    return obj\n")
    generated.write_text(generated.read_text().replace("    @torch.no_grad()\n", "").replace("import torch\n", ""))
    wanted = generated.read_text()
    result = CliRunner().invoke(absorb_command, [str(generated)])
    modular = (generated.parent / "modular_new.py").read_text()
    assert result.exit_code == (0 if has_marker else 1), result.output
    assert modular.count("from ...utils.generic import no_inherit_decorator\n") == has_marker
    for method in ("first", "second"):
        assert (f"    @no_inherit_decorator\n    def {method}(self, x):\n" in modular) == has_marker
    assert generated.read_text() == wanted


def test_what_an_override_reads_is_imported(generated: Path) -> None:
    (generated.parents[1] / "old/modeling_old.py").write_text(
        OLD.replace(
            "    def first",
            "    def __init__(self):\n        super().__init__()\n        self.up = nn.Linear(2, 2)\n\n    def first",
        )
    )
    fix(generated.parents[2])
    edit(generated.parent, generated.name, "nn.Linear(2, 2)", "nn.Linear(2, 3)")
    assert CliRunner().invoke(absorb_command, [str(generated)]).exit_code == 0
    modular = (generated.parent / "modular_new.py").read_text()
    assert (
        "from torch import nn\n" in modular
        and "nn.Module.__init__(self)\n        self.up = nn.Linear(2, 3)" in modular
    )
    done = check(CheckOptions((str(generated.parent),)))
    assert (done.exit_code, list(done.findings)) == (0, [])


DOCSTRING = '    """Two methods."""\n\n'
DOCUMENTED = {
    "the text of the class": (("Two methods", "Two of them"), '(OldMLP):\n    """Two of them."""\n'),
    "a method": (("x + 1", "x + 10"), "(OldMLP):\n    def second"),
}


@pytest.mark.parametrize("case", DOCUMENTED)
def test_a_docstring_is_written_where_it_was_edited(case: str, generated: Path) -> None:
    old = generated.parents[1] / "old/modeling_old.py"
    old.write_text(OLD.replace("    def first", f"{DOCSTRING}    def first"))
    fix(generated.parents[2])
    change, written = DOCUMENTED[case]
    edit(generated.parent, generated.name, *change)
    wanted = generated.read_text()
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert (result.exit_code, generated.read_text()) == (0, wanted), result.output
    assert written in (generated.parent / "modular_new.py").read_text()


COPIED = """\
import math


def doubled(x):
    return x * 2


class OldNorm:
    size: int = 1

    def scale(self, x):
        return math.sqrt(x)


class OldNet:
    limit: int = 3

    def run(self, x):
        return doubled(OldNorm().scale(x))
"""
COPYING = 'from ..old.modeling_old import OldNet\n\n\nclass NewNet(OldNet):\n    pass\n\n\n__all__ = ["NewNet"]\n'
CARRIED_COPIES = {
    "a function": ("x * 2", "x * 20", "def doubled(x):\n    return x * 20\n"),
    "a class": ("math.sqrt(x)", "math.exp(x)", "class NewNorm(OldNorm):\n    def scale"),
    "a setting": ("limit: int = 3", "limit: int = 4", "class NewNet(OldNet):\n    limit: int = 4\n"),
    "an import": ("import math\n", "import math\nimport os\n", "import os\n"),
}


FROM_OLD = "from ..old.modeling_old import"
IMPORTED = {
    "one line": (f"{FROM_OLD} OldNet\n", f"{FROM_OLD} OldNet, OldNorm\n"),
    "a line for each": (
        f"{FROM_OLD} (\n    OldNet,  # the last\n)\n",
        f"{FROM_OLD} (\n    OldNet,\n    OldNorm,  # the last\n)\n",
    ),
}


@pytest.mark.parametrize("case", IMPORTED)
def test_a_name_is_imported_by_the_statement_that_imports_from_its_module(case: str, tmp_path: Path) -> None:
    before, after = IMPORTED[case]
    for name, text in {"old/modeling_old.py": COPIED, "new/modular_new.py": COPYING}.items():
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True)
        path.write_text(text.replace(IMPORTED["one line"][0], before))
    fix(tmp_path)
    edit(tmp_path, "modeling_new.py", "math.sqrt(x)", "math.exp(x)")
    result = CliRunner().invoke(absorb_command, [str(tmp_path / "models/new/modeling_new.py")])
    assert result.exit_code == 0, result.output
    modular = (tmp_path / "models/new/modular_new.py").read_text()
    assert modular.startswith(after + "import math\n\n") and modular.count("import") == 2
    assert check(CheckOptions((str(tmp_path),))).exit_code == 0


STALE = {
    "the neighbour has changed": (("x + 1", "x + 9"), False, "is stale from line 12 on"),
    "it has changed in a commit": (("x + 1", "x + 9"), True, "is stale from line 12 on"),
    "nothing else has changed": (None, False, "proven"),
}


@pytest.mark.parametrize("case", STALE)
def test_lines_of_an_older_neighbour_are_no_edit(case: str, generated: Path) -> None:
    """Carried over, they would be an override that takes back what has changed in the neighbour."""
    change, is_committed, said = STALE[case]
    commit(generated.parents[2], new=True)
    if change:
        edit(generated.parents[1] / "old", "modeling_old.py", *change)
    if is_committed:
        commit(generated.parents[2])
    edit(generated.parent, generated.name, "x * 3", "x * 30")
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert said in result.stderr and result.exit_code == int(bool(change))
    assert bool(change) == (
        "modeling_old.py" in result.stderr and "--write` first, which undoes your edit" in result.stderr
    )
    modular = (generated.parent / "modular_new.py").read_text()
    assert modular == (NEW if change else NEW.replace("x * 3", "x * 30"))


@pytest.mark.parametrize("case", CARRIED_COPIES)
def test_an_edit_of_copied_definitions_is_written(case: str, tmp_path: Path) -> None:
    for name, text in {"old/modeling_old.py": COPIED, "new/modular_new.py": COPYING}.items():
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    fix(tmp_path)
    generated = tmp_path / "models/new/modeling_new.py"
    edit(generated.parent, generated.name, *CARRIED_COPIES[case][:2])
    if case == "an import":
        edit(generated.parent, generated.name, "math.sqrt(x)", "math.sqrt(len(os.sep))")
    wanted = generated.read_text()
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert result.exit_code == 0, result.output
    assert CARRIED_COPIES[case][2] in (generated.parent / "modular_new.py").read_text()
    assert (generated.read_text(), check(CheckOptions((str(generated.parent),))).exit_code) == (wanted, 0)


def test_what_no_override_gives_is_refused_with_the_place(generated: Path) -> None:
    edit(generated.parent, generated.name, "x + 1", "x+1")
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert result.exit_code == 1
    assert "modeling_old.py:6, or override it" in result.stderr
    assert (generated.parent / "modular_new.py").read_text() == NEW


def test_an_edit_that_is_no_python_is_refused_with_its_line(generated: Path) -> None:
    edit(generated.parent, generated.name, "y = x * 3", "y = (x * 3")
    line = generated.read_text().split("\n").index("        y = (x * 3") + 1
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert result.exit_code == 1
    assert f"the edit cannot be carried: line {line} is no Python: '(' was never closed" in result.stderr
    assert "write it at" not in result.stderr  # there is nothing to write


def test_the_text_of_a_proposal_is_no_reason(generated: Path) -> None:
    """A line between two inherited members may stand in no place of the modular file."""
    edit(generated.parent, generated.name, "return x + 1\n", "return x + 1\n\n    x=1\n")
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert result.exit_code == 1
    assert "indent" not in result.stderr and "no edit of the modular file was found" in result.stderr


def test_a_warning_that_an_edit_brings_is_told(generated: Path) -> None:
    edit(generated.parent, generated.name, "        y = x * 3\n", "        y = self.first(x)\n")
    edit(generated.parent, generated.name, "    def first(self, x):\n        return x + 1\n\n", "")
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert result.exit_code == 0, result.output
    assert "warning MC305 `NewMLP.first` is removed" in result.stderr


def test_where_the_lines_of_an_edit_would_stand_is_told(generated: Path) -> None:
    new = "\n    def third(self, x):\n        return x\n"
    edit(generated.parent, generated.name, "        return x + 1\n", f"        return x + 1\n{new}")
    result = CliRunner().invoke(absorb_command, [str(generated)])
    text = generated.read_text()
    line = text[: text.index("    def third")].count("\n") + 1
    assert result.exit_code == 1
    assert f"in its own order, with `def second(self, x):` in line {line}:" in result.stderr, result.stderr


def test_the_neighbour_takes_it_if_asked(generated: Path) -> None:
    edit(generated.parent, generated.name, "x + 1", "x + 10  # of NewMLP")
    assert CliRunner().invoke(absorb_command, ["--neighbour", str(generated)]).exit_code == 0
    assert "x + 10  # of OldMLP" in (generated.parents[1] / "old/modeling_old.py").read_text()


def test_a_text_that_no_conversion_gives_is_refused(generated: Path) -> None:
    edit(generated.parent, generated.name, "y = x * 3", "y=x*3")
    assert CliRunner().invoke(absorb_command, [str(generated)]).exit_code == 1


def test_the_reason_of_a_conversion_is_told(generated: Path) -> None:
    edit(generated.parent, generated.name, "        y = x * 3\n", "")
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert result.exit_code == 1
    assert "a conversion says: `NewMLP` (modeling_new.py:" in result.stderr, result.stderr
    assert "uses `y`" in result.stderr


def test_nothing_is_written_into_an_installed_package(generated: Path) -> None:
    (generated.parents[2] / "site-packages").mkdir()
    models = generated.parents[1].rename(generated.parents[2] / "site-packages/models")
    modular = models / "new/modular_new.py"
    edit(modular.parent, generated.name, "x * 3", "x * 30")
    result = CliRunner().invoke(absorb_command, [str(modular.with_name(generated.name))])
    assert result.exit_code == 2 and "belongs to an installed package" in result.output, result.output
    assert modular.read_text() == NEW


def test_nothing_to_carry(generated: Path) -> None:
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert (result.exit_code, "nothing to carry" in result.stderr) == (0, True)


def test_a_file_that_people_write_is_edited_directly(generated: Path) -> None:
    result = CliRunner().invoke(absorb_command, [str(generated.parents[1] / "old/modeling_old.py")])
    assert (result.exit_code, "Edit it directly" in result.stderr) == (2, True)
    (generated.parent / "modular_new.py").unlink()
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert (result.exit_code, "modular_new.py, which is missing" in result.stderr) == (2, True)


def test_what_a_modular_file_does_not_give_is_told(generated: Path) -> None:
    other, modular = generated.parent / "configuration_new.py", generated.parent / "modular_new.py"
    other.write_text("class NewConfig:\n    pass\n")
    result = CliRunner().invoke(absorb_command, [str(other)])
    assert (result.exit_code, "it is not generated from modular_new.py" in result.stderr) == (1, True)
    modular.write_text(NEW.replace("import OldMLP", "import Unheard"))
    result = CliRunner().invoke(absorb_command, [str(generated)])
    assert (result.exit_code, "MC313" in result.stderr, "not generated" in result.stderr) == (2, True, False)


def test_a_diff_is_shown_and_nothing_written(generated: Path) -> None:
    edit(generated.parent, generated.name, "x * 3", "x * 30")
    result = CliRunner().invoke(absorb_command, ["--diff", str(generated)])
    assert (result.exit_code, "+        y = x * 30" in result.stdout) == (0, True)
    assert "would give" in result.stderr and (generated.parent / "modular_new.py").read_text() == NEW
