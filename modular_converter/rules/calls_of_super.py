"""Calls of the parent's method, and its parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule, did_you_mean, finding_at
from modular_converter.model.class_blocks import SUPER_KWARGS, Method
from modular_converter.model.nodes import dotted, super_attribute, super_method, walk, walk_until
from modular_converter.rules._words import not_mergeable


if TYPE_CHECKING:
    from modular_converter.facts import Facts, TwoClasses


SUPER_KWARGS_WITHOUT_PARENT = Rule(
    "MC203", "super-kwargs-without-parent", "`**super_kwargs` in a method that the parent does not define"
)


def check_super_kwargs_without_parent(facts: Facts) -> Iterator[Finding]:
    """Find methods with `**super_kwargs` that the parent does not define."""
    for one in facts.classes.values():
        beside = (facts.classes[name] for name in sorted(one.members.base_names & facts.classes.keys()))
        parent = one.parent or next((above.parent for above in beside if above.is_parent), None)
        for method in one.members.methods if SUPER_KWARGS in one.text else ():
            parameter = method.super_kwargs
            if parameter is None or (parent and parent.defines(method.name)):
                continue
            lacking = f"`{parent.written}` does not define it" if parent else "the class has no neighbour parent"
            yield SUPER_KWARGS_WITHOUT_PARENT.finding(
                facts.at_node(one, parameter),
                f"`{method.name}` takes `**super_kwargs`, but {lacking}",
                help=did_you_mean(method.name, parent.members.by_name if parent else ())
                + "Write its parameters out, or use an ordinary `**kwargs`.",
            )


PARAMETER_WITHOUT_VALUE = Rule(
    "MC210",
    "parameter-without-value",
    "the parent's lines read a parameter of their method for which the override has no value",
)


def no_value(location: Location, method: str, parameter: str) -> Finding:
    """The override has neither a name nor an argument for the parameter."""
    reason = f"the parent's lines read its parameter `{parameter}`, which has no value here"
    return not_mergeable(
        PARAMETER_WITHOUT_VALUE,
        location,
        method,
        reason,
        f"Add `{parameter}` to the parameters, or assign it above the call.",
    )


def unpacked(location: Location, method: str, parameter: str) -> Finding:
    """The value comes from `*args` or `**kwargs` of the call."""
    reason = f"the parent's lines read its parameter `{parameter}`, whose value is in an unpacked argument of the call"
    cure = (
        f"Write `**super_kwargs` in both places, which stands for the parent's parameters, or pass each argument by "
        f"itself in `super().{method}(…)`."
    )
    return not_mergeable(PARAMETER_WITHOUT_VALUE, location, method, reason, cure)


def bad_signature(location: Location, method: str, error: Exception) -> Finding:
    """A signature with `**super_kwargs` that cannot be completed."""
    reason = f"with the parent's parameters its signature is wrong: {error}"
    return not_mergeable(
        PARAMETER_WITHOUT_VALUE,
        location,
        method,
        reason,
        "Give the new parameters defaults, or write the whole signature.",
    )


SUPER_CALL_NOT_IN_PARENT = Rule(
    "MC301", "super-call-not-in-parent", "`super().m()` where the parent does not define `m` itself"
)


def compare_super_call_not_in_parent(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find calls on `super()` of what the parent has not: of the method's own name, if no base in front has it; of another
    one, if no base has it, but one of nearly the same name.
    """
    base = classes.base.partition("[")[0]
    theirs = {one.function.name for one in classes.parent.members if one.is_function}
    methods = [
        Method(one.function, classes.name) for one in classes.child.members if one.is_function and "super(" in one.text
    ]
    for caller, name, node in ((one.name, *call) for one in methods for call in one.super_calls):
        if name == caller and name not in theirs and not classes.around.gives_in_front(name):
            is_bound = name in classes.parent.binds
            yield finding_at(node, super_call_not_in_parent, name, base, is_bound=is_bound)
        elif name != caller and (meant := did_you_mean(name, classes.parent.binds)) and classes.reach_nothing(name):
            yield finding_at(node, nothing_reached, name, base, meant)


