"""The conventions of a library whose models share one folder, a file for each: `nets/resmix.py`, `nets/net_resmix.py`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from modular_converter.authoring.survey import (
    MOST_MODELS,
    Survey,
    SurveyedFile,
    folders_of_sources,
    is_no_source,
    read_file,
    survey_of,
)
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.names import written_name
from modular_converter.settings.values import FILES, Settings


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
    kept = [best, *(one for one in beside if PLAIN not in (one.name, best.name) and _fits(one, models))]
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


def _fits(kind: _Kind, models: set[str]) -> bool:
    """Whether a further kind is of the same models."""
    return sum(file.model in models for file in kind.models) * 2 >= len(kind.models)


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
