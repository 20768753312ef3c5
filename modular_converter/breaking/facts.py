"""What those who use a model rely on, read from its files: exports, classes, signatures, settings, state dicts."""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from modular_converter.breaking.conventions import CONFIG_BASES, default_of
from modular_converter.breaking.interpret import Interpreter
from modular_converter.breaking.names import Assigned, Names
from modular_converter.breaking.state import Node, StateReader
from modular_converter.breaking.values import ClassValue, CodePlace, Expression, External, Value
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import ConversionError
from modular_converter.model.bindings import Function
from modular_converter.model.module import Role
from modular_converter.model.nodes import dotted, walk
from modular_converter.model.resolver import Definition
from modular_converter.settings.layout import split_stem


_DOCUMENTED = re.compile(r"^[ \t]*(\w+)[ \t]*\((?=[^\n]*(?:optional|`|\*))[^\n]*\)[ \t]*:", re.MULTILINE)
"""A line of a docstring that tells of an argument: "hidden_size (`int`, *optional*): …"."""
_PUBLIC = re.compile(r"__init__|__call__|[^_]\w*")


class MethodParameter(NamedTuple):
    """A parameter of a method."""

    name: str
    kind: str
    """`positional`, `named`, `*` or `**`."""
    default: str | None
    """Its text; None where a call must give one."""


class Signature(NamedTuple):
    """The parameters of a method, without the instance."""

    line: int
    parameters: tuple[MethodParameter, ...]
    decorated: frozenset[str] = frozenset()
    """The texts in its decorators: `@deprecate_kwarg("old", new_name="new")` still takes `old`."""


class Written(NamedTuple):
    """An expression as it is written, and its line."""

    text: str
    line: int


@dataclass(frozen=True)
class PublicClass:
    """What a class promises."""

    name: str
    line: int
    is_configuration: bool
    ancestors: tuple[str, ...]
    """The names of all its bases, near ones first."""
    methods: Mapping[str, Signature]
    """The public methods that its own body defines."""
    fields: Mapping[str, Written]
    """Of a configuration: its settings with their defaults."""
    variables: Mapping[str, Written]
    """The variables of its body."""
    documented: Mapping[str, int]
    """The arguments that its docstring and those of its public methods tell of, with their lines."""
    state: Node | None = None
    """Of a model: what its state dict holds."""


@dataclass(frozen=True)
class FileFacts:
    """A file of a model."""

    path: str
    exported: tuple[str, ...]
    line: int
    """The line of `__all__`."""
    classes: Mapping[str, PublicClass]


@dataclass(frozen=True)
class ModelFacts:
    """A model: its files by name."""

    files: Mapping[str, FileFacts]
    reads: Mapping[str, str]
    """Every file that this was read from -> its hash."""


class ModelTree:
    """The models of one tree of sources."""

    def __init__(self, library: Library, models: str, names: Mapping[str, Sequence[str]]) -> None:
        """
        Args:
            library: reads the files.
            models: the folder of models.
            names: folder of a model -> the names of its Python files, sorted.
        """
        self.library = library
        self.models = models
        self.names = names
        self._facts: dict[str, ModelFacts] = {}
        self._hashes: dict[str, str] = {}
        self._parsed: dict[Definition, Value | Assigned | None] = {}

    def files_in(self, folder: str) -> Sequence[str]:
        """The Python files of a model's folder."""
        return [os.path.join(folder, name) for name in self.names.get(os.path.basename(folder), ())]

    def hash(self, name: str) -> str:
        """The hash of a file by its name below the folder of the package; "" for one that is missing or unreadable."""
        if name not in self._hashes:
            path = os.path.normpath(os.path.join(os.path.dirname(self.models), name))
            text = self.library.text_if_readable(path)
            encoded = (text or "").encode("utf-8", "surrogatepass")
            self._hashes[name] = "" if text is None else hashlib.sha256(encoded).hexdigest()[:20]
        return self._hashes[name]

    def facts(self, model: str) -> ModelFacts:
        """What users of a model rely on."""
        if model not in self._facts:
            self._facts[model] = self._read(model)
        return self._facts[model]

    def _read(self, model: str) -> ModelFacts:
        observations = Observations()
        library = self.library.observing(observations)
        reader = _Reader(Interpreter(Names(library, self._parsed), self.models, self.files_in))
        files = {}
        for path in self.files_in(os.path.join(self.models, model)):
            name = os.path.basename(path)
            if split_stem(name.removesuffix(".py"), library.settings):
                try:
                    files[name] = reader.file(path)
                except ConversionError:  # the check of the file tells of it
                    continue
        return ModelFacts(files, observations.reads)


