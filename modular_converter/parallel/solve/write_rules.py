"""Turn sharded parameters into rules: one for a layer if a style fits, else one for each parameter, and those of gradients.

Layers that the trace did not use, such as experts without a token, are split like similar layers. A rank with some of the
heads computes only their contribution to the gradient of a tensor that all heads read. Column-wise weights sum the
gradient of their input; every other whole tensor that enters a sharded region needs a rule, for a parameter or for a
module's output. Blocks of an axis have the code's own names for their lengths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from modular_converter.parallel.plans.parts import LENGTH, REST, Part
from modular_converter.parallel.plans.plan import PlanRule
from modular_converter.parallel.solve.axes import SUM, Seq, size
from modular_converter.parallel.solve.choose import DIVISOR
from modular_converter.parallel.solve.flow import Count, Flow, Requirement, uses
from modular_converter.parallel.solve.follow import sums_at_border
from modular_converter.parallel.solve.operators import traits_of
from modular_converter.parallel.styles import style_of
from modular_converter.parallel.styles.layout import (
    COLWISE,
    ENTERING_OUTPUT,
    GATHERED,
    ROWWISE,
    SHARE,
    SLICED_EXPERTS,
    SUMMED_GRADIENT,
    SUMMED_TAIL,
    VOCABULARY,
    WeightLayout,
)
from modular_converter.parallel.trace.graph import PARAM, Op, Parameter, Source, Trace


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//"}


def parts_of(flow: Flow, seq: Seq, lengths: Sequence[int], path: str) -> tuple[Part, ...] | None:
    """The ``parts`` of a rule for the blocks of an axis, valid for a model of any size.

    Args:
        lengths: of the blocks, in the small instance.
        path: the module whose attributes, or whose parents' attributes, may be named.

    Returns:
        ``()`` for one block; else a 1 for each block that the code cuts, an expression for their number, or an expression
        for each block. None if the code has none of these: then the proportion holds only for the small instance.
    """
    if len(lengths) < 2:
        return ()
    texts = _texts(flow, seq, lengths)
    if texts and (len(set(texts)) > 1 or len(texts) >= DIVISOR):
        return texts
    if len(set(lengths)) > 1:
        return None
    if texts:  # fewer than DIVISOR blocks are written in the code; in a small instance a configuration has more
        return (1,) * len(lengths)
    number = _number(flow, flow.axes.flat(seq), len(lengths), path)
    if number is None:
        return None
    return (1,) * len(lengths) if number.isdigit() else (number,)


def _texts(flow: Flow, seq: Seq, lengths: Sequence[int]) -> tuple[str, ...]:
    """An expression for each block, from the cuts of an axis and of its parts; empty if one is missing."""
    flat = flow.axes.flat(seq)
    segments = flat[0].parts if len(flat) == 1 and flat[0].kind == SUM else []
    stretches = _stretches(flow, seq)
    found: list[str | None] = []
    start, rest = 0, list(lengths)
    for segment in segments:
        own = _taken(rest, size(segment))
        rest = rest[len(own) :]
        found += (
            [_length(stretches, start, start + size(segment))]
            if len(own) == 1
            else _texts(flow, segment, own) or [None]
        )
        start += size(segment)
    if len(found) == len(lengths) and found.count(None) == 1:
        found[found.index(None)] = REST
    texts = tuple(text for text in found if text is not None)
    return texts if len(texts) == len(found) == len(lengths) else ()


def _taken(lengths: Sequence[int], total: int) -> list[int]:
    """The first lengths that add up to a total; empty if no such lengths do."""
    ends = list(accumulate(lengths))
    return list(lengths[: ends.index(total) + 1]) if total in ends else []


def _number(flow: Flow, flat: Seq, number: int, path: str) -> str | None:
    """The code's name for the number of equal blocks: a constant, or an expression in attributes of modules."""
    lengths, counts = _by_key(flow, flow.requirements), _by_key(flow, flow.counts)
    found: list[str] = []
    constant = None
    for at in range(1, len(flat) + 1):
        sources = counts.get(_key_of_axes(flow, flat[:at]), [])
        if size(flat[:at]) == number:
            sources = sources + lengths.get(_key_of_axes(flow, flat[:at]), [])
            found += [
                f"{LENGTH}//{_in_brackets(text)}"
                for text in _around(lengths.get(_key_of_axes(flow, flat[at:]), []), path)
            ]
        sources = [source for source in sources if source.value == number]
        found = _around(sources, path) + found
        constant = str(number) if any(source.kind == "const" for source in sources) else constant
    return found[0] if found else constant