def nothing_reached(location: Location, name: str, parent: str, meant: str) -> Finding:
    """No base has the `name`, and the `parent` one that is spelt nearly so."""
    return SUPER_CALL_NOT_IN_PARENT.finding(
        location,
        f"`super().{name}()` reaches nothing: neither `{parent}` nor a base has a `{name}`",
        help=meant.strip(),
    )


def super_call_not_in_parent(location: Location, name: str, parent: str, *, is_bound: bool) -> Finding:
    """`is_bound` says that the `parent` has the `name`, in a way that has no second name."""
    reason = f": `{parent}` does not define `{name}` itself"
    cure = f"Name the class whose `{name}` you want, as in `Base.{name}(self, …)`, or check the name."
    if is_bound:
        reason = (
            f", and reaches no `{name}` of `{parent}`, which is bound otherwise than by `def`, or under a condition"
        )
        cure = f"Write what `{name}` of `{parent}` does into yours."
    return SUPER_CALL_NOT_IN_PARENT.finding(location, f"`super().{name}()` stays as it is{reason}", help=cure)


SUPER_OF_A_CLASS = re.compile(r"super\s*\(\s*[^)\s]")

SUPER_CALL_NOT_A_STATEMENT = Rule(
    "MC302", "super-call-not-a-statement", "`super().m()` is part of another statement, so it is not replaced"
)


def super_call_not_a_statement(location: Location, method: str, parent: str, *, is_call: bool = True) -> Finding:
    """`parent` is the neighbour class whose `method` the author meant to call, or to read as an attribute."""
    written = f"super().{method}{'()' if is_call else ''}"
    cure = f", or make the call a statement: `super().{method}(…)`" if is_call else ""
    return SUPER_CALL_NOT_A_STATEMENT.finding(
        location,
        f"`{written}` is not a statement of its own; in the generated class it does not reach `{parent}`",
        help=f"Write the lines of `{parent}.{method}` out{cure}.",
    )


def of_another_method(location: Location, method: str, parent: str, own: str) -> Finding:
    """A call of `method` in a method of another name; `own` calls it on the instance, "" where the child replaces it."""
    cure = f"Write `{own}(…)`, which your class does not override, or write" if own else "Write"
    return SUPER_CALL_NOT_A_STATEMENT.finding(
        location,
        f"`super().{method}()` is in another method than `{method}`; in the generated class it does not reach `{parent}`",
        help=f"{cure} the lines of `{parent}.{method}` out.",
    )


STAY_AS_WRITTEN = (SUPER_CALL_NOT_IN_PARENT, SUPER_CALL_NOT_A_STATEMENT)
"""The rules about calls that mean in the generated class what they say there."""


