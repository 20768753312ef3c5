"""A method merged with the one of the parent: two bodies in one."""

from __future__ import annotations

from modular_converter.findings import Finding, Fix, Location, Rule
from modular_converter.rules._words import not_mergeable, remove_statement


OVERRIDE_NOT_MERGEABLE = Rule(
    "MC204",
    "override-not-mergeable",
    "an override cannot be merged with the parent's code without a change of its meaning",
)


def returns_before(location: Location, method: str) -> Finding:
    """The parent's `return` within a block skips a line of the child."""
    return not_mergeable(
        OVERRIDE_NOT_MERGEABLE, location, method, f"the parent's `{method}` may return before this statement"
    )


def assigned_often(location: Location, method: str, target: str, times: int) -> Finding:
    """The child's assignment reads what it assigns to, and would take the place of several."""
    reason = f"the parent assigns `{target}` {times} times, and each would become this statement"
    return not_mergeable(OVERRIDE_NOT_MERGEABLE, location, method, reason)


def other_kind(location: Location, method: str, *, parent_waits: bool) -> Finding:
    """One of the two methods is a coroutine, and the other is not, or does not wait for it."""
    kind = "a coroutine" if parent_waits else "no coroutine"
    cure = f"Write `async def {method}` and `await super().{method}(…)` where the parent's is a coroutine."
    return not_mergeable(OVERRIDE_NOT_MERGEABLE, location, method, f"the parent's `{method}` is {kind}", cure)


def generator(location: Location, method: str, *, of_parent: bool) -> Finding:
    """One of the two methods yields, and the call needs the object that it returns."""
    reason = f"the parent's `{method}` is a generator"
    if not of_parent:
        reason = f"it is a generator, but the parent's `{method}` is not"
    return not_mergeable(OVERRIDE_NOT_MERGEABLE, location, method, reason)


def too_deep(location: Location, method: str) -> Finding:
    """An expression that Python parses, but whose tree is too deep to be written out recursively."""
    reason = "an expression of it, or of the parent's method, is nested too deeply"
    return not_mergeable(
        OVERRIDE_NOT_MERGEABLE,
        location,
        method,
        reason,
        "Write the expression as several statements, each with a part of it.",
    )


def unknown_syntax(location: Location, method: str, message: str) -> Finding:
    """Syntax that this Python parses and libcst does not."""
    reason = f"libcst does not know its syntax, or that of the parent's method ({message})"
    cure = "Write it in the syntax of an earlier Python, or install a newer libcst."
    return not_mergeable(OVERRIDE_NOT_MERGEABLE, location, method, reason, cure)


LOCAL_NAME_OF_BOTH = Rule(
    "MC211", "local-name-of-both", "a local name would mean something else where two methods are one"
)


def assigned_by_both(location: Location, method: str, name: str) -> Finding:
    """The child reads below the call what it has assigned above it, and the parent's lines assign to the name."""
    cure = f"Give your `{name}` another name."
    return not_mergeable(
        LOCAL_NAME_OF_BOTH, location, method, f"the parent's lines assign to a local `{name}` too", cure
    )


def hides_module(location: Location, method: str, name: str) -> Finding:
    """The parent's lines have a local name that the child's read from the module."""
    reason = f"this line reads the `{name}` of your module, and the parent's lines have a local `{name}`"
    return not_mergeable(LOCAL_NAME_OF_BOTH, location, method, reason)


def hides_module_of_parent(location: Location, method: str, name: str) -> Finding:
    """The child has a local name that the parent's lines read from their module."""
    reason = f"the parent's lines use a `{name}` of their module, and your method has a local `{name}`"
    return not_mergeable(LOCAL_NAME_OF_BOTH, location, method, reason, f"Give your `{name}` another name.")


def made_global(location: Location, method: str, name: str) -> Finding:
    """The child declares a name global that is local to the parent's method."""
    reason = f"your method declares `{name}` global, and the parent's lines have a local `{name}`"
    return not_mergeable(LOCAL_NAME_OF_BOTH, location, method, reason)


def bound_below(location: Location, method: str, name: str) -> Finding:
    """A line of the child reads a name that only the parent's lines bind, below its place."""
    return not_mergeable(
        LOCAL_NAME_OF_BOTH, location, method, f"this line would stand above the line that binds `{name}`"
    )


