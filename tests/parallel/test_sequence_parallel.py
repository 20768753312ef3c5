"""Parts of the sequence between the regions of a plan: training equals that of one process, and impossible cases are
refused.
"""

from __future__ import annotations

import pytest


pytest.importorskip("transformers")

from tests.parallel.launch import line_of  # noqa: E402


@pytest.fixture(scope="module")
def found():
    return line_of(2, "tests/parallel/sequence_script.py")


def test_a_llama_trains_as_on_one_process():
    same(line_of(2, "tests/parallel/sequence_script.py", "llama"))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["llama", "qwen3, recomputed", "frozen, with biases"])
def test_training_is_that_of_one_process(found, case):
    same(found[case])


def same(one):
    assert one["worst"] < 1e-12
    assert one["lengths"] == [4, 5, 6]  # 8 and 12 tokens with gradients on two processes, and 5 without
    assert one["without gradients"] < 1e-12 and one["unsharded"] < 1e-12


@pytest.mark.slow
def test_sums_become_parts_of_sums(found):
    whole, parts = found["collectives"]["False"], found["collectives"]["True"]
    layers, regions = 2, 2
    assert parts["reduce_scatter"] == 2 * layers * regions  # behind each region, and in the backward before it
    norms = layers * regions  # whose gradients are summed
    assert parts["allreduce"] == whole["allreduce"] - 2 * layers * regions + norms


@pytest.mark.slow
def test_what_looks_along_the_sequence_is_refused(found):
    own, same = found["mixing"]
    assert "nothing can be tried, since a small instance of its class has no Mixing" in own
    assert "on parts of a sequence output 0 differs by" in same


SAID = {
    "odd": "a sequence of 5 does not divide by 2 processes: pad it to a multiple of 2",
    "states": "output_hidden_states: with sequence_parallel a process has only parts",
    "hook": "model.layers.0 has a hook, which would get this process's share",
    "between": "before model.layers.1 the model computes with the output of the previous layer",
    "compiled": "sequence_parallel= and compile= do not go together yet",
    "no tensors": "sequence_parallel= needs a layout with tp and without pp, such as tp2; this one is fsdp2",
}


@pytest.mark.slow
def test_what_cannot_be_is_told(found):
    assert found["refused"].keys() == SAID.keys()
    assert not [(name, found["refused"][name]) for name, text in SAID.items() if text not in found["refused"][name]]
