"""Values as far as a text tells them: an expression with its text, and its value where the defaults of the configuration
give one. Modules are values with slots, in which the parts stand that a state dict names.
"""

from __future__ import annotations

import ast
import itertools
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from modular_converter.breaking.bounds import (
    MOST,
    NOT_KNOWN,
    OF_TEXTS,
    computed,
    concatenated,
    if_small,
    one_text,
    spend,
)
from modular_converter.model.bindings import FUNCTIONS, Function
from modular_converter.model.class_blocks import Members, class_node
from modular_converter.model.nodes import decorators_of, named_values


CONFIG_BASES = frozenset({"PreTrainedConfig", "PretrainedConfig"})
"""The bases of all configurations."""
POST_INIT = "__post_init__"
UNKNOWN = "*"
"""The name of what a module may hold by code that is not followed."""
PROPERTY = "property"
"""The end of the names of decorators of methods that are read as attributes, as `cached_property` and `classproperty`;
a setter of the same name stands below."""


class CodePlace(NamedTuple):
    """A line of a class, or of a file where `owner` is ""."""

    path: str
    line: int
    owner: str = ""


@dataclass(frozen=True, eq=False)
class Expression:
    """An expression of no module: a number, a text, or what the text does not tell."""

    text: str
    value: object = NOT_KNOWN
    may_be_module: bool = False
    """Whether it is the result of a call that was not followed."""
    name: str = ""
    """Of a text of which only a part is known: the text with `*` for the rest."""
    is_count: bool = False
    """Whether it is a number that a loop counts, or follows from one."""

    def __post_init__(self) -> None:
        if len(self.text) > MOST:  # `x = x + x`, again and again, doubles the text each time
            object.__setattr__(self, "text", one_text([self.text]))
        if self.value.__class__ not in _SMALL:
            object.__setattr__(self, "value", if_small(self.value))

    @property
    def is_known(self) -> bool:
        """Whether the text tells its value."""
        return self.value is not NOT_KNOWN


_SMALL = frozenset({type(NOT_KNOWN), type(None), bool, float})
NONE = Expression("None", None)
EMPTY_BUFFER = Expression("None", None)
"""A buffer of no tensor: what is assigned to its name is a buffer, too."""


class _Named:
    """What is written by its name."""

    name: str

    @property
    def text(self) -> str:
        """How it is written in a report."""
        return self.name

    @property
    def short_name(self) -> str:
        """Its name without that of its module."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, eq=False)
class External(_Named):
    """Something of another package, by its dotted name: `torch.nn.Linear`."""

    name: str


def _all_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements with those under their conditions; what holds in the usual case comes last."""
    for node in body:
        yield node
        if isinstance(node, ast.Try):
            yield from _all_statements(one for handler in node.handlers for one in handler.body)
        if isinstance(node, (ast.If, ast.Try)):
            yield from _all_statements([*node.orelse, *node.body])


@lru_cache(maxsize=2048)
def _members_of(source: str) -> Members:
    """The body of a class, which both trees mostly have."""
    return Members(class_node(source))


