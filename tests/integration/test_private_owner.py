"""The walk of a private owner: a package with names, folders and formatters of its own. `init` finds them, a new model
converts and checks, and the project's own hooks of pre-commit pass at the first try.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.commands.check import check_command
from modular_converter.commands.convert import convert_command
from modular_converter.commands.subcommands import SUBCOMMANDS


FILES = {
    "lib/acme/__init__.py": "",
    "lib/acme/nets/__init__.py": "",
    "lib/acme/nets/resmix/__init__.py": "",
    "lib/acme/nets/tinymix/__init__.py": "",
    "lib/acme/base.py": '''\
from torch import nn


class BaseNet(nn.Module):
    """What all nets are."""
''',
    "lib/acme/nets/resmix/settings_resmix.py": '''\
class ResMixSettings:
    """The sizes of ResMix."""

    model_type = "resmix"

    def __init__(self, width: int = 32, depth: int = 2, dropout: float = 0.0):
        self.width = width
        self.depth = depth
        self.dropout = dropout


__all__ = ["ResMixSettings"]
''',
    "lib/acme/nets/resmix/net_resmix.py": '''\
import torch
from torch import nn

from ...base import BaseNet
from .settings_resmix import ResMixSettings


class ResMixBlock(nn.Module):
    """A block of ResMix."""

    def __init__(self, settings: ResMixSettings):
        super().__init__()
        self.inner = nn.Linear(settings.width, settings.width)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.dropout(self.inner(hidden))


class ResMixNet(BaseNet):
    def __init__(self, settings: ResMixSettings):
        super().__init__()
        self.blocks = nn.ModuleList([ResMixBlock(settings) for _ in range(settings.depth)])

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


__all__ = ["ResMixNet"]
''',
    "lib/acme/nets/tinymix/modular_tinymix.py": """\
import torch
from torch import nn

from ..resmix.net_resmix import ResMixBlock, ResMixNet
from ..resmix.settings_resmix import ResMixSettings


class TinyMixSettings(ResMixSettings):
    def __init__(
        self, width: int = 16, depth: int = 1, dropout: float = 0.0, gate_scale: float = 0.5
    ):
        super().__init__(width, depth, dropout)
        self.gate_scale = gate_scale


