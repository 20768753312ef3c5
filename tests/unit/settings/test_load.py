"""Settings: the profile, what a project lays over it, and errors that point into its file."""

from __future__ import annotations

import dataclasses
import pathlib
import pickle
import subprocess
import sys
import textwrap

import pytest

from modular_converter.findings import Severity
from modular_converter.settings.load import NAMED_FILE, PROFILE_FOLDER, SettingsError, load_settings, profile_settings
from modular_converter.settings.toml_files import READERS
from modular_converter.settings.values import module_name


def project(folder: pathlib.Path, text: str, name: str = "pyproject.toml") -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def test_without_a_project_the_profile_holds(tmp_path: pathlib.Path) -> None:
    settings = load_settings(tmp_path)
    assert settings == profile_settings("transformers")
    assert settings.package == "transformers"
    assert settings.kinds["ImageProcessorPil"] == "image_processing_pil"
    assert "mamba_ssm" in settings.kept_names
    assert 'known-first-party = ["transformers"]' in settings.ruff_config
    assert settings.replaced_dependency is Severity.ERROR


@pytest.mark.parametrize(
    ("version", "video", "kept", "fast"),
    [
        ("5.23.0", "video_processing", True, False),
        ("5.18.0", "video_processing", True, False),
        ("5.17.1", "processing", True, False),
        ("5.15.1", "processing", True, False),
        ("5.14.1", "processing", False, False),
        ("5.2.0", "processing", False, True),
    ],
)
def test_the_release_decides_about_conventions(
    tmp_path: pathlib.Path, version: str, video: str, kept: bool, fast: bool
) -> None:
    project(tmp_path / "transformers", f'import torch\n\n__version__ = "{version}"\n', "__init__.py")
    (tmp_path / "transformers/models/emu").mkdir(parents=True)
    settings = load_settings(tmp_path / "transformers/models/emu")
    assert settings.kinds["VideoProcessorKwargs"] == video
    assert ("mamba_ssm" in settings.kept_names) is kept
    assert ("ImageProcessorFast" in settings.kinds) is fast


def test_a_package_that_says_no_release_follows_the_latest(tmp_path: pathlib.Path) -> None:
    project(tmp_path / "transformers", "__version__ = version()\n", "__init__.py")
    (tmp_path / "other").mkdir()
    project(tmp_path / "other", '__version__ = "5.0.0"\n', "__init__.py")
    settings = load_settings(tmp_path / "transformers")
    assert settings.package_release is not None and settings.package_release.version == ""
    assert (
        dataclasses.replace(settings, package_release=None) == load_settings(tmp_path / "other") == profile_settings()
    )


def test_settings_are_frozen_and_cross_a_process() -> None:
    settings = profile_settings()
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert hash(settings) == hash(profile_settings())
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.package = "other"  # type: ignore[misc]


def test_every_key_of_the_profile_is_a_field() -> None:
    fields = {field.name for field in dataclasses.fields(profile_settings())}
    read_otherwise = {"formatter_version", "required_version"}  # one goes into `pinned_formatter`, one is compared
    assert {key.replace("-", "_") for key in READERS} - read_otherwise <= fields


def test_the_profile_is_data_inside_the_package() -> None:
    names = {path.name for path in pathlib.Path(PROFILE_FOLDER).glob("transformers.*")}
    assert names == {"transformers.py", "transformers.ruff.toml"}


def test_the_nearest_table_is_laid_over_the_profile(tmp_path: pathlib.Path) -> None:
    project(tmp_path, "[tool.modular-converter]\npackage = 'outer'\n")
    path = project(
        tmp_path / "inner",
        """
        [tool.modular-converter]
        package = "inner"
        root = "src/inner"
        output-dir = "out"
        workers = 3
        strict = true
        formatter = "none"
        replaced-dependency = "warning"
        kept-names = ["oldnet", "mamba_ssm"]

        [tool.modular-converter.kinds]
        TokenizerFast = "tokenization_{model}_fast"
        Tokenizer = "tokenizer"
        """,
    )
    (tmp_path / "inner" / "src" / "deep").mkdir(parents=True)
    settings = load_settings(tmp_path / "inner" / "src" / "deep")
    assert settings.pyproject == str(path)
    assert (settings.package, settings.workers, settings.strict) == ("inner", 3, True)
    assert settings.root == str(tmp_path / "inner" / "src" / "inner")
    assert settings.output_dir == str(tmp_path / "inner" / "out")
    assert settings.replaced_dependency is Severity.WARNING
    assert settings.kept_names[-1] == "oldnet" and settings.kept_names.count("mamba_ssm") == 1
    assert settings.kinds["Tokenizer"] == "tokenizer" and settings.kinds["Config"] == "configuration"
    assert module_name("modeling", "gemma") == "modeling_gemma"
    assert module_name(settings.kinds["TokenizerFast"], "gemma") == "tokenization_gemma_fast"


def test_a_pyproject_without_the_table_is_passed_over(tmp_path: pathlib.Path) -> None:
    project(tmp_path, "[tool.modular-converter]\npackage = 'outer'\n")
    project(tmp_path / "inner", "[project]\nname = 'inner'\n")
    assert load_settings(tmp_path / "inner" / "missing.py").package == "outer"


def test_a_project_has_no_say_in_installed_packages(tmp_path: pathlib.Path) -> None:
    project(tmp_path, "[tool.modular-converter]\npackage = 'outer'\n[tool.ruff]\nline-length = 60\n")
    folder = tmp_path / ".venv" / "lib" / "site-packages" / "transformers"
    folder.mkdir(parents=True)
    assert load_settings(folder) == profile_settings()