@dataclass(frozen=True, eq=False)
class ClassValue(_Named):
    """A class of the tree."""

    path: str
    name: str
    line: int
    """The line of the file on which its text begins."""
    source: str
    """Its text, from its decorators on."""
    bases: tuple[str, ...]
    """As written."""
    behind: str = ""
    """The statements of its file below it that change it."""

    @cached_property
    def members(self) -> Members:
        """Its body, which is parsed when it is first looked at: few of the large bases are."""
        return _members_of(self.source)

    @cached_property
    def methods(self) -> Mapping[str, tuple[Function, bool]]:
        """Name -> the method, and whether it is read as an attribute; of several with one name the getter, else the last. Those
        under a condition count, too, and other names of a method: `also_run = run`.
        """
        found: dict[str, tuple[Function, bool]] = {}
        for node in _all_statements(self.members.node.body):
            if isinstance(node, FUNCTIONS):
                is_getter = any(by.endswith(PROPERTY) for by in decorators_of(node))
                if is_getter or not found.get(node.name, (None, False))[1]:
                    found[node.name] = node, is_getter
            for name, value in named_values([node]):
                if isinstance(value, ast.Name) and value.id in found:
                    found[name] = found[value.id]
        return {name: one for name, one in found.items() if name not in self.deleted}

    @cached_property
    def imports(self) -> Mapping[str, tuple[str, str]]:
        """The names that its body imports: name -> module and name there."""
        found: dict[str, tuple[str, str]] = {}
        for node in _all_statements(self.members.node.body):
            if isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                found.update({one.asname or one.name: (module, one.name) for one in node.names})
        return found

    @cached_property
    def variables(self) -> Mapping[str, ast.expr]:
        """The variables of its body; of several with one name the first."""
        found: dict[str, ast.expr] = {}
        for name, value in named_values(self.members.node.body):
            found.setdefault(name, value)
        return {name: value for name, value in found.items() if name not in self.deleted}

    @cached_property
    def deleted(self) -> set[str]:
        """The names of its body that a `del` takes away again."""
        found: set[str] = set()
        for node in _all_statements(self.members.node.body):
            found.difference_update({getattr(node, "name", "")}, (name for name, _ in named_values([node])))
            found.update(getattr(one, "id", "") for one in (node.targets if isinstance(node, ast.Delete) else ()))
        return found

    def holds(self, name: str) -> bool:
        """Whether its objects have an attribute of this name from it."""
        is_bound = self.members.binds(name)
        return is_bound and (name not in self.deleted or any(one.binds(name) for one in self.members.methods))

    @property
    def above(self) -> int:
        """The line of the file above its text."""
        return self.line - 1

    def place(self, line: int = 1) -> CodePlace:
        """The place of a line of its text, counted from 1."""
        return CodePlace(self.path, self.above + line, self.name)


@dataclass(frozen=True, eq=False)
class FunctionValue:
    """A function of the tree, or a method, bound if `instance` is given."""

    path: str
    node: object
    above: int
    """The line of the file that stands above the first line of the text which `node` was parsed from."""
    instance: ObjectValue | None = None
    owner: ClassValue | None = None
    closure: Mapping[str, Value] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Its name."""
        return str(getattr(self.node, "name", "lambda"))


class Ancestors(tuple["ClassValue | External", ...]):
    """A class and its bases, in the order in which Python looks a method up."""

    @cached_property
    def in_tree(self) -> Sequence[ClassValue]:
        """Those of the tree."""
        return [one for one in self if isinstance(one, ClassValue)]

    @cached_property
    def is_module(self) -> bool:
        """Whether its objects are modules of torch."""
        return any(isinstance(one, External) and one.name.startswith("torch.nn") for one in self)

    @cached_property
    def is_configuration(self) -> bool:
        """Whether its objects are configurations."""
        return any(one.short_name in CONFIG_BASES for one in self)


class Shape(NamedTuple):
    """A shape in the words of the code, and in numbers where the defaults of the configuration give them, else ""."""

    text: str
    numbers: str = ""


@dataclass(frozen=True, eq=False)
class HeldTensor:
    """A tensor."""

    shape: Shape
    is_persistent: bool | None = False
    """Of a tensor that a module holds: whether the state dict has it; None where that is not known."""

    @property
    def text(self) -> str:
        """Its shape."""
        return f"tensor{self.shape.text}"


@dataclass(frozen=True, eq=False)
class Partial:
    """A callable with arguments given in advance, as `functools.partial` makes it."""

    function: Value
    arguments: tuple[Value, ...]
    named: Mapping[str, Value]

    @property
    def text(self) -> str:
        """How it is written in a report."""
        given = [*(one.text for one in self.arguments), *(f"{name}={one.text}" for name, one in self.named.items())]
        return f"partial({one_text([self.function.text, *given], ', ')})"


@dataclass(frozen=True, eq=False)
class Items:
    """A list, tuple or dict: of modules, if a container of `torch.nn` holds them."""

    items: list[tuple[str, Value]]
    """Its own list."""
    is_module: bool = False
    is_mapping: bool = False

    def __post_init__(self) -> None:
        self.put(self.items)

    def put(self, items: Iterable[tuple[str, Value]]) -> None:
        """Exchange its items."""
        held = list(items)
        spend(len(held))
        object.__setattr__(self, "items", held)

    def add(self, items: Iterable[tuple[str, Value]]) -> None:
        """Put items behind its own."""
        added = list(items)
        spend(len(added))
        self.items.extend(added)

    def take(self, name: str, *, in_doubt: bool) -> Value:
        """Take items of a name out, or leave open whether they are there; the first of them."""
        taken = next((one for other, one in self.items if other == name), NONE)
        kept = [(other, either(NONE, one) if other == name else one) for other, one in self.items]
        self.put(kept if in_doubt else [(other, one) for other, one in self.items if other != name])
        return taken

    def clear(self, *, in_doubt: bool) -> None:
        """Take all items out, or leave open whether they are there."""
        self.put([(name, either(NONE, one)) for name, one in self.items] if in_doubt else [])

    @property
    def text(self) -> str:
        """Its items."""
        return f"[{one_text((value.text for _, value in self.items), ', ')}]"


def sequence(values: Iterable[Value], is_module: bool = False) -> Items:
    """A list or tuple."""
    return Items([(str(number), one) for number, one in enumerate(values)], is_module)


def pairs_of(items: Iterable[tuple[str, Value]]) -> Items:
    """What `items()` of a mapping gives."""
    return sequence(sequence([Expression(repr(name), name), one]) for name, one in items)


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of `torch.nn` with its own tensors: name -> shape, and whether there is one."""

    text: str
    """Its kind."""
    tensors: dict[str, tuple[Shape, bool | None]]
    given: Mapping[str, Value] = field(default_factory=dict)
    """The arguments that it was made with, by name: torch keeps them as attributes."""
    modules: dict[str, Value] = field(default_factory=dict)
    """What code has assigned to it."""


