"""The chain of parts in a trace, and its layers balanced over stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.solve.follow import PARAMETERS, dependence
from modular_converter.parallel.trace.graph import ModuleCall, Trace


def balanced(costs: Sequence[int], stages: int, head: int, tail: int) -> tuple[int, ...]:
    """The first layer of each stage after the first, so that the most expensive stage costs as little as possible.

    Args:
        costs: of each layer, in order, such as bytes of parameters.
        stages: the number of stages, each of at least one layer.
        head: the cost of the first stage without its layers (embeddings).
        tail: the cost of the last stage without its layers (the last norm).

    Returns:
        ``stages - 1`` rising positions; among the best, those with the cheapest other stages, then the first.

    Raises ``ValueError`` for fewer layers than stages, and for no stage.
    """
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} layers cannot be cut into {stages} stages of at least one layer each")
    sums = [0, *accumulate(costs)]

    def price(first: int, last: int, stage: int) -> int:
        return sums[last] - sums[first] + (head if stage == 0 else 0) + (tail if stage == stages - 1 else 0)

    # best[last]: (prices of all stages in falling order, cuts) for the first `last` layers
    best: dict[int, tuple[list[int], tuple[int, ...]]]
    best = {last: ([price(0, last, 0)], ()) for last in range(1, len(costs) - stages + 2)}
    for stage in range(1, stages):
        known, best = best, {}
        for last in range(stage + 1, len(costs) - stages + stage + 2):
            ends = [(one, price(first, last, stage), first) for first, one in known.items() if first < last]
            least = min(max(prices[0], own) for (prices, _), own, _ in ends)  # only these need the order of all prices
            best[last] = min(
                (sorted([*prices, own], reverse=True), (*cuts, first))
                for (prices, cuts), own, first in ends
                if max(prices[0], own) == least
            )
    return best[len(costs)][1]


def cuts_of_balance(balance: Sequence[int], layers: int, stages: int) -> tuple[int, ...]:
    """The first layer of each stage after the first, from the number of layers of each.

    Raises ``ScheduleError`` if the numbers are not as many as stages, do not add up to the layers, or one is below 1.
    """
    balance_text = f"balance {','.join(map(str, balance))}"
    if len(balance) != stages:
        raise ScheduleError(
            f"{balance_text} has {len(balance)} numbers, there are {stages} stages; give the layers of each"
        )
    if min(balance, default=0) < 1 or sum(balance) != layers:
        raise ScheduleError(
            f"{balance_text} adds up to {sum(balance)} layers, the model has {layers}; give each stage at least one layer, and "
            "all layers a stage"
        )
    return tuple(accumulate(balance[:-1]))


def spans(cuts: Sequence[int], layers: int) -> list[range]:
    """The layers of each stage, from the cuts between them."""
    borders = [0, *cuts, layers]
    return [range(first, last) for first, last in zip(borders, borders[1:])]


_LISTS = ("ModuleList", "Sequential")


@dataclass(frozen=True)
class ModuleGroup:
    """The calls, in order, of one module or of the members of one list of modules."""

    key: str
    calls: tuple[ModuleCall, ...]


@dataclass
class Chain:
    """The groups in order of their first call.

    Attributes:
        layers: index in ``groups`` of the list of layers.
        depends: tensor -> its sources (``dependence``).
    """

    trace: Trace
    depends: list[frozenset[str]]
    groups: list[ModuleGroup] = field(default_factory=list)
    layers: int = -1

    def active(self, number: int) -> bool:
        """Whether a tensor's values depend on parameters: an activation, not a mask or positions."""
        return PARAMETERS in self.depends[number]


def chain_of(trace: Trace) -> Chain | str:
    """The first of ``chains_of``, or why there is none."""
    found = chains_of(trace)
    return found if isinstance(found, str) else found[0]


def chains_of(trace: Trace, skips: bool = False) -> list[Chain] | str:
    """The chains of a traced model, one for each stack of layers that may be divided, or why it has none.

    If there are several stacks (an encoder and a decoder, an image tower and a language model), one is divided and the
    others stay whole; the last large stack comes first.

    Args:
        skips: whether modules that a layer feeds may run between it and the next layer (stages hand tensors on to them), and
            whether lists of layers may be idle (each stage then holds them).
    """
    chain = _grouped(trace, "", skips)
    lists = [chain.groups[i].key for i in _stacks(trace, chain)]
    keys, found = lists[:1], [chain]
    if len(set(lists)) > 1:
        sizes = {key: _size(trace, key) for key in dict.fromkeys(lists)}
        keys = sorted(sizes, key=lambda key: (2 * sizes[key] >= max(sizes.values()), lists.index(key)), reverse=True)
        found = [_grouped(trace, key, skips) for key in keys]
    idle = "" if skips and lists else _idle(trace)
    if idle:
        return f"the layers of `{idle}` did not run, so their place in the order is not known"
    if not lists:
        return _no_layers(trace, chain)
    kept = []
    for key, one in zip(keys, found):
        stacks = [i for i in _stacks(trace, one) if not skips or one.groups[i].key == key]
        if len(stacks) == 1:
            one.layers = stacks[0]
            kept.append(_with_one_list(one) if skips else one)
    names = " and ".join(f"`{key}`" for key in dict.fromkeys(lists))
    return kept or f"{names} are {len(lists)} stacks of layers in one module, not one chain"


def _stacks(trace: Trace, chain: Chain) -> list[int]:
    return [i for i, group in enumerate(chain.groups) if _runs_in_order(trace, group)]


