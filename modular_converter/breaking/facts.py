"""What those who use a model rely on, read from its files: exports, classes, signatures, settings, state dicts; and how a
library renames the entries of checkpoints as it loads and saves them, by tables with an entry for each type of model.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import inspect
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from modular_converter.breaking.bounds import TooLarge, budget
from modular_converter.breaking.conventions import default_of
from modular_converter.breaking.expressions import COMPUTED, Interpreter
from modular_converter.breaking.names import Frame, Names, given_to_heirs
from modular_converter.breaking.states import Node, StateReader, unknown_node
from modular_converter.breaking.values import (
    Ancestors,
    ClassValue,
    CodePlace,
    Expression,
    External,
    FunctionValue,
    Value,
    plain,
)
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import UNPARSABLE, ConversionError
from modular_converter.model.bindings import EMPTY, FUNCTIONS, Function, signature_of
from modular_converter.model.class_blocks import Method
from modular_converter.model.module import Module
from modular_converter.model.nodes import decorators_of, dotted, parse, walk
from modular_converter.settings.values import split_stem


_DOCUMENTED = re.compile(r"^[ \t]*(\w+)[ \t]*\((?=[^\n]*(?:optional|`|\*))[^\n]*\)[ \t]*:", re.MULTILINE)
"""A line of a docstring that tells of an argument: "hidden_size (`int`, *optional*): …"."""
MODEL_TYPE = "model_type"
ALIASES = "attribute_map"
"""The variable of a configuration with the other names of its settings."""
LOADING = re.compile(
    r"_tied_weights_keys|_keys_to_ignore\w*|_dynamic_tied_weights_keys|_keep_in_fp32_modules\w*|base_model_prefix"
)
"""Variables of a model that say how a checkpoint is loaded."""
PLANS = re.compile(r"(base_model)?_\w+_plan|_no_split_modules|_skip_keys_device_placement")
"""Variables that say how a model is divided among devices."""
KEYWORD = "="
"""The end of the name of a setting that is no attribute, but is taken by name."""
TYPED = "TypedDict"
"""The base of the types of keywords."""
_PUBLIC = re.compile(r"__init__|__call__|[^_]\w*")


_KINDS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.KEYWORD_ONLY: "named",
    inspect.Parameter.VAR_KEYWORD: "**",
}


class MethodParameter(NamedTuple):
    """A parameter of a method."""

    name: str
    kind: str
    """`positional`, `named`, `*` or `**`."""
    default: str | None
    """Its text; None where a call must give one."""


class Signature(NamedTuple):
    """The parameters of a method, without the instance."""

    place: CodePlace
    parameters: tuple[MethodParameter, ...]
    decorated: frozenset[str] = frozenset()
    """The texts in its decorators: `@deprecate_kwarg("old", new_name="new")` still takes `old`."""
    is_attribute: bool = False
    """Whether it is a property."""


class Written(NamedTuple):
    """An expression as it is written."""

    text: str
    place: CodePlace


class _Own(NamedTuple):
    """What the body of one class adds to those of its bases."""

    methods: Mapping[str, Signature]
    fields: Mapping[str, Written]
    variables: Mapping[str, Written]


@dataclass(frozen=True)
class PublicClass:
    """What a class promises, with what it has from its bases in the package."""

    name: str
    place: CodePlace
    is_configuration: bool
    bases: tuple[str, ...]
    """The names of all its bases, near ones first."""
    methods: Mapping[str, Signature]
    """Its public methods."""
    fields: Mapping[str, Written]
    """The settings of its objects with their defaults: of a configuration, and of what is no module, such as a processor."""
    variables: Mapping[str, Written]
    """The variables of its body that say how it is loaded, divided and named."""
    documented: Mapping[str, int]
    """The arguments that its docstring and those of its public methods tell of, with their lines."""
    state: Node | None = None
    """Of a module: what its state dict holds."""
    ancestors: Ancestors = Ancestors()
    """The class and its bases; none where the facts are those of an earlier run."""

    @property
    def aliases(self) -> dict[str, str]:
        """Of a configuration: the names that stand for settings of another name, with these."""
        written = self.variables.get(ALIASES)
        statement = parse(f"({written.text})").body[0] if written is not None else None
        node = statement.value if isinstance(statement, ast.Expr) else None
        pairs = zip(node.keys, node.values) if isinstance(node, ast.Dict) else ()
        return {
            str(one.value): str(other.value)
            for one, other in pairs
            if isinstance(one, ast.Constant) and isinstance(other, ast.Constant)
        }

    def place_of(self, owner: str) -> CodePlace | None:
        """Where the class or a base of this name is written; None if it has none in the package."""
        return next((one.place() for one in self.ancestors.in_tree if one.name == owner), None)

    def holds(self, name: str) -> bool:
        """Whether its objects have an attribute of this name."""
        return any(one.holds(name) for one in self.ancestors.in_tree)


@dataclass(frozen=True)
class FileFacts:
    """A file of a model."""

    path: str
    exported: tuple[str, ...]
    line: int
    """The line of `__all__`."""
    classes: Mapping[str, PublicClass]
    is_known: bool = True
    """Whether it can be read."""


@dataclass(frozen=True)
class ModelFacts:
    """A model: its files by name."""

    files: Mapping[str, FileFacts]
    init: str
    """The `__init__.py` of its folder; that of the folder of models where it has none."""
    renamings: Mapping[str, Renaming]
    """Type of model -> how the entries of its checkpoints are renamed."""
    reads: Mapping[str, str]
    """Every file that this was read from -> its hash."""


class ModelTree:
    """The models of one tree of sources."""

    def __init__(self, library: Library, models: str, names: Mapping[str, Sequence[str]]) -> None:
        """
        Args:
            names: folder of a model -> the names of its Python files, sorted.
        """
        self.library = library
        self.models = models
        self.names = names
        self.hashed_as: Mapping[str, str] = {}
        """Path -> the text that its hash is of, where the difference is nothing that is read."""
        self._hashes: dict[str, str] = {}
        self.compared: set[tuple[str, str]] = set()
        """Names of files, with hashes that were found to be theirs."""
        self._names_in_files = Names(library, models)

    @property
    def followed(self) -> set[str]:
        """The names of the functions whose bodies were followed so far."""
        return self._names_in_files.followed

    def files_in(self, folder: str) -> Sequence[str]:
        """The Python files of a model's folder."""
        return [os.path.join(folder, name) for name in self.names.get(os.path.basename(folder), ())]

    def told_of(self, model: str) -> list[str]:
        """The names of the files of a model of which facts are told."""
        settings = self.library.settings
        return [one for one in self.names.get(model, ()) if split_stem(one.removesuffix(".py"), settings)]

    def exported(self, model: str) -> frozenset[str]:
        """The names that the files of a model export."""
        paths = (os.path.join(self.models, model, name) for name in self.told_of(model))
        modules = (self.library.module_if_readable(path) for path in paths)
        return frozenset(name for one in modules if one is not None for name in _exported(one))

    def hash(self, name: str) -> str:
        """The hash of a file by its name below the folder of the package; "" for one that is missing or unreadable."""
        if name not in self._hashes:
            path = os.path.normpath(os.path.join(os.path.dirname(self.models), name))
            if path in self.hashed_as:
                found = hashlib.sha256(self.hashed_as[path].encode("utf-8", "surrogatepass")).hexdigest()
            else:
                found = "" if self.library.text_if_readable(path) is None else self.library.hash(path)
            self._hashes[name] = found[:20]
        return self._hashes[name]

    def facts(self, model: str) -> ModelFacts:
        """What users of a model rely on."""
        library = self.library
        library.observations = observations = Observations()
        reader = _Reader(Interpreter(self._names_in_files, self.models, self.files_in))
        files = {}
        for name in self.told_of(model):
            path = os.path.join(self.models, model, name)
            try:
                files[name] = reader.file(path)
            except ConversionError:
                files[name] = FileFacts(path, (), 1, {}, is_known=False)
        folder = model if "__init__.py" in self.names.get(model, ()) else ""
        init = os.path.join(self.models, folder, "__init__.py")
        return ModelFacts(files, init, dict(self._renamings(files)), observations.reads)

    def _renamings(self, files: Mapping[str, FileFacts]) -> Iterator[tuple[str, Renaming]]:
        path = tables_path(self.models)
        tables = self._names_in_files.remembered(read_tables, path, self.library)
        for one in (one for file in files.values() for one in file.classes.values() if one.is_configuration):
            if (written := one.variables.get(MODEL_TYPE)) is not None:
                kind = written.text.strip("'\"")
                yield kind, renaming_of(kind, tables, path)


