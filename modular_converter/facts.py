"""What rules read, as records: a finished conversion, and a class of the modular file with its renamed parent. No rule
reads a file by itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from modular_converter.findings import Location, Origin, Severity, locate, locate_word
from modular_converter.model import lexer
from modular_converter.model.bindings import Bindings, Function, bindings_of
from modular_converter.model.class_blocks import ClassBlock, Member, Members, class_node, names_in_class, parse_class
from modular_converter.model.module import ImportedName, Role, Statement
from modular_converter.model.nodes import parse, walk
from modular_converter.model.overriding import NOTHING_ADDED, AddedDecorators, is_raising_stub, method_key


T = TypeVar("T")

_PLAIN_HEADER = re.compile(r"(?:@[\w.]+\n)*class \w+(?:\([^()\n#]*\))?:")
"""The form of most class headers, which are read without a syntax tree."""
_CLASS_LINE = re.compile(r"^class \w+(?:\([^()\n#]*\))?:", re.MULTILINE)


class KnownAttributes(NamedTuple):
    """The class attributes and methods of a class and its ancestors."""

    names: frozenset[str]
    """Their names before and after renaming."""
    is_whole: bool
    """Whether the source of every ancestor could be read."""


class _Parsed:
    """A class with a text, which is parsed when its members are first asked for."""

    text: str

    @cached_property
    def members(self) -> Members:
        return Members(class_node(self.text))

    def defines(self, method: str) -> bool:
        """Whether the class itself defines a method."""
        # The text mostly tells without parsing, which saves half of the time of the checks (326 modular files).
        if f"\n    def {method}(" in self.text:
            return True
        if method not in self.text or not re.search(rf"\bdef\s+{method}\b", self.text):
            return False
        return method in self.members.by_name


@dataclass(frozen=True)
class GeneratedDefinition(_Parsed):
    """A definition of a generated file, under its final name."""

    name: str
    role: Role
    lead: str
    text: str
    uses: frozenset[str]
    """Every identifier in its code."""
    origin: Origin
    is_store: bool = False
    """Whether its name is also imported: see `Statement.is_store` and `rebinds_import`."""
    inner_imports: tuple[ImportedName, ...] = ()
    """See `Statement.inner_imports`; as the target has them."""

    @property
    def is_class(self) -> bool:
        return self.role is Role.CLASS

    @property
    def copied_from(self) -> str:
        """The path of the neighbour that it is an untouched copy from, apart from names; "" for any other."""
        return self.origin.path if self.origin.how == "copied" else ""

    @cached_property
    def members(self) -> Members:
        """The members of a class; a function or an assignment has none, whatever it is called."""
        return Members(class_node(self.text if self.is_class else "class _: ..."))

    @cached_property
    def header_uses(self) -> frozenset[str]:
        """The names that a class needs when it is created: its decorators and bases; none for another definition."""
        if not self.is_class:
            return frozenset()
        header = _PLAIN_HEADER.match(self.text)
        if header is not None:
            return lexer.identifiers(header[0])
        node = _header_node(self.text)
        parts = walk(*node.decorator_list, *node.bases, *node.keywords)
        return frozenset(part.id for part in parts if isinstance(part, ast.Name))

    @cached_property
    def bindings(self) -> Bindings:
        """What it does with names when it is created, and later."""
        return bindings_of(*parse(self.text).body)


def _header_node(text: str) -> ast.ClassDef:
    """The syntax tree of a class, without its body where the line that begins with `class` is easily found."""
    line = _CLASS_LINE.search(text)
    try:
        return class_node(f"{text[: line.end()]} ..." if line else text)
    except SyntaxError:  # the line belongs to a string
        return class_node(text)


@dataclass(frozen=True)
class NeighbourFacts:
    """A module of another model that the modular file imports from."""

    dotted: str
    """Its name in the modular file: `..llama.modeling_llama`."""
    path: str
    definitions: Collection[str]
    """The names that it defines, not renamed."""
    prefix: str
    """The prefix of the names that its definitions get: `EmuText`."""
    asked: tuple[str, ...]
    """The prefixes that the class names of the modular file ask for, the most frequent first."""
    collides_with: str
    """The class of the neighbour that collides with the wanted prefix; "" for none."""
    model: str = ""
    """The model that it belongs to."""
    cased: str = ""
    """The name of that model in its classes: `Llama`."""
    free_prefix: str = ""
    """A prefix that copies from other models do not have: `EmuLlama`."""


@dataclass(frozen=True)
class Parent(_Parsed):
    """The class of a neighbour that a class inherits from."""

    written: str
    """Its name among the bases of the class."""
    original: str
    """Its name in the neighbour."""
    name: str
    """Its name after renaming."""
    text: str
    """Its text after renaming."""
    neighbour: NeighbourFacts
    grandparents: tuple[ImportedName, ...] = ()
    """Its bases that are imported from a model file of a third model."""
    asked: str | None = None
    """The prefix that the name of the heir asks for: `EmuText` of `class EmuTextMLP(LlamaMLP)`."""


@dataclass(frozen=True)
class ClassFacts(_Parsed):
    """A class of the modular file, with its parent."""

    name: str
    text: str
    """Its text in the modular file."""
    line: int
    """The line of the modular file that `text` begins on, from 1."""
    parent: Parent | None = None
    is_parent: bool = False
    """Whether it stands for that parent, beside the heir."""


@dataclass(frozen=True)
class Facts:
    """One conversion. A fact for which more files must be read is a function, called only if a rule needs it."""

    path: str
    """The modular file."""
    read_source: Callable[[], str]
    """Gives the text of the modular file."""
    classes: Mapping[str, ClassFacts]
    definitions: Mapping[str, Statement]
    """The definitions of the modular file."""
    imported: Mapping[str, ImportedName]
    """The names that the modular file imports, each with its import."""
    exported: Collection[str]
    """The names in its `__all__`, in order."""
    neighbours: Collection[NeighbourFacts]
    files: Mapping[str, Mapping[str, GeneratedDefinition]]
    """The generated files by kind (`modeling`), each with its definitions by name."""
    exports_of: Callable[[NeighbourFacts], Collection[str]]
    """Gives the names in the `__all__` of a neighbour."""
    attributes_of: Callable[[Parent], KnownAttributes]
    """Gives the class attributes and methods of a parent and of its ancestors."""
    makers_of: Callable[[Parent], Collection[tuple[str, ast.ClassDef]]]
    """Gives those ancestors of a parent in other files that do something for each class which is made, but for what the
    library's own bases do: by `__init_subclass__` or by `metaclass`, and the class.
    """
    texts_of: Callable[[str, Parent | None, str], Iterable[str]]
    """Gives the text of a definition that the modular file or, under its new name, the module of a parent names: of a class with
    its ancestors, of an assignment with what it uses in its module. Other files are read where they hold some text.
    """
    renamed: Callable[[Parent, str], str]
    """Gives the name in generated code of a member of a parent."""
    cased: str = ""
    """The name of the model in its classes: `Emu`."""
    customary_names: Collection[str] = ()
    """Definitions that a file may have although they are unused."""
    plan_names: Collection[str] = ()
    """Class attributes that hold plans of parallelism."""
    class_lists: Collection[str] = ()
    """Class attributes that list classes by name."""
    model_base: str = ""
    """The base of every model; each model's own base has this name at its end."""
    replaced_dependency: Severity = Severity.ERROR
    """The severity that the settings give MC201."""

    @cached_property
    def source(self) -> str:
        """The text of the modular file."""
        return self.read_source()

    @cached_property
    def heirs(self) -> tuple[tuple[ClassFacts, Parent], ...]:
        """The classes that inherit from a class of a neighbour, each with its parent."""
        classes = self.classes.values()
        return tuple((one, one.parent) for one in classes if one.parent is not None and not one.is_parent)

    @cached_property
    def parents_apart(self) -> tuple[tuple[ClassFacts, Parent], ...]:
        """The classes that stand for a parent, beside its heir, each with the parent."""
        return tuple((one, one.parent) for one in self.classes.values() if one.parent is not None and one.is_parent)

    @cached_property
    def generated(self) -> Mapping[str, GeneratedDefinition]:
        """The definitions of all generated files by name."""
        return {name: one for definitions in self.files.values() for name, one in definitions.items()}

    @cached_property
    def _answers(self) -> dict[Callable[[Facts], Any], Any]:
        return {}

    def answer(self, question: Callable[[Facts], T]) -> T:
        """The answer to a question that several rules ask of the conversion."""
        if question not in self._answers:
            self._answers[question] = question(self)
        return cast("T", self._answers[question])

    def names_unseen(self, neighbour: NeighbourFacts) -> bool:
        """Whether copies from a neighbour have names that the author did not choose."""
        copies = (one for one in self.generated.values() if one.copied_from == neighbour.path)
        return any(one.name not in neighbour.definitions for one in copies)

    def naming(self, neighbour: NeighbourFacts) -> tuple[str, str, str, str]:
        """The names that the heirs of a neighbour's classes should have, as `rules._words.name_heirs` takes them.

        If copies from another model get the same prefix, a prefix is advised that no other model can have.
        """
        meets = any(one.prefix == neighbour.prefix and one.model != neighbour.model for one in self.neighbours)
        prefix = neighbour.free_prefix if meets else neighbour.prefix
        parents = (parent.original for heir, parent in self.heirs if parent.neighbour is neighbour)
        return neighbour.dotted, prefix, neighbour.cased, next(parents, neighbour.cased)

    def renamed_heir(self, neighbour: NeighbourFacts) -> ClassFacts | None:
        """The first heir of a neighbour's class whose name is not the parent's after renaming."""
        heirs = (heir for heir, parent in self.heirs if parent.neighbour is neighbour and heir.name != parent.name)
        return next(heirs, None)

    def file_of(self, name: str) -> Mapping[str, GeneratedDefinition]:
        """The definitions of the first generated file that defines a name."""
        return next((definitions for definitions in self.files.values() if name in definitions), {})

    def lineage(self, name: str) -> Iterator[Members]:
        """A generated class and those of its ancestors that the same file defines."""
        definitions = self.file_of(name)
        todo, seen = [name], {name}
        while todo:
            definition = definitions.get(todo.pop())
            if definition is None or not definition.is_class:
                continue
            yield definition.members
            todo += sorted(definition.members.base_names - seen)
            seen |= definition.members.base_names

    def at(self, word: str, line: int) -> Location:
        """The first place of a word in the modular file at or below a line."""
        return locate_word(self.path, word, self.source, line)

    def at_class(self, class_facts: ClassFacts) -> Location:
        """The place of the name of a class where it is defined."""
        return self.at(class_facts.name, class_facts.line)

    def at_node(self, class_facts: ClassFacts, node: ast.AST) -> Location:
        """The place of a node among the members of a class of the modular file."""
        return locate(self.path, node, class_facts.text, class_facts.line - 1)


