"""MC309: a public class that `__all__` does not name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity


if TYPE_CHECKING:
    from modular_converter.facts.conversion import Facts


NEIGHBOURS = (
    (
        "models/old/configuration_old.py",
        """\
class OldConfig:
    hidden_size: int = 8


__all__ = ["OldConfig"]
""",
    ),
    (
        "models/old/modeling_old.py",
        """\
from torch import nn


class OldModel(nn.Module):
    def forward(self, hidden_states):
        return hidden_states


__all__ = ["OldModel"]
""",
    ),
)

RULE = Rule(
    code="MC309",
    name="missing-from-all",
    severity=Severity.WARNING,
    summary="a public class is missing from `__all__`",
    explanation="""\
The package exports the names in `__all__`. The parent of this class is in the `__all__` of its own file, but the class
is not in the `__all__` of the modular file, so users cannot import it from the package.

Add its name to `__all__`.
""",
    bad=(
        *NEIGHBOURS,
        (
            "models/new/modular_new.py",
            """\
from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldModel


class NewConfig(OldConfig):
    hidden_size: int = 16


class NewModel(OldModel):
    pass


__all__ = ["NewConfig"]
""",
        ),
    ),
    good=(
        *NEIGHBOURS,
        (
            "models/new/modular_new.py",
            """\
from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldModel


class NewConfig(OldConfig):
    hidden_size: int = 16


class NewModel(OldModel):
    pass


__all__ = ["NewConfig", "NewModel"]
""",
        ),
    ),
)


def diagnose(location: Location, name: str) -> Diagnostic:
    """`name` is the class."""
    return Diagnostic(
        RULE,
        location,
        f"public class `{name}` is missing from `__all__`",
        help=f'Add `"{name}"` to `__all__`.',
    )


def check(facts: Facts) -> Iterator[Diagnostic]:
    """Find classes that `__all__` lacks and whose parents are exported by their own files."""
    for heir, parent in facts.heirs if facts.exported else ():
        is_private = heir.name.startswith("_")
        if (
            not is_private
            and heir.name not in facts.exported
            and parent.original in facts.exports_of(parent.neighbour)
        ):
            yield diagnose(facts.at_class(heir), heir.name)
