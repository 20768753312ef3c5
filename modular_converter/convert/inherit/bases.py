"""A generated class: its bases, its header, and its members: the parent's, overridden in place, and the child's new ones."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from modular_converter.convert.inherit.statements import Line
from modular_converter.convert.source.library import common_suffix
from modular_converter.facts import INHERITED_KEYWORDS, Surroundings, TwoClasses
from modular_converter.findings import ClassFinding
from modular_converter.model.bindings import Function
from modular_converter.model.class_blocks import INDENT, ClassBlock, ClassSpan, Member
from modular_converter.model.nodes import decorated_by, parse
from modular_converter.model.overriding import (
    AddedDecorators,
    inherited_decorators,
    is_property,
    is_raising_stub,
    is_removal,
    method_key,
)
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

    apart: frozenset[str] = frozenset()
    """The parent's methods that stand beside an override, under a private name, with decorators that may do anything."""

    @property
    def around(self) -> Surroundings:
        """What stands around the two classes."""
        return self.classes.around

    def inherited_decorators(self, function: Function, parent: Function) -> list[ast.expr]:
        """See `overriding.inherited_decorators`; what the parent's method does apart is not done twice."""
        return [] if function.name in self.apart else inherited_decorators(function, parent, self.around.added)

    @property
    def parent_name(self) -> str:
        """The parent as the child names it."""
        return self.classes.base.partition("[")[0]

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The names that the bodies of the child and of the parent bind."""
        return self.classes.child.binds | self.classes.parent.binds

    @cached_property
    def methods(self) -> Mapping[str, tuple[Function, ...]]:
        """The child's functions by name, and the parent's, but for those of which an override leaves nothing."""
        found: dict[str, tuple[Function, ...]] = {}
        for member in (*self.classes.child.members, *self.classes.kept):
            if member.is_function:
                found[member.function.name] = (*found.get(member.function.name, ()), member.function)
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
            # A base that another one implies by the settings is not listed.
            above = self.settings.model_base
            found |= {above} if above and above in base else {*filter(None, [self.settings.implied_bases.get(base)])}
        return frozenset(found)


def merge_bases(
    child: ClassBlock,
    parent: ClassBlock,
    parent_base: str,
    ancestors: Mapping[str, Collection[str]],
    implied: Mapping[str, str],
    stays_generic: bool = False,
) -> list[str]:
    """The parent's bases, replaced and extended by the further bases of the child.

    A base of the child replaces the base of the parent that it resembles (see `replaced_base`). Any other base goes to
    the front if the child names it before the parent, else to the end, but before the bases that it inherits from
    itself.

    Args:
        parent_base: the base, as the child writes it, that the parent stands for.
        ancestors: the classes that a class of the modular file inherits from, as far as they can be seen.
        implied: base -> the base that it inherits from itself, which the class then does not list.
        stays_generic: whether the parent's type parameters stay, whatever the child gives for them.
    """
    bases = parent.bases if stays_generic else _with_type_arguments(parent.bases, parent_base)
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


def _with_type_arguments(bases: list[str], heir_base: str) -> list[str]:
    """The parent's bases with its type parameters as the heir gives them: `Generic[V, K]` for an heir of `OldMap[V, K]`, and
    `Generic[K]` for one of `OldMap[K, int]`. A name that is neither the parent's parameter nor built in leaves the parent's.
    """
    generic = next((one for one in bases if re.match(r"([\w.]+\.)?(Generic|Protocol)\[", one)), "")
    parameters, given = _type_arguments(generic), _type_arguments(heir_base)
    if parameters == given or len(parameters) != len(given):
        return bases
    known = {*parameters, *dir(builtins)}
    new = {old: one if one.partition("[")[0] in known else old for old, one in zip(parameters, given)}
    free = ", ".join(dict.fromkeys(one for one in new.values() if one in parameters))
    holder = {generic: f"{generic.partition('[')[0]}[{free}]" if free else ""}
    written = (holder.get(one, re.sub(r"[^\W\d]\w*", lambda word: new.get(word[0], word[0]), one)) for one in bases)
    return [*filter(None, written)]


def _type_arguments(base: str) -> list[str]:
    """The arguments of a base in brackets, as text."""
    node = parse(base).body[0] if "[" in base else None
    subscript = node.value if isinstance(node, ast.Expr) else None
    inner = subscript.slice if isinstance(subscript, ast.Subscript) else ast.Tuple([], ast.Load())
    return [ast.unparse(one) for one in (inner.elts if isinstance(inner, ast.Tuple) else [inner])]


def replaced_base(base: str, inherited: Sequence[str]) -> str:
    """The first inherited base that shares a capitalised suffix: `PreTrainedModel` for `MyPreTrainedModel`; "" for none."""
    return next((one for one in inherited if common_suffix(base, one)[:1].isupper()), "")


def class_header(child: ClassBlock, parent: ClassBlock, bases: Sequence[str]) -> str:
    """The line `class Name[T](Base, keyword=value):`."""
    own = {keyword.arg for keyword in child.node.keywords}
    inherited = [one for one in parent.node.keywords if one.arg in INHERITED_KEYWORDS - own]
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


def in_legal_order(preferred: Sequence[Member], merged: Sequence[Member], own: Sequence[Member]) -> list[Member]:
    """The members in the preferred order, except that each comes after the members that it depends on.

    Args:
        preferred: the members in the wanted order.
        merged: the members in the parent's order, with the child's new ones behind them.
        own: those of the child, in its order.
    """
    names = frozenset[str]().union(*(member.binds for member in preferred))
    of_child = set(own)
    before: dict[Member, set[Member]] = {}
    for later, earlier in _pairs(own, names):
        before.setdefault(later, set()).add(earlier)
    for later, earlier in _pairs(merged, names):
        if not (later in of_child and earlier in of_child):
            before.setdefault(later, set()).add(earlier)
    if not before:
        return list(preferred)
    ordered: list[Member] = []
    done: set[Member] = set()
    todo = list(preferred)
    while todo:
        # In a circle the preferred order counts.
        position = next((place for place, one in enumerate(todo) if before.get(one, set()) <= done), 0)
        ordered.append(todo.pop(position))
        done.add(ordered[-1])
    return ordered


def _pairs(members: Sequence[Member], names: frozenset[str]) -> Iterator[tuple[Member, Member]]:
    """The pairs of members that must stay in their order because of one of the names, the later one first."""
    readers: dict[str, list[int]] = {}
    touchers: dict[str, list[int]] = {}
    for position, later in enumerate(members):
        reads, touches = later.reads & names, later.touches & names
        earlier = {place for name in reads | touches for place in touchers.get(name, ())}
        earlier.update(place for name in touches for place in readers.get(name, ()))
        yield from ((later, members[place]) for place in sorted(earlier))
        for name in reads:
            readers.setdefault(name, []).append(position)
        for name in touches:
            touchers.setdefault(name, []).append(position)


def merge_members(merge: ClassMerge, override: Callable[[Member, Member, ClassMerge], Member]) -> list[Member]:
    """Attributes, then methods: the parent's in their order, overridden in place, then the child's new ones.

    A member of the parent that others read while the class body runs (`size` for `area = size * size`) stays, and the
    child's member of that name follows its readers, as with inheritance.

    `override` merges a method of the child with the parent's.
    """
    merger = _Merger(merge, override)
    for member in merger.own:
        merger.add(member)
    return merger.members()


class _Merger:
    """The members of one class while they are merged."""

    def __init__(self, merge: ClassMerge, override: Callable[[Member, Member, ClassMerge], Member]) -> None:
        self.merge, self.override = merge, override
        child, parent = merge.classes.child, merge.classes.parent
        self.own = _effective([one for one in child.members if not one.carries_nothing])
        self.inherited = _effective([one for one in parent.members if not one.carries_nothing])
        self.gone = _replaced(self.own, self.inherited, merge.around.added)
        self.methods = {method_key(member.function): member for member in self.inherited if member.is_function}
        self.attributes: dict[str, tuple[int, Member]] = {}
        """Name -> position and member of the first attribute of the parent that binds it and is removed."""
        self.positions = {one: position for position, one in enumerate(self.inherited)}
        self.bound_last: dict[str, int] = {}
        """Name -> position of the last statement of the parent, functions excepted, that binds it and stays."""
        for one, position in self.positions.items():
            for name in () if one.is_function else one.binds:
                if one in self.gone:
                    self.attributes.setdefault(name, (position, one))
                else:
                    self.bound_last[name] = position
        self.times = Counter(name for one in self.own for name in one.binds)
        self.last = {method_key(member.function): member for member in self.own if member.is_function}
        self.waiting: dict[str, list[Member]] = {}
        self.places: dict[Member, list[Member]] = {}
        self.added: list[Member] = []
        self.placed: list[Member] = []

    def add(self, member: Member) -> None:
        """Put a member of the child into the class."""
        if member.is_function:
            self._add_method(member)
        elif is_removal(member):
            self._put(self._deletions(member, member.binds), None)
        else:
            found = [self.attributes[name] for name in member.binds if name in self.attributes]
            place = min(found, key=lambda one: one[0])[1] if found else None
            alone = all(self.times[name] == 1 for name in member.binds)
            self._put([_completed(member, place, alone) if place else member], place)

    def _add_method(self, member: Member) -> None:
        key = method_key(member.function)
        place = self.methods.get(key)
        if self.last[key] is not member:  # such as an `@overload`: it stands before the definition that counts
            self.waiting.setdefault(key, []).append(member)
        elif place is None:
            self._put([*self.waiting.get(key, ()), member], None)
        elif is_raising_stub(member):
            self._put(self._deletions(member, member.binds) if place not in self.gone else [], None)
        else:
            merged = replace(self.override(member, place, self.merge), inherited_reads=place.reads)
            self._put([*self.waiting.get(key, ()), merged], place)

    def _put(self, members: list[Member], place: Member | None) -> None:
        self.placed += members
        if place is not None and place in self.gone and not self._are_bound_below(place, _bound(members)):
            self.places.setdefault(place, []).extend(members)
        else:
            self.added += members

    def _are_bound_below(self, place: Member, names: frozenset[str]) -> bool:
        """Whether a statement of the parent that stays below a place binds some names: `f = wrap(g)` below `f`."""
        return any(self.bound_last.get(name, -1) > self.positions[place] for name in names)

    def _deletions(self, stub: Member, names: Iterable[str]) -> list[Member]:
        """`del` statements for removed names that the remaining members still bind."""
        bound = _bound(member for member in self.inherited if member not in self.gone)
        return [
            Member(parse(f"del {name}").body[0], "", text, merged=(stub.text_span._replace(text=text),))
            for name in sorted(bound.intersection(names))
            for text in (f"{INDENT}del {name}\n",)
        ]

    def members(self) -> list[Member]:
        """The members of the generated class in their order."""
        kept = [
            one
            for member in self.inherited
            for one in (self.places.get(member, []) if member in self.gone else [member])
        ]
        everything = [*kept, *self.added]
        # Methods come behind attributes, except the one that gives the attributes of an enumeration their values.
        preferred = sorted(
            everything, key=lambda one: one.is_function and one.function.name != "_generate_next_value_"
        )
        return in_legal_order(preferred, everything, self.placed)


def _effective(members: list[Member]) -> list[Member]:
    """The members without attributes that are assigned again before they are read. Of equal assignments the first
    stays. A call may have an effect, so it is kept as often as it is written.
    """
    names = Counter(name for member in members if member.is_attribute for name in member.binds)
    if not any(count > 1 for count in names.values()):
        return members
    found: list[Member] = []
    for position, member in enumerate(members):
        may_go = member.is_attribute and member.touches == member.binds
        if not (may_go and (_is_repeated(member, found) or _assigned_again(member, members[position + 1 :]))):
            found.append(member)
    return found


def _bound(members: Iterable[Member]) -> frozenset[str]:
    return frozenset[str]().union(*(member.binds for member in members))


def _is_repeated(member: Member, above: Sequence[Member]) -> bool:
    """Whether an equal statement stands above, and nothing in between changes names that it reads or binds."""
    for other in reversed(above):
        if other.text == member.text:
            return True
        if other.touches & (member.binds | member.reads):
            return False
    return False


def _assigned_again(member: Member, following: Sequence[Member]) -> bool:
    for other in following:
        if other.reads & member.binds or other.text == member.text:
            return False
        if other.is_attribute and not _is_bare(other) and other.binds >= member.binds:
            return True
    return False


def _replaced(own: Sequence[Member], inherited: Sequence[Member], added: AddedDecorators) -> set[Member]:
    """The parent's members that are removed: the child overrides or deletes them, and no remaining member reads them."""
    methods = {method_key(member.function): member.function for member in own if member.is_function}
    certain = [member for member in own if not (member.is_function or member.may_be_skipped)]
    names, given = _bound(certain), _bound(member for member in certain if not _is_bare(member))
    bound = _bound(inherited)
    gone = {
        one
        for one in inherited  # an annotation alone replaces an attribute and gets its value
        if _is_overridden(one, methods, names if one.is_attribute else given, added)
        and (one.is_function or bound.isdisjoint(one.touches - one.binds))  # not `added = NAMES.append(1)`
    }
    while True:
        readers: dict[str, list[Member]] = {}  # of remaining members below the current one
        needed: set[Member] = set()
        for member in reversed(inherited):
            reading = (other for name in member.binds for other in readers.get(name, ()))
            name = member.function.name if member.is_function else None
            if member in gone and not all(one.is_function and decorated_by(one.function) == name for one in reading):
                needed.add(member)
            if member not in gone:
                for name in member.reads:
                    readers.setdefault(name, []).append(member)
        if not needed:
            return gone
        gone -= needed


