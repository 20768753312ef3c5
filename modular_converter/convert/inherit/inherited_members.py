"""The parent's members that an heir reads or calls where lines cannot take the place of the call, within an expression or a
block, or where both cannot be one body: each stands in the generated class under a private name.

    class NewMLP(OldMLP):                               class NewMLP(nn.Module):
        def forward(self, x):                               def __inherited_forward(self, x):
            return 2 * super().forward(x)                       …

                                                            def forward(self, x):
                                                                return 2 * self.__inherited_forward(x)

Python keeps private names of several classes apart, so that heirs may do the same. What is sought above the parent is a call
of `super()` in the generated class, whose bases are the parent's.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeGuard

from modular_converter.convert.inherit.bases import ClassMerge
from modular_converter.convert.inherit.statements import body_of
from modular_converter.findings import ClassFinding, Edit, apply_edits, edit_of
from modular_converter.model.bindings import (
    COMPREHENSIONS,
    FUNCTIONS,
    Function,
    accepts,
    bindings_in,
    bindings_of,
    instance_of,
    parameters_of,
)
from modular_converter.model.class_blocks import (
    INDENT,
    SUPER_KWARGS,
    ClassBlock,
    ClassSpan,
    Member,
    Method,
    SourceLines,
    class_node,
    inherited_name,
    parse_class,
    taken,
)
from modular_converter.model.nodes import (
    children,
    decorated_by,
    decorators_of,
    dotted,
    parse,
    super_attribute,
    super_method,
    walk,
    walk_until,
)
from modular_converter.model.overriding import (
    INIT_SUBCLASS,
    NO_DECORATORS,
    first_parameter,
    mappings,
    sought_above,
    starred,
)
from modular_converter.rules.calls_of_super import has_effect, ignored_arguments


MADE_BY_NAME = {"__new__": "staticmethod", "__class_getitem__": "classmethod"}
"""What Python makes of a method by its name alone."""

CLASS_LEVEL = frozenset({"staticmethod", "classmethod"})

CACHED = "cached_property"
NAMELESS = CLASS_LEVEL | {"property", "abstractmethod", CACHED}
"""Decorators to which it does not matter what the method is called."""


def is_nameless(function: Function) -> bool:
    """Whether a method stays what it is under another name."""
    return NAMELESS.issuperset(_marks(function))


def _marks(function: Function) -> set[str]:
    return {re.sub(r"^(abc|functools)\.", "", one) for one in decorators_of(function)}


def _is_cached(function: Function) -> bool:
    return any(one.endswith(CACHED) for one in decorators_of(function))


class _Call(NamedTuple):
    """`super().member` or `Parent.method`, called or read, which is written as `owner.<private name>`."""

    node: ast.Attribute
    owner: str
    """The instance, or the class itself; "" where the class is made, whose body reads the name alone."""
    is_statement: bool
    """Whether it is the call of a statement that could not be merged."""


def with_inherited_members(
    text: str,
    parent: ClassBlock,
    base: str,
    is_called: Callable[[str], bool],
    apart: Collection[str] = (),
) -> tuple[str, dict[str, str]]:
    """The child's text in which such calls have the private names of the parent's members, and these names by member.

    Args:
        text: the class of the modular file.
        parent: its renamed parent.
        base: the parent's name in `text`.
        is_called: whether `super().<name>` in the generated class may reach a base from elsewhere, which is then meant.
        apart: the overrides that are not merged with the parent's method: see `refused_overrides`.
    """
    if "super" not in text and f"{base}." not in text:
        return text, {}
    node = class_node(text)
    theirs = _members(parent, bindings_in(node).binds)
    calls = [*_calls(node, base, theirs, apart)]
    # A statement means the parent's lines, whatever its bases have.
    meant = {call.node.attr for call in calls if call.owner in ("", node.name) or call.is_statement}
    called = Counter(call.node.attr for call in calls)
    names = {name: inherited_name(name) for name in called if name in meant or not is_called(name)}
    names = {name: new for name, new in names.items() if not _reads_cache(name, node, parent, calls)}
    if len({*names.values()}) < len(names):  # `call` and `__call__`
        return text, {}
    edits: list[Edit] = []
    for call in calls:
        if new := names.get(call.node.attr):
            name = edit_of(call.node, text, new)
            start = name.end_column - len(call.node.attr) - (0 if call.owner else len("."))
            edits += (edit_of(call.node.value, text, call.owner), name._replace(line=name.end_line, column=start))
            if theirs[call.node.attr].is_function:
                edits += _with_parameters_of(call, node, theirs[call.node.attr].function, text)
    return apply_edits(text, edits), names


def _with_parameters_of(called: _Call, child: ast.ClassDef, theirs: Function, text: str) -> Iterator[Edit]:
    """The parent's parameters in place of the `**super_kwargs` that a call in an override hands on."""
    override = next((one for one in child.body if isinstance(one, Function) and one.name == called.node.attr), None)
    if override is not None and Method(override, child.name).super_kwargs is not None:
        for call in (one for one in walk(override) if isinstance(one, ast.Call) and one.func is called.node):
            yield from _handed_on_by_name(call, override, theirs, text)


