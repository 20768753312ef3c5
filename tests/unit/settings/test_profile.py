"""A library with conventions of its own is a folder of data: `profile/` beside this file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from modular_converter.api import convert_file
from modular_converter.git.affected import named_settings
from modular_converter.settings.load import SettingsError, load_settings


PROFILE = Path(__file__).parent / "profile"
PARENT = """\
from .options_old import OldOptions


log = None


class OldNetwork:
    def __init__(self, options: OldOptions):
        self.width = options.width
        self.freeze()


class OldReader:
    pass
"""
CHILD = """\
from ..old.network_old import OldNetwork, OldReader
from ..old.options_old import OldOptions


class NewOptions(OldOptions):
    name = "new"


class NewNetwork(OldNetwork):
    def __init__(self, options: NewOptions):
        super().__init__(options)
        self.depth = 2


class NewReader(OldReader):
    pass


__all__ = ["NewOptions", "NewNetwork", "NewReader"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose settings name the profile, with two models."""
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nprofile = "conventions"\n')
    shutil.copytree(PROFILE, tmp_path / "conventions")
    for name, text in (
        ("old/options_old.py", "class OldOptions:\n    width = 1\n"),
        ("old/network_old.py", PARENT),
        ("new/modular_new.py", CHILD),
    ):
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_profile_is_a_folder_of_data(project: Path) -> None:
    result = convert_file(project / "models/new/modular_new.py")
    files = {Path(path).name: text for path, text in result.files.items()}
    assert sorted(files) == ["network_new.py", "options_new.py", "read_new_stream.py"]
    assert "name = 'new'" in files["options_new.py"]
    network = files["network_new.py"]
    assert "from .options_new import NewOptions" in network
    assert network.index("self.depth = 2") < network.index("self.freeze()")


def test_its_files_count_as_settings(project: Path) -> None:
    settings = load_settings(project / "models")
    assert {str(project / "conventions" / name) for name in ("profile.toml", "ruff.toml")} <= named_settings(settings)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('package = "networks"\n', "", "lacks `package`"),
        ("[kinds]", "strict = true\n[kinds]", "unknown setting `strict`"),
        ("plan-names = []", "plan-names = 3", "must be a list of strings"),
        ('formatter = "ruff"', 'formatter = "rough"', "must be one of"),
    ],
)
def test_a_mistake_is_an_error_in_the_profile(project: Path, old: str, new: str, said: str) -> None:
    path = project / "conventions/profile.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(SettingsError) as error:
        load_settings(project / "models")
    assert said in error.value.findings[0].message and error.value.findings[0].location.path == str(path)


@pytest.mark.parametrize("named", ["elsewhere", "../conventions", "models"])
def test_a_folder_without_a_profile_is_an_error(project: Path, named: str) -> None:
    (project / "pyproject.toml").write_text(f'[tool.modular-converter]\nprofile = "{named}"\n')
    with pytest.raises(SettingsError) as error:
        load_settings(project / "models")
    assert "setting `profile`" in error.value.findings[0].message


def test_a_profile_outside_of_the_project_is_an_error_that_names_no_option(project: Path) -> None:
    shutil.copytree(PROFILE, project.parent / "outside")
    (project / "pyproject.toml").write_text('[tool.modular-converter]\nprofile = "../outside"\n')
    with pytest.raises(SettingsError, match="leads out of .*$") as caught:
        load_settings(project)
    assert "--profile" not in str(caught.value)


def test_its_ruff_configuration_extends_no_other(project: Path) -> None:
    (project / "conventions/ruff.toml").write_text('extend = "/private.toml"\n')
    with pytest.raises(SettingsError, match="extend"):
        load_settings(project / "models")
