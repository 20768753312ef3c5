"""Members that a class removes: by `del self.x`, `x = AttributeError()`, or a method that raises."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import SIMILAR, Edit, Finding, Fix, Rule, Severity, did_you_mean, nearest, split_lines
from modular_converter.model.nodes import walk
from modular_converter.model.overriding import only_raises
from modular_converter.rules._words import at, remove_statement, subject


if TYPE_CHECKING:
    from modular_converter.facts import Facts, GeneratedDefinition
    from modular_converter.model.class_blocks import Method


REMOVE_UNKNOWN_ATTRIBUTE = Rule(
    "MC202", "remove-unknown-attribute", "`x = AttributeError()` names an attribute that the parent does not have"
)


def check_remove_unknown_attribute(facts: Facts) -> Iterator[Finding]:
    """Find removals of names that neither the parent nor an ancestor of it binds.

    Where the source of an ancestor cannot be read, a name is taken for misspelt if it is close to one that is known.
    """
    for heir, parent in facts.heirs:
        removals = list(heir.members.removals) if "= AttributeError(" in heir.text else []
        known, is_certain = facts.attributes_of(parent) if removals else (frozenset[str](), True)
        for target in removals:
            name = target.id
            if name not in known and (is_certain or nearest(name, known, SIMILAR)):
                lacks = f"has no attribute `{name}`" if is_certain else f"defines no `{name}`"
                yield REMOVE_UNKNOWN_ATTRIBUTE.finding(
                    facts.at_node(heir, target),
                    f"`{name} = AttributeError()` removes nothing: `{parent.original}` {lacks}",
                    help=did_you_mean(name, known)
                    + f"Correct the name or drop the line. An instance attribute is removed by `del self.{name}`.",
                    severity_override=None if is_certain else Severity.WARNING,
                )


DEL_UNKNOWN_ATTRIBUTE = Rule(
    "MC303", "del-unknown-attribute", "`del self.x` names an attribute that the parent does not assign"
)


def check_del_unknown_attribute(facts: Facts) -> Iterator[Finding]:
    """Find `del self.x` behind a replaced `super()` call whose method in the parent does not assign `self.x`.

    A `del` that the generated method still has removes the attribute of a base, or one that is set in a block.
    """
    for heir, parent in facts.heirs:
        for method in heir.members.methods if "del " in heir.text else ():
            inherited = parent.members.by_name.get(method.name)
            if inherited is None:
                continue
            assigned = inherited.assigned
            for target in method.deletions:
                above = (node for node in method.node.body if node.lineno < target.lineno)
                name, is_set = target.attr, any(target.attr in method.assigned_by(node) for node in above)
                if (name in assigned and not is_set) or _is_deleted(target, facts.generated[heir.name], method):
                    continue
                message = f"`del self.{name}` removes nothing: `{parent.written}.{method.name}` does not assign it"
                cure = did_you_mean(name, assigned) + "Correct the name, or drop the line."
                if name in assigned:
                    message = f"`del self.{name}` takes the parent's assignment away, but yours above it stays"
                    cure = f"Drop your assignment to `self.{name}`, or the `del`."
                yield DEL_UNKNOWN_ATTRIBUTE.finding(facts.at_node(heir, target), message, help=cure)


def _is_deleted(target: ast.Attribute, generated: GeneratedDefinition, method: Method) -> bool:
    """Whether the generated method still has a `del` of an attribute."""
    found = generated.members.by_name.get(method.name)
    nodes = walk(found.node) if found is not None else ()
    removed = {ast.unparse(one) for node in nodes if isinstance(node, ast.Delete) for one in node.targets}
    return ast.unparse(target) in removed


def fix_del_unknown_attribute(text: str, finding: Finding) -> Fix | None:
    """Drop a `del` that removes nothing, unless its name is only misspelt."""
    if "removes nothing" not in finding.message or finding.help.startswith("Did you mean"):
        return None
    line = split_lines(text)[finding.location.line - 1]
    is_alone = line.partition("#")[0].strip() == f"del {subject(finding).removeprefix('del ')}"
    return remove_statement(text, finding, "Remove the `del`") if is_alone else None


DEL_STILL_READ = Rule("MC304", "del-still-read", "`del self.x` while another method still reads `self.x`")


def check_del_still_read(facts: Facts) -> Iterator[Finding]:
    """Find removed attributes that methods of the generated class read and nothing visible binds any more."""
    for heir, parent in facts.heirs:
        for method in heir.members.methods if "del " in heir.text else ():
            inherited = parent.members.by_name.get(method.name)
            assigned = inherited.assigned if inherited else set()
            for target in method.deletions:
                readers = _readers(facts, heir.name, target.attr) if target.attr in assigned else ()
                if readers:
                    listed = ", ".join(f"`{reader}`" for reader in readers)
                    yield DEL_STILL_READ.finding(
                        facts.at_node(heir, target),
                        f"`self.{target.attr}` is deleted, but `{heir.name}` still reads it in {listed}",
                        help=f"Override {listed} without `self.{target.attr}`, or keep the attribute.",
                    )


def _readers(facts: Facts, name: str, attribute: str) -> tuple[str, ...]:
    """The methods of a generated class that read an attribute which neither it nor a visible ancestor binds."""
    generated = facts.generated[name]
    if attribute not in generated.text or any(members.binds(attribute) for members in facts.lineage(name)):
        return ()
    methods = generated.members.methods
    return tuple(dict.fromkeys(method.name for method in methods if method.reads(attribute)))


STUB_STILL_CALLED = Rule(
    "MC305", "stub-still-called", "a raising stub removes a method that the generated file still calls"
)


def check_stub_still_called(facts: Facts) -> Iterator[Finding]:
    """Find methods that a raising stub has removed and that the generated file still calls."""
    for heir, parent in facts.heirs:
        for method in heir.members.methods if "raise " in heir.text else ():
            if not only_raises(method.node) or not parent.defines(method.name):
                continue
            is_kept = facts.generated[heir.name].defines(method.name)
            callers = () if is_kept else _callers(facts, heir.name, method.name)
            if callers:
                listed = ", ".join(f"`{caller}`" for caller in callers)
                yield STUB_STILL_CALLED.finding(
                    facts.at(method.name, heir.line + method.node.lineno - 1),
                    f"`{heir.name}.{method.name}` is removed by a raising stub, but {listed} still calls it",
                    help=f"Override {listed} without the call, or keep `{method.name}`.",
                )


def _callers(facts: Facts, name: str, method: str) -> tuple[str, ...]:
    """The methods of a class and its heirs in the same file that call a method which no class of the file defines for
    them.
    """
    found: dict[str, None] = {}
    definitions = facts.file_of(name).values()
    if not any(f"self.{method}(" in one.text for one in definitions):
        return ()
    for one in definitions:
        lineage = list(facts.lineage(one.name)) if one.is_class else []
        if not any(members.node.name == name for members in lineage):
            continue
        if not any(method in members.by_name for members in lineage):
            found.update((f"{one.name}.{caller.name}", None) for caller in one.members.methods if caller.calls(method))
    return tuple(found)


STUB_STAYS = Rule(
    "MC317", "stub-stays", "a raising stub does not remove the parent's method, but takes its place", unsafe_fix=True
)


def check_stub_stays(facts: Facts) -> Iterator[Finding]:
    """Find overrides that only raise an `AttributeError`, and that the generated class still has."""
    for heir, parent in facts.heirs:
        for method in heir.members.methods if "raise AttributeError" in heir.text else ():
            generated = facts.generated[heir.name]
            if method.is_stub and parent.defines(method.name) and generated.defines(method.name):
                yield STUB_STAYS.finding(
                    facts.at(method.name, heir.line + method.node.lineno - 1),
                    f"the generated `{heir.name}.{method.name}` raises: this stub does not remove the parent's method",
                    help="Put one blank line above it, and the docstring of the class or another member between it and "
                    "`class`. The stub itself may have no docstring.",
                )


def fix_stub_stays(text: str, finding: Finding) -> Fix | None:
    """Put a blank line above a stub that stands directly below another member."""
    number = finding.location.line
    lines = split_lines(text)
    above = lines[number - 2].strip() if number > 1 else ""
    if not above or above.startswith(("@", "#")) or above.endswith(":"):
        return None
    return Fix("Put a blank line above the stub", (Edit(number, 1, number, 1, "\n"),))


REMOVAL_WITHOUT_CALL = Rule(
    "MC330",
    "removal-without-call",
    "`x = AttributeError` lacks the parentheses with which it removes `x`",
    unsafe_fix=True,
)


def check_removal_without_call(facts: Facts) -> Iterator[Finding]:
    """Find attributes of heirs that are assigned the class `AttributeError`."""
    for heir, _ in facts.heirs:
        for target in heir.members.named_exceptions if "= AttributeError" in heir.text else ():
            yield REMOVAL_WITHOUT_CALL.finding(
                facts.at_node(heir, target),
                f"`{target.id} = AttributeError` does not remove `{target.id}`: its value is the exception class",
                help=f"Write `{target.id} = AttributeError()`.",
            )


def fix_removal_without_call(text: str, finding: Finding) -> Fix | None:
    """Write the parentheses."""
    line = split_lines(text)[finding.location.line - 1]
    column = line.find("AttributeError", finding.location.column) + len("AttributeError")
    place = at(text, finding.location.line, len(line[:column].encode()))
    edit = Edit(*place, *place, "()")
    return Fix(f"Remove `{subject(finding).split()[0]}`", (edit,))