def _handed_on_by_name(call: ast.Call, override: Function, theirs: Function, text: str) -> Iterator[Edit]:
    """The parent's parameters by their names in place of `**super_kwargs`, but for those of the override itself. Where no name
    reaches one, the word stays undefined, which is told.
    """
    if not _takes_by_name(theirs, call):
        return
    first, given = first_parameter(theirs), theirs.args
    ordinary = [one for one in (*given.posonlyargs, *given.args) if one.arg != first][len(call.args) :]
    taken = {*parameters_of(override), *(one.arg for one in call.keywords)}
    words = [f"{one.arg}={one.arg}" for one in (*ordinary, *given.kwonlyargs) if one.arg not in taken]
    words += [f"**{given.kwarg.arg}"] if given.kwarg is not None else []
    for one in call.keywords:
        if one.arg is None and dotted(one.value) == SUPER_KWARGS:
            yield edit_of(one, text, ", ".join(words))


def may_stand_beside(heir: ast.ClassDef, parent: ast.ClassDef) -> bool:
    """Whether the words for a merge in a class can be written out where its parent stands beside it: `**super_kwargs` in the
    parameters of methods of the parent's, which calls of these hand on by names, and `@no_inherit_decorator` above methods.
    """
    theirs = {one.name: one for one in parent.body if isinstance(one, Function)}
    in_classes = bindings_in(parent).local | bindings_in(heir).local
    for method in (one for one in heir.body if isinstance(one, Function) and Method(one).super_kwargs):
        calls = _calls_handing_on(method, heir.name)
        is_known = method.name in theirs and all(_takes_by_name(theirs[method.name], one) for one in calls)
        uses = sum(isinstance(one, ast.Name) and one.id == SUPER_KWARGS for one in walk(*method.body))
        # A default that reads a name of its class would read that of the heir's.
        if not is_known or uses > len(calls) or bindings_of(theirs[method.name].args).reads & in_classes:
            return False
    return NO_DECORATORS not in decorators_of(heir)


def _calls_handing_on(override: Function, owner: str) -> list[ast.Call]:
    """The calls `super().f(…, **super_kwargs)` in an override `f`."""
    found = (one for one in walk(*override.body) if super_method(one, owner) == override.name)
    return [one for one in found if isinstance(one, ast.Call) and SUPER_KWARGS in map(dotted, mappings(one))]


def written_beside(text: str, parent: ClassBlock) -> str:
    """A class beside its parent with its words for a merge written out: see `may_stand_beside`."""
    from modular_converter.convert.inherit.rewrite import merged_header

    theirs, node = {one.function.name: one for one in parent.members if one.is_function}, class_node(text)
    overrides = [one for one in node.body if isinstance(one, Function) and Method(one).super_kwargs]
    calls = ((call, one) for one in overrides for call in _calls_handing_on(one, node.name))
    edits = [it for call, one in calls for it in _handed_on_by_name(call, one, theirs[one.name].function, text)]
    text = apply_edits(text, edits).rstrip("\n") + "\n"
    for member in parse_class(text).members:
        if member.is_function and (SUPER_KWARGS in member.text or NO_DECORATORS in member.text):
            own, is_completed = body_of(member), Method(member.function).super_kwargs is not None
            header = (body_of(theirs[member.function.name]) if is_completed else own).header.text
            header, _ = merged_header(own.header.text, header, (), bool(instance_of(member.function)))
            lines = (*([own.docstring] if own.docstring else []), *own.lines)
            rest = (span.text for one in lines for span in one.spans)
            text = text.replace(member.text, "".join((header, *rest, own.footer.text)), 1)
    return text