def _in_brackets(text: str) -> str:
    return text if text.replace(".", "").isidentifier() else f"({text})"


def _by_key(flow: Flow, remarks: Iterable[Requirement] | Iterable[Count]) -> dict[tuple[int, ...], list[Source]]:
    found: dict[tuple[int, ...], list[Source]] = {}
    for remark in remarks:
        found.setdefault(_key_of_axes(flow, remark.seq), []).append(remark.source)
    return found


def _around(sources: Iterable[Source], path: str) -> list[str]:
    """The sources that are attributes of a module or of its parents, as text."""
    return [text for source in sources if _is_around(source, path) and (text := text_of(source))]


def _is_around(source: Source, path: str) -> bool:
    owners = [leaf.owner for leaf in source.leaves()]
    return bool(owners) and all(f"{path}.".startswith(f"{owner}.") or not owner for owner in owners)


def _length(stretches: Mapping[tuple[int, int], Source], start: int, stop: int) -> str | None:
    """The code's name for the length of a part: a split size, or the difference of two slice borders."""
    own, before, upto = stretches.get((start, stop)), stretches.get((0, start)), stretches.get((0, stop))
    if own is not None:
        return text_of(own)
    if before is None or upto is None:
        return None
    if upto.kind == "add" and upto.args[0] == before:
        return text_of(upto.args[1])
    return f"({text_of(upto)})-({text_of(before)})"


def _stretches(flow: Flow, seq: Seq) -> dict[tuple[int, int], Source]:
    """(Start, stop) of a part -> the first source for its length that has a text."""
    found: dict[tuple[int, int], Source] = {}
    key = _key_of_axes(flow, seq)
    for stretch in flow.stretches:
        if stretch.source.leaves() and text_of(stretch.source) and _key_of_axes(flow, stretch.seq) == key:
            found.setdefault((stretch.start, stretch.stop), stretch.source)
    return found


def _key_of_axes(flow: Flow, seq: Seq) -> tuple[int, ...]:
    return tuple(atom.number for atom in flow.axes.leaves(seq))


def text_of(source: Source) -> str | None:
    """An integer's source as an expression in attributes; None if it depends on a shape, or on numbers alone."""
    if source.kind == "attr":
        return source.name
    if source.kind == "const":
        return str(source.value)
    if source.kind not in _SIGNS or not source.leaves():
        return None
    left, right = (text_of(arg) for arg in source.args)
    if left is None or right is None:
        return None
    return f"{_wrapped(left, source.args[0])}{_SIGNS[source.kind]}{_wrapped(right, source.args[1])}"


def _wrapped(text: str, source: Source) -> str:
    return text if source.kind in ("attr", "const") else f"({text})"


@dataclass
class Entries:
    """Parameters and module outputs whose gradients need a sum, and entries (tensor numbers) where no rule is possible."""

    parameters: set[int] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    tails: dict[str, tuple[Part, ...]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)


