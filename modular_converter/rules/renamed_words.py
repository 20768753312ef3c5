"""Names that copies get, and words that are renamed, or not, where an author does not see it."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, TypeVar

from modular_converter.findings import Finding, Location, Rule
from modular_converter.model.bindings import attributes_set, bindings_of
from modular_converter.model.lexer import QUOTED_WORD
from modular_converter.model.nodes import BY_NAME, parse, walk
from modular_converter.rules._words import listed, name_heirs


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts, GeneratedDefinition, Parent


AMBIGUOUS_PREFIX = Rule("MC306", "ambiguous-prefix", "classes derived from one neighbour begin with different names")


def check_ambiguous_prefix(facts: Facts) -> Iterator[Finding]:
    """Find neighbours whose copies get a prefix that not all classes ask for, and classes that get another tower's."""
    yield from _other_towers(facts)
    for neighbour in facts.neighbours:
        is_ambiguous = len(neighbour.asked) > 1 and not neighbour.collides_with
        heir = facts.renamed_heir(neighbour) if is_ambiguous and facts.names_unseen(neighbour) else None
        if heir is not None:
            listed = ", ".join(f"`{prefix}`" for prefix in neighbour.asked)
            yield AMBIGUOUS_PREFIX.finding(
                facts.at_class(heir),
                f"classes from {neighbour.dotted} ask for the prefixes {listed}; all copies from it get `{neighbour.prefix}`",
                help=name_heirs(*facts.naming(neighbour)),
            )


def _other_towers(facts: Facts) -> Iterator[Finding]:
    """Heirs whose inherited code uses an heir of another prefix, though the modular file has one of their own, or though
    both have a prefix of their own: `NewTextModel` with a `NewVisionLayer`.
    """
    heirs: dict[tuple[str, str], dict[str | None, str]] = {}
    for heir, parent in facts.heirs:
        heirs.setdefault((parent.neighbour.path, parent.original), {})[parent.asked] = heir.name
    for user, above in facts.heirs:
        generated = facts.generated.get(user.name)
        uses = generated.uses if generated is not None else frozenset[str]()
        for (path, original), same in heirs.items():
            if path != above.neighbour.path or user.name in same.values():
                continue
            for asked, name in same.items():
                prefixes = asked or facts.cased, above.asked or facts.cased
                wanted = same.get(above.asked) or _own_form(name, *prefixes, facts.cased)
                if name != wanted and name in uses and not re.search(rf"\b{name}\b", user.text):
                    yield AMBIGUOUS_PREFIX.finding(
                        facts.at_class(user),
                        f"the generated `{user.name}` would use `{name}` in place of `{original}`, not `{wanted}`",
                        help=f"Override the code of `{user.name}` that uses `{original}`, and write `{wanted}` there.",
                    )


def _own_form(name: str, asked: str, own: str, model: str) -> str:
    """The name of a class with the prefix `own`, where that is another tower's than `asked`, which it has. A prefix that is
    the model's name is no tower's.
    """
    is_apart = model not in (asked, own) and not own.startswith(asked) and not asked.startswith(own)
    return f"{own}{name.removeprefix(asked)}" if is_apart else name


COLLIDING_PREFIX = Rule("MC307", "colliding-prefix", "the prefix of a class is already taken in the neighbour")


def check_colliding_prefix(facts: Facts) -> Iterator[Finding]:
    """Find neighbours whose copies get another prefix than the classes ask for."""
    for neighbour in facts.neighbours:
        heir = facts.renamed_heir(neighbour) if neighbour.collides_with and facts.names_unseen(neighbour) else None
        if heir is not None:
            others = [prefix for prefix in neighbour.asked if prefix != neighbour.prefix]
            # The prefix adds to the model's own name a word that the colliding class has in its name.
            added = (prefix for prefix in others if prefix[len(neighbour.prefix) :] in neighbour.collides_with)
            wanted = next(added, others[0])
            yield COLLIDING_PREFIX.finding(
                facts.at_class(heir),
                f"the prefix `{wanted}` collides with `{neighbour.collides_with}` of {neighbour.dotted}; `{neighbour.prefix}` is "
                "used instead",
                help=name_heirs(*facts.naming(neighbour)),
            )


RENAMED_ATTRIBUTE = Rule(
    "MC324", "renamed-attribute", "a class uses a member of its parent under the name that it had before renaming"
)

_WORD = re.compile(r"\w+")
_Place = TypeVar("_Place")