class TinyMixBlock(ResMixBlock):
    def __init__(self, settings: TinyMixSettings):
        super().__init__(settings)
        self.gate = nn.Linear(settings.width, settings.width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + torch.sigmoid(self.gate(hidden)) * self.dropout(self.inner(hidden))


class TinyMixNet(ResMixNet):
    pass


__all__ = ["TinyMixNet", "TinyMixSettings"]
""",
    "pyproject.toml": """\
[project]
name = "acme"
version = "1"

[tool.black]
line-length = 100

[tool.isort]
profile = "black"
line_length = 100
""",
}
HOOKS = """\
repos:
  - repo: local
    hooks:
      - {{id: black, name: black, entry: "{python} -m black", language: system, types: [python]}}
      - {{id: isort, name: isort, entry: "{python} -m isort", language: system, types: [python]}}
      - id: check-modular-conversion
        name: check
        entry: "{python} {root}/utils/check_modular_conversion.py"
        language: system
        pass_filenames: false
"""
ROOT = Path(__file__).parents[2]
NEEDED = ("black", "isort", "pre_commit")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, "PRE_COMMIT_HOME": str(folder.parent / "home"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def convert(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(folder, sys.executable, "-c", "from modular_converter.commands.convert import main; main()", *arguments)


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / "acme" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "acme" / name).write_text(text)
    return tmp_path / "acme"


@pytest.mark.skipif(not all(map(importlib.util.find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}")
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_private_package_passes_its_own_hooks_at_the_first_try(acme: Path) -> None:
    (acme / ".pre-commit-config.yaml").write_text(HOOKS.format(python=sys.executable, root=ROOT))
    assert run(acme, "git", "init", "-q").returncode == 0

    done = convert(acme, "init")
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "lib/acme/nets: 1 model (resmix)",
        "resmix is ResMix",
        "BaseNet",
        "black, line length 100, then isort",
    ):
        assert said in done.stdout
    assert "generated from lib/acme/nets/MODEL/modular_MODEL.py" in done.stdout
    assert "unchanged by the formatter: 2 of 2 files" in done.stdout

    done = convert(acme, "tinymix", "--strict")
    assert done.returncode == 0 and "2 written" in done.stderr, done.stdout + done.stderr
    generated = (acme / "lib/acme/nets/tinymix/net_tinymix.py").read_text()
    assert generated.startswith(
        "# This file was automatically generated from lib/acme/nets/tinymix/modular_tinymix.py.\n"
    )
    assert "import torch\nfrom torch import nn\n\nfrom ...base import BaseNet\n" in generated

    run(acme, "git", "add", "-A")
    hooks = run(acme, sys.executable, "-m", "pre_commit", "run", "--all-files")
    assert hooks.returncode == 0, hooks.stdout + hooks.stderr


def test_settings_that_exist_are_kept(acme: Path) -> None:
    path = acme / "pyproject.toml"
    path.write_text(FILES["pyproject.toml"] + '[tool.modular-converter]\nroot = "lib/acme/nets"\n')
    before = path.read_text()
    done = convert(acme, "init")
    assert done.returncode == 1 and "nothing is written" in done.stdout and 'package = "acme"' in done.stdout
    assert path.read_text() == before


def moved(old: str, new: str) -> dict[str, str]:
    return {name.replace(old, new): text for name, text in FILES.items()}


RESMIX, TINYMIX = "lib/acme/nets/resmix/", "lib/acme/nets/tinymix/modular_tinymix.py"
ELSEWHERE = {name: text for name, text in FILES.items() if "mix" not in name}
NET = FILES[f"{RESMIX}net_resmix.py"].replace("...base", "..base")
SETTINGS = FILES[f"{RESMIX}settings_resmix.py"]
PREFIXED = {
    **ELSEWHERE,
    "lib/acme/nets/net_resmix.py": NET,
    "lib/acme/nets/settings_resmix.py": SETTINGS,
    "lib/acme/nets/modular_tinymix.py": FILES[TINYMIX].replace("from ..resmix", "from "),
}
ONE_FILE = {
    **ELSEWHERE,
    "lib/acme/nets/resmix.py": NET.replace("from .settings_resmix import ResMixSettings\n", "")
    .replace("\n\nclass ResMixBlock", f"\n\n{SETTINGS.partition('__all__')[0]}class ResMixBlock")
    .replace('["ResMixNet"]', '["ResMixNet", "ResMixSettings"]'),
    "lib/acme/nets/modular_tinymix.py": FILES[TINYMIX]
    .replace("from ..resmix.net_resmix", "from .resmix")
    .replace("from ..resmix.settings_resmix", "from .resmix"),
}
SUFFIXED = {
    name.replace("net_resmix", "resmix_net").replace("settings_resmix", "resmix_settings"): text.replace(
        "net_resmix", "resmix_net"
    ).replace("settings_resmix", "resmix_settings")
    for name, text in FILES.items()
}
PLAIN = {**FILES, "pyproject.toml": "[project]\nname = 'acme'\n"}
SHAPES = {
    "src": moved("lib/acme", "src/acme"),
    "without __init__": {name: text for name, text in FILES.items() if "__init__" not in name},
    "package called as the models": moved("lib/acme/nets", "lib/acme/acme"),
    "package called as a model": moved("lib/acme/", "lib/resmix/"),
    "kind behind the model": SUFFIXED,
    "one folder": PREFIXED,
    "one file a model": ONE_FILE,
    "isort elsewhere": {
        **FILES,
        "pyproject.toml": "[tool.black]\n",
        "setup.cfg": "[isort]\nforce_single_line = true\n",
    },
    "no formatter": PLAIN,
    "tabs": {name: text.replace("    ", "\t") for name, text in PLAIN.items()},
    "Windows": {name: text.replace("\n", "\r\n") for name, text in FILES.items()},
    "two packages": {**FILES, **moved("lib/acme", "lib/bolt"), "pyproject.toml": FILES["pyproject.toml"]},
}


@pytest.mark.skipif(not all(map(importlib.util.find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}")
@pytest.mark.parametrize("shape", SHAPES)
def test_packages_of_other_shapes_need_one_try(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in SHAPES[shape].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(SUBCOMMANDS["init"], [])
    assert done.exit_code == 0, done.output
    assert ("lib/bolt/nets holds models, too" in done.output) is (shape == "two packages")
    done = CliRunner().invoke(convert_command, ["tinymix", "--strict"])
    number = 1 if shape == "one file a model" else 2
    assert done.exit_code == 0 and f"{number} written" in done.output, done.output
    assert CliRunner().invoke(check_command, []).exit_code == 0
    generated = max(
        tmp_path.rglob("*tinymix*.py"), key=lambda path: "class TinyMixNet(BaseNet)" in path.read_text()
    ).read_bytes()
    assert (b"\r\n" in generated) is (shape == "Windows") and (b"\n\t" in generated) is (shape == "tabs")
    assert b"\r" not in generated.replace(b"\r\n", b"")