class GradientFlow:
    """Consumers and producers of a trace's tensors, and the sharded tensors."""

    def __init__(self, flow: Flow, chosen: set[int]) -> None:
        self.flow = flow
        self.trace = flow.trace
        self.chosen = chosen
        self.needs = self._needs_gradient()
        self.sharded = {n for n in flow.dims if self._is_sharded(n)}
        self.consumers: dict[int, list[int]] = {}
        self.producer: dict[int, int] = {}
        for index, op in enumerate(self.trace.ops):
            for number in op.inputs():
                self.consumers.setdefault(number, []).append(index)
            for number in op.outputs:
                self.producer.setdefault(number, index)
        self.memo: dict[int, bool] = {}

    def _is_sharded(self, number: int) -> bool:
        axes = self.flow.axes
        return any(atom.number in self.chosen for seq in self.flow.dims[number] for atom in axes.leaves(seq))

    def _needs_gradient(self) -> set[int]:
        needs = {n for n, tensor in enumerate(self.trace.tensors) if tensor.kind == PARAM and tensor.floating}
        for op in self.trace.ops:
            if traits_of(op).gradient and any(number in needs for number in op.inputs()):
                found = ((out, self.trace.tensors[out]) for out in op.outputs)
                needs |= {out for out, tensor in found if tensor.floating and 0 not in tensor.shape}
        return needs

    def handled(self, op: Op) -> bool:
        """Whether an operation is a product with a sharded parameter, which sums the gradient of its input itself."""
        origins = [self.flow.origin.get(number) for number in op.inputs()]
        return (
            any(number in self.sharded and origin is not None for number, origin in zip(op.inputs(), origins))
            and traits_of(op).product
        )

    def inside(self, number: int) -> bool:
        """Whether all uses of a whole tensor lead into a sharded region, so that its gradient is a partial sum."""
        if number in self.memo:
            return self.memo[number]
        self.memo[number] = False
        users = [i for i in self.consumers.get(number, ()) if self._matters(i)]
        result = bool(users) and number not in self.trace.outputs
        for index in users:
            op = self.trace.ops[index]
            inner = (out for out in op.outputs if out in self.needs)
            result = result and (self.enters(index) or not self._any_sharded(op) and all(map(self.inside, inner)))
        self.memo[number] = result
        return result

    def _matters(self, index: int) -> bool:
        return any(out in self.needs for out in self.trace.ops[index].outputs)

    def _any_sharded(self, op: Op) -> bool:
        return any(out in self.sharded for out in op.outputs)

    def enters(self, index: int) -> bool:
        """Whether the gradients of this operation's whole operands must be summed."""
        op = self.trace.ops[index]
        return self._any_sharded(op) and not self.handled(op)


def gradient_entries(flow: Flow, chosen: set[int]) -> Entries:
    """All places where a gradient must be summed."""
    graph = GradientFlow(flow, chosen)
    found = Entries()
    for index in range(len(flow.trace.ops)):
        if not graph.enters(index):
            continue
        for number in flow.trace.ops[index].inputs():
            if number in graph.needs and number not in graph.sharded:
                _reach(graph, number, found)
    return found


def _reach(graph: GradientFlow, number: int, found: Entries) -> None:
    """Walk up from an entering tensor to the first places for a rule."""
    trace = graph.trace
    if not graph.inside(number):
        tail = _tail(graph, number)
        if tail is None:
            found.lost.add(number)
        else:
            found.tails[tail[0]] = tail[1]
        return
    if trace.tensors[number].kind == PARAM:
        found.parameters.add(number)
        return
    module = _border(graph, number)
    if module is not None:
        found.outputs.add(module)
        return
    producer = graph.producer.get(number)
    parents = trace.ops[producer].inputs() if producer is not None else ()
    for parent in parents:
        if parent in graph.needs and parent not in graph.sharded:
            _reach(graph, parent, found)
        elif parent in graph.needs:
            found.lost.add(number)


def _border(graph: GradientFlow, number: int) -> str | None:
    """The outermost module whose only output is such a tensor in each call, and this tensor in one call; else None."""
    calls: dict[str, list[tuple[int, ...]]] = {}
    for call in graph.trace.modules:
        calls.setdefault(call.path, []).append(call.outputs)
    paths = [path for path, outputs in calls.items() if path and (number,) in outputs]
    alike = [path for path in paths if all(_enters_alone(graph, outputs) for outputs in calls[path])]
    return min(alike, key=len) if alike else None


def _enters_alone(graph: GradientFlow, outputs: tuple[int, ...]) -> bool:
    return len(outputs) == 1 and outputs[0] not in graph.sharded and graph.inside(outputs[0])


