"""Generated texts that would fail when they are imported."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule


UNDEFINED_NAME = Rule(
    "MC313", "undefined-name", "generated code uses a name that it neither defines nor imports", became_error=True
)


def undefined_name(
    location: Location, name: str, place: str, cure: str, *, later: int = 0, is_own: bool = False
) -> Finding:
    """`place` names the definition and the line of the generated file, `cure` says what to write.

    Args:
        later: the line of that file in which the name is defined, further down; 0 for none.
        is_own: whether it is the name of the definition itself.
    """
    fault = f" above its definition in line {later}" if later else ", which is neither defined nor imported there"
    if is_own:
        fault = " before it is defined"
    return UNDEFINED_NAME.finding(location, f"{place} uses `{name}`{fault}", help=cure)


INVALID_RESULT = Rule("MC501", "invalid-result", "the generated code is not valid Python")


def invalid_result(location: Location, reason: str, place: str) -> Finding:
    """`reason` is Python's own; `place` names the definition and the line of the generated file."""
    return INVALID_RESULT.finding(
        location,
        f"the generated code is not valid Python: {reason}, in {place}",
        help="Write out the method that is merged or renamed there. `--formatter none --diff` shows the text.",
    )


TYPING_ONLY_NAME = Rule("MC502", "typing-only-name", "generated code reads a name that only type checkers import")


def typing_only_name(location: Location, name: str, place: str) -> Finding:
    """`place` names the definition and the line of the generated file."""
    return TYPING_ONLY_NAME.finding(
        location,
        f"{place} reads `{name}` when it is imported, but only type checkers import `{name}`",
        help=f'Write `from __future__ import annotations` at the top, or the annotation as "{name}", in quotes.',
    )


MISSING_IN_SIBLING = Rule(
    "MC505", "missing-in-sibling", "a generated file imports a name that its sibling does not have"
)


def missing_in_sibling(
    location: Location, name: str, module: str, place: str, *, parent: tuple[str, str] | None = None
) -> Finding:
    """`module` is the sibling, `.configuration_new`; `place` names the definition and line of the generated file.

    `parent` is what `name` was before renaming, with its module, where a neighbour imports it.
    """
    define = f"Define `{name}` in the modular file"
    if parent and name[:1].isupper() and not name.isupper():  # a class, and no constant
        define += f" (`from {parent[0]} import {parent[1]}`, `class {name}({parent[1]})`)"
    return MISSING_IN_SIBLING.finding(
        location,
        f"{place} imports `{name}` from `{module}`, which does not have it",
        help=f"{define}, or override what uses it.",
    )


def circular(location: Location, name: str, file: str) -> Finding:
    """`file` needs the class `name`, and the file with the class needs classes of `file`: neither can come first."""
    return MISSING_IN_SIBLING.finding(
        location,
        f"{file} would import `{name}` from a file that imports from {file}: the import fails",
        help=f"Take `{name}` out of the classes of {file}: only one of the two files can import from the other.",
    )
