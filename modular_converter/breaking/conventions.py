"""What a library's configurations and automatic classes do at run time, as far as their texts do not show it; and what
decorators of a class, and statements below it, make of it.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from modular_converter.breaking.bounds import one_text, spend
from modular_converter.breaking.interpret import ANY, StatementInterpreter
from modular_converter.breaking.names import EXCHANGED, Frame, Names
from modular_converter.breaking.values import (
    CONFIG_BASES,
    NONE,
    POST_INIT,
    UNKNOWN,
    ClassValue,
    CodePlace,
    Either,
    Expression,
    External,
    FunctionValue,
    Items,
    ObjectValue,
    Slot,
    Value,
    either,
    is_configuration,
    mapping,
    plain,
    sequence,
    truth,
)
from modular_converter.model.bindings import FUNCTIONS
from modular_converter.model.nodes import dotted, named_values, parse, walk


SET_AT_RUN_TIME: Mapping[str, object] = {"num_labels": 2, "output_attentions": False, "is_decoder": False}
"""Settings that no text gives a default as a plain value."""
LEAVE_CLASSES = frozenset(
    {"dataclass", "dataclass_transform", "strict", "final", "runtime_checkable", "total_ordering"}
)
"""Decorators of other packages that leave `__init__` to the class, or make one of its fields."""
MAKERS = frozenset({"__new__", "__setattr__", "__init_subclass__"})
"""Methods that decide what objects hold, and are not followed."""
NOTES_CLASSES = re.compile(r"_?register\w*|add|add_safe_globals|append|extend|insert|print")
"""Names of functions that only note the classes which they are given."""
SUB_CONFIGS = "sub_configs_defaults"
BACKBONE = "backbone_config"
"""The setting whose type decides even where a class is named."""
TABLES = ("CONFIG_MAPPING", "CONFIG_MAPPING_NAMES")
"""The tables from the type of a model to its configuration."""
FOLDERS = "SPECIAL_MODEL_TYPE_TO_MODULE_NAME"
"""The table of types whose folder has another name."""
TEXT_CONFIGS = ("text_config", "decoder", "generator", "text_encoder")
"""The settings that `get_text_config` looks at, in order."""


class LibraryInterpreter(StatementInterpreter):
    """The same, with configurations that have the values of their defaults, and classes that tables name."""

    def __init__(self, names: Names, models: str, files_in: Callable[[str], Sequence[str]]) -> None:
        """See `StatementInterpreter`."""
        super().__init__(names, models, files_in)
        self._tables: dict[str, dict[str, str]] = {}
        self._unchanged: set[tuple[ClassValue, bool]] = set()
        """The classes that nothing changes after their bodies, as modules or other objects."""
        self._complete: dict[int, bool] = {}
        """The attributes of configurations that are complete, and whether they are a copy."""
        self._writes: Counter[int] = Counter()
        """Those that were written to afterwards, as by `config.is_decoder = False` in a model, and how often."""
        self.lasting_writes = 0
        """The number of those writes that were to no copy."""

    def _is_model_base(self, cls: ClassValue | External) -> bool:
        """Whether this is the base of all models, whose own `__init__` makes no parameters."""
        return isinstance(cls, ClassValue) and cls.name == self.names.library.settings.model_base

    def call_function(self, function: FunctionValue, arguments: Sequence[Value], named: Mapping[str, Value]) -> Value:
        """The value that a function of the tree returns."""
        if function.owner is not None and function.text == "post_init" and self._is_model_base(function.owner):
            return NONE  # what every model calls at the end of its `__init__`: it fills what is there already
        return super().call_function(function, arguments, named)

    # classes after their bodies

    def exchanged(self, cls: ClassValue, instance: ObjectValue) -> Mapping[str, Value]:
        """What decorators of a class, and the statements below it, give it. Where that is not known, the object may hold
        anything.
        """
        asked = cls, instance.is_module
        if asked in self._unchanged:
            return {}
        makers = [*self._makers(cls)] if instance.is_module else []
        if not makers and not cls.behind and not cls.source.startswith("@"):
            self._unchanged.add(asked)
            return {}
        if cls not in self.changes:
            self.changes[cls] = found = dict[str, Value]()
            with self.certain():
                words = [*self._follow_changes(cls), *makers]
            if found and self.of_class(self.names.ancestors(cls), "__init__", None) is None:
                words.append(cls.name)  # it calls that of torch, as something that is not followed
            is_known = {name for name, one in found.items() if name == "__init__" and isinstance(one, FunctionValue)}
            words += sorted(found.keys() - is_known)
            if words:
                found[UNKNOWN] = Expression(f"{cls.name} of {one_text(words, ', ')}", may_be_module=True)
        if (unknown := self.changes[cls].get(UNKNOWN)) is not None:
            instance.slots[UNKNOWN] = [Slot(unknown, cls.place(), False)]
        return self.changes[cls]

    def _makers(self, cls: ClassValue) -> Iterator[str]:
        """The words of what a class decides by itself about how its objects, or those of its heirs, are made."""
        for node in cls.members.node.body:
            if isinstance(node, FUNCTIONS) and node.name in MAKERS:
                own = FunctionValue(cls.path, node, cls.above, owner=cls)
                if node.name != "__init_subclass__" or self.names.exchanges(own):
                    yield ast.unparse(node)
        for keyword in cls.members.node.keywords:
            found = self.evaluate(keyword.value, Frame(cls.path, cls.above))
            if keyword.arg == "metaclass" and not (isinstance(found, External) and found.short_name == "ABCMeta"):
                yield found.source if isinstance(found, ClassValue) else ast.unparse(keyword.value)

    def _follow_changes(self, cls: ClassValue) -> Iterator[str]:
        """Follow what is done with a class behind its body; yields the words of what cannot be followed."""
        frame = Frame(cls.path, cls.above, {cls.name: cls})
        for decorator in cls.members.node.decorator_list[::-1]:
            yield from self._wrapped(cls, decorator, frame)
        for node in parse(cls.behind).body:
            value = node.value if isinstance(node, (ast.Assign, ast.Expr)) else None
            is_own = isinstance(node, ast.Assign) and dotted(node.targets[0]).partition(".")[0] == cls.name
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                if is_own and node.targets[0].attr in EXCHANGED:
                    self.body([node], frame)
            elif isinstance(value, ast.Call) and (is_own or isinstance(node, ast.Expr)) and _is_named(cls, node):
                yield from self._wrapped(cls, value, frame, is_call=True, must_return=is_own)
            elif _is_named(cls, node):
                yield ast.unparse(node)

    def _wrapped(
        self, cls: ClassValue, node: ast.expr, frame: Frame, *, is_call: bool = False, must_return: bool = True
    ) -> Iterator[str]:
        """Follow a decorator, or a call that is given the class."""
        called = node.func if isinstance(node, ast.Call) else node
        function, name = self.evaluate(called, frame), dotted(called).rpartition(".")[2]
        if isinstance(function, FunctionValue):
            if not self.names.exchanges(function):
                return
        elif (
            name in LEAVE_CLASSES
            or (not must_return and NOTES_CLASSES.fullmatch(name))
            or (isinstance(function, Expression) and self.names.leaves_classes(cls.path, dotted(called)))
        ):
            return
        made = self.evaluate(node, frame)
        if not is_call:
            made = self.call(made, [cls], {}, ast.unparse(node))
        if (made is not cls) if must_return else not (isinstance(function, FunctionValue) or _is_plain_setattr(node)):
            yield ast.unparse(node) + (ast.unparse(function.node) if isinstance(function, FunctionValue) else "")  # type: ignore[arg-type]

    # configurations

    def instantiate(
        self, cls: ClassValue, arguments: Sequence[Value], named: Mapping[str, Value], text: str = ""
    ) -> Value:
        """An object of a class, after its `__init__`: a configuration with the defaults of its class."""
        ancestors = self.names.ancestors(cls)
        if not ancestors.is_configuration:
            return super().instantiate(cls, arguments, named, text)
        with self.certain():
            return self._configuration(ObjectValue(cls, ancestors, text or cls.name), arguments, named)

    def _configuration(
        self, instance: ObjectValue, arguments: Sequence[Value], named: Mapping[str, Value]
    ) -> ObjectValue:
        for cls in reversed(instance.ancestors.in_tree):
            self._fields(instance, cls)
        given = dict(named)
        rest = {name: one for name, one in given.items() if name not in instance.attributes}
        instance.attributes |= given
        own = (one for one in instance.ancestors.in_tree if one.short_name not in CONFIG_BASES)
        if any("__init__" in one.members.by_name for one in own):
            self.initialise(instance, 0, arguments, given)
        else:
            self.initialise(instance, 0, arguments, rest, POST_INIT)
        for name, value in SET_AT_RUN_TIME.items():
            instance.attributes.setdefault(name, Expression(name, value))
        self.kept(instance)
        self._complete[id(instance.attributes)] = False
        return instance

    def is_known_base(
        self,
        instance: ObjectValue,
        cls: ClassValue | External,
        method: str,
        arguments: Sequence[Value],
        named: Mapping[str, Value],
    ) -> bool:
        """What the base of all configurations does is known; its `__init__`, which `@dataclass` makes, calls the other."""
        if is_configuration(instance) and cls.short_name in CONFIG_BASES:
            instance.attributes |= {name: one for name, one in named.items() if name != "kwargs"}
            if method == POST_INIT:
                self._sub_configs(instance)
            else:
                self.initialise(instance, 0, (), {}, POST_INIT)
            return True
        if is_configuration(instance) or not self._is_model_base(cls):
            return False
        instance.attributes["config"] = arguments[0] if arguments else named.get("config", NONE)
        return True

    def _fields(self, instance: ObjectValue, cls: ClassValue) -> None:
        frame = Frame(cls.path, cls.above)
        for name, value in named_values(cls.members.node.body):
            instance.attributes[name] = self.evaluate(default_of(value), frame)
        if cls.short_name in CONFIG_BASES and "__init__" in cls.members.by_name:
            args = cls.members.by_name["__init__"].node.args
            for parameter, default in zip([*args.args[::-1]], args.defaults[::-1]):
                instance.attributes[parameter.arg] = self.evaluate(default, frame)

    def _sub_configs(self, instance: ObjectValue) -> None:
        """The configurations within a configuration for which its class names defaults, where nothing else has given
        them a value before.
        """
        specs = instance.attributes.get(SUB_CONFIGS, NONE)
        names = dict(specs.items) if isinstance(specs, Items) else {}
        if not isinstance(specs, Items) and specs is not NONE:  # any setting without a value may be one of them
            names = {name: specs for name, one in instance.attributes.items() if plain(one) is None}
        for name, spec in names.items():
            given = instance.attributes.get(name, NONE)
            made = [
                self._sub_config(name, spec, one) for one in (given.options if isinstance(given, Either) else [given])
            ]
            instance.attributes[name] = functools.reduce(either, made)

    def _sub_config(self, name: str, spec: Value, given: Value) -> Value:
        """The configuration that a default makes of what is given (`SubConfigSpec.create_subconfig`)."""
        known = plain(given)
        if known is not None and mapping(given) is None:
            return given
        wanted = {"config_class": spec} if isinstance(spec, ClassValue) else getattr(spec, "attributes", {})
        settings = wanted.get("init_kwargs", NONE) if known is None else given
        cls, kind = wanted.get("config_class"), wanted.get("model_type", NONE)
        is_own = isinstance(cls, ClassValue) and self.names.ancestors(cls).is_configuration
        if isinstance(cls, ClassValue) and is_own and plain(kind) is None:
            kind = self.attribute(cls, "model_type")
        items = Items([], is_mapping=True) if plain(settings) is None else mapping(settings)
        named = dict(items.items) if items is not None else None
        if named is not None and (not is_own or name == BACKBONE):
            kind = plain(named.get("model_type", kind))
            cls = self.config_class(kind) if isinstance(kind, str) else None
        made: Value = Expression(f"{spec.text} of {name}")
        if named is not None and isinstance(cls, ClassValue):
            made = self.instantiate(cls, [], named)
        optional = truth(wanted.get("optional", Expression("False", False))) if known is None and wanted else False
        return made if optional is False else given if optional else either(given, made)

    def key(self, value: Value) -> object:
        """What two arguments must share so that they make the same object: also how often a configuration was written to."""
        if isinstance(value, ObjectValue) and is_configuration(value):
            return value.text, id(value.attributes), self._writes[id(value.attributes)]
        return super().key(value)

    def of_instance(self, instance: ObjectValue, name: str) -> Value:
        """The attribute of an object, of a configuration in the words of the code, with the value of the default."""
        return self._setting(instance, name) if is_configuration(instance) else super().of_instance(instance, name)

    def _setting(self, config: ObjectValue, name: str) -> Value:
        renamed = config.attributes.get("attribute_map")
        if isinstance(renamed, Items):
            name = next((one.value for key, one in renamed.items if key == name and isinstance(one, Expression)), name)  # type: ignore[assignment]
        text = f"{config.text}.{name}"
        if name in config.attributes:
            value = config.attributes[name]
            if isinstance(value, ObjectValue):
                return replace(value, text=text) if is_configuration(value) else value
            return Expression(text, plain(value))
        found = self.of_class(config.ancestors, name, config)
        if isinstance(found, Expression):
            return Expression(text, found.value)
        return found if found is not None else Expression(text)

    def hold(self, holder: ObjectValue, name: str, value: Value, place: CodePlace) -> None:
        """`holder.name = value`."""
        if not is_configuration(holder):
            super().hold(holder, name, value, place)
            return
        known = holder.attributes.get(name)
        holder.attributes[name] = either(known, value) if self.in_doubt and known is not None else value
        is_copy = self._complete.get(id(holder.attributes))
        if is_copy is not None:
            self._writes[id(holder.attributes)] += 1
            self.lasting_writes += not is_copy

    def copied(self, config: ObjectValue) -> ObjectValue:
        """`copy.deepcopy(config)`: what is written to it does not reach the original."""
        made = replace(config, attributes=dict(config.attributes))
        self.kept(made)
        self._complete[id(made.attributes)] = True
        return made

    def has(self, value: ObjectValue, name: str) -> bool:
        """Whether an object has an attribute."""
        found = name in value.attributes or self.of_class(value.ancestors, name, None) is not None
        renamed = value.attributes.get("attribute_map")
        return found or (isinstance(renamed, Items) and any(key == name for key, _ in renamed.items))

    # calls

    def method(self, holder: Value, method: str, arguments: list[Value], named: dict[str, Value]) -> Value | None:
        """Calls whose body is not followed: text configurations, and models of automatic classes."""
        if isinstance(holder, ObjectValue) and method == "get_text_config":
            found = (holder.attributes.get(name) for name in TEXT_CONFIGS)
            name = next((name for name, one in zip(TEXT_CONFIGS, found) if isinstance(one, ObjectValue)), "")
            return self._setting(holder, name) if name else holder
        if isinstance(holder, ClassValue) and method in ("from_config", "_from_config"):
            rest = dict(named)
            config = arguments[0] if arguments else rest.pop("config", NONE)
            if self.of_class(self.names.ancestors(holder), "_model_mapping", None) is None:
                return self.instantiate(holder, [config], rest)
            return self._automatic(holder, config, rest)
        if method == "for_model" and isinstance(holder, ClassValue) and arguments:
            kind = getattr(arguments[0], "value", None)
            cls = self.config_class(kind) if isinstance(kind, str) else None
            return self.instantiate(cls, [], named) if cls is not None else None
        return None

    def _automatic(self, holder: ClassValue, config: Value, named: Mapping[str, Value]) -> Value:
        """The model that an automatic class makes for a configuration, and for what its `__init__` is given by name."""
        if isinstance(config, Either):
            made = [self._automatic(holder, one, named) for one in config.options if plain(one) is not None]
            return (
                functools.reduce(either, made)
                if made
                else Expression(f"{holder.name}.from_config()", may_be_module=True)
            )
        if not isinstance(config, ObjectValue):
            return Expression(f"{holder.name}.from_config({config.text})", may_be_module=True)
        mapping = self.of_class(self.names.ancestors(holder), "_model_mapping", None)
        table = self._tables.get(mapping.text, {}) if isinstance(mapping, Expression) else {}
        kind = config.attributes.get("model_type")
        name = table.get(str(getattr(kind, "value", "")), "")
        for one in name.split("|"):
            cls = self._class_in(os.path.dirname(config.cls.path), "modeling_", one)
            if cls is not None:
                return self.instantiate(cls, [config], named)
        return Expression(f"{holder.name}.from_config({config.text})", may_be_module=True)

    def of_assignment(self, path: str, name: str, node: ast.expr, above: int) -> Value:
        """The value that an assignment at the top level of a file gives a name, as a table of automatic classes,
        `MODEL_MAPPING = _LazyAutoMapping(CONFIG_MAPPING_NAMES, MODEL_MAPPING_NAMES)`.
        """
        if not isinstance(node, ast.Call) or not dotted(node.func).startswith("_Lazy"):
            return super().of_assignment(path, name, node, above)
        listed = dotted(node.args[-1])
        self._tables[name] = self.names.remembered(self._pairs, path, listed)
        return Expression(name)

    def _pairs(self, path: str, name: str) -> dict[str, str]:
        """The texts of a table that a file has, or imports; several classes of one type are joined by `|`."""
        found = self.names.meaning(path, name)
        if not isinstance(found, tuple):
            return {}
        where, node, above = found
        value = plain(self.evaluate(node, Frame(where, above)))
        pairs = value.items() if isinstance(value, dict) else ()
        return {str(key): one if isinstance(one, str) else "|".join(map(str, one or ())) for key, one in pairs}

    def looked_up(self, table: Value, key: object) -> Value | None:
        """`CONFIG_MAPPING["llama"]`."""
        if table.text.rpartition(".")[2] in TABLES and isinstance(key, str):
            return self.config_class(key)
        return None

    def config_class(self, kind: str) -> ClassValue | None:
        """The configuration of a type of model."""
        library = self.names.library
        tables = [
            os.path.join(self.models, *table.split("/"))
            for table in (*library.settings.auto_tables, "auto/configuration_auto.py")
        ]
        pairs = functools.partial(self.names.remembered, self._pairs)
        name = next((found for path in tables if (found := pairs(path, TABLES[1]).get(kind))), "")
        folder = next((one for path in tables if (one := pairs(path, FOLDERS).get(kind))), kind)
        return self._class_in(os.path.join(self.models, folder.replace("-", "_")), "configuration_", name)

    def _class_in(self, folder: str, beginning: str, name: str) -> ClassValue | None:
        """A class of a model's folder, in the files whose names begin in a way."""
        if not name:
            return None
        for path in self.files_in(folder):
            if os.path.basename(path).startswith(beginning):
                found = self.names.class_named(path, name)
                if found is not None and found.path == path:
                    return found
        return None