def _exported(module: Module) -> tuple[str, ...]:
    is_listed = "__all__" in module.definitions
    return module.exported if is_listed else tuple(one for one in module.classes if not one.startswith("_"))


class _Reader:
    def __init__(self, run: Interpreter) -> None:
        self._run = run
        self._states = StateReader()
        self._configs: dict[ClassValue, Value] = {}
        """The configurations with their defaults, which the models of a file share until one of them writes to it."""

    def file(self, path: str) -> FileFacts:
        module = self._run.names.library.module(path)
        listed, exported = module.definitions.get("__all__"), _exported(module)
        found = {}
        handed_on = module.imported if listed is None else ()  # classes that have been moved, say
        for name in dict.fromkeys((*exported, *handed_on)):
            cls = self._run.names.class_named(path, name)  # also by another name, and of another file
            if cls is not None:
                with budget():
                    found[name] = self._class(cls)
        return FileFacts(path, exported, listed.line if listed is not None else 1, found)

    def _class(self, cls: ClassValue) -> PublicClass:
        ancestors = self._run.names.ancestors(cls)
        parts = (self._run.names.remembered(self._own, one) for one in reversed(ancestors.in_tree))
        whole = _Own(*(functools.reduce(operator.or_, of_one_kind) for of_one_kind in zip(*parts)))
        if (made := _of_dataclass(ancestors)) is not None:
            whole = whole._replace(methods={**whole.methods, "__init__": made})
        is_module = ancestors.is_module or self._is_model(ancestors)
        fields = whole.fields if ancestors.is_configuration else {}
        if not (ancestors.is_configuration or is_module or made):
            fields = dict(self._defaults(ancestors))
        return PublicClass(
            cls.name,
            cls.place(),
            ancestors.is_configuration,
            tuple(one.short_name for one in ancestors[1:]),
            whole.methods,
            fields,
            whole.variables,
            dict(_documented(cls, cls.above)),
            self._state(cls, ancestors) if is_module else None,
            ancestors,
        )

    def _is_model(self, ancestors: Sequence[ClassValue | External]) -> bool:
        """Whether a class lies below the base of all models, which gets a configuration."""
        return any(one.short_name == self._run.names.library.settings.model_base for one in ancestors[1:])

    def _own(self, cls: ClassValue) -> _Own:
        run = _another(self._run)  # whose reads are all noted
        written = functools.partial(_default_text, run, Frame(cls.path, cls.above))
        methods = {}
        own = {
            name: (node, cls.place(node.lineno), is_attribute) for name, (node, is_attribute) in cls.methods.items()
        }
        for name, (node, place, is_attribute) in {**own, **dict(self._functions(cls))}.items():
            if _PUBLIC.fullmatch(name):
                parameters = tuple(_parameters(node, Method(node).instance, written))
                methods[name] = Signature(place, parameters, _words_of(node.decorator_list), is_attribute)
        return _Own(methods, dict(_fields(cls, methods, written)), dict(_variables(cls, written)))

    def _defaults(self, ancestors: Ancestors) -> Iterator[tuple[str, Written]]:
        """What the objects of a class have or take that is neither a configuration nor a module, such as a processor."""
        for one in reversed(ancestors.in_tree):
            yield from self._run.names.remembered(self._own_defaults, one).items()

    def _own_defaults(self, cls: ClassValue) -> dict[str, Written]:
        written = functools.partial(_default_text, _another(self._run), Frame(cls.path, cls.above))
        public = ((name, value) for name, value in cls.variables.items() if not name.startswith("_"))
        own = {name: Written(written(value), cls.place(value.lineno)) for name, value in public}
        return {**dict(self._keywords(cls)), **own}

    def _keywords(self, cls: ClassValue) -> Iterator[tuple[str, Written]]:
        """The keywords that objects of a class take by the types that it names: `valid_kwargs = ImageKwargs`, and in methods
        `**kwargs: Unpack[ImageKwargs]`.
        """
        rests = (one.node.args.kwarg for one in cls.members.methods)
        annotations = (one.annotation for one in rests if one is not None)
        unpacked = [one.slice for one in annotations if isinstance(one, ast.Subscript)]
        todo = [(cls.path, node) for node in (*unpacked, *cls.variables.values())]
        seen: set[ClassValue] = set()
        while todo:
            path, node = todo.pop()
            found = self._run.names.class_named(path, node.id) if isinstance(node, ast.Name) else None
            lineage = self._run.names.ancestors(found) if found is not None and found not in seen else Ancestors()
            if not lineage or lineage[-1].short_name != TYPED:
                continue
            for one in (one for one in lineage.in_tree if one not in seen):
                seen.add(one)
                for field in one.members.node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        yield field.target.id + KEYWORD, Written("", one.place(field.lineno))
                        todo.append((one.path, field.annotation))

    def _functions(self, cls: ClassValue) -> Iterator[tuple[str, tuple[Function, CodePlace, bool]]]:
        """The functions that a class gets as methods: `run = function` in its body, `Class.run = function` below, and those that
        its body imports.
        """
        below = (one for one in parse(cls.behind).body if isinstance(one, ast.Assign))
        given = {dotted(one.targets[0]).removeprefix(f"{cls.name}."): one.value for one in below}
        own = {name: one for name, one in cls.variables.items() if getattr(one, "id", "") not in cls.methods}
        named = {name: one.id for name, one in {**own, **given}.items() if isinstance(one, ast.Name)}
        for name, read in {**{one: one for one in cls.imports if one not in cls.deleted}, **named}.items():
            imported = cls.imports.get(read)
            found = self._run.names.imported(cls.path, *imported) if imported else self._run.constant(cls.path, read)
            if isinstance(found, FunctionValue) and isinstance(found.node, FUNCTIONS):
                yield name, (found.node, CodePlace(found.path, found.above + found.node.lineno, cls.name), False)

    def _state(self, cls: ClassValue, ancestors: Ancestors) -> Node:
        before, place = self._run.lasting_writes, cls.place()
        try:
            with budget():
                config = self._config(ancestors)
                made = self._run.instantiate(cls, [config] if config is not None else [], {})
                if self._run.lasting_writes != before:
                    self._configs.clear()
                return self._states.node(made, place)
        except (TooLarge, RecursionError):  # in the middle of a statement: what was made until then is of no use
            self._run, self._states = _another(self._run), StateReader()
            self._configs.clear()
            return unknown_node(place, [one.source for one in ancestors.in_tree])

    def _config(self, ancestors: Ancestors) -> Value | None:
        """The configuration of a model with its defaults, by `config: …` or `config_class = …` of its classes. None for a
        module that is made of whatever its parameters say.
        """
        for cls in ancestors.in_tree:
            for node in cls.members.node.body:
                named = None
                if isinstance(node, ast.AnnAssign) and dotted(node.target) == "config":
                    named = node.annotation
                elif isinstance(node, ast.Assign) and dotted(node.targets[0]) == "config_class":
                    named = node.value
                found = self._run.names.class_named(cls.path, dotted(named)) if named is not None else None
                if found is not None:
                    if found not in self._configs:
                        self._configs[found] = self._run.instantiate(found, [], {}, "config")
                    return self._configs[found]
        return Expression("config") if self._is_model(ancestors) else None