@pytest.mark.parametrize(
    ("text", "place", "message", "help"),
    [
        ("wrokers = 3", (2, 1), "unknown setting `wrokers`", "Did you mean `workers`?"),
        (
            "profile = 'transformer'",
            (2, 1),
            'must be "transformers", "fla", "mlx_lm", "diffusers", or a folder with a profile.toml',
            "",
        ),
        ("workers = 'many'", (2, 1), "must be a whole number of at least 0, not 'many'", ""),
        ("workers = true", (2, 1), "must be a whole number", ""),
        ("max-file-bytes = 0", (2, 1), "at least 1", ""),
        ("strict = 1", (2, 1), "must be true or false, not 1", ""),
        ("kept-names = 'x'", (2, 1), "must be a list of strings", ""),
        ("package = ['x']", (2, 1), "must be a string", ""),
        ("formatter = 'yapf'", (2, 1), 'must be one of "ruff", "black", "none", not \'yapf\'', ""),
        ("replaced-dependency = 'off'", (2, 1), 'must be one of "error", "warning"', ""),
        ("package = 'x'\nkinds = { Fast = 3 }", (3, 1), "must be a table of strings", ""),
        ("[tool.modular-converter.kinds]\nFast = 3", (2, 23 + 2), "must be a table of strings", ""),
        ("ruff-config = 'missing.toml'", (2, 1), "names a file that does not exist", ""),
        ("package = 'x'\nstrict =", (3, 9), "cannot read these settings", "Correct the syntax"),
    ],
)
def test_a_bad_setting_is_named_with_its_place(
    tmp_path: pathlib.Path, text: str, place: tuple[int, int], message: str, help: str
) -> None:
    path = project(tmp_path, f"[tool.modular-converter]\n{text}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path)
    (finding,) = caught.value.findings
    assert finding.code == "MC116" and finding.location.path == str(path)
    assert (finding.location.line, finding.location.column) == place
    assert message in finding.message and help in finding.help
    assert finding.source_line == path.read_text().splitlines()[place[0] - 1]


def test_a_file_that_is_not_utf8_is_an_error_too(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.modular-converter]\npackage = '\xe9'\n")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load_settings(tmp_path)


def test_a_table_with_an_underscore_is_refused(tmp_path: pathlib.Path) -> None:
    path = project(tmp_path, "[project]\nname = 'x'\n\n[tool.modular_converter]\npackage = 'outer'\n")
    for read in (load_settings, lambda folder: _with_named_file(folder, path)):
        with pytest.raises(SettingsError) as caught:
            read(tmp_path)
        (finding,) = caught.value.findings
        assert finding.source_line == "[tool.modular_converter]"
        assert finding.help == "Write `[tool.modular-converter]`."


def _with_named_file(folder: pathlib.Path, path: pathlib.Path) -> object:
    token = NAMED_FILE.set(str(path))
    try:
        return load_settings(folder)
    finally:
        NAMED_FILE.reset(token)


def test_the_table_must_be_one(tmp_path: pathlib.Path) -> None:
    project(tmp_path, "[tool]\nmodular-converter = 3\n")
    with pytest.raises(SettingsError, match="must be a table"):
        load_settings(tmp_path)


def test_a_broken_pyproject_of_others_is_no_concern(tmp_path: pathlib.Path) -> None:
    project(tmp_path, "[project\n")
    assert dataclasses.replace(load_settings(tmp_path), project_folder="") == profile_settings()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": "[tool.ruff]\nline-length = 60\n"}, "pyproject.toml"),
        ({"pyproject.toml": "[tool.ruff]\n", "ruff.toml": "line-length = 60\n"}, "ruff.toml"),
        ({"ruff.toml": "line-length = 50\n", ".ruff.toml": "line-length = 60\n"}, ".ruff.toml"),
    ],
)
def test_the_project_s_own_ruff_settings_win(tmp_path: pathlib.Path, files: dict[str, str], expected: str) -> None:
    for name, text in files.items():
        project(tmp_path, text, name)
    settings = load_settings(tmp_path / "models")
    assert settings.ruff_config_path == str(tmp_path / expected)
    assert "60" in settings.ruff_config and "50" not in settings.ruff_config
    assert settings.ruff_folder == str(tmp_path)
    assert settings.ruff_source_roots == (str(tmp_path), str(tmp_path / "src"))


def test_ruff_settings_can_be_named_or_left_to_the_profile(tmp_path: pathlib.Path) -> None:
    table = "[tool.ruff]\nline-length = 60\n[tool.modular-converter]\nruff-config = "
    project(tmp_path, table + "'conf/ruff.toml'\n")
    project(tmp_path / "conf", "src = ['lib']\n", "ruff.toml")
    settings = load_settings(tmp_path)
    assert settings.ruff_config_path == str(tmp_path / "conf" / "ruff.toml")
    assert settings.ruff_source_roots == (str(tmp_path / "lib"),)
    project(tmp_path, table + "'profile'\n")
    assert load_settings(tmp_path).ruff_config == profile_settings().ruff_config


def test_source_roots_may_be_inherited(tmp_path: pathlib.Path) -> None:
    project(tmp_path, "[tool.ruff]\nextend = 'conf/base.toml'\n")
    project(tmp_path / "conf", "src = ['lib']\n", "base.toml")
    assert load_settings(tmp_path).ruff_source_roots == (str(tmp_path / "lib"),)


def test_black_settings_are_found(tmp_path: pathlib.Path) -> None:
    path = project(tmp_path, "[tool.black]\nline-length = 60\n")
    assert load_settings(tmp_path).black_config_path == str(path)


def test_loading_settings_stays_light() -> None:
    code = "import sys; before = set(sys.modules); import modular_converter.settings.load; print({'libcst', 'pathlib', 'tomllib', 'difflib'} & (set(sys.modules) - before))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
