"""Derive a pipeline plan from a trace: the modules that run in sequence, and the tensors between them, by name.

A stage hands over tensors whose values depend on parameters. A tensor that depends only on the model's inputs (a mask) is
named by these inputs, and each stage computes it; positions depend on no data and are not named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from modular_converter.parallel.pipeline.chain import Chain, ModuleGroup, chains_of, fed
from modular_converter.parallel.plans.pipeline_plan import Entry, PipelinePlan
from modular_converter.parallel.trace.graph import ModuleCall, Trace


def pipeline_of_trace(trace: Trace) -> PipelinePlan | str:
    """The pipeline plan of a traced model, or why it has none.

    The trace should have an ``attention_mask`` if the model takes one: the plan names only inputs in the trace.
    """
    found = derive_pipelines(trace)
    return found if isinstance(found, str) else found[0]


def derive_pipelines(trace: Trace, skips: bool = False) -> list[PipelinePlan] | str:
    """The plans of a traced model, one for each stack of layers that may be divided, or why it has none.

    Args:
        skips: whether the plans are for ``Pipeline``, which also hands on tensors that bypass layers without a name in the
            plan, and has modules without a name on each stage; a plan for transformers must name all.
    """
    chains = chains_of(trace, skips)
    if isinstance(chains, str):
        return chains
    found, reasons = [], []
    for chain in chains:
        layers = chain.groups[chain.layers]
        reason = _repeated(chain) or ("" if skips else _passing(chain, layers) or _crossing(chain, layers))
        if reason:
            reasons.append(reason)
        else:
            found.append(PipelinePlan(trace.model, tuple(_entries(chain))))
    return found or reasons[0]


def _repeated(chain: Chain) -> str:
    """The reason if the layers do not run once each, in order; else ""."""
    paths = [call.path for call in chain.groups[chain.layers].calls]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice:
        return f"`{twice}` runs more than once, so that its weights would be on several stages"
    numbers = [int(path.rpartition(".")[2]) for path in paths]
    if numbers != sorted(numbers):
        return f"the members of `{chain.groups[chain.layers].key}` do not run in their order"
    keys = [group.key for group in chain.groups]
    if keys.count(chain.groups[chain.layers].key) > 1:
        return f"the members of `{chain.groups[chain.layers].key}` alternate with other modules"
    return ""


def _activations(chain: Chain, call: ModuleCall) -> list[tuple[str, tuple[int, ...]]]:
    found = ((name, tuple(n for n in numbers if chain.active(n))) for name, numbers in call.arguments)
    return [(name, numbers) for name, numbers in found if numbers]


def _chained(chain: Chain, layers: ModuleGroup) -> list[str]:
    """The names of arguments that take results of the layer before, masks included."""
    names: dict[str, None] = {}
    for before, after in zip(layers.calls, layers.calls[1:]):
        earlier = {number for op in chain.trace.ops[: before.first] for number in op.outputs}
        entering = fed(chain.trace, before, after)
        made = {number for number in entering if chain.active(number) or number not in earlier}
        names.update(dict.fromkeys(name for name, numbers in after.arguments if made & set(numbers)))
    return list(names)


def _passing(chain: Chain, layers: ModuleGroup) -> str:
    """The reason if layers take different tensors in one argument that the layer before does not compute; else ""."""
    for name in _differing(chain, layers):
        return f"each of `{layers.key}` takes a `{name}` of its own, which the layer before it does not compute"
    return ""


def _differing(chain: Chain, layers: ModuleGroup) -> list[str]:
    """The names of arguments that take different tensors in the layers, though not results of the layer before."""
    chained = _chained(chain, layers)
    seen: dict[str, tuple[int, ...]] = {}
    found: dict[str, None] = {}
    for call in layers.calls:
        for name, numbers in _activations(chain, call):
            if name not in chained and seen.setdefault(name, numbers) != numbers:
                found[name] = None
    return list(found)


def _crossing(chain: Chain, layers: ModuleGroup) -> str:
    """The first tensor that passes a border between two layers without entering the second, in words; "" if none does.

    Outputs of the model may: stages hand them on if they are results of modules, and otherwise the proof fails.
    """
    trace = chain.trace
    made: dict[int, int] = {}
    used: dict[int, int] = {}
    for index, op in enumerate(trace.ops):
        used.update(dict.fromkeys(op.inputs(), index))
        for number in op.outputs:
            made.setdefault(number, index)
    for call in layers.calls[1:]:
        for number in sorted(made):
            crosses = made[number] < call.first <= used.get(number, -1)
            if crosses and chain.active(number) and number not in call.inputs:
                maker = trace.ops[made[number]].module or "the model"
                user = trace.ops[used[number]].module or "the model"
                return f"a tensor that `{maker}` makes before `{call.path}` is used by `{user}`, without passing the layers between"
    return ""


def _entries(chain: Chain) -> list[Entry]:
    layers = chain.groups[chain.layers]
    whole = next(call for call in reversed(chain.trace.modules) if not call.path)
    shared = {*whole.parameters, *(name for call in layers.calls for name, _ in call.arguments)}
    found: dict[str, Entry] = {}
    known = ""  # the name of the last output
    for index, group in enumerate(chain.groups):
        if index == chain.layers:
            outputs = _chained(chain, group)
            differing = _differing(chain, group)
            named = (name for name in _inputs(chain, group, whole, lambda name, _: name) if name not in differing)
            inputs = _joined(named, outputs)
        else:
            inputs = _inputs(chain, group, whole, lambda name, own: _shared_name(name, own, shared, known))  # noqa: B023
            later = [call for after in chain.groups[index + 1 :] for call in after.calls]
            outputs = [_output(group.calls[-1], later, shared, known)]
        entry = Entry(group.key, inputs, tuple(outputs))
        old = found.get(group.key, entry)
        found[group.key] = Entry(group.key, _joined(old.inputs, entry.inputs), _joined(old.outputs, entry.outputs))
        known = entry.outputs[0]
    return list(found.values())


def _joined(left: Iterable[str], right: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*left, *right)))


def _inputs(
    chain: Chain, group: ModuleGroup, whole: ModuleCall, say: Callable[[str, tuple[str, ...]], str]
) -> tuple[str, ...]:
    """The names of the tensors that a group takes.

    Args:
        say: the name of an argument and the caller's variables -> the name of an activation.
    """
    names: dict[str, None] = {}
    for call in group.calls:
        local = dict(call.local_names)
        for name, numbers in call.arguments:
            for number in numbers:
                if chain.active(number):
                    names[say(name, local.get(number, ()))] = None
                else:
                    given = chain.depends[number]
                    names.update(dict.fromkeys(n for n in whole.parameters if n in given))
    return tuple(names)


def _shared_name(name: str, local: tuple[str, ...], shared: set[str], known: str) -> str:
    """A name that the model or its layers use: the caller's variable, the argument, or the name of the last output."""
    own = [variable for variable in local if variable in shared]
    return own[0] if own else name if name in shared else known or name


def _output(call: ModuleCall, later: list[ModuleCall], shared: set[str], known: str) -> str:
    """The variable of the result, if the model or layers use its name; else the name of an argument that takes it."""
    names = [call.result]
    names += [name for c in later for name, numbers in c.arguments if set(numbers) & set(call.outputs)]
    return next((name for name in (*names, known) if name in shared), call.result or "output")