def renamed_attribute(location: Location, old: str, new: str, parent: str) -> Finding:
    """`new` is the name that the generated class has for the member `old` of `parent`."""
    return RENAMED_ATTRIBUTE.finding(
        location,
        f"`{old}` of `{parent}` is called `{new}` in the generated class",
        help=f"Write `{new}`.",
    )


def check_renamed_attribute(facts: Facts) -> Iterator[Finding]:
    """Find members of parents, their parameters and keys that the child's own code uses under their old names."""
    for heir, parent in facts.heirs:
        if _has_old_words(facts, heir, parent):
            found: dict[Location, Finding] = {}
            for one in _uses_of_old_names(facts, heir, parent):
                found.setdefault(one.location, one)
            yield from found.values()


def _uses_of_old_names(facts: Facts, heir: ClassFacts, parent: Parent) -> Iterator[Finding]:
    """The same of one class, the nearest meanings first: members, used or overridden; words in quotes, such as keys;
    keywords of calls; attributes of other objects, keywords and parameters. A parameter counts in a method that overrides
    one, and in a function that is handed to inherited code.
    """
    copies = [one for one in facts.generated.values() if one.copied_from == parent.neighbour.path]
    # The words in quotes in what the generated class has of the parent, merged methods included.
    replaced = heir.members.bindings.binds - {
        one.name for one in heir.members.methods if one.name in dict(one.super_calls)
    }
    kept = [one for one in parent.members.node.body if bindings_of(one).binds - replaced]
    inherited = {text for text, _ in _texts(kept)}
    keys = inherited.union(*(QUOTED_WORD.findall(one.text) for one in copies))

    @functools.cache  # it is seldom asked for
    def theirs() -> frozenset[str]:
        return frozenset(_words(parent)).union(*(one.uses for one in copies))

    def has_member(name: str) -> bool:
        above = (members for members in facts.lineage(heir.name) if members.node.name != heir.name)
        return parent.members.binds(name) or any(members.binds(name) for members in above)

    yield from _under_old_names(facts, heir, parent, _uses(heir), has_member)
    calls = (call for method in heir.members.methods for call in method.super_calls if call[0] != method.name)
    yield from _under_old_names(facts, heir, parent, dict(calls), has_member)
    keys |= _words(parent).keys()
    # What a path begins with, such as the key of a weight: not "llama.cpp" where "llama" is the key of a table.
    beginnings = _words(parent).keys() | _beginnings(dict.fromkeys(inherited)).keys()
    own = frozenset[str]().union(*(attributes_set(one.node) for one in heir.members.methods))
    for member in heir.members.node.body:
        texts = ((text, node) for text, node in reversed([*_texts([member])]) if text.partition(".")[0] not in own)
        own_texts = dict(texts)  # the first place of each
        yield from _under_old_names(facts, heir, parent, own_texts, keys.__contains__)
        yield from _under_old_names(facts, heir, parent, _beginnings(own_texts), beginnings.__contains__)
    yield from _check_keywords(facts, heir, parent, keys)
    yield from _under_old_names(facts, heir, parent, _words(heir), lambda word: word in theirs())


def _under_old_names(
    facts: Facts, heir: ClassFacts, parent: Parent, own: Mapping[str, ast.AST], has: Callable[[str], bool]
) -> Iterator[Finding]:
    """The words of a class, each with its first place, that inherited code has under their new names alone.

    Code that deals with both names knows of the renaming (camembert deletes the new one, and sets the old). `_OldMLP__size` has
    its new name in the generated class.
    """
    for old, node in own.items():
        new = facts.renamed(parent, old)
        if new != old and new not in own and has(new) and not has(old) and f"{parent.original}__" not in old:
            yield renamed_attribute(facts.at_node(heir, node), old, new, parent.written)


def _has_old_words(facts: Facts, heir: ClassFacts, parent: Parent) -> bool:
    """Whether any word of a class, except the parent's name in its first line, has another name in inherited code. Most
    classes have none, so their syntax trees need not be walked.
    """
    model = parent.neighbour.model
    if model not in heir.text.lower():
        return False
    words = Counter(word for word in _WORD.findall(heir.text) if model in word.lower())
    words.subtract(base.id for base in heir.members.node.bases if isinstance(base, ast.Name))
    return any(times > 0 and facts.renamed(parent, word) != word for word, times in words.items())


