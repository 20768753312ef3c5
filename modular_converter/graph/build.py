"""The graph from the modular files that arguments name: which model takes which definitions from which. The graph is
values: models, and an edge for each pair of heir and parent.
"""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from modular_converter.convert.inherit.resolve import neighbour_module
from modular_converter.convert.schedule import levels
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import ALL, discover
from modular_converter.files.read import package_of
from modular_converter.files.write import is_generated, path_of_generated
from modular_converter.findings import ConversionError, Finding, Location, locate_word
from modular_converter.model.module import ImportedName, Module, Role
from modular_converter.rules import input_files
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import Settings, models_folder_of, modular_of, place_of_model


@dataclass(frozen=True)
class InheritedClass:
    """A class of a modular file that inherits from a neighbour's class."""

    name: str
    line: int
    """Of the class in the modular file."""
    parent: str
    """The class that it inherits from, as the neighbour calls it."""
    file: str
    """Name of the neighbour's file: `modeling_llama.py`."""


@dataclass(frozen=True)
class ImportedThing:
    """A definition that a modular file imports from a neighbour by name and does not inherit from."""

    name: str
    kind: str
    """`function`, `assignment`, `class`, or `unknown` where the neighbour's text does not define it."""
    file: str

    @property
    def description(self) -> str:
        """The kind of the import, in words."""
        return "imported by name" if self.kind == "unknown" else f"{self.kind} imported by name"


@dataclass(frozen=True)
class Edge:
    """The classes and other definitions that one model takes from another."""

    heir: str
    parent: str
    classes: tuple[InheritedClass, ...]
    """In the order of the modular file."""
    things: tuple[ImportedThing, ...]


@dataclass(frozen=True)
class ModelFile:
    """A file that was generated from a modular file of the model."""

    name: str
    lines: int


@dataclass(frozen=True)
class Model:
    """A folder of models: written by hand, or generated from its modular files."""

    name: str
    """The folder, from the folder of models on; the dotted package for one that lies in another package."""
    modular: tuple[str, ...] = ()
    """Its modular files: `gemma/modular_gemma.py`."""
    modular_lines: int = 0
    generated: tuple[ModelFile, ...] = ()
    depth: int = 0
    """Steps of the longest path to a model that inherits from none. Circles come last."""

    @property
    def generated_lines(self) -> int:
        return sum(file.lines for file in self.generated)

    @property
    def lines_saved(self) -> int | None:
        """Generated lines minus lines of the modular files; None for a model without generated files."""
        return self.generated_lines - self.modular_lines if self.generated else None


@dataclass(frozen=True)
class Graph:
    """Models by name and edges, both sorted."""

    title: str
    """The package of the models, or the folder that holds the folder of models."""
    models: Mapping[str, Model]
    edges: tuple[Edge, ...]
    selected: tuple[str, ...] = ()
    """The models that were asked for; none for the whole library."""

    @cached_property
    def parents(self) -> Mapping[str, tuple[Edge, ...]]:
        """Model -> its edges to its parents, the one with the most classes first."""
        return self._by("heir")

    @cached_property
    def heirs(self) -> Mapping[str, tuple[Edge, ...]]:
        """Model -> the edges of its direct heirs, the one with the most classes first."""
        return self._by("parent")

    def _by(self, end: str) -> Mapping[str, tuple[Edge, ...]]:
        found: dict[str, list[Edge]] = {name: [] for name in self.models}
        for edge in sorted(self.edges, key=lambda edge: (-len(edge.classes), edge.parent, edge.heir)):
            found[getattr(edge, end)].append(edge)
        return {name: tuple(edges) for name, edges in found.items()}

    def all_ancestors(self, name: str) -> dict[str, int]:
        """Ancestor -> steps of the shortest path to it."""
        return _reachable(name, {key: [edge.parent for edge in edges] for key, edges in self.parents.items()})

    def all_heirs(self, name: str) -> dict[str, int]:
        """Heir -> steps of the shortest path to it."""
        return _reachable(name, {key: [edge.heir for edge in edges] for key, edges in self.heirs.items()})

    @cached_property
    def heir_counts(self) -> Mapping[str, int]:
        """Model -> number of its direct and indirect heirs."""
        return {name: len(self.all_heirs(name)) for name in self.models}

    def around(self, names: Iterable[str]) -> Graph:
        """The part of the graph with these models, their ancestors and their heirs."""
        chosen = tuple(sorted(set(names)))
        kept = set(chosen)
        for name in chosen:
            kept.update(self.all_ancestors(name), self.all_heirs(name))
        models = {name: model for name, model in self.models.items() if name in kept}
        edges = tuple(edge for edge in self.edges if edge.heir in kept and edge.parent in kept)
        return replace(self, models=models, edges=edges, selected=chosen)


