"""`modular-convert --fix`: the fixes of findings, applied and proven."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modular_converter import convert_source
from modular_converter.commands.convert import convert_command
from modular_converter.findings import Edit, Finding, Fix, Rule, apply_edits
from modular_converter.rules import by_code, fixes, page_text


PARENT = """\
from torch import nn


class OldMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList()
        self.layers.append(nn.Linear(8, 8))

    def forward(self, x):
        return x

    def scaled(self, x):
        return 2 * x


__all__ = ["OldMLP"]
"""
CHILD = """\
from torch import nn

from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        self.more = 1
{line}

    def forward(self, x):
        return x + 1
{stub}

__all__ = [{all}]
"""


def plant(root: Path, line: str = "", stub: str = "", all: str = '"NewMLP"') -> Path:
    root.mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    text = CHILD.format(line=line, stub=stub, all=all).replace("1\n\n\n", "1\n\n")
    for name, content in (("old/modeling_old.py", PARENT), ("new/modular_new.py", text)):
        (root / "models" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "models" / name).write_bytes(content.encode())
    return root / "models/new/modular_new.py"


def convert(path: Path, *options: str) -> Result:
    return CliRunner().invoke(convert_command, [str(path), *options])


CASES = [
    ("MC322", {"line": "        self.layers.append(nn.Linear(8, 8))  # twice"}, False),
    ("MC303", {"line": "        del self.unheard_of"}, False),
    ("MC391", {"line": "        self.other = 2  # modular: ignore[MC322]"}, False),
    ("MC391", {"line": "        # modular: ignore[MC322, MC303]\n        self.other = 2"}, False),
    ("MC310", {"all": '"NewMLP", "Unheard"'}, True),
    ("MC310", {"all": '"Unheard", "NewMLP"'}, True),
    ("MC310", {"all": '\n    "NewMLP",\n    "Unheard",\n'}, True),
    ("MC317", {"stub": '    def scaled(self, x):\n        raise AttributeError("no")\n'}, True),
    ("MC330", {"stub": "\n    scaled = AttributeError  # those of the parent\n"}, True),
]


@pytest.mark.parametrize(("code", "parts", "changes"), CASES)
def test_a_fix_removes_its_finding_and_no_more(
    code: str, parts: dict[str, str], changes: bool, tmp_path: Path
) -> None:
    path = plant(tmp_path, **parts)
    before = convert_source(path.read_text(), path)
    assert {finding.code for finding in before.findings} == {code}
    if changes:
        text = path.read_text()
        said = convert(path, "--fix").stderr
        assert path.read_text() == text and "(unsafe)" in said and "1 with a fix, 1 of them unsafe" in said
    done = convert(path, "--fix", *(["--unsafe-fixes"] if changes else []))
    assert done.exit_code == 0 and f"{code} " in done.stderr and "fixed" in done.stderr
    after = convert_source(path.read_text(), path)
    assert after.findings == ()
    assert (after.files == before.files) is not changes
    assert (tmp_path / "models/new/modeling_new.py").read_text() == next(iter(after.files.values()))


def test_a_missing_name_is_added_to_the_exports(tmp_path: Path) -> None:
    path = plant(tmp_path, stub="\n\nclass NewMLP2(OldMLP):\n    pass\n", all='\n    "NewMLP",\n')
    assert convert(path, "--fix", "--unsafe-fixes").exit_code == 0
    assert '__all__ = [\n    "NewMLP",\n    "NewMLP2",\n]' in path.read_text()


@pytest.mark.parametrize("rule", [by_code(code) for code in fixes()], ids=lambda rule: rule.name)
def test_every_offered_fix_parses(rule: Rule, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    for name, text in page_text(rule).bad:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (path,) = tmp_path.glob("**/modular_*.py")
    for finding in convert_source(path.read_text(), path).findings:
        if finding.fix is not None:
            compile(apply_edits(path.read_text(), finding.fix.edits), str(path), "exec")


def test_what_is_no_plain_fix_is_not_offered(tmp_path: Path) -> None:
    misspelt = plant(tmp_path, line="        del self.layer", all='"NewMLP", "NewMLPs"')
    findings = convert_source(misspelt.read_text(), misspelt).findings
    assert {finding.code for finding in findings} == {"MC303", "MC310"}
    assert all(finding.fix is None for finding in findings)
    text = misspelt.read_text()
    convert(misspelt, "--fix", "--unsafe-fixes")
    assert misspelt.read_text() == text


@pytest.mark.parametrize(
    "names",
    [
        '\n    "NewMLP",  # kept\n    "Unheard",\n',
        '\n    "NewMLP",\n    "Unheard",  # gone\n',
        '\n    # gone\n    "Unheard",\n    "NewMLP",\n',
    ],
)
def test_a_name_beside_a_comment_stays_in_the_exports(names: str, tmp_path: Path) -> None:
    path = plant(tmp_path, all=names)
    (finding,) = convert_source(path.read_text(), path).findings
    assert finding.code == "MC310" and finding.fix is None


def test_a_comment_behind_the_last_export_keeps_its_name(tmp_path: Path) -> None:
    path = plant(tmp_path, stub="\n\nclass NewMLP2(OldMLP):\n    pass\n", all='\n    "NewMLP",  # kept\n')
    (finding,) = convert_source(path.read_text(), path).findings
    assert finding.code == "MC309" and finding.fix is None


def test_a_statement_beside_another_stays(tmp_path: Path) -> None:
    path = plant(tmp_path, line="        self.a = 1; self.layers.append(nn.Linear(8, 8))")
    (finding,) = convert_source(path.read_text(), path).findings
    assert finding.code == "MC322" and finding.fix is None


def test_several_fixes_follow_each_other_and_line_ends_stay(tmp_path: Path) -> None:
    line = "        self.layers.append(nn.Linear(8, 8))\n        del self.unheard_of  # modular: ignore[MC310]"
    path = plant(tmp_path, line=line, all='"NewMLP", "Unheard"')
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert convert(path, "--fix", "--unsafe-fixes").exit_code == 0
    assert convert_source(path.read_text(), path).findings == ()
    assert path.read_bytes() == plant(tmp_path / "other").read_bytes().replace(b"\n", b"\r\n")


def test_a_fix_that_does_not_hold_keeps_no_other_of_the_same_words_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two findings say the same; the fix of the first is made to change what is generated."""
    twice = "        self.layers.append(nn.Linear(8, 8))\n        self.layers.append(nn.Linear(8, 8))"
    path = plant(tmp_path, line=twice)
    first, second = convert_source(path.read_text(), path).findings
    assert first.message == second.message
    fix = fixes()[first.code]

    def spoilt(text: str, finding: Finding) -> Fix | None:
        good = fix(text, finding)
        bad = Edit(first.location.line, 1, first.location.line + 1, 1, "        self.other = 3\n")
        return good._replace(edits=(bad,)) if good and finding.location == first.location else good

    monkeypatch.setattr("modular_converter.convert.silence.fixes", lambda: {first.code: spoilt})
    done = convert(path, "--fix", "--unsafe-fixes")
    assert "1 finding fixed" in done.stderr and f":{first.location.line}: MC322: its fix would change" in done.stderr
    assert path.read_text() == plant(tmp_path / "other", line=twice.split("\n")[0]).read_text()


