"""MC305: a removed method that is still called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, new_mlp, old_mlp


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC305",
    name="stub-still-called",
    severity=Severity.WARNING,
    summary="a raising stub removes a method that the generated file still calls",
    explanation="""\
An override that only raises (`raise AttributeError("…")`), behind a blank line, removes the parent's method from the
generated class. The generated file still calls it, so the call would fail, or reach a method of that name in a base
class.

Override the caller as well, or keep the method.
""",
    examples=examples(
        old_mlp("""\
    def rescale(self, hidden_states):
        return 2 * hidden_states

    def forward(self, hidden_states):
        return self.rescale(hidden_states)
"""),
        bad=new_mlp("""\
    is_scaled = False

    def rescale(self, hidden_states):
        raise AttributeError("not needed here")
"""),
        good=new_mlp("""\
    is_scaled = False

    def rescale(self, hidden_states):
        raise AttributeError("not needed here")

    def forward(self, hidden_states):
        return hidden_states
"""),
    ),
)


def diagnose(location: Location, method: str, name: str, callers: tuple[str, ...]) -> Finding:
    """`callers` are the methods (`Class.method`) of the generated file that still call `method` of class `name`."""
    listed = ", ".join(f"`{caller}`" for caller in callers)
    return Finding(
        RULE,
        location,
        f"`{name}.{method}` is removed by a raising stub, but {listed} still calls it",
        help=f"Override {listed} without the call, or keep `{method}`.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find methods that a raising stub has removed and that the generated file still calls."""
    for heir, parent in facts.heirs:
        for method in heir.members.methods if "raise " in heir.text else ():
            if not method.only_raises or not parent.defines(method.name):
                continue
            is_kept = facts.generated[heir.name].defines(method.name)
            callers = () if is_kept else _callers(facts, heir.name, method.name)
            if callers:
                place = facts.at(method.name, heir.line + method.node.lineno - 1)
                yield diagnose(place, method.name, heir.name, callers)


def _callers(facts: Facts, name: str, method: str) -> tuple[str, ...]:
    """The methods of a class and its heirs in the same file that call a method which no class of the file defines for
    them.
    """
    found: dict[str, None] = {}
    definitions = facts.file_of(name).values()
    if not any(f"self.{method}(" in one.text for one in definitions):
        return ()
    for one in definitions:
        lineage = list(facts.lineage(one.name)) if one.is_class else []
        if not any(members.node.name == name for members in lineage):
            continue
        if not any(method in members.by_name for members in lineage):
            found.update((f"{one.name}.{caller.name}", None) for caller in one.members.methods if caller.calls(method))
    return tuple(found)
