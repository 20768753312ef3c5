"""A class of the modular file and its renamed parent, as the rules about a merge compare them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from modular_converter.model.bindings import Function
from modular_converter.model.class_blocks import ClassBlock, Member
from modular_converter.model.overriding import AddedDecorators, is_raising_stub, method_key


INHERITED_KEYWORDS = frozenset({"metaclass", "total"})
"""Keywords of a class that count for its heirs: the metaclass in Python, `total` of a typed dictionary by convention."""


@dataclass(frozen=True)
class TwoClasses:
    """An heir and its parent: with inheritance two classes, in a generated file one."""

    child: ClassBlock
    parent: ClassBlock
    base: str
    """The base, as the child writes it, that the parent stands for."""
    bases: Sequence[str]
    """Those of the generated class."""
    replaced: Mapping[str, str]
    """Base of the child -> the parent's base whose place it takes; "" for none."""
    siblings: Mapping[str, str]
    """The classes of the modular file above this one as they are generated, as text."""
    ancestors: Mapping[str, Collection[str]]
    """What each class of the modular file inherits from, as far as it can be seen."""
    module_names: Collection[str]
    """What the modular file defines and imports."""
    added: AddedDecorators
    model_base: str
    """See `Settings`."""

    @property
    def name(self) -> str:
        """The name of both."""
        return self.child.node.name

    @cached_property
    def overrides(self) -> Sequence[tuple[Function, Function]]:
        """The methods that both have, the child's first."""
        theirs = {method_key(one.function): one.function for one in self.parent.members if one.is_function}
        methods = (one for one in self.child.members if one.is_function and not is_raising_stub(one))
        own = {method_key(one.function): one.function for one in methods}
        return [(function, theirs[key]) for key, function in own.items() if key in theirs]

    @cached_property
    def kept(self) -> Sequence[Member]:
        """The parent's members of which something is left."""
        return [member for member in self.parent.members if not member.binds <= self.child.binds_anew]