def test_diffs_and_dry_runs_write_nothing(tmp_path: Path) -> None:
    path = plant(tmp_path, line="        del self.unheard_of")
    text = path.read_text()
    assert "-        del self.unheard_of" in convert(path, "--fix", "--diff").stdout
    assert "1 finding would be fixed: MC303" in convert(path, "--fix", "--dry-run").stderr
    assert path.read_text() == text and not (tmp_path / "models/new/modeling_new.py").exists()


def test_programs_are_told_the_edits(tmp_path: Path) -> None:
    path = plant(tmp_path, line="        del self.unheard_of")
    number = path.read_text().split("\n").index("        del self.unheard_of") + 1
    (found,) = json.loads(convert(path, "--dry-run", "--format", "json").stdout)
    edit = {"line": number, "column": 1, "end_line": number + 1, "end_column": 1, "text": ""}
    assert found["fix"] == {"title": "Remove the `del`", "applicability": "safe", "edits": [edit]}
    sarif = json.loads(convert(path, "--dry-run", "--format", "sarif").stdout)
    (fix,) = sarif["runs"][0]["results"][0]["fixes"]
    (change,) = fix["artifactChanges"]
    assert change["replacements"][0]["deletedRegion"]["startLine"] == number


def test_edits_are_applied_from_behind() -> None:
    edits = [Edit(1, 1, 1, 2, "x"), Edit(2, 1, 3, 1, ""), Edit(1, 3, 1, 3, "é")]
    assert apply_edits("abc\ndef\ng", edits) == "xbéc\ng"
