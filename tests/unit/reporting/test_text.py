"""The report for people."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import sys

import pytest

from modular_converter.findings import Finding, Location, Rule
from modular_converter.reporting import FORMATS, render, wants_color


ERROR = Rule("MC199", "an-error", "a summary")
WARNING = Rule("MC399", "a-warning", "a summary")


def text(finding: Finding) -> list[str]:
    return render("text", [finding], cwd="/project").splitlines()


def test_place_message_line_caret_and_help() -> None:
    finding = Finding(ERROR, Location("m.py", 12, 14, 12, 20), "`OldMlp` is not there", "Write `OldMLP`.")
    assert text(finding.with_source("\n" * 11 + "class NewMLP(OldMlp):\n")) == [
        "m.py:12:14: error MC199 `OldMlp` is not there",
        "   12 | class NewMLP(OldMlp):",
        "      |              ^^^^^^",
        "  help: Write `OldMLP`.",
    ]


def test_without_line_and_help_one_line_is_enough() -> None:
    assert text(Finding(WARNING, Location("m.py"), "odd")) == ["m.py:1:1: warning MC399 odd"]


@pytest.mark.parametrize(
    ("line", "location", "carets"),
    [
        pytest.param("abc", Location("m.py", 1, 2), " ^", id="no end is one caret"),
        pytest.param("abc", Location("m.py", 1, 2, 3, 1), " ^^", id="an end on another line marks the rest"),
        pytest.param("abc", Location("m.py", 1, 9), "   ^", id="a column past the end marks the end"),
        pytest.param("\tabc", Location("m.py", 1, 2, 1, 5), "    ^^^", id="a tab takes four cells"),
        pytest.param("漢 = x", Location("m.py", 1, 5, 1, 6), "     ^", id="a wide character takes two"),
        pytest.param("漢", Location("m.py", 1, 1, 1, 2), "^^", id="and two carets"),
        pytest.param("e\u0301 = x", Location("m.py", 1, 6, 1, 7), "    ^", id="a combining accent takes none"),
    ],
)
def test_carets_stand_below_what_they_mark(line: str, location: Location, carets: str) -> None:
    assert text(Finding(ERROR, location, "wrong", source_line=line))[2] == "      | " + carets


def test_errors_are_last_each_in_the_order_of_places_whatever_comes_first() -> None:
    places = [("b.py", 1, 1), ("a.py", 10, 1), ("a.py", 2, 9), ("a.py", 2, 1)]
    findings = [Finding(rule, Location(*place), "x") for place in places for rule in (WARNING, ERROR)]
    report = render("text", findings)
    assert report == render("text", reversed(findings))
    in_order = ["a.py:2:1", "a.py:2:9", "a.py:10:1", "b.py:1:1"]
    lines = report.splitlines()
    assert [line.split(": ")[0] for line in lines] == in_order * 2
    assert [" error " in line for line in lines] == [False] * 4 + [True] * 4


def test_paths_are_shown_relative_to_where_one_stands(tmp_path: pathlib.Path) -> None:
    def shown(path: pathlib.Path | str) -> str:
        return render("text", [Finding(ERROR, Location(str(path)), "x")], cwd=str(tmp_path / "here")).split(":1:1")[0]

    assert shown(tmp_path / "here" / "a" / "m.py") == os.path.join("a", "m.py")
    assert shown(tmp_path / "m.py") == str(tmp_path / "m.py")
    assert shown(tmp_path / "here" / "..m.py") == "..m.py"
    assert shown("a/m.py") == "a/m.py"


def test_colours_change_nothing_but_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    monkeypatch.setenv("COLUMNS", "20")
    message = "[bold]a message that is much longer than the terminal is wide[/bold] :smile: https://x.y"
    finding = Finding(ERROR, Location("m.py", 1, 2), message, "Some help.", "abc")
    plain, coloured = render("text", [finding]), render("text", [finding], color=True)
    assert "\x1b[1;31m" in coloured
    assert Text.from_ansi(coloured.replace("\n", "\\n")).plain == plain.replace("\n", "\\n")


def test_nothing_to_say_is_nothing() -> None:
    assert render("text", []) == render("text", [], color=True) == render("github", []) == ""


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(ValueError, match="'xml'; there are text, json, github, sarif"):
        render("xml", [])
    assert FORMATS == ("text", "json", "github", "sarif")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
    ],
)
def test_colours_are_for_terminals(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, environment: dict[str, str], expected: bool
) -> None:
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_color(stream) is expected


def test_plain_text_does_not_import_rich() -> None:
    code = (
        "import sys\n"
        "from modular_converter.findings import Finding, Location\n"
        "from modular_converter.reporting import render\n"
        "from modular_converter.rules import input_files\n"
        "render('text', [input_files.cycle(Location('m.py'), ('a', 'b'))])\n"
        "print('rich' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_a_long_line_is_shown_around_the_place() -> None:
    line = "a" * 5000 + "bad" + "c" * 3_000_000
    _, shown, carets = text(Finding(ERROR, Location("m.py", 1, 5001, 1, 5004), "wrong", source_line=line))
    assert len(shown) < 320 and shown.startswith("    1 | …aaa") and shown.endswith("ccc…")
    assert shown[carets.index("^") : carets.index("^") + 3] == "bad" and carets.count("^") == 3
    whole = Finding(ERROR, Location("m.py", 1, 1, 1, 3_000_000), "wrong", source_line=line)
    assert max(map(len, text(whole))) < 320


def test_control_characters_are_escaped_everywhere() -> None:
    nasty = "\x1b[2J\x1b]0;t\x07\x9b\u202e"
    location = Location(f"/project/x{nasty}\n::stop-commands::t/m.py", 1, 1)
    finding = Finding(ERROR, location, f"in {nasty}\n::set-output::x", f"not {nasty}", f"{nasty}\tx = ##[group]")
    for color in (False, True):
        report = render("text", [finding], color=color, cwd="/project")
        assert not any(sign in report for sign in ("\x07", "\x9b", "\u202e", "[2J\x1b]"))
        assert "x\\x1b[2J\\x1b]0;t\\x07\\x9b\\u202e\\x0a::stop-commands::t/m.py" in report
        assert "##[" not in report
        assert not any(line.lstrip().startswith("::") for line in report.splitlines())


def test_a_path_begins_no_command_of_a_ci_log() -> None:
    assert text(Finding(ERROR, Location("::stop-commands::t/m.py"), "x"))[0].startswith("\\x3a:stop-commands")


def test_carets_count_what_is_shown_of_control_characters() -> None:
    lines = text(Finding(ERROR, Location("m.py", 1, 2, 1, 3), "wrong", source_line="\x0c\x0bx"))
    assert lines[1:] == ["    1 | \\x0c\\x0bx", "      |     ^^^^"]
