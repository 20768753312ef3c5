"""Which annotations need `from __future__ import annotations`: Python itself is the oracle."""

from __future__ import annotations

import ast
import sys

import pytest

from modular_converter.model.module import needs_postponed


NEEDING = [
    "class A:\n    def f(self) -> A: ...\n",
    "def f(x: B): ...\n\n\nclass B: ...\n",
    "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from io import BytesIO\n\ndef f(x: BytesIO): ...\n",
    'def f(x: "A" | None): ...\n',
    "class A:\n    x: B = None\n\n\nclass B: ...\n",
]
PLAIN = [
    'class A:\n    def f(self) -> "A": ...\n',
    "class B: ...\n\n\ndef f(x: B | None): ...\n",
    "def f():\n    def g() -> A: ...\n\n\nclass A: ...\n",
    'def f(x: list["A"] | None): ...\n',
    "if True:\n    class B: ...\nelse:\n    B = None\n\n\ndef f(x: B): ...\n",
]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="3.14 evaluates annotations when they are asked for")
@pytest.mark.parametrize(("text", "needs"), [(one, True) for one in NEEDING] + [(one, False) for one in PLAIN])
def test_annotations_that_fail_where_they_are_evaluated_need_it(text: str, needs: bool) -> None:
    assert needs_postponed(ast.parse(text)) is needs
    exec(compile(f"from __future__ import annotations\n{text}", "<with>", "exec", dont_inherit=True), {})
    if needs:
        with pytest.raises((NameError, TypeError)):
            exec(compile(text, "<without>", "exec", dont_inherit=True), {})
    else:
        exec(compile(text, "<without>", "exec", dont_inherit=True), {})
