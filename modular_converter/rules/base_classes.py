"""The parent that a class names, and the bases of the generated class: their order, and calls on them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Edit, Finding, Fix, Location, Rule, did_you_mean, finding_at
from modular_converter.model.class_blocks import parse_class
from modular_converter.model.nodes import dotted, parse, super_attribute, walk
from modular_converter.model.overriding import is_class_method
from modular_converter.rules._words import Obstacle, at, not_mergeable, subject


if TYPE_CHECKING:
    from modular_converter.facts import Facts, Surroundings, TwoClasses


UNKNOWN_PARENT = Rule("MC105", "unknown-parent", "the neighbour does not define the imported name")


def unknown_parent(location: Location, name: str, neighbour: str, *, candidates: Iterable[str] = ()) -> Finding:
    """`neighbour` is the path of the file that lacks `name`, `candidates` are the names that it defines."""
    return UNKNOWN_PARENT.finding(
        location,
        f"`{name}` is not defined in {neighbour}",
        help=did_you_mean(name, candidates) + "Import a name from the file that defines it.",
    )


TWO_PARENTS = Rule("MC108", "two-parents", "a class inherits from two classes of neighbours")


def two_parents(location: Location, name: str, parents: tuple[str, ...]) -> Finding:
    """`parents` are the bases of class `name` that come from neighbours."""
    listed = ", ".join(f"`{parent}`" for parent in parents)
    return TWO_PARENTS.finding(
        location,
        f"class `{name}` inherits from more than one neighbour class: {listed}",
        help=f"Keep one of them as the parent and write what you need of the others into `{name}`.",
    )


BASE_NOT_A_NAME = Rule("MC109", "base-not-a-name", "a base of a class is not a plain or dotted name")


def base_not_a_name(location: Location, name: str, base: str) -> Finding:
    """`base` is the expression as written."""
    return BASE_NOT_A_NAME.finding(
        location,
        f"the base `{base}` of class `{name}` is not a name",
        help="Write the base as a name or a dotted name, such as `OldMLP` or `nn.Module`.",
    )


DEEP_INHERITANCE = Rule("MC312", "deep-inheritance", "the parent itself inherits from another model's class")


def check_deep_inheritance(facts: Facts) -> Iterator[Finding]:
    """Find classes whose parents import a base from a third model."""
    for heir, parent in facts.heirs:
        for base in parent.grandparents:
            yield DEEP_INHERITANCE.finding(
                facts.at(parent.written, heir.line),
                f"the parent `{parent.original}` of `{heir.name}` itself inherits from `{base.name}` of {base.module}",
                help=f"Inherit from `{base.name}` and add what `{parent.original}` changes, so that the generated file stands "
                "alone.",
            )


INHERITABLE_DEFINITION = Rule(
    "MC325", "inheritable-definition", "a definition is written out though a neighbour has it", by_default=False
)


def inheritable_definition(location: Location, name: str, original: str, dotted: str, *, is_class: bool) -> Finding:
    """`name` is written out, and the neighbour `dotted` defines the same under the name `original`."""
    use = f" and `class {name}({original}): pass`" if is_class else ""
    return INHERITABLE_DEFINITION.finding(
        location,
        f"`{name}` is written out, and `{original}` of {dotted} is the same",
        help=f"Write `from {dotted} import {original}`{use} in place of the definition.",
    )


PARENT_IN_OTHER_CASE = Rule(
    "MC329", "parent-in-other-case", "the name of a parent has the name of its model in another case"
)


def parent_in_other_case(location: Location, name: str, meant: str, neighbour: str) -> Finding:
    """`neighbour` is the module that lacks `name` and defines `meant`."""
    return PARENT_IN_OTHER_CASE.finding(
        location,
        f"`{name}` is read as `{meant}`: {neighbour} does not define it, and Python raises ImportError",
        help=f"Write `{meant}`, in the import too.",
    )


def fix_parent_in_other_case(text: str, finding: Finding) -> Fix:
    """Write the name as the neighbour does, in the import and wherever it is used."""
    name, meant = subject(finding), finding.message.split("`")[3]
    nodes = (one for one in walk(parse(text)) if isinstance(one, (ast.alias, ast.Name)))
    written = (one for one in nodes if name == (one.name if isinstance(one, ast.alias) else one.id))
    places = [at(text, one.lineno, one.col_offset) for one in written]
    edits = (Edit(line, column, line, column + len(name), meant) for line, column in places)
    return Fix(f"Write `{meant}`", tuple(edits))


BASE_ORDER = Rule(
    "MC207",
    "base-order",
    "the generated class would find a method in another class than with inheritance",
)


def compare_base_order(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find methods that another class would give than with inheritance."""
    for found in (*_hidden_by_parent(classes), *_lost_bases(classes)):
        yield found.finding(BASE_ORDER)


def check_base_order(facts: Facts) -> Iterator[Finding]:
    """Find classes of the modular file that hold their parent's members, where others between a class and that parent come
    first with inheritance: `class Both(Own, OldLayer)` of `class Own(OldRoot)` and `class OldLayer(OldMiddle)`.
    """
    for name, one in facts.classes.items():
        made = facts.generated.get(name)
        bases = [dotted(base) for base in made.members.node.bases] if made is not None else []
        for front, behind in itertools.combinations(bases, 2):
            first = facts.classes.get(front)
            parent = first.parent.name if first is not None and first.parent is not None else front
            above = [*facts.lineage(behind)] if parent != front else []
            names = [members.node.name for members in above]
            if first is None or parent not in names:
                continue
            held = (facts.generated[front].members.names - first.members.names) - one.members.names
            for members in above[: names.index(parent)]:
                for hidden in sorted(held & members.names):
                    reason = f"with inheritance `{members.node.name}.{hidden}` comes first, but `{front}` has that of its parent"
                    yield not_mergeable(
                        BASE_ORDER, facts.at_class(one), hidden, reason, f"Define `{hidden}` in this class."
                    )


