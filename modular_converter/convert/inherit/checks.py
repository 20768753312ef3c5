"""Find effects of inheritance that one class cannot have, on the syntax trees, before or while methods are merged."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence, Set

from modular_converter.convert.inherit.bases import replaced_base
from modular_converter.convert.inherit.class_findings import ClassFinding, finding_at, not_mergeable
from modular_converter.convert.inherit.decorators import AddedDecorators
from modular_converter.convert.inherit.members import ClassBlock, Member, parse_class
from modular_converter.convert.inherit.merge_members import decorated_by, is_property, is_removal, method_key
from modular_converter.model.bindings import Function, bindings_in, bindings_of, is_generator
from modular_converter.model.nodes import is_super, super_attribute, walk
from modular_converter.rules import half_overridden, super_call_not_a_statement


SLOTS = "__slots__"


def check_class(child: ClassBlock, parent: ClassBlock, parent_base: str) -> Iterator[ClassFinding]:
    """Uses of the parent class that have no counterpart in one class."""
    base = parent_base.partition("[")[0]
    for member in child.members:
        if "super(" not in member.text and base not in member.text:  # looking at every node of every member takes long
            continue
        nodes = list(walk(member.node))
        calls = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        objects = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            name = super_attribute(node)
            if name in parent.binds and id(node) not in calls:
                yield finding_at(node, super_call_not_a_statement.diagnose, name, base, is_call=False)
            elif isinstance(node, ast.Call) and is_super(node.func) and id(node) not in objects:
                reason = f"`super()` is used as a value, and in the generated class it would not reach `{base}`"
                cure = "Call the method in a statement of its own: `super().<method>(…)`."
                yield not_mergeable(node, min(member.binds, default="super"), reason, cure)
            elif isinstance(node, ast.Name) and node.id == base:
                yield not_mergeable(
                    node,
                    base,
                    f"the generated class does not inherit from `{base}`, nor is it imported",
                    "Use `super()` in a statement of its own, or write out what you take from it.",
                )


def check_names_of_classes(
    child: ClassBlock, parent: ClassBlock, parent_base: str, bases: Sequence[str]
) -> Iterator[ClassFinding]:
    """Names that Python keeps apart in two classes: private names (`self.__x`), and slots. `bases` are those of the
    generated class. If one of them has no slots, slots forbid nothing.
    """
    prefix = f"_{parent_base.rpartition('.')[2].lstrip('_')}__"
    for member in child.members:
        if prefix in member.text:
            reason = f"the parent's private names get the name of your class, so there is no `{prefix}…`"
            yield not_mergeable(member.node, min(member.binds, default=prefix), reason)
    theirs = frozenset[str]().union(*map(_private_names, parent.members))
    for member in child.members if theirs else ():
        for name in sorted(_private_names(member) & theirs):
            reason = f"`{name}` is private to each of the two classes, but the generated class would have one for both"
            yield not_mergeable(member.node, name, reason, "Give yours another name.")
    own, inherited = ([one for one in block.members if SLOTS in one.binds] for block in (child, parent))
    place = own[0].node if own else child.node
    if own and inherited:
        yield not_mergeable(
            place, SLOTS, "with inheritance they add to the parent's", "Write the class out, with the slots of both."
        )
    elif (own or inherited) and not set(bases) - {"object"}:
        whose = "your" if own else "the parent's"
        reason = f"only {whose} class has slots, and instances of the other take any attribute"
        yield not_mergeable(place, SLOTS, reason, "Write the class out, with or without slots for all.")


def _private_names(member: Member) -> frozenset[str]:
    """The identifiers that Python mangles with the name of the class."""
    found = re.findall(r"\b__[^\W\d]\w*", member.text) if "__" in member.text else ()
    return frozenset(name for name in found if not name.endswith("__"))


def check_mixins(
    child: ClassBlock, parent: ClassBlock, parent_base: str, siblings: Mapping[str, str]
) -> Iterator[ClassFinding]:
    """Methods of a base that comes before the parent: in the generated class, the parent's hide them.

    A base that takes the place of one of the parent's bases may repeat attributes, as in the corpus (exaone4_5).

    Args:
        siblings: the classes of the modular file that are generated already, as text.
    """
    bases, above = child.bases, parent.bases
    before = bases[: bases.index(parent_base)]
    for base in before:
        replaces = base in above or replaced_base(base, above) != ""
        if base not in siblings:
            if not replaces:
                yield not_mergeable(
                    child.node.bases[bases.index(base)],
                    child.node.name,
                    f"with inheritance the methods of `{base}` come first, but in the generated class the parent's would hide them",
                    f"Name `{base}` behind the parent if the parent's methods may come first; else define it in this file.",
                )
            continue
        members = [one for one in parse_class(siblings[base]).members if one.is_function or not replaces]
        given = frozenset[str]().union(*(member.binds for member in members))
        hidden = (given & parent.binds) - child.binds_anew
        for name in sorted(hidden):
            node = child.node.bases[bases.index(base)]
            yield not_mergeable(
                node,
                name,
                f"with inheritance `{base}.{name}` comes first, but in the generated class the parent's `{name}` would hide it",
                f"Define `{name}` in this class.",
            )


def check_replaced_bases(
    child: ClassBlock, parent: ClassBlock, siblings: Mapping[str, str], above: Mapping[str, Set[str]], model_base: str
) -> Iterator[ClassFinding]:
    """Bases of the parent that would be lost, since a class of the modular file has a name with the same ending.

    Args:
        siblings: see `check_mixins`.
        above: what each class of the modular file inherits from.
        model_base: see `Settings`. Bases that are named after it replace each other, as in the corpus (altclip).
    """
    for node, base in zip(child.node.bases, child.bases):
        lost = replaced_base(base, parent.bases) if base in siblings and base not in parent.bases else ""
        alike = model_base and model_base in base and model_base in lost
        if lost and lost not in above.get(base, ()) and not alike:
            reason = f"`{base}` replaces the parent's base `{lost}`, since their names end alike, but does not inherit from it"
            cure = f"Give `{base}` a name with another ending, or let it inherit from `{lost}`."
            yield not_mergeable(node, child.node.name, reason, cure)


def check_class_names(child: ClassBlock, parent: ClassBlock, module_names: Set[str]) -> Iterator[ClassFinding]:
    """Names that the child's class reads from its module while it is created, and that the parent's class binds.

    Args:
        module_names: the names that the modular file defines and imports.
    """
    own = set[str]()
    for member in child.members:
        for name in sorted((member.reads & parent.binds) - own):
            if name in module_names or hasattr(builtins, name):
                reason = f"it reads the `{name}` of your module, but would read that of the parent's class"
                cure = f"Give your `{name}` another name."
                yield not_mergeable(member.node, min(member.binds, default=name), reason, cure)
        own |= member.binds


def check_halves(child: ClassBlock, parent: ClassBlock, added: AddedDecorators) -> Iterator[ClassFinding]:
    """Fields that lose their annotation, and properties with a getter of the child and a setter of the parent."""
    annotations = {
        node.target.id: node.annotation
        for node in (member.node for member in parent.members)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    methods = [member.function for member in child.members if member.is_function]
    own = set(map(method_key, methods))
    for member in child.members:
        node = member.node
        for target in node.targets if isinstance(node, ast.Assign) and not is_removal(member) else ():
            if isinstance(target, ast.Name) and target.id in annotations:
                annotation = ast.unparse(annotations[target.id])
                yield finding_at(node, half_overridden.annotation_lost, target.id, annotation)
    for accessor in (member.function for member in parent.members if member.is_function):
        name = accessor.name
        getter = next((one for one in methods if one.name == name and not decorated_by(one)), None)
        if getter is None or not is_property(getter, added) or decorated_by(accessor) != name:
            continue
        if method_key(accessor) not in own:
            kept = method_key(accessor).rpartition(".")[2]
            yield finding_at(getter, half_overridden.accessor_kept, name, kept)


def check_kinds(child: Function, parent: Function, statement: ast.stmt, around: int) -> Iterator[ClassFinding]:
    """Coroutines and generators whose bodies cannot replace each other.

    Args:
        statement: the `super()` statement of the child.
        around: the number of statements before and behind it.
    """
    is_awaited = isinstance(getattr(statement, "value", None), ast.Await)
    if isinstance(parent, ast.AsyncFunctionDef) != is_awaited or (
        is_awaited and not isinstance(child, ast.AsyncFunctionDef)
    ):
        kind = "a coroutine" if isinstance(parent, ast.AsyncFunctionDef) else "no coroutine"
        yield not_mergeable(
            statement,
            child.name,
            f"the parent's `{child.name}` is {kind}",
            f"Write `async def {child.name}` and `await super().{child.name}(…)` where the parent's is a coroutine.",
        )
    if (isinstance(statement, ast.Expr) or around) and is_generator(parent):
        yield not_mergeable(statement, child.name, f"the parent's `{child.name}` is a generator")
    if isinstance(statement, ast.Return) and is_generator(child) and not is_generator(parent):
        yield not_mergeable(statement, child.name, f"it is a generator, but the parent's `{child.name}` is not")


def check_scopes(child: Function, parent: Function, statement: ast.stmt) -> Iterator[ClassFinding]:
    """Calls that see the names of the method around them: a merged method has those of both bodies."""
    for node in walk(*child.body, *parent.body):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _sees_scope(node, node.func.id):
            reason = f"`{node.func.id}()` would see the local names of both methods"
            yield not_mergeable(statement, child.name, reason, "Write the method out.")
            return


def _sees_scope(call: ast.Call, function: str) -> bool:
    return function in ("locals", "eval", "exec") or (function in ("vars", "dir") and not call.args)


def check_captures(
    child: Function, parent: Function, statement: ast.stmt, kept: Sequence[ast.stmt], own: Sequence[ast.stmt]
) -> Iterator[ClassFinding]:
    """Names that the lines of one method read from their module, and that the other method binds to something else."""
    mine, theirs = bindings_in(child), bindings_in(parent)
    used = bindings_of(*kept)
    for name in sorted(mine.local & theirs.module_names & used.module_names):
        yield not_mergeable(
            statement,
            child.name,
            f"the parent's lines use a `{name}` of their module, and your method has a local `{name}`",
            f"Give your `{name}` another name.",
        )
    for name in sorted(mine.declared_global & theirs.local & (used.module_names | used.local)):
        yield not_mergeable(
            statement,
            child.name,
            f"your method declares `{name}` global, and the parent's lines have a local `{name}`",
        )
