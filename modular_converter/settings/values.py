"""The settings of a run as one record, and what follows from its table of kinds: kinds of classes, names of files, and the
layout of a library: where the files of a model lie, and which of them is the modular file. Nothing else knows.

| `layout` | the modular file | a generated file | another model, as a modular file imports it |
| --- | --- | --- | --- |
| `folders` | `models/emu/modular_emu.py` | `models/emu/modeling_emu.py` | `..llama.modeling_llama` |
| `files` | `models/modular_emu.py` | `models/emu.py`, of the kind `{model}` | `.llama` |
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from modular_converter.findings import Location, Severity


MODELS = "models"
"""The usual name of a folder of models."""
NEIGHBOUR = "neighbour"
"""The value of settings that follow the neighbour: its header, its form of imports."""
FOLDERS, FILES = LAYOUTS = ("folders", "files")
"""The values of `layout`: each model in a folder of its own, or all files of models in one folder."""
ABSOLUTE = "absolute"
SIBLING_IMPORTS = (NEIGHBOUR, "relative", ABSOLUTE)
"""The values of `sibling-imports`."""
BANNER_NOTICE = "This file was automatically" + " generated from {path}."  # this file is not generated
"""The words of every banner. A generated file is recognised by them."""
PLAIN_BANNER = f"""\
# {BANNER_NOTICE}
# Do not edit it, since it is generated again: change {{name}}, and run `modular-convert`.
"""
"""The banner in packages other than the profile's."""
FORMATTERS = ("ruff", "black", "none")
POST_FORMATTERS = ("isort",)
"""The tools that may run after the formatter. Others would be commands of a tree that may be a stranger's."""


class PinnedFormatter(NamedTuple):
    """The version of a formatter that a library is formatted with."""

    formatter: str
    version: str
    """Such as `0.14.10`, or a range such as `>=0.14,<0.16`; "" for any."""
    place: Location | None = None
    """Where a file of the project names the version; None where the profile does."""


class PackageRelease(NamedTuple):
    """The release of the profile's package that the models lie in, as the text of the package says."""

    version: str
    """Such as `5.24.0` or `5.25.0.dev0`; "" where the package says a version that cannot be read."""
    place: Location
    """Where its `__init__.py` says so."""


