"""The form for inference of a sharded model, on the ranks of a session and in a process group alike."""

from __future__ import annotations

from modular_converter.parallel.inference.experts import fuse_experts
from modular_converter.parallel.inference.fused import fuse_activations, fuse_norms
from modular_converter.parallel.inference.generation import choose_cache
from modular_converter.parallel.inference.plain_forwards import DirectGroup, make_plain
from modular_converter.parallel.shard.apply import Applied


def make_inference(applied: Applied, group: DirectGroup, compile: bool) -> None:
    """Turn a sharded model into its form for inference, in place.

    Args:
        compile: ``generate`` has a static cache unless a cache is given.
    """
    model = applied.model
    fuse_experts(model)  # before the sums of outputs, which are put around forwards
    make_plain(applied, group)
    fuse_norms(model)
    fuse_activations(model)
    model.eval().requires_grad_(False)
    if compile:
        choose_cache(model, {})
