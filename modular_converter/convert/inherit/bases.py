"""The bases of a generated class, and its header."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from modular_converter.convert.inherit.prefix import common_suffix
from modular_converter.convert.inherit.statements import Line
from modular_converter.facts import INHERITED_KEYWORDS, Surroundings, TwoClasses
from modular_converter.findings import ClassFinding
from modular_converter.model.bindings import FUNCTIONS, Function
from modular_converter.model.class_blocks import ClassBlock
from modular_converter.settings.values import Settings


@dataclass(frozen=True)
class ClassMerge:
    """A class while it is merged with its parent."""

    classes: TwoClasses
    settings: Settings
    findings: list[ClassFinding]
    """What is found meanwhile, and what cannot be merged."""
    overrides: dict[str, tuple[Line, str]] = field(default_factory=dict)
    """The assignments behind its `super()` calls so far: target -> the assignment and the method that it stands in. They
    count for its later methods too, as in the corpus (vivit): see docs/architecture.md.
    """

    @property
    def around(self) -> Surroundings:
        """What stands around the two classes."""
        return self.classes.around

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The names that the bodies of the child and of the parent bind."""
        return self.classes.child.binds | self.classes.parent.binds

    @cached_property
    def methods(self) -> Mapping[str, tuple[Function, ...]]:
        """The child's and the parent's functions by name."""
        found: dict[str, tuple[Function, ...]] = {}
        for node in (*self.classes.child.node.body, *self.classes.parent.node.body):
            if isinstance(node, FUNCTIONS):
                found[node.name] = (*found.get(node.name, ()), node)
        return found

    def reached_by(self, method: str) -> frozenset[str]:
        """The bases whose method of this name `super()` reaches. What cannot be read of a base from elsewhere is assumed to
        hide no later base from elsewhere, as in the corpus (phi3); a later base of the file is left out, since this
        cannot be known.
        """
        found: set[str] = set()
        for place, base in enumerate(self.classes.bases):
            bound = self.around.binds(base)
            if not place or bound is None:
                found.add(base)
            if self.around.has_method(base, method) if bound is None else method in bound:
                break
            found |= self._implied_by(base)
        return frozenset(found)

    def _implied_by(self, base: str) -> set[str]:
        """The base that another one implies by the settings, so that it is not listed."""
        above = self.settings.model_base
        return {above} if above and above in base else {*filter(None, [self.settings.implied_bases.get(base)])}


def merge_bases(
    child: ClassBlock,
    parent: ClassBlock,
    parent_base: str,
    ancestors: Mapping[str, Collection[str]],
    implied: Mapping[str, str],
) -> list[str]:
    """The parent's bases, replaced and extended by the further bases of the child.

    A base of the child replaces the base of the parent that it resembles (see `replaced_base`). Any other base goes to
    the front if the child names it before the parent, else to the end, but before the bases that it inherits from
    itself.

    Args:
        parent_base: the base, as the child writes it, that the parent stands for.
        ancestors: the classes that a class of the modular file inherits from, as far as they can be seen.
        implied: base -> the base that it inherits from itself, which the class then does not list.
    """
    bases = parent.bases
    front = 0
    is_before_parent = True
    for base in child.bases:
        if base == parent_base:
            is_before_parent = False
        if base == parent_base or base in bases:
            continue
        replaced = replaced_base(base, [one for one in parent.bases if one in bases])
        if replaced:
            bases[bases.index(replaced)] = base
        elif is_before_parent:
            bases.insert(front, base)
            front += 1
        else:
            above = [place for place, other in enumerate(bases) if other in ancestors.get(base, ())]
            bases.insert(min(above, default=len(bases)), base)
    inherited_too = {implied[base] for base in bases if base in implied}
    return [base for base in bases if base not in inherited_too]


def replaced_base(base: str, inherited: Sequence[str]) -> str:
    """The first inherited base that shares a capitalised suffix: `PreTrainedModel` for `MyPreTrainedModel`; "" for none."""
    return next((one for one in inherited if common_suffix(base, one)[:1].isupper()), "")


def class_header(child: ClassBlock, parent: ClassBlock, bases: Sequence[str]) -> str:
    """The line `class Name[T](Base, keyword=value):`."""
    own = {keyword.arg for keyword in child.node.keywords}
    inherited = [one for one in parent.node.keywords if not own or one.arg in INHERITED_KEYWORDS - own]
    keywords = [ast.unparse(keyword) for keyword in (*child.node.keywords, *inherited)]
    parameters = _type_parameters(parent.node)
    parameters = {**parameters, **_type_parameters(child.node)}
    types = f"[{', '.join(parameters.values())}]" if parameters else ""
    arguments = ", ".join([*bases, *keywords])
    inherits = f"({arguments})" if arguments else ""
    return f"class {child.node.name}{types}{inherits}:\n"


def _type_parameters(node: ast.ClassDef) -> dict[str, str]:
    """The type parameters of a class (Python 3.12) by name, as text."""
    return {parameter.name: ast.unparse(parameter) for parameter in getattr(node, "type_params", ())}
