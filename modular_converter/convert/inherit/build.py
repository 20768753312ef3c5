"""The classes of the modular file as they are generated: each merged with its renamed parent."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from modular_converter.convert.inherit.bases import ClassMerge, class_header, merge_bases, merge_members, replaced_base
from modular_converter.convert.inherit.inherited_members import (
    is_nameless,
    refused_overrides,
    with_inherited_members,
    with_private_members,
    with_super_calls,
    written_beside,
)
from modular_converter.convert.inherit.override import merge_override
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.source.library import Library, ModelNames, common_suffix
from modular_converter.convert.source.rename import Renamer, rename_local
from modular_converter.facts import Surroundings, TwoClasses
from modular_converter.findings import ClassFinding, ConversionError, Finding, Location, locate
from modular_converter.model import lexer
from modular_converter.model.bindings import Function, attributes_set, bindings_in, bindings_of, parameters_of
from modular_converter.model.class_blocks import (
    INDENT,
    SUPER_KWARGS,
    ClassBlock,
    ClassSpan,
    Member,
    SourceLines,
    changes_below,
    class_node,
    names_in_class,
    parse_class,
    taken,
)
from modular_converter.model.index import is_docstring
from modular_converter.model.module import Module, Role, Statement
from modular_converter.model.nodes import dotted, is_super_statement, mangling, targets_of, walk
from modular_converter.model.overriding import (
    EQUALITY,
    HASH,
    INIT_SUBCLASS,
    NO_DECORATORS,
    AddedDecorators,
    method_key,
)
from modular_converter.rules import class_comparisons, input_files
from modular_converter.rules.members_of_both import options_of_dataclass
from modular_converter.settings.values import Settings


PRIVATE_NAME = re.compile(r"\b__[^\W\d]\w*(?<!__)\b")
"""An identifier that Python mangles with the name of the class."""


@dataclass(frozen=True)
class Merged:
    """A generated class."""

    plan: tuple[ClassSpan, ...]
    """Its text, in the pieces that come from one of the two classes each."""
    findings: tuple[ClassFinding, ...] = ()

    @cached_property
    def text(self) -> str:
        return "".join(span.text for span in self.plan)

    @cached_property
    def uses(self) -> frozenset[str]:
        """The identifiers in its code."""
        return lexer.identifiers(self.text)


def merge_class(
    child_text: str,
    parent_text: str,
    parent_name: str,
    parent_base: str,
    names: ModelNames,
    settings: Settings,
    around: Surroundings | None = None,
    apart: Collection[str] = (),
) -> Merged:
    """The generated class. Overrides that cannot be merged are tried again as methods apart from the parent's.

    Args:
        child_text: the class of the modular file.
        parent_text: the class of the neighbour, renamed.
        parent_name: its name in that text.
        parent_base: the base that `parent_text` stands for, as the child writes it, without a subscript.
        around: what stands around the two classes; None for nothing but the decorators of the settings.
        apart: the overrides that are not merged with the parent's method: see `with_inherited_members`.
    """
    given = (child_text, parent_text, parent_name, parent_base, names, settings, around)
    around = around or Surroundings(AddedDecorators(settings.added_decorators))
    child = parse_class(child_text)
    parent_base = next((one for one in child.bases if one.partition("[")[0] == parent_base), parent_base)
    if around.is_parent:
        text = rename_in_code(parent_text, parent_name, child.node.name)
        return Merged((taken(text.rstrip("\n") + "\n", False, 1),))
    if child.node.name != parent_name:
        parent_text = rename_class(parent_text, parent_name, child.node.name, names)
    parent = parse_class(parent_text, is_own=False)
    child_text = _with_private_names_of(parent_base, child_text, child.node.name)
    bases = merge_bases(child, parent, parent_base, around.ancestors, settings.implied_bases, around.stays_generic)
    child_text, private = with_inherited_members(
        child_text,
        parent,
        parent_base.partition("[")[0],
        lambda name: any(around.may_reach(base, name) for base in bases) or around.gives_in_front(name),
        apart,
    )
    apart_text = _with_private_names(parent_text, child_text, child.node.name)
    if apart_text != parent_text:
        parent = parse_class(apart_text, is_own=False)
    if child_text != given[0]:
        child = parse_class(child_text)
    own_text = _with_own_accessors(_with_own_locals(child_text, child, parent), child, parent, parent_base)
    if own_text != child_text:
        child = parse_class(own_text)
    parent = with_private_members(parent, child, private)
    if implied := _implied(child) & parent.binds:
        parent = replace(parent, members=tuple(one for one in parent.members if not one.binds or one.binds - implied))
    replaced = {base: replaced_base(base, parent.bases) for base in child.bases}
    classes = TwoClasses(child, parent, parent_base, bases, replaced, around, settings.model_base)
    if classes.given_in_front:
        kept = (one for one in parent.members if one.binds.isdisjoint(classes.given_in_front))
        parent = replace(parent, members=tuple(kept))
        classes = replace(classes, parent=parent)
    findings = [finding for compare in class_comparisons() for finding in compare(classes)]
    decorated = {one.function.name for one in parent.members if one.is_function and not is_nameless(one.function)}
    merge = ClassMerge(classes, settings, findings, apart=frozenset(decorated & private.keys()))
    members = merge_members(merge, merge_override)
    plan = [
        _decorators(child, parent),
        ClassSpan(
            class_header(child, parent, bases),
            tuple(SourceLines(one is child, one.node.lineno, one.body_line - 1) for one in (child, parent)),
        ),
        _docstring(child, parent),
        *(span for member in members for span in member.spans),
    ]
    if not any(span.text for span in plan[2:]):
        plan.append(ClassSpan(f"{INDENT}pass\n"))
    inherited = [change for change in changes_below(parent_text) if child.leaves(change, parent.binds)]
    plan += (taken(one.text, False, one.line) for one in inherited)
    plan += (taken(one.text, True, one.line) for one in changes_below(child_text))
    if not apart and (refused := refused_overrides(child, parent, findings)):
        merged = merge_class(*given, refused)
        if not any(one.finding.is_error for one in merged.findings):
            return merged
    return Merged(tuple(span for span in with_super_calls(plan, merge) if span.text), tuple(findings))


def _implied(child: ClassBlock) -> frozenset[str]:
    """The names that Python binds in each class without a statement, where the parent's would not be seen: also no hash beside
    an equality, and what `@dataclass` makes.
    """
    own, made = child.binds_anew, {"__doc__", "__module__", "__qualname__"}
    options = options_of_dataclass(child)
    if options is not None:
        made |= {f"__{one}__" for one in ("init", "repr", "eq") if options.get(one) != "False"} - child.binds
    return frozenset(made | ({HASH} if EQUALITY in own | made else set())) - own


def _with_own_locals(text: str, child: ClassBlock, parent: ClassBlock) -> str:
    """The child's text in which local names of an override that the parent's body, which goes into it, reads from its
    module are other ones. One that the call passes stays: it is told by the name that the author wrote.
    """
    theirs = {method_key(one.function): one.function for one in parent.members if one.is_function}
    for member in child.members:
        if not member.is_function or (inherited := theirs.get(method_key(member.function))) is None:
            continue
        own = member.function
        local = bindings_in(own).local - parameters_of(own)
        hiding = local & bindings_in(inherited).module_names if local else local
        calls = [one for one in own.body if hiding and is_super_statement(one, own.name, child.node.name)]
        if hiding := hiding.difference(*(bindings_of(one).effects.reads for one in calls)) if calls else frozenset():
            written = member.text.rstrip("\n")
            text = text.replace(written, rename_local(written, own, hiding), 1)
    return text


def _with_own_accessors(text: str, child: ClassBlock, parent: ClassBlock, base: str) -> str:
    """The child's text with `@size.setter` for `@Parent.size.setter`, and `@show.register` alike: the parent's member stands
    above it in the generated class. A name that the child binds otherwise, too, stays.
    """
    if f"@{base}." not in text:
        return text
    names = "|".join(sorted(parent.binds))
    of_parent = re.compile(
        rf"^([ \t]*@){re.escape(base)}\.(({names})\.(?:register|setter|getter|deleter))\b", re.MULTILINE
    )
    often = Counter(found[2] for found in of_parent.findall(text))
    binders = {name: one.text for one in reversed(child.members) for name in one.binds}
    return of_parent.sub(
        lambda found: (
            found[0]
            if found[3] in binders and (often[found[3]] > 1 or not of_parent.match(binders[found[3]]))
            else found[1] + found[2]
        ),
        text,
    )


def _with_private_names_of(base: str, child_text: str, name: str) -> str:
    """The child's text in which private names of the parent, `_OldMLP__size`, are those of the generated class, but for names that
    the child has too.
    """
    own = {*PRIVATE_NAME.findall(child_text)}
    pattern = mangling(base.partition("[")[0].rpartition(".")[2])
    return re.sub(rf"{pattern}(\w+)", lambda one: one[0] if one[1] in own else name.lstrip("_") + one[1], child_text)


def _with_private_names(parent_text: str, child_text: str, name: str) -> str:
    """The parent's text in which the private names (`self.__x`) that the child has too are other ones: Python keeps those
    of two classes apart. `name` is that of both.
    """
    own, theirs = (set(PRIVATE_NAME.findall(text)) if "__" in text else set() for text in (child_text, parent_text))
    for private in sorted(own & theirs):
        numbered = (f"parents{number or ''}_{private[2:]}" for number in itertools.count())
        new = next(one for one in numbered if f"__{one}" not in own | theirs)
        parent_text = re.sub(rf"\b((?:_{name.lstrip('_')})?__){private[2:]}\b", rf"\g<1>{new}", parent_text)
    return parent_text


@functools.lru_cache(maxsize=512)  # a class is estimated, merged and converted as the parent of one heir
def rename_class(text: str, old: str, new: str, names: ModelNames) -> str:
    """The parent's text for a child with another name than the renamed parent. In code the class gets the child's name.
    In its strings and comments the stem before the common suffix of both names is replaced: for
    `Glm4vTextRotaryEmbedding(Glm4vRotaryEmbedding)`, `Glm4v` becomes `Glm4vText`.
    """
    suffix = common_suffix(old, new)
    old_stem, new_stem = old[: len(old) - len(suffix)], new[: len(new) - len(suffix)]
    if old_stem and new_stem:
        renamer = Renamer.between_models(names, names.lowercase(old_stem), names.lowercase(new_stem))
        renamer = replace(renamer, old_cased=old_stem)
        spans = [token[1:3] for token in lexer.tokens(text) if token.kind != "template"]
        text = lexer.replace_spans(text, [(*span, renamer.between(text, *span)) for span in spans])
    return rename_in_code(text, old, new)


def rename_in_code(text: str, old: str, new: str) -> str:
    """A text with another name for a class in its code, also where Python mangles a private name with it."""
    pattern = rf"\b{re.escape(old)}\b|{mangling(old)}"
    found = re.finditer(pattern, lexer.code_only(text))
    edits = ((*match.span(), new.lstrip("_") if text.startswith("__", match.end()) else new) for match in found)
    return lexer.replace_spans(text, edits)


def _decorators(child: ClassBlock, parent: ClassBlock) -> ClassSpan:
    """The child's decorators when it has any, else the parent's; `@no_inherit_decorator` alone means none."""
    own = child.node.decorator_list
    if len(own) == 1 and ast.unparse(own[0]) == NO_DECORATORS:
        return ClassSpan("")
    block = child if child.decorators else parent
    return taken(block.decorators, block is child, 1)


def _docstring(child: ClassBlock, parent: ClassBlock) -> ClassSpan:
    """The child's docstring, else the parent's; a string that stands alone further down in the class counts as docstring."""
    stray = next((member for member in child.members if is_docstring(member.node)), None)
    if stray is not None and not child.docstring:
        return stray.text_span
    block = child if child.docstring else parent
    return taken(block.docstring, block is child, block.body_line)


@dataclass(frozen=True)
class BuiltClass:
    """A class of the modular file as it is generated."""

    statement: Statement
    """As the modular file has it."""
    text: str
    lead: str
    uses: frozenset[str]
    neighbour: str = ""
    """`Neighbour.dotted` of its parent; "" without one."""
    parent: Statement | None = None
    """Its parent, renamed."""
    findings: tuple[Finding, ...] = ()
    """Findings about losses of the merge."""
    plan: tuple[ClassSpan, ...] = ()
    """Of a class with a parent: the pieces of `text`."""

    @property
    def name(self) -> str:
        return self.statement.name


def build_classes(neighbours: Neighbourhood, library: Library) -> Mapping[str, BuiltClass]:
    """Merge each class that has a neighbour parent with it; the others stay as written. In the file's order.

    Raises `ConversionError` with the overrides that cannot be merged.
    """
    built: dict[str, BuiltClass] = {}
    ancestors: dict[str, frozenset[str]] = {}
    for name, statement in neighbours.classes.items():
        library.note(name)
        found = neighbours.parent_of(statement)
        above = set(statement.bases)
        if found is not None:
            above |= {*neighbours.neighbours[found[1]].definitions[found[2]].bases}
        ancestors[name] = frozenset(above).union(*(ancestors.get(base, ()) for base in above))
        built[name] = (
            _merge(statement, found, ancestors, built, neighbours, library)
            if found
            else _as_written(statement, built, neighbours)
        )
    errors = [finding for one in built.values() for finding in one.findings if finding.is_error]
    if errors:
        raise ConversionError(*errors)
    return built


def _as_written(statement: Statement, built: Mapping[str, BuiltClass], neighbours: Neighbourhood) -> BuiltClass:
    """A class that is merged with none; words for a merge with the parent that stands beside it are written out."""
    parent = next((one for one in statement.bases if neighbours.resolution.apart.get(one) == statement.name), None)
    if parent is None or statement.uses.isdisjoint((SUPER_KWARGS, NO_DECORATORS)):
        return BuiltClass(statement, statement.text, statement.lead, statement.uses)
    text = written_beside(statement.text, parse_class(built[parent].text))
    return BuiltClass(statement, text, statement.lead, lexer.identifiers(text))


def _merge(
    statement: Statement,
    found: tuple[str, str, str],
    ancestors: Mapping[str, frozenset[str]],
    built: Mapping[str, BuiltClass],
    neighbours: Neighbourhood,
    library: Library,
) -> BuiltClass:
    base, dotted, parent_name = found
    definitions = neighbours.neighbours[dotted].definitions
    parent = definitions[parent_name]
    siblings = {name: built[name].text for name in statement.bases if name in built}
    renamed = {definitions.renamer.name(alias): name for alias, name in definitions.module.aliases.items()}
    added = AddedDecorators(library.settings.added_decorators, neighbours.target.module.aliases, renamed)
    classes = _Classes(base, dotted, built, neighbours, library)
    around = Surroundings(
        added,
        neighbours.target.module.names,
        siblings,
        ancestors,
        _in_front(statement, base, siblings, neighbours, library),
        _stays_generic(statement, base, definitions.original(parent_name).name, definitions.module),
        statement.name in neighbours.resolution.apart,
        classes.is_set_above,
        classes.bound_in,
        classes.hook_sets_attributes,
        classes.makes_otherwise,
        classes.has_method,
        classes.may_be_heir,
        classes.may_reach,
    )
    try:
        names = neighbours.target.names
        merged = merge_class(statement.text, parent.text, parent.name, base, names, library.settings, around)
    except SyntaxError as error:
        place = Location(neighbours.target.path, statement.line)
        reason = f"{error.msg}, as libcst reads this class or its parent"
        raise ConversionError(input_files.syntax_error(place, reason)) from None
    findings = tuple(_finding(finding, statement, neighbours.target.path) for finding in merged.findings)
    return BuiltClass(statement, merged.text, parent.lead, merged.uses, dotted, parent, findings, merged.plan)


def _in_front(
    statement: Statement, parent: str, siblings: Mapping[str, str], neighbours: Neighbourhood, library: Library
) -> Mapping[str, tuple[str | None, ...]]:
    """The bases in front of the parent, see `Surroundings`."""
    bases = statement.bases[: statement.bases.index(parent)] if parent in statement.bases else ()
    if not bases:
        return {}
    lineage = functools.partial(library.resolver.lineage, module=neighbours.target.module)
    above = {one.name for one in lineage(parent) if one is not None}
    found: dict[str, tuple[str | None, ...]] = {}
    for base in bases:
        classes = [*lineage(base)]
        front = [one for one in classes if one is None or one.name not in above]
        texts = tuple(None if one is None else one.text for one in front)
        # As it is generated, it has the members of its own parent.
        is_whole = base in siblings and len(front) == len(classes)
        found[base] = (siblings[base], *texts[1:]) if is_whole else texts
    return found


def _stays_generic(statement: Statement, base: str, parent: str, module: Module) -> bool:
    """See `Surroundings`: `class Pair(OldBox[tuple])` of a module whose `OldBox` a class inherits as `OldBox[int]`."""
    if f"{base}[" not in statement.text:
        return False
    given = re.compile(rf"\b{re.escape(parent)}\[")
    return any(parent in one.uses and one.name != parent and given.search(one.text) for one in module.statements)


@dataclass(frozen=True)
class _Classes:
    """The classes around an heir and its parent: in the generated file, and elsewhere. See `Surroundings`."""

    parent: str
    """As the heir writes it."""
    dotted: str
    """The parent's module."""
    built: Mapping[str, BuiltClass]
    neighbours: Neighbourhood
    library: Library

    def _in_file(self, name: str) -> ClassBlock | None:
        """A class of the generated file: of the modular file, or of the parent's module; None for one from elsewhere."""
        definitions = self.neighbours.neighbours[self.dotted].definitions
        if name in self.built:
            return parse_class(self.built[name].text)
        is_theirs = name in definitions and definitions.role(name) is Role.CLASS
        return parse_class(definitions[name].text) if is_theirs else None

    def _naming(self, base: str) -> Module:
        """The module that names a base from elsewhere: the parent's, or else the modular file."""
        own, theirs = self.neighbours.target.module, self.neighbours.neighbours[self.dotted].neighbour.module
        first = base.partition(".")[0]
        return theirs if first in theirs.names and first not in own.names else own

    def _lineage(self, name: str) -> Iterator[tuple[str, ClassBlock | None]]:
        """A class and its ancestors, each once, as far as the generated file has them; with None one from elsewhere."""
        waiting, seen = [name], set[str]()
        while waiting:
            name = waiting.pop().partition("[")[0]
            if name not in seen:
                seen.add(name)
                block = self._in_file(name)
                yield name, block
                waiting += reversed(block.bases) if block is not None else ()

    def bound_in(self, name: str) -> frozenset[str] | None:
        """The names that a class of the generated file and its ancestors there bind; None for a class from elsewhere."""
        found = [block.binds for _, block in self._lineage(name) if block is not None]
        return frozenset().union(*found) if found else None

    def hook_sets_attributes(self, name: str, unlike: frozenset[str]) -> bool | None:
        """Whether the `__init_subclass__` of a class and its ancestors does nothing else, as far as they can be read, and the
        same for the parent and its heir, where the keywords `unlike` differ in more than their value; None without one.
        """
        found: list[tuple[Member, bool]] = []
        for base, block in self._lineage(name):
            module = self._naming(base)
            above = [*self.library.resolver.lineage(base, module)] if block is None else []
            if None in above and self.library.resolver.may_bind(base, module, INIT_SUBCLASS):
                return False
            blocks = [parse_class(one.text) for one in above if one is not None] if block is None else [block]
            found += ((one, block is None) for each in blocks for one in each.members)
        hooks = [
            (one.function, elsewhere) for one, elsewhere in found if one.is_function and INIT_SUBCLASS in one.binds
        ]
        return all(_only_sets(hook, unlike, elsewhere) for hook, elsewhere in hooks) if hooks else None

    def makes_otherwise(self, metaclass: str) -> bool:
        """Whether a metaclass may do something where a class is made."""
        return self.library.resolver.makes_otherwise(metaclass, self._naming(metaclass))

    def may_reach(self, base: str, attribute: str) -> bool:
        """Whether a base, or an ancestor of it, is a class from elsewhere that binds a name or cannot be read."""
        elsewhere = (one for one, block in self._lineage(base) if block is None and one != "object")
        return any(self.library.resolver.may_bind(one, self._naming(one), attribute) for one in elsewhere)

    def has_method(self, base: str, method: str) -> bool:
        """Whether a base from elsewhere, or one of its ancestors, has a method, as far as they can be read."""
        above = self.library.resolver.lineage(base, self._naming(base), f"def {method}(")
        return any(one is not None and method in names_in_class(one.text) for one in above)

    def may_be_heir(self, base: str, above: str) -> bool:
        """Whether a base from elsewhere has an ancestor that the parent names so, renamed or not, or one that cannot be read."""
        rename = self.neighbours.neighbours[self.dotted].definitions.renamer.name
        found = self.library.resolver.lineage(base, self._naming(base))
        name = above.rpartition(".")[2]
        return any(one is None or name in (one.name, rename(one.name)) for one in found)

    def is_set_above(self, method: str, attribute: str) -> bool:
        """Whether a method of the ancestors of the parent, as far as these can be read, sets an attribute, renamed or not."""
        taken = self.neighbours.resolution.taken[self.parent]
        renamed = self.neighbours.neighbours[taken.neighbour]
        module, rename = renamed.neighbour.module, renamed.definitions.renamer.name
        uses = module.definitions[taken.name].uses
        for name in sorted({attribute, *(name for name in uses if rename(name) == attribute)}):
            above = itertools.islice(self.library.resolver.lineage(taken.name, module, f".{name}"), 1, None)
            if any(one is not None and sets_attribute(one, method, name) for one in above):
                return True
        return False


