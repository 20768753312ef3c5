"""One override merged with the parent's method: header, docstring and statements, each as the lines of one of the two."""

from __future__ import annotations

import ast
import copy
import itertools
import re
from dataclasses import replace

from modular_converter.convert.inherit.bases import ClassMerge
from modular_converter.convert.inherit.statements import BODY_INDENT, Body, Line, body_of
from modular_converter.convert.inherit.super_calls import merge_statements
from modular_converter.findings import ClassFinding, character_column, finding_at
from modular_converter.model.bindings import EMPTY, Function, bindings_in, bindings_of, parameters_of, signature_of
from modular_converter.model.class_blocks import SUPER_KWARGS, ClassSpan, Member
from modular_converter.model.index import is_docstring
from modular_converter.model.nodes import method_call, parse, walk
from modular_converter.model.overriding import (
    NO_DECORATORS,
    first_parameter,
    mappings,
    starred,
)
from modular_converter.rules import calls_of_super, merged_bodies
from modular_converter.settings.values import Settings


_COMMENT_BEFORE_PARAMETERS = re.compile(r"def \w+[^\n(]*\(\s*#")


class _NotMergeableError(Exception):
    """Raised with the finding for a method that stays as the child has it."""

    def __init__(self, finding: ClassFinding) -> None:
        super().__init__()
        self.finding = finding


def merge_override(child: Member, parent: Member, merge: ClassMerge) -> Member:
    """The child's method, completed from the parent's: decorators, signature, docstring, body."""
    whole = with_parents_parameters(child, parent.function)
    if whole is not child and child.function.args.vararg is None:
        # As in the published files, a parameter is left out that no line reads any more: `del self.x` (vaultgemma in 5.12).
        tried = replace(merge, findings=[], overrides=dict(merge.overrides))
        merged = _merge_override(child, child, parent, tried)
        if not any(one.finding.rule is calls_of_super.PARAMETER_WITHOUT_VALUE for one in tried.findings):
            merge.overrides.update(tried.overrides)
            merge.findings.extend(tried.findings)
            return merged
    return _merge_override(child, whole, parent, merge)


def _merge_override(child: Member, whole: Member, parent: Member, merge: ClassMerge) -> Member:
    """See `merge_override`; `whole` is the child's method with all parameters that it is merged with."""
    adds_docstring = not is_docstring(child.function.body[0]) and is_docstring(parent.function.body[0])
    if not ("super" in child.text or adds_docstring or _completes_header(child, parent, merge)):
        return replace(child, lead=parent.lead, merged=(parent.lead_span, *child.spans[1:]))
    try:
        own, inherited = body_of(whole), body_of(parent)
        if whole is not child:
            own = replace(own, header=_of_both(own.header.text, own, inherited))
        header, parameters = _header(own, inherited, whole, parent, merge)
        docstring = own.docstring or _inherited_docstring(inherited, merge.settings)
        body = merge_statements(whole.function, parent.function, own, inherited, parameters, merge)
    except RecursionError:
        merge.findings.append(finding_at(child.node, merged_bodies.too_deep, child.function.name))
        return child
    except _NotMergeableError as error:
        merge.findings.append(error.finding)
        return child
    lines = [*([docstring] if docstring else []), *body]
    statements = [span for one in lines for span in one.spans] or [ClassSpan(f"{BODY_INDENT}pass\n")]
    spans = (header, *statements, own.footer)
    text = "".join(span.text for span in spans)
    return replace(child, lead=parent.lead, text=text, merged=(parent.lead_span, *spans, child.documentation_span))


def _completes_header(child: Member, parent: Member, merge: ClassMerge) -> bool:
    """Whether the header of an override has anything of the parent's, or is written in words for the converter."""
    return (
        SUPER_KWARGS in child.text
        or NO_DECORATORS in child.text
        or (child.function.returns is None and parent.function.returns is not None)
        or bool(merge.inherited_decorators(child.function, parent.function))
        or any(_COMMENT_BEFORE_PARAMETERS.search(one.text) for one in (child, parent))
    )


