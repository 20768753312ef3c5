"""Which names code binds, reads, changes and deletes, at once or later: the one answer, proven against `symtable`.

A `Bindings` is what some code does in one scope of Python's. The names in the bodies of functions are looked for when they
are first asked for, since most questions concern the scope itself.
"""

from __future__ import annotations

import ast
import enum
import inspect
from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from modular_converter.model.nodes import children, decorators_of, dotted, super_attribute, walk_until


Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ADDING = frozenset(["append", "appendleft", "extend", "insert"])
"""Methods after which a list or a queue is longer, whatever they are given."""
MUTATORS = ADDING.union(
    ["add", "clear", "discard", "pop", "popitem", "popleft", "remove", "reverse", "setdefault", "sort", "update"]
)
"""Methods of lists, dictionaries, sets and queues that change them."""
AT_ONCE = frozenset(
    ["all", "any", "dict", "frozenset", "join", "list", "max", "min", "next", "set", "sorted", "sum", "tuple"]
)
"""Functions that use up an iterator before they return."""
EVERYTHING = "*"
"""The name that `from x import *` is said to bind."""


class ScopeKind(enum.Enum):
    """The kinds of scope."""

    BLOCK = "block"
    """A module, or some statements or expressions of any scope."""
    CLASS = "class"
    FUNCTION = "function"
    LAMBDA = "lambda"
    COMPREHENSION = "comprehension"
    TYPE = "type"
    """Around the parameters of a generic definition, a bound of one of them, or the value of a `type` statement."""


class Effects(NamedTuple):
    """The dotted paths (`h`, `self.up`) that code deals with."""

    reads: frozenset[str]
    """Paths that it reads, with each prefix: `self.a.b` also reads `self.a`. Inner functions read the names that they
    capture.
    """
    binds: frozenset[str]
    """Paths that get another value, or are deleted."""
    changes: frozenset[str]
    """Paths whose objects are changed in place: `x[0] = 1`, `x.append(1)`, `change(x)`."""

    @property
    def writes(self) -> frozenset[str]:
        """Paths that have another value afterwards."""
        return self.binds | self.changes

    @property
    def objects_changed(self) -> frozenset[str]:
        """Paths whose objects are changed in place or get another attribute: `self.a` for `self.a.b = 1`."""
        return self.changes.union(path.rpartition(".")[0] for path in self.binds if "." in path)


def covers(path: str, other: str) -> bool:
    """Whether a change of `path` is one of `other`: `self.a` covers `self.a.b`."""
    return path == other or other.startswith(f"{path}.")


