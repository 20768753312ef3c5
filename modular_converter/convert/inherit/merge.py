"""Build a class from its renamed parent and what the modular file says of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace

from modular_converter.convert.inherit.base_calls import call_super_for_bases
from modular_converter.convert.inherit.blocks import Block, Part, parse_block
from modular_converter.convert.inherit.prefix import common_suffix
from modular_converter.convert.inherit.super_calls import inherited_decorators, merge_method
from modular_converter.convert.source import lexer
from modular_converter.convert.source.index import is_docstring
from modular_converter.convert.source.names import ModelNames
from modular_converter.convert.source.rename import Renamer
from modular_converter.settings.values import Settings


def merge_class(
    child_text: str, parent_text: str, parent_name: str, parent_base: str, names: ModelNames, settings: Settings
) -> str:
    """The text of the generated class.

    Args:
        child_text: the class of the modular file.
        parent_text: the class of the neighbour, renamed.
        parent_name: its name in that text.
        parent_base: the base, as the child writes it, that `parent_text` stands for.
    """
    child = parse_block(child_text)
    if child.node.name != parent_name:
        parent_text = rename_class(parent_text, parent_name, child.node.name, names)
    parent = parse_block(parent_text)
    bases = merge_bases(child, parent, parent_base, settings.implied_bases)
    merged = replace(
        child,
        decorators=inherited_decorators(child, parent),
        header=_class_header(child, parent, bases),
        docstring=_docstring(child) or parent.docstring,
        parts=tuple(_merge_body(child, parent, bases, settings)),
        footer="",
    )
    return merged.render()


def rename_class(text: str, old: str, new: str, names: ModelNames) -> str:
    """The parent's text for a child that is not called as the parent's renaming would have it.

    The class takes its name in code. In its strings and comments the rest of the names before their common suffix
    gives way: for `Glm4vTextRotaryEmbedding(Glm4vRotaryEmbedding)`, `Glm4v` becomes `Glm4vText`.
    """
    suffix = common_suffix(old, new)
    old_stem, new_stem = old[: len(old) - len(suffix)], new[: len(new) - len(suffix)]
    if old_stem and new_stem:
        renamer = Renamer.between_models(names, names.lowercase(old_stem), names.lowercase(new_stem))
        renamer = replace(renamer, old_cased=old_stem)
        spans = [token[1:3] for token in lexer.tokens(text) if token.kind != "template"]
        text = _replace_spans(text, [(*span, renamer.between(text, *span)) for span in spans])
    code = lexer.code_only(text)
    found = re.finditer(rf"\b{re.escape(old)}\b", code)
    return _replace_spans(text, [(*match.span(), new) for match in found])


def _replace_spans(text: str, edits: list[tuple[int, int, str]]) -> str:
    pieces: list[str] = []
    position = 0
    for start, end, replacement in edits:
        pieces += (text[position:start], replacement)
        position = end
    return "".join((*pieces, text[position:]))


def merge_bases(child: Block, parent: Block, parent_base: str, implied: Mapping[str, str]) -> list[str]:
    """The parent's bases, replaced and extended by the further bases of the child.

    A base of the child replaces the one that shares a capitalised suffix with it (`MyPreTrainedModel`,
    `PreTrainedModel`).

    Args:
        implied: base -> the base that it inherits from itself, which the class then does not list.
    """
    bases = [ast.unparse(base) for base in _class(parent).bases]
    for base in (ast.unparse(base) for base in _class(child).bases):
        if base == parent_base or base in bases:
            continue
        for position, inherited in enumerate(bases):
            if common_suffix(base, inherited)[:1].isupper():
                bases[position] = base
                break
        else:
            bases.append(base)
    inherited_too = {implied[base] for base in bases if base in implied}
    return [base for base in bases if base not in inherited_too]


def _class(block: Block) -> ast.ClassDef:
    assert isinstance(block.node, ast.ClassDef)
    return block.node


def _class_header(child: Block, parent: Block, bases: list[str]) -> str:
    keywords = [ast.unparse(keyword) for keyword in _class(child).keywords or _class(parent).keywords]
    arguments = ", ".join([*bases, *keywords])
    return f"class {child.node.name}({arguments}):\n" if arguments else f"class {child.node.name}:\n"


def _docstring(child: Block) -> Part | None:
    """The child's docstring; a string that stands alone further down in the class is taken for one."""
    stray = (replace(part, lead="") for part in child.parts if is_docstring(part.node))
    return child.docstring or next(stray, None)


def _merge_body(child: Block, parent: Block, bases: list[str], settings: Settings) -> list[Part]:
    """Attributes, then methods: the parent's in their order, overridden in place, then the child's new ones."""
    attributes = {attribute_key(part): part for part in parent.parts if not (part.is_function or says_nothing(part))}
    methods = {method_key(part): part for part in parent.parts if part.is_function}
    # Shared by the methods of a class, as the corpus has it (vivit): see docs/architecture.md.
    overrides: dict[str, Part] = {}
    for part in child.parts:
        if part.is_function:
            key = method_key(part)
            if key not in methods:
                methods[key] = replace(part, text=call_super_for_bases(part.text, part.function.name, bases, settings))
            elif is_raising_stub(part):
                del methods[key]
            else:
                methods[key] = merge_method(part, methods[key], bases, overrides, settings)
        elif not says_nothing(part):
            key = attribute_key(part)
            methods.pop(key, None)
            if is_removal(part):
                attributes.pop(key, None)
            else:
                attributes[key] = part
    return [*attributes.values(), *methods.values()]


def method_key(part: Part) -> str:
    """The name of a method; a setter or deleter is a method beside its property."""
    node = part.function
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "deleter"):
            return f"{node.name}.{decorator.attr}"
    return node.name


def attribute_key(part: Part) -> str:
    """The name that a class-level statement assigns or defines, or the statement itself."""
    node = part.node
    if isinstance(node, ast.ClassDef):
        return node.name
    targets = (
        node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    )
    return targets[0].id if targets and isinstance(targets[0], ast.Name) else part.normal


def says_nothing(part: Part) -> bool:
    """Whether a class-level statement carries nothing: `pass`, `...`, a stray expression."""
    return isinstance(part.node, (ast.Pass, ast.Expr))


def is_removal(part: Part) -> bool:
    """Whether this is `x = AttributeError(…)`."""
    value = getattr(part.node, "value", None)
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "AttributeError"


def is_raising_stub(part: Part) -> bool:
    """Whether a method does nothing but raise an error, which in a child means: the parent's method is gone.

    Only a plain stub counts: after a blank line (so not the first statement of the class), without decorators and
    docstring. Any other is an ordinary override, as the corpus has it (deepseek_vl, deepseek_ocr2).
    """
    first = part.function.body[0]
    raised = first.exc if isinstance(first, ast.Raise) else None
    return (
        part.lead.strip(" \t") == "\n"
        and not part.function.decorator_list
        and isinstance(raised, ast.Call)
        and isinstance(raised.func, ast.Name)
        and raised.func.id.endswith("Error")
    )
