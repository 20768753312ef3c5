"""The settings of a run as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modular_converter.diagnostics import Severity


FORMATTERS = ("ruff", "black", "none")


@dataclass(frozen=True)
class Settings:
    """Everything that decides how a file is converted. Frozen and picklable; equal settings give equal output.

    Paths are absolute, or "" where nothing is set.
    """

    profile: str
    package: str
    """Name of the package that holds the neighbours."""
    banner_root: str
    """What stands before `<model>/modular_<model>.py` in a banner; "" for the path in the repository."""
    auto_tables: tuple[str, ...]
    """Files below the models folder that the model-type table is read from, in order."""
    config_table: str
    """Name of that table in them."""
    optional_kinds: tuple[str, ...]
    """Kinds of file whose torch imports are optional."""
    kept_names: tuple[str, ...]
    """Tokens that are never renamed."""
    kinds: Mapping[str, str] = field(hash=False)
    """Suffix of a class name -> kind of file."""
    formatter: str
    """One of `FORMATTERS`."""
    replaced_dependency: Severity
    """How heavily MC201 weighs."""
    max_file_bytes: int
    root: str = ""
    output_dir: str = ""
    workers: int = 0
    """Processes at most; 0 lets the run decide."""
    strict: bool = False
    """Whether warnings count as errors."""
    ruff_config: str = ""
    """Text of the ruff configuration in force."""
    ruff_config_path: str = ""
    """The project's file that `ruff_config` is the text of; "" for the profile's own."""
    ruff_extended: tuple[tuple[str, str], ...] = ()
    """Path and text of each configuration that it extends, the nearest first."""
    ruff_is_followed: bool = True
    """Whether `ruff_extended` is complete; else nobody knows which files decide the format."""
    ruff_folder: str = ""
    """The project's folder that paths in `ruff_config` are relative to."""
    ruff_source_roots: tuple[str, ...] = ()
    """Folders whose packages are the project's own when the project's ruff configuration sorts imports."""
    black_config_path: str = ""
    """The pyproject.toml with the project's `[tool.black]`."""
    pyproject: str = ""
    """The file that these settings were read from; "" for the bare profile."""