def _check_keywords(facts: Facts, heir: ClassFacts, parent: Parent, keys: Set[str]) -> Iterator[Finding]:
    """Keywords of calls `self.method(…)` of methods that the parent alone defines, whose parameters, or keys of `**kwargs`,
    have other names.
    """
    inherited = parent.members.by_name.keys() - heir.members.by_name.keys()
    for caller in heir.members.methods:
        for call in (call for scope in caller.bindings.everywhere for call in scope.calls):
            if isinstance(call.func, ast.Attribute) and call.func.attr in inherited and caller.owns(call.func):
                arguments = parent.members.by_name[call.func.attr].node.args
                taken = {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}
                for keyword in call.keywords:
                    old, new = keyword.arg or "", facts.renamed(parent, keyword.arg or "")
                    if new != old and (new in taken or (arguments.kwarg and new in keys)):
                        method = f"{parent.written}.{call.func.attr}"
                        yield renamed_attribute(facts.at_node(heir, keyword), old, new, method)


def _words(owner: ClassFacts | Parent) -> dict[str, ast.AST]:
    """The attributes, keywords and parameters in a class, each with its first place."""
    found: dict[str, ast.AST] = {}
    for node in walk(owner.members.node):
        if isinstance(node, ast.Attribute):
            found.setdefault(node.attr, node)
        elif isinstance(node, (ast.keyword, ast.arg)) and node.arg:
            found.setdefault(node.arg, node)
    return found


def _uses(heir: ClassFacts) -> dict[str, ast.AST]:
    """The names of members that a class binds in its body or uses by `self.name`, each with its first place."""
    found: dict[str, ast.AST] = {}
    for statement in heir.members.node.body:
        for name in bindings_of(statement).local:
            found.setdefault(name, statement)
    for method in heir.members.methods:
        for node in walk(method.node):
            if isinstance(node, ast.Attribute) and method.owns(node):
                found.setdefault(node.attr, node)
            elif isinstance(node, ast.Call) and (name := _attribute_named(node, method.instance)):
                found.setdefault(name, node.args[1])
    return found


def _attribute_named(call: ast.Call, instance: str) -> str:
    """The attribute that `getattr(self, "name")` and the like mean; "" for another call."""
    if isinstance(call.func, ast.Name) and call.func.id in BY_NAME and len(call.args) > 1:
        owner, name = call.args[:2]
        if isinstance(owner, ast.Name) and owner.id == instance and isinstance(name, ast.Constant):
            return name.value if isinstance(name.value, str) else ""
    return ""


