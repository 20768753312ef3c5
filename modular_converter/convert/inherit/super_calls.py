"""Overrides: `super()` calls are replaced by the parent's body, into which the child's statements are merged."""

from __future__ import annotations

import ast
from dataclasses import replace

from modular_converter.convert.inherit.base_calls import call_super_for_bases
from modular_converter.convert.inherit.blocks import Block, Part, method_block
from modular_converter.convert.inherit.signature import merge_signature
from modular_converter.settings.values import Settings


def merge_method(
    child_part: Part, parent_part: Part, bases: list[str], overrides: dict[str, Part], settings: Settings
) -> Part:
    """The child's method with what it takes from the parent's: decorators, docstring, signature, body.

    Args:
        bases: the bases of the generated class.
        overrides: the assignments, by target, that the child made behind `super()` calls so far; extended here.
    """
    child, parent = method_block(child_part), method_block(parent_part)
    merged = replace(
        child,
        decorators=inherited_decorators(child, parent),
        header=merge_signature(child, parent),
        docstring=child.docstring or parent.docstring,
        parts=tuple(_merge_statements(child, parent, overrides, settings.last_statement)),
    )
    text = call_super_for_bases(merged.render(), child.node.name, bases, settings)
    return replace(child_part, lead=parent_part.lead, text=text)


def inherited_decorators(child: Block, parent: Block) -> tuple[str, ...]:
    """The child's decorators when it has any, else the parent's; `@no_inherit_decorator` alone means none."""
    if [decorator.strip() for decorator in child.decorators] == ["@no_inherit_decorator"]:
        return ()
    return child.decorators or parent.decorators


def _merge_statements(child: Block, parent: Block, overrides: dict[str, Part], last: str) -> list[Part]:
    """The child's body with its first `super().<same method>(…)` statement replaced by the parent's body."""
    method = child.node.name
    calls = [number for number, part in enumerate(child.parts) if is_super_statement(part.node, method)]
    if not calls:
        return list(child.parts)
    before, after = list(child.parts[: calls[0]]), child.parts[calls[0] + 1 :]
    inherited = [part.indented(child.parts[calls[0]].column) for part in parent.parts]
    if inherited and parent.footer.strip():
        inherited[-1] = replace(inherited[-1], text=inherited[-1].text + parent.footer)
    if before and method == "__init__" and inherited and is_super_statement(inherited[0].node, method):
        before.insert(0, inherited.pop(0))
    merged = before + _merge_behind(inherited, after, overrides)
    if method == "__init__":
        # Moved, not only kept last: what follows it in the parent would run after the weights are initialised.
        merged.sort(key=lambda part: _is_statement(part, last))
        while len(merged) > 1 and _is_statement(merged[-2], last):
            del merged[-2]
    return merged


def is_super_statement(node: ast.stmt, method: str) -> bool:
    """Whether this is `super().method(…)` or `return super().method(…)`."""
    value = node.value if isinstance(node, (ast.Expr, ast.Return)) else None
    return super_call(value) == method


def super_call(node: ast.AST | None) -> str:
    """The method that `super().method(…)` calls; "" for any other expression."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Call)
        and isinstance(node.func.value.func, ast.Name)
        and node.func.value.func.id == "super"
    ):
        return node.func.attr
    return ""


def _merge_behind(inherited: list[Part], after: tuple[Part, ...], overrides: dict[str, Part]) -> list[Part]:
    """Merge what the child says behind its `super()` call into the parent's statements.

    Assignments replace the parent's in place, `del` removes them, a statement that is there is not repeated, and the
    rest is appended.
    """
    removed = {target for part in after for target in deleted_targets(part)}
    overrides.update({assigned_target(part): part for part in after if assigned_target(part)})
    merged = [overrides.get(assigned_target(part), part) for part in inherited if assigned_target(part) not in removed]
    there = {part.normal for part in merged} if after else set()
    for part in after:
        if part.normal not in there and not deleted_targets(part):
            merged.append(part)
            there.add(part.normal)
    return merged


def assigned_target(part: Part) -> str:
    """The (first) target of an assignment, as text; "" for any other statement."""
    node = part.node
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else ""


def deleted_targets(part: Part) -> list[str]:
    """The targets of a `del` statement, as text."""
    return [ast.unparse(target) for target in part.node.targets] if isinstance(part.node, ast.Delete) else []


def _is_statement(part: Part, text: str) -> bool:
    return part.text.strip().startswith(text) and part.normal == text
