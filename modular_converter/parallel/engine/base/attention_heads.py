"""Gather the attention weights of a sharded model: each rank computes its own heads, and the caller gets all heads."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.collectives import Group, borders_of, gathered
from modular_converter.parallel.shard.forwards import never_traced
from modular_converter.parallel.shard.shares import is_uneven
from modular_converter.parallel.styles.layout import COLWISE, SHARE
from modular_converter.parallel.tiny.fields import configs_within, raw


# Weights of this rank's heads, (batch, heads, queries, keys), and each rank's number of heads -> weights of all heads.
Gather = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]
Owners = MutableMapping[torch.Tensor, bool]  # by identity
# In the name of a number of heads: not of query heads.
_OF_OTHERS = re.compile("dim|key|kv")


def local_modules(model: torch.nn.Module, pieces: Mapping[str, Piece]) -> set[int]:
    """The identities of the modules that compute a share of their heads, before an all-reduce or a gather.

    A module without parameters counts as its nearest parent with parameters.
    """
    columns = [name.split(".") for name, piece in pieces.items() if piece.roles & {COLWISE, SHARE}]
    inside = {".".join(parts[:depth]) for parts in columns for depth in range(len(parts))}
    found: dict[str, bool] = {}
    for path, module in model.named_modules():
        empty = next(module.parameters(), None) is None
        found[path] = found.get(path.rpartition(".")[0], False) if empty else path in inside
    return {id(module) for path, module in model.named_modules() if found[path]}


@dataclass(frozen=True)
class HeadCounts:
    """Each rank's number of heads, for attention weights ``(batch, heads of this rank, queries, keys)``.

    Attributes:
        uneven: whether the numbers may differ; then each call is a collective.
    """

    group: Group
    uneven: bool

    @classmethod
    def of(cls, pieces: Mapping[str, Piece], group: Group) -> HeadCounts:
        return cls(group, is_uneven(pieces.values(), group.size))

    def __call__(self, value: torch.Tensor) -> tuple[int, ...]:
        if not self.uneven:
            return (value.shape[1],) * self.group.size
        own = torch.tensor([value.shape[1]], device=value.device)
        return tuple(int(count) for count in self.group.all_gather(own))


def wants_attentions(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call may ask for attention weights, by its arguments or the model's settings."""
    if _asks(args, kwargs):
        return True
    settings = [kwargs.get("generation_config"), getattr(model, "generation_config", None)]
    settings += [config for _, config in configs_within(getattr(model, "config", None))]
    return any(getattr(scope, "output_attentions", None) for scope in settings)