class _Reader:
    def __init__(self, run: Interpreter) -> None:
        self._run = run
        self._states = StateReader()

    def file(self, path: str) -> FileFacts:
        module = self._run.names.library.module(path)
        listed = module.definitions.get("__all__")
        exported = (
            module.exported
            if listed is not None
            else tuple(name for name in module.classes if not name.startswith("_"))
        )
        found = {}
        for name in exported:
            statement = module.definitions.get(name)
            if statement is not None and statement.role is Role.CLASS:
                cls = self._run.names.class_named(path, name)
                if cls is not None and cls.path == path:
                    found[name] = self._class(cls)
        return FileFacts(path, tuple(exported), listed.line if listed is not None else 1, found)

    def _class(self, cls: ClassValue) -> PublicClass:
        ancestors = self._run.names.ancestors(cls)
        names = tuple(one.name.rpartition(".")[2] for one in ancestors[1:])
        is_configuration = not CONFIG_BASES.isdisjoint(names)
        above = cls.above
        methods = {
            one.name: Signature(
                above + one.node.lineno, tuple(_parameters(one.node, one.instance)), _words_of(one.node.decorator_list)
            )
            for one in cls.members.methods
            if _PUBLIC.fullmatch(one.name)
        }
        variables = dict(_variables(cls.members.node, above))
        fields = dict(_fields(cls.members.node, methods, above)) if is_configuration else {}
        is_model = self._run.names.library.settings.model_base in names
        return PublicClass(
            cls.name,
            cls.line,
            is_configuration,
            names,
            methods,
            fields,
            variables,
            dict(_documented(cls, above)),
            self._state(cls, ancestors) if is_model else None,
        )

    def _state(self, cls: ClassValue, ancestors: Sequence[ClassValue | External]) -> Node:
        made = self._run.instantiate(cls, [self._config(ancestors)], {})
        return self._states.node(made, CodePlace(cls.path, cls.line, cls.name))

    def _config(self, ancestors: Sequence[ClassValue | External]) -> Value:
        """The configuration of a model with its defaults, by `config: …` or `config_class = …` of its classes."""
        for cls in ancestors:
            if not isinstance(cls, ClassValue):
                continue
            for node in cls.members.node.body:
                named = None
                if isinstance(node, ast.AnnAssign) and dotted(node.target) == "config":
                    named = node.annotation
                elif isinstance(node, ast.Assign) and dotted(node.targets[0]) == "config_class":
                    named = node.value
                found = self._run.names.class_named(cls.path, dotted(named)) if named is not None else None
                if found is not None:
                    return self._run.instantiate(found, [], {}, "config")
        return Expression("config")


def _words_of(decorators: Sequence[ast.expr]) -> frozenset[str]:
    constants = (node.value for node in walk(*decorators) if isinstance(node, ast.Constant))
    return frozenset(value for value in constants if isinstance(value, str))


def _parameters(node: Function, instance: str) -> Iterator[MethodParameter]:
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(args.defaults)), *args.defaults]
    for number, (one, default) in enumerate(zip(positional, defaults)):
        if not (number == 0 and instance):
            yield MethodParameter(one.arg, "positional", None if default is None else ast.unparse(default))
    if args.vararg is not None:
        yield MethodParameter(args.vararg.arg, "*", "")
    for one, default in zip(args.kwonlyargs, args.kw_defaults):
        yield MethodParameter(one.arg, "named", None if default is None else ast.unparse(default))
    if args.kwarg is not None:
        yield MethodParameter(args.kwarg.arg, "**", "")


def _variables(node: ast.ClassDef, above: int) -> Iterator[tuple[str, Written]]:
    for one in node.body:
        if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None:
            for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                if isinstance(target, ast.Name):
                    yield target.id, Written(ast.unparse(one.value), above + one.lineno)


def _fields(node: ast.ClassDef, methods: Mapping[str, Signature], above: int) -> Iterator[tuple[str, Written]]:
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None:
            yield one.target.id, Written(ast.unparse(default_of(one.value)), above + one.lineno)
    made = methods.get("__init__")
    for parameter in made.parameters if made is not None else ():
        if made is not None and parameter.default is not None and parameter.kind in ("positional", "named"):
            yield parameter.name, Written(parameter.default, made.line)


def _documented(cls: ClassValue, above: int) -> Iterator[tuple[str, int]]:
    methods = [one.node for one in cls.members.methods if _PUBLIC.fullmatch(one.name)]
    for node in (cls.members.node, *methods):
        first = node.body[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            text = first.value.value
            for found in _DOCUMENTED.finditer(text):
                owner = "" if node is cls.members.node else f"{node.name}."
                yield owner + found[1], above + first.lineno + text.count("\n", 0, found.start(1))