INHERITED_KEYWORDS = frozenset({"metaclass", "total"})
"""Keywords of a class that count for its heirs: the metaclass in Python, `total` of a typed dictionary by convention."""


@dataclass(frozen=True)
class Surroundings:
    """What a merge asks about everything around an heir and its parent."""

    added: AddedDecorators = NOTHING_ADDED
    module_names: frozenset[str] = frozenset()
    """What the modular file defines and imports."""
    siblings: Mapping[str, str] = field(default_factory=dict)
    """The classes of the modular file above this one as they are generated, as text."""
    ancestors: Mapping[str, Collection[str]] = field(default_factory=dict)
    """What each class of the modular file inherits from, as far as it can be seen."""
    in_front: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    """Base that the child names in front of the parent -> the texts of that class and of those above it, but for those above
    the parent too; None for one that cannot be read.
    """
    stays_generic: bool = False
    """Whether other code of the parent's file gives it type arguments, for which the heir then stands."""
    is_parent: bool = False
    """Whether the class stands for its parent, beside the heir."""
    is_set_above: Callable[[str, str], bool] = lambda method, attribute: False
    """Tells whether a method of this name, in an ancestor of the parent, sets an attribute of this name."""
    binds: Callable[[str], frozenset[str] | None] = lambda base: None
    """The names that a base in the generated file binds or inherits there; None for a base from elsewhere."""
    hook_sets_attributes: Callable[[str, frozenset[str]], bool | None] = lambda base, unlike: False
    """Tells whether the `__init_subclass__` of a base does nothing but set attributes of the class, for the parent as for its
    heir, whose keywords `unlike` are true or None in one header alone; None for a base without such a method.
    """
    makes_otherwise: Callable[[str], bool] = lambda metaclass: True
    """Tells whether a metaclass may do something where a class is made, as far as it can be read."""
    has_method: Callable[[str, str], bool] = lambda base, method: False
    """Tells whether a base from elsewhere has a method of this name, as far as it and its ancestors can be read."""
    may_be_heir: Callable[[str, str], bool] = lambda base, above: True
    """Tells whether a base from elsewhere inherits from a class that the parent names so, or cannot be read."""
    may_reach: Callable[[str, str], bool] = lambda base, attribute: True
    """Tells whether a base, or an ancestor of it, is a class from elsewhere that binds this name or cannot be read."""

    def gives_in_front(self, name: str) -> bool:
        """Whether a base in front of the parent binds a name."""
        return any(name in names_in_class(text) for texts in self.in_front.values() for text in texts if text)