def _takes_by_name(function: Function, call: ast.Call) -> bool:
    """Whether the parameters of a method that a call leaves out have names for it."""
    unnamed = [one for one in function.args.posonlyargs if one.arg != first_parameter(function)]
    return function.args.vararg is None and not starred(call) and len(unnamed) <= len(call.args)


def _reads_cache(name: str, child: ast.ClassDef, parent: ClassBlock, calls: Sequence[_Call]) -> bool:
    """Whether what `super()` gives of a cached property depends on what was computed before: not where the override alone
    reads it, once.
    """
    cached = any(one.is_function and _is_cached(one.function) for one in parent.members if name in one.binds)
    lines = [range(one.lineno, (one.end_lineno or 0) + 1) for one in child.body if getattr(one, "name", "") == name]
    places = [call.node.lineno for call in calls if call.node.attr == name]
    return cached and (len(places) > 1 or not any(places[0] in own for own in lines))


def _members(parent: ClassBlock, overridden: Collection[str]) -> dict[str, Member]:
    """The members of the parent that may have a further name, each the last that binds its name: none whose value counts
    by the name that it is kept under. A method that stays abstract has no other name.
    """
    last = {name: member for member in parent.members for name in member.binds}
    functions = [one.function for one in parent.members if one.is_function]
    registering = {owner for one in functions if (owner := decorated_by(one)) != one.name}  # others in that member
    return {
        name: one
        for name, one in last.items()
        if name not in registering
        and (not name.startswith("__") or (name.endswith("__") and one.is_function and name != INIT_SUBCLASS))
        and (_may_be_renamed(one, name in overridden) if one.is_function else _surely_binds([one.node], name))
    }


def _may_be_renamed(member: Member, is_overridden: bool) -> bool:
    """Not one that stays abstract, or whose value is kept under the name, unless it stands there by its own lines."""
    counts = any(one.startswith("abstract") for one in _marks(member.function)) or _is_cached(member.function)
    return not counts or (is_overridden and is_nameless(member.function))


def _surely_binds(nodes: Iterable[ast.stmt], name: str) -> bool:
    """Whether statements bind a name on every way, to a value that knows nothing of it: no result of an unknown call."""
    for node in nodes:
        if isinstance(node, ast.If) and name in bindings_of(node).binds:
            return _surely_binds(node.body, name) and _surely_binds(node.orelse, name)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.name == name:
            return not node.decorator_list
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in bindings_of(node).binds:
            return not isinstance(node.value, ast.Call) or dotted(node.value.func) in dir(builtins)
    return False


