"""MC209: a name that two classes keep apart, and that one would join."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.bindings import bindings_of
from modular_converter.model.members import SUPER_KWARGS
from modular_converter.model.overriding import decorated_by, inherited_decorators
from modular_converter.rules._examples import examples, new_mlp, old_mlp
from modular_converter.rules._merging import not_mergeable


if TYPE_CHECKING:
    from modular_converter.facts import TwoClasses


RULE = Rule(
    code="MC209",
    name="name-of-both-classes",
    severity=Severity.ERROR,
    summary="a name in the body of the class would mean something else than with inheritance",
    explanation="""\
Two classes have two name spaces, the generated class has one. A statement of your class that reads `size` while the
class is made reads the `size` of the module, and in the generated class that of the parent's class. A decorator or a
default that an override takes from the parent's method reads the names of the parent's class. And the parent's private
names (`self.__x`), into which Python puts the name of the class, have that of your class.

Give your name another spelling.
""",
    examples=examples(
        old_mlp("""\
    def __init__(self, config):
        super().__init__()
        self.__scale = 2
"""),
        bad=new_mlp("""\
    def forward(self, hidden_states):
        return self._OldMLP__scale * hidden_states
"""),
        good=new_mlp("""\
    def forward(self, hidden_states):
        self.__factor = 3
        return self.__factor * hidden_states
"""),
    ),
    formerly="MC204",
)


def diagnose(location: Location, override: str, reason: str, help: str | None = None) -> Finding:
    """See `not_mergeable`."""
    return not_mergeable(RULE, location, override, reason, help)


def compare(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find names that two classes keep apart, and that one would join."""
    yield from _names_of_module(classes)
    yield from _private_to_each(classes)
    yield from _read_by_taken_expressions(classes)


def _names_of_module(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Names that the child's class reads from its module while it is created, and that the parent's class binds."""
    own = set[str]()
    for member in classes.child.members:
        for name in sorted((member.reads & classes.parent.binds) - own):
            if name in classes.module_names or hasattr(builtins, name):
                reason = f"it reads the `{name}` of your module, but would read that of the parent's class"
                cure = f"Give your `{name}` another name."
                yield finding_at(member.node, diagnose, min(member.binds, default=name), reason, cure)
        own |= member.binds


def _private_to_each(classes: TwoClasses) -> Iterator[ClassFinding]:
    """The parent's private names (`self.__x`), into which Python writes the name of its class."""
    prefix = f"_{classes.base.rpartition('.')[2].lstrip('_')}__"
    for member in classes.child.members:
        if prefix in member.text:
            reason = f"the parent's private names get the name of your class, so there is no `{prefix}…`"
            yield finding_at(member.node, diagnose, min(member.binds, default=prefix), reason)


def _read_by_taken_expressions(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Decorators and defaults that an override takes from the parent's method, and that read names of the parent's class
    to which the child gives another value.
    """
    both = classes.child.binds & classes.parent.binds
    for own, theirs in classes.overrides if both else ():
        parts = inherited_decorators(own, theirs, classes.added)
        if own.args.kwarg is not None and own.args.kwarg.arg == SUPER_KWARGS:
            parts += [one for one in (*theirs.args.defaults, *theirs.args.kw_defaults) if one is not None]
        read = bindings_of(*parts).reads - {own.name, decorated_by(theirs)} if parts else frozenset[str]()
        for name in sorted(read & both):
            reason = f"a decorator or default that it takes from the parent's reads `{name}`: the parent's with inheritance,"
            cure = f"Give it decorators and parameters of its own, or give your `{name}` another name."
            yield finding_at(own, diagnose, own.name, f"{reason} yours in the generated class", cure)