def _texts(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.Constant]]:
    """The words in quotes in some statements, as keys and names of attributes are, and the paths of words, such as
    `"old.weight"`, each with its place.
    """
    for node in (node for one in statements for node in walk(one)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            first, *rest = node.value.split(".")
            if all(word.isidentifier() for word in (first, *filter(None, rest))):
                yield node.value, node


def _beginnings(texts: Mapping[str, _Place]) -> dict[str, _Place]:
    """The first word of each path."""
    return {text.partition(".")[0]: place for text, place in texts.items() if "." in text}


LOOKUP_BY_TEXT = Rule("MC327", "lookup-by-text", "generated code looks names up by their text")
LOOKUPS = frozenset({"globals", "eval", "exec"})
OWN_MODULE = "modules[__name__]"
KEYED = frozenset({"get", "pop", "setdefault", "startswith", "endswith", "removeprefix", "removesuffix"})
"""The methods of dictionaries and texts whose first argument is a key, or a part of one."""

_LOOKUP = re.compile(rf"\b(?:{'|'.join(sorted(LOOKUPS))})\(|\bmodules\[__name__\]")
_F_STRING = re.compile(r"""[fF][rR]?["']""")


def check_lookup_by_text(facts: Facts) -> Iterator[Finding]:
    """Find calls that look up names, f-strings with the name of a neighbour's model that something is found by, and private
    names that are written out.
    """
    models = {one.model for one in facts.neighbours} - {""}
    for name, definition in facts.generated.items():
        mentioned = name if name in facts.definitions else next(iter(facts.definitions), name)
        line = facts.definitions[mentioned].line if mentioned in facts.definitions else 1
        for word, holders in _private_names_elsewhere(facts, definition):
            yield LOOKUP_BY_TEXT.finding(
                facts.at(mentioned, line),
                f"`{word}` in the generated `{name}` is a private name by its text, but {listed(holders)} may have the attribute",
                help="Give the attribute a name that is not private, or override what reads it.",
            )
        if _may_look_up(definition.text, models):
            location = facts.at(mentioned, line)
            nodes = walk(definition.members.node if definition.is_class else parse(definition.text))
            for call in dict.fromkeys(_lookups(nodes, models)):
                yield LOOKUP_BY_TEXT.finding(
                    location,
                    f"`{call}` in the generated `{name}` looks up a name by its text, but names in texts are neither renamed nor "
                    "carried along",
                    help="Override the method that does this, and name in code what it uses.",
                )
            for code in dict.fromkeys(_kept_words(nodes, models)):
                yield LOOKUP_BY_TEXT.finding(
                    location,
                    f"`{code}` in the generated `{name}` has the old name of the model, since the text of an f-string is not "
                    "renamed",
                    help="Override the method that does this, and write the new name where it is meant.",
                )


_WRITTEN_OUT = re.compile(r"_([^\W_]\w*?)__([^\W_]\w*)(?<!__)")


def _private_names_elsewhere(facts: Facts, definition: GeneratedDefinition) -> Iterator[tuple[str, Set[str]]]:
    """The private names of classes, `_NewMLP__size`, that a definition writes out where the attribute may be another class's, with
    those classes: it has the name of the class whose lines set it, a parent beside its heir or one heir of several.
    """
    words = sorted(one for one in definition.uses if one[0] == "_" and "__" in one[2:])
    for owner, private in (one.groups() for one in map(_WRITTEN_OUT.fullmatch, words) if one):
        classes = {one.name.lstrip("_"): one for one in facts.generated.values() if one.is_class}
        known = frozenset(above.name for _, above in facts.heirs).union(*(one.definitions for one in facts.neighbours))
        if owner == definition.name.lstrip("_") or owner not in known | classes.keys():
            continue
        holders = {name for name, one in classes.items() if f"__{private}" in one.uses}
        own = facts.classes.get(owner)
        parent = own.parent.name if own is not None and own.parent is not None else owner
        others = {heir.name for heir, above in facts.heirs if above.name == parent and heir.name != owner} & holders
        if owner not in holders:
            others |= holders
        elif any(re.fullmatch(rf"__parents\d*_{private}", one) for one in classes[owner].uses):
            others.add(owner)
        if others:
            yield f"_{owner}__{private}", others


def _may_look_up(text: str, models: Collection[str]) -> bool:
    """Whether a text needs to be parsed; the plain searches, which come first, take a fiftieth of the time."""
    if (any(f"{name}(" in text for name in LOOKUPS) or OWN_MODULE in text) and _LOOKUP.search(text):
        return True
    return any(model in text for model in models) and _F_STRING.search(text) is not None


def _lookups(nodes: Iterable[ast.AST], models: Collection[str]) -> Iterator[str]:
    """The calls that look up names."""
    for node in nodes:
        if isinstance(node, ast.Subscript) and (written := ast.unparse(node)).endswith(OWN_MODULE):
            yield written
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in LOOKUPS:
                yield f"{node.func.id}(…)"
            elif node.func.id in BY_NAME and len(node.args) > 1 and _names_model(node.args[1], models):
                yield ast.unparse(node)


def _kept_words(nodes: Iterable[ast.AST], models: Collection[str]) -> Iterator[str]:
    """The keys, comparisons and calls on texts with an f-string that names a model."""
    for node in nodes:
        words: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            words = [node.slice]
        elif isinstance(node, ast.Compare):
            words = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEYED:
            words = node.args[:1]
        if any(_names_model(word, models) for word in words):
            yield ast.unparse(node)


def _names_model(node: ast.expr, models: Collection[str]) -> bool:
    """Whether the text of an f-string has the name of a model in it."""
    texts = (
        [one.value for one in node.values if isinstance(one, ast.Constant)] if isinstance(node, ast.JoinedStr) else []
    )
    return any(model in str(text) for text in texts for model in models)


RENAMED_FOR_OTHERS = Rule(
    "MC328", "renamed-for-others", "renaming changes a word that other code than the model's reads"
)


def renamed_for_others(location: Location, old: str, new: str, where: str, definition: str) -> Finding:
    """`where` is the code of the neighbour in which the word `old` becomes `new`."""
    return RENAMED_FOR_OTHERS.finding(
        location,
        f"in the generated `{definition}`, `{old}` in `{where}` becomes `{new}`, though it may not mean the model",
        help="If it does not mean the model, override what uses it; else silence this finding.",
    )


RENAMED_INTO_NAME_IN_USE = Rule(
    "MC337",
    "renamed-into-name-in-use",
    "renaming makes one name of two that the neighbour's code keeps apart",
    formerly="MC320",
)


def renamed_into(location: Location, user: str, old: str, new: str, module: str) -> Finding:
    """Renaming makes `old` of the neighbour `module` the same name as `new`, which its code has beside it."""
    return RENAMED_INTO_NAME_IN_USE.finding(
        location,
        f"`{old}` of `{module}` is renamed to `{new}`, which its code has already: the two are one in `{user}`",
        help=f"Write the code that uses the two out in the modular file, with other names than `{new}`.",
    )
