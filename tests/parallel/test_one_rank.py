"""A process that alone does otherwise with its part of a batch: all are told within seconds, and nobody waits for ever."""

import json

import pytest


pytest.importorskip("transformers")
from tests.parallel.launch import launch  # noqa: E402


OTHERS = pytest.mark.slow
WORDS = {
    "writes": "a forward wrote seen from its part of the batch",
    "skips": "each layer gathers weights from all processes, or averages gradients over them",
    "skips_without_gradients": "each layer gathers weights from all processes",
    "forward": "ValueError: of one process",
    "backward": "ValueError: of one process",
    "graph": "calls backward(create_graph=True), and process",
    "starts": "has a hook on its gradient",
    "stops": "process 1 has ended",
}


@pytest.mark.parametrize(
    ("case", "layout"),
    [
        ("writes", "fsdp2"),
        ("writes", "ddp2"),
        ("skips", "fsdp2"),
        ("forward", "ddp2"),
        ("starts", "ddp2"),
        *(
            pytest.param(*pair, marks=OTHERS)
            for pair in [
                ("skips", "ddp2"),
                ("skips_without_gradients", "fsdp2"),
                ("forward", "fsdp2"),
                ("backward", "fsdp2"),
                ("backward", "ddp2"),
                ("graph", "fsdp2"),
                ("starts", "tp2"),
                ("stops", "ddp2"),
                ("stops", "fsdp2"),
            ]
        ),
    ],
)
def test_what_one_process_does_alone_is_told_to_all(case, layout):
    told = _told(case, layout)
    assert all(one["within"] for one in told.values()), told
    # Once told, a process may begin its second run before the other one, on a slow machine, has begun the first.
    assert any(WORDS[case] in one for one in told[0]["told"]) and told[0]["told"][-1].startswith("ApplyError: "), told
    if case not in ("forward", "backward", "stops"):
        assert any(WORDS[case] in one for one in told[1]["told"]), told


@pytest.mark.parametrize(
    ("case", "layout"),
    [
        ("labels", "fsdp2"),
        pytest.param("labels", "ddp2", marks=OTHERS),
        pytest.param("graph", "ddp2", marks=OTHERS),
        pytest.param("skips_without_gradients", "ddp2", marks=OTHERS),
    ],
)
def test_what_one_process_may_do_alone_goes_on(case, layout):
    told = _told(case, layout)
    assert all(one["told"] == ["", ""] and one["within"] for one in told.values()) and len(told) == 2, told


@OTHERS
@pytest.mark.parametrize(
    ("case", "layout", "words"),
    [
        ("turns", "pp2.fsdp2", "computed layer model.layers."),
        ("turns", "pp2.ddp2", "computed layer model.layers."),
        ("skips", "pp2.fsdp2", "computed layer model.layers."),
        ("skips", "pp2.fsdp2 LoopedBFS", "is not run, whose result later stages need"),
    ],
)
def test_other_layers_in_stages_of_data_ranks_are_told_in_the_step(case, layout, words):
    told = _told(case, layout)
    assert len(told) == 4 and all(one["within"] and words in one["told"][0] for one in told.values()), told


def test_a_call_without_gradients_of_other_layers_is_told_in_it():
    told = _told("turns_without_gradients", "fsdp2")
    assert any("each layer gathers weights from all processes" in one["told"][0] for one in told.values()), told


def test_a_whole_weight_that_one_process_reads_alone_is_an_error():
    told = _told("whole", "fsdp2")
    assert all("process 1 has called full_tensor of a weight or gradient" in one for one in told[1]["told"]), told


def _told(case, layout):
    found = launch(4 if "." in layout else 2, "tests/parallel/one_rank_script.py", case, layout, limit_s=120.0)
    told = {one["process"]: one for one in map(json.loads, found.output.splitlines()) if "process" in one}
    assert 0 in told, found.errors[-2000:]
    return told
