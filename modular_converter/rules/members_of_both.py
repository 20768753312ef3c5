"""Members that both classes have, or several heirs, and what making the class does with them: decorators, bases, keywords."""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from modular_converter.facts import INHERITED_KEYWORDS
from modular_converter.findings import ClassFinding, Finding, Rule, finding_at
from modular_converter.model.bindings import (
    ADDING,
    FUNCTIONS,
    Function,
    attributes_set,
    bindings_of,
    parameters_of,
)
from modular_converter.model.class_blocks import SUPER_KWARGS, ClassBlock, class_node, inherited_name
from modular_converter.model.index import is_docstring
from modular_converter.model.nodes import (
    decorated_by,
    decorator_path,
    decorators_of,
    dotted,
    is_super_statement,
    parse,
    walk,
)
from modular_converter.model.overriding import (
    EQUALITY,
    HASH,
    INIT_SUBCLASS,
    METACLASS,
    NO_DECORATORS,
    SLOTS,
    first_parameter,
    inherited_decorators,
    is_property,
    is_removal,
    metaclass_of,
    method_key,
    slots_of,
)
from modular_converter.model.resolver import PLAIN_METACLASSES
from modular_converter.rules._words import WRITE_OUT, Obstacle, fields_of, listed, not_mergeable


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts, TwoClasses
    from modular_converter.model.class_blocks import Member, Members


OF_NAMED_TUPLES = frozenset(
    ("__new__", "__init__", "__slots__", "__getnewargs__")
    + ("_fields", "_field_defaults", "_field_types", "_make", "_replace", "_asdict", "_source")
)
"""The names that the body of a named tuple may not bind."""

CLASS_MADE_OTHERWISE = Rule(
    "MC208",
    "class-made-otherwise",
    "Python would make the generated class otherwise than the two that inherit",
)


