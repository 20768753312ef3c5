"""MC301: `super().m()` where the parent has no `m` of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP, examples, new_mlp


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC301",
    name="super-call-not-in-parent",
    severity=Severity.WARNING,
    summary="`super().m()` where the parent does not define `m` itself",
    explanation="""\
The body of the parent's `m` replaces a statement `super().m(…)`. This parent inherits `m` and does not define it, so
it has no body to copy. The call stays, and in the generated class it reaches the parent's bases, as it would in
Python.

If you want the method of a base, name the base: `nn.Module.m(self, …)`. Otherwise check the name of the method.
""",
    examples=examples(
        OLD_MLP,
        bad=new_mlp("""\
    def extra_repr(self):
        return super().extra_repr()
"""),
        good="""\
from torch import nn

from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def extra_repr(self):
        return nn.Module.extra_repr(self)


__all__ = ["NewMLP"]
""",
    ),
)


def diagnose(location: Location, method: str, parent: str) -> Finding:
    """`parent` is the neighbour class that inherits `method` or lacks it."""
    return Finding(
        RULE,
        location,
        f"`super().{method}()` stays as it is: `{parent}` does not define `{method}` itself",
        help=f"Name the class whose `{method}` you want, as in `Base.{method}(self, …)`, or check the name.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find calls of a method's own name on `super()` where the parent has no such method."""
    for heir, parent in facts.heirs:
        for method in heir.members.methods if "super(" in heir.text else ():
            for call in method.super_calls:
                if call.method == method.name and not parent.defines(call.method):
                    yield diagnose(facts.at_node(heir, call.node), call.method, parent.written)