def _tail(graph: GradientFlow, number: int) -> tuple[str, tuple[Part, ...]] | None:
    """A module whose output is cut in two parts, of which only the last enters a sharded region, as in latent attention.

    Returns:
        The module and the parts of its output; None if the tensor is no such output.
    """
    path = next((call.path for call in graph.trace.modules if call.outputs == (number,) and call.path), None)
    users = [index for index in graph.consumers.get(number, ()) if graph._matters(index)]
    cuts = [graph.trace.ops[index] for index in users]
    if path is None or not cuts or not all(traits_of(op).part for op in cuts):
        return None
    pieces = list(dict.fromkeys(out for op in cuts for out in op.outputs))
    if sorted(map(graph.inside, pieces)) != [False, True]:
        return None
    axes, axis = graph.flow.axes, graph.flow.of(number)[-1]
    seqs = [graph.flow.of(piece)[-1] for piece in sorted(pieces, key=graph.inside)]
    if axes.leaves(axis) != [leaf for seq in seqs for leaf in axes.leaves(seq)]:
        return None  # entries are left out, or the first part enters
    parts = parts_of(graph.flow, axis, [size(seq) for seq in seqs], path)
    return None if parts is None else (path, parts)


@dataclass(frozen=True)
class ShardedParameter:
    """The split of a parameter: the layout of its use, the dimension, and the packed parts."""

    layout: WeightLayout
    dim: int
    parts: tuple[Part, ...]
    tied_head: bool = False


def rules_of(flow: Flow, shards: dict[str, ShardedParameter], found: Entries) -> list[PlanRule]:
    """All rules in order of the parameters, then the rules for gradients."""
    trace = flow.trace
    by_owner: dict[str, dict[str, Parameter]] = {}
    for parameter in trace.parameters:
        owner, _, leaf = parameter.name.rpartition(".")
        by_owner.setdefault(owner, {})[leaf] = parameter
    exact = [rule for owner, own in by_owner.items() for rule in _owner_rules(flow, owner, own, shards)]
    for parameter in trace.parameters:
        shard = shards.get(parameter.name)
        if shard is not None and shard.tied_head:
            owners = {name.rpartition(".")[0] for name in parameter.names}
            exact = [rule for rule in exact if rule.pattern not in owners]
            exact += _tied_rules(trace, parameter)
    tensors = {parameter.tensor: parameter.name for parameter in trace.parameters}
    exact += _summed_gradients({tensors[n]: n for n in sorted(found.parameters)}, by_owner)
    exact += [PlanRule(path, style_of(ENTERING_OUTPUT)) for path in sorted(found.outputs)]
    exact += [PlanRule(path, style_of(SUMMED_TAIL), None, parts) for path, parts in sorted(found.tails.items())]
    return _generic(trace, exact)


def _summed_gradients(summed: Mapping[str, int], by_owner: Mapping[str, Mapping[str, Parameter]]) -> list[PlanRule]:
    """Rules for modules all of whose own weights need a sum, since transformers' loader acts on modules; else for weights."""
    patterns: dict[str, None] = {}
    for name in summed:
        owner, own = name.rpartition(".")[0], by_owner[name.rpartition(".")[0]]
        patterns.setdefault(owner if owner and all(f"{owner}.{leaf}" in summed for leaf in own) else name)
    return [PlanRule(pattern, style_of(SUMMED_GRADIENT)) for pattern in patterns]


def table_owners(trace: Trace, parameter: Parameter) -> list[str]:
    """The modules that look up rows of a vocabulary, without a head that shares the weight."""
    looked_up = {op.module for op in trace.ops if op.name == "embedding" and op.inputs()[:1] == (parameter.tensor,)}
    owners = _owners(parameter)
    return [owner for owner in owners if owner in looked_up] or owners[:1]


def has_head(trace: Trace, parameter: Parameter) -> bool:
    """Whether a vocabulary is also the weight of a head."""
    return set(_owners(parameter)) > set(table_owners(trace, parameter))


def _owners(parameter: Parameter) -> list[str]:
    return [name.rpartition(".")[0] for name in parameter.names]


def _tied_rules(trace: Trace, parameter: Parameter) -> list[PlanRule]:
    """The rules of a vocabulary and of the head that shares it."""
    tables = table_owners(trace, parameter)
    return [PlanRule(owner, style_of(VOCABULARY if owner in tables else GATHERED)) for owner in _owners(parameter)]