class Bindings:
    """What code does in one scope. Names in the text of annotations that are strings do not count."""

    def __init__(
        self, kind: ScopeKind, nodes: Sequence[ast.AST], node: ast.AST | None = None, later: bool = False
    ) -> None:
        """`node` opens the scope: a class, a function, a lambda, a comprehension; None for a block."""
        self.kind = kind
        self.node = node
        self.runs_later = later
        """Whether it runs when it is called or iterated over, not where it stands."""
        self._nodes = nodes

    @cached_property
    def _found(self) -> _Found:
        found = _Found(self.kind is ScopeKind.COMPREHENSION)
        found.read_all(self._nodes)
        return found

    @property
    def inner(self) -> Sequence[Bindings]:
        """The scopes within this one, in no certain order."""
        return self._found.inner

    @property
    def everywhere(self) -> Iterator[Bindings]:
        """This scope and all scopes within it."""
        waiting = [self]
        for scope in waiting:  # the list grows meanwhile
            yield scope
            waiting += scope.inner

    # What happens in this scope itself, on any condition.

    @cached_property
    def parameters(self) -> KeysView[str]:
        """The parameters of a function or lambda."""
        return parameters_of(self.node) if isinstance(self.node, (*FUNCTIONS, ast.Lambda)) else {}.keys()

    @cached_property
    def binds(self) -> frozenset[str]:
        """The names that get a value: assigned, defined, imported, looped over, caught, matched."""
        return frozenset(self._found.assigned | self._found.imported)

    @cached_property
    def imports(self) -> frozenset[str]:
        """The names that import statements bind."""
        return frozenset(self._found.imported)

    @cached_property
    def assigns(self) -> frozenset[str]:
        """The names that get a value in another way than by an import."""
        return frozenset(self._found.assigned)

    @cached_property
    def declares(self) -> frozenset[str]:
        """The names that an annotation alone declares: `x: int`."""
        return frozenset(self._found.declared)

    @cached_property
    def declared_global(self) -> frozenset[str]:
        """The names of `global` statements."""
        return frozenset(self._found.of_module)

    @cached_property
    def local(self) -> frozenset[str]:
        """The names that belong to this scope, as Python decides it: bound, deleted, annotated, or parameters."""
        found = self._found
        names = found.assigned.union(found.imported, found.declared, found.deleted, self.parameters)
        return frozenset(names.difference(found.of_module, found.of_function, (EVERYTHING,)))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names that are read, those in annotations included."""
        return frozenset(self._found.read).union(self._found.annotated)

    @property
    def calls(self) -> Sequence[ast.Call]:
        """The calls, in no certain order."""
        return self._found.calls

    @property
    def sets(self) -> Iterator[ast.Attribute]:
        """The attributes that get a value, but for those that `x.y += 1` changes."""
        changed = set(map(id, self._found.changed))
        for node in self._found.stores:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and id(node) not in changed:
                yield node

    @property
    def changed_objects(self) -> Iterator[ast.expr]:
        """What is changed in place, or may be, with what `x.y += 1` changes: in this scope and in those within it."""
        for scope in self.everywhere:
            yield from (*scope._found.changed_objects, *scope._found.changed)

    @property
    def may_change_objects(self) -> bool:
        """Whether it calls something, or sets or deletes an attribute or an item."""
        return bool(self._found.calls or self._found.stores)

    # What happens in this scope and in those within it.

    @cached_property
    def module_reads(self) -> frozenset[str]:
        """For code at the top level of a module, or a method: the names of the module that it reads at any time."""
        return self._of_module(lambda one: one.reads)

    @cached_property
    def module_names(self) -> frozenset[str]:
        """`module_reads` with the names of the module that inner scopes or `global` statements set."""
        return self._of_module(lambda one: one.reads.union(one._found.of_module, one._found.set_around))

    def _of_module(self, used: Callable[[Bindings], frozenset[str]]) -> frozenset[str]:
        """Those of the names which each scope uses that no function around it has."""
        found: set[str] = set()
        waiting = [(self, frozenset[str]())]
        for scope, hidden in waiting:  # the list grows meanwhile
            local = scope.local if scope.kind is not ScopeKind.BLOCK else frozenset[str]()
            found |= used(scope) - local - (hidden - scope.declared_global)
            seen = hidden if scope.kind is ScopeKind.CLASS else (hidden | local) - scope.declared_global
            waiting += ((one, seen) for one in scope.inner)
        return frozenset(found)

    @cached_property
    def reads_now(self) -> frozenset[str]:
        """The names that code reads where it stands: neither in bodies of functions nor in generators."""
        return self.reads.union(*(one._outside(one.reads_now) for one in self.inner if not one.runs_later))

    @cached_property
    def needs(self) -> frozenset[str]:
        """`reads_now` without annotations, which Python does not evaluate where they are postponed."""
        here = (one for one in self.inner if not one.runs_later)
        return frozenset(self._found.read).union(*(one._outside(one.needs) for one in here))

    @cached_property
    def calls_now(self) -> frozenset[str]:
        """The names of what code calls where it stands, decorators left out; of `a.b()` it is `a`."""
        here = (one for one in self.inner if not one.runs_later)
        names = {dotted(call.func).partition(".")[0] for call in self.calls}
        return frozenset(names).union(*(one.calls_now for one in here))

    @property
    def calls_when_made(self) -> frozenset[str]:
        """For definitions: `calls_now` with their own decorators."""
        decorators = (one for node in self._nodes for one in decorators_of(node))
        return self.calls_now.union(one.partition(".")[0] for one in decorators)

    def reader(self, name: str, annotations: bool) -> ast.AST | None:
        """The first node that reads a name where the code stands; see `reads_now` and `needs`."""
        found = self._found.read.get(name) or (self._found.annotated.get(name) if annotations else None)
        inner = (one for one in self.inner if not one.runs_later and name in one._outside(one.reads_now))
        return found or next((node for one in inner if (node := one.reader(name, annotations))), None)

    @cached_property
    def reads_later(self) -> frozenset[str]:
        """The names of this or an outer scope that functions and generators within the code use when they run."""
        return frozenset[str]().union(*map(Bindings._used_later, self.inner))

    def _used_later(self) -> Iterable[str]:
        names = self.reads_later
        return self._outside(names.union(self.reads_now, self._found.of_function) if self.runs_later else names)

    # Dotted paths: `x`, `self.up`.

    @cached_property
    def read_paths(self) -> frozenset[str]:
        """The paths that are read, also in inner scopes: `self.a.b` reads `self.a` and `self` too."""
        return self.reads.union(self._found.read_paths, *(one._outside(one.read_paths) for one in self.inner))

    @cached_property
    def bound_paths(self) -> frozenset[str]:
        """The paths that get another value or are deleted, also in inner scopes."""
        return self.binds.union(
            self._found.deleted, self._found.bound_paths, *(one._hiding(one.bound_paths) for one in self.inner)
        )

    @cached_property
    def changed_paths(self) -> frozenset[str]:
        """The paths whose objects are changed in place, or may be: `x[0] = 1`, `x.append(1)`, `change(x)`."""
        return self._found.changed_paths.union(*(one._hiding(one.changed_paths) for one in self.inner))

    @cached_property
    def effects(self) -> Effects:
        """The paths that the code deals with."""
        return Effects(self.read_paths, self.bound_paths, self.changed_paths)

    def _outside(self, paths: Iterable[str]) -> Iterable[str]:
        """The paths of this scope that may begin with a name from around it. A class may read an outer name before it
        binds it, and its functions do not see its names at all.
        """
        return paths if self.kind is ScopeKind.CLASS else self._hiding(paths)

    def _hiding(self, paths: Iterable[str]) -> Iterable[str]:
        hidden = self.local | self.declared_global
        return [path for path in paths if path.partition(".")[0] not in hidden]


class _Found:
    """The names of one scope while its nodes are read. Deep expressions take no deep recursion."""

    def __init__(self, is_comprehension: bool = False) -> None:
        self.is_comprehension = is_comprehension
        self.inner: list[Bindings] = []
        self.read: dict[str, ast.AST] = {}
        """Name -> its first place: the last node is looked at first."""
        self.annotated: dict[str, ast.AST] = {}
        self.imported: set[str] = set()
        self.assigned: set[str] = set()
        self.declared: set[str] = set()
        self.deleted: set[str] = set()
        self.of_module: set[str] = set()
        self.of_function: set[str] = set()
        self.set_around: set[str] = set()
        """The targets of `:=` in a comprehension, which belong to the scope around it."""
        self.attributes: list[ast.Attribute] = []
        self.calls: list[ast.Call] = []
        self.statements: list[ast.Call] = []
        """The calls whose value nobody uses."""
        self.stores: list[ast.Attribute | ast.Subscript] = []
        self.changed: list[ast.expr] = []
        """The attributes and items that `x.y += 1` reads first."""
        self.used_up: set[int] = set()
        """The identities of generators and functions that a call uses before it returns."""
        self.waiting: list[ast.AST] = []

    def read_all(self, nodes: Iterable[ast.AST]) -> None:
        waiting = self.waiting
        waiting += nodes
        while waiting:
            node = waiting.pop()
            read = _READERS.get(type(node))
            if read is not None:
                read(self, node)
            else:
                waiting += children(node)

    def annotation(self, node: ast.expr | None) -> None:
        if isinstance(node, ast.Name):
            self.annotated[node.id] = node
        elif node is not None and not isinstance(node, ast.Constant):
            within = _Found(self.is_comprehension)
            within.read_all((node,))
            self.annotated |= within.read
            self.assigned |= within.assigned
            self.set_around |= within.set_around
            self.inner += within.inner
            self.calls += within.calls
            self.attributes += within.attributes

    @property
    def read_paths(self) -> set[str]:
        """The dotted paths of attributes that are read."""
        return {path for node in (*self.attributes, *self.changed) if (path := dotted(node))}

    @property
    def bound_paths(self) -> set[str]:
        """The dotted paths of attributes that are set or deleted."""
        return {path for node in self.stores if isinstance(node, ast.Attribute) and (path := dotted(node))}

    @property
    def changed_objects(self) -> list[ast.expr]:
        """What is changed in place, or given to a call that may change it."""
        changed: list[ast.expr] = [node for node in self.stores if isinstance(node, ast.Subscript) or not dotted(node)]
        methods = (call.func for call in self.calls if isinstance(call.func, ast.Attribute))
        changed += (one.value for one in methods if one.attr in MUTATORS)  # `size = kwargs.pop("size")`
        for call in self.statements:
            given = [] if super_attribute(call.func) else [*call.args, *(keyword.value for keyword in call.keywords)]
            changed += [call.func.value] if isinstance(call.func, ast.Attribute) else []
            changed += (part for part in given if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript)))
        return changed

    @property
    def changed_paths(self) -> frozenset[str]:
        """The paths of `changed_objects`."""
        return frozenset(path for node in self.changed_objects if (path := dotted(object_of(node))))


def object_of(node: ast.expr) -> ast.expr:
    """The path of the object in `a.b[0][1]` or `a.b[0].c()`: `a.b`."""
    while not isinstance(node, (ast.Name, ast.Attribute)) or not dotted(node):
        inner = getattr(node, "value", None) or getattr(node, "func", None)
        if not isinstance(inner, ast.expr):
            break
        node = inner
    return node


# One reader for each kind of node that is more than its children.


def _name(found: _Found, node: ast.Name) -> None:
    if isinstance(node.ctx, ast.Load):
        found.read[node.id] = node
    elif isinstance(node.ctx, ast.Store):
        found.assigned.add(node.id)
    else:
        found.deleted.add(node.id)


def _attribute(found: _Found, node: ast.Attribute) -> None:
    if isinstance(node.ctx, ast.Load):
        found.attributes.append(node)
    else:
        found.stores.append(node)
    found.waiting.append(node.value)


def _subscript(found: _Found, node: ast.Subscript) -> None:
    if not isinstance(node.ctx, ast.Load):
        found.stores.append(node)
    found.waiting += (node.value, node.slice)


def _call(found: _Found, node: ast.Call) -> None:
    found.calls.append(node)
    found.used_up.update(map(id, _used_up(node)))
    found.waiting += children(node)


def _used_up(call: ast.Call) -> list[ast.expr]:
    """The generators of a call that it iterates over before it returns, and the function that it sorts by."""
    name = getattr(call.func, "id", "join" if getattr(call.func, "attr", "") == "join" else "")
    keys = [keyword.value for keyword in call.keywords if keyword.arg == "key" and name in ("max", "min", "sorted")]
    return [*(one for one in call.args if isinstance(one, ast.GeneratorExp) and name in AT_ONCE), *keys]


def _expression(found: _Found, node: ast.Expr) -> None:
    call = node.value.value if isinstance(node.value, ast.Await) else node.value
    if isinstance(call, ast.Call):
        found.statements.append(call)
    found.waiting.append(node.value)


def _augmented(found: _Found, node: ast.AugAssign) -> None:
    if isinstance(node.target, ast.Name):
        found.read[node.target.id] = node
    else:
        found.changed.append(node.target)
    found.waiting += (node.target, node.value)


def _annotated(found: _Found, node: ast.AnnAssign) -> None:
    found.annotation(node.annotation)
    if node.value is not None:
        found.waiting += (node.target, node.value)
    elif node.simple:
        found.declared.add(dotted(node.target))
    else:
        found.waiting += children(node.target)


def _walrus(found: _Found, node: ast.NamedExpr) -> None:
    (found.set_around if found.is_comprehension else found.assigned).add(node.target.id)
    found.waiting.append(node.value)


def _import(found: _Found, node: ast.Import | ast.ImportFrom) -> None:
    found.imported.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)


def _handler(found: _Found, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar) -> None:
    if node.name:
        found.assigned.add(node.name)
    found.waiting += children(node)


def _mapping(found: _Found, node: ast.MatchMapping) -> None:
    if node.rest:
        found.assigned.add(node.rest)
    found.waiting += children(node)


def _function(found: _Found, node: Function) -> None:
    found.assigned.add(node.name)
    found.waiting += (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults))
    around = _type_parameters(found, node)
    for parameter in parameter_nodes(node.args):
        around.annotation(parameter.annotation)
    around.annotation(node.returns)
    around.inner.append(Bindings(ScopeKind.FUNCTION, node.body, node, later=True))


def _class(found: _Found, node: ast.ClassDef) -> None:
    found.assigned.add(node.name)
    found.waiting += node.decorator_list
    around = _type_parameters(found, node)
    if around is found:
        found.waiting += (*node.bases, *node.keywords)
    else:
        around.read_all((*node.bases, *node.keywords))
    around.inner.append(Bindings(ScopeKind.CLASS, node.body, node))


def _type_parameters(found: _Found, node: ast.AST) -> _Found:
    """The scope around a definition: one of its own where it is generic, from Python 3.12 on."""
    parameters: list[ast.AST] = getattr(node, "type_params", [])
    if not parameters:
        return found
    around = Bindings(ScopeKind.TYPE, parameters, node)
    found.inner.append(around)
    return around._found


def _type_parameter(found: _Found, node: ast.AST) -> None:
    found.assigned.add(node.name)  # type: ignore[attr-defined]
    found.inner += (Bindings(ScopeKind.TYPE, (part,), node, later=True) for part in children(node))


def _type_statement(found: _Found, node: ast.AST) -> None:
    found.assigned.add(node.name.id)  # type: ignore[attr-defined]
    around = _type_parameters(found, node)
    around.inner.append(Bindings(ScopeKind.TYPE, (node.value,), node, later=True))  # type: ignore[attr-defined]


def _lambda(found: _Found, node: ast.Lambda) -> None:
    found.waiting += (*node.args.defaults, *filter(None, node.args.kw_defaults))
    found.inner.append(Bindings(ScopeKind.LAMBDA, (node.body,), node, later=id(node) not in found.used_up))


def _comprehension(found: _Found, node: Comprehension) -> None:
    first, *others = node.generators
    found.waiting.append(first.iter)
    value = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
    later = isinstance(node, ast.GeneratorExp) and id(node) not in found.used_up
    inner = Bindings(ScopeKind.COMPREHENSION, (*value, first.target, *first.ifs, *others), node, later)
    found.inner.append(inner)
    around = found.set_around if found.is_comprehension else found.assigned
    around |= inner._found.set_around


_READERS: dict[type[ast.AST], Callable[[_Found, Any], None]] = {
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Call: _call,
    ast.Expr: _expression,
    ast.AugAssign: _augmented,
    ast.AnnAssign: _annotated,
    ast.NamedExpr: _walrus,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.ExceptHandler: _handler,
    ast.MatchAs: _handler,
    ast.MatchStar: _handler,
    ast.MatchMapping: _mapping,
    ast.Global: lambda found, node: found.of_module.update(node.names),
    ast.Nonlocal: lambda found, node: found.of_function.update(node.names),
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Lambda: _lambda,
    **dict.fromkeys(COMPREHENSIONS, _comprehension),
}
for _new, _reader in (
    ("TypeAlias", _type_statement),
    *((n, _type_parameter) for n in ("TypeVar", "ParamSpec", "TypeVarTuple")),
):
    if hasattr(ast, _new):  # from Python 3.12 on
        _READERS[getattr(ast, _new)] = _reader


def bindings_of(*nodes: ast.AST) -> Bindings:
    """What some statements or expressions of one scope do, taken together."""
    return Bindings(ScopeKind.BLOCK, nodes)


def bindings_in(node: Function | ast.ClassDef | ast.Lambda) -> Bindings:
    """The scope that a definition opens."""
    if isinstance(node, ast.Lambda):
        return Bindings(ScopeKind.LAMBDA, (node.body,), node, later=True)
    kind = ScopeKind.CLASS if isinstance(node, ast.ClassDef) else ScopeKind.FUNCTION
    return Bindings(kind, node.body, node, later=kind is ScopeKind.FUNCTION)


def parameter_nodes(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters in their order, those with stars last."""
    variadic = [parameter for parameter in (arguments.vararg, arguments.kwarg) if parameter is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *variadic]