FORMATTER_FIELDS = (
    "ruff_config",
    "ruff_config_path",
    "ruff_extended",
    "ruff_is_followed",
    "ruff_folder",
    "ruff_source_roots",
    "black_config_path",
    "isort_folder",
    "isort_options",
    "pinned_formatter",
)
"""The fields that the formatter's own files decide; they may differ from folder to folder."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides how a file is converted. Frozen and picklable; equal settings give equal output.

    Paths are absolute, or "" where nothing is set.
    """

    profile: str
    package: str
    """Name of the package that holds the neighbours."""
    banner_root: str
    """The path before `<model>/modular_<model>.py` in a banner; "" for the path in the repository."""
    auto_tables: tuple[str, ...]
    """Files below the models folder that the model-type table is read from, in order."""
    config_table: str
    """Name of that table in them."""
    config_suffix: str
    """The end of the name of a configuration class; the rest is the model's cased name."""
    no_models: tuple[str, ...]
    """Folders, or modules, beside those of the models that hold no model."""
    kept_names: tuple[str, ...]
    """Tokens that are never renamed."""
    copy_comment: str
    """The beginning of a comment that names the origin of a copy. It is dropped, since a renamed copy has another
    origin.
    """
    kinds: Mapping[str, str] = field(hash=False)
    """Suffix of a class name -> kind of file."""
    default_kind: str
    """The kind of every other class."""
    added_decorators: tuple[str, ...]
    """Decorators that an override adds to those of the parent's method: one with no others keeps the parent's."""
    inherited_docstrings: tuple[str, ...]
    """The quotes with which a method's docstring begins that an override without one takes."""
    copied_kinds: Mapping[str, str] = field(hash=False)
    """Kind of file -> the kind whose definitions it copies instead of importing them."""
    optional_kinds: tuple[str, ...]
    """Kinds of file in which the optional libraries may be missing."""
    optional_libraries: tuple[str, ...]
    """The libraries whose imports such a file protects by the availability check."""
    availability_check: str
    """The function of the package that tells whether a library is there: `utils.is_{library}_available`."""
    model_base: str
    """The library's base class of all models; the base class of one model has this name in its own name."""
    implied_bases: Mapping[str, str] = field(hash=False)
    """Base class -> the base that it inherits from itself, so that a class with the first does not list the second."""
    last_statement: str
    """The statement that stays the last of an `__init__`, whatever an override adds."""
    first_assignments: tuple[str, ...]
    """Names of the assignments that open a generated file, in this order."""
    overriding_assignments: tuple[str, ...]
    """An assignment with one of these in its name replaces the assignment of this name in the parent's module."""
    overriding_unless_none: tuple[str, ...]
    """The same for assignments of anything but `None`."""
    customary_names: tuple[str, ...]
    """Definitions that a file may have although nothing uses them."""
    plan_names: tuple[str, ...]
    """Attributes and class variables that hold a plan of parallelism."""
    class_lists: tuple[str, ...]
    """Class variables that list classes of the model by name."""
    formatter: str
    """One of `FORMATTERS`."""
    replaced_dependency: Severity
    """The severity of MC201."""
    max_file_bytes: int
    modular_kind: str = "modular"
    """The kind of modular files: `modular_<model>.py`."""
    layout: str = FOLDERS
    """One of `LAYOUTS`."""
    profile_kind: str = ""
    """The default kind of the profile, which the files of other packages have."""
    left_after_converting: tuple[str, ...] = ()
    """What a new model needs beside its modular file, with `{model}` and `{Model}` for its names."""
    no_inherit_module: str = ""
    """The module with `@no_inherit_decorator`, as modular files import it; "" where there is none."""
    sibling_imports: str = NEIGHBOUR
    """How generated files import each other: one of `SIBLING_IMPORTS`."""
    banner: str = ""
    """Text of the banner with `{path}` and `{name}` of the modular file; "" for that of transformers."""
    license_header: str = ""
    """Comments below the banner: `NEIGHBOUR`, or a text for modular files without a header; "" for neither."""
    root: str = ""
    output_dir: str = ""
    workers: int = 0
    """Processes at most; 0 lets the run decide."""
    strict: bool = False
    """Whether warnings count as errors."""
    select: tuple[str, ...] = ("MC",)
    """Codes, or beginnings of codes, of the warnings that are reported."""
    ignore: tuple[str, ...] = ()
    """The same for warnings that are not reported. Of both settings, the longest entry that fits a code decides."""
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Pattern of paths -> the same for modular files with such a path."""
    ruff_config: str = ""
    """Text of the ruff configuration in force; of a pyproject.toml, the part that ruff reads."""
    ruff_config_path: str = ""
    """The project's file that `ruff_config` is from; "" for the profile's own."""
    ruff_extended: tuple[tuple[str, str], ...] = ()
    """Path and text of each configuration that it extends, the nearest first; of a pyproject.toml, the part that ruff
    reads.
    """
    ruff_is_followed: bool = True
    """Whether `ruff_extended` is complete; if not, the files that decide the format are unknown."""
    ruff_folder: str = ""
    """The project's folder that paths in `ruff_config` are relative to."""
    ruff_source_roots: tuple[str, ...] = ()
    """Folders whose packages are the project's own when the project's ruff configuration sorts imports."""
    black_config_path: str = ""
    """The pyproject.toml with the project's `[tool.black]`."""
    post_format: tuple[PinnedFormatter, ...] = ()
    """The tools that run after the formatter, in this order, of `POST_FORMATTERS`."""
    isort_folder: str = ""
    """The folder that the paths in the options of isort are relative to; "" where isort does not run."""
    isort_options: str = ""
    """The project's options of isort, as JSON."""
    package_release: PackageRelease | None = None
    """None for models outside of the profile's package, and for a package that says no version."""
    checked_release: str = ""
    """The newest release of that package whose generated files the profile has been checked with."""
    accept_release: str = ""
    """The newest release that the project accepts although the profile was not checked with it: `5.25` means 5.25.x.
    """
    pyproject: str = ""
    """The file that these settings were read from; "" for the bare profile."""
    pinned_formatter: PinnedFormatter | None = None
    """The only version of one formatter that may write; other formatters are not concerned. None accepts every version.
    """
    project_folder: str = ""
    """The nearest folder at or above the files with a `.git`, else with a `pyproject.toml`. No program in it is run."""

    by_folder: tuple[tuple[str, Settings], ...] = ()
    """Folders of models whose files are formatted by other settings, sorted, each with these settings."""

    def formatting(self, folder: str) -> Settings:
        """These settings, with the formatter's own settings of a folder of a model."""
        other = self._others.get(folder)
        if other is None:
            return self
        return replace(self, by_folder=(), **{name: getattr(other, name) for name in FORMATTER_FIELDS})

    @cached_property
    def _others(self) -> Mapping[str, Settings]:
        return dict(self.by_folder)

    @property
    def formattings(self) -> tuple[Settings, ...]:
        """These settings, and those of each folder with other settings of the formatter."""
        return (self, *(self.formatting(folder) for folder, _ in self.by_folder))

    @cached_property
    def models_name(self) -> str:
        """The name of the folder of models: that of `root`, which may also name the package around a folder `models`."""
        is_inside = not self.root or os.path.isdir(os.path.join(self.root, MODELS))
        return MODELS if is_inside else os.path.basename(self.root)

    @cached_property
    def models_names(self) -> tuple[str, ...]:
        """The names of folders of models in imports: that of the project, and the usual one, which other packages have."""
        return tuple(dict.fromkeys((self.models_name, MODELS)))

    @cached_property
    def file_kinds(self) -> tuple[str, ...]:
        """All kinds of file, a longer one before those that it begins with."""
        kinds = {*self.kinds.values(), self.default_kind, self.profile_kind}
        return tuple(sorted(kinds - {""}, key=lambda kind: (-len(kind.replace("{model}", "")), kind)))

    @property
    def silences(self) -> bool:
        """Whether the settings leave out some warnings."""
        return bool(self.ignore or self.per_file_ignores or self.select != ("MC",))

    @property
    def isort_source_roots(self) -> tuple[str, ...]:
        """The folders whose packages are the project's own for isort."""
        if not self.isort_folder:
            return ()
        named = json.loads(self.isort_options).get("src_paths", ["src", "."])
        return tuple(os.path.normpath(os.path.join(self.isort_folder, one)) for one in named)

    @property
    def formatter_version(self) -> str:
        """The version of `formatter`, or the range of versions, that alone may write; "" for any."""
        pinned = self.pinned_formatter
        return pinned.version if pinned is not None and pinned.formatter == self.formatter else ""

    @property
    def formatter_judges_version(self) -> bool:
        """Whether a `required-version` is left to the formatter: the settings accept any, or cannot tell which."""
        pinned = self.pinned_formatter
        return pinned is not None and pinned.formatter == self.formatter and not pinned.version

    @property
    def with_any_formatter(self) -> Settings:
        """These settings, with every version of the formatters accepted in every folder."""
        after = tuple(PinnedFormatter(one.formatter, "") for one in self.post_format)
        others = ((folder, replace(one, pinned_formatter=None, post_format=after)) for folder, one in self.by_folder)
        return replace(self, pinned_formatter=None, post_format=after, by_folder=tuple(others))


