"""What an override is to the parent's method: its `super()` calls, its decorators, and the member that it overrides."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from modular_converter.model.bindings import Function, instance_of, is_generator
from modular_converter.model.class_blocks import Member, makes_attribute_error
from modular_converter.model.nodes import decorated_by, decorator_path, decorators_of, dotted, is_super_statement


CONTEXTS = frozenset({"contextmanager", "asynccontextmanager"})
"""The decorators that make context managers of generators."""
NO_DECORATORS = "no_inherit_decorator"
"""The decorator of an override that takes none from the parent."""


@dataclass(frozen=True)
class AddedDecorators:
    """The decorators that an override adds: one with no others keeps those of the parent's method."""

    names: tuple[str, ...] = ()
    """`Settings.added_decorators`."""
    own: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The other names under which the modular file imports functions, each with the function's own."""
    inherited: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The same of the parent's module."""

    def keeps_inherited(self, function: Function) -> bool:
        """Whether an override has no decorators but those that it adds."""
        return all(self._is_one(one, self.own) for one in function.decorator_list)

    def gives_way(self, decorator: ast.expr) -> bool:
        """Whether a decorator of the parent's method is one of these, which its heirs' own take the place of."""
        return self._is_one(decorator, self.inherited)

    def _is_one(self, decorator: ast.expr, aliases: Mapping[str, str]) -> bool:
        path = decorator_path(decorator)
        return aliases.get(path, path).rpartition(".")[2] in self.names


NOTHING_ADDED = AddedDecorators()
SLOTS = "__slots__"
INIT_SUBCLASS = "__init_subclass__"
METACLASS = "metaclass"
EQUALITY = "__eq__"
HASH = "__hash__"


def metaclass_of(node: ast.ClassDef) -> str:
    """The metaclass in the header of a class, as written there; `type` without one."""
    return next((ast.unparse(one.value) for one in node.keywords if one.arg == METACLASS), "type")


def inherited_decorators(
    function: Function, parent: Function, added: AddedDecorators = NOTHING_ADDED
) -> list[ast.expr]:
    """The decorators of the parent's method that an override takes over: none if it has others than those it adds.

    Those that its parameters contradict are left out, `@abstractmethod`, since an override is concrete, and
    `@contextmanager` over a method that yields nothing.
    """
    if not parent.decorator_list or not added.keeps_inherited(function):
        return []
    positional = [*function.args.posonlyargs, *function.args.args]
    first = positional[0].arg if positional else ""
    contradicted = {"abstractmethod"}
    if first == "self":
        contradicted |= {"classmethod", "staticmethod"}
    if len(positional) - len(function.args.defaults) > 1:
        contradicted |= {"property", "cached_property"}
    named = [(one, decorator_path(one).rpartition(".")[2]) for one in parent.decorator_list]
    takes_body = any(is_super_statement(node, function.name) for node in function.body)
    if not (takes_body or CONTEXTS.isdisjoint(dict(named).values()) or is_generator(function)) and is_generator(
        parent
    ):
        contradicted |= CONTEXTS
    return [
        one
        for one, name in named
        if name not in contradicted and not (function.decorator_list and added.gives_way(one))
    ]


def first_parameter(function: Function, parent: Function | None = None, added: AddedDecorators = NOTHING_ADDED) -> str:
    """The parameter that holds the instance or the class; "" for a method in which `super()` has no instance.

    An override may take the decorators of `parent`.
    """
    inherited = inherited_decorators(function, parent, added) if parent is not None else []
    return "" if any(dotted(one) == "staticmethod" for one in inherited) else instance_of(function)


def starred(call: ast.Call) -> list[ast.expr]:
    """The iterables that a call unpacks: `x` of `*x`."""
    return [argument.value for argument in call.args if isinstance(argument, ast.Starred)]


def mappings(call: ast.Call) -> list[ast.expr]:
    """The mappings that a call unpacks, `x` of `**x`: the called function gets copies of them."""
    return [keyword.value for keyword in call.keywords if keyword.arg is None]


def is_class_method(function: Function) -> bool:
    """Whether a method is decorated as one of the class."""
    return "classmethod" in decorators_of(function)


def sought_above(node: ast.AST, parent: str, bound: Container[str]) -> ast.expr | None:
    """The parent's name in `super(Parent, x)`, and in `Parent.f` where the parent has its `f` from a class above it; None for
    any other expression. Both mean a class above the parent, of which the generated class has the bases.

    Of names that Python gives each class, such as `__doc__`, only the methods of `object` count.
    """
    match node:
        case ast.Call(ast.Name("super"), [owner, _]) if dotted(owner) == parent:
            return owner
        case ast.Attribute(owner, name, ast.Load()) if name not in bound and dotted(owner) == parent:
            is_given = name.startswith("__") and not inspect.isroutine(getattr(object, name, None))
            return None if is_given else owner
    return None


def is_property(function: Function, added: AddedDecorators) -> bool:
    """Whether an override of a property is a property too; it may take the parent's decorators."""
    is_one = any(one.endswith("property") for one in decorators_of(function))
    return not only_raises(function) and (added.keeps_inherited(function) or is_one)


def method_key(function: Function) -> str:
    """The key of a method in its class: its name, or `x.setter`, `f.register(int)` beside `x` and `f`."""
    owner = decorated_by(function)
    if not owner:
        return function.name
    decorator = next(one for one in map(ast.unparse, function.decorator_list) if one.startswith(f"{owner}."))
    if owner == function.name:
        return decorator
    return f"{decorator} {ast.unparse(function.args)}"


def only_raises(function: Function) -> bool:
    """Whether a method begins with the raise of an error."""
    first = function.body[0]
    raised = first.exc if isinstance(first, ast.Raise) else None
    return isinstance(raised, ast.Call) and isinstance(raised.func, ast.Name) and raised.func.id.endswith("Error")


def is_removal(member: Member) -> bool:
    """Whether this is `x = AttributeError(…)`."""
    return makes_attribute_error(getattr(member.node, "value", None))


def is_raising_stub(member: Member) -> bool:
    """Whether a method does nothing but raise an error, which in a child means: the parent's method is gone.

    Only a plain stub counts: after a blank line (so not the first statement of the class), without decorators and
    docstring. Any other stub is an ordinary override, as in the corpus (deepseek_vl, deepseek_ocr2).
    """
    return member.lead.strip(" \t") == "\n" and not member.function.decorator_list and only_raises(member.function)
