"""Values as far as a text tells them: an expression with its text, and its value where the defaults of the configuration
give one. Modules are values with slots, in which the parts stand that a state dict names.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from modular_converter.model.bindings import Function
from modular_converter.model.class_blocks import Members, class_node
from modular_converter.model.nodes import decorators_of


class _NotKnown:
    """The value of an expression that the text does not tell."""

    def __repr__(self) -> str:
        return "?"


NOT_KNOWN = _NotKnown()
CONFIG_BASES = frozenset({"PreTrainedConfig", "PretrainedConfig"})
"""The bases of all configurations."""
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

    @property
    def is_known(self) -> bool:
        """Whether the text tells its value."""
        return self.value is not NOT_KNOWN


NONE = Expression("None", None)


@dataclass(frozen=True, eq=False)
class External:
    """Something of another package, by its dotted name: `torch.nn.Linear`."""

    name: str

    @property
    def text(self) -> str:
        """How it is written in a report."""
        return self.name

    @property
    def short_name(self) -> str:
        """Its name without that of its module."""
        return self.name.rpartition(".")[2]


@lru_cache(maxsize=2048)
def _members_of(source: str) -> Members:
    """The body of a class, which both trees mostly have."""
    return Members(class_node(source))


@dataclass(frozen=True, eq=False)
class ClassValue:
    """A class of the tree."""

    path: str
    name: str
    line: int
    """The line of the file on which its text begins."""
    source: str
    """Its text, from its decorators on."""
    bases: tuple[str, ...]
    """As written."""

    @cached_property
    def members(self) -> Members:
        """Its body, which is parsed when it is first looked at: few of the large bases are."""
        return _members_of(self.source)

    @cached_property
    def methods(self) -> Mapping[str, tuple[Function, bool]]:
        """Name -> the method, and whether it is read as an attribute; of several with one name the getter, else the last."""
        found: dict[str, tuple[Function, bool]] = {}
        for one in self.members.methods:
            is_getter = any(by.endswith(PROPERTY) for by in decorators_of(one.node))
            if is_getter or not found.get(one.name, (None, False))[1]:
                found[one.name] = one.node, is_getter
        return found

    @cached_property
    def variables(self) -> Mapping[str, ast.expr]:
        """The variables of its body; of several with one name the first."""
        found: dict[str, ast.expr] = {}
        for node in self.members.node.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, node.value)
        return found

    @property
    def above(self) -> int:
        """The line of the file above its text."""
        return self.line - 1

    @property
    def text(self) -> str:
        """Its name."""
        return self.name

    @property
    def short_name(self) -> str:
        """Its name."""
        return self.name


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
        return f"partial({', '.join([self.function.text, *given])})"


@dataclass(frozen=True, eq=False)
class Items:
    """A list, tuple or dict: of modules, if a container of `torch.nn` holds them."""

    items: list[tuple[str, Value]]
    is_module: bool = False
    is_mapping: bool = False

    @property
    def text(self) -> str:
        """Its items."""
        return f"[{', '.join(value.text for _, value in self.items)}]"


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of `torch.nn` with its own tensors: name -> shape, and whether there is one."""

    kind: str
    tensors: dict[str, tuple[Shape, bool | None]]
    given: Mapping[str, Value] = field(default_factory=dict)
    """The arguments that it was made with, by name: torch keeps them as attributes."""

    @property
    def text(self) -> str:
        """Its kind."""
        return self.kind


class Slot(NamedTuple):
    """A value that a module holds under a name."""

    value: Value
    place: CodePlace
    is_certain: bool


@dataclass(eq=False)
class ObjectValue:
    """An object of a class of the tree, after its `__init__`."""

    cls: ClassValue
    ancestors: Ancestors
    text: str
    attributes: dict[str, Value] = field(default_factory=dict)
    slots: dict[str, list[Slot]] = field(default_factory=dict)
    is_complete: bool = True
    """Whether all statements of its `__init__` were followed."""

    @property
    def is_module(self) -> bool:
        """Whether it is a module of torch."""
        return self.ancestors.is_module


@dataclass(frozen=True, eq=False)
class Either:
    """One of several values, as a condition decides whose value is not known."""

    options: tuple[Value, ...]

    @property
    def text(self) -> str:
        """All of them."""
        return " | ".join(sorted({one.text for one in self.options}))


Value = (
    Expression | External | ClassValue | FunctionValue | Partial | HeldTensor | Items | Layer | ObjectValue | Either
)


def is_module(value: Value) -> bool:
    """Whether a value holds parameters under names."""
    if isinstance(value, Either):
        return any(is_module(one) for one in value.options)
    return isinstance(value, Layer) or (isinstance(value, (Items, ObjectValue)) and value.is_module)


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
        items = [plain(one) for _, one in value.items]
        if any(one is NOT_KNOWN for one in items):
            return NOT_KNOWN
        return dict(zip([name for name, _ in value.items], items)) if value.is_mapping else items
    return NOT_KNOWN


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