def kind_of(name: str, cased: str, settings: Settings) -> str:
    """The kind of a class by the longest suffix of its name, which is looked at without the model's cased name.

    Args:
        cased: the model's cased name, `Gemma`.
    """
    rest = name.replace(cased, "")
    suffix = max((suffix for suffix in settings.kinds if rest.endswith(suffix)), key=len, default="")
    return settings.kinds[suffix] if suffix else settings.default_kind


@functools.lru_cache(maxsize=8192)
def _split(stem: str, kinds: tuple[str, ...]) -> tuple[str, str] | None:
    """The first kind that fits, and the model's name. That of a private module (`_builder`) is none."""
    for kind in kinds:
        before, _, after = kind.partition("{model}") if "{model}" in kind else (f"{kind}_", "", "")
        model = stem[len(before) : len(stem) - len(after)]
        if model and stem == before + model + after and not (model.startswith("_") and not before):
            return kind, model
    return None


def split_stem(stem: str, settings: Settings) -> tuple[str, str] | None:
    """`image_processing_pil_vit` -> `("image_processing_pil", "vit")`; None for a file of no kind, and a modular file.

    A kind may say where the model's name goes: `tokenization_vit_fast` is of the kind `tokenization_{model}_fast`.
    """
    found = _split(stem, settings.file_kinds)
    if found is None or _split(stem, (settings.modular_kind,)):
        return None
    return None if settings.layout == FILES and found[1] in settings.no_models else found


def module_name(kind: str, model: str) -> str:
    """The inverse of `split_stem`: `modeling` and `gemma` -> `modeling_gemma`."""
    return kind.replace("{model}", model) if "{model}" in kind else f"{kind}_{model}"


def modular_name(model: str, settings: Settings) -> str:
    """The name of the modular file of a model: `modular_emu.py`."""
    return f"{module_name(settings.modular_kind, model)}.py"


