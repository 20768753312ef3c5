"""Members that both classes have, or several heirs, and what is above or within them: decorators, names, docstrings."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from modular_converter.findings import ClassFinding, Finding, Location, Rule, finding_at
from modular_converter.model.bindings import Function, bindings_of, covers, parameters_of
from modular_converter.model.class_blocks import SUPER_KWARGS, ClassBlock, inherited_name
from modular_converter.model.index import is_docstring
from modular_converter.model.nodes import (
    decorated_by,
    decorator_path,
    decorators_of,
    dotted,
    is_super_statement,
    named_values,
    parse,
    walk,
)
from modular_converter.model.overriding import (
    INIT_SUBCLASS,
    NO_DECORATORS,
    AddedDecorators,
    first_parameter,
    inherited_decorators,
    is_property,
    is_removal,
    method_key,
)
from modular_converter.model.state import filled_defaults, is_mutable, remembers
from modular_converter.rules._words import WRITE_OUT, Obstacle, fields_of, listed
from modular_converter.rules.double_meanings import ANCESTRY
from modular_converter.rules.made_classes import changes_of_makers, entered_as_heir, makers_of_heirs


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts, GeneratedDefinition, Parent, TwoClasses
    from modular_converter.model.class_blocks import Member


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


def check_class_decorators(facts: Facts) -> Iterator[Finding]:
    """Find decorators that wrap, set or read members once for each class, or for one of the two."""
    cure = "Compare what it does with what you mean; if it is that, silence this finding."
    for heir, found in facts.answer(changes_of_makers).items():
        for by, reason in dict.fromkeys((by, reason) for by, reason, is_error in found if not is_error):
            message = f"`{by}` counts otherwise than for two classes: {reason}"
            yield CLASS_DECORATORS.finding(facts.at_class(facts.classes[heir]), message, help=cure)
    for name, by in entered_as_heir(facts):
        message = f"renaming gives the parent of `{name}` the same `@{by}`, which enters both under one name"
        cure = "Give yours another name; or silence this finding, if nothing looks for the parent there."
        yield CLASS_DECORATORS.finding(facts.at_class(facts.classes[name]), message, help=cure)


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
    """The parent's private names (`self._OldMLP__x`) that the child has too: see `_with_private_names_of`."""
    prefix = f"_{classes.base.rpartition('.')[2].lstrip('_')}__"
    for member in classes.child.members:
        if prefix in member.text:
            reason = f"the parent's private names get the name of your class, which has that of `{prefix}…` too"
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
            yield from _compare_methods(own, theirs, classes.around.added)


def _compare_methods(child: Function, parent: Function, added: AddedDecorators) -> Iterator[ClassFinding]:
    """Decorators of the parent's method that are taken and make something else of an override, and those that no longer
    apply to the parent's lines in an override with others.
    """
    taken = inherited_decorators(child, parent, added)
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
        known = WITHOUT_EFFECT.union(name for name, _ in applied if name in added.names)
        for one in () if (NO_DECORATORS, frozenset()) in applied else parent.decorator_list:
            if _decorator_name(one) not in known and (_decorator_name(one), _arguments(one)) not in applied:
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
    """The arguments of a decorator but for texts, which are words for a reader, `@auto_docstring(custom_intro="…")`: by keyword,
    or of several words.
    """
    if not isinstance(decorator, ast.Call):
        return frozenset()
    placed = (one for one in decorator.args if " " not in str(getattr(one, "value", "")))
    named = (
        one
        for one in decorator.keywords
        if not isinstance(getattr(one.value, "value", one.value), (str, ast.JoinedStr))
    )
    return frozenset(map(ast.unparse, (*placed, *named)))


TAKEN_DESCRIPTION = Rule(
    "MC342",
    "taken-description",
    "code reads a docstring, an annotation or the name of a function, which the generated file has otherwise",
)


def read_annotations(location: Location, reader: str, file: str, *, is_postponed: bool) -> Finding:
    """`reader` reads annotations of which those of `file` are texts, or become texts (`is_postponed`)."""
    change = "are texts in the generated file" if is_postponed else "are no longer texts in the generated file"
    return TAKEN_DESCRIPTION.finding(
        location,
        f"the generated `{reader}` reads annotations, and those of {file} {change}",
        help="Compare with the type and with its name as a text, which `from __future__ import annotations` makes of it.",
    )


DOCSTRING = "__doc__"
AS_WRITTEN = ("return_annotation", "get_annotations", "__annotations__")
"""What gives annotations as they are written, texts where they are postponed."""
RESULTS = (*AS_WRITTEN, "get_type_hints")
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


