"""The conventions of a library, found in its files (models in folders of their own, or in one folder, a file for each), and
the formatters that a project runs, by its hooks of pre-commit and the tables of its `pyproject.toml`.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from modular_converter.convert.source.library import Library, written_name
from modular_converter.files.read import package_of
from modular_converter.settings import toml_files
from modular_converter.settings.disk import is_below, repository_above, upwards
from modular_converter.settings.toml_files import EXACT_VERSION, other_options
from modular_converter.settings.values import FILES, FOLDERS, Settings, module_name


MOST_MODELS = 80
"""The most models whose files are read: they have one convention."""
RARE = 0.1
"""A kind of file that fewer of the models have is no convention."""
OUTPUTS = frozenset(("build", "dist", "node_modules", "site-packages"))
SOURCE_FOLDERS = frozenset(("src", "lib", "python", "source"))
"""Folders that hold packages and are none."""
CONFIG_KINDS = ("configuration", "config", "settings")


class Survey(NamedTuple):
    """The conventions of a library of models."""

    root: str
    """The folder of models, absolute."""
    models: tuple[str, ...]
    """The folders in it that hold a model."""
    package: str
    """The package that the folder of models lies in; "" for none."""
    default_kind: str
    """The kind of file that holds most classes: `modeling`."""
    kinds: Mapping[str, str]
    """End of the names of classes -> kind of file, for the other kinds."""
    unnamed: tuple[str, ...]
    """The kinds of files whose classes have no common end."""
    config_suffix: str
    """The end of the names of configurations; "" where no kind of file holds them."""
    model_base: str
    """The class outside of the models that most of them inherit from; "" for none."""
    cased: Mapping[str, str]
    """Model -> its name in the names of its classes."""
    header: str
    """The comments on top of at least half of the files; "" for none."""
    files: tuple[str, ...]
    """The files of the models that were read."""
    others: tuple[str, ...] = ()
    """Further folders that hold models with such files."""
    layout: str = FOLDERS
    """One of `LAYOUTS`."""
    no_models: tuple[str, ...] = ()
    """In a folder of all models, the files that are called as models are, and are none."""


class SurveyedFile(NamedTuple):
    """A file of a model."""

    path: str
    model: str
    kind: str
    classes: tuple[str, ...]
    bases: tuple[str, ...]
    """The bases of its classes, by name, that are imported from outside of the models and not from torch."""
    siblings: tuple[str, ...]
    """The kinds of the files of the model that it imports from."""
    header: str


def survey(project: str, settings: Settings) -> Survey | None:
    """The conventions of the models below a folder; None where no folder holds models.

    A model is a folder with Python files that are called after it, `gemma/modeling_gemma.py`, and so are classes in them.
    The folder with the most models counts.

    Args:
        project: absolute.
        settings: those of the profile, for reading.
    """
    folders = [*_folders_of_models(project, settings)]
    library = Library(settings)
    for root, models in sorted(folders, key=lambda one: (-len(one[1]), len(one[0]))):
        files = [file for model in models[:MOST_MODELS] for file in _files(root, model, library)]
        if _cased(files):
            found = survey_of(root, models, files, project)
            default = found.default_kind
            others = (one for one in folders if one[0] != root)
            places = (
                (one, os.path.join(one, name, f"{module_name(default, name)}.py"))
                for one, names in others
                for name in names
            )
            alike = dict.fromkeys(one for one, place in places if os.path.isfile(place))
            return found._replace(others=tuple(alike))
    return None


def survey_of(root: str, models: Sequence[str], files: Sequence[SurveyedFile], project: str) -> Survey:
    """The conventions that some files of models follow, in a folder of models."""
    cased = _cased(files)
    default_kind = Counter(file.kind for file in files for _ in file.classes).most_common(1)[0][0]
    ends = _ends(files, default_kind, cased, min(len(models), MOST_MODELS) * RARE)
    config_kind = _config_kind(files, default_kind, ends)
    return Survey(
        root=root,
        models=tuple(models),
        package=_package(root, project),
        default_kind=default_kind,
        kinds={end: kind for kind, end in ends.items() if end},
        unnamed=tuple(sorted(kind for kind, end in ends.items() if not end)),
        config_suffix=ends.get(config_kind, ""),
        model_base=_model_base([file for file in files if file.kind == default_kind]),
        cased=cased,
        header=_common((file.header for file in files), len(files)),
        files=tuple(file.path for file in files),
    )


def _folders_of_models(project: str, settings: Settings) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each folder that holds folders of models, with their names, sorted."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder, names in folders_of_sources(project):
        parent, model = os.path.split(folder)
        if model not in settings.no_models and any(_kind(name, model) for name in names):
            found[parent].append(model)
    yield from ((folder, tuple(models)) for folder, models in found.items())


def folders_of_sources(project: str) -> Iterator[tuple[str, list[str]]]:
    """Each folder of a project that may hold sources, with the names of its files."""
    for folder, folders, names in os.walk(project):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in OUTPUTS)
        if "pyvenv.cfg" in names:
            folders[:] = []
        else:
            yield folder, names


def _kind(name: str, model: str) -> str:
    """`modeling` of `modeling_gemma.py` in the folder `gemma`, `{model}_net` of `gemma_net.py`; "" for other files, tests
    and modular files.
    """
    stem = name.removesuffix(".py")
    before, found, after = f"_{stem}_".partition(f"_{model}_")
    kind = f"{before}_{{model}}_{after}".strip("_") if after.strip("_") else before.strip("_")
    is_kind = found and name != stem and kind.replace("{model}", "x").isidentifier()
    return kind if is_kind and not is_no_source(stem) else ""


def is_no_source(stem: str) -> bool:
    """Whether a file is a test or a modular file, by its name without `.py`."""
    return stem.startswith(("test", "modular")) or stem.endswith("_test")


def _files(root: str, model: str, library: Library) -> Iterator[SurveyedFile]:
    folder = os.path.join(root, model)
    for name in sorted(os.listdir(folder)):
        if not (kind := _kind(name, model)):
            continue
        file = read_file(os.path.join(folder, name), model, kind, library)
        if file:
            imported = (_kind(f"{one.rpartition('.')[2]}.py", model) for one in file.siblings)
            yield file._replace(siblings=tuple(filter(None, imported)))


def read_file(path: str, model: str, kind: str, library: Library) -> SurveyedFile | None:
    """A file of a model, with the modules that it imports as `siblings`; None for one that cannot be read."""
    module = library.module_if_readable(path)
    if module is None:
        return None
    classes = tuple(module.classes)
    names = (base for name in classes for base in module.definitions[name].bases)
    imported = {one.bound: one.module for one in module.imported.values() if one.name}
    outside = (base for base in names if _is_outside(imported.get(base, ".")))
    modules = tuple(dict.fromkeys(one.module for one in module.imported.values()))
    return SurveyedFile(path, model, kind, classes, tuple(outside), modules, module.header.strip("\n"))


def _is_outside(module: str) -> bool:
    """Whether a module is outside of the models, as far as its name tells, and none of torch."""
    depth = len(module) - len(module.lstrip("."))
    return depth not in (1, 2) and module.partition(".")[0] not in ("torch", "typing", "abc", "enum", "dataclasses")


def _cased(files: Sequence[SurveyedFile]) -> dict[str, str]:
    classes: dict[str, list[str]] = defaultdict(list)
    for file in files:
        classes[file.model] += file.classes
    found = {model: written_name(model, names) for model, names in classes.items()}
    return {model: cased for model, cased in found.items() if cased}


def _ends(files: Sequence[SurveyedFile], default_kind: str, cased: Mapping[str, str], least: float) -> dict[str, str]:
    """Kind of file -> the end of the names of most of its classes, "" where they have none in common; of kinds with at
    least so many files.
    """
    ends: dict[str, list[str]] = defaultdict(list)
    number = Counter(file.kind for file in files)
    for file in files:
        if file.kind != default_kind and number[file.kind] >= least:
            ends[file.kind] += [name.replace(cased.get(file.model, ""), "") for name in file.classes]
    return {kind: _common(found, len(found)) for kind, found in sorted(ends.items()) if found}


def _common(values: Iterable[str], number: int) -> str:
    """The value that at least half of a number of values are; "" for none."""
    found = Counter(values).most_common(1)
    return found[0][0] if found and found[0][1] * 2 >= number else ""


def _config_kind(files: Sequence[SurveyedFile], default_kind: str, ends: Mapping[str, str]) -> str:
    """The kind of file that holds configurations: one of the usual names, else what most files import from."""
    usual = next((kind for kind in CONFIG_KINDS if kind in ends), "")
    found = Counter(kind for file in files if file.kind == default_kind for kind in file.siblings if kind in ends)
    return usual or next((kind for kind, _ in found.most_common()), "")


def _model_base(files: Sequence[SurveyedFile]) -> str:
    """The base that at least half of the files have; of several the one that most bases of models are called after, as
    `LlamaPreTrainedModel` after `PreTrainedModel`, "" where none is.
    """
    found = Counter(base for file in files for base in set(file.bases))
    often = [base for base, number in found.items() if number * 2 >= len(files)]
    heirs = Counter({base: sum(name.endswith(base) for file in files for name in file.classes) for base in often})
    base, number = next(iter(heirs.most_common()), ("", 0))
    return base if number or len(often) == 1 else ""


def _package(root: str, project: str) -> str:
    """The package that a folder of models lies in: by `__init__.py`, else the topmost folder below the project that does
    not only hold packages.
    """
    _, dotted = package_of(root)
    if dotted:
        return dotted.partition(".")[0]
    below = [folder for folder in upwards(os.path.dirname(root)) if folder.startswith(os.path.join(project, ""))]
    names = [name for name in map(os.path.basename, reversed(below)) if name not in SOURCE_FOLDERS]
    return next(iter(names), "")


CONFIG_ENDS = ("Config", "Configuration", "Settings", "Args", "Options")
"""The ends of the names of configurations, which such a library has in the files of its models."""
PLAIN = "{model}"
"""The kind of a file that is called as its model."""


class _Kind(NamedTuple):
    """A kind of file, as one folder has it."""

    name: str
    models: tuple[SurveyedFile, ...]
    """The files with the class that most of them have, but for the name of the model, and from which not most import."""
    others: tuple[str, ...]
    """The further files that are called so."""
    named: int
    """The files of `models` with classes that are called after the model."""


def survey_files(project: str, settings: Settings) -> Survey | None:
    """The conventions of the folder below a project that holds most models as files; None where none does.

    Files are models if at least two, and half of those that are called alike, have a class of one name but for that of the
    model: `ResMixNet` and `TinyMixNet`, or `Model` in each. Beside a modular file, one is enough.

    Args:
        project: absolute.
        settings: those of the profile, for reading.
    """
    library = Library(settings)
    found = ((folder, _kinds(folder, names, library)) for folder, names in folders_of_sources(project))
    surveyed = [(folder, kinds) for folder, kinds in found if kinds]
    if not surveyed:
        return None
    root, kinds = max(surveyed, key=lambda one: (_rank(one[1][0]), -len(one[0])))
    best, *beside = kinds
    models = {file.model for file in best.models}
    of_same = (one for one in beside if sum(file.model in models for file in one.models) * 2 >= len(one.models))
    kept = [best, *(one for one in of_same if PLAIN not in (one.name, best.name))]
    files = [file for kind in kept for file in kind.models]
    by_stem = {_stem(file.path): file.kind for file in files}
    files = [file._replace(siblings=_kinds_beside(file, by_stem)) for file in files]
    survey = survey_of(root, sorted(models), files[: MOST_MODELS * len(kept)], project)
    suffix = survey.config_suffix or _config_suffix(best.models)
    default = next(one for one in kept if one.name == survey.default_kind)
    return survey._replace(layout=FILES, config_suffix=suffix, no_models=default.others)


def _kinds(folder: str, names: Sequence[str], library: Library) -> list[_Kind]:
    """The kinds of the files of models in a folder, the one with the most models first."""
    stems = sorted(name.removesuffix(".py") for name in names if name.endswith(".py"))
    has_modular = any(stem.startswith("modular_") for stem in stems)
    stems = [stem for stem in stems if not is_no_source(stem) and not stem.startswith("_") and stem.isidentifier()]
    if len(stems) < 2 and not has_modular:
        return []
    splits = [(stem, kind, model) for stem in stems for kind, model in _splits(stem)]
    often = Counter(kind for _, kind, _ in splits)
    found = []
    for kind in [kind for kind, number in often.items() if number > 1 or has_modular]:
        fits = {stem: model for stem, other, model in splits if other == kind}
        paths = ((os.path.join(folder, f"{stem}.py"), model) for stem, model in fits.items())
        files = [file for path, model in paths if (file := read_file(path, model, kind, library))]
        if one := _kind_of(kind, files, 1 if has_modular else 2):
            found.append(one)
    return sorted(found, key=_rank, reverse=True)


def _splits(stem: str) -> Iterator[tuple[str, str]]:
    """The kinds that a file may be of, each with the name that its model has then."""
    yield PLAIN, stem
    first, _, rest = stem.partition("_")
    if rest:
        yield first, rest
    begin, _, last = stem.rpartition("_")
    if begin:
        yield f"{PLAIN}_{last}", begin


def _kind_of(kind: str, files: Sequence[SurveyedFile], least: int) -> _Kind | None:
    """A kind whose files have a class in common, but for the names of models; None where too few of them do."""
    cased = {file.path: written_name(file.model, file.classes) or "" for file in files}
    ends = {file.path: {name.removeprefix(cased[file.path]) for name in file.classes} - {""} for file in files}
    counts = Counter(end for some in ends.values() for end in some)
    if not counts or counts.most_common(1)[0][1] < max(least, len(files) / 2):
        return None
    most = counts.most_common(1)[0][1]
    common = {end for end, number in counts.items() if number == most}
    imported = Counter(stem for file in files for stem in {module.rpartition(".")[2] for module in file.siblings})
    shared = {stem for stem, number in imported.items() if number > 1 and number * 2 >= len(files)}
    models = tuple(file for file in files if ends[file.path] & common and _stem(file.path) not in shared)
    if not models:
        return None
    others = tuple(sorted(_stem(file.path) for file in files if file not in models))
    return _Kind(kind, models, others, sum(bool(cased[file.path]) for file in models))


def _rank(kind: _Kind) -> tuple[int, int, int]:
    return kind.named, len(kind.models), sum(len(file.classes) for file in kind.models)


def _kinds_beside(file: SurveyedFile, by_stem: dict[str, str]) -> tuple[str, ...]:
    """The kinds of the files beside a file that it imports from."""
    stems = (module.rpartition(".")[2] for module in file.siblings)
    return tuple(by_stem[stem] for stem in stems if stem in by_stem)


def _config_suffix(files: Sequence[SurveyedFile]) -> str:
    """The end of the names of configurations, where at least half of the files have such a class; "" for none."""
    for end in CONFIG_ENDS:
        if sum(any(name.endswith(end) for name in file.classes) for file in files) * 2 >= len(files):
            return end
    return ""


def _stem(path: str) -> str:
    return os.path.basename(path).removesuffix(".py")


HOOKS = ".pre-commit-config.yaml"
DEFAULT_LENGTH = 88
"""The line length of black and of ruff for a project that says nothing; this tool has that of transformers then."""
_REPO = re.compile(r"^[ \t]*-[ \t]+repo:", re.MULTILINE)
_REV = re.compile(r"^[ \t]*rev:[ \t]*[\"']?v?([\w.]+)", re.MULTILINE)
_ID = re.compile(r"(?:^[ \t]*(?:-[ \t]+)?|\{[ \t]*)id:[ \t]*[\"']?([\w-]+)", re.MULTILINE)
_ARGS = re.compile(r"^[ \t]*args:[ \t]*(\S.*)", re.MULTILINE)
_HARMLESS = re.compile(r"(?<![\w-])(?:--(?:quiet|verbose|check|diff|fix|safe|fast|filter-files)|-[qv])(?![\w-])")
"""Options that change no layout."""


class ToolsInUse(NamedTuple):
    """The formatters of a project."""

    formatter: str
    """One of `FORMATTERS`."""
    version: str = ""
    """The version that its hook names; "" for none."""
    line_length: object = ""
    """What its table says; "" for nothing."""
    has_table: bool = True
    """Whether the project has options of the formatter."""
    post_format: tuple[str, ...] = ()
    """The setting `post-format`."""
    unseen: tuple[str, ...] = ()
    """Hooks with options on their command line, which a conversion does not see, with these options."""


class _Hook(NamedTuple):
    name: str
    version: str
    arguments: str


def tools_in_use(project: str, models: str = "") -> ToolsInUse:
    """The formatters of a project. Its hooks count first, since they run. Raises `SettingsError`.

    Args:
        project: the folder with its hooks, or one in the repository that has them.
        models: the folder of models; the tables of a project of its own between the two count before those above.
    """
    tables: dict[str, object] = {}
    for folder in takewhile(lambda one: is_below(one, project), upwards(models or project)):
        tables = {**_tables(folder), **tables}
    hooked = [folder for folder in upwards(project) if is_below(folder, repository_above(project) or project)]
    paths = (os.path.join(folder, HOOKS) for folder in hooked)
    hooks = {one.name: one for one in _hooks(next(filter(os.path.isfile, paths), ""))}
    by_hook = [name for name, hook in (("ruff", "ruff-format"), ("black", "black")) if hook in hooks]
    by_table = [name for name in ("black", "ruff") if name in tables]
    formatter = next(iter((*by_hook, *by_table)), "none")
    hook = hooks.get("ruff-format" if formatter == "ruff" else formatter)
    options = tables.get(formatter)
    isort = hooks.get("isort")
    unseen = ((one.name, _HARMLESS.sub("", one.arguments)) for one in (hook, isort) if one)
    return ToolsInUse(
        formatter,
        hook.version if hook else "",
        options.get("line-length", "") if isinstance(options, Mapping) else "",
        formatter == "none" or formatter in tables,
        (f"isort=={isort.version}" if isort and isort.version else "isort",) if isort or "isort" in tables else (),
        tuple(f"{name}: {arguments}" for name, arguments in unseen if "-" in arguments),
    )


def _tables(folder: str) -> dict[str, object]:
    """The options of formatters that a folder has."""
    pyproject = toml_files.read_pyproject(folder)
    tables = dict(pyproject.tools) if pyproject else {}
    if ruff := toml_files.ruff_config_in(folder, pyproject):
        tables["ruff"] = toml_files.read_toml(ruff).ruff
    if other := other_options(folder):
        tables["isort"] = other[1]
    return tables


def _hooks(path: str) -> Iterator[_Hook]:
    """The hooks of a file for pre-commit, as far as its lines tell."""
    if not os.path.isfile(path):
        return
    for repo in _REPO.split(toml_files.read_text(path))[1:]:
        revision = _REV.search(repo)
        version = revision[1] if revision and EXACT_VERSION.fullmatch(revision[1]) else ""
        places = [*_ID.finditer(repo)]
        for place, end in zip(places, [*(one.start() for one in places[1:]), len(repo)], strict=True):
            arguments = _ARGS.search(repo, place.end(), end)
            yield _Hook(place[1], version, arguments[1] if arguments else "")