def _is_bare(member: Member) -> bool:
    """Whether this is an annotation without a value."""
    return isinstance(member.node, ast.AnnAssign) and member.node.value is None


def _is_overridden(
    member: Member, methods: dict[str, Function], names: frozenset[str], added: AddedDecorators
) -> bool:
    """Whether the child replaces a member of the parent: by a method of the same key, or by an assignment to its name."""
    if not member.is_function:
        return bool(member.binds) and member.binds <= names
    name, owner = member.function.name, decorated_by(member.function)
    if name in names or method_key(member.function) in methods:
        return True
    if owner == name:  # the setter of a property is replaced with it
        return name in methods and not is_property(methods[name], added)
    return owner in methods or owner in names


def _completed(member: Member, place: Member, alone: bool) -> Member:
    """An attribute with the parts that it takes from the parent's: the documentation below it, and the value of a
    bare annotation. `alone` means that no other statement of the child binds its name.
    """
    node, value = member.node, getattr(place.node, "value", None)
    text = member.text
    if isinstance(node, ast.AnnAssign) and _is_bare(member) and alone and value is not None and place.is_attribute:
        text = f"{INDENT}{ast.unparse(node.target)}: {ast.unparse(node.annotation)} = {ast.unparse(value)}\n"
    span = ClassSpan(text, (*member.text_span.sources, *place.text_span.sources))
    below = (member if member.documentation else place).documentation_span
    return replace(member, text=text, documentation=below.text, merged=(member.lead_span, span, below))
