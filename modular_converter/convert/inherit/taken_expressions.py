"""Decorators and defaults that an override takes from the parent's method, and that read names of the parent's class."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from modular_converter.convert.inherit.class_findings import ClassFinding, not_mergeable
from modular_converter.convert.inherit.decorators import AddedDecorators, inherited_decorators
from modular_converter.convert.inherit.members import ClassBlock
from modular_converter.convert.inherit.merge_members import decorated_by, method_key
from modular_converter.model.bindings import Function, bindings_of
from modular_converter.model.members import SUPER_KWARGS


def check_taken_expressions(child: ClassBlock, parent: ClassBlock, added: AddedDecorators) -> Iterator[ClassFinding]:
    """Names that such an expression reads while the class is made, and to which the child gives another value."""
    inherited = {method_key(one.function): one.function for one in parent.members if one.is_function}
    for member in child.members:
        if not member.is_function or (theirs := inherited.get(method_key(member.function))) is None:
            continue
        own, parts = member.function, _taken(member.function, theirs, added)
        read = bindings_of(*parts).reads - {own.name, decorated_by(theirs)} if parts else frozenset[str]()
        for name in sorted(read & child.binds & parent.binds):
            reason = f"a decorator or default that it takes from the parent's reads `{name}`: the parent's with inheritance,"
            cure = f"Give it decorators and parameters of its own, or give your `{name}` another name."
            yield not_mergeable(own, own.name, f"{reason} yours in the generated class", cure)


def _taken(own: Function, inherited: Function, added: AddedDecorators) -> list[ast.expr]:
    """The decorators that an override takes, and the defaults for `**super_kwargs`."""
    taken = inherited_decorators(own, inherited, added)
    if own.args.kwarg is not None and own.args.kwarg.arg == SUPER_KWARGS:
        taken += [one for one in (*inherited.args.defaults, *inherited.args.kw_defaults) if one is not None]
    return taken
