"""A plan matched with a model: its parameters in whole units, such as heads, and what happens at its modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.parts import lengths_of, look_up_from, value_of
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.text_checks import matches, names_of_parts, shortened
from modular_converter.parallel.styles.layout import EXPERTS_INTEGER, SHARE, Enters, Side, WeightLayout


def own_units(count: int, rank: int, size: int) -> tuple[int, int]:
    """A rank's first unit, and its number of units. Raises ``ApplyError`` if there are fewer units than ranks."""
    if count < size:
        raise ApplyError(f"{count} units are too few for {size} ranks: one rank would hold nothing")
    each, more = divmod(count, size)
    return rank * each + min(rank, more), each + (rank < more)


@dataclass(frozen=True)
class Units:
    """The equal units of each block of an axis.

    Attributes:
        number: of units, such as heads.
        members: if there are more ranks than units, the number of members that the ranks of a unit divide, such as query
            heads; 1 if each of them has a copy of the unit, such as a key/value head; 0 if neither is possible.
    """

    number: int
    members: int = 0

    def own(self, rank: int, size: int) -> tuple[int, int]:
        """A rank's first member among those of all units, and its number of members. Raises as ``own_units`` does."""
        each = max(self.members, 1)
        if self.number >= size or not self.members:
            first, count = own_units(self.number, rank, size)
            return first * each, count * each
        unit = rank * self.number // size
        before, behind = (-(-border * size // self.number) for border in (unit, unit + 1))
        first, count = own_units(each, rank - before, behind - before) if each > 1 else (0, 1)
        return unit * each + first, count

    def has_copies(self, size: int) -> bool:
        """Whether several ranks hold the same units."""
        return self.members == 1 and self.number < size

    def is_first_replica(self, rank: int, size: int) -> bool:
        """Whether no lower rank holds the same units."""
        return not self.has_copies(size) or not rank or self.own(rank, size) != self.own(rank - 1, size)


@dataclass(frozen=True)
class Piece:
    """The cut and the roles of a parameter.

    Attributes:
        roles: the layouts of its uses; several for a tied parameter.
        dim: the dimension that is cut; -1 for a parameter that stays whole.
        parts: lengths of the packed blocks in lowest terms, without expressions.
        rule: the patterns of its rules, for messages.
        length: of this dimension in the whole parameter.
        units: of each block, such as heads; None for single entries.
    """

    roles: frozenset[WeightLayout]
    dim: int
    parts: tuple[int, ...]
    rule: str
    length: int = 0
    units: Units | None = None


@dataclass(frozen=True)
class Resolution:
    """A plan for a model: parameter name -> piece, (module path, layout), and (module path, name) of integers."""

    pieces: dict[str, Piece]
    hooks: tuple[tuple[str, WeightLayout], ...]
    attributes: tuple[tuple[str, str], ...]
    tails: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Module path -> parts of its output, of which the last part enters a sharded region."""


def resolve(plan: Plan, model: torch.nn.Module) -> Resolution:
    """Match a plan with a model.

    Raises ``ApplyError`` if a pattern matches nothing, or two rules cut a parameter differently; the message names both.
    """
    modules = dict(model.named_modules())
    parameters = dict(model.named_parameters(remove_duplicate=False))
    acting = {path for rule in plan.rules if rule.layout.acts_for_weights for path in matches(rule.pattern, modules)}
    pieces: dict[str, Piece] = {}
    hooks: list[tuple[str, WeightLayout]] = []
    tails: dict[str, tuple[int, ...]] = {}
    for rule in plan.rules:
        paths = matches(rule.pattern, modules)
        if rule.layout.of_module:
            hooks.extend((path, rule.layout) for path in _some(paths, rule))
            if rule.layout.enters is Enters.TAIL:
                tails |= {path: _tail(rule, path, modules) for path in paths}
            continue
        names = matches(rule.pattern, parameters)
        for name, leaf in [(n, "") for n in names] or [(p, "m") for p in _some(paths, rule)]:
            found = _module_pieces(name, modules[name], rule) if leaf else {name: _piece(rule, parameters[name])}
            for key, unmeasured in found.items():
                piece = _measured(unmeasured, rule, key, parameters[key], modules)
                if key.rpartition(".")[0] in acting:
                    piece = replace(piece, roles=frozenset({SHARE}))
                pieces[key] = _merged(pieces.get(key), piece, key)
    attributes = dict.fromkeys([*_attributes(plan, modules), *_numbers_of_rows(plan, modules, parameters)])
    return Resolution(_tied(pieces, parameters), tuple(hooks), tuple(attributes), tails)


def check_whole(plan: Plan, model: torch.nn.Module) -> None:
    """Raise ``ApplyError`` for a layer or parameter that a plan leaves whole, if the model has no such part.

    ``resolve`` ignores these lines, since a plan also holds for a model of the same class that lacks a part. But a plan
    under test must name existing parts.
    """
    known = names_of_parts(model)
    for pattern, _ in plan.whole:
        if not matches(pattern, known):
            raise ApplyError(f"whole {pattern}: matches no module and no parameter of the model")


def _measured(
    piece: Piece, rule: PlanRule, name: str, parameter: torch.Tensor, modules: Mapping[str, torch.nn.Module]
) -> Piece:
    """The piece with the lengths of the rule's parts, and its number of units, in this model."""
    if not rule.parts and rule.units is None:
        return piece
    look_up = look_up_from(name.rpartition(".")[0], modules.__getitem__)
    parts = lengths_of(rule.parts, parameter.shape[piece.dim], look_up, name) if rule.parts else ()
    units = Units(value_of(rule.units, look_up, name), rule.members) if rule.units is not None else None
    return replace(piece, parts=parts, units=units)


def _tail(rule: PlanRule, path: str, modules: Mapping[str, torch.nn.Module]) -> tuple[int, ...]:
    weight = getattr(modules[path], "weight", None)
    if not isinstance(weight, torch.Tensor) or len(rule.parts) < 2:
        raise ApplyError(f"{path}: style {rule.style} wants a layer with a weight, and the parts of its output")
    return lengths_of(rule.parts, weight.shape[0], look_up_from(path, modules.__getitem__), path)


def _some(paths: list[str], rule: PlanRule) -> list[str]:
    if not paths:
        raise ApplyError(f"{rule.pattern}: matches no module and no parameter of the model")
    return paths


def _piece(rule: PlanRule, parameter: torch.Tensor) -> Piece:
    layout, rank = rule.layout, parameter.dim()
    dim = rule.dim if rule.dim is not None and layout.cuts else layout.cut.dim(rank)
    if layout.cuts and not 0 <= dim < rank:
        raise ApplyError(f"{rule.pattern}: dimension {dim} of a parameter with {rank}")
    roles = frozenset({layout if layout.acts else SHARE})
    return Piece(roles, dim, (), rule.pattern, parameter.shape[dim] if layout.cuts else 0)


PLAIN_WEIGHT = (
    "make a weight that is computed from others one with parametrize.remove_parametrizations(layer, 'weight'), or where a "
    "hook computes it, torch.nn.utils.prune.remove(layer, 'weight') or torch.nn.utils.remove_weight_norm(layer)"
)


def _module_pieces(path: str, module: torch.nn.Module, rule: PlanRule) -> dict[str, Piece]:
    """The pieces of a module with ``weight`` and maybe ``bias``, which is cut with the output features.

    An embedding may have other parameters beside the table; they stay whole.
    """
    own = dict(module.named_parameters(recurse=False))
    unknown = sorted(set(own) - {"weight", "bias"})
    layout = rule.layout
    if not layout.cuts:
        return {f"{path}.{leaf}": _piece(rule, parameter) for leaf, parameter in own.items()}
    if "weight" not in own or unknown and not layout.of_table:
        message = f"{path}: style {rule.style} wants a module with weight and bias, not {sorted(own) or 'none'}"
        if "weight" not in own and isinstance(getattr(module, "weight", None), torch.Tensor):
            message += f": its weight is computed from other parameters; {PLAIN_WEIGHT}"
        elif (
            (unknown or not own)
            and not isinstance(module, torch.nn.ModuleList)
            and any(True for _ in module.parameters())
        ):
            message += (
                f": the plan knows no parts of a {type(module).__name__}: give plan= with rules for them, add LoRA by peft, whose "
                "adapters are cut as their layers, or take a layout without tp, such as fsdp2"
            )
        raise ApplyError(message)
    found = {f"{path}.weight": _piece(rule, own["weight"])}
    if "bias" in own and layout.cut is Side.OUTPUT:
        found[f"{path}.bias"] = Piece(frozenset({SHARE}), 0, (), rule.pattern, own["bias"].shape[0])
    return found


def _merged(old: Piece | None, new: Piece, name: str) -> Piece:
    if old is None:
        return new
    if (old.dim, old.parts, old.units) != (new.dim, new.parts, new.units):
        raise ApplyError(f"{name}: {old.rule} and {new.rule} split it in different ways")
    return replace(old, roles=old.roles | new.roles, rule=f"{old.rule}, {new.rule}")


def names_of_tied(model: torch.nn.Module) -> dict[str, str]:
    """Parameter name -> first name of the same parameter, for tied weights."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(p), name) for name, p in model.named_parameters(remove_duplicate=False)}


def _tied(pieces: dict[str, Piece], parameters: dict[str, torch.nn.Parameter]) -> dict[str, Piece]:
    """The pieces; tied parameters have one piece with the roles of all their names."""
    by_identity: dict[int, Piece] = {}
    for name, piece in pieces.items():
        key = id(parameters[name])
        by_identity[key] = _merged(by_identity.get(key), piece, name)
    return {name: by_identity[id(p)] for name, p in parameters.items() if id(p) in by_identity}


def _numbers_of_rows(
    plan: Plan, modules: dict[str, torch.nn.Module], parameters: dict[str, torch.nn.Parameter]
) -> list[tuple[str, str]]:
    """The integers of modules that shrink with a weight: the number of stacked experts."""
    found = []
    for rule in plan.rules:
        for name in matches(rule.pattern, parameters) if rule.layout.cut is Side.EXPERTS else ():
            owner = name.rpartition(".")[0]
            if getattr(modules[owner], EXPERTS_INTEGER, None) == parameters[name].shape[0]:
                found.append((owner, EXPERTS_INTEGER))
    return found


def _attributes(plan: Plan, modules: dict[str, torch.nn.Module]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for text in plan.attributes:
        pattern, _, name = text.partition(":")
        paths = matches(pattern, modules)
        if not paths:
            raise ApplyError(f"{shortened(text)}: matches no module of the model")
        found.extend((path, name) for path in paths)
    return found


def fitting(plan: Plan, model: torch.nn.Module) -> Plan:
    """The plan without rules and attributes that match no part of a model, which may have fewer kinds of layers."""
    names = names_of_parts(model)
    rules = tuple(rule for rule in plan.rules if matches(rule.pattern, names))
    attributes = tuple(name for name in plan.attributes if matches(name.partition(":")[0], names))
    return replace(plan, rules=rules, attributes=attributes)