def _reachable(start: str, onward: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Each reachable node, except the start -> steps of the shortest path."""
    steps = {start: 0}
    latest = [start]
    while latest:
        reached = sorted({there for here in latest for there in onward.get(here, ())} - steps.keys())
        steps.update((there, steps[latest[0]] + 1) for there in reached)
        latest = reached
    del steps[start]
    return steps


_DEFINED = re.compile(r"^(?:(?:async[ \t]+)?(def|class)[ \t]+(\w+)|(\w+)[ \t]*(?::[^=\n]*)?=)", re.MULTILINE)
_KINDS = {"def": "function", "class": "class", None: "assignment"}


@dataclass
class _Taken:
    """The classes and definitions that the modular files of one model take from one other model."""

    classes: list[InheritedClass] = field(default_factory=list)
    things: set[ImportedThing] = field(default_factory=set)


@dataclass
class _Reading:
    """The graph while it is being read."""

    root: str
    library: Library
    models: dict[str, Model] = field(default_factory=dict)
    taken: dict[tuple[str, str], _Taken] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    kinds: dict[str, dict[str, str]] = field(default_factory=dict)
    """Neighbour's path -> name of a definition -> its kind."""

    def edge(self, heir: str, path: str) -> _Taken | None:
        """The edge from `heir` to the model of the neighbour at `path`; None within one model."""
        parent = model_name(path, self.root, self.library.settings)
        if parent == heir:
            return None
        self.models.setdefault(parent, Model(parent))
        return self.taken.setdefault((heir, parent), _Taken())


def build_graph(paths: Iterable[str], root: str, library: Library) -> tuple[Graph, list[Finding]]:
    """The graph of the modular files at `paths`, and the findings about them; a bad file never stops the others.

    Args:
        root: the folder of models, from which models are named.
    """
    reading = _Reading(root, library)
    for path in sorted(set(paths)):
        _read_model(path, reading)
    edges = (
        Edge(heir, parent, tuple(taken.classes), tuple(sorted(taken.things, key=lambda one: (one.file, one.name))))
        for (heir, parent), taken in sorted(reading.taken.items())
    )
    package = package_of(root)[1].partition(".")[0]
    graph = _graph(printable(package or os.path.basename(os.path.dirname(root)) or root), reading.models, tuple(edges))
    return graph, reading.findings


def model_name(path: str, root: str, settings: Settings) -> str:
    """The name of the model of a file. Characters that cannot be shown are escaped."""
    folder = place_of_model(path, settings)
    relative = os.path.relpath(folder, root)
    if relative.split(os.sep, 1)[0] == os.pardir:
        relative = package_of(folder)[1] or relative
    elif relative == os.curdir:
        relative = os.path.basename(folder)
    return printable(relative.replace(os.sep, "/"))


def printable(name: str) -> str:
    """A name without control, bidirectional and lone surrogate characters, which a hostile folder may have."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def _graph(title: str, models: Mapping[str, Model], edges: tuple[Edge, ...]) -> Graph:
    """Sort the models and give each its depth."""
    needs: dict[str, set[str]] = {name: set() for name in models}
    for edge in edges:
        needs[edge.heir].add(edge.parent)
    layers = levels(needs)
    depths = {name: depth for depth, names in enumerate(layers) for name in names}
    placed = {name: replace(models[name], depth=depths.get(name, len(layers))) for name in sorted(models)}
    return Graph(title, placed, edges)


def _read_model(path: str, reading: _Reading) -> None:
    """Add one modular file: its model, its lines and those of its generated files, and the edges to its parents."""
    folder, file_name = os.path.split(path)
    heir = model_name(path, reading.root, reading.library.settings)
    known = reading.models.get(heir, Model(heir))
    reading.models[heir] = replace(known, modular=(*known.modular, f"{heir}/{printable(file_name)}"))
    try:
        if not reading.library.exists(path):
            raise ConversionError(input_files.missing_file(Location(path), reason="not a regular file"))
        lines = reading.library.text(path).count("\n")
    except ConversionError as error:
        reading.findings += error.findings
        return
    known = reading.models[heir]
    generated = (*known.generated, *_generated_from(path, reading))
    reading.models[heir] = replace(known, modular_lines=known.modular_lines + lines, generated=generated)
    try:
        module = reading.library.module(path)
    except ConversionError as error:
        reading.findings += error.findings
        return
    _read_edges(heir, path, module, reading)


def _generated_from(path: str, reading: _Reading) -> Iterator[ModelFile]:
    """The files whose banner says that they come from the modular file at `path`."""
    folder = os.path.dirname(path_of_generated(path, reading.library.settings))
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    except OSError:
        return
    for name in names:
        file = os.path.join(folder, name)
        if file == path or not reading.library.exists(file):
            continue
        try:
            text = reading.library.text(file)
        except ConversionError as error:
            reading.findings += [one for one in error.findings if one not in reading.findings]
            continue
        if os.path.basename(is_generated(text)) == os.path.basename(path):
            yield ModelFile(printable(name), text.count("\n"))


def _read_edges(heir: str, path: str, module: Module, reading: _Reading) -> None:
    """Add the edges that follow from the imports and class headers of a modular file."""
    sources: dict[str, tuple[ImportedName, str]] = {}
    for statement in module.statements:
        for name in statement.imports if statement.role is Role.IMPORT else ():
            if source := _source_of(name, path, statement.line, reading):
                sources[name.bound] = name, source
    inherited: set[str] = set()
    for one in module.statements:
        for base in one.bases:
            if base in sources:
                inherited.add(base)
                name, source = sources[base]
                if edge := reading.edge(heir, source):
                    edge.classes.append(InheritedClass(one.name, one.header_line, name.name, os.path.basename(source)))
    for bound, (name, source) in sources.items():
        if bound not in inherited and (edge := reading.edge(heir, source)):
            kind = _defined_in(source, reading).get(name.name, "unknown")
            edge.things.add(ImportedThing(name.name, kind, os.path.basename(source)))


def _source_of(name: ImportedName, path: str, line: int, reading: _Reading) -> str:
    """The neighbour's file behind an imported name; "" for an ordinary import, or if no such file can exist."""
    if neighbour_module(name.module, reading.library.settings) is None:
        return ""
    folder = os.path.dirname(path)
    source = reading.library.resolver.path(name.module, folder)
    if source and (reading.library.exists(source) or _will_exist(source, reading.library)):
        return source
    looked = os.path.relpath(source, folder).replace(os.sep, "/") if source else name.module.partition(".")[0]
    location = locate_word(path, name.module, reading.library.text(path), line)
    finding = input_files.unknown_neighbour(location, name.module, looked)
    if finding not in reading.findings:
        reading.findings.append(finding)
    return ""


def _will_exist(path: str, library: Library) -> bool:
    """Whether a missing neighbour would be generated from a modular file."""
    modular = modular_of(path, library.settings)
    return bool(modular) and library.exists(modular)


def _defined_in(path: str, reading: _Reading) -> Mapping[str, str]:
    """Name -> kind of the top-level definitions in a neighbour's text."""
    if path not in reading.kinds:
        try:
            text = reading.library.text(path) if reading.library.exists(path) else ""
        except ConversionError as error:
            reading.findings += [one for one in error.findings if one not in reading.findings]
            text = ""
        reading.kinds[path] = {found[2] or found[3]: _KINDS[found[1]] for found in _DEFINED.finditer(text)}
    return reading.kinds[path]


def modular_files(arguments: Sequence[str], models: str | None) -> tuple[str, tuple[str, ...]]:
    """The folder of models, and every modular file below it.

    Without `models`, the folder follows from the first path among the arguments.
    Raises `ConversionError` when there is neither.
    """
    if models is None:
        paths = [path for argument in arguments if _is_path(argument) for path in discover([argument], None).paths]
        if paths:
            root = models_folder_of(paths[0], load_settings(os.path.dirname(paths[0])))
            return root, tuple(sorted({*paths, *discover([root], None).paths}))
    found = discover([ALL], models)
    if found.findings or models is None:
        raise ConversionError(*found.findings)
    return models, found.paths


def chosen_models(arguments: Sequence[str], graph: Graph, root: str) -> tuple[list[str], list[Finding]]:
    """The models that the arguments name, and a finding for each argument that names none.

    An argument is the name of a model, which may be written by hand, or any argument of `modular-convert`. Where models
    are named with the folders above theirs (`nets/emu`), the last part is enough if no two have it.
    """
    lasts = Counter(name.rpartition("/")[2] for name in graph.models)
    short = {last: name for name in graph.models if lasts[last := name.rpartition("/")[2]] == 1}
    chosen: list[str] = []
    findings: list[Finding] = []
    settings = load_settings(root)
    for argument in arguments:
        written = (argument, argument.replace("-", "_"))
        names = [short.get(name, name) for name in written if name in graph.models or name in short][:1]
        if not names and _is_path(argument):
            found = discover([argument], root)
            findings += found.findings
            names = [name for path in found.paths if (name := model_name(path, root, settings)) in graph.models]
            if names or found.findings:
                chosen += names
                continue
        if not names:
            reason = "no such model in the graph"
            findings.append(input_files.nothing_to_convert(argument, reason=reason, candidates=graph.models))
        chosen += names
    return chosen, findings


def _is_path(argument: str) -> bool:
    return os.sep in argument or "/" in argument or argument.endswith(".py") or glob.has_magic(argument)
