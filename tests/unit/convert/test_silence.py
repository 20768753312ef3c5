"""Findings that an author silences: by comments, by settings, and what cannot be silenced."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter import convert_file
from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.convert import convert_command
from modular_converter.convert.source.library import ignore_comments, without_ignore_comments
from modular_converter.rules import all_rules
from modular_converter.settings.load import SettingsError, load_settings


OLD = "from torch import nn\n\n\nclass OldMLP(nn.Module):\n    def forward(self, x):\n        return x\n\n\n__all__ = ['OldMLP']\n"
NEW = (
    "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):{comment}\n    pass\n\n\n"
    "class NewOther(OldMLP):\n    pass\n\n\n__all__ = {exported}\n"
)
HEADER = '[tool.modular-converter]\nruff-config = "profile"\n'


@pytest.fixture
def modular(tmp_path: Path) -> Path:
    """A modular file with two warnings MC309, at lines 4 and 8."""
    for name in ("old", "new"):
        (tmp_path / "models" / name).mkdir(parents=True)
    (tmp_path / "models/old/modeling_old.py").write_text(OLD)
    path = tmp_path / "models/new/modular_new.py"
    write(path)
    settings(path, "")
    return path


def write(path: Path, comment: str = "", exported: str = '["x"]') -> None:
    path.write_text(NEW.format(comment=comment and f"  {comment}", exported=exported))


def settings(path: Path, text: str) -> None:
    (path.parents[2] / "pyproject.toml").write_text(HEADER + text)


def found(path: Path) -> list[tuple[str, int]]:
    return [(one.code, one.location.line) for one in convert_file(path).findings]


BARE = [("MC309", 4), ("MC309", 8), ("MC310", 12)]


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("", BARE),
        ("# modular: ignore[MC309]", BARE[1:]),
        ("# noqa: E501  # modular: ignore[missing-from-all]", BARE[1:]),
        ("# modular: ignore[MC3]", BARE[1:]),
        ("#modular:ignore[ mc309 ,]", BARE[1:]),
        ("# modular: ignore[MC309, MC301]", [("MC391", 4), *BARE[1:]]),
        ("# modular: ignore[MC301]", [*BARE[:1], ("MC391", 4), *BARE[1:]]),
        ("# modular: ignore", [*BARE[:1], ("MC392", 4), *BARE[1:]]),
        ("# modular: ignore[MC309x]", [*BARE[:1], ("MC392", 4), *BARE[1:]]),
        ("# modular: ignore[MC313]", [*BARE[:1], ("MC392", 4), *BARE[1:]]),
        ("# modular: ignore[MC1]", [*BARE[:1], ("MC392", 4), *BARE[1:]]),
        ("# modular: ignored[MC309]", BARE),
    ],
)
def test_a_comment_silences_its_line_and_never_reaches_the_generated_file(modular, comment, left):
    plain = convert_file(modular).files
    write(modular, comment)
    conversion = convert_file(modular)
    assert sorted((one.code, one.location.line) for one in conversion.findings) == sorted(left)
    for path, text in conversion.files.items():
        assert "modular: ignore[" not in text
        if "noqa" not in comment and "ignored" not in comment:
            assert text == plain[path]


@pytest.mark.parametrize("entry", ["MC335", "MC323", "MC33", "method-decorators"])
def test_the_code_of_the_rule_that_it_was_a_part_of_still_silences(modular, entry):
    old = modular.parents[1] / "old" / "modeling_old.py"
    old.write_text(
        "from torch import nn\n\n\nclass OldMLP(nn.Module):\n    @property\n    def a(self):\n        return 1\n"
    )
    text = (
        "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    def a(self):{}\n        return 2\n\n\n"
        '__all__ = ["NewMLP"]\n'
    )
    modular.write_text(text.format(""))
    assert found(modular) == [("MC335", 5)]
    settings(modular, f'ignore = ["{entry}"]\n')
    assert found(modular) == []
    settings(modular, "")
    modular.write_text(text.format(f"  # modular: ignore[{entry}]"))
    assert found(modular) == []


def test_what_is_wrong_with_a_comment_is_said_at_the_comment(modular):
    write(modular, "# modular: ignore[MC390, MC502]")
    fixed, unknown = (one for one in convert_file(modular).findings if one.code == "MC392")
    assert "there is no rule `MC390`. Did you mean `MC3" in unknown.message
    assert "`MC502` cannot be ignored, because an error means a wrong result" in fixed.message
    assert unknown.location.column == NEW.format(comment="  #", exported="").split("\n")[3].index("#") + 1


def test_an_error_is_not_silenced_and_hides_no_rule_as_unused(modular):
    modular.write_text(modular.read_text().replace("OldMLP):\n", "OldMlp):  # modular: ignore[MC105, MC301]\n", 1))
    codes = [code for code, _ in found(modular)]
    assert "MC392" in codes and "MC391" not in codes
    assert any(one.is_error for one in convert_file(modular).findings)


def test_a_string_is_no_comment():
    text = 'x = "# modular: ignore[MC309]"\n'
    assert not ignore_comments(text) and without_ignore_comments(text) == text
    assert without_ignore_comments("é = 1  # modular: ignore[A] because  # noqa\n") == "é = 1  # because  # noqa\n"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('ignore = ["MC309"]', BARE[2:]),
        ('ignore = ["missing-from-all", "MC310"]', []),
        ('ignore = ["MC3"]', []),
        ('select = ["MC310"]', BARE[2:]),
        ("select = []", []),
        ('select = ["MC309"]\nignore = ["MC3"]', BARE[:2]),
        ('select = ["MC3"]\nignore = ["MC309"]', BARE[2:]),
        ('per-file-ignores = { "modular_new.py" = ["MC309"] }', BARE[2:]),
        ('per-file-ignores = { "models/n*/*.py" = ["MC309"] }', BARE[2:]),
        ('per-file-ignores = { "models/o*/*.py" = ["MC309"] }', BARE),
    ],
)
def test_settings_silence_and_are_obeyed_at_once_by_a_warm_check(modular, tmp_path, text, left):
    root = str(tmp_path / "models")
    options = CheckOptions(root=root, fix=True, cache=str(tmp_path / "cache"))
    assert [one.code for one in check(options).findings] == [code for code, _ in BARE]
    settings(modular, text)
    assert found(modular) == left
    warm = check(options)
    assert [(one.code, one.location.line) for one in warm.findings] == left and warm.converted == 0
    strict = check(options._replace(strict=True))
    assert [(one.code, one.location.line) for one in strict.findings] == left
    assert strict.exit_code == (1 if left else 0), "what is silenced blocks no strict check"
    settings(modular, "")
    assert len(check(options).findings) == 3


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ('ignore = ["MC313"]', "setting `ignore` cannot be obeyed: `MC313` cannot be ignored", 3),
        ('\nignore = ["MC5"]', "`MC5` cannot be ignored", 4),
        ('ignore = ["replaced-dependency"]\nreplaced-dependency = "warning"', "cannot be ignored", 3),
        ('ignore = ["generated-file-differs"]', "cannot be ignored", 3),
        ('select = ["MC3099"]', "there is no rule `MC3099`. Did you mean `MC309`?", 3),
        ('per-file-ignores = { "a" = ["misssing-from-all"] }', "Did you mean `missing-from-all`?", 3),
        ('ignore = "MC309"', "must be a list", 3),
        ("per-file-ignores = []", "must be a table of lists", 3),
    ],
)
def test_a_setting_that_cannot_be_obeyed_is_an_error_at_its_line(modular, text, said, line):
    settings(modular, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(modular.parent)
    [finding] = caught.value.findings
    assert said in finding.message and finding.location.line == line and finding.code == "MC116"


def test_strict_with_a_comment_writes(modular):
    write(modular, exported='["NewMLP"]')
    text = modular.read_text().replace("class NewOther(OldMLP):", "class NewOther(OldMLP):  # modular: ignore[MC309]")
    modular.write_text(text)
    strict = dataclasses.replace(load_settings(modular.parent), strict=True)
    assert convert_file(modular, strict).files and not convert_file(modular, strict).findings


def test_exactly_the_warnings_can_be_ignored():
    for rule in all_rules():
        if rule.code[:3] in ("MC1", "MC2", "MC4", "MC5") or rule.code == "MC313":
            assert not rule.can_be_ignored, rule


def test_the_list_of_rules():
    lines = CliRunner().invoke(convert_command, ["--list-rules"]).output.splitlines()
    assert len(lines) == len(all_rules())
    assert lines[0].split()[:3] == ["MC101", "syntax-error", "error"]
    entries = json.loads(CliRunner().invoke(convert_command, ["--list-rules", "--format", "json"]).output)
    assert [entry["code"] for entry in entries] == [rule.code for rule in all_rules()]
    assert {"code", "name", "severity", "summary", "can_be_ignored", "by_default", "fix"} == set(entries[0])
    assert CliRunner().invoke(convert_command, ["--list-rules", "--format", "sarif"]).exit_code == 2
