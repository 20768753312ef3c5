"""`generate` and `generate_batch` on ranks: the first rank decides for all where their decisions could differ.

Clocks differ between processes, and so do random numbers of other libraries than torch. If a rank stops a token before
the others, they wait for ever. So all ranks use the first rank's results of time limits and of the caller's criteria and
processors.

In continuous batching each rank has a paged cache of its own heads. transformers' scheduler runs on each rank. It sends the
first rank's requests and decisions to the others itself if the model has a mesh, and sizes its cache by numbers of the
configuration, which are those of the whole model.
"""

from __future__ import annotations

import contextlib
import copy
import dis
import functools
import inspect
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from modular_converter.parallel import transformers_private
from modular_converter.parallel.errors import ApplyError, PlanError
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


@contextlib.contextmanager
def counts_vary() -> Iterator[None]:
    """A ``generate`` that lets torch compile its step for all counts of tokens in a cache: else for the first, and then again.

    The tensors of a layer for compiled steps keep their addresses, so that what its ``update`` assigns are counts. A layer
    with a sliding window has one, and its step took two compilations.
    """
    caches = sys.modules.get("transformers.cache_utils")
    names = {name for kind in _with_heirs(caches.StaticLayer) for name in _assigned(kind.update)} if caches else set()
    own = rf".*\.layers\[\d+\]\.({'|'.join(sorted(names))})$"
    config: Any = torch.compiler.config
    sources = ",".join(filter(None, [config.dynamic_sources, own if names else ""]))
    with config.patch(dynamic_sources=sources):
        yield


def _with_heirs(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for heir in kind.__subclasses__():
        yield from _with_heirs(heir)


def _assigned(function: Callable[..., Any]) -> set[str]:
    return {one.argval for one in dis.get_instructions(function) if one.opname == "STORE_ATTR"}


GENERATE_BATCH = "generate_batch"
# The library's other ways to begin, which leave a manager with its caller.
MANAGERS = ("init_continuous_batching", "continuous_batching_context_manager")
NO_MANAGER = (
    f"{{name}} makes a manager that no other process follows; give all prompts in one call of {GENERATE_BATCH}"
)
_HEADS = "num_key_value_heads"
_GONE = object()
# The part of a machine's memory that the caches of all its ranks may take, if the call does not say.
_CPU_MEMORY = 0.5


@contextlib.contextmanager
def paged_batches(
    model: Any, kind: type[Any], group: ProcessGroup, device: torch.device, copies: Iterable[tuple[Any, Any]]
) -> Iterator[None]:
    """Let ``generate_batch`` of this rank's model run in step with the other ranks. All ranks must enter it.

    Args:
        kind: the model's own class, whose methods are the library's.
        copies: (object in the settings, copy with a share's own numbers that a module has instead).

    Raises ``ApplyError`` if the layers of this plan have different numbers of key/value heads on a rank.
    """

    def set_attention(implementation: Any, *args: Any, **kwargs: Any) -> None:
        kind.set_attn_implementation(model, implementation, *args, **kwargs)
        for setting, share in copies:
            if hasattr(setting, "_attn_implementation"):
                share._attn_implementation = setting._attn_implementation

    forward = model.forward

    @functools.wraps(forward)
    def with_same_logits(*args: Any, **kwargs: Any) -> Any:
        # Each rank draws its tokens itself: if one ended a sequence before the others, they would wait for ever.
        answer = forward(*args, **kwargs)
        answer.logits = group.from_first(answer.logits)
        return answer

    heads = _own_heads(model, device)
    with contextlib.ExitStack() as stack:
        # The library would divide the heads of the configuration by the ranks if a plan of its own named the projections.
        mesh_name = transformers_private.NAMES.checked("device_mesh")
        everyone: Any = dist.group.WORLD
        mesh = DeviceMesh.from_group(group.group or everyone, device.type, mesh_dim_names=("tp",))
        changes = {
            "_tp_plan": {},
            mesh_name: mesh,
            "set_attn_implementation": set_attention,
            "forward": with_same_logits,
        }
        changes |= {
            name: functools.partial(getattr(kind, name), model) for name in MANAGERS
        }  # callers may not call them
        for name, value in changes.items():
            stack.enter_context(_changed(model, name, value))
        stack.enter_context(_changed(model.config.get_text_config(), _HEADS, heads))
        yield


def tokens_of(outputs: dict[str, Any]) -> dict[str, Any]:
    """What is the same on all ranks of the answer of ``generate_batch``: its times are each rank's own."""
    return {name: (one.generated_tokens, one.logprobs) for name, one in outputs.items()}


def checked_batches(kind: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any], cpus: int) -> dict[str, Any]:
    """The arguments by name of a call of ``generate_batch`` on ranks.

    Args:
        cpus: the ranks that share this machine's memory; 0 if each has a device of its own.

    Raises ``PlanError`` if the call asks to keep its manager, which the caller could not reach.
    """
    given = inspect.signature(kind.generate_batch).bind(None, *args, **kwargs).arguments
    more: dict[str, Any] = given.pop("kwargs", {})
    found = dict([*given.items()][1:]) | more
    if found.get("persistent_manager"):
        raise PlanError(
            "persistent_manager=True would keep a manager on the ranks, where you cannot reach it; leave it out, and give all "
            f"prompts in one call of {GENERATE_BATCH}"
        )
    if cpus:
        from transformers import ContinuousBatchingConfig

        own = found.get("continuous_batching_config")
        found["continuous_batching_config"] = config = copy.copy(own) if own else ContinuousBatchingConfig()
        config.disable_nccl_graph_mixing = False  # only warns, and there is no NCCL
        if config.num_blocks is None and config.max_memory_percent is None:
            config.max_memory_percent = _CPU_MEMORY / cpus  # each rank would take most of the memory for its cache
    return found


def _own_heads(model: Any, device: torch.device) -> int:
    """The number of key/value heads of this rank, as the cache of one token has them."""
    with torch.no_grad():
        answer = model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=True)
    caches = [answer[name] for name in CACHES if name in answer]
    layers = [layer for cache in caches for layer in getattr(cache, "layers", ())]
    found: set[int] = {layer.keys.shape[1] for layer in layers if torch.is_tensor(getattr(layer, "keys", None))}
    if len(found) != 1:
        counts = ", ".join(map(str, sorted(found))) or "no"
        raise ApplyError(
            f"{GENERATE_BATCH} needs layers with the same number of key/value heads, and those of this "
            f"{type(model).__name__} have {counts} on a rank; call generate"
        )
    return found.pop()


@contextlib.contextmanager
def _changed(scope: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute, which a configuration may keep under another name, and restore what was there."""
    before = dict(vars(scope))
    setattr(scope, name, value)
    changed = [key for key, now in vars(scope).items() if now is not before.get(key, _GONE)]
    try:
        yield
    finally:
        for key in changed:
            if key in before:
                vars(scope)[key] = before[key]
            else:
                del vars(scope)[key]
