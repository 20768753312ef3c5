"""MC334: decorators of two classes that one class cannot combine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.class_blocks import ClassBlock
from modular_converter.model.overriding import NO_DECORATORS
from modular_converter.rules._examples import examples, modeling_old
from modular_converter.rules._merging import WRITE_OUT, fields_of, listed


if TYPE_CHECKING:
    from modular_converter.facts import TwoClasses


KEYWORD_ONLY, MARKER = "kw_only", "KW_ONLY"
COMPARED, FROZEN = "order", "frozen"
MADE = ("init", "repr", "eq", "match_args")
"""The options of a dataclass that are on by default; if the child turns one off, the parent's methods stay."""
MAKE_METHODS = ("total_ordering",)
"""The decorators of classes, beside `@dataclass`, from which the class has methods that an heir needs."""

RULE = Rule(
    code="MC334",
    name="class-decorators",
    severity=Severity.WARNING,
    summary="a decorator of the class counts for both classes, or only for one",
    explanation="""\
`@dataclass` of your class counts for the parent's fields too, and the parent's options (`kw_only`, `order`, `frozen`)
are gone. Where your class has decorators, the parent's are gone altogether, and with them the methods that
`@total_ordering` has made.

Repeat the parent's decorators and options, or write the class out.
""",
    examples=examples(
        modeling_old("""\
import dataclasses


@dataclasses.dataclass(order=True)
class OldMLP:
    width: int = 16
"""),
        bad="""\
from ..old.modeling_old import OldMLP


@dataclasses.dataclass
class NewMLP(OldMLP):
    depth: int = 2


__all__ = ["NewMLP"]
""",
        good="""\
from ..old.modeling_old import OldMLP


@dataclasses.dataclass(order=True)
class NewMLP(OldMLP):
    depth: int = 2


__all__ = ["NewMLP"]
""",
    ),
    formerly="MC323",
)


def decorator_differs(location: Location, effect: str, cure: str) -> Finding:
    """`effect` describes how the one `@dataclass` of the generated class differs from two."""
    return Finding(RULE, location, f"`@dataclass` {effect}, which inheritance would not do", help=cure)


def decorator_replaced(location: Location, decorator: str) -> Finding:
    """The child's class has decorators of its own, and the methods that one of the parent's made are gone."""
    return Finding(
        RULE,
        location,
        f"`@{decorator}` of the parent is replaced by your decorators, and what it makes is gone",
        help=f"Write `@{decorator}` above your class too.",
    )


def compare(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find decorators of the two classes that one class cannot combine."""
    yield from _dataclasses(classes.child, classes.parent)
    own = [ast.unparse(one) for one in classes.child.node.decorator_list]
    for decorator in classes.parent.node.decorator_list if own else ():
        text = ast.unparse(decorator)
        if text.rpartition(".")[2] in MAKE_METHODS and text not in own:
            yield finding_at(classes.child.node, decorator_replaced, text)


def _dataclasses(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """The decorator `@dataclass`: that of the child counts for the fields of both.

    A child without decorators has the parent's, and its annotations become fields, as in the corpus (aria).
    """
    own, theirs = _options(child), _options(parent)
    if own is None and theirs is None:
        return
    fields, inherited = fields_of(child), fields_of(parent)
    place = child.node
    if theirs is None:
        if own is not None and inherited:
            cure = "Write the class out, and annotate only its fields."
            yield finding_at(place, decorator_differs, f"makes fields of the parent's {listed(inherited)}", cure)
    elif own is None:
        if inherited and child.node.decorator_list:
            cure = WRITE_OUT if _has_no_decorators(child) else "Add `@dataclass` to your decorators."
            yield finding_at(place, decorator_differs, "of the parent is replaced by your decorators", cure)
    else:
        yield from _check_options(child, own, theirs, fields, inherited, _has_marker(parent))


def _has_no_decorators(child: ClassBlock) -> bool:
    return [ast.unparse(one) for one in child.node.decorator_list] == [NO_DECORATORS]


def _check_options(
    child: ClassBlock,
    own: dict[str, str],
    theirs: dict[str, str],
    fields: frozenset[str],
    inherited: frozenset[str],
    has_marker: bool,
) -> Iterator[ClassFinding]:
    """The options of two dataclasses that one dataclass cannot combine."""
    if own.get(KEYWORD_ONLY, "False") != theirs.get(KEYWORD_ONLY, "False") and inherited - fields:
        value = own.get(KEYWORD_ONLY, "False")
        cure = f"Write `@dataclass({KEYWORD_ONLY}={theirs.get(KEYWORD_ONLY, 'False')})`, or write the class out."
        yield finding_at(
            child.node, decorator_differs, f"applies `{KEYWORD_ONLY}={value}` to the parent's fields too", cure
        )
    elif has_marker and fields - inherited:
        cure = WRITE_OUT
        yield finding_at(child.node, decorator_differs, f"applies the parent's `{MARKER}` to your fields too", cure)
    for option in (COMPARED, FROZEN):
        if theirs.get(option, "False") != "False" and own.get(option, "False") == "False":
            cure = f"Write `@dataclass({option}={theirs[option]})`."
            yield finding_at(child.node, decorator_differs, f"drops the parent's `{option}={theirs[option]}`", cure)
    for option in MADE:
        if own.get(option, "True") == "False" and theirs.get(option, "True") != "False":
            cure = f"Leave `{option}=False` out, or write the method out."
            yield finding_at(
                child.node, decorator_differs, f"has `{option}=False`, and drops what the parent's makes", cure
            )


def _options(block: ClassBlock) -> dict[str, str] | None:
    """The options of a class's `@dataclass`; None without one."""
    for decorator in block.node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called).rpartition(".")[2] == "dataclass":
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else ()
            return {keyword.arg or "**": ast.unparse(keyword.value) for keyword in keywords}
    return None


def _has_marker(block: ClassBlock) -> bool:
    """Whether a field of type `KW_ONLY` divides the fields of a dataclass."""
    return any(
        isinstance(member.node, ast.AnnAssign) and ast.unparse(member.node.annotation).endswith(MARKER)
        for member in block.members
    )
