"""Merge a class of the modular file with its renamed parent."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from dataclasses import dataclass, replace
from functools import cached_property

from modular_converter.convert.inherit.bases import ClassMerge, class_header, merge_bases, replaced_base
from modular_converter.convert.inherit.merge_members import merge_members
from modular_converter.convert.inherit.override import finish_new, merge_override
from modular_converter.convert.inherit.prefix import common_suffix
from modular_converter.convert.source.names import ModelNames
from modular_converter.convert.source.rename import Renamer
from modular_converter.facts import Surroundings, TwoClasses
from modular_converter.findings import ClassFinding
from modular_converter.model import lexer
from modular_converter.model.class_blocks import (
    INDENT,
    ClassBlock,
    ClassSpan,
    SourceLines,
    changes_below,
    parse_class,
    taken,
)
from modular_converter.model.index import is_docstring
from modular_converter.model.overriding import NO_DECORATORS, AddedDecorators
from modular_converter.rules import class_comparisons
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
        """Its text."""
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
) -> Merged:
    """The generated class.

    Args:
        child_text: the class of the modular file.
        parent_text: the class of the neighbour, renamed.
        parent_name: its name in that text.
        parent_base: the base that `parent_text` stands for, as the child writes it, without a subscript.
        around: what stands around the two classes; None for nothing but the decorators of the settings.
    """
    around = around or Surroundings(AddedDecorators(settings.added_decorators))
    child = parse_class(child_text)
    parent_base = next((one for one in child.bases if one.partition("[")[0] == parent_base), parent_base)
    if child.node.name != parent_name:
        parent_text = rename_class(parent_text, parent_name, child.node.name, names)
    parent = parse_class(_with_private_names(parent_text, child_text, child.node.name), is_own=False)
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
    merge = ClassMerge(classes, settings, findings)
    members = merge_members(
        child,
        parent,
        lambda own, inherited: merge_override(own, inherited, merge),
        lambda own: finish_new(own, merge),
        around.added,
    )
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
    return Merged(tuple(span for span in plan if span.text), tuple(findings))


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
