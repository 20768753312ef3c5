"""`modular-convert where`: what it tells of lines, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.subcommands import where_command
from modular_converter.convert.batch import Run
from modular_converter.provenance.generated import align, same_names
from tests.unit.trees import add, fix


def ask(*places: str) -> Result:
    return CliRunner().invoke(where_command, list(places))


def told(*places: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(where_command, [*places, "--format", "json"])
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["schema"], report["version"]) == ("modular-converter/where", 2)
    lines: list[dict[str, Any]] = report["lines"]
    return lines


def line_of(path: Path, text: str) -> int:
    return next(number for number, line in enumerate(path.read_text().split("\n"), 1) if text in line)


def test_a_line_is_followed_through_all_neighbours(tree: Path) -> None:
    leaf = tree / "models/leaf/modeling_leaf.py"
    (answer,) = told(f"{leaf}:{line_of(leaf, 'return x + 1')}")
    (heir,) = answer["origins"]
    (base,) = heir["origins"]
    assert (answer["kind"], heir["kind"], base["kind"]) == ("generated", "generated", "flat")
    assert answer["neighbours"] == 2 and answer["definition"] == "LeafMLP"
    assert base["path"].endswith("modeling_base.py")
    assert base["line"] == base["end_line"] == line_of(tree / "models/base/modeling_base.py", "return x + 1")
    assert base["text"].strip() == heir["text"].strip() == "return x + 1"
    heads = [one for one in ask(f"{leaf}:{answer['line']}").stdout.split("\n") if "<-" in one]
    assert [one.index("<-") for one in heads] == [2, 4]
    assert "modeling_heir.py" in heads[0] and "modeling_base.py" in heads[1]


def test_a_header_comes_from_the_modular_file_and_from_the_parent(tree: Path) -> None:
    heir = tree / "models/heir/modeling_heir.py"
    done = ask(f"{heir}:{line_of(heir, 'class HeirMLP')}")
    assert "class HeirMLP(BaseMLP):" in done.stdout and "class BaseMLP(nn.Module):" in done.stdout
    assert "through 1 neighbour\n" in done.stdout


def test_the_notice_and_the_imports_are_made(tree: Path) -> None:
    heir = tree / "models/heir/modeling_heir.py"
    for number in (1, line_of(heir, "from torch import nn")):
        assert "made by the converter" in ask(f"{heir}:{number}").stdout
        assert told(f"{heir}:{number}")[0]["origins"] == []


def test_a_line_of_a_modular_file_ends_up_in_several_places_or_in_none(tree: Path) -> None:
    modular = tree / "models/heir/modular_heir.py"
    modular.write_text(
        "from ..base.modeling_base import BaseMLP\n\n\ndef twice(x):\n    return 2 * x\n\n\n"
        "class HeirMLP(BaseMLP):\n    def forward(self, x):\n        return twice(x)\n\n\n"
        "class HeirImageProcessor:\n    def f(self, x):\n        return twice(x)\n"
    )
    for name in ("modeling", "image_processing"):
        (tree / f"models/heir/{name}_heir.py").unlink(missing_ok=True)
    check(CheckOptions(root=str(tree), fix=True))
    first, second = told(f"{modular}:{line_of(modular, 'return 2 * x')}", f"{modular}:1")
    assert [Path(one["path"]).name for one in first["destinations"]] == [
        "image_processing_heir.py",
        "modeling_heir.py",
        "modeling_leaf.py",
    ]
    assert {one["text"] for one in first["destinations"]} == {"    return 2 * x"}
    assert second["destinations"] == [] and "in no generated file" in ask(f"{modular}:1").stdout


def test_a_line_that_becomes_several_is_one_place(tree: Path) -> None:
    modular = tree / "models/heir/modular_heir.py"
    long = f"return [{', '.join(f'x + {number}000000' for number in range(12))}]"
    modular.write_text(modular.read_text().replace("    pass\n", f"    def more(self, x):\n        {long}\n"))
    fix(tree)
    (answer,) = told(f"{modular}:{line_of(modular, 'return [')}")
    generated = tree / "models/heir/modeling_heir.py"
    first = line_of(generated, "return [")
    assert [(one["line"], one["end_line"]) for one in answer["destinations"]][0] == (first, first + 13)
    assert [Path(one["path"]).name for one in answer["destinations"]] == ["modeling_heir.py", "modeling_leaf.py"]


def test_a_line_of_a_modular_file_is_followed_into_the_files_of_its_heirs(tree: Path) -> None:
    """`leaf` and `twig` inherit from `heir`, and `twin` from both at once, which tells each line once."""
    modular = tree / "models/heir/modular_heir.py"
    modular.write_text(modular.read_text().replace("    pass\n", "    def more(self, x):\n        return x - 1\n"))
    add(tree / "models", "twig", "heir")
    twin = add(tree / "models", "twin", "leaf")
    both = "from ..heir.modeling_heir import HeirMLP\nfrom ..leaf.modeling_leaf import LeafMLP\n\n\nclass TwinMLP(LeafMLP):\n"
    twin.write_text(both + "    pass\n\n\nclass TwinHeirMLP(HeirMLP):\n    pass\n")
    fix(tree)
    (answer,) = told(f"{modular}:{line_of(modular, 'return x - 1')}")
    ways = [(Path(one["path"]).name, one["definition"], one["neighbours"]) for one in answer["destinations"]]
    assert ways == [
        ("modeling_heir.py", "HeirMLP", 0),
        ("modeling_leaf.py", "LeafMLP", 1),
        ("modeling_twig.py", "TwigMLP", 1),
        ("modeling_twin.py", "TwinHeirMLP", 1),
        ("modeling_twin.py", "TwinMLP", 2),
    ]
    assert {one["text"].strip() for one in answer["destinations"]} == {"return x - 1"}
    done = ask(f"{modular}:{line_of(modular, 'return x - 1')}")
    assert "modeling_twin.py:" in done.stdout and " in TwinMLP through 2 neighbours\n" in done.stdout


def test_a_line_that_an_heir_overrides_is_not_followed_into_it(tree: Path) -> None:
    modular = tree / "models/heir/modular_heir.py"
    modular.write_text(modular.read_text().replace("    pass\n", "    def more(self, x):\n        return x - 1\n"))
    leaf = tree / "models/leaf/modular_leaf.py"
    leaf.write_text(leaf.read_text().replace("    pass\n", "    def more(self, x):\n        return x - 2\n"))
    fix(tree)
    (answer,) = told(f"{modular}:{line_of(modular, 'return x - 1')}")
    assert [Path(one["path"]).name for one in answer["destinations"]] == ["modeling_heir.py"]


def test_a_second_question_converts_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modular = tree / "models/heir/modular_heir.py"
    place = f"{modular}:{line_of(modular, 'class HeirMLP')}"
    first = ask(place).stdout
    assert "modeling_leaf.py" in first or "modeling_heir.py" in first
    monkeypatch.setattr(Run, "convert", lambda *_: pytest.fail("converted again"))
    assert ask(place).stdout == first


def test_a_stale_heir_is_told_and_the_others_are_followed(tree: Path) -> None:
    modular = tree / "models/heir/modular_heir.py"
    modular.write_text(modular.read_text().replace("    pass\n", "    def more(self, x):\n        return x - 1\n"))
    add(tree / "models", "twig", "heir")
    fix(tree)
    stale = tree / "models/leaf/modeling_leaf.py"
    stale.write_text(stale.read_text() + "# by hand\n")
    done = ask(f"{modular}:{line_of(modular, 'return x - 1')}")
    assert done.exit_code == 1 and "MC401" in done.stderr and "modeling_leaf.py" in done.stderr
    assert "modeling_twig.py" in done.stdout and "modeling_leaf.py" not in done.stdout


def test_a_line_that_people_wrote_is_its_own_source(tree: Path) -> None:
    done = ask(f"{tree}/models/base/modeling_base.py:4")
    assert done.exit_code == 0 and "written by hand" in done.stdout


def test_a_stale_file_is_refused(tree: Path) -> None:
    heir = tree / "models/heir/modeling_heir.py"
    heir.write_text(heir.read_text().replace("x + 1", "x + 2"))
    done = ask(f"{heir}:10")
    assert (done.exit_code, done.stdout) == (1, "") and "MC401" in done.stderr and "--write" in done.stderr
    leaf = tree / "models/leaf/modeling_leaf.py"
    done = ask(f"{leaf}:{line_of(leaf, 'return x + 1')}")
    assert done.exit_code == 1 and "modeling_" in done.stderr


def test_a_file_in_an_output_folder_is_followed(tree: Path) -> None:
    settings = tree / "pyproject.toml"
    settings.write_text(settings.read_text() + 'output-dir = "out"\n')
    check(CheckOptions(root=str(tree), fix=True))
    heir = tree / "out/heir/modeling_heir.py"
    (answer,) = told(f"{heir}:{line_of(heir, 'return x + 1')}")
    assert answer["neighbours"] == 1 and answer["origins"][0]["path"].endswith("models/base/modeling_base.py")
    (answer,) = told(
        f"{tree}/models/heir/modular_heir.py:{line_of(tree / 'models/heir/modular_heir.py', 'class HeirMLP')}"
    )
    leaf = tree / "out/leaf/modeling_leaf.py"
    assert [Path(one["path"]) for one in answer["destinations"]] == [heir, leaf]


def test_an_orphan_is_refused(tree: Path) -> None:
    (tree / "models/leaf/modular_leaf.py").unlink()
    done = ask(f"{tree}/models/leaf/modeling_leaf.py:10")
    assert done.exit_code == 1 and "MC403" in done.stderr


def test_a_banner_that_leads_out_of_the_project_is_not_followed(tree: Path) -> None:
    leaf, private = tree / "models/leaf/modeling_leaf.py", tree.parent / "private"
    private.write_text("a secret\n")
    leaf.write_text(leaf.read_text().replace("models/leaf/modular_leaf.py", "../private"))
    assert "from ../private." in leaf.read_text()
    done = ask(f"{leaf}:10")
    assert done.exit_code == 1 and "MC403" in done.stderr and "secret" not in done.stderr


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("models/none/modeling_none.py:1", "MC103"),
        ("models/base:1", "it is a folder"),
        ("models/base/modeling_base.py:99", "MC120"),
        ("models/base/modeling_base.py:7", "MC120"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(place: str, code: str, tree: Path) -> None:
    done = ask(f"{tree}/{place}")
    assert (done.exit_code, done.stdout) == (2, "") and code in done.stderr and "help:" in done.stderr


@pytest.mark.parametrize("place", ["a.py", "a.py:", "a.py:0", ":3", "a.py:²", f"a.py:{'9' * 5000}"])
def test_an_argument_without_a_line_is_refused(place: str) -> None:
    done = ask(place)
    assert done.exit_code == 2 and "is not FILE:LINE" in done.stderr


def test_a_column_may_follow(tree: Path) -> None:
    path = tree / "models/base/modeling_base.py"
    assert told(f"{path}:4:9")[0]["line"] == 4


def test_lines_that_a_formatter_joins_and_parts_are_found() -> None:
    old = ["x = f(a,", "      b)", "y = [", "  1, 2, 3]", "z = 'q'"]
    new = ["x = f(a, b)", "y = [", "    1,", "    2,", "    3,", "]", 'z = "q"']
    assert align(new, old) == [[0, 1], [2], [3], [3], [3], [3], [4]]
    assert align(["unheard = 0", "z = 'q'"], old) == [[], [4]]


def test_a_line_of_parentheses_belongs_to_the_line_above() -> None:
    assert align(["x = f(", "    a,", ")", "", "y"], ["x = f(a)", "y"]) == [[0], [0], [0], [], [1]]
    assert align(["f(", "  a", ")"], ["f(", "  a", ")"]) == [[0], [1], [2]]
    assert align([")", "a"], ["a"]) == [[], [0]]


def test_names_of_a_list_are_found_in_any_order() -> None:
    old = ["__all__ = [", "  'b',  # a", "  'a', 'c',", "]  # b"]
    assert same_names(['__all__ = ["a", "b"]', '    "c",', "# a", "]"], old) == [[0, 1, 2], [2], [2], [3]]
