"""The library's continuous batching on ranks: `generate_batch`, with a paged cache of each rank's own heads.

transformers' scheduler runs on each rank. It sends the first rank's requests and decisions to the others itself if the
model has a mesh, and sizes its cache by numbers of the configuration, which are those of the whole model.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from modular_converter.parallel import transformers_private
from modular_converter.parallel.errors import ApplyError, PlanError
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.tiny.arguments import CACHES


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