def _asks(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return bool(kwargs.get("output_attentions")) or any(value is True for value in args)


@contextlib.contextmanager
def heads_recorded(local: set[int]) -> Iterator[Owners]:
    """Record the maker of each tensor that looks like attention weights, ``(batch, heads, queries, keys)``.

    Names and shapes do not tell a share of the heads from all heads: half of 4 query heads are as many as 2 key/value
    heads, and encoders and decoders may differ. Inner modules return first, so the first module that returns a tensor
    is its maker.

    Args:
        local: the result of ``local_modules``.

    Yields:
        Tensor -> whether its maker has a share of the heads.
    """
    owners: Owners = WeakIdKeyDictionary()  # a long generation must not keep tensors that it drops

    def note(module: torch.nn.Module, args: Any, result: Any) -> None:
        for value in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(value, torch.Tensor) and value.dim() == 4:
                owners.setdefault(value, id(module) in local)

    handle = torch.nn.modules.module.register_module_forward_hook(note)
    try:
        yield owners
    finally:
        handle.remove()


@contextlib.contextmanager
def attentions_whole(model: torch.nn.Module, pieces: Mapping[str, Piece], group: Group) -> Iterator[None]:
    """Let all models inside ``model`` return the attention weights of all heads, to each other too, with gradients.

    Args:
        pieces: name of a parameter -> its cut over the group.
    """

    def gather(value: torch.Tensor, counts: tuple[int, ...]) -> torch.Tensor:
        return gathered(value, group, 1, borders_of(counts))

    local, counts = local_modules(model, pieces), HeadCounts.of(pieces, group)
    models = list({id(module): module for module in (model, *_models_in(model))}.values())
    own = [(vars(module), vars(module).get("forward")) for module in models]  # None: that of its class
    with heads_recorded(local) as owners:
        for module in models:
            module.__dict__["forward"] = _with_whole_heads(module, module.forward, counts, owners, gather)
        try:
            yield
        finally:
            _give_back(own)


def _give_back(own: Iterable[tuple[dict[str, Any], Any]]) -> None:
    for scope, forward in own:
        scope.pop("forward", None)
        scope.update({} if forward is None else {"forward": forward})


def _models_in(model: torch.nn.Module) -> list[torch.nn.Module]:
    return [m for m in model.modules() if hasattr(m, "config") and hasattr(m, "base_model_prefix")]


class WholeAttentions:
    """Lets a model and those inside it return the weights of all heads in each call that asks for them.

    The code of a method, such as a ``generate`` that makes time stamps, may ask without the caller's knowledge.

    Args:
        only_inside: whether the model's own forward does so by itself.
    """

    def __init__(
        self, model: torch.nn.Module, pieces: Mapping[str, Piece], group: Group, only_inside: bool = False
    ) -> None:
        self.model, self.pieces, self.group, self.active = weakref.ref(model), pieces, group, False
        inside = [module for module in _models_in(model) if module is not model]
        self._own = [(weakref.ref(module), vars(module).get("forward")) for module in inside]
        for module in inside if only_inside else [model, *inside]:
            module.__dict__["forward"] = self._asked(module, module.forward)

    def detach(self) -> None:
        """Give the modules inside their own forwards back."""
        _give_back([(vars(module), forward) for one, forward in self._own if (module := one()) is not None])

    @contextlib.contextmanager
    def everywhere(self) -> Iterator[None]:
        """A block in which all calls return them; see ``attentions_whole``."""
        self.active = True
        try:
            model = self.model()
            assert model is not None, "its modules hold this"
            with attentions_whole(model, self.pieces, self.group):
                yield
        finally:
            self.active = False

    def _asked(self, module: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        # A module and a function that held each other would keep the weights of a model that is gone.
        there: Callable[[], Any] = weakref.ref(module)
        function: Any = forward.__func__ if getattr(forward, "__self__", None) is module else None  # type: ignore[attr-defined]
        own = forward if function is None else None

        @never_traced
        def whole(*args: Any, **kwargs: Any) -> Any:
            with self.everywhere():
                return there().forward(*args, **kwargs)

        def called(*args: Any, **kwargs: Any) -> Any:
            if self.active or not _asks(args, kwargs):
                return own(*args, **kwargs) if own is not None else function(there(), *args, **kwargs)
            return whole(*args, **kwargs)

        made: Any = functools.update_wrapper(called, forward, updated=())
        made.__signature__ = inspect.signature(forward)
        del made.__wrapped__  # `forward` of the module
        return made  # type: ignore[no-any-return]


def _with_whole_heads(
    model: Any, forward: Callable[..., Any], counts: HeadCounts, owners: Owners, gather: Gather
) -> Any:
    @functools.wraps(forward)
    def whole(*args: Any, **kwargs: Any) -> Any:
        return whole_heads(forward(*args, **kwargs), model, counts, owners, gather)

    return whole


def whole_heads(result: Any, model: Any, counts: HeadCounts, owners: Owners, gather: Gather) -> Any:
    """A result with the attention weights of all heads; everything else is unchanged.

    Args:
        owners: the result of ``heads_recorded``; empty if nothing was recorded.
    """
    known: dict[int, torch.Tensor] = {}
    heads = _query_heads(getattr(model, "config", None))

    def whole(value: torch.Tensor, named: bool) -> torch.Tensor:
        unknown = named and value.dim() > 2 and (counts.uneven or value.shape[1] not in heads)
        if not owners.get(value, unknown):
            return value
        if id(value) not in known:
            own = counts(value)
            is_share = sum(own) in heads and (value in owners or value.shape[1] not in heads or len(set(own)) > 1)
            known[id(value)] = gather(value, own) if is_share else value
        return known[id(value)]

    return _mapped(result, whole, False)


def _mapped(value: Any, whole: Callable[[torch.Tensor, bool], torch.Tensor], named: bool) -> Any:
    """``named``: whether the field has a name of attention weights, such as ``cross_attentions``."""
    if isinstance(value, torch.Tensor):
        return whole(value, named)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        items = [_mapped(item, whole, named) for item in value]
        return value if all(map(operator.is_, items, value)) else type(value)(items)
    if isinstance(value, dict):
        for key, item in list(value.items()):
            value[key] = _mapped(item, whole, str(key).endswith("attentions"))
    return value


def _query_heads(config: Any) -> set[int]:
    """All numbers of query heads in the configuration and in the configurations inside it."""
    found: set[int] = set()
    for _, one in configs_within(config):
        named = {name: value for name, value in getattr(one, "__dict__", {}).items() if "head" in name}
        values = [raw(one, "num_attention_heads"), *(named[name] for name in named if not _OF_OTHERS.search(name))]
        for value in values:
            numbers = value if isinstance(value, (list, tuple)) else (value,)
            found |= {number for number in numbers if isinstance(number, int) and not isinstance(number, bool)}
    return found