class Slot(NamedTuple):
    """A value that a module holds under a name."""

    value: Value
    place: CodePlace
    is_certain: bool
    condition: str = ""
    """The words of the conditions that decide whether it is held, and are not known."""


@dataclass(eq=False)
class ObjectValue:
    """An object of a class of the tree, after its `__init__`."""

    cls: ClassValue
    ancestors: Ancestors
    text: str
    attributes: dict[str, Value] = field(default_factory=dict)
    slots: dict[str, list[Slot]] = field(default_factory=dict)
    given: frozenset[int] = frozenset()
    """The identities of the modules that its `__init__` was given: it holds these, and no others like them."""
    has_shared_parts: bool = False
    """Whether the objects that were made by an equal call hold the same parts."""

    @property
    def is_module(self) -> bool:
        """Whether it is a module of torch."""
        return self.ancestors.is_module

    def alike(self) -> ObjectValue:
        """Another object with the same parts, of which either gets its own as soon as one is asked for."""
        slots = dict(self.slots)
        return replace(self, attributes=dict(self.attributes), slots=slots, has_shared_parts=True)


@dataclass(frozen=True, eq=False)
class Either:
    """One of several values, as a condition decides whose value is not known."""

    options: tuple[Value, ...]
    condition: str = ""
    """The words of the condition, where it stands in an expression."""

    @property
    def text(self) -> str:
        """All of them."""
        return one_text(sorted({one.text for one in self.options}), " | ")


Value = (
    Expression | External | ClassValue | FunctionValue | Partial | HeldTensor | Items | Layer | ObjectValue | Either
)


def is_module(value: Value) -> bool:
    """Whether a value holds parameters under names."""
    if isinstance(value, Either):
        return any(is_module(one) for one in value.options)
    return isinstance(value, Layer) or (isinstance(value, (Items, ObjectValue)) and value.is_module)


def is_configuration(value: Value) -> bool:
    """Whether a value is a configuration."""
    return isinstance(value, ObjectValue) and value.ancestors.is_configuration


def either(one: Value, other: Value) -> Value:
    """One of two values."""
    if one is other or (isinstance(one, Expression) and isinstance(other, Expression) and one.text == other.text):
        return one
    options = [
        *(one.options if isinstance(one, Either) else [one]),
        *(other.options if isinstance(other, Either) else [other]),
    ]
    return Either(tuple(options[:MOST_OPTIONS]))


MOST_OPTIONS = 12
"""Conditions in a row make no more values than this."""


def truth(value: Value) -> bool | None:
    """Whether a value counts as true; None where that is not known."""
    if isinstance(value, Items):
        return bool(value.items)
    if isinstance(value, Expression):
        return bool(value.value) if value.is_known else None
    return None if isinstance(value, (External, Either)) else True


