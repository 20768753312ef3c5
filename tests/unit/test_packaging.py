"""What is packed and installed: all tracked files in the sdist, the package alone in the wheel and on the path."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
hatchling = pytest.importorskip("hatchling.build", reason="hatchling is not installed")
PROBE = """
import site, sys
sys.path.append(sys.argv[2])  # for `editables`; the .pth files of this folder are not read
site.addsitedir(sys.argv[1])
import modular_converter
print(modular_converter.__file__)
for name in ("models", "tests", "utils", "docs", "examples"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        pass
    else:
        print("importable:", name)
"""


def build(kind: str, folder: Path) -> Path:
    """Build in a process of its own, in the root of the project, as pip does."""
    code = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """The files that git tracks; outside a checkout, all files that `.gitignore` does not name."""
    if (ROOT / ".git").exists():
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line]
    paths = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
    return {
        path.as_posix()
        for path in paths
        if not any(fnmatch.fnmatch(part, pattern) for part in path.parts for pattern in ignored)
    }


def test_the_sdist_holds_every_tracked_file(tmp_path, tracked):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked - packed == set()


def test_the_wheel_holds_the_package_alone(tmp_path, tracked):
    with zipfile.ZipFile(build("wheel", tmp_path)) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name for name in tracked if name.startswith("modular_converter/")} - packed == set()
    assert {name.partition("/")[0] for name in packed} == {"modular_converter"}


def test_an_editable_install_makes_only_the_package_importable(tmp_path):
    editables = pytest.importorskip("editables")
    site = tmp_path / "site"
    with zipfile.ZipFile(build("editable", tmp_path)) as archive:
        archive.extractall(site)
    command = [sys.executable, "-I", "-S", "-c", PROBE, str(site), str(Path(editables.__file__).parents[1])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(ROOT / "modular_converter/__init__.py")]