def check_taken_description(facts: Facts) -> Iterator[Finding]:
    """Find code that reads the name of a parent's function with that of its class, or the name that it runs under."""
    for heir, parent in (*facts.heirs, *facts.parents_apart):
        one = facts.generated.get(heir.name)
        if one is None:
            continue
        for reader in (one, *(each for each in facts.generated.values() if not each.is_class)):
            is_kept = "__inherited_" in one.text and "co_name" in reader.text
            looks_up = heir.is_parent and any(word in reader.text for word in ANCESTRY)
            is_named = heir.name != parent.name and any(word in reader.text for word in NAMES_OF_FUNCTIONS)
            theirs = parent.members.names - heir.members.names
            for node in walk(parse(reader.text)) if is_kept or looks_up or is_named else ():
                if is_kept and getattr(node, "attr", "") == "co_name":
                    reason = "is `__inherited_…` for the parent's method"
                elif (looks_up and "__name__" in (getattr(node, "attr", ""), getattr(node, "value", ""))) or (
                    is_named and _is_name_of(node, theirs, heir.is_parent, reader is not one)
                ):
                    reason = f"has `{heir.name}` in it, and `{parent.original}` with inheritance"
                else:
                    continue
                message = f"`{ast.unparse(node)}` in the generated `{reader.name}` {reason}"
                cure = "Override what reads it, and write the name there that you mean; or silence this finding."
                yield TAKEN_DESCRIPTION.finding(facts.at_class(heir), message, help=cure)


NAMES_OF_FUNCTIONS = ("__qualname__", "co_qualname", "__class__.__name__")


def _is_name_of(node: ast.AST, theirs: Set[str], is_parent: bool, is_given: bool) -> bool:
    """Whether this is the qualified name of a member in `theirs`, or of the class that stands for a parent; in code that is given
    functions (`is_given`) that of anything.
    """
    match node:
        case ast.Name("__qualname__") | ast.Attribute(_, "co_qualname"):
            return True
        case ast.Attribute(ast.Name("__class__"), "__name__" | "__qualname__"):
            return is_parent
        case ast.Attribute(ast.Attribute(owner, "__func__" | "__wrapped__") | owner, "__qualname__"):
            return (
                owner.attr in theirs
                if isinstance(owner, ast.Attribute)
                else is_given and dotted(owner) not in ("", "cls")
            )
    return False


SHARED_CLASS_ATTRIBUTE = Rule(
    "MC339", "shared-class-attribute", "two classes would no longer share an object of their parent"
)


def check_shared_class_attribute(facts: Facts) -> Iterator[Finding]:
    """Find objects in the body of a parent that code changes in place, where it has several heirs, or is copied beside one."""
    heirs: dict[tuple[str, str], ClassFacts | GeneratedDefinition] = {}
    for one, parent in (*facts.heirs, *facts.parents_apart):
        named = facts.generated.get(parent.name)
        copy = named if named is not None and named.copied_from == parent.neighbour.path else None
        other = heirs.setdefault((parent.neighbour.path, parent.original), copy or one)
        if other is one:
            continue
        own = one.members.names | (other.members.names if other is not copy else frozenset())
        mutable = {*_mutable_attributes(parent.members.node)}
        attributes = sorted((parent.members.names | mutable) - own)
        code = _code_of_heirs(facts, (other, one), attributes)
        found = [each for each in attributes if code.changes(each, each in mutable)]
        methods = (method.node for method in parent.members.methods if method.name not in own)
        found += (each for method in methods for each in filled_defaults(method))
        found += (each for each in _remembering(facts, parent, own) if each not in found and not code.gives_own(each))
        heir, first = (_written_as(facts, each) for each in (one, other))
        for name in found:
            yield SHARED_CLASS_ATTRIBUTE.finding(
                facts.at_class(one),
                f"`{name}` of `{parent.original}` is one object for `{first}` and `{heir}`, but each generated class has "
                "its own",
                help=f"Write `{name}` into both classes, or put the object at the top level of the modular file.",
            )


def _written_as(facts: Facts, one: ClassFacts | GeneratedDefinition) -> str:
    """The class of the modular file that a generated one stands for: that of its heir, if it is a parent beside one."""
    is_parent = one.name in facts.classes and facts.classes[one.name].is_parent
    heirs = (each.name for each in facts.classes.values() if is_parent and one.name in each.members.base_names)
    return next(heirs, one.name)


