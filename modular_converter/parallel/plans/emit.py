"""Write a plan in other vocabularies: transformers' ``base_model_tp_plan`` and torch's ``parallelize_module``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.text_checks import matches, names_of_parts, wildcard
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.styles.layout import Enters, Side


if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Inexpressible:
    """A part of a plan that another vocabulary cannot express: the pattern of a rule or an attribute, and the reason."""

    part: str
    reason: str

    def __str__(self) -> str:
        return self.reason


def inexpressible_of(
    plan: Plan, reasons: Callable[[PlanRule], Iterator[str]], divided: Collection[str] = ()
) -> list[Inexpressible]:
    """What a vocabulary cannot express of a plan.

    Args:
        reasons: gives the reasons against a rule.
        divided: the names of integers that the reader of the plan divides.
    """
    found = [Inexpressible(rule.pattern, f"{rule.pattern}: {why}") for rule in plan.rules for why in reasons(rule)]
    left = [name for name in plan.attributes if name.partition(":")[2] not in divided]
    return found + [Inexpressible(name, f"{name}: an integer that must shrink") for name in left]


def of_layers(rule: PlanRule, modules: Mapping[str, torch.nn.Module], kind: type[torch.nn.Module]) -> Iterator[str]:
    """The reason against a rule that is not of layers of a kind alone."""
    paths = matches(rule.pattern, modules)
    other = next((path for path in paths if not isinstance(modules[path], kind)), None)
    if not paths:
        yield f"no layer of the model has this path, and {rule.style} is for layers"
    elif other is not None:
        yield f"{other} is a {type(modules[other]).__name__}, no {kind.__name__}"


def inexpressible_for_library(plan: Plan, model: torch.nn.Module | None = None) -> list[Inexpressible]:
    """What transformers' vocabulary cannot express of a plan.

    Args:
        model: to find its layers without a rule in the plan that would get one, since all numbers become ``*``.
    """
    found = inexpressible_of(plan, _library_reasons)
    styles: dict[str, set[str]] = {}
    for rule in plan.rules:
        styles.setdefault(wildcard(rule.pattern), set()).add(rule.style)
    for rule in plan.rules:
        pattern = wildcard(rule.pattern)
        if len(styles[pattern]) > 1:
            reason = f"{pattern}: its members need different styles, and that vocabulary cannot name one member"
            found.append(Inexpressible(rule.pattern, reason))
    names = names_of_parts(model) if model is not None else []
    ruled = {name for rule in plan.rules for name in matches(rule.pattern, names)}
    for rule in plan.rules:
        pattern = wildcard(rule.pattern)
        beyond = next((name for name in matches(pattern, names) if name not in ruled), None)
        if beyond is not None:
            reason = f"{wildcard(beyond)}: {beyond} has no rule, and that vocabulary cannot name one member"
            found.append(Inexpressible(rule.pattern, reason))
    return found


def _library_reasons(rule: PlanRule) -> Iterator[str]:
    if not STYLES[rule.style].library:
        yield f"style {rule.style} is ours"
    if rule.dim is not None:
        yield f"dimension {rule.dim}"
    if rule.parts and rule.parts != (1, 1) and rule.layout.enters is not Enters.TAIL:
        yield f"packed parts {':'.join(map(str, rule.parts))}"
    if rule.units is not None:
        yield f"units {rule.units}"


def to_library(plan: Plan, model: torch.nn.Module | None = None) -> dict[str, str]:
    """``{layer pattern: style}`` in the names of transformers 5.23, numbers all ``*``.

    Args:
        model: to check that its layers without a rule in the plan have none in the result.

    Raises ``PlanFormatError`` with the rules that this vocabulary cannot express.
    """
    inexpressible = dict.fromkeys(map(str, inexpressible_for_library(plan, model)))
    if inexpressible:
        raise PlanFormatError(f"{plan.model}: not in transformers' vocabulary: " + "; ".join(inexpressible))
    return {wildcard(rule.pattern): rule.style for rule in plan.rules}


def refused_by_loader(plan: Plan, model: torch.nn.Module) -> list[Inexpressible]:
    """The rules that transformers' vocabulary has, but its loader does not run.

    It sums only the results of layers: bare parameters are cut, and nothing is summed. Parameters of experts are no such
    rules: the module's own rule sums. Its styles of matrices are for layers with ``in_features`` and ``out_features``.
    """
    acting = [rule.pattern for rule in plan.rules if rule.layout.acts_for_weights]
    modules = dict(model.named_modules())
    found = []
    for rule in plan.rules:
        layout = rule.layout
        paths = matches(rule.pattern, modules)
        features = ("in_features", "out_features")
        matrices = paths if layout.cuts and not layout.of_table else []
        other = next((path for path in matrices if not all(hasattr(modules[path], name) for name in features)), None)
        reason = ""
        if layout.cuts and not paths and rule.pattern.rpartition(".")[0] not in acting:
            reason = f"{rule.style} of a parameter: transformers' loader cuts it, but sums nothing"
        elif other is not None:
            reason = f"{other} is a {type(modules[other]).__name__}, and transformers' loader cuts linear layers"
        if reason:
            found.append(Inexpressible(rule.pattern, f"{rule.pattern}: {reason}"))
    return found


def to_torch(plan: Plan, model: torch.nn.Module) -> dict[str, Any]:
    """Styles for ``torch.distributed.tensor.parallel.parallelize_module``.

    Raises ``PlanFormatError`` with the rules that torch's styles cannot express.
    """
    from torch.distributed.tensor import Replicate, parallel

    found: dict[str, Any] = {}
    for name, style in _torch_styles(plan, model).items():
        found[name] = getattr(parallel, style.kind)(**({style.whole_side: Replicate()} if style.whole_side else {}))
    return found


def torch_text(plan: Plan, model: torch.nn.Module) -> str:
    """``to_torch`` as Python text to paste, with its imports. Raises the same errors."""
    styles = _torch_styles(plan, model)
    kinds = sorted({style.kind for style in styles.values()})
    whole = any(style.whole_side for style in styles.values())
    lines = ["from torch.distributed.tensor import Replicate"] if whole else []
    lines += [f"from torch.distributed.tensor.parallel import {', '.join(kinds)}"] if kinds else []
    lines += ["", "", "parallelize_plan = {"] if lines else ["parallelize_plan = {"]
    for name, style in styles.items():
        side = f"{style.whole_side}=Replicate()" if style.whole_side else ""
        lines.append(f'    "{name}": {style.kind}({side}),')
    return "\n".join([*lines, "}"]) + "\n"


@dataclass(frozen=True)
class TorchStyle:
    """The form in ``torch.distributed.tensor.parallel``: the class, its argument for the whole side, the kind of layer."""

    kind: str
    whole_side: str = ""
    layer: str = "Linear"


def torch_style(rule: PlanRule) -> TorchStyle | None:
    """Torch's style for what a rule says; None if it has none."""
    layout = rule.layout
    if layout.of_table:
        return TorchStyle("RowwiseParallel", "input_layouts", "Embedding")
    if not layout.of_product or STYLES[rule.style].packed:
        return None
    if layout.cut is Side.OUTPUT:
        return TorchStyle("ColwiseParallel", "output_layouts" if layout.leaves else "")
    return TorchStyle("RowwiseParallel", "input_layouts" if layout.enters is Enters.SLICE else "")