def _calls(child: ast.ClassDef, base: str, theirs: Mapping[str, Member], apart: Collection[str]) -> Iterator[_Call]:
    """What the methods of a class read of the parent's members, without the calls that their bodies are merged at. Functions
    within a method have an instance of their own; a class within it has private names of its own.
    """
    replaced = (Method(node, child.name).replaced_call for node in child.body if isinstance(node, Function))
    statements = {id(call.func) for call in replaced if isinstance(call, ast.Call)}
    waiting: list[tuple[ast.AST, str | None]] = [(node, None) for node in child.body]
    for node, instance in waiting:  # the list grows meanwhile; None for what runs when the class is made
        if isinstance(node, Function):
            waiting += ((one, instance) for one in (*node.args.defaults, *node.args.kw_defaults) if one)
            waiting += ((one, instance_of(node)) for one in node.body)
        elif isinstance(node, ast.Lambda):
            waiting.append((node.body, next(iter(parameters_of(node)), "")))
        elif isinstance(node, COMPREHENSIONS):
            first, *others = node.generators
            values = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            within = "" if isinstance(node, ast.GeneratorExp) else instance
            waiting.append((first.iter, instance))
            if instance is not None:  # one in the body of the class does not see its names
                waiting += ((one, within) for one in (*values, *first.ifs, *others))
        elif not isinstance(node, ast.ClassDef):
            waiting += ((one, instance) for one in children(node))
        found = theirs.get(node.attr) if isinstance(node, ast.Attribute) else None
        if found is None:
            continue
        assert isinstance(node, ast.Attribute)
        is_statement = id(node) in statements
        if instance is not None and super_attribute(node, child.name):
            assert isinstance(node.value, ast.Call)
            given = node.value.args[1:]
            owner = ast.unparse(given[0]) if given else instance
            is_short = not given or isinstance(given[0], (ast.Name, ast.Attribute, ast.Call))
            is_merged = is_statement and found.is_function and node.attr not in apart
            if owner and is_short and not is_merged and node.value.lineno == node.value.end_lineno:
                yield _Call(node, owner, is_statement)
        # Methods of the class and static ones are the parent's, which the generated file imports.
        elif found.is_function and dotted(node.value) == base:
            is_of_class = MADE_BY_NAME.get(node.attr) == "classmethod"
            if not is_of_class and CLASS_LEVEL.isdisjoint(decorators_of(found.function)):
                yield _Call(node, "" if instance is None else child.name, False)


def refused_overrides(child: ClassBlock, parent: ClassBlock, findings: Iterable[ClassFinding]) -> Collection[str]:
    """The overrides that cannot be merged with the parent's method, or would drop an argument, and whose call would succeed with
    inheritance.
    """
    found = [*findings]
    errors = {getattr(one.node, "lineno", 0) for one in found if one.finding.is_error}
    dropped = ignored_arguments(found)
    theirs = _members(parent, child.binds) if errors or dropped else {}
    refused: set[str] = set()
    for one in (member.function for member in child.members if member.is_function):
        lines = range(one.lineno, (one.end_lineno or one.lineno) + 1)
        drops = any(it.lineno in lines and has_effect(it, one.name) for it in dropped)
        method = Method(one, child.node.name)
        if not drops and errors.isdisjoint(lines):
            continue
        inherited = theirs.get(one.name)
        if inherited is not None and inherited.is_function and _may_succeed(method, inherited.function):
            refused.add(one.name)
    return refused


def _may_succeed(method: Method, function: Function) -> bool:
    """Whether the parent's method can be called as an override calls it."""
    call = method.replaced_call
    if not isinstance(call, ast.Call) or (method.super_kwargs is not None and not _takes_by_name(function, call)):
        return False
    instance = 1 if first_parameter(function) else 0
    return accepts(function, call, instance) or bool(function.decorator_list)  # which may take other arguments


def with_private_members(parent: ClassBlock, child: ClassBlock, names: Mapping[str, str]) -> ClassBlock:
    """The parent with members under their private names, too: a method by its own lines, or by an assignment where the child
    does not override it, where a decorator may read the name, or where several statements make the member.
    """
    if not names:
        return parent
    theirs = _members(parent, child.binds)
    often = Counter(name for member in parent.members for name in member.binds)
    own = {one.function.name: one.function for one in child.members if one.is_function}
    members: list[Member] = []
    for member in parent.members:
        found = {name: names[name] for name in sorted(member.binds & names.keys()) if theirs.get(name) is member}
        is_one = found.keys() <= child.binds and all(often[name] == 1 for name in found)
        if found and is_one and member.is_function and is_nameless(member.function):
            name = member.function.name
            members += [_renamed(member, found[name], own.get(name)), replace(member, lead="\n")]
        else:
            members += [member, *(_other_name(member, name, new) for name, new in found.items())]
    return replace(parent, members=tuple(members))


def _other_name(member: Member, name: str, new: str) -> Member:
    """A further name for what a member binds."""
    kind = MADE_BY_NAME.get(name) if member.is_function else None
    text = f"{INDENT}{new} = {f'{kind}({name})' if kind else name}\n"
    first = member.node.lineno
    lines = SourceLines(False, first, first if member.is_function else member.node.end_lineno or first)
    return Member(parse(text.strip()).body[0], "", text, is_own=False, merged=(ClassSpan(text, (lines,)),))