def _only_sets(hook: Function, unlike: frozenset[str], elsewhere: bool) -> bool:
    """Whether a hook sets attributes alone, or enters the class in a table of another file, which has the parent too."""
    statements = [one for one in hook.body if not is_super_statement(one, INIT_SUBCLASS)]
    effects = bindings_of(*statements).effects
    targets: list[ast.expr] = []
    for one in statements:
        enters = elsewhere and not any(isinstance(it, ast.Attribute) for part in walk(one) for it in targets_of(part))
        if isinstance(one, ast.If) and (enters or _is_decided_alike(one.test, unlike)):
            statements += (*one.body, *one.orelse)
        elif isinstance(one, ast.Assign):
            targets += (part for target in one.targets for part in getattr(target, "elts", [target]))
        elif not is_docstring(one):
            return False
    tables = {dotted(one.value) for one in targets if isinstance(one, ast.Subscript)} if elsewhere else set[str]()
    set_ = (one for one in targets if not isinstance(one, ast.Subscript) or not elsewhere)
    return effects.changes <= tables and all(isinstance(one, ast.Attribute) and dotted(one) for one in set_)


def _is_decided_alike(test: ast.expr, unlike: frozenset[str]) -> bool:
    """Whether a condition asks for nothing but the truth of names, and whether they are None, except those in `unlike`."""
    asking = (ast.Name, ast.Constant, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.Compare, ast.Is, ast.IsNot)
    nodes = walk(test)
    are_plain = all(isinstance(one, asking) for one in nodes)
    return are_plain and unlike.isdisjoint(one.id for one in nodes if isinstance(one, ast.Name))


def sets_attribute(statement: Statement, method: str, attribute: str) -> bool:
    """Whether a method of a class sets an attribute of its first parameter."""
    if f"def {method}(" not in statement.text or attribute not in statement.uses:
        return False
    functions = (node for node in class_node(statement.text).body if isinstance(node, ast.FunctionDef))
    return any(function.name == method and attribute in attributes_set(function) for function in functions)


def _finding(finding: ClassFinding, statement: Statement, path: str) -> Finding:
    """A finding with its place in the modular file."""
    try:
        place = locate(path, finding.node, statement.text, statement.line - 1)
    except IndexError:  # the class was re-indented before it was parsed
        place = Location(path, statement.line)
    return replace(finding.finding, location=place)
