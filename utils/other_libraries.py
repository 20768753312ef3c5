"""Other people's libraries at pinned releases, which `utils/ecosystem.py` downloads: wheels, of which only the sources are
unpacked. Nothing of a library is ever imported.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple


MOST_BYTES = 20_000_000


class OtherLibrary(NamedTuple):
    """A library on the package index with models, each in a file of its own."""

    name: str
    wheels: tuple[str, ...]
    """The requirements, each with its version."""
    package: str
    files: str
    """A pattern of the files of models, below the folder that the wheels are unpacked into."""
    lead: str = ""
    """A pattern of what stands before the name of the model in the name of its file."""
    settings: Mapping[str, str] = MappingProxyType({})
    """The settings under which its models are modularized where they lie; none for a library that is only counted."""
    is_small: bool = False
    """Whether the gate counts its repeated lines."""


LIBRARIES = (
    OtherLibrary(
        "flash-linear-attention",
        ("flash-linear-attention==0.6.0", "fla-core==0.6.0"),
        "fla",
        "fla/models/*/modeling_*.py",
        "modeling_",
        {"profile": "fla", "root": "fla/models"},
    ),
    OtherLibrary(
        "diffusers (pipelines)",
        ("diffusers==0.42.1",),
        "diffusers",
        "diffusers/pipelines/**/pipeline_*.py",
        "pipeline_",
    ),
    OtherLibrary(
        "diffusers (transformers)",
        ("diffusers==0.42.1",),
        "diffusers",
        "diffusers/models/transformers/*.py",
        "transformer_",
        {"profile": "diffusers", "root": "diffusers/models/transformers"},
    ),
    OtherLibrary(
        "diffusers (autoencoders)",
        ("diffusers==0.42.1",),
        "diffusers",
        "diffusers/models/autoencoders/*.py",
        "autoencoder_kl_|autoencoder_",
        {"profile": "diffusers", "root": "diffusers/models/autoencoders", "default-kind": "autoencoder_kl"},
    ),
    OtherLibrary(
        "mlx-lm",
        ("mlx-lm==0.32.2",),
        "mlx_lm",
        "mlx_lm/models/*.py",
        settings={"profile": "mlx_lm", "root": "mlx_lm/models"},
    ),
    OtherLibrary("timm", ("timm==1.0.31",), "timm", "timm/models/*.py"),
    OtherLibrary(
        "sentence-transformers",
        ("sentence-transformers==6.2.0",),
        "sentence_transformers",
        "sentence_transformers/*/*/*.py",
        is_small=True,
    ),
)
"""Chosen by what their owners repeat most; the last one as an example of a library that repeats little."""


def unpack(library: OtherLibrary, folder: Path, cache: Path) -> None:
    """Unpack the Python sources of a library into a folder, each a plain file within it."""
    for wheel in (downloaded(requirement, cache) for requirement in library.wheels):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                parts = entry.filename.split("/")
                if not entry.filename.endswith(".py") or entry.file_size > MOST_BYTES:
                    continue
                if any(part in ("", ".", "..") or "\\" in part or ":" in part for part in parts):
                    sys.exit(f"{wheel}: unsafe name {entry.filename!r}")
                path = folder.joinpath(*parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(entry))


def downloaded(wheel: str, cache: Path) -> Path:
    """The wheel of a requirement, downloaded where that was not done before."""
    name, _, version = wheel.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not any(cache.glob(pattern)):
        ask = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        if subprocess.run([*ask, "--dest", str(cache), wheel]).returncode:
            sys.exit(f"{wheel} cannot be downloaded: name a release that the package index has")
    return next(cache.glob(pattern))


def laid_out(library: OtherLibrary, source: Path, folder: Path) -> Path:
    """The files of models, each in a folder of its own as the index of definitions reads them: `llama.py` becomes
    `models/llama/modeling_llama.py`. Returns the folder of models.
    """
    models = folder / "models"
    models.mkdir(parents=True)
    settings = '[tool.modular-converter]\nroot = "models"\npackage = "other"\nformatter = "none"\nauto-tables = []\n'
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    for path in sorted(source.glob(library.files)):
        if path.stem.startswith("_"):
            continue
        names = (
            re.sub(f"^({library.lead})", "", path.stem),
            path.stem,
            "_".join(path.relative_to(source).with_suffix("").parts),
        )
        plain = (re.sub(r"\W", "_", name).lower() for name in names if name)
        model = next(name for name in plain if not (models / name).exists())
        (models / model).mkdir()
        shutil.copy(path, models / model / f"modeling_{model}.py")
    return models


def undefined_names(folder: Path) -> set[str]:
    """The names that files use and do not define, each with its file, as the linter of ruff sees them."""
    options = ["check", "--isolated", "--no-cache", "--select", "F821", "--output-format", "json"]
    done = subprocess.run([sys.executable, "-m", "ruff", *options, str(folder)], capture_output=True, text=True)
    return {f"{Path(one['filename']).name}: {one['message']}" for one in json.loads(done.stdout)}
