"""A release that the profile has not been checked with: one finding, and no file that exists is changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.convert import convert_command
from modular_converter.settings.load import is_unchecked, load_settings, parse_release, profile_settings
from tests.unit.trees import BASE, add, commit, edit, fix, run


CHECKED = profile_settings().checked_release
MAJOR, MINOR, *_ = parse_release(CHECKED)
NEXT = f"{MAJOR}.{MINOR + 1}"


def say(root: Path, line: str) -> None:
    (root / "src/transformers/__init__.py").write_text(f'"""The package."""\nimport os\n\n{line}\n')


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("module") / "checkout"
    models = root / "src/transformers/models"
    add(models, "heir", "base")
    add(models, "leaf", "heir")
    (models / "base").mkdir()
    (models / "base/modeling_base.py").write_text(BASE)
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    say(root, f'__version__ = "{CHECKED}"')
    fix(root)
    commit(root, new=True)
    say(root, f'__version__ = "{NEXT}.0.dev0"')
    return root


@pytest.fixture
def library(checkout: Path, tmp_path: Path, cache: None) -> Path:
    """A checkout of the package in a newer development version: `heir` builds on `base`, `leaf` on `heir`."""
    return Path(shutil.copytree(checkout, tmp_path / "checkout"))


def texts(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*.py"))}


def convert(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(convert_command, ["--root", str(root), *arguments])


def accept(root: Path, release: str) -> None:
    (root / "pyproject.toml").write_text(
        f'[tool.modular-converter]\nruff-config = "profile"\naccept-release = "{release}"\n'
    )


def test_a_release_that_is_exact_has_one_warning(library: Path) -> None:
    for _ in ("cold", "warm"):
        result = run(library)
        assert result.exit_code == 0 and result.output.count("MC") == 1, result.output
        assert f"__init__.py:4:1: warning MC394 transformers {NEXT}.0.dev0 is newer than {CHECKED}" in result.output
        assert f'`accept-release = "{NEXT}"`' in result.output
    assert run(library, "--strict").exit_code == 1
    (library / "pyproject.toml").write_text('[tool.modular-converter]\nroot = "src"\nignore = ["MC394"]\n')
    assert "MC394" not in run(library).output


def test_fix_changes_nothing_that_exists_and_writes_what_is_new(library: Path) -> None:
    edit(library, "modeling_base.py", "x + 1", "x + 2")
    new = add(library / "src/transformers/models", "fresh", "heir")
    before = texts(library)
    result = run(library)
    assert result.exit_code == 1 and "warning MC394" in result.output and "First cure MC394." in result.output
    assert result.output.count("error MC401") == 2 and texts(library) == before
    result = run(library, "--write")
    assert result.exit_code == 1 and result.stderr.count("MC394 ") == 1, result.output
    lines = [line for line in result.stderr.splitlines() if "error MC" in line]
    assert "error MC394" in lines[0] and "so no file that exists was changed" in lines[0]
    after = texts(library)
    assert after.keys() - before.keys() == {str(new.with_name("modeling_fresh.py"))}
    assert all(after[path] == text for path, text in before.items())


@pytest.mark.parametrize("way", ["setting", "option"])
@pytest.mark.parametrize("release", [NEXT, f"{NEXT}.0", f"{NEXT}.0.dev0", str(MAJOR), f"{MAJOR + 1}"])
def test_one_line_accepts_it(library: Path, way: str, release: str) -> None:
    edit(library, "modeling_base.py", "x + 1", "x + 2")
    if way == "setting":
        accept(library, release)
    options = ("--accept-release", release) if way == "option" else ()
    assert "MC394" not in run(library, *options).output
    assert run(library, "--write", *options).exit_code == 0 and run(library, *options).exit_code == 0


def test_the_converter_keeps_files_too(library: Path) -> None:
    edit(library, "modeling_base.py", "x + 1", "x + 2")
    new = add(library / "src/transformers/models", "fresh", "heir")
    before = texts(library)
    result = convert(library, "all")
    assert result.exit_code == 1 and result.output.count("error MC394") == result.output.count("MC") == 1
    assert "(1 written)" in result.output and new.with_name("modeling_fresh.py").exists()
    assert all(texts(library)[path] == text for path, text in before.items())
    assert convert(library, "all", "--dry-run").output.count("would change") == 3  # two files and the summary
    elsewhere = library.parent / "out"
    for _ in range(2):
        assert convert(library, "all", "--output-dir", str(elsewhere)).exit_code == 0
    edit(library, "modeling_base.py", "x + 2", "x + 3")
    assert convert(library, "leaf", "--output-dir", str(elsewhere)).exit_code == 0, "a folder outside of the package"
    inside = str(library / "src/transformers/models")
    assert convert(library, "all", "--output-dir", inside).exit_code == 1, "the same file by another way"
    assert convert(library, "all", "--accept-release", NEXT).exit_code == 0
    assert run(library, "--accept-release", NEXT).exit_code == 0


def test_cures_of_modular_files_are_kept_back_too(library: Path) -> None:
    edit(library, "modular_leaf.py", "    pass", "    pass  # modular: ignore[MC307]")
    before = texts(library)
    result = convert(library, "leaf", "--fix")
    assert result.exit_code == 1 and "error MC394" in result.output and texts(library) == before, result.output
    assert convert(library, "leaf", "--fix", "--accept-release", NEXT).exit_code == 0
    assert texts(library) != before


def test_watch_says_it_and_keeps_the_files(library: Path, capsys, monkeypatch) -> None:
    from modular_converter.commands import watch
    from modular_converter.commands.run_convert import ConvertOptions

    edit(library, "modeling_base.py", "x + 1", "x + 2")
    before = texts(library)
    state = watch.Watch(ConvertOptions(("all",), root=str(library)))
    watch._pass(state, None, "start")
    said = capsys.readouterr().out
    assert "MC394" in said and "wrote" not in said and texts(library) == before
    watch._pass(watch.Watch(ConvertOptions(("all",), root=str(library), accept_release=NEXT)), None, "start")
    assert "wrote" in capsys.readouterr().out and texts(library) != before


@pytest.mark.parametrize(
    ("said", "accepted", "unchecked"),
    [
        (f'"{CHECKED}"', "", False),
        (f'"{CHECKED}.dev0"', "", False),
        (f'"{MAJOR}.{MINOR - 1}.9"', "", False),
        (f'"{MAJOR}.{MINOR}"', "", False),
        (f'"{CHECKED}.post1"', "", False),
        (f'"{MAJOR}.{MINOR}.99"', "", True),
        (f'"{MAJOR}.{MINOR}.99"', f"{MAJOR}.{MINOR}", False),
        (f'"{NEXT}.0.dev0"', "", True),
        (f'"{NEXT}.0.dev0"', CHECKED, True),
        (f'"{NEXT}.0.dev0"', NEXT, False),
        (f'"{NEXT}.1"', f"{NEXT}.0", True),
        (f'"{NEXT}.1+local.7"', NEXT, False),
        (f'"{MAJOR + 1}.0.0rc1"', NEXT, True),
        (f'"{MAJOR + 1}.0.0rc1"', f"{MAJOR + 1}", False),
        (f'"{NEXT}.{"9" * 5000}"', "", True),
        ('"' + "9" * 5000 + '"', "", True),
        ("importlib.metadata.version(__name__)", "", True),
        ("importlib.metadata.version(__name__)", NEXT, False),
        ('"unknown"', "", True),
        (f'"{CHECKED}" + ".1"', "", True),
        (f'"5" ".{MINOR + 1}"', "", True),
        ('"1!9.0.0"', "", True),
        ('"5,25"', "", True),
        (f'"{CHECKED}"  # the last', "", False),
        (f"'{CHECKED}'; x = 1", "", False),
        (f'"{CHECKED}"\n__version__ = "{NEXT}.0"', "", True),
    ],
)
def test_versions(library: Path, said: str, accepted: str, unchecked: bool) -> None:
    say(library, f"__version__ = {said}")
    if accepted:
        accept(library, accepted)
    models = library / "src/transformers/models"
    assert is_unchecked(load_settings(models)) is unchecked
    findings = check(CheckOptions(root=str(library))).findings
    assert [one.code for one in findings] == ["MC394"] * unchecked


@pytest.mark.parametrize(
    "text",
    [
        "from .version import __version__",
        "try:\n    from ._version import __version__\nexcept ImportError:\n    __version__ = None",
        f"version = __version__ = '{CHECKED}'",
    ],
)
def test_a_version_that_stands_elsewhere_cannot_be_read(library: Path, text: str) -> None:
    say(library, text)
    assert is_unchecked(load_settings(library / "src/transformers/models"))


def test_a_link_of_another_name_is_the_package_too(library: Path) -> None:
    edit(library, "modeling_base.py", "x + 1", "x + 2")
    before = texts(library)
    link = library / "mylib"
    link.symlink_to(library / "src/transformers", target_is_directory=True)
    result = run(link, "--write")
    assert "MC394" in result.output and texts(library) == before, result.output
    convert(link, "all")
    assert texts(library) == before


def test_a_package_without_releases_has_none(library: Path) -> None:
    say(library, "")
    assert not is_unchecked(load_settings(library / "src/transformers/models"))
    say(library, f'__version__ = "{NEXT}.0"')
    (library / "src/transformers").rename(library / "src/mylib")
    assert not is_unchecked(load_settings(library / "src/mylib/models"))
    edit(library, "modeling_base.py", "x + 1", "x + 2")
    assert run(library, "--write").exit_code == 0 and "MC394" not in run(library).output


def test_programs_read_it_first(library: Path) -> None:
    edit(library, "modeling_base.py", "x + 1", "x + 2")
    found = json.loads(run(library, "--format", "json").stdout)
    assert [one["code"] for one in found] == ["MC394", "MC401", "MC401"]
    assert (found[0]["path"].endswith("transformers/__init__.py"), found[0]["line"]) == (True, 4)
    first = run(library, "--format", "github").stdout.splitlines()[0]
    assert first.startswith("::warning file=") and "transformers/__init__.py,line=4" in first
    results = json.loads(run(library, "--format", "sarif").stdout)["runs"][0]["results"]
    assert [one["ruleId"] for one in results] == ["MC394", "MC401", "MC401"]


@pytest.mark.parametrize("value", ["", "main", "5..2", ">=5"])
def test_an_option_that_is_no_version_is_refused(library: Path, value: str) -> None:
    assert run(library, "--accept-release", value).exit_code == 2