def compare_class_made_otherwise(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find what Python does once where it makes one class, and otherwise where it makes two."""
    checks = (_making, _named_tuple, _protocol, _total)
    found = itertools.chain.from_iterable(check(classes.child, classes.parent) for check in checks)
    if (reason := _made_by(classes.parent.node)) and classes.around.makes_otherwise(metaclass_of(classes.parent.node)):
        yield Obstacle(classes.child.node, METACLASS, reason, WRITE_OUT).finding(CLASS_MADE_OTHERWISE)
    yield from (one.finding(CLASS_MADE_OTHERWISE) for one in (*_slots(classes), *found, *_header(classes)))


def _slots(classes: TwoClasses) -> Iterator[Obstacle]:
    """Slots that cannot be those of both classes: not names, read by code, or beside a class attribute of their name."""
    members = (*classes.child.members, *classes.parent.members)
    found = [(one, slots_of(one.node)) for one in members if SLOTS in one.binds]
    names = {name for _, slots in found for name in slots or ()} if len(found) > 1 else set[str]()
    reasons = {
        "with inheritance those of the two classes add up, but they are not written as names": (
            one for one, slots in found if slots is None
        ),
        "with inheritance it has the slots of one class alone": (
            one for one in members if found and SLOTS in one.text and SLOTS not in one.binds
        ),
        "a class with slots cannot have an attribute with the name of one": (
            one for one in members if one.binds & names
        ),
    }
    for reason, where in reasons.items():
        for one in where:
            yield Obstacle(one.node if one.is_own else classes.child.node, SLOTS, reason, WRITE_OUT)


def _making(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """Members of a class that Python looks at when it makes it."""
    own = child.binds_anew
    hashes = (
        ast.unparse(getattr(one.node, "value", one.node)) != "None" for one in parent.members if HASH in one.binds
    )
    if EQUALITY in own and HASH not in own and any(hashes):
        reason = f"with inheritance, a class that defines `{EQUALITY}` loses the parent's `{HASH}`"
        yield Obstacle(child.node, HASH, reason, f"Define `{HASH}`, or assign `{HASH} = None`.")
    for member in child.members:
        if isinstance(member.node, ast.Delete) and member.binds & parent.binds:
            reason = "with inheritance, the parent's value is visible again after this `del`"
            yield Obstacle(
                member.node, min(member.binds), reason, "Leave the name out of your class, or assign its value."
            )
    if any(INIT_SUBCLASS in member.binds for member in parent.members):
        reason = (
            "with inheritance, Python calls the parent's method for your class; the generated class has no such parent"
        )
        yield Obstacle(child.node, INIT_SUBCLASS, reason, "Write out its effect on your class.")


def _named_tuple(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """Members that an heir of a named tuple may have, and a named tuple may not."""
    if not _inherits(parent, "NamedTuple"):
        return
    if len(child.bases) > 1:
        yield Obstacle(child.node, child.node.name, "a named tuple has no further bases", WRITE_OUT)
    for member in child.members:
        name = min(member.binds, default="")
        if member.binds & OF_NAMED_TUPLES:
            reason = "a class that inherits from a named tuple may define it, but a named tuple may not"
            yield Obstacle(member.node, min(member.binds & OF_NAMED_TUPLES), reason, WRITE_OUT)
        elif isinstance(member.node, ast.AnnAssign):
            reason = "it would become a field of the named tuple; with inheritance it is none"
            yield Obstacle(member.node, name, reason, WRITE_OUT)
        elif member.is_function and attributes_set(member.function):
            reason = "instances of a named tuple take no attributes, but those of your class do"
            yield Obstacle(member.node, name, reason, WRITE_OUT)
        elif "super(" in member.text and not member.binds & parent.binds:
            yield Obstacle(member.node, name, "`super()` does not work in a named tuple", WRITE_OUT)


def _inherits(block: ClassBlock, name: str) -> bool:
    return any(base.partition("[")[0].rpartition(".")[2] == name for base in block.bases)


def _protocol(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """A class that inherits from a protocol without being one."""
    if _inherits(parent, "Protocol") and not _inherits(child, "Protocol"):
        reason = "the parent is a protocol and your class is not, but the generated class would be one"
        cure = "Write the class out, or name `Protocol` behind the parent if it shall be a protocol too."
        yield Obstacle(child.node, child.node.name, reason, cure)


def _total(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """Typed dictionaries: `total` counts for the fields of its own class, and the generated class has only one. A child
    without `total` takes the parent's for its own fields, as in the corpus (muse_glimmer).
    """
    own = _keywords(child).get("total")
    if own is None or own == _keywords(parent).get("total", "True"):
        return
    if inherited := fields_of(parent) - fields_of(child):
        reason = f"`total={own}` would count for the parent's {listed(inherited)} too"
        yield Obstacle(child.node, child.node.name, reason, WRITE_OUT)


def _header(classes: TwoClasses) -> Iterator[Obstacle]:
    """Keywords of the parent, which Python hands to `__init_subclass__` or to the metaclass for the parent alone. Where
    that only sets attributes of the class, another value in the child's header hides the parent's.
    """
    own = _keywords(classes.child)
    for keyword, value in _keywords(classes.parent).items():
        if keyword in INHERITED_KEYWORDS or own.get(keyword) == value:
            continue
        if keyword in own and any(map(classes.around.hook_sets_attributes, classes.bases)):
            continue
        reason = f"`{keyword}={value}` in its header applies to the parent alone, but the generated class has one header for both"
        repeat = f"Write `{keyword}={value}` in the header of your class too, or write the class out."
        cure = WRITE_OUT if keyword in own else repeat
        yield Obstacle(classes.child.node, classes.name, reason, cure)


def check_class_made_otherwise(facts: Facts) -> Iterator[Finding]:
    """Find what a base in the generated file does for each class that is made: for the parent, and then for its heir."""
    making = any(word in one.text for one in facts.generated.values() for word in (INIT_SUBCLASS, METACLASS))
    for heir, parent in facts.heirs:
        above = [one.node for one in facts.lineage(heir.name)][1:] if making else []
        elsewhere = [(by, class_node(text)) for by, text in facts.makers_of(parent)]
        made = [(METACLASS, _made_by(one)) for one in (*above, *(one for by, one in elsewhere if by == METACLASS))]
        made += [(INIT_SUBCLASS, _adds_up(hook, "")) for hook in _hooks(above)]
        # What another file holds, such as a table of all classes, has the parent too.
        made += [
            (INIT_SUBCLASS, _adds_up(hook, first_parameter(hook))) for hook in _hooks([one for _, one in elsewhere])
        ]
        made += _made_by_decorators(facts, heir)
        for subject, reason in dict.fromkeys(made):
            if reason:
                yield not_mergeable(CLASS_MADE_OTHERWISE, facts.at_class(heir), subject, reason, WRITE_OUT)


def _made_by_decorators(facts: Facts, heir: ClassFacts) -> Iterator[tuple[str, str]]:
    """What decorators in the file of a class do with members that its heir has too, or once where both are decorated."""
    definition = facts.generated.get(heir.name)
    if definition is None or not definition.is_class or "@" not in definition.text.partition("class ")[0]:
        return
    own = decorators_of(heir.members.node)
    for name in decorators_of(definition.members.node):
        found = facts.generated.get(name)
        nodes = walk(parse(found.text)) if found is not None and not found.is_class else ()
        for function in (one for one in nodes if isinstance(one, Function)):
            for holder in parameters_of(function):
                both = _set_again(function, holder)
                if changed := [one for one in both if name in own or one.rpartition(".")[2] in heir.members.names]:
                    reason = f"it sets `{changed[0]}` from its own value, for the parent alone, or once for each class"
                    yield name, reason


def _hooks(above: Sequence[ast.ClassDef]) -> Iterator[Function]:
    nodes = (node for one in above for node in one.body)
    yield from (node for node in nodes if isinstance(node, Function) and node.name == INIT_SUBCLASS)


def _made_by(node: ast.ClassDef) -> str:
    """What a metaclass in the header of a class would do once; "" for none."""
    metaclass = metaclass_of(node)
    if metaclass.rpartition(".")[2] in PLAIN_METACLASSES:
        return ""
    return f"with inheritance, `{metaclass}` makes the parent and then your class; here it would make only one class"


def _set_again(function: Function, holder: str) -> list[str]:
    """The attributes that a function sets from their own values, of the name `holder`; "" for any."""
    bindings = bindings_of(*function.body)
    named = [
        (dotted(one.func), f"{dotted(one.args[0])}.{getattr(one.args[1], 'value', '')}")
        for one in bindings.calls
        if one.args[1:]
    ]
    read = bindings.effects.reads | {path for called, path in named if called == "getattr"}
    bound = bindings.effects.binds | {path for called, path in named if called == "setattr"}
    return sorted(path for path in bound & read if path.startswith(f"{holder}.") or (not holder and "." in path))


def _adds_up(hook: Function, holder: str) -> str:
    """What `__init_subclass__` of a base would do once, where twice is something else; "" for nothing. `holder` is the name
    whose attributes count; "" for all.
    """
    twice = _set_again(hook, holder)
    if twice:
        return f"a base's sets `{twice[0]}` from its own value, for the parent and again for your class"
    bindings = bindings_of(*hook.body)
    lists = (
        dotted(one.func.value)
        for one in bindings.calls
        if isinstance(one.func, ast.Attribute) and one.func.attr in ADDING
    )
    added = sorted(path for path in lists if path and path.partition(".")[0] not in bindings.assigns)
    added = [path for path in added if not holder or path.startswith(f"{holder}.")]
    return f"a base's adds to `{added[0]}`, for the parent and again for your class" if added else ""


def _keywords(block: ClassBlock) -> dict[str, str]:
    return {keyword.arg or "**": ast.unparse(keyword.value) for keyword in block.node.keywords}


KEYWORD_ONLY, MARKER = "kw_only", "KW_ONLY"
COMPARED, FROZEN = "order", "frozen"
MADE = ("init", "repr", "eq", "match_args")
"""The options of a dataclass that are on by default; if the child turns one off, the parent's methods stay."""

MAKE_METHODS = ("total_ordering",)
"""The decorators of classes, beside `@dataclass`, from which the class has methods that an heir needs."""

CLASS_DECORATORS = Rule(
    "MC334", "class-decorators", "a decorator of the class counts for both classes, or only for one", formerly="MC323"
)


def compare_class_decorators(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find decorators of the two classes that one class cannot combine."""
    child, parent = classes.child, classes.parent
    for effect, cure in _dataclasses(child, parent):
        message = f"`@dataclass` {effect}, which inheritance would not do"
        yield finding_at(child.node, CLASS_DECORATORS.finding, message, cure)
    own = [ast.unparse(one) for one in child.node.decorator_list]
    for decorator in parent.node.decorator_list if own else ():
        text = ast.unparse(decorator)
        if text.rpartition(".")[2] in MAKE_METHODS and text not in own:
            message = f"`@{text}` of the parent is replaced by your decorators, and what it makes is gone"
            yield finding_at(child.node, CLASS_DECORATORS.finding, message, f"Write `@{text}` above your class too.")


def _dataclasses(child: ClassBlock, parent: ClassBlock) -> Iterator[tuple[str, str]]:
    """How the one `@dataclass` of the generated class, which counts for the fields of both, differs from two; and the cure.

    A child without decorators has the parent's, and its annotations become fields, as in the corpus (aria).
    """
    own, theirs = options_of_dataclass(child), options_of_dataclass(parent)
    inherited = fields_of(parent)
    if own is not None and theirs is not None:
        yield from _other_options(child, parent, own, theirs)
    elif own is not None and inherited:
        yield f"makes fields of the parent's {listed(inherited)}", "Write the class out, and annotate only its fields."
    elif theirs is not None and inherited and child.node.decorator_list:
        drops_all = decorators_of(child.node) == [NO_DECORATORS]
        cure = WRITE_OUT if drops_all else "Add `@dataclass` to your decorators."
        yield "of the parent is replaced by your decorators", cure


def _other_options(
    child: ClassBlock, parent: ClassBlock, own: Mapping[str, str], theirs: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """The options of two dataclasses that one dataclass cannot combine, and the cures."""
    fields, inherited = fields_of(child), fields_of(parent)
    value, wanted = (one.get(KEYWORD_ONLY, "False") for one in (own, theirs))
    if value != wanted and inherited - fields:
        cure = f"Write `@dataclass({KEYWORD_ONLY}={wanted})`, or write the class out."
        yield f"applies `{KEYWORD_ONLY}={value}` to the parent's fields too", cure
    elif _has_marker(parent) and fields - inherited:
        yield f"applies the parent's `{MARKER}` to your fields too", WRITE_OUT
    for option in (COMPARED, FROZEN):
        if theirs.get(option, "False") != "False" and own.get(option, "False") == "False":
            wanted = f"{option}={theirs[option]}"
            yield f"drops the parent's `{wanted}`", f"Write `@dataclass({wanted})`."
    for option in MADE:
        if own.get(option, "True") == "False" and theirs.get(option, "True") != "False":
            cure = f"Leave `{option}=False` out, or write the method out."
            yield f"has `{option}=False`, and drops what the parent's makes", cure


def options_of_dataclass(block: ClassBlock) -> dict[str, str] | None:
    """The options of a class's `@dataclass`; None without one."""
    for decorator in block.node.decorator_list:
        if _decorator_name(decorator) == "dataclass":
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else ()
            return {keyword.arg or "**": ast.unparse(keyword.value) for keyword in keywords}
    return None


def _has_marker(block: ClassBlock) -> bool:
    """Whether a field of type `KW_ONLY` divides the fields of a dataclass."""
    return any(
        isinstance(member.node, ast.AnnAssign) and ast.unparse(member.node.annotation).endswith(MARKER)
        for member in block.members
    )


NAME_OF_BOTH_CLASSES = Rule(
    "MC209",
    "name-of-both-classes",
    "a name in the body of the class would mean something else than with inheritance",
)


def compare_name_of_both_classes(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find names that two classes keep apart, and that one would join."""
    for found in (*_names_of_module(classes), *_private_to_each(classes), *_read_by_taken_expressions(classes)):
        yield found.finding(NAME_OF_BOTH_CLASSES)


def _names_of_module(classes: TwoClasses) -> Iterator[Obstacle]:
    """Names that the child's class reads from its module while it is created, and that the parent's class binds."""
    own = set[str]()
    for member in classes.child.members:
        for name in sorted((member.reads & classes.parent.binds) - own):
            if name in classes.around.module_names or hasattr(builtins, name):
                reason = f"it reads the `{name}` of your module, but would read that of the parent's class"
                cure = f"Give your `{name}` another name."
                yield Obstacle(member.node, min(member.binds, default=name), reason, cure)
        own |= member.binds


def _private_to_each(classes: TwoClasses) -> Iterator[Obstacle]:
    """The parent's private names (`self.__x`), into which Python writes the name of its class."""
    prefix = f"_{classes.base.rpartition('.')[2].lstrip('_')}__"
    for member in classes.child.members:
        if prefix in member.text:
            reason = f"the parent's private names get the name of your class, so there is no `{prefix}…`"
            yield Obstacle(member.node, min(member.binds, default=prefix), reason)


def _read_by_taken_expressions(classes: TwoClasses) -> Iterator[Obstacle]:
    """Decorators and defaults that an override takes from the parent's method, and that read names of the parent's class
    to which the child gives another value.
    """
    both = classes.child.binds & classes.parent.binds
    for own, theirs in classes.overrides if both else ():
        parts = inherited_decorators(own, theirs, classes.around.added)
        if own.args.kwarg is not None and own.args.kwarg.arg == SUPER_KWARGS:
            parts += [one for one in (*theirs.args.defaults, *theirs.args.kw_defaults) if one is not None]
        read = bindings_of(*parts).reads - {own.name, decorated_by(theirs)} if parts else frozenset[str]()
        for name in sorted(read & both):
            reason = f"a decorator or default that it takes from the parent's reads `{name}`: the parent's with inheritance,"
            cure = f"Give it decorators and parameters of its own, or give your `{name}` another name."
            yield Obstacle(own, own.name, f"{reason} yours in the generated class", cure)


HALF_OVERRIDDEN = Rule(
    "MC323", "half-overridden", "an override of one half of a member, where the other half does not follow"
)


def compare_half_overridden(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find fields that lose their annotation, and properties with a getter of the child and a setter of the parent."""
    annotations = {
        node.target.id: node.annotation
        for node in (member.node for member in classes.parent.members)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    methods = [member.function for member in classes.child.members if member.is_function]
    own = set(map(method_key, methods))
    for member in classes.child.members:
        node = member.node
        for target in node.targets if isinstance(node, ast.Assign) and not is_removal(member) else ():
            if isinstance(target, ast.Name) and target.id in annotations and _may_have_fields(classes):
                name, annotation = target.id, ast.unparse(annotations[target.id])
                yield finding_at(
                    node,
                    HALF_OVERRIDDEN.finding,
                    f"`{name}` loses the parent's annotation `{annotation}`, without which it is no field of a dataclass",
                    f"Write `{name}: {annotation} = …`.",
                )
    for accessor in (member.function for member in classes.parent.members if member.is_function):
        name = accessor.name
        getter = next((one for one in methods if one.name == name and not decorated_by(one)), None)
        if getter is None or not is_property(getter, classes.around.added) or decorated_by(accessor) != name:
            continue
        if inherited_name(name) in classes.parent.binds:  # the parent's property stands there whole, under this name
            continue
        if method_key(accessor) not in own:
            kept = method_key(accessor).rpartition(".")[2]
            yield finding_at(
                getter,
                HALF_OVERRIDDEN.finding,
                f"the property `{name}` keeps the parent's {kept}, which inheritance would not give it",
                f"Write the {kept} out below your `{name}`, or write `{name} = property(…)`, which has none.",
            )


def _may_have_fields(classes: TwoClasses) -> bool:
    """Whether a decorator, a metaclass or a base may make something of the annotations of a class."""
    nodes = (classes.child.node, classes.parent.node)
    if any(one.decorator_list or one.keywords for one in nodes):
        return True
    return any(classes.around.may_reach(base, INIT_SUBCLASS) for base in classes.bases)


CHANGING = frozenset({"property", "cached_property", "lru_cache", "cache"})
"""The decorators that make something else than a plain method, so that callers have to know of them."""

WITHOUT_EFFECT = frozenset({"abstractmethod", "overload", "override", "final", "no_type_check"})

METHOD_DECORATORS = Rule(
    "MC335",
    "method-decorators",
    "an override takes a decorator of the parent's method, or the parent's lines in it lose one",
    formerly="MC323",
)


def compare_method_decorators(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find methods with other decorators than with inheritance."""
    for own, theirs in classes.overrides:
        if theirs.decorator_list:
            yield from _compare_methods(own, theirs, inherited_decorators(own, theirs, classes.around.added))


def _compare_methods(child: Function, parent: Function, taken: Sequence[ast.expr]) -> Iterator[ClassFinding]:
    """Decorators of the parent's method that are taken and make something else of an override, and those that no longer
    apply to the parent's lines in an override with others.
    """
    takes_body = any(is_super_statement(node, child.name) for node in child.body)
    if not takes_body:
        for one in taken:
            if _decorator_name(one) in CHANGING:
                message = (
                    f"`{child.name}` takes the parent's `@{ast.unparse(one)}`, which inheritance would not give it"
                )
                cure = f"Write `@{ast.unparse(one)}` above it, or `@no_inherit_decorator` for none."
                yield finding_at(child, METHOD_DECORATORS.finding, message, cure)
    elif child.decorator_list:
        applied = [(_decorator_name(one), _arguments(one)) for one in (*taken, *child.decorator_list)]
        for one in () if (NO_DECORATORS, frozenset()) in applied else parent.decorator_list:
            if _decorator_name(one) not in WITHOUT_EFFECT and (_decorator_name(one), _arguments(one)) not in applied:
                yield finding_at(
                    child,
                    METHOD_DECORATORS.finding,
                    f"the parent's `@{ast.unparse(one)}` does not apply to its lines in `{child.name}`, which has decorators of "
                    "its own",
                    f"Write `@{ast.unparse(one)}` below yours too, or write out what it does.",
                )


def _decorator_name(decorator: ast.expr) -> str:
    """`lru_cache` of `@functools.lru_cache(maxsize=1)`."""
    return decorator_path(decorator).rpartition(".")[2]


def _arguments(decorator: ast.expr) -> frozenset[str]:
    """The arguments of a decorator but for texts, which are words for a reader: `@auto_docstring(custom_intro="…")`."""
    if not isinstance(decorator, ast.Call):
        return frozenset()
    values: list[tuple[ast.AST, ast.expr]] = [(one, one) for one in decorator.args]
    values += [(one, one.value) for one in decorator.keywords]
    kept = (one for one, value in values if not isinstance(getattr(value, "value", value), (str, ast.JoinedStr)))
    return frozenset(map(ast.unparse, kept))


TAKEN_DESCRIPTION = Rule(
    "MC342",
    "taken-description",
    "code reads a docstring, or the annotation of a result, which a class or an override takes from the parent",
)

DOCSTRING = "__doc__"
RESULTS = ("return_annotation", "get_type_hints", "get_annotations", "__annotations__")
"""What gives the annotation of a method's result; `inspect.getdoc` gives an inherited docstring to each heir."""


def compare_taken_description(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find members that read what inheritance would give neither to the class nor to its override."""
    child, parent = classes.child, classes.parent
    documented = {own.name for own, theirs in classes.overrides if _has_docstring(theirs) and not _has_docstring(own)}
    typed = {own.name for own, theirs in classes.overrides if theirs.returns is not None and own.returns is None}
    own_class = ("self", "cls", "type(self)", "self.__class__", classes.name)
    of_class = own_class if parent.docstring and not child.docstring else ()
    for member in (*child.members, *classes.kept):
        for node, reads in _description_reads(member):
            is_docs = reads == DOCSTRING
            named = {one.attr for one in walk(node) if isinstance(one, ast.Attribute)} & (
                documented if is_docs else typed
            )
            if is_docs and isinstance(node, ast.Attribute) and ast.unparse(node.value) in of_class:
                named = {classes.name}
            what = "docstring" if is_docs else "annotation of the result"
            place = node if member in child.members else child.node
            for name in sorted(named):
                said = f"`{ast.unparse(node)}` reads the {what} that `{name}` takes from the parent"
                message = f"{said}, which inheritance would not give it"
                cure = f"Write the {what} of `{name}` into your class."
                yield finding_at(place, TAKEN_DESCRIPTION.finding, message, cure)


def _description_reads(member: Member) -> Iterator[tuple[ast.Attribute | ast.Call, str]]:
    """The attributes and calls of a member's code that give a docstring or annotations, with the word that says so."""
    words = [word for word in (DOCSTRING, *RESULTS) if word in member.text]
    for node in walk(member.node) if words else ():
        if isinstance(node, ast.Attribute) and node.attr in words:
            yield node, node.attr
        elif isinstance(node, ast.Call) and (called := dotted(node.func).rpartition(".")[2]) in words:
            yield node, called


def _has_docstring(function: Function) -> bool:
    return is_docstring(function.body[0])


SHARED_CLASS_ATTRIBUTE = Rule(
    "MC339", "shared-class-attribute", "two classes would no longer share an object of their parent"
)

MUTABLE = frozenset(["Counter", "OrderedDict", "bytearray", "defaultdict", "deque", "dict", "list", "set"])
"""The calls that make an object which can be changed."""


def check_shared_class_attribute(facts: Facts) -> Iterator[Finding]:
    """Find objects in the body of a parent that generated code changes in place, where it has several heirs."""
    heirs: dict[tuple[str, str], str] = {}
    for heir, parent in facts.heirs:
        generated = facts.generated.get(heir.name)
        other = heirs.setdefault((parent.neighbour.path, parent.original), heir.name)
        if other == heir.name or generated is None:
            continue
        own = heir.members.names | facts.classes[other].members.names
        mutable: set[str] = set()
        for node in parent.members.node.body:
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if (
                isinstance(value, ast.Call)
                and getattr(value.func, "attr", getattr(value.func, "id", "")) in MUTABLE
                or isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp))
            ):
                mutable |= bindings_of(node).binds
        for attribute in sorted(parent.members.names - own):
            if _is_changed(generated.members, attribute, heir.name, attribute in mutable):
                yield SHARED_CLASS_ATTRIBUTE.finding(
                    facts.at_class(heir),
                    f"`{attribute}` of `{parent.original}` is one object for `{other}` and `{heir.name}`, but each generated "
                    "class has its own",
                    help=f"Write `{attribute}` into both classes, or put the object at the top level of the modular file.",
                )


def _is_changed(members: Members, attribute: str, name: str, is_mutable: bool) -> bool:
    """Whether a method sets an attribute of the class by the class's name, or changes its object, where no method gives
    instances one of their own.
    """
    functions = [node for node in members.node.body if isinstance(node, FUNCTIONS)]
    effects = [(first_parameter(node), bindings_of(*node.body).effects) for node in functions]
    if any(f"{name}.{attribute}" in one.binds for _, one in effects):
        return True
    paths = [({f"{holder}.{attribute}" for holder in (first, "cls", name)}, one) for first, one in effects]
    return (
        is_mutable
        and any(one.changes & held for held, one in paths)
        and not any(one.binds & held for held, one in paths)
    )