def _mutable_attributes(node: ast.ClassDef) -> Iterator[str]:
    """The attributes of a class, and of those within it (`State.items`), with an object that can be changed."""
    for one in node.body:
        if isinstance(one, ast.ClassDef):
            yield from (f"{one.name}.{name}" for name in _mutable_attributes(one))
        elif isinstance(one, (ast.Assign, ast.AnnAssign)) and is_mutable(one.value):
            yield from bindings_of(one).binds


def _remembering(facts: Facts, parent: Parent, own: Set[str]) -> Iterator[str]:
    """The members of a parent that remember something: see `remembers`. `own` are the names that its heirs bind anew."""
    body = parent.members.node.body
    inner = {one.name: one for one in body if isinstance(one, Function)}

    def find(path: str) -> ast.AST | None:
        text = next(iter(facts.texts_of(path, parent, "")), "") if path not in inner else ""
        return inner.get(path) or next(iter(parse(text).body), None)

    for name, value in (*named_values(body), *inner.items()):
        if name not in own and remembers(value, find) and not (name in inner and any(filled_defaults(inner[name]))):
            yield name


class _Part(NamedTuple):
    """Code that may change objects which heirs share: the paths that it deals with."""

    held: Set[str]
    """What may hold an instance or the class."""
    binds: Set[str]
    sets: Set[str]
    changes: Set[str]
    """Those whose objects it changes, iterators among them; of an instance also by its class, and by other names."""


class _CodeOfHeirs(NamedTuple):
    names: Set[str]
    """Those of the classes, and of their heirs."""
    parts: Sequence[_Part]

    def changes(self, attribute: str, is_mutable: bool) -> bool:
        """Whether it sets an attribute by a class's name, or changes its object. Not where methods give instances one of their own."""
        by_name = [f"{name}.{attribute}" for name in self.names]
        if any(covers(path, bound) for one in self.parts for bound in one.binds for path in by_name):
            return True
        paths = [({f"{held}.{attribute}" for held in one.held}, one) for one in self.parts] if is_mutable else ()
        return any(held & one.changes for held, one in paths) and not self.gives_own(attribute)

    def gives_own(self, attribute: str) -> bool:
        """Whether it gives instances one of their own."""
        return any(f"{held}.{attribute}" in one.sets for one in self.parts for held in one.held)


def _code_of_heirs(
    facts: Facts, both: Sequence[ClassFacts | GeneratedDefinition], attributes: Collection[str]
) -> _CodeOfHeirs:
    asked = {one.name for one in both}
    names = {each.name for each in facts.generated.values() if asked & {each.name, *each.members.base_names}}
    makers = (maker for one in asked for maker in facts.answer(makers_of_heirs).get(one, ()))
    parts = [_part({*names, one.holder}, getattr(one.function, "body", ())) for one in makers]
    for each in (one for one in facts.generated.values() if not one.uses.isdisjoint(attributes)):
        statements = parse(each.text).body
        for node in (it for one in statements for it in (one.body if isinstance(one, ast.ClassDef) else [one])):
            if not isinstance(node, Function):
                parts.append(_part(names, [node]))
                continue
            # The instance of another class has attributes of its own.
            other = {first_parameter(node)} if each.is_class and each.name not in names else set()
            parts.append(_part({*names, "cls", *parameters_of(node)} - other, node.body))
    return _CodeOfHeirs(names, parts)


def _part(held: Set[str], body: Sequence[ast.AST] | ast.AST) -> _Part:
    nodes = [body] if isinstance(body, ast.AST) else body
    code = bindings_of(*nodes)
    taken = (one.args[0] for one in code.calls if dotted(one.func) == "next" and one.args)
    aliases = {name: _path(value, {}) for name, value in named_values(walk(*nodes))}
    changes = {_path(one, aliases) for one in (*code.changed_objects, *taken)}
    return _Part(held, code.effects.binds, {*map(dotted, code.sets)}, changes)


def _path(node: ast.AST, aliases: Mapping[str, str]) -> str:
    """`self.seen` of what begins with `self.seen`, `type(self).seen`, `self.__class__.seen` or `getattr(self, "seen")`."""
    match node:
        case ast.Call(ast.Name("type"), [one]) | ast.Attribute(one, "__class__") | ast.Subscript(one):
            return _path(one, aliases)
        case ast.Call(ast.Name("getattr"), [one, ast.Constant(str(attribute)), *_]) | ast.Attribute(one, attribute):
            return f"{_path(one, aliases)}.{attribute}"
        case ast.Call(one):
            return _path(one, aliases)
        case ast.Name(name):
            return aliases.get(name) or name
    return ""
