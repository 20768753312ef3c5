"""The bases of a generated class, and its header."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from modular_converter.convert.inherit.prefix import common_suffix
from modular_converter.facts import INHERITED_KEYWORDS
from modular_converter.model.bindings import FUNCTIONS, Function
from modular_converter.model.class_blocks import ClassBlock
from modular_converter.model.overriding import NOTHING_ADDED, AddedDecorators
from modular_converter.settings.values import Settings


def _never(method: str, attribute: str) -> bool:
    return False


def _unseen(base: str) -> None:
    return None


@dataclass(frozen=True)
class ClassShape:
    """The facts about a generated class that its methods need."""

    name: str
    bases: tuple[str, ...]
    above: Mapping[str, frozenset[str]]
    """Base -> the base that it implies by the settings, which is not listed."""
    last_statement: str
    """See `Settings`."""
    module_names: frozenset[str] = frozenset()
    """The names that the modular file defines and imports."""
    attributes: frozenset[str] = frozenset()
    """The names that the bodies of the child and of the parent bind."""
    methods: Mapping[str, tuple[Function, ...]] = field(default_factory=dict)
    """The child's and the parent's functions by name."""
    is_set_above: Callable[[str, str], bool] = _never
    """Tells whether a method of this name, in an ancestor of the parent, sets an attribute of this name."""
    binds: Callable[[str], frozenset[str] | None] = _unseen
    """The names that a base in the generated file binds or inherits there; None for a base from elsewhere."""
    added: AddedDecorators = NOTHING_ADDED
    inherited_docstrings: tuple[str, ...] = ()
    """See `Settings`."""

    def reached_by(self, method: str) -> frozenset[str]:
        """The bases whose method of this name `super()` reaches. A base from elsewhere is assumed to hide no later base
        from elsewhere, as in the corpus (phi3); a later base of the file is left out, since this cannot be known.
        """
        found: set[str] = set()
        for place, base in enumerate(self.bases):
            bound = self.binds(base)
            if not place or bound is None:
                found.add(base)
            if bound is not None and method in bound:
                break
            found |= self.above.get(base, frozenset())
        return frozenset(found)


def shape_of(
    child: ClassBlock,
    parent: ClassBlock,
    bases: Sequence[str],
    settings: Settings,
    module_names: frozenset[str] = frozenset(),
    is_set_above: Callable[[str, str], bool] = _never,
    binds: Callable[[str], frozenset[str] | None] = _unseen,
    added: AddedDecorators = NOTHING_ADDED,
) -> ClassShape:
    """The class that has the child's name and the merged bases."""
    above = {base: frozenset((implied,)) for base, implied in settings.implied_bases.items()}
    if settings.model_base:
        above |= {base: frozenset((settings.model_base,)) for base in bases if settings.model_base in base}
    attributes = child.binds | parent.binds
    methods: dict[str, tuple[Function, ...]] = {}
    for node in (*child.node.body, *parent.node.body):
        if isinstance(node, FUNCTIONS):
            methods[node.name] = (*methods.get(node.name, ()), node)
    return ClassShape(
        name=child.node.name,
        bases=tuple(bases),
        above=above,
        last_statement=settings.last_statement,
        module_names=module_names,
        attributes=attributes,
        methods=methods,
        is_set_above=is_set_above,
        binds=binds,
        added=added,
        inherited_docstrings=settings.inherited_docstrings,
    )


def merge_bases(
    child: ClassBlock,
    parent: ClassBlock,
    parent_base: str,
    ancestors: Mapping[str, frozenset[str]],
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
