"""Places, findings and the error that carries them."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.findings import (
    ConversionError,
    Finding,
    Location,
    Rule,
    Severity,
    did_you_mean,
    locate,
    locate_word,
    nearest,
    split_lines,
)


RULE = Rule("MC399", "a-rule", "a summary")


def test_a_location_reads_as_editors_expect() -> None:
    assert str(Location("models/new/modular_new.py", 12, 5)) == "models/new/modular_new.py:12:5"


def test_columns_are_characters_though_the_parser_counts_bytes() -> None:
    source = 'names = "é漢🙂", Wrong\n'
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.Assign) and isinstance(tree.value, ast.Tuple)
    assert locate("x.py", tree.value.elts[1], source) == Location("x.py", 1, 16, 1, 21)


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="'\\"), max_size=8))
def test_a_located_node_is_the_text_between_its_columns(text: str) -> None:
    source = f"x = '{text}', Name"
    node = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name) and node.id == "Name")
    location = locate("x.py", node, source)
    assert location.end_column is not None
    assert source[location.column - 1 : location.end_column - 1] == "Name"


def test_a_node_may_end_on_another_line() -> None:
    source = "call(\n    'é'\n)\n"
    assert locate("x.py", ast.parse(source).body[0], source) == Location("x.py", 1, 1, 3, 2)


@pytest.mark.parametrize(
    ("word", "line", "place"),
    [
        ("OldMLP", 1, (1, 15)),
        ("OldMLP", 2, (2, 12)),
        ("self.up", 1, (3, 5)),
        pytest.param("up", 1, (1, 1), id="an attribute is not the word itself"),
        ("Missing", 2, (2, 1)),
    ],
)
def test_a_word_is_found_at_or_below_a_line(word: str, line: int, place: tuple[int, int]) -> None:
    source = "from x import OldMLP, OldMLPs\nclass New(OldMLP):\n    self.up\n".replace("New(", " New(")
    location = locate_word("x.py", word, source, line)
    assert (location.line, location.column) == place


@pytest.mark.parametrize(
    ("word", "line", "place"),
    [
        pytest.param("New", 1, (6, 7), id="in code, though a string above it has the word"),
        pytest.param("Old", 1, (2, 6), id="in a string, as no code has the word"),
        pytest.param("noted", 1, (7, 13), id="in a comment"),
        pytest.param("last", 1, (8, 1), id="behind a string that holds quotes of the other kind"),
    ],
)
def test_a_word_is_found_in_code_before_strings(word: str, line: int, place: tuple[int, int]) -> None:
    source = '@words(\n  """Old New \\""" "New"\n  New\n"""\n)\nclass New:\n    pass  # noted "\nlast = \'"\' + "a\\"last"\n'
    location = locate_word("x.py", word, source, line)
    assert (location.line, location.column) == place


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_end_where_python_ends_them(newline: str) -> None:
    assert split_lines(f"a\x0cb{newline}c\u2028d") == ("a\x0cb", "c\u2028d")


def test_the_source_line_is_filled_in() -> None:
    finding = Finding(RULE, Location("x.py", 2, 1), "wrong")
    assert finding.with_source("first\nsecond\n").source_line == "second"
    assert Finding(RULE, Location("x.py", 9, 1), "wrong").with_source("first\n").source_line == ""


def test_severity_is_that_of_the_rule_unless_weighed_anew() -> None:
    finding = Finding(RULE, Location("x.py"), "wrong")
    assert finding.severity is Severity.WARNING and not finding.is_error
    assert finding.with_severity(Severity.ERROR).is_error
    assert str(finding) == "x.py:1:1: warning MC399 wrong"


def test_everything_crosses_a_process() -> None:
    error = ConversionError(Finding(RULE, Location("x.py", 1, 2, 3, 4), "wrong", "help", "line"))
    back = pickle.loads(pickle.dumps(error))
    assert isinstance(back, ConversionError)
    assert back.findings == error.findings
    assert str(back) == "x.py:1:2: warning MC399 wrong"


def test_spelling_hints() -> None:
    assert nearest("OldMlp", ["OldAttention", "OldMLP"]) == "OldMLP"
    assert did_you_mean("OldMlp", ["OldMLP"]) == "Did you mean `OldMLP`? "
    assert did_you_mean("OldMlp", ["Something"]) == ""
    assert did_you_mean("OldMLP", ["OldMLP", "OldMLPs"]) == "", "it is not misspelt"


def test_importing_findings_needs_the_standard_library_only() -> None:
    code = "import sys, modular_converter.findings; print({'libcst', 'click', 'rich', 'difflib'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