def compare_super_call_not_a_statement(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find what is read or called on `super()` and bound by the parent, but for the call that the converter replaces. That
    of the method itself, where the parent has none, is MC301.
    """
    base = classes.base.partition("[")[0]
    methods = {one.function.name for one in classes.parent.members if one.is_function}
    for member in classes.child.members:
        if "super(" not in member.text:
            continue
        caller = Method(member.function, classes.name) if member.is_function else None
        replaced = caller.replaced_call if caller and caller.name in methods else None
        # Inside of an inner class `super()` means the bases of that class.
        nodes = walk_until((ast.ClassDef,), member.node)
        calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            name = super_attribute(node, classes.name)
            call = calls.get(id(node))
            if name not in classes.parent.binds or (call is not None and call is replaced):
                continue
            if call is not None and caller is not None and name != caller.name:
                own = "" if name in classes.child.binds else f"{caller.instance or 'self'}.{name}"
                yield finding_at(node, of_another_method, name, base, own)
            elif call is None or caller is None or name in methods:
                yield finding_at(node, super_call_not_a_statement, name, base, is_call=call is not None)


def check_super_call_not_a_statement(facts: Facts) -> Iterator[Finding]:
    """Find calls `super(EmuMLP, self).f()` in another class than `EmuMLP`, an heir whose parent has `f`."""
    parents = {heir.name: parent for heir, parent in facts.heirs}
    for one in facts.classes.values():
        for node in walk(one.members.node) if parents and SUPER_OF_A_CLASS.search(one.text) else ():
            method = super_method(node)
            call = getattr(getattr(node, "func", None), "value", None)
            if not (method and isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Name)):
                continue
            own = call.args[0].id
            parent = parents.get(own) if own != one.name else None
            if parent is not None and (parent.defines(method) or method in parent.members.names):
                yield SUPER_CALL_NOT_A_STATEMENT.finding(
                    facts.at_node(one, node),
                    f"`{ast.unparse(call)}.{method}()` skips `{own}`, and with it `{parent.written}`, whose lines the generated "
                    f"`{own}` has",
                    help=f"Write the lines of `{parent.written}.{method}` out.",
                )


SUPER_ARGUMENT_IGNORED = Rule(
    "MC315",
    "super-argument-ignored",
    "an argument of `super().m(…)` differs from the name that the parent's code will read",
)


def super_argument_ignored(
    location: Location, method: str, parameter: str, argument: str, assignment: str, passed: Sequence[str]
) -> Finding:
    """`argument` is the text given for the parent's `parameter`. It would reach the parent with `assignment` above a
    call that passes `passed`: one tuple for arguments that read each other's names.
    """
    names = ", ".join(f"`{name}`" for name in passed)
    return SUPER_ARGUMENT_IGNORED.finding(
        location,
        f"`{argument}` does not reach the parent's `{method}`: its lines read your `{parameter}`",
        help=f"Write `{assignment}` above the call, and pass {names}.",
    )


def has_effect(argument: ast.expr, method: str) -> bool:
    """Whether an argument for a name of the override, which is another expression, reaches the parent's lines. In the corpus
    names and constants do not (shieldgemma2, and qianfan_ocr in 5.14), nor those beside `**kwargs` (metaclip_2, and
    qwen3_omni_moe in 5.23), nor, in `__init__`, results of calls (granitemoehybrid) and more keywords (solar_open in 5.1).
    """
    plain = (ast.Name, ast.Constant)
    if isinstance(argument, ast.Call):
        is_packed = dotted(argument.func) == "dict" and any(
            isinstance(one.value, plain) for one in argument.keywords if one.arg is not None
        )
        return method != "__init__" and not is_packed
    return not isinstance(argument, plain)


def ignored_arguments(findings: Iterable[ClassFinding]) -> list[ast.expr]:
    """The arguments that findings tell to be ignored."""
    told = (one.node for one in findings if one.finding.rule is SUPER_ARGUMENT_IGNORED)
    return [one for one in told if isinstance(one, ast.expr)]


def not_passed(location: Location, method: str, parameter: str) -> Finding:
    """The call leaves `parameter`, which has its stars, to the parent's default, or passes nothing more."""
    name = parameter.lstrip("*")
    passed = parameter if name != parameter else f"{name}={name}"
    return SUPER_ARGUMENT_IGNORED.finding(
        location,
        f"the call does not pass `{parameter}`, but the lines of the parent's `{method}` read your `{name}`",
        help=f"Pass `{passed}`, or give your `{name}` another name.",
    )


def not_taken(location: Location, method: str, argument: str) -> Finding:
    """The parent's method has no parameter for `argument`."""
    return SUPER_ARGUMENT_IGNORED.finding(
        location,
        f"`{argument}` is dropped: the parent's `{method}` does not take it, and the call would fail with inheritance",
        help="Leave it out, or correct the name of its parameter.",
    )
