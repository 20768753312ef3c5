"""MC203: `**super_kwargs` where no parent method gives its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity, did_you_mean
from modular_converter.model.members import SUPER_KWARGS
from modular_converter.rules._examples import examples, new_mlp, old_mlp


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC203",
    name="super-kwargs-without-parent",
    severity=Severity.ERROR,
    summary="`**super_kwargs` in a method that the parent does not define",
    explanation="""\
`**super_kwargs` in the signature of an override stands for the parameters of the parent's method of that name. The
parent itself does not define this method, so there are no parameters to insert.

Write the parameters out, use an ordinary `**kwargs`, or correct the name of the method.
""",
    examples=examples(
        old_mlp("""\
    def forward(self, hidden_states, scale=1.0):
        return scale * hidden_states
"""),
        bad=new_mlp("""\
    def rescale(self, hidden_states, **super_kwargs):
        return hidden_states
"""),
        good=new_mlp("""\
    def forward(self, hidden_states, **super_kwargs):
        return 2 * scale * hidden_states
"""),
    ),
)


def diagnose(location: Location, method: str, parent: str, *, candidates: Iterable[str] = ()) -> Finding:
    """`parent` is "" for a class without a neighbour parent; `candidates` are the methods that it does define."""
    lacking = f"`{parent}` does not define it" if parent else "the class has no neighbour parent"
    return Finding(
        RULE,
        location,
        f"`{method}` takes `**super_kwargs`, but {lacking}",
        help=did_you_mean(method, candidates) + "Write its parameters out, or use an ordinary `**kwargs`.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find methods with `**super_kwargs` that the parent does not define."""
    for one in facts.classes.values():
        for method in one.members.methods if SUPER_KWARGS in one.text else ():
            parameter, parent = method.super_kwargs, one.parent
            if parameter is None or (parent and parent.defines(method.name)):
                continue
            written, candidates = (parent.written, parent.members.by_name) if parent else ("", {})
            yield diagnose(facts.at_node(one, parameter), method.name, written, candidates=candidates)