def _torch_styles(plan: Plan, model: torch.nn.Module) -> dict[str, TorchStyle]:
    """Pattern -> torch's style, in the order of the plan."""
    inexpressible = inexpressible_for_torch(plan, model)
    if inexpressible:
        reasons = "; ".join(map(str, inexpressible))
        raise PlanFormatError(f"{plan.model}: torch has no style for {reasons}; use the plan as text or JSON")
    return {rule.pattern: style for rule in plan.rules if (style := torch_style(rule)) is not None}


def inexpressible_for_torch(plan: Plan, model: torch.nn.Module) -> list[Inexpressible]:
    """What ``parallelize_module`` cannot follow of a plan."""
    modules = dict(model.named_modules())
    return inexpressible_of(plan, lambda rule: _torch_reasons(rule, model, modules))


def _torch_reasons(rule: PlanRule, model: torch.nn.Module, modules: Mapping[str, torch.nn.Module]) -> Iterator[str]:
    import torch

    style = torch_style(rule)
    if style is None or not rule.is_plain:
        yield str(rule).partition(" ")[2]
        return
    unlike = list(of_layers(rule, modules, getattr(torch.nn, style.layer)))
    yield from unlike
    paths = matches(rule.pattern, modules)
    beyond = [name for name in modules if _torch_matches(rule.pattern, name) and name not in paths]
    if beyond:
        yield f"`*` matches any name there, not only the number of a layer: also {beyond[0]}"
    if not unlike:
        yield from _shared(model, [f"{path}.weight" for path in paths])


def _torch_matches(pattern: str, name: str) -> bool:
    """Whether ``parallelize_module`` matches a name: word by word, with ``*`` for any word."""
    words, names = pattern.split("."), name.split(".")
    return len(words) == len(names) and all(map(fnmatchcase, names, words))


def _shared(model: torch.nn.Module, names: list[str]) -> Iterator[str]:
    """The reason against weights that two layers share: ``parallelize_module`` would make two weights of each."""
    every = dict(model.named_parameters(remove_duplicate=False))
    for name in names:
        other = next((one for one in every if one != name and every[one] is every[name]), None)
        if other is not None:
            yield f"{name} is {other} as well, and would be a weight of its own"
            return
