"""What a process reads of a folder and holds while a layout starts, in bytes: its share and, at most, a layer more."""

from __future__ import annotations

import functools
import json

import pytest


pytest.importorskip("transformers")

from tests.parallel.launch import lines_of  # noqa: E402


LAYERS, MIB = 8, 2**20
SLACK = 6 * MIB
"""The interpreter's own memory goes up and down by this much; a layer has 11 MiB."""
# Folder or model in memory, layout, options.
QUICK = (("folder", "fsdp2", {}), ("memory", "fsdp2", {}))
TWO = (
    *QUICK,
    ("folder", "fsdp2", {"offload": True}),
    ("folder", "fsdp2", {"recompute": True, "compute_type": "bfloat16", "reshard": False}),
    ("folder", "tp2", {}),
    ("memory", "tp2", {}),
    ("folder", "pp2", {}),
    ("memory", "pp2", {}),
)
FOUR = (
    ("folder", "fsdp2.tp2", {"offload": True}),
    ("memory", "fsdp2.tp2", {}),
    ("folder", "ddp2.fsdp2", {}),
    ("folder", "pp2.fsdp2", {}),
    ("memory", "pp2.fsdp2", {}),
    ("folder", "pp2.tp2", {}),
)


GROUPS = {"quick": (2, QUICK), "two": (2, TWO), "four": (4, FOUR)}
SLOW = {"quick": ()} | dict.fromkeys(("two", "four"), (pytest.mark.slow,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved llama with tied embeddings, and the bytes of the whole, a layer, and all but the layers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": LAYERS, "vocab_size": 4096}
    config = LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4, tie_word_embeddings=True)
    model, path = LlamaForCausalLM(config), tmp_path_factory.mktemp("saved")
    model.save_pretrained(path)
    whole, layer = (sum(one.nbytes for one in part.parameters()) for part in (model, model.model.layers[0]))
    return path, whole, layer, whole - LAYERS * layer


def found_by(processes, runs, path):
    found = lines_of(processes, "tests/parallel/memory_script.py", path, json.dumps(runs))
    return {json.dumps(line["run"]): line for line in found}


@pytest.fixture(scope="module")
def started(folder):
    """A function of a group of runs: what each process has read and held, by run."""
    return functools.cache(lambda group: found_by(*GROUPS[group], folder[0]))


EACH = [
    pytest.param(group, run, id=" ".join([group, *run[:2], *run[2]]), marks=SLOW[group])
    for group, (_, runs) in GROUPS.items()
    for run in runs
]


@pytest.mark.parametrize("group, run", EACH)
def test_a_process_reads_and_holds_its_share_alone(started, folder, group, run):
    _, whole, layer, rest = folder
    source, layout, _ = run
    found = started(group)[json.dumps(run)]
    assert "ranks" in found, found
    tensors, staged = 2 if "tp2" in layout else 1, "pp2" in layout
    parts = tensors * (2 if "fsdp2" in layout else 1)
    shares = [(layer * LAYERS / (2 if staged else 1) + rest) / parts] * len(found["ranks"])
    # With tensor ranks one layer of each kind is tried, and what is around the layers; the first process reads it whole.
    tried = layer + rest if tensors > 1 else 0
    for rank, (one, share) in enumerate(zip(found["ranks"], shares)):
        assert share - 0.01 * whole <= one["held"] <= share + 0.01 * whole
        if source == "folder":
            more = tried if rank == 0 else tried / tensors
            assert share - 0.01 * whole <= one["read"] <= share + more + 0.01 * whole
            assert one["peak"] <= share + max(layer, rest) + tried + SLACK
        else:  # the whole model is there at first, and is freed weight by weight
            assert one["read"] == 0 and one["peak"] <= max(layer, rest) + 1.5 * tried + SLACK
        assert one["differs"] == 0.0


@pytest.mark.parametrize("group", [pytest.param(group, marks=marks) for group, marks in SLOW.items()])
def test_layouts_train_alike_from_folders_and_from_memory(started, group):
    """The same losses and norms, of each data rank."""
    exact = [run for run in GROUPS[group][1] if "compute_type" not in run[2]]
    for layout in {layout for _, layout, _ in exact}:
        ranks = [started(group)[json.dumps(run)]["ranks"] for run in exact if run[1] == layout]
        for other in ranks[1:]:
            assert [one["steps"] for one in ranks[0]] == [one["steps"] for one in other], layout
