"""What the code of a layer does under a layout: the communication at its edges, with and without gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.styles.layout import Enters, Side, WeightLayout


class Region(Protocol):
    """The ranks that a layer is sharded over. With gradients, its methods are differentiable."""

    rank: int

    def enter(self, value: Any) -> Any:
        """Let whole tensors, also in lists and tuples, enter the sharded region: their gradients are summed."""

    def sum(self, value: Any) -> Any:
        """The sum of a partial tensor over the ranks, which leaves the sharded region."""

    def sum_of_product(self, function: Callable[..., Any], input: Any, weight: Any, bias: Any) -> Any:
        """The sum of ``function(input, weight, bias)`` over the ranks, with the bias once."""

    def gather(self, value: Any, dim: int, borders: Sequence[int]) -> Any:
        """The whole tensor of shares along ``dim``, which leaves the sharded region.

        Args:
            borders: the first entry of each rank, and the length of the whole dimension.
        """


def own_range(region: Region, borders: Sequence[int]) -> tuple[int, int]:
    """The range of this rank's entries: first, last + 1."""
    return borders[region.rank], borders[region.rank + 1]


def product_of(layout: WeightLayout, region: Region, borders: Sequence[int]) -> Callable[..., Any]:
    """A layer's product with the facts of its weight bound: called with ``function, input, weight, bias``."""
    if layout.cut is Side.INPUT and layout.enters is not Enters.SLICE:
        return region.sum_of_product
    return partial(layer_product, layout, region, borders)


def layer_product(
    layout: WeightLayout,
    region: Region,
    borders: Sequence[int],
    function: Callable[..., Any],
    input: Any,
    weight: Any,
    bias: Any,
) -> Any:
    """The output of a linear layer, ``function(input, weight, bias)`` on its share."""
    if layout.cut is Side.OUTPUT:
        found = function(region.enter(input), weight, bias)
        return found if layout.leaves is None else region.gather(found, -1, borders)
    if layout.enters is Enters.SLICE:
        input = region.enter(input)[..., slice(*own_range(region, borders))]
    return region.sum_of_product(function, input, weight, bias)


def looked_up(
    region: Region,
    borders: Sequence[int],
    ids: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """The rows of a table of which each rank has a range. Ids beyond the vocabulary raise torch's own error."""
    import torch

    if scale_grad_by_freq or sparse:
        raise ApplyError("scale_grad_by_freq and sparse need all ids on one rank; leave this embedding whole")
    first, last = own_range(region, borders)
    away = (ids < first) | (ids >= last)
    elsewhere = away & (ids >= 0) & (ids < borders[-1])
    pad = None if padding_idx is None or not first <= padding_idx < last else padding_idx - first
    # Compiled code would break its graph at `as_subclass` of a plain parameter.
    rows = weight if type(weight) in (torch.Tensor, torch.nn.Parameter) else weight.as_subclass(torch.Tensor)
    if max_norm is not None and not ids.is_meta:
        with torch.no_grad():
            torch.embedding_renorm_(rows.detach(), (ids - first)[~away], max_norm, norm_type)
    found = torch.nn.functional.embedding((ids - first).masked_fill(elsewhere, 0), rows, pad)
    return region.sum(found.masked_fill(elsewhere.unsqueeze(-1), 0))


@dataclass(frozen=True)
class WeightUse:
    """A call of a function with a weight.

    Attributes:
        name: of the function.
        product: whether it multiplies operands.
        borders: the first entry of each rank along the cut dimension, and the whole length.
        is_weight: whether a value is a weight of the model.
    """

    function: Callable[..., Any]
    name: str
    product: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    region: Region
    borders: tuple[int, ...]
    is_weight: Callable[[Any], bool]


def weight_forward(layout: WeightLayout, use: WeightUse) -> Any:
    """The result of a function with a weight under a layout; ``NotImplemented`` if the function needs no change."""
    if layout.enters is Enters.WEIGHT:
        return _with_entered_weights(use)
    if layout.of_table:
        return (
            looked_up(use.region, use.borders, *use.args, **use.kwargs) if use.name == "embedding" else NotImplemented
        )
    if not use.product or not layout.of_product:
        return NotImplemented
    if layout.cut is Side.INPUT:
        return _summed_product(use, layout.enters is Enters.SLICE)
    is_convolution = use.name.startswith("conv")
    bias = 2 if is_convolution else _BIAS.get(use.name)  # cut as the output to which it is added
    args = [
        value if number == bias else _mapped(value, lambda one: one if use.is_weight(one) else use.region.enter(one))
        for number, value in enumerate(use.args)
    ]
    result = use.function(*args, **use.kwargs)
    if layout.leaves is None:
        return result
    return use.region.gather(result, 1 if is_convolution else -1, use.borders)


# Function -> the position of what it adds to a product.
_BIAS = {"linear": 2, "addmm": 0, "baddbmm": 0}


def _with_entered_weights(use: WeightUse) -> Any:
    """The result with a whole weight inside a sharded region, such as a norm of each head, on this rank's share."""
    import torch

    def enter(value: Any) -> Any:
        return use.region.enter(value.as_subclass(torch.Tensor)) if use.is_weight(value) and value.whole else value

    kwargs = {key: _mapped(value, enter) for key, value in use.kwargs.items()}
    return use.function(*_mapped(use.args, enter), **kwargs)


def _summed_product(use: WeightUse, split: bool) -> Any:
    """The sum of the partial products; the bias is whole and added once.

    Args:
        split: whether the input is whole, and sliced first.
    """

    def share(value: Any) -> Any:
        return use.region.enter(value)[..., slice(*own_range(use.region, use.borders))] if split else value

    args, kwargs, name = list(use.args), dict(use.kwargs), use.name
    if name in ("addmm", "baddbmm"):
        bias, left, right = args[:3]
        return kwargs.get("alpha", 1) * use.region.sum(share(left) @ right) + kwargs.get("beta", 1) * bias
    bias = kwargs.pop("bias", None)
    if (name == "linear" or name.startswith("conv")) and len(args) > 2:
        bias, args[2] = args[2], None
    args[0] = share(args[0])
    result = use.region.sum(use.function(*args, **kwargs))
    if bias is None:
        return result
    return result + (bias.view(-1, *[1] * int(name[-2])) if name.startswith("conv") else bias)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, change) for item in value)
    return change(value)