def captured(location: Location, method: str, name: str) -> Finding:
    """An inner function of one method reads a name to which lines of the other assign below it."""
    reason = f"an inner function reads `{name}`, and both the parent's lines and yours assign to it"
    return not_mergeable(LOCAL_NAME_OF_BOTH, location, method, reason, f"Give your `{name}` another name.")


def sees_all(location: Location, method: str, function: str) -> Finding:
    """A call such as `locals()` sees the names of the method around it."""
    return not_mergeable(
        LOCAL_NAME_OF_BOTH,
        location,
        method,
        f"`{function}()` would see the local names of both methods",
        "Write the method out.",
    )


SEVERAL_ASSIGNMENTS_REPLACED = Rule(
    "MC316",
    "several-assignments-replaced",
    "an assignment behind `super()` takes the place of several, of one in another method, or of an object set up below",
)


def several_assignments_replaced(location: Location, target: str, written_in: str, replaced_in: str) -> Finding:
    """`target` is what both assign to; the other two are methods, which may be the same."""
    several = f"several assignments in the parent's `{replaced_in}`"
    where = several if written_in == replaced_in else f"the assignment in the parent's `{replaced_in}`, too"
    return SEVERAL_ASSIGNMENTS_REPLACED.finding(
        location,
        f"this assignment to `{target}` replaces {where}",
        help=f"Use another name than `{target}`, or write the lines of the parent's `{replaced_in}` out.",
    )


def set_up_below(location: Location, target: str, statement: str) -> Finding:
    """`statement` is the parent's, behind its assignment to `target`."""
    first, rest = statement.partition("\n")[::2]
    return SEVERAL_ASSIGNMENTS_REPLACED.finding(
        location,
        f"the parent's `{first}{'…' if rest else ''}` below changes your `{target}` too",
        help="Undo that in a line behind yours if you do not want it, or write the parent's lines out.",
    )


def set_again_at_end(location: Location, path: str, last: str) -> Finding:
    """`last` is the parent's statement that moves to the end of the merged `__init__`, behind a line that changes `path`."""
    return SEVERAL_ASSIGNMENTS_REPLACED.finding(
        location,
        f"the parent's `{last}` moves behind this line, and may set `{path}` again",
        help=f"Write the line into a method that `{last}` calls, such as `_init_weights`.",
    )


SHARED_LOCAL_NAME = Rule(
    "MC321", "shared-local-name", "a line of an override reads a local name that the parent's lines have too"
)


def shared_local_name(location: Location, name: str, state: str, method: str) -> Finding:
    """`state` says how the name differs, for `method`, from the value that the line was written for."""
    return SHARED_LOCAL_NAME.finding(
        location,
        f"in the merged `{method}`, the `{name}` that this line reads {state}",
        help=f"Use another name than `{name}`, assign it above the call, or write the parent's lines out.",
    )


def read_by_parent(location: Location, name: str, statement: str, method: str) -> Finding:
    """`statement` is a line of the parent that reads the child's local `name`, which takes the place of its own."""
    first, rest = statement.partition("\n")[::2]
    return SHARED_LOCAL_NAME.finding(
        location,
        f"in the merged `{method}`, the parent's `{first}{'…' if rest else ''}` reads this `{name}` in place of its own",
        help=f"Use another name than `{name}` if only your lines shall read it.",
    )


STATEMENT_NOT_REPEATED = Rule(
    "MC322", "statement-not-repeated", "a statement behind `super()` is in the parent's lines too, and is not repeated"
)


def statement_not_repeated(location: Location, statement: str) -> Finding:
    """`statement` is the text of the statement."""
    first, rest = statement.partition("\n")[::2]
    return STATEMENT_NOT_REPEATED.finding(
        location,
        f"`{first}{'…' if rest else ''}` is among the parent's lines, and is not repeated",
        help="Leave it out, or write it in another way if it is to run twice.",
    )


def fix_statement_not_repeated(text: str, finding: Finding) -> Fix | None:
    """Leave the statement out: the generated file has it once already."""
    return remove_statement(text, finding, "Remove the statement")
