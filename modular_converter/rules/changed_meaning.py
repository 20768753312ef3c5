"""MC320: a name that has another meaning in generated code than where the code was written."""

from __future__ import annotations

from collections.abc import Sequence

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, modeling_old


RULE = Rule(
    code="MC320",
    name="changed-meaning",
    severity=Severity.WARNING,
    summary="a name means something else in generated code than where that code was written",
    explanation="""\
A generated file has one name space, but its code comes from several files. Where two of them give one name two
meanings, only one gets into the generated file: the other file's code then calls a function, inherits from a class or
reads a constant that it was not written for. Two neighbours with an `eager_attention_forward` each are the usual case.

Keep the two apart. Classes get other names when the modular file names the heirs of one neighbour with a prefix of
their own (`NewTextAttention`). A function or constant has to be written out in the modular file under another name,
and the method that uses it as well.
""",
    examples=examples(
        modeling_old("""\
from torch import nn


def scale(hidden_states):
    return hidden_states * 2


class OldMLP(nn.Module):
    def forward(self, hidden_states):
        return scale(hidden_states)
"""),
        (
            "models/other/modeling_other.py",
            """\
from torch import nn


def scale(hidden_states):
    return hidden_states / 1000


class OtherAttention(nn.Module):
    def forward(self, hidden_states):
        return scale(hidden_states)
""",
        ),
        bad="""\
from ..old.modeling_old import OldMLP
from ..other.modeling_other import OtherAttention


class NewMLP(OldMLP):
    pass


class NewAttention(OtherAttention):
    pass


__all__ = ["NewMLP", "NewAttention"]
""",
        good="""\
from ..old.modeling_old import OldMLP
from ..other.modeling_other import OtherAttention


def scale_down(hidden_states):
    return hidden_states / 1000


class NewMLP(OldMLP):
    pass


class NewAttention(OtherAttention):
    def forward(self, hidden_states):
        return scale_down(hidden_states)


__all__ = ["NewMLP", "NewAttention"]
""",
    ),
)


def diagnose(
    location: Location, name: str, users: Sequence[str], wanted: str, found: str, *, is_class: bool, naming: str = ""
) -> Finding:
    """`wanted` is the file or module whose `name` the `users` were written for, `found` the one that they would use.
    `naming` gives names for the heirs of `wanted`; "" if it is no neighbour, or has no heirs.
    """
    who = ", ".join(f"`{user}`" for user in users)
    if is_class and naming:
        cure = naming
    elif is_class:
        cure = "Begin the names of the classes from one of the two with another prefix, as in `class NewTextMLP(…)`."
    else:
        cure = f"Write `{name}` out in the modular file under another name, and override what uses it in {who}."
    message = f"the generated {who} would use `{name}` of {found}, not of {wanted} as written"
    return Finding(RULE, location, message, help=cure)


def displaced(location: Location, name: str, found: str) -> Finding:
    """The definition `name` of the neighbour `found` displaces the modular file's own from a generated file."""
    return Finding(
        RULE,
        location,
        f"`{name}` of the modular file is replaced by `{name}` of {found}, for which inherited code was written",
        help=f"Give yours another name, and override the code that has to use it in place of `{name}`.",
    )
