"""Merge a class of the modular file with its renamed parent."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from modular_converter.convert.inherit.bases import ClassShape, class_header, merge_bases, replaced_base
from modular_converter.convert.inherit.merge_members import merge_members
from modular_converter.convert.inherit.prefix import common_suffix
from modular_converter.convert.inherit.taken import pieces_of
from modular_converter.convert.source.names import ModelNames
from modular_converter.convert.source.rename import Renamer
from modular_converter.facts import Surroundings, TwoClasses
from modular_converter.findings import ClassFinding, finding_at
from modular_converter.model import lexer
from modular_converter.model.class_blocks import ClassBlock, ClassPiece, Member, changes_below, parse_class
from modular_converter.model.index import is_docstring
from modular_converter.model.overriding import (
    NO_DECORATORS,
    AddedDecorators,
    calls_base,
    inherited_decorators,
)
from modular_converter.rules import class_comparisons, merged_bodies
from modular_converter.settings.values import Settings


if TYPE_CHECKING:  # libcst is imported late
    from modular_converter.convert.inherit.statements import Overrides

PRIVATE_NAME = re.compile(r"\b__[^\W\d]\w*(?<!__)\b")
"""An identifier that Python mangles with the name of the class."""
COMMENT_BEFORE_PARAMETERS = re.compile(r"def \w+[^\n(]*\(\s*#")


@dataclass(frozen=True)
class Merged:
    """A generated class."""

    text: str
    findings: tuple[ClassFinding, ...] = ()
    pieces: tuple[ClassPiece, ...] = ()
    """Where the lines of `text` come from."""

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
) -> Merged:
    """The generated class.

    Args:
        child_text: the class of the modular file.
        parent_text: the class of the neighbour, renamed.
        parent_name: its name in that text.
        parent_base: the base, as the child writes it, that `parent_text` stands for.
        around: what stands around the two classes; None for nothing but the decorators of the settings.
    """
    around = around or Surroundings(AddedDecorators(settings.added_decorators))
    child = parse_class(child_text)
    if child.node.name != parent_name:
        parent_text = rename_class(parent_text, parent_name, child.node.name, names)
    parent = parse_class(_with_private_names(parent_text, child_text, child.node.name))
    if child.docstring:  # it is the class's `__doc__`, which an assignment of the parent would replace
        parent = replace(parent, members=tuple(one for one in parent.members if one.binds != {"__doc__"}))
    bases = merge_bases(child, parent, parent_base, around.ancestors, settings.implied_bases)
    replaced = {base: replaced_base(base, parent.bases) for base in child.bases}
    classes = TwoClasses(child, parent, parent_base, bases, replaced, around, settings.model_base)
    if classes.given_in_front:
        kept = (one for one in parent.members if one.binds.isdisjoint(classes.given_in_front))
        parent = replace(parent, members=tuple(kept))
        classes = replace(classes, parent=parent)
    findings = [finding for compare in class_comparisons() for finding in compare(classes)]
    merger = _MethodMerger(ClassShape(classes, settings), {}, findings)
    members = merge_members(child, parent, merger.override, merger.new, around.added)
    decorators = _decorators(child, parent)
    docstring = _docstring(child) or parent.docstring
    body = "".join([docstring, *(member.render() for member in members)]) or "    pass\n"
    header = class_header(child, parent, bases)
    inherited = [change for change in changes_below(parent_text) if child.leaves(change)]
    changes = (inherited, changes_below(child_text))
    below = "".join(change.text for some in changes for change in some)
    pieces = pieces_of(child, parent, (decorators, header, docstring), members, changes)
    return Merged(f"{decorators}{header}{body}{below}", tuple(merger.findings), pieces)


@dataclass(frozen=True)
class _MethodMerger:
    """Merges the methods of one class; libcst is imported for the first that needs it."""

    shape: ClassShape
    overrides: Overrides
    findings: list[ClassFinding]

    def override(self, child: Member, parent: Member) -> Member:
        """A method that the parent has too."""
        if not self._takes_from(child, parent):
            return replace(child, lead=parent.lead)
        from modular_converter.convert.inherit.override import merge_override

        return self._unless_deep(
            child, lambda: merge_override(child, parent, self.shape, self.overrides, self.findings)
        )

    def new(self, child: Member) -> Member:
        """A method that the parent does not have."""
        if not calls_base(child.text, child.function.name):
            return child
        from modular_converter.convert.inherit.override import call_super_for_bases

        reached = self.shape.reached_by(child.function.name)
        return self._unless_deep(child, lambda: call_super_for_bases(child, reached, self.findings))

    def _unless_deep(self, child: Member, merge: Callable[[], Member]) -> Member:
        """The merged method; if it is nested too deeply for libcst, the child's own with a finding."""
        try:
            return merge()
        except RecursionError:
            self.findings.append(finding_at(child.node, merged_bodies.too_deep, child.function.name))
            return child

    def _takes_from(self, child: Member, parent: Member) -> bool:
        """Whether an override takes anything from the parent's method, or has calls to rewrite."""
        own, inherited = child.function, parent.function
        return (
            "super" in child.text  # `**super_kwargs` too
            or NO_DECORATORS in child.text
            or COMMENT_BEFORE_PARAMETERS.search(child.text) is not None
            or COMMENT_BEFORE_PARAMETERS.search(parent.text) is not None
            or calls_base(child.text, child.function.name)
            or (own.returns is None and inherited.returns is not None)
            or bool(inherited_decorators(own, inherited, self.shape.around.added))
            or (not is_docstring(own.body[0]) and is_docstring(inherited.body[0]))
        )


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
    found = re.finditer(rf"\b{re.escape(old)}\b", lexer.code_only(text))
    return lexer.replace_spans(text, ((*match.span(), new) for match in found))


def _decorators(child: ClassBlock, parent: ClassBlock) -> str:
    """The child's decorators when it has any, else the parent's; `@no_inherit_decorator` alone means none."""
    own = child.node.decorator_list
    if len(own) == 1 and ast.unparse(own[0]) == NO_DECORATORS:
        return ""
    return child.decorators or parent.decorators


def _docstring(child: ClassBlock) -> str:
    """The child's docstring; a string that stands alone further down in the class counts as docstring."""
    stray = (member.text for member in child.members if is_docstring(member.node))
    return child.docstring or next(stray, "")
