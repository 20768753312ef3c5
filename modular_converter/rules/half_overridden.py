"""MC323: an override of one half of a member, whose other half stays."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import configuration_old, modular_new


NEIGHBOUR = configuration_old("""\
from ...configuration_utils import PreTrainedConfig


class OldConfig(PreTrainedConfig):
    width: int = 16

    @property
    def depth(self):
        return self.num_layers

    @depth.setter
    def depth(self, value):
        self.num_layers = value
""")

RULE = Rule(
    code="MC323",
    name="half-overridden",
    severity=Severity.WARNING,
    summary="an override of one half of a member, where the other half does not follow",
    explanation="""\
Some members of a class have two halves: a field of a dataclass has an annotation and a value, a property has a getter
and a setter. `width = 32` takes the place of the parent's `width: int = 16`, and the generated class has no such field
any more. A getter without a setter takes the place of the parent's getter alone, and the parent's setter stays, where
inheritance would leave the property without one.

The options of `@dataclass` are a half, too: those of your class count for the parent's fields, and the parent's
(`kw_only`, `order`, `frozen`) are gone. So are decorators: a method without any takes the parent's, `@property` and
`@lru_cache` too, and where yours has decorators of its own, the parent's do not apply to the parent's lines in it.

Write both halves.
""",
    bad=(
        NEIGHBOUR,
        modular_new("""\
from ..old.configuration_old import OldConfig


class NewConfig(OldConfig):
    width = 32


__all__ = ["NewConfig"]
"""),
    ),
    good=(
        NEIGHBOUR,
        modular_new("""\
from ..old.configuration_old import OldConfig


class NewConfig(OldConfig):
    width: int = 32


__all__ = ["NewConfig"]
"""),
    ),
)


def annotation_lost(location: Location, name: str, annotation: str) -> Finding:
    """The parent has the field `name: annotation`, the child assigns to `name` alone."""
    return Finding(
        RULE,
        location,
        f"`{name}` loses the parent's annotation `{annotation}`, without which it is no field of a dataclass",
        help=f"Write `{name}: {annotation} = …`.",
    )


def accessor_kept(location: Location, name: str, accessor: str) -> Finding:
    """The child has a getter of `name`, the parent `@name.accessor` too."""
    return Finding(
        RULE,
        location,
        f"the property `{name}` keeps the parent's {accessor}, which inheritance would not give it",
        help=f"Write the {accessor} out below your `{name}`, or write `{name} = property(…)`, which has none.",
    )


def decorator_differs(location: Location, effect: str, cure: str) -> Finding:
    """`effect` describes how the one `@dataclass` of the generated class differs from two."""
    return Finding(RULE, location, f"`@dataclass` {effect}, which inheritance would not do", help=cure)


def decorator_taken(location: Location, name: str, decorator: str) -> Finding:
    """The child's method has no decorators, so it takes those of the parent's, which make something else of it."""
    return Finding(
        RULE,
        location,
        f"`{name}` takes the parent's `@{decorator}`, which inheritance would not give it",
        help=f"Write `@{decorator}` above it, or `@no_inherit_decorator` for none.",
    )


def decorator_lost(location: Location, name: str, decorator: str) -> Finding:
    """The child's method has decorators of its own, and the parent's lines."""
    return Finding(
        RULE,
        location,
        f"the parent's `@{decorator}` does not apply to its lines in `{name}`, which has decorators of its own",
        help=f"Write `@{decorator}` below yours too, or write out what it does.",
    )


def decorator_replaced(location: Location, decorator: str) -> Finding:
    """The child's class has decorators of its own, and the methods that one of the parent's made are gone."""
    return Finding(
        RULE,
        location,
        f"`@{decorator}` of the parent is replaced by your decorators, and what it makes is gone",
        help=f"Write `@{decorator}` above your class too.",
    )
