"""MC201: a class is derived from a dependency, but the classes that inherited the dependency use a copy of it."""

from __future__ import annotations

from collections.abc import Iterator

from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inline.generated import GeneratedFile
from modular_converter.convert.lint.context import Context
from modular_converter.diagnostics import Diagnostic, Severity


def check_replaced(context: Context) -> Iterator[Diagnostic]:
    """Look for untouched copies of what a class of the modular file changes."""
    for file in context.collection.files:
        for name in file.definitions:
            built = context.classes.get(name)
            if built is None or built.parent is None or built.name == built.parent.name or _says_nothing(built):
                continue
            user = _user_of_copy(context, file, built)
            if user is None or _is_used(context, built):
                continue
            from modular_converter.rules import replaced_dependency

            exported = built.name in context.exported
            severity = Severity.WARNING if exported else context.library.settings.replaced_dependency
            place = context.at_class(built)
            yield replaced_dependency.diagnose(place, built.name, built.parent.name, user, severity=severity)


def _user_of_copy(context: Context, file: GeneratedFile, built: BuiltClass) -> str | None:
    """The first class of the modular file whose generated form uses a copy of the parent of `built`."""
    assert built.parent is not None
    copy = file.definitions.get(built.parent.name)
    source = context.neighbours.neighbours[built.neighbour].neighbour.path
    if copy is None or copy.origin.how != "copied" or copy.origin.path != source:
        return None
    users = (other for other in context.classes.values() if other.name != built.name and other.parent is not None)
    return next((other.name for other in users if copy.name in other.uses and other.name in file.definitions), None)


def _is_used(context: Context, built: BuiltClass) -> bool:
    """Whether anything generated uses a class: then two classes were wanted, the changed one and the copy."""
    return any(built.name in one.uses for one in context.generated.values() if one.name != built.name)


def _says_nothing(built: BuiltClass) -> bool:
    """Whether a class is its parent under another name."""
    return built.statement.text.rpartition(":")[2].split() == ["pass"]