def _hidden_by_parent(classes: TwoClasses) -> Iterator[Obstacle]:
    """Methods of a base that comes before the parent: in the generated class, the parent's hide them. Members that the base
    simply gives in their place are no longer among the parent's here (`TwoClasses.given_in_front`).

    A base that takes the place of one of the parent's bases may repeat attributes, as in the corpus (exaone4_5).
    """
    child, parent, bases = classes.child, classes.parent, classes.child.bases
    before = bases[: bases.index(classes.base)]
    for base in before:
        replaces = base in parent.bases or classes.replaced[base] != ""
        texts, is_own = classes.around.in_front.get(base, (None,)), base in classes.around.siblings
        if None in texts and not (replaces or is_own):
            yield Obstacle(
                child.node.bases[bases.index(base)],
                child.node.name,
                f"with inheritance the methods of `{base}` come first, but in the generated class the parent's would hide them",
                f"Name `{base}` behind the parent if the parent's methods may come first; else define it in this file.",
            )
            continue
        everything = [one for text in texts if text for one in parse_class(text).members]
        members = [one for one in everything if one.is_function or not replaces]
        given = frozenset[str]().union(*(member.binds for member in members))
        hidden = (given & parent.binds) - child.binds_anew
        node = child.node.bases[bases.index(base)]
        for name in sorted(hidden):
            reason = f"with inheritance `{base}.{name}` comes first, but in the generated class the parent's `{name}` would hide it"
            yield Obstacle(node, name, reason, f"Define `{name}` in this class.")
        called = {
            super_attribute(one) for member in classes.kept if "super" in member.text for one in walk(member.node)
        }
        for name in sorted(called & given - hidden) if not (replaces and is_own) else ():
            reason = (
                f"the parent's lines call `super().{name}`, which in the generated class would reach `{base}.{name}`"
            )
            yield Obstacle(node, classes.name, reason, f"Name `{base}` behind the parent.")


def _lost_bases(classes: TwoClasses) -> Iterator[Obstacle]:
    """Bases of the parent that would be lost, since another base of the child has a name with the same ending. Those that
    are named after the base of all models replace each other, as in the corpus (altclip).
    """
    for node, base in zip(classes.child.node.bases, classes.child.bases):
        lost = classes.replaced[base] if base not in (classes.base, *classes.parent.bases) else ""
        alike = classes.model_base and classes.model_base in base and classes.model_base in lost
        if lost and not alike and not _is_heir(base, lost, classes.around):
            reason = f"`{base}` replaces the parent's base `{lost}`, since their names end alike, but does not inherit from it"
            cure = f"Give `{base}` a name with another ending, or let it inherit from `{lost}`."
            yield Obstacle(node, classes.name, reason, cure)


def _is_heir(base: str, above: str, around: Surroundings) -> bool:
    return above in around.ancestors.get(base, ()) if base in around.siblings else around.may_be_heir(base, above)


BASE_IN_CLASS_METHOD = Rule("MC340", "base-in-class-method", "a base called in a class method would get another class")


def compare_base_in_class_method(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find calls on bases of the generated class in class methods of the same name."""
    reached = {
        *classes.bases,
        *([classes.model_base] if any(classes.model_base in one for one in classes.bases) else []),
    }
    methods = (one.function for one in classes.child.members if one.is_function)
    for method in filter(is_class_method, methods):
        for node in walk(*method.body):
            function = node.func if isinstance(node, ast.Call) else None
            if isinstance(function, ast.Attribute) and function.attr == method.name:
                base = dotted(function.value)
                if base in reached:
                    called = f"{method.name}(…)"
                    yield finding_at(
                        node,
                        BASE_IN_CLASS_METHOD.finding,
                        f"`{base}.{called}` becomes `super().{called}`, whose `cls` is not `{base}` but the class that is called",
                        f"Move the call into a method of another name if it shall make a `{base}`; else silence this finding.",
                    )


INCONSISTENT_BASES = Rule("MC503", "inconsistent-bases", "the bases of a generated class have no order")


def inconsistent_bases(location: Location, name: str, bases: str) -> Finding:
    """`bases` are those of the generated class `name`, as they stand there."""
    return INCONSISTENT_BASES.finding(
        location,
        f"Python finds no order for the bases of the generated `{name}({bases})`",
        help="Name each base once, a class before those that it inherits from.",
    )


FOREIGN_BASE = Rule("MC504", "foreign-base", "a generated class still inherits from a class of another model")


def foreign_base(
    location: Location, name: str, base: str, original: str = "", *, module: str = "", is_inner: bool = False
) -> Finding:
    """`base` is the base of the generated class `name`, as it stands there; `module` defines it, where that is known, as
    `original`. `is_inner` tells that the class stands in a block of the modular file.
    """
    leaf = original or base.rpartition(".")[2]
    source = (
        f"`from {module} import {leaf}`"
        if module
        else (f"import `{leaf}` from the file that defines it: not from a modular file, and not under `if` or `try`")
    )
    cure = f"Write {source}." if module else f"Write `class {name}({leaf})`, and {source}."
    return FOREIGN_BASE.finding(
        location,
        f"the generated `{name}` would still inherit from `{base}` of another model",
        help=f"Write `class {name}({leaf})` at the top level, not under `if` or `try`." if is_inner else cure,
    )
