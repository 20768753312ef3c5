"""MC316: an assignment behind `super()` that replaces more of the parent's lines than it says."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, new_mlp, old_mlp


RULE = Rule(
    code="MC316",
    name="several-assignments-replaced",
    severity=Severity.WARNING,
    summary="an assignment behind `super()` takes the place of several, of one in another method, or of an object set up below",
    explanation="""\
An assignment behind a `super()` call takes the place of the parent's assignment to the same name. Where the parent
assigns that name more than once, each becomes your statement. It also counts in later methods of the class that
call `super()`.

The parent's lines below go on with your object: `self.places.requires_grad_(False)` freezes your embedding too, where
inheritance would leave it as you made it, and `self.tokenizer.decoder = decoder` gives your tokenizer this decoder.
(Where a line fills the object, as `self.layers.append(…)` does, your assignment stays behind the parent's lines.)

Use another name if you mean a value of your own, or write the parent's lines out.
""",
    examples=examples(
        old_mlp("""\
    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        self.up_proj = nn.Linear(size, size)
        size = 2 * config.hidden_size
        self.down_proj = nn.Linear(size, size)
"""),
        bad=new_mlp("""\
    def __init__(self, config):
        super().__init__(config)
        size = 16
"""),
        good=new_mlp("""\
    def __init__(self, config):
        super().__init__(config)
        self.size = 16
"""),
    ),
)


def diagnose(location: Location, target: str, written_in: str, replaced_in: str) -> Finding:
    """`target` is what both assign to; the other two are methods, which may be the same."""
    several = f"several assignments in the parent's `{replaced_in}`"
    where = several if written_in == replaced_in else f"the assignment in the parent's `{replaced_in}`, too"
    return Finding(
        RULE,
        location,
        f"this assignment to `{target}` replaces {where}",
        help=f"Use another name than `{target}`, or write the lines of the parent's `{replaced_in}` out.",
    )


def set_up_below(location: Location, target: str, statement: str) -> Finding:
    """`statement` is the parent's, behind its assignment to `target`."""
    first, rest = statement.partition("\n")[::2]
    return Finding(
        RULE,
        location,
        f"the parent's `{first}{'…' if rest else ''}` below changes your `{target}` too",
        help="Undo that in a line behind yours if you do not want it, or write the parent's lines out.",
    )