def _renamed(member: Member, new: str, override: Function | None) -> Member:
    """A method under another name, which is not abstract; a cached property whose override keeps the value is a plain one."""
    node, text = copy.copy(member.function), member.text
    kept = [one for one in node.decorator_list if not dotted(one).endswith("abstractmethod")]
    above = len(node.decorator_list) - len(kept)
    node.name, node.decorator_list = new, kept
    text = re.sub(r"(?m)^\s*@(?:abc\.)?abstractmethod\b.*\n", "", text, count=1) if above else text
    text = re.sub(rf"(?m)^(\s*(?:async\s+)?def\s+){member.function.name}\b", rf"\g<1>{new}", text, count=1)
    if _is_cached(node) and override and (_is_cached(override) or not override.decorator_list):
        node.decorator_list = [ast.Name("property", ast.Load())]
        text = re.sub(rf"@(?:functools\.)?{CACHED}\b", "@property", text, count=1)
    renamed = replace(member, node=node, text=text, line=member.line + above)
    if (kind := MADE_BY_NAME.get(member.function.name)) and not kept:
        node.decorator_list = [ast.Name(kind, ast.Load())]
        mark = taken(f"{INDENT}@{kind}\n", False, renamed.line)
        spans = (renamed.lead_span, mark, renamed.text_span, renamed.documentation_span)
        return replace(renamed, merged=spans)
    return renamed


def with_super_calls(plan: Sequence[ClassSpan], merge: ClassMerge) -> Sequence[ClassSpan]:
    """A generated class in whose lines from the child `super().f(…)` stands for `Base.f(self, …)` in the method `f`, and for
    what is sought above the parent: see `sought_above`.
    """
    bases = {*merge.classes.bases, merge.classes.model_base, *merge.settings.implied_bases.values()} - {""}
    text = "".join(span.text for span in plan)
    if merge.parent_name not in text and not any(f"{base}." in text for base in bases):
        return plan
    methods = (one for one in class_node(text).body if isinstance(one, Function))
    edits = [edit for one in methods for edit in _calls_above(one, text, merge)]
    found: list[ClassSpan] = []
    above = 0
    for span in plan:
        lines = span.text.count("\n")
        if span.sources and span.sources[0].is_own:
            own = (one for one in edits if above < one.line <= above + lines)
            moved = [one._replace(line=one.line - above, end_line=one.end_line - above) for one in own]
            span = span._replace(text=apply_edits(span.text, moved))
        above += lines
        found.append(span)
    return found


def _calls_above(method: Function, text: str, merge: ClassMerge) -> Iterator[Edit]:
    """See `with_super_calls`. In functions and comprehensions of a method `super()` finds no instance by itself."""
    instance, own = instance_of(method), merge.classes.name
    direct = walk_until((*FUNCTIONS, ast.Lambda, ast.ClassDef, *COMPREHENSIONS), *method.body)
    short = {*map(id, direct)} if instance else set()
    for node in walk(*method.body):
        owner = sought_above(node, merge.parent_name, merge.classes.parent.binds)
        if owner is not None and isinstance(node, ast.Call):
            is_short = id(node) in short and dotted(node.args[1]) == instance
            yield edit_of(node, text, "super()") if is_short else edit_of(owner, text, own)
        elif owner is not None:  # a plain function there, as of the parent
            yield edit_of(owner, text, f"super({own}, {own})")
        elif isinstance(node, ast.Call) and id(node) in short and _is_on_base(node.func, method.name, merge):
            yield edit_of(node.func.value, text, "super()")
            if node.args and dotted(node.args[0]) == instance:
                following = sorted(edit_of(one, text, "")[:2] for one in (*node.args[1:], *node.keywords))
                *_, line, column, _ = edit_of(node, text, "")
                yield Edit(*edit_of(node.args[0], text, "")[:2], *(*following, (line, column - 1))[0], "")


def _is_on_base(function: ast.expr, method: str, merge: ClassMerge) -> TypeGuard[ast.Attribute]:
    """Whether this is `Base.method` of a base that `super().method` reaches."""
    is_named = isinstance(function, ast.Attribute) and function.attr == method
    return is_named and dotted(function).rpartition(".")[0] in merge.reached_by(method)