def parameters_of(function: Function | ast.Lambda) -> KeysView[str]:
    """The names of all parameters in their order, those with stars last."""
    return dict.fromkeys(parameter.arg for parameter in parameter_nodes(function.args)).keys()


EMPTY = inspect.Parameter.empty
"""The default of a parameter that has none."""


def signature_of(arguments: ast.arguments) -> inspect.Signature:
    """The parameters with their kinds and their defaults, which are syntax trees."""
    kinds = inspect.Parameter
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[EMPTY] * (len(plain) - len(arguments.defaults)), *arguments.defaults]
    of_place = len(arguments.posonlyargs)
    found = [
        kinds(one.arg, kinds.POSITIONAL_ONLY if at < of_place else kinds.POSITIONAL_OR_KEYWORD, default=default)
        for at, (one, default) in enumerate(zip(plain, defaults, strict=True))
    ]
    found += [kinds(arguments.vararg.arg, kinds.VAR_POSITIONAL)] if arguments.vararg else []
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(kinds(one.arg, kinds.KEYWORD_ONLY, default=EMPTY if default is None else default))
    found += [kinds(arguments.kwarg.arg, kinds.VAR_KEYWORD)] if arguments.kwarg else []
    return inspect.Signature(found)


def accepts(function: Function, call: ast.Call, leading: int) -> bool:
    """Whether a function takes the arguments of a call behind `leading` others; where some are unpacked, whether it may."""
    positional = [one for one in call.args if not isinstance(one, ast.Starred)]
    named = {one.arg: one.value for one in call.keywords if one.arg}
    unpacks = len(positional) + len(named) < len(call.args) + len(call.keywords)
    signature = signature_of(function.args)
    try:
        (signature.bind_partial if unpacks else signature.bind)(*[None] * leading, *positional, **named)
    except TypeError:
        return False
    return True


def instance_of(function: Function) -> str:
    """The first parameter, which holds the instance or the class; "" for a static method, and for one without any."""
    if "staticmethod" in decorators_of(function):
        return ""
    return next((one.arg for one in (*function.args.posonlyargs, *function.args.args)), "")


def own_nodes(function: Function | ast.ClassDef) -> list[ast.AST]:
    """The nodes of a body in the order of `ast.walk`, without those of inner functions and classes."""
    return walk_until((*FUNCTIONS, ast.Lambda, ast.ClassDef), *function.body)


def is_generator(function: Function) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own_nodes(function))


def attributes_set(function: Function) -> frozenset[str]:
    """The attributes that a method sets or deletes of its instance, whatever its name."""
    first = instance_of(function)
    paths = bindings_in(function).bound_paths if first else frozenset[str]()
    return frozenset(path.partition(".")[2] for path in paths if path.count(".") == 1 and path.startswith(f"{first}."))
