"""Let the first rank decide for all ranks in `generate` where their decisions could differ; the cache of its steps.

Clocks differ between processes, and so do random numbers of other libraries than torch. If a rank stops a token before
the others, they wait for ever. So all ranks use the first rank's results of time limits and of the caller's criteria and
processors.
"""

from __future__ import annotations

import functools
import inspect
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy
import torch

from modular_converter.parallel import transformers_private
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.tiny.arguments import CACHES


# Method of transformers' `GenerationMixin` -> the arguments or settings with which the ranks' results may differ.
_MAKERS = {
    "get_stopping_criteria": ("stopping_criteria", "max_time"),
    "get_logits_processor": ("logits_processor", "prefix_allowed_tokens_fn"),
}

# The list that this method makes is called once a token.
_EACH_TOKEN = "get_stopping_criteria"


def make_agree(model: torch.nn.Module, group: ProcessGroup, step: Callable[[], None] | None = None) -> None:
    """Make all generating modules of a rank's model agree with the other ranks.

    Args:
        step: called at each token; an error that it raises must be the same on all ranks.
    """
    for module in model.modules():
        for name, method in agreeing_methods(type(module), group, step).items():
            module.__dict__[name] = types.MethodType(method, module)
    random.seed(0)
    numpy.random.seed(0)


def agreeing_methods(
    kind: type[Any], group: ProcessGroup, step: Callable[[], None] | None = None
) -> dict[str, Callable[..., Any]]:
    """Name -> method of a class whose lists of criteria and processors agree on all ranks."""
    # Where this module was never imported, no class generates as transformers does.
    generation = sys.modules.get("transformers.generation.utils")
    if generation is None or not issubclass(kind, generation.GenerationMixin):
        return {}
    names = {own: transformers_private.NAMES.checked(own) for own in _MAKERS}
    return {
        names[own]: _agreeing(getattr(kind, names[own]), asked, group, step if own == _EACH_TOKEN else None)
        for own, asked in _MAKERS.items()
    }


def _agreeing(
    own: Callable[..., Any], asked: tuple[str, ...], group: ProcessGroup, step: Callable[[], None] | None
) -> Callable[..., Any]:
    signature = inspect.signature(own)

    @functools.wraps(own)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = own(self, *args, **kwargs)
        given = signature.bind(self, *args, **kwargs).arguments
        settings = given.get("generation_config")
        agrees = any(given.get(name) or getattr(settings, name, None) for name in asked)
        if agrees or step is not None:
            found.__class__ = _agreeing_list(type(found), group if agrees else None, step)
        return found

    return made


def _agreeing_list(kind: type[Any], group: ProcessGroup | None, step: Callable[[], None] | None) -> type[Any]:
    def verdict(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if step is not None:
            step()
        found: torch.Tensor = kind.__call__(self, *args, **kwargs)
        return found if group is None else group.from_first(found)

    return type(kind.__name__, (kind,), {"__call__": verdict, "__module__": kind.__module__})


def choose_cache(model: Any, kwargs: dict[str, Any]) -> None:
    """Set a static cache, without which ``generate`` compiles nothing; with a given cache it refuses the setting."""
    settings = getattr(model, "generation_config", None)
    if settings is not None and settings.cache_implementation in (None, "static"):
        settings.cache_implementation = "static" if all(kwargs.get(name) is None for name in CACHES) else None
