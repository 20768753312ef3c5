"""What one class cannot express is written as two: the parent stands as a class beside its heir."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from modular_converter.convert.inherit.inherited_members import may_stand_beside
from modular_converter.convert.inherit.resolve import ResolvedImports, bound_within
from modular_converter.findings import Finding, apply_edits, edit_of
from modular_converter.model.class_blocks import SUPER_KWARGS, Members, class_node
from modular_converter.model.module import Role, Statement
from modular_converter.model.nodes import dotted, mangling, parse, tested_classes, walk
from modular_converter.model.overriding import NO_DECORATORS
from modular_converter.rules import base_classes, double_meanings, lost_code, made_classes, members_of_both
from modular_converter.settings.values import Settings, kind_of


APART = frozenset(
    (
        base_classes.BASE_ORDER,
        double_meanings.PARENT_AS_CLASS,
        made_classes.CLASS_MADE_OTHERWISE,
        members_of_both.NAME_OF_BOTH_CLASSES,
        lost_code.LOST_STATEMENT,
    )
)
"""The rules about what one class cannot express, and two can."""


def with_parents_apart(
    resolution: ResolvedImports, findings: Sequence[Finding], settings: Settings
) -> ResolvedImports:
    """The modular file in which each class that cannot be one with its parent, as `findings` say, has it as a class beside it:
    `class NewMLPBase`, which is the parent, and `class NewMLP(Mixin, NewMLPBase)` for `class NewMLP(Mixin, OldMLP)`. Not where
    that class would belong to another file, or its name is taken, nor where the heir has words for a merge.
    """
    lines = {one.location.line for one in findings if one.rule in APART}
    return _apart(resolution, settings, lambda heir, name: not lines.isdisjoint(_lines_of(heir)))


def with_causes(
    findings: Sequence[Finding], later: Sequence[Finding], resolution: ResolvedImports
) -> tuple[Finding, ...]:
    """The findings. Errors that two classes would not have say what keeps the parent from standing beside its heir: a word for
    a merge, or an error that is there with the two, one of `later`.
    """
    errors = {one.location.line: one.message for one in reversed(later)}
    heirs = [one for one in resolution.target.module.statements if one.role is Role.CLASS]
    told = []
    for one in findings:
        is_asked = one.rule in APART and one.is_error
        heir = next((heir for heir in heirs if is_asked and one.location.line in _lines_of(heir)), None)
        cause = _cause(heir, resolution, errors) if heir is not None else ""
        told.append(replace(one, help=f"{one.help} {cause}") if cause and one.message not in cause else one)
    return tuple(told)


def _cause(heir: Statement, resolution: ResolvedImports, errors: Mapping[int, str]) -> str:
    """Why the parent of a class cannot stand beside it, by the errors of the lines with the two; "" for no reason."""
    if word := _word_for_merge(heir, resolution):
        return f"With `{word}` in it, the class is one with its parent; without, the parent may stand beside it."
    message = next((errors[line] for line in _lines_of(heir) if line in errors), "")
    return f"Nor can the parent stand beside it as a class of its own: {message}." if message else ""


def _lines_of(heir: Statement) -> range:
    return range(heir.line, heir.line + heir.text.rstrip().count("\n") + 1)


def _word_for_merge(heir: Statement, resolution: ResolvedImports) -> str:
    """What says in a class how it is merged with its parent, and cannot be said beside it; "" for none."""
    if "AttributeError" in heir.uses:
        members = Members(class_node(heir.text))
        if any(members.removals) or any(one.is_stub for one in members.methods):
            return "AttributeError()"
    words, parent = heir.uses & {SUPER_KWARGS, NO_DECORATORS}, resolution.parent(heir)
    definition = resolution.definition(parent) if words and parent else None
    if definition is None or may_stand_beside(class_node(heir.text), class_node(definition.text)):
        return ""
    return min(words)


def with_parents_apart_in(resolution: ResolvedImports, texts: Iterable[str], settings: Settings) -> ResolvedImports:
    """The modular file as generated texts were made from it: with the parents beside their heirs that the texts have so."""
    names = {name for text in texts for name in re.findall(r"^class (\w+)", text, re.MULTILINE)}
    return _apart(resolution, settings, lambda heir, name: name in names)


def _apart(
    resolution: ResolvedImports, settings: Settings, is_meant: Callable[[Statement, str], bool]
) -> ResolvedImports:
    """
    Args:
        is_meant: whether an heir's parent stands beside it, by the heir and the name that its parent would have.
    """
    module, found, apart = resolution.target.module, list[Statement](), dict[str, str]()
    names = module.names.union(*(one.module.names for one in resolution.neighbours.values()))
    cased = resolution.target.cased
    for one in module.statements:
        name = _name_beside(one.name, settings)
        is_told = one.role is Role.CLASS and one.name not in resolution.apart and is_meant(one, name)
        parent = resolution.parent(one) if is_told and not _has_replacing_base(one, resolution) else None
        may_stand = parent is not None and _may_stand(name, one.name, names, cased, settings)
        is_plain = may_stand and not _word_for_merge(one, resolution)
        if parent and is_plain and parent.partition(".")[0] not in bound_within(parse(one.text)):
            text = f"class {name}({parent}):\n    pass\n"
            found.append(Statement(Role.CLASS, name, text, one.line, one.lead, bases=(parent,)))
            apart[name] = one.name
            bases = tuple(name if base == parent else base for base in one.bases)
            one = replace(one, text=_with_base(one, parent, name), bases=bases, lead="\n\n", known_uses=None)
        found.append(one)
    if not apart:
        return resolution
    target = replace(resolution.target, module=replace(module, statements=tuple(found)))
    return replace(resolution, target=target, apart={**resolution.apart, **apart})


def _has_replacing_base(heir: Statement, resolution: ResolvedImports) -> bool:
    """Whether a class of the modular file inherits from a base of the parent, whose place it takes there too: no class can then
    name it in front of the parent.
    """
    own, parent = resolution.target.module.classes, resolution.parent(heir) or ""
    definition, front = resolution.definition(parent), heir.bases[: heir.bases.index(parent)] if parent else ()
    bases = {base for one in front if one in own for base in resolution.target.module.definitions[one].bases}
    return definition is not None and bool(bases & {*definition.bases} & resolution.taken.keys())


def _name_beside(heir: str, settings: Settings) -> str:
    """The name of the parent of a class beside it: `NewMLPBase`, `NewBaseConfig`."""
    suffix = max((end for end in settings.kinds if heir.endswith(end)), key=len, default="")
    return f"{heir.removesuffix(suffix)}Base{suffix}"


def _may_stand(name: str, heir: str, names: Collection[str], cased: str, settings: Settings) -> bool:
    """Whether the name is free, and the class would belong to the heir's file."""
    is_free = not any(other.endswith(name.removeprefix(cased)) for other in names)
    return is_free and kind_of(name, cased, settings) == kind_of(heir, cased, settings)


def _with_base(heir: Statement, parent: str, name: str) -> str:
    """The text of a class with another name for its parent, but where it asks for instances."""
    nodes = [one for one in walk(class_node(heir.text)) if isinstance(one, (ast.expr, ast.ExceptHandler, ast.pattern))]
    asked = {id(one) for tested in tested_classes(nodes) for one in tested}
    edits = [
        edit_of(one, heir.text, name)
        for one in nodes
        if isinstance(one, ast.expr) and dotted(one) == parent and id(one) not in asked
    ]
    return re.sub(mangling(parent.rpartition(".")[2]), name.lstrip("_"), apply_edits(heir.text, edits))