def _of_both(header: str, own: Body, inherited: Body) -> ClassSpan:
    return ClassSpan(header, (*own.header.sources, *inherited.header.sources))


def _header(
    own: Body, inherited: Body, child: Member, parent: Member, merge: ClassMerge
) -> tuple[ClassSpan, frozenset[str]]:
    """The decorators and the signature of the child, completed from the parent's, and the names of the parameters."""
    if not _completes_header(child, parent, merge):
        return own.header, frozenset(parameters_of(child.function))
    from modular_converter.convert.inherit.rewrite import merged_header

    function, added = child.function, merge.around.added
    taken = merge.inherited_decorators(function, parent.function)
    kept = [one in taken for one in parent.function.decorator_list]
    has_instance = bool(first_parameter(function, parent.function, added))
    try:
        text, names = merged_header(own.header.text, inherited.header.text, kept, has_instance)
    except SyntaxError as error:
        found = finding_at(child.node, merged_bodies.unknown_syntax, function.name, error.msg)
    except ValueError as error:
        found = finding_at(child.node, calls_of_super.bad_signature, function.name, error)
    else:
        return _of_both(text, own, inherited), names
    raise _NotMergeableError(found)


def _inherited_docstring(parent: Body, settings: Settings) -> Line | None:
    """The parent's docstring, if an override without one takes it: by its quotes."""
    if parent.docstring is None:
        return None
    text = parent.docstring.text.lstrip().lstrip("rRuU")
    return parent.docstring if text.startswith(settings.inherited_docstrings) else None


def with_parents_parameters(child: Member, parent: Function) -> Member:
    """`def f(self, x, **kwargs)` that hands all its `*args` and `**kwargs` to `super().f(x, **kwargs)`, with the parameters
    of the parent's method that only they can give in their place. Any other override stays as it is.
    """
    function, own = child.function, child.function.args
    call = next((found for node in function.body if (found := method_call(node, function.name))), None)
    theirs = [*parent.args.posonlyargs, *parent.args.args]
    if call is None or not theirs or not _only_passes_on(function, call):
        return child
    if parent.decorator_list if own.vararg else not first_parameter(function, parent):  # may take other parameters
        return child
    scope, names = bindings_in(function), parameters_of(parent) - {theirs[0].arg}
    if names & (scope.local | scope.module_names) - {*parameters_of(function)}:
        return child
    parameters = _parameters_of_both(own, parent, call) if own.vararg else _with_keywords_of(parent, own, call)
    if parameters is None:
        return child
    assert own.kwarg is not None
    first: ast.expr | ast.keyword = call.keywords[-1]
    if own.vararg:
        first = call.args[-1]
        passed = [one.arg for one in theirs[len(call.args) :]]
        passed += [f"*{parent.args.vararg.arg}"] if parent.args.vararg else []
        passed += map(ast.unparse, call.keywords[:-1])
        given = {one.arg for one in call.keywords}
        passed += [f"{one.arg}={one.arg}" for one in parent.args.kwonlyargs if one.arg not in given]
    else:
        names -= {one.arg for one in (*own.args, *own.kwonlyargs)}
        added = (one.arg for one in (*parameters.args, *parameters.kwonlyargs) if one.arg in names)
        passed = [f"{one}={one}" for one in added]
    passed += [f"**{parent.args.kwarg.arg}"] if parent.args.kwarg else []
    text = _replaced(child, first, call.keywords[-1], ", ".join(passed))
    text = _replaced(replace(child, text=text), own.args[0], own.kwarg, ast.unparse(parameters))
    holder = parse("\n" * (child.line - 2) + f"class _:\n{text}").body[0]
    assert isinstance(holder, ast.ClassDef)
    return replace(child, node=holder.body[0], text=text)