@dataclass(frozen=True)
class Site:
    """A module with a layout.

    Attributes:
        path: its name, for messages.
        parts: relative lengths of the parts of its output, for the last of which a layout may be.
        firsts: parameter that is cut along its first dimension -> the range of the rank's entries (first, last + 1).
    """

    path: str
    region: Region
    parts: tuple[int, ...] = ()
    firsts: Mapping[str, tuple[int, int]] = field(default_factory=dict)


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def before_of(layout: WeightLayout, site: Site) -> Callable[[tuple[Any, ...], dict[str, Any]], Arguments] | None:
    """What changes the arguments of a module's forward; None if nothing does.

    Raises ``ApplyError`` for a module that the layout does not fit.
    """
    if layout.enters is Enters.ROUTES:
        experts = local_experts(site)
        return lambda args, kwargs: _routed(site, experts, args, kwargs)
    if layout.enters is not Enters.INPUTS:
        return None
    enter = site.region.enter
    return lambda args, kwargs: (enter(args), {key: enter(value) for key, value in kwargs.items()})


def after_of(layout: WeightLayout, site: Site) -> Callable[[Any], Any] | None:
    """What changes the result of a module's forward; None if nothing does."""
    if layout.leaves is not None:
        return lambda result: on_first(site.region.sum, result)
    if layout.enters is Enters.TAIL:
        return lambda result: _with_entered_tail(site, result)
    return site.region.enter if layout.enters is Enters.OUTPUT else None


def on_first(change: Callable[[Any], Any], result: Any) -> Any:
    """A result with its tensor changed, or the first of several outputs."""
    import torch

    return change(result) if isinstance(result, torch.Tensor) else (change(result[0]), *result[1:])


def _with_entered_tail(site: Site, result: Any) -> Any:
    """The output, whose last part all heads read, as in latent attention."""
    import torch

    length = result.shape[-1] * site.parts[-1] // sum(site.parts)
    head, last = torch.split(result, [result.shape[-1] - length, length], -1)
    return torch.cat([head, site.region.enter(last)], -1)


@dataclass(frozen=True)
class Routing:
    """The arguments, by position or name, in which a module of experts takes the chosen experts and their weights."""

    index: int | str
    weights: int | str


def routing_of(arguments: dict[int | str, Any]) -> Routing | None:
    """The only integer tensor among the arguments, and the only floating tensor of its shape; None if one is not unique."""
    import torch

    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    indices = [name for name, value in tensors.items() if value.dtype in (torch.int32, torch.int64)]
    if len(indices) != 1:
        return None
    shape = tensors[indices[0]].shape
    weights = [name for name, value in tensors.items() if value.is_floating_point() and value.shape == shape]
    return Routing(indices[0], weights[0]) if len(weights) == 1 else None


def local_experts(site: Site) -> tuple[int, int]:
    """The range of a rank's experts (first, last + 1), from the shares' first dimensions.

    Raises ``ApplyError`` if no parameter of the module is cut by expert, or parameters have different ranges.
    """
    lengths = site.firsts
    if not lengths:
        raise ApplyError(f"{site.path}: style ep_dispatch_experts, but none of its parameters is sharded by expert")
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{leaf} {last - first}" for leaf, (first, last) in sorted(lengths.items()))
        raise ApplyError(f"{site.path}: its parameters hold different numbers of experts a rank: {counts}")
    return next(iter(lengths.values()))


def _routed(site: Site, experts: tuple[int, int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments with routes to this rank's experts, by local index.

    All ranks have the same tokens. Routes to another rank's experts get weight 0 and a local index, so that the module's
    code needs no change; the sum over the ranks is then the output of each token.
    """
    arguments: dict[int | str, Any] = dict(enumerate(args))
    arguments.update(kwargs)
    routing, (first, last) = routing_of(arguments), experts
    if routing is None:
        raise ApplyError(
            f"{site.path}: takes no index of experts with weights of the same shape, so no route is local"
        )
    index = arguments[routing.index]
    away = (index < first) | (index >= last)
    arguments = {name: site.region.enter(value) for name, value in arguments.items()}
    arguments[routing.index] = (index - first).masked_fill(away, 0)
    arguments[routing.weights] = arguments[routing.weights].masked_fill(away, 0.0)
    return tuple(arguments.pop(place) for place in range(len(args))), {str(key): v for key, v in arguments.items()}
