"""Calls on an explicit base, `Base.method(self, …)`, which keep the parent's code out of an override."""

from __future__ import annotations

from collections.abc import Container

import libcst as cst
from libcst.helpers import get_full_name_for_node


class CallSuper(cst.CSTTransformer):
    """Writes `super().method(…)` for `Base.method(self, …)` where both call the same method. It is used on a method's
    body.

    Calls in inner functions, lambdas, comprehensions and classes stay: `super()` finds no instance there.
    """

    def __init__(self, method: str, reached: Container[str], instance: str) -> None:
        """`reached` holds the bases that `super()` reaches, `instance` is the name of the method's first parameter."""
        super().__init__()
        self.method, self.reached, self.instance = method, reached, instance

    def _stay_out(self, node: cst.CSTNode) -> bool:
        return False

    visit_FunctionDef = visit_Lambda = visit_ClassDef = _stay_out
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _stay_out

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        function = updated_node.func
        if not isinstance(function, cst.Attribute) or function.attr.value != self.method:
            return updated_node
        if _dotted(function.value) not in self.reached:
            return updated_node
        first = updated_node.args[0] if updated_node.args else None
        if first is not None and not first.star and first.keyword is None and _dotted(first.value) == self.instance:
            # The white space around it is removed with it, comments included.
            no_space = cst.SimpleWhitespace("")
            updated_node = updated_node.with_changes(args=updated_node.args[1:], whitespace_before_args=no_space)
        return updated_node.with_changes(func=function.with_changes(value=cst.Call(cst.Name("super"))))


def _dotted(node: cst.BaseExpression) -> str:
    """`a.b.c` as text, or "" for any other expression."""
    inner = node
    while isinstance(inner, cst.Attribute):
        inner = inner.value
    return (get_full_name_for_node(node) or "") if isinstance(inner, cst.Name) else ""