def _generic(trace: Trace, exact: list[PlanRule]) -> list[PlanRule]:
    """The rules, with ``*`` for numbers if all matches of the pattern get the same rule.

    Otherwise (members of a sequence, a layer unlike the others) ``*`` replaces only some numbers, or none.
    """
    known = set(trace.module_classes) | {name for parameter in trace.parameters for name in parameter.names}
    by_path = {rule.pattern: rule for rule in exact}
    groups: dict[str, list[str]] = {}
    for path in known:
        for pattern in _patterns(path):
            groups.setdefault(pattern, []).append(path)
    result: dict[str, PlanRule] = {}
    for rule in exact:
        for pattern in _patterns(rule.pattern):
            same = (by_path.get(path) for path in groups.get(pattern, ()))
            if all(other is not None and _alike(other, rule) for other in same):
                result.setdefault(pattern, PlanRule(pattern, rule.style, rule.dim, rule.parts))
                break
    return list(result.values())


def generic_attributes(trace: Trace, attributes: set[tuple[str, str]]) -> list[str]:
    """``<module pattern>:<name>`` of each attribute, as general as modules of the same class allow."""
    found = set()
    for path, name in attributes:
        kind = trace.module_classes.get(path)
        for pattern in _patterns(path):
            same = [p for p, other in trace.module_classes.items() if other == kind and pattern in _patterns(p)]
            matched = [p for p in trace.module_classes if pattern in _patterns(p)]
            if len(same) == len(matched) and all((p, name) in attributes for p in same):
                found.add(f"{pattern}:{name}")
                break
    return sorted(found)


def _patterns(path: str) -> list[str]:
    """The patterns of a path: with ``*`` for all numbers, all but the last, only the first, and none."""
    words = path.split(".")
    numbers = [i for i, word in enumerate(words) if word.isdigit()]
    found = []
    for wild in (numbers, numbers[:-1], numbers[:1], []):
        pattern = ".".join("*" if i in wild else word for i, word in enumerate(words))
        if pattern not in found:
            found.append(pattern)
    return found


def _alike(left: PlanRule, right: PlanRule) -> bool:
    return (left.style, left.dim, left.parts) == (right.style, right.dim, right.parts)


def _owner_rules(
    flow: Flow, owner: str, own: dict[str, Parameter], shards: dict[str, ShardedParameter]
) -> list[PlanRule]:
    prefix = f"{owner}." if owner else ""
    sharded = {leaf: shards[prefix + leaf] for leaf in own if prefix + leaf in shards}
    weight = sharded.get("weight")
    if weight is not None and set(own) <= {"weight", "bias"}:
        rule = _module_rule(owner, own, weight, sharded.get("bias"))
        if rule is not None:
            return [rule]
    rules = [_parameter_rule(prefix + leaf, own[leaf], shard) for leaf, shard in sharded.items()]
    if _is_experts(own, sharded) and sums_at_border(flow, owner, _rows(own, sharded)):
        if not owner:  # the model itself, which no rule names
            return []
        rules.append(PlanRule(owner, style_of(SLICED_EXPERTS)))
    return rules


def _module_rule(
    owner: str, own: dict[str, Parameter], weight: ShardedParameter, bias: ShardedParameter | None
) -> PlanRule | None:
    """The rule of a layer with a weight and maybe a bias; None if no style splits both so."""
    layout = weight.layout
    if layout == COLWISE and (
        ("bias" in own) != (bias is not None) or bias is not None and bias.parts != weight.parts
    ):
        return None
    if layout == SHARE or layout == ROWWISE and bias is not None:
        return None
    return _rule(owner, weight, layout.cut.dim(len(own["weight"].shape)))


def _parameter_rule(name: str, parameter: Parameter, shard: ShardedParameter) -> PlanRule:
    """The rule of a bare parameter; it states the dimension unless products use it like a layer's weight."""
    layout = shard.layout
    return _rule(name, shard, layout.cut.dim(len(parameter.shape)) if layout in (COLWISE, ROWWISE) else None)


def _rule(pattern: str, shard: ShardedParameter, usual: int | None) -> PlanRule:
    style = style_of(shard.layout, bool(shard.parts))
    return PlanRule(pattern, style, None if usual == shard.dim else shard.dim, shard.parts)


