"""MC315: an argument of `super().m(…)` that does not reach the parent's code."""

from __future__ import annotations

from collections.abc import Sequence

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, new_mlp, old_mlp


RULE = Rule(
    code="MC315",
    name="super-argument-ignored",
    severity=Severity.WARNING,
    summary="an argument of `super().m(…)` differs from the name that the parent's code will read",
    explanation="""\
The parent's lines take the place of the call, and there they read your method's own parameters and variables. An
argument that is anything else than the name of the parent's parameter has no effect where your method has a name of
that kind. Where it has none, the converter writes the assignment `name = argument` for you. A parameter that the call
leaves out does not get the parent's default, but your value of that name. So it is with `*args` and `**kwargs`. An
argument that the parent's method does not take, for which Python would raise a `TypeError`, is dropped.

Assign the value to that name before the call, and pass it: with one tuple assignment (`q, k = k, q`) where arguments
read each other's names.
""",
    examples=examples(
        old_mlp("""\
    def __init__(self, config, bias=False):
        super().__init__()
        self.up_proj = nn.Linear(8, 8, bias=bias)
"""),
        bad=new_mlp("""\
    def __init__(self, config, bias=False):
        super().__init__(config, bias=not bias)
        self.size = 8
"""),
        good=new_mlp("""\
    def __init__(self, config, bias=False):
        bias = not bias
        super().__init__(config, bias=bias)
        self.size = 8
"""),
    ),
)


def diagnose(
    location: Location, method: str, parameter: str, argument: str, assignment: str, passed: Sequence[str]
) -> Finding:
    """`argument` is the text given for the parent's `parameter`. It would reach the parent with `assignment` above a
    call that passes `passed`: one tuple for arguments that read each other's names.
    """
    names = ", ".join(f"`{name}`" for name in passed)
    return Finding(
        RULE,
        location,
        f"`{argument}` does not reach the parent's `{method}`: its lines read your `{parameter}`",
        help=f"Write `{assignment}` above the call, and pass {names}.",
    )


def not_passed(location: Location, method: str, parameter: str) -> Finding:
    """The call leaves `parameter`, which has its stars, to the parent's default, or passes nothing more."""
    name = parameter.lstrip("*")
    passed = parameter if name != parameter else f"{name}={name}"
    return Finding(
        RULE,
        location,
        f"the call does not pass `{parameter}`, but the lines of the parent's `{method}` read your `{name}`",
        help=f"Pass `{passed}`, or give your `{name}` another name.",
    )


def not_taken(location: Location, method: str, argument: str) -> Finding:
    """The parent's method has no parameter for `argument`."""
    return Finding(
        RULE,
        location,
        f"`{argument}` is dropped: the parent's `{method}` does not take it, and the call would fail with inheritance",
        help="Leave it out, or correct the name of its parameter.",
    )