def plain(value: Value) -> object:
    """The Python value, or `NOT_KNOWN`."""
    if isinstance(value, Expression):
        return value.value
    if isinstance(value, Items) and not value.is_module:
        spend(len(value.items))
        items = [plain(one) for _, one in value.items]
        if any(one is NOT_KNOWN for one in items):
            return NOT_KNOWN
        return dict(zip([name for name, _ in value.items], items)) if value.is_mapping else items
    return NOT_KNOWN


def key_text(value: Value) -> str:
    """The text of a name or a key, with `*` for what is not known of it."""
    known = plain(value)
    return (isinstance(value, Expression) and value.name) or "*" if known is NOT_KNOWN else str(known)


def is_any_name(value: Value) -> bool:
    """Whether a key is a text of which nothing is known, and no number that a loop counts."""
    return plain(value) is NOT_KNOWN and not (isinstance(value, Expression) and (value.name or value.is_count))


_PLACE = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")


def name_of(op: ast.AST, left: Value, right: Value) -> str:
    """The name that `"part_" + str(n)` or `"part_%d" % n` makes, with `*` for a number; "" for no text, and for one of which a
    part is not known.
    """
    sides = plain(left), plain(right)
    is_named = any(isinstance(one, Expression) and one.name for one in (left, right))
    if isinstance(op, ast.Add) and (is_named or any(isinstance(one, str) for one in sides)):
        return _name([part_of_name(left), part_of_name(right)])
    if not isinstance(op, ast.Mod) or not isinstance(sides[0], str):
        return ""
    values = map(part_of_name, [one for _, one in right.items] if isinstance(right, Items) else [right])
    between = _PLACE.split(sides[0])
    return _name([between[0], *(part for text in between[1:] for part in (next(values, NOT_KNOWN), text))])


def part_of_name(value: Value) -> object:
    """A part of a text as `key_text` has it; `NOT_KNOWN` for one of which nothing is known."""
    return NOT_KNOWN if is_any_name(value) else key_text(value)


def _name(parts: list[object]) -> str:
    name = computed(concatenated, parts)
    return name if isinstance(name, str) else ""


def of_text(holder: Value, method: str, arguments: Sequence[Value], named: Mapping[str, Value]) -> Expression | None:
    """What a method of a text gives; None where this is no text that is known, or no such method."""
    if method == "format":
        return formatted(holder, arguments, named)
    if method not in OF_TEXTS or not isinstance(text := plain(holder), str):
        return None
    given = one_text((one.text for one in arguments), ", ")
    return Expression(f"{holder.text}.{method}({given})", computed(getattr(str, method), text, *map(plain, arguments)))


def formatted(holder: Value, arguments: Sequence[Value], named: Mapping[str, Value]) -> Expression | None:
    """`"part_{}".format(n)`, as a name with `*` for a number; None where this is no text."""
    template = plain(holder)
    if not isinstance(template, str):
        return None
    given = {str(number): part_of_name(one) for number, one in enumerate(arguments)}
    given |= {key: part_of_name(one) for key, one in named.items()}
    parts, numbers = list[object](), itertools.count()
    try:
        for text, place, _, conversion in string.Formatter().parse(template):
            parts.append(text)
            if place is not None:  # whatever its width, which a stranger may make larger than the memory
                value = given[place or str(next(numbers))]
                parts.append(value if conversion in (None, "s") else repr(value))
    except (LookupError, ValueError):  # whatever a stranger's text asks for
        return None
    shown = one_text((one.text for one in (*arguments, *named.values())), ", ")
    return Expression(f"{holder.text}.format({shown})", name=_name(parts))


def mapping(value: Value) -> Items | None:
    """A dict as the values of its texts; None for what is no dict, or is not known to be one."""
    if isinstance(value, Items):
        return value if value.is_mapping else None
    known = plain(value)
    if not isinstance(known, dict):
        return None
    items: list[tuple[str, Value]] = [
        (str(key), Expression(f"{value.text}[{key!r}]", one)) for key, one in known.items()
    ]
    return Items(items, is_mapping=True)


_NUMBER = re.compile(r"\d+")


def numbered(name: str) -> str:
    """A name with `*` for each number in it."""
    return _NUMBER.sub("*", name)
