"""The rules as a whole: every file is listed, codes are in order, and the examples are what they say."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import pytest

import modular_converter
from modular_converter import rules
from modular_converter.findings import Severity


PACKAGE = pathlib.Path(modular_converter.__file__).parent
FOLDERS = (PACKAGE / "rules", PACKAGE / "parallel" / "lint")


@pytest.mark.parametrize(
    "file", [path for folder in FOLDERS for path in folder.glob("[!_]*.py")], ids=lambda file: file.stem
)
def test_checks_and_fixes_have_the_names_of_rules_of_their_file(file: pathlib.Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    parts = {name.partition("_")[2] for name in functions if name.startswith(("check", "compare", "fix"))}
    named = {
        one.value.replace("-", "_")
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }
    rules_here = {rule.name.replace("-", "_") for rule in rules.all_rules()} & named
    assert rules_here and parts <= rules_here


def test_codes_are_unique_and_in_order() -> None:
    codes = [rule.code for rule in rules.all_rules()]
    assert codes == sorted(set(codes))


def test_the_hundreds_say_how_heavy_a_rule_is() -> None:
    weights = {(rule.code[2], rule.severity) for rule in rules.all_rules() if rule.name != "undefined-name"}
    assert weights == {(hundred, Severity.ERROR) for hundred in "1245"} | {
        (hundred, Severity.WARNING) for hundred in "36"
    }
    assert rules.by_code("undefined-name").severity is Severity.ERROR  # it once was a warning; codes stay


def test_an_explanation_teaches_in_a_few_lines() -> None:
    for rule in rules.all_rules():
        lines = rules.page_text(rule).explanation.splitlines()
        assert 3 <= len(lines) <= 11, rule.name
        assert max(map(len, lines)) < 120, rule.name
        assert rule.summary.strip() and not rule.summary.endswith(".") and "\n" not in rule.summary, rule.name


def test_examples_are_small_trees_with_a_modular_file() -> None:
    for rule in rules.all_rules():
        _, bad, good = rules.page_text(rule)
        assert bool(bad) == bool(good), rule.name
        for example in filter(None, (bad, good)):
            paths = [path for path, _ in example]
            assert len(set(paths)) == len(paths), rule.name
            assert any(path.split("/")[-1].startswith("modular_") for path in paths), rule.name
            for path, text in example:
                assert path.startswith("models/"), rule.name
                assert text.endswith("\n") and not text.endswith("\n\n"), rule.name
                if not (rule.name == "syntax-error" and example is bad):
                    ast.parse(text)


def test_good_and_bad_differ_in_the_modular_file_alone() -> None:
    for rule in rules.all_rules():
        bad, good = map(dict, rules.page_text(rule)[1:])
        changed = [path for path, text in bad.items() if path in good and good[path] != text]
        assert all("/modular_" in path for path in changed), rule.name
        assert changed or not bad, rule.name


def test_a_rule_is_found_at_its_place() -> None:
    for rule in rules.all_rules():
        assert rules.rule_at(rules.place_of(rule)) is rule


@pytest.mark.parametrize("place", ["", "os:path", "modular_converter.rules.removed_members:nothing"])
def test_another_place_has_no_rule(place: str) -> None:
    with pytest.raises(rules.UnknownRuleError):
        rules.rule_at(place)


@pytest.mark.parametrize("spelling", ["MC105", "mc105", " MC105 ", "unknown-parent", "unknown_parent"])
def test_a_rule_is_found_by_code_or_name(spelling: str) -> None:
    assert rules.by_code(spelling).code == "MC105"


def test_an_unknown_code_gets_a_hint() -> None:
    with pytest.raises(rules.UnknownRuleError, match="Did you mean `unknown-parent`"):
        rules.by_code("unknown-parant")


def test_one_rule_imports_neither_the_others_nor_the_facts() -> None:
    code = (
        "import sys; from modular_converter.rules import rule_at; rule_at('modular_converter.rules.tool_errors:internal-error')\n"
        "print(sorted(name for name in sys.modules if name.startswith('modular_converter.')))"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    loaded = ("findings", "rules", "rules.tool_errors", "version")
    assert out.strip() == str([f"modular_converter.{name}" for name in loaded])


def test_the_rules_of_the_wing_import_nothing_else_of_it() -> None:
    code = "import sys; from modular_converter.rules import checks; checks(); print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    own = {name.removeprefix("modular_converter.") for name in loaded if name.startswith("modular_converter.parallel")}
    assert "parallel.lint.plan_entries" in own
    assert {name for name in own if ".lint" not in name} == {"parallel", "parallel.errors"}
    assert not loaded & {"torch", "transformers", "numpy"}


def test_every_text_is_of_a_rule() -> None:
    folder = pathlib.Path(rules.__file__).parent / "texts"
    assert {path.stem for path in folder.iterdir()} == {rule.name for rule in rules.all_rules()}