def model_of_modular(path: str, settings: Settings) -> str:
    """`emu` of `modular_emu.py`; "" for a file that is no modular file by its name."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    found = _split(stem, (settings.modular_kind,)) if suffix == ".py" else None
    return found[1] if found else ""


def is_modular(path: str, settings: Settings) -> bool:
    """Whether a file is a modular file by its name."""
    return bool(model_of_modular(path, settings))


def would_be_modular(kind: str, settings: Settings) -> bool:
    """Whether a file of a kind would have the name of a modular file, also where capitals are not told apart."""
    return _split(module_name(kind, "x").casefold(), (settings.modular_kind.casefold(),)) is not None


def modular_of(path: str, settings: Settings) -> str:
    """The modular file that a generated file, with or without `.py`, would come from: `modeling_x.py` -> `modular_x.py`
    beside it; "" for another file.
    """
    folder, name = os.path.split(path)
    found = split_stem(name.removesuffix(".py"), settings)
    return os.path.join(folder, modular_name(found[1], settings)) if found else ""


def models_folder_of(path: str, settings: Settings) -> str:
    """The folder of models that a file of a model lies in: `models` of `models/gemma/modular_gemma.py`."""
    folder = os.path.dirname(path)
    return folder if settings.layout == FILES else os.path.dirname(folder)


def folder_of_model(models: str, model: str, settings: Settings) -> str:
    """The folder that the files of a model lie in."""
    return models if settings.layout == FILES else os.path.join(models, model)


def folders_of_models(models: str, settings: Settings) -> list[str]:
    """The folders in which files of models lie, sorted."""
    if settings.layout == FILES:
        return [models]
    with os.scandir(models) as found:
        return sorted(one.path for one in found if one.is_dir())


def names_of_models(models: str, settings: Settings) -> list[str]:
    """The names of the models in the folder of models, sorted: of folders, or of files of the default kind."""
    if settings.layout == FILES:
        return [*models_among(os.listdir(models), settings)]
    return [os.path.basename(one) for one in folders_of_models(models, settings)]


def models_among(names: Iterable[str], settings: Settings) -> Iterator[str]:
    """The models whose file of the default kind is among some names of files, sorted."""
    stems = sorted(name.removesuffix(".py") for name in names if name.endswith(".py"))
    found = (split_stem(stem, settings) for stem in stems)
    yield from (split[1] for split in found if split and split[0] == settings.default_kind)


def dotted_name(path: str, settings: Settings) -> str:
    """The module of a neighbour's file, as the modular file of another model imports it."""
    below = os.path.relpath(path.removesuffix(".py"), models_folder_of(path, settings))
    return dots_of_models(settings) + below.replace(os.sep, ".")


def place_of_model(path: str, settings: Settings) -> str:
    """The folder that the model of a file has or would have for itself, by which people call it: `models/emu`."""
    folder, name = os.path.split(path)
    if settings.layout != FILES:
        return folder
    found = split_stem(name.removesuffix(".py"), settings)
    return os.path.join(folder, model_of_modular(path, settings) or (found[1] if found else ""))


def parts_below_models(dotted: str, settings: Settings) -> tuple[str, ...] | None:
    """The parts of a module behind the folder of models: `llama` and `modeling_llama` of `..llama.modeling_llama`; None
    for a module that is in none. Files that share a folder with other models are found in their own package alone.
    """
    named = "|".join(map(re.escape, settings.models_names))
    models = rf"\.\.|\.*(?:[^\W\d]\w*\.)*(?:{named})\."
    if settings.layout == FILES:
        package, folder = re.escape(settings.package), re.escape(settings.models_name)
        models = rf"\.|{package}\." + (rf"(?:\w+\.)*?{folder}\." if folder != package else "")
    return _below(dotted, models)


@functools.lru_cache(maxsize=4096)
def _below(dotted: str, models: str) -> tuple[str, ...] | None:
    match = re.fullmatch(rf"(?:{models})([^\W\d]\w*)(?:\.([^\W\d]\w*))?", dotted)
    return tuple(filter(None, match.groups())) if match else None


def depth_of_files(settings: Settings) -> int:
    """The number of parts by which the folder of models and a model's file are apart."""
    return 1 if settings.layout == FILES else 2


def dots_of_models(settings: Settings) -> str:
    """The dots that stand for the folder of models in the imports of a model's file."""
    return "." * depth_of_files(settings)
