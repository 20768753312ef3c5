"""The bases of generated classes: Python must find an order for them, and none may be a class of another model."""

from __future__ import annotations

import ast
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from modular_converter.convert.examine.fault import Fault, FaultKind
from modular_converter.convert.examine.statements import all_statements, statements_in
from modular_converter.model.bindings import bindings_of
from modular_converter.model.index import imported_names


DEEPEST = 200
"""The most ancestors that an order takes into account. Further ones could only add conditions, and a chain of thousands
takes long.
"""
_TYPING_ONLY = frozenset({"Generic", "Protocol"})
"""Python drops these from the bases if another base inherits from them; they never decide whether there is an order."""


def base_faults(tree: ast.Module, is_neighbour: Callable[[str], bool]) -> Iterator[Fault]:
    """The faults in the bases of the top-level classes. `is_neighbour` recognises the modules of other models by their
    dotted names, leading dots included.
    """
    modules = dict(_imported_names(tree))
    made_from = _made_from(tree, modules)
    orders: dict[str, tuple[str, ...]] = {}
    for number, node in enumerate(_classes(tree)):
        names = [name for base in node.bases if (name := base_name(base)) is not None]
        for base, name in zip(node.bases, map(base_name, node.bases)):
            root, _, rest = (name or "").partition(".")
            above = [root] if root in modules else made_from.get(root, ())
            for one in above:
                if any(map(is_neighbour, _modules_in(modules[one], rest))):
                    yield Fault(FaultKind.FOREIGN_BASE, node.name, f"{one}.{rest}" if rest else one, base.lineno)
        own = f"{node.name}#{number}"  # a class may be defined twice; its bases are those that exist by then
        order = _linear([orders.get(name, (name,)) for name in names if name.rpartition(".")[2] not in _TYPING_ONLY])
        if order is None or len(set(names)) < len(names):
            yield Fault(FaultKind.BASES, node.name, ", ".join(names), node.lineno)
            order = ()
        orders[node.name] = (own, *order)[:DEEPEST]


def base_name(node: ast.expr) -> str | None:
    """`nn.Module` of a base, also of `nn.Module[int]`; None for a base that is no (dotted) name."""
    if isinstance(node, ast.Subscript):
        return base_name(node.value)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        above = base_name(node.value)
        return f"{above}.{node.attr}" if above else None
    return None


def _linear(orders: list[tuple[str, ...]]) -> tuple[str, ...] | None:
    """The method resolution order (C3) of bases with these orders, in their order; None when there is none.

    An imported class counts without its own bases. These only add conditions, so bases without an order here have none
    in Python either.
    """
    if len(orders) == 1:
        return orders[0]
    waiting = [order for order in (*orders, tuple(order[0] for order in orders)) if order]
    heads = [0] * len(waiting)
    behind = Counter(name for order in waiting for name in order[1:])
    at_head: defaultdict[str, list[int]] = defaultdict(list)
    for number, order in enumerate(waiting):
        at_head[order[0]].append(number)
    fit = [number for number, order in enumerate(waiting) if not behind[order[0]]]
    result: list[str] = []
    while fit:
        number = heapq.heappop(fit)
        order, place = waiting[number], heads[number]
        if place == len(order) or behind[order[place]]:  # the head of this list is another one now
            continue
        result.append(order[place])
        for other in at_head.pop(order[place]):
            heads[other] += 1
            for name in waiting[other][heads[other] : heads[other] + 1]:
                at_head[name].append(other)
                behind[name] -= 1
                for free in at_head[name] if not behind[name] else ():
                    heapq.heappush(fit, free)
    return tuple(result) if heads == [len(order) for order in waiting] else None


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """The classes that are created when the module is imported, in order, those under `if` and `try` included."""
    waiting: list[ast.AST] = list(reversed(tree.body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            yield node
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            waiting.extend(reversed(statements_in(node)))


def _modules_in(imported: str, rest: str) -> Iterator[str]:
    """The modules that a dotted name may lead through: with `a.b` imported, `c.D` after it gives `a.b` and `a.b.c`."""
    yield imported
    for part in rest.split(".")[:-1]:
        imported = f"{imported}.{part}"
        yield imported


def _made_from(tree: ast.Module, imported: Container[str]) -> Mapping[str, Sequence[str]]:
    """Name -> the imported names in the values that assignments give it: `A` and `B` for `Base = A if fast else B`."""
    found: dict[str, list[str]] = {}
    for node in all_statements(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            names = sorted(name for name in bindings_of(node.value).needs if name in imported)
            for name in bindings_of(node).binds if names else ():
                found.setdefault(name, []).extend(names)
    return found


def _imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """`(name, object)` of each import anywhere in the file; for an imported class the object is its module."""
    statements = (node for node in all_statements(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
    for one in (name for node in statements for name in imported_names(node)):
        if not one.name:
            yield one.bound, one.module if one.asname else one.bound
        else:
            dot = "" if one.module.endswith(".") else "."
            yield one.bound, f"{one.module}{dot}{one.name}" if one.name.islower() else one.module
