"""MC309: a public class that `__all__` does not name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Edit, Finding, Fix, Location, Rule, Severity, split_lines
from modular_converter.rules._edits import at, exports, subject
from modular_converter.rules._examples import configuration_old, examples, modeling_old


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts


RULE = Rule(
    code="MC309",
    name="missing-from-all",
    severity=Severity.WARNING,
    summary="a public class is missing from `__all__`",
    explanation="""\
The package exports the names in `__all__`. This class is not in the `__all__` of the modular file, so users cannot
import it from the package, although its parent is in the `__all__` of its own file, or it is a model for a task
(`NewForTagging`). A modular file without any `__all__` is reported once, at its first such class.

Add its name to `__all__`.
""",
    examples=examples(
        configuration_old("""\
class OldConfig:
    hidden_size: int = 8


__all__ = ["OldConfig"]
"""),
        modeling_old("""\
from torch import nn


class OldModel(nn.Module):
    def forward(self, hidden_states):
        return hidden_states


__all__ = ["OldModel"]
"""),
        bad="""\
from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldModel


class NewConfig(OldConfig):
    hidden_size: int = 16


class NewModel(OldModel):
    pass


__all__ = ["NewConfig"]
""",
        good="""\
from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldModel


class NewConfig(OldConfig):
    hidden_size: int = 16


class NewModel(OldModel):
    pass


__all__ = ["NewConfig", "NewModel"]
""",
    ),
)


def diagnose(location: Location, name: str, public: tuple[str, ...] = ()) -> Finding:
    """`name` is the class. Where the file has no `__all__`, `public` are all classes that belong there."""
    if not public:
        message, cure = f"public class `{name}` is missing from `__all__`", f'Add `"{name}"` to `__all__`.'
    else:
        message = f"public class `{name}` is exported by no file: the modular file has no `__all__`"
        names = ", ".join(f'"{one}"' for one in public)
        cure = f"Write `__all__ = [{names}]` at the end of the file."
    return Finding(RULE, location, message, help=cure)


def check(facts: Facts) -> Iterator[Finding]:
    """Find classes that `__all__` lacks, and that are heads or whose parents are exported by their own files."""
    missing = (one for one in facts.classes.values() if one.name not in facts.exported)
    public = [one for one in missing if _is_public(one, facts)]
    if facts.exported:
        yield from (diagnose(facts.at_class(one), one.name) for one in public)
    elif public and "__all__" not in facts.source and _library_exports(facts):
        yield diagnose(facts.at_class(public[0]), public[0].name, tuple(one.name for one in public))


def _library_exports(facts: Facts) -> bool:
    """Whether a neighbour has an `__all__`; without one it does not matter, if there are no neighbours."""
    neighbours = [one.parent.neighbour for one in facts.classes.values() if one.parent is not None]
    return not neighbours or any(map(facts.exports_of, neighbours))


def _is_public(one: ClassFacts, facts: Facts) -> bool:
    if one.name.startswith("_"):
        return False
    is_exported = one.parent is not None and one.parent.original in facts.exports_of(one.parent.neighbour)
    return is_exported or _is_head(one.name, facts)


def _is_head(name: str, facts: Facts) -> bool:
    """Whether a class is named for a task, and is a model: an ancestor is the base of all models."""
    if not re.search(r"For[A-Z]", name):
        return False
    bases = (base for members in facts.lineage(name) for base in members.base_names)
    return any(base.endswith(facts.model_base) for base in bases)


def fix(text: str, finding: Finding) -> Fix | None:
    """Add the name at the end of `__all__`."""
    found = exports(text)
    if found is None or not found[0]:
        return None
    name, last = subject(finding), found[0][-1]
    line = split_lines(text)[last.lineno - 1]
    margin = line[: len(line) - len(line.lstrip())]
    is_alone = line.lstrip()[:1] in ("'", '"')
    if is_alone and "#" in line:  # the comment speaks of the last name, and would stand behind the new one
        return None
    place = at(text, last.end_lineno or 0, last.end_col_offset or 0)
    separator = f",\n{margin}" if is_alone else ", "
    edit = Edit(*place, *place, f'{separator}"{name}"')
    return Fix(f"Add `{name}` to `__all__`", (edit,), changes_generated=True)