def _rows(own: dict[str, Parameter], sharded: dict[str, ShardedParameter]) -> set[int]:
    return {own[leaf].tensor for leaf, shard in sharded.items() if shard.layout == ROWWISE}


def _is_experts(own: dict[str, Parameter], sharded: dict[str, ShardedParameter]) -> bool:
    """Whether all weights are split, with column-wise and row-wise stacks of matrices, so that the module can be summed."""
    stacks = [leaf for leaf, parameter in own.items() if len(parameter.shape) == 3]
    layouts = {sharded[leaf].layout for leaf in stacks if leaf in sharded}
    return bool(stacks) and set(own) == set(sharded) and layouts == {COLWISE, ROWWISE}


_NUMBER = re.compile(r"\d+")
_PLACE = re.compile(r"(?:^|_)\d+$")  # in a list (`3`, `expert_3`), unlike the number in `fc1`
# Layouts that need neither attributes that shrink nor a sum in another module.
_COMPLETE = (COLWISE, ROWWISE)
Key = tuple[str, tuple[int, ...], tuple[str, ...]]


def shards_of_untraced(flow: Flow, shards: Mapping[str, ShardedParameter]) -> dict[str, ShardedParameter]:
    """Unused parameter -> its split: the split of all similar used parameters, if they are split in the same way.

    Similar parameters have the same shape, names that differ only in numbers, modules of the same classes, and the same
    weights beside them: another forward or another weight may need the whole axis. The weights of a module, and of
    modules with one number in several lists, are split all or not at all.
    """
    modules: dict[tuple[str, frozenset[str], str], dict[str, Key]] = {}
    groups = _groups(parameter.name for parameter in flow.trace.parameters)
    for parameter in flow.trace.parameters:
        modules.setdefault(groups[parameter.name], {})[parameter.name] = _key(flow, parameter)
    known = {parameter.name for parameter in flow.trace.parameters if uses(flow, parameter)}
    used: dict[tuple[Key, frozenset[Key]], set[ShardedParameter | None]] = {}
    for keys in modules.values():
        for name in keys.keys() & known:
            used.setdefault((keys[name], frozenset(keys.values())), set()).add(shards.get(name))
    found: dict[str, ShardedParameter] = {}
    for keys in modules.values():
        ways = {n: used.get((key, frozenset(keys.values())), {None}) for n, key in keys.items() if n not in known}
        if all(len(way) == 1 for way in ways.values()):
            split = {name: one for name, (one,) in ways.items() if one is not None}
            found |= split if all(_is_complete(split, name) for name in split) else {}
    return found


def _is_complete(split: Mapping[str, ShardedParameter], name: str) -> bool:
    """Whether a split is the whole of a layer's, or of a bias that follows its weight."""
    owner, _, leaf = name.rpartition(".")
    weight = split.get(f"{owner}.weight")
    follows = leaf == "bias" and weight is not None and weight.layout == COLWISE
    return follows or split[name].layout in _COMPLETE


def _key(flow: Flow, parameter: Parameter) -> Key:
    words = parameter.name.split(".")
    paths = (".".join(words[:count]) for count in range(1, len(words)))
    classes = tuple(flow.trace.module_classes.get(path, "") for path in paths)
    return _NUMBER.sub("*", parameter.name), parameter.shape, classes


def _groups(names: Iterable[str]) -> dict[str, tuple[str, frozenset[str], str]]:
    """Name -> the module around it, all places in its list, and its own place.

    The list is the last one of its path, and its name does not count: `layers.0.up.3` and `layers.0.down.3` may be parts of
    one expert, if both lists have the same places.
    """
    split = {name: _place_of(name) for name in names}
    places: dict[tuple[str, str], set[str]] = {}
    for owner, listed, place in split.values():
        places.setdefault((owner, listed), set()).add(place)
    return {name: (owner, frozenset(places[owner, listed]), place) for name, (owner, listed, place) in split.items()}


def _place_of(name: str) -> tuple[str, str, str]:
    """The module around the last list of a path, the list's name, and the place in it; empty without a list."""
    words = name.split(".")
    last = max((number for number, word in enumerate(words) if _PLACE.search(word)), default=0)
    return (".".join(words[: last - 1]), words[last - 1], words[last]) if last else ("", "", "")