@dataclass(frozen=True)
class TwoClasses:
    """An heir and its parent: with inheritance two classes, in a generated file one."""

    child: ClassBlock
    parent: ClassBlock
    base: str
    """The base, as the child writes it, that the parent stands for."""
    bases: Sequence[str]
    """Those of the generated class."""
    replaced: Mapping[str, str]
    """Base of the child -> the parent's base whose place it takes; "" for none."""
    around: Surroundings
    model_base: str
    """See `Settings`."""

    @property
    def name(self) -> str:
        return self.child.node.name

    @cached_property
    def overrides(self) -> Sequence[tuple[Function, Function]]:
        """The methods that both have, the child's first."""
        theirs = {method_key(one.function): one.function for one in self.parent.members if one.is_function}
        methods = (one for one in self.child.members if one.is_function and not is_raising_stub(one))
        own = {method_key(one.function): one.function for one in methods}
        return [(function, theirs[key]) for key, function in own.items() if key in theirs]

    def reach_nothing(self, name: str) -> bool:
        """Whether `super()` surely finds no attribute of a name: neither in the parent nor in a base."""
        here = self.parent.binds.union(dir(object), *filter(None, map(self.around.binds, self.bases)))
        return name not in here and not any(self.around.may_reach(base, name) for base in self.bases)

    @cached_property
    def given_in_front(self) -> frozenset[str]:
        """The names for which Python finds a member of a base in front, and never the parent's: the generated class is
        without the parent's, and an override of the child calls the base.

        Where such a member calls on, or the parent's own lines want theirs, one class cannot say it.
        """
        given = frozenset[str]()
        for base, texts in self.around.in_front.items():
            if None in texts or base in self.parent.bases or self.replaced.get(base):
                continue
            members = [member for text in texts if text for member in parse_class(text).members]
            calling = frozenset[str]().union(*(one.binds for one in members if "super" in one.text))
            given |= frozenset[str]().union(*(one.binds for one in members)) - calling
        found = (given & self.parent.binds) - self.child.binds_anew
        kept = [one for one in self.parent.members if one.binds.isdisjoint(found)]
        gone = [one for one in self.parent.members if not one.binds.isdisjoint(found)]
        wanted = frozenset[str]().union(*(one.reads for one in kept))
        return found if found.isdisjoint(wanted) and all(one.binds <= found for one in gone) else frozenset()

    @cached_property
    def kept(self) -> Sequence[Member]:
        """The parent's members of which something is left. An accessor (`@size.setter`) leaves the other ones."""
        own = (one for one in self.child.members if one.is_function and "super(" not in one.text)
        replaced = {method_key(one.function) for one in own}
        return [
            member
            for member in self.parent.members
            if not (
                member.binds <= self.child.binds_anew
                or (member.is_function and method_key(member.function) in replaced)
            )
        ]