def _another(run: Interpreter) -> Interpreter:
    return Interpreter(run.names, run.models, run.files_in)


def _default_text(run: Interpreter, frame: Frame, node: ast.expr) -> str:
    """An expression as it is compared: a constant of the module, or a sum, by its value."""
    is_computed = isinstance(node, ast.Call) and f"builtins.{dotted(node.func)}" in COMPUTED
    if is_computed or isinstance(node, (ast.Name, ast.BinOp, ast.UnaryOp)):
        with contextlib.suppress(TooLarge), budget():
            value = plain(run.evaluate(node, frame))
            if isinstance(value, (int, float, str, tuple, list, dict)):
                return repr(value)
    return ast.unparse(node)


def _of_dataclass(ancestors: Ancestors) -> Signature | None:
    """The `__init__` that `@dataclass` makes from the fields of a class and its bases; None for any other class."""
    cls = ancestors[0]
    if not isinstance(cls, ClassValue) or "__init__" in cls.methods or not _is_dataclass(cls):
        return None
    fields: dict[str, MethodParameter] = {}
    for node in (node for one in reversed(ancestors.in_tree) if _is_dataclass(one) for node in one.members.node.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = None if node.value is None else ast.unparse(default_of(node.value))
            fields[node.target.id] = MethodParameter(node.target.id, "positional", default)
    return Signature(cls.place(), tuple(fields.values()))


def _is_dataclass(cls: ClassValue) -> bool:
    return any(one.rpartition(".")[2] == "dataclass" for one in decorators_of(cls.members.node))


def _words_of(decorators: Sequence[ast.expr]) -> frozenset[str]:
    constants = (node.value for node in walk(*decorators) if isinstance(node, ast.Constant))
    return frozenset(value for value in constants if isinstance(value, str))


def _parameters(node: Function, instance: str, written: Callable[[ast.expr], str]) -> Iterator[MethodParameter]:
    for number, parameter in enumerate(signature_of(node.args).parameters.values()):
        kind = _KINDS.get(parameter.kind, "positional")
        if not (number == 0 and instance and kind == "positional"):
            default = "" if kind in ("*", "**") else None if parameter.default is EMPTY else written(parameter.default)
            yield MethodParameter(parameter.name, kind, default)


def _variables(cls: ClassValue, written: Callable[[ast.expr], str]) -> Iterator[tuple[str, Written]]:
    for name, value in cls.variables.items():
        if name in (MODEL_TYPE, ALIASES) or LOADING.fullmatch(name) or PLANS.fullmatch(name):
            yield name, Written(written(value), cls.place(value.lineno))
    for name, text in given_to_heirs(cls.source).items():
        if LOADING.fullmatch(name) or PLANS.fullmatch(name):
            yield name, Written(text, cls.place())


def _fields(
    cls: ClassValue, methods: Mapping[str, Signature], written: Callable[[ast.expr], str]
) -> Iterator[tuple[str, Written]]:
    for one in cls.members.node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None:
            kind = getattr(one.annotation, "value", one.annotation)  # of `ClassVar[int]`
            if not dotted(kind).endswith("ClassVar"):
                yield one.target.id, Written(written(default_of(one.value)), cls.place(one.lineno))
    made = methods.get("__init__")
    for parameter in made.parameters if made is not None else ():
        if made is not None and parameter.default is not None and parameter.kind in ("positional", "named"):
            yield parameter.name, Written(parameter.default, made.place)


def _documented(cls: ClassValue, above: int) -> Iterator[tuple[str, int]]:
    methods = [one.node for one in cls.members.methods if _PUBLIC.fullmatch(one.name)]
    for node in (cls.members.node, *methods):
        text = ast.get_docstring(node, clean=False) or ""
        for found in _DOCUMENTED.finditer(text):
            owner = "" if node is cls.members.node else f"{node.name}."
            yield owner + found[1], above + node.body[0].lineno + text.count("\n", 0, found.start(1))


FILE = "conversion_mapping.py"
"""The file of the package that holds the tables."""


class Renaming(NamedTuple):
    """What the tables say of one type of model."""

    text: str
    place: CodePlace


Tables = Mapping[str, list[ast.expr]]


def read_tables(path: str, library: Library) -> Tables:
    """The entries of all tables of a file, by their keys; none where it cannot be read."""
    found: dict[str, list[ast.expr]] = {}
    try:
        tree = parse(library.text_if_readable(path) or "")
    except UNPARSABLE:
        return found
    for node in walk(tree):
        if isinstance(node, ast.Dict):
            pairs = [(key, value) for key, value in zip(node.keys, node.values) if key is not None]
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            pairs = [(one.slice, node.value) for one in targets if isinstance(one, ast.Subscript)]
        else:
            continue
        for key, value in pairs:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.setdefault(key.value, []).append(value)
    return found


def renaming_of(kind: str, tables: Tables, path: str) -> Renaming:
    """What the tables say of a type of model; an entry that is a text names another type whose entries count."""
    nodes = [*tables.get(kind, ())]
    for node in [*nodes]:
        if isinstance(node, ast.Constant) and node.value != kind:
            nodes += tables.get(str(node.value), ())
    return Renaming("\n".join(map(ast.unparse, nodes)), CodePlace(path, nodes[0].lineno if nodes else 1))


def tables_path(models: str) -> str:
    """The file of a package with this folder of models."""
    return os.path.join(os.path.dirname(models), FILE)