def _grouped(trace: Trace, layers: str, skips: bool) -> Chain:
    """The groups of a trace; if a list of layers is given, modules without it are single groups."""
    chain = Chain(trace, dependence(trace))
    whole = next(call for call in reversed(trace.modules) if not call.path)
    for call in _opened(trace, _children(trace, whole), layers):
        if any(map(chain.active, call.outputs)):
            outer = _list_of(trace, call.path)
            key = call.path if outer is None else outer
            if chain.groups and chain.groups[-1].key == key:
                chain.groups[-1] = ModuleGroup(key, (*chain.groups[-1].calls, call))
            else:
                chain.groups.append(ModuleGroup(key, (call,)))
    return _with_branches_behind(chain) if skips else chain


def _with_branches_behind(chain: Chain) -> Chain:
    """The same, with members of a list in one group if the modules that run between two members do not feed the second."""
    groups: list[ModuleGroup] = []
    for group in chain.groups:
        at = next((i for i, one in enumerate(groups) if one.key == group.key != group.calls[0].path), None)
        if at is not None and _passes_by(chain.trace, groups[at].calls[-1], group.calls[0], groups[at + 1 :]):
            groups[at] = ModuleGroup(group.key, (*groups[at].calls, *group.calls))
        else:
            groups.append(group)
    chain.groups = groups
    return chain


def _with_one_list(chain: Chain) -> Chain:
    """The same, with the layers as the only list: members of other lists become groups of their own."""
    layers = chain.groups[chain.layers]
    alone = ([one] if one is layers else [ModuleGroup(c.path, (c,)) for c in one.calls] for one in chain.groups)
    groups = [group for found in alone for group in found]
    return Chain(chain.trace, chain.depends, groups, groups.index(layers))


def _passes_by(trace: Trace, before: ModuleCall, after: ModuleCall, between: Sequence[ModuleGroup]) -> bool:
    """Whether a call is fed by an earlier call and by none of the modules between them."""
    calls = [call for group in between for call in group.calls if before.last <= call.first]
    return bool(fed(trace, before, after)) and not any(fed(trace, call, after) - set(call.inputs) for call in calls)


def _size(trace: Trace, path: str) -> int:
    return sum(one.size for one in trace.parameters if any(name.startswith(f"{path}.") for name in one.names))


def _children(trace: Trace, parent: ModuleCall) -> list[ModuleCall]:
    """The calls that a module's own forward makes, in order. Of one that runs twice, no list of layers can be a chain."""
    return [c for c in trace.modules if c.path and c.caller == parent.path and c.path != parent.path]


def _opened(trace: Trace, calls: list[ModuleCall], layers: str) -> list[ModuleCall]:
    """The calls, with modules that hold a list of layers (the given list, if any) replaced by the calls inside."""
    result = []
    for call in calls:
        inner = [] if _list_of(trace, call.path) is not None else _children(trace, call)
        opens = layers.startswith(f"{call.path}.") if layers else _holds_list(trace, inner)
        result.extend(_opened(trace, inner, layers) if opens and inner else [call])
    return result


def _holds_list(trace: Trace, calls: list[ModuleCall]) -> bool:
    keys = [_list_of(trace, call.path) for call in calls]
    members = [key for call, key in zip(calls, keys) if key is not None and _has_parameters(trace, call.path)]
    if len(set(members)) < len(members):
        return True
    return any(_holds_list(trace, _children(trace, c)) for c, key in zip(calls, keys) if key is None)


def _list_of(trace: Trace, path: str) -> str | None:
    """The list of which a module is a member, "" for the model itself; None if it is in no list."""
    parent, _, leaf = path.rpartition(".")
    return parent if leaf.isdigit() and trace.module_classes.get(parent) in _LISTS else None


def _has_parameters(trace: Trace, path: str) -> bool:
    return any(name.startswith(f"{path}.") for parameter in trace.parameters for name in parameter.names)


def _idle(trace: Trace) -> str:
    """The first list of modules with parameters that did not run; empty if there is none."""
    run = {call.path for call in trace.modules}
    parts = {".".join(path.split(".")[:n]) for path in run for n in range(1, path.count(".") + 2)}
    for path in trace.module_classes:
        parent = _list_of(trace, path)
        if parent and parent not in parts and f"{parent}.1" in trace.module_classes and _has_parameters(trace, path):
            return parent
    return ""


def _runs_in_order(trace: Trace, group: ModuleGroup) -> bool:
    """Whether a group is a list of at least two modules with parameters, each fed by the module before it."""
    if len({call.path for call in group.calls}) < 2 or not any(_has_parameters(trace, c.path) for c in group.calls):
        return False
    return all(fed(trace, call, after) for call, after in zip(group.calls, group.calls[1:]))


def fed(trace: Trace, before: ModuleCall, after: ModuleCall) -> frozenset[int]:
    """The tensors that enter a call and are outputs of an earlier call, or were computed from them between both calls."""
    reached = set(before.outputs)
    for op in trace.ops[before.last : after.first]:
        if reached & set(op.inputs()):
            reached.update(op.outputs)
    return frozenset(reached & set(after.inputs))


def _no_layers(trace: Trace, chain: Chain) -> str:
    paths = [call.path for group in chain.groups for call in group.calls if group.key != call.path]
    twice = next((path for path in paths if paths.count(path) > 1 and _has_parameters(trace, path)), None)
    if twice:
        return f"`{twice}` runs more than once, so that its weights would be on several stages"
    counts: dict[str, int] = {}
    for group in chain.groups:
        if group.key != group.calls[0].path:
            counts[group.key] = counts.get(group.key, 0) + 1
    often = next((key for key, count in counts.items() if count > 1), None)
    if often:
        return f"the members of `{often}` alternate with other modules, so they are not one chain"
    return "no list of modules runs in sequence, each on the output of the module before it"
