"""MC304: `del self.x` while the class still reads `self.x`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, new_mlp, old_mlp


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC304",
    name="del-still-read",
    severity=Severity.WARNING,
    summary="`del self.x` while another method still reads `self.x`",
    explanation="""\
The assignment of `self.x` is gone from the generated class, but a method that it inherits still reads `self.x` and
would fail with an `AttributeError` when it is called.

Override that method too, without the attribute, or keep the attribute.
""",
    examples=examples(
        old_mlp("""\
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(8, 8)
        self.dropout = nn.Dropout()

    def forward(self, hidden_states):
        return self.dropout(self.up_proj(hidden_states))
"""),
        bad=new_mlp("""\
    def __init__(self, config):
        super().__init__(config)
        del self.dropout
"""),
        good=new_mlp("""\
    def __init__(self, config):
        super().__init__(config)
        del self.dropout

    def forward(self, hidden_states):
        return self.up_proj(hidden_states)
"""),
    ),
)


def diagnose(location: Location, attribute: str, name: str, readers: tuple[str, ...]) -> Finding:
    """`readers` are the methods of the generated class `name` that still read `self.<attribute>`."""
    listed = ", ".join(f"`{reader}`" for reader in readers)
    return Finding(
        RULE,
        location,
        f"`self.{attribute}` is deleted, but `{name}` still reads it in {listed}",
        help=f"Override {listed} without `self.{attribute}`, or keep the attribute.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find removed attributes that methods of the generated class read and nothing visible binds any more."""
    for heir, parent in facts.heirs:
        for method in heir.members.methods if "del " in heir.text else ():
            inherited = parent.members.by_name.get(method.name)
            assigned = inherited.assigned if inherited else set()
            for target in method.deletions:
                readers = _readers(facts, heir.name, target.attr) if target.attr in assigned else ()
                if readers:
                    yield diagnose(facts.at_node(heir, target), target.attr, heir.name, readers)


def _readers(facts: Facts, name: str, attribute: str) -> tuple[str, ...]:
    """The methods of a generated class that read an attribute which neither it nor a visible ancestor binds."""
    generated = facts.generated[name]
    if attribute not in generated.text or any(members.binds(attribute) for members in facts.lineage(name)):
        return ()
    methods = generated.members.methods
    return tuple(dict.fromkeys(method.name for method in methods if method.reads(attribute)))