def _only_passes_on(function: Function, call: ast.Call) -> bool:
    """Whether a method has `**kwargs`, and hands them to one call alone, at its end; with `*args`, these too."""
    own = function.args
    if not (own.kwarg and own.args) or own.posonlyargs or (own.kwarg.arg == SUPER_KWARGS and not own.vararg):
        return False
    names = [one.arg for one in (own.vararg, own.kwarg) if one]
    uses = [one for one in walk(*function.body) if isinstance(one, ast.Name) and one.id in names]
    unpacked = [ast.unparse(one) for one in (*starred(call), *mappings(call))]
    ends = not starred(call) or isinstance(call.args[-1], ast.Starred)
    return unpacked == names and len(uses) == len(names) and ends and call.keywords[-1].arg is None


def _with_keywords_of(parent: Function, own: ast.arguments, call: ast.Call) -> ast.arguments | None:
    """The child's parameters, and those of the parent's that the call leaves to `**kwargs`; None if the parent's method reads
    none of them.

    They are keywords, as for the caller of the child; without a default, behind `*`.
    """
    theirs = parent.args
    given = len(call.args) + 1
    defaults = {one.name: one.default for one in signature_of(theirs).parameters.values() if one.default is not EMPTY}
    passed = {one.arg for one in call.keywords} | {one.arg for one in (*own.args, *own.kwonlyargs)}
    ordinary = [*theirs.posonlyargs, *theirs.args]
    rest = [one for one in (*ordinary[given:], *theirs.kwonlyargs) if one.arg not in passed]
    reads = bindings_of(*parent.body)
    if not any(one.arg in reads.reads | reads.reads_later for one in rest) or theirs.posonlyargs[given:]:
        return None
    whole = copy.deepcopy(own)
    whole.kwarg = theirs.kwarg
    if own.kwonlyargs or any(one.arg not in defaults for one in rest):
        whole.kwonlyargs += rest
        whole.kw_defaults += [defaults.get(one.arg) for one in rest]
    else:
        whole.args += rest
        whole.defaults += [defaults[one.arg] for one in rest]
    return whole


def _parameters_of_both(own: ast.arguments, parent: Function, call: ast.Call) -> ast.arguments | None:
    """The child's parameters, with those of the parent's that a call leaves to `*args` and `**kwargs` in their place; None
    where one has two names or values, or where one without a default would stand behind one that has one.
    """
    whole, theirs = copy.deepcopy(parent.args), [*parent.args.posonlyargs, *parent.args.args]
    if len(own.args) == len(call.args) == 1 and not own.kwonlyargs:
        (whole.posonlyargs or whole.args)[0].arg = own.args[0].arg
        return whole if not call.keywords[:-1] else None
    passed = {one.arg for one in call.keywords}
    rest = theirs[len(call.args) :]
    kept = [(one, value) for one, value in zip(whole.kwonlyargs, whole.kw_defaults) if one.arg not in passed]
    names = [one.arg for one in (*own.args, *own.kwonlyargs, *rest, *(one for one, _ in kept))]
    if whole.posonlyargs or passed & {one.arg for one in rest} or len({*names}) < len(names):
        return None
    first, others = (signature_of(some).parameters for some in (own, whole))
    whole.args = [*own.args, *rest]
    defaults = [*(first[one.arg].default for one in own.args), *(others[one.arg].default for one in rest)]
    whole.defaults = [value for value in defaults if value is not EMPTY]
    whole.kwonlyargs = [*own.kwonlyargs, *(one for one, _ in kept)]
    whole.kw_defaults = [*own.kw_defaults, *(value for _, value in kept)]
    return whole if EMPTY not in defaults[len(defaults) - len(whole.defaults) :] else None


def _replaced(member: Member, first: ast.expr | ast.arg | ast.keyword, last: ast.arg | ast.keyword, new: str) -> str:
    """The text of a method with another text from one node to another; it keeps the number of its lines."""
    lines = member.text.split("\n")
    starts = [*itertools.accumulate((len(line) + 1 for line in lines), initial=0)]
    top, bottom = first.lineno - member.line, (last.end_lineno or last.lineno) - member.line
    start = starts[top] + character_column(lines[top], first.col_offset)
    end = starts[bottom] + character_column(lines[bottom], last.end_col_offset or 0)
    return f"{member.text[:start]}{new}{chr(10) * (bottom - top)}{member.text[end:]}"