def _is_named(cls: ClassValue, node: ast.AST) -> bool:
    return any(isinstance(one, ast.Name) and one.id == cls.name for one in walk(node))


def _is_plain_setattr(node: ast.expr) -> bool:
    """Whether this is a `setattr` of an attribute that the text names, which is followed."""
    return (
        isinstance(node, ast.Call)
        and dotted(node.func) == "setattr"
        and all(isinstance(one, ast.Constant) for one in node.args[1:2])
    )


def default_of(node: ast.expr) -> ast.expr:
    """The default of a field: that of `field(default=…)` or `interval(…)(default=…)`, else the expression itself."""
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg == "default":
                return keyword.value
            if keyword.arg == "default_factory":
                return keyword.value.body if isinstance(keyword.value, ast.Lambda) else ast.Call(keyword.value, [], [])
    return node


ITERATED = frozenset(
    {*(f"builtins.{name}" for name in ("enumerate", "zip", "reversed")), "itertools.chain", "itertools.product"}
)


def iterated(run: LibraryInterpreter, name: str, arguments: list[Value], named: Mapping[str, Value]) -> Value:
    """What an iterator gives that is made of others."""
    turns = [run.turns(one) for one in arguments]
    if name == "builtins.reversed":
        return sequence(reversed(turns[0])) if turns else NONE
    if name == "itertools.chain":
        return sequence(itertools.chain(*turns))
    if name == "itertools.product":
        spend(math.prod(map(len, turns)))
        return sequence(map(sequence, itertools.product(*turns)))
    if name == "builtins.enumerate" and turns:
        items, start = arguments[0], plain(arguments[1] if len(arguments) > 1 else named.get("start", _ZERO))
        counted = isinstance(items, Items) or (isinstance(items, Expression) and items.is_known)
        first = start if counted and isinstance(start, int) else None
        numbers = [ANY if first is None else Expression(str(first + n), first + n) for n in range(len(turns[0]))]
        turns = [list(numbers), turns[0]]
    shortest = min(map(len, turns), default=0)
    return sequence(sequence(one[number] for one in turns) for number in range(shortest))


_ZERO = Expression("0", 0)
