"""Under torchrun: each public method and property of a model, on what `parallelize` returns in each layout."""

import pytest


pytest.importorskip("transformers")
from transformers import LlamaForCausalLM  # noqa: E402

from tests.parallel.launch import line_of  # noqa: E402
from tests.parallel.surface_script import ASKED, DONE, NOT_CALLED  # noqa: E402


# A refusal says what to write, so it has one of these words.
CURES = ("take", "call", "give", "before", "they are in pipeline.stages", "write", "averages the gradients")


def test_the_tables_have_each_public_name():
    public = {name for name in dir(LlamaForCausalLM) if not name.startswith("_")}
    assert public <= {*ASKED, *DONE} | NOT_CALLED
    assert not NOT_CALLED & {*ASKED, *DONE}


@pytest.mark.parametrize(
    ("layout", "which"),
    [
        ("pp2", "asked"),
        *(
            pytest.param(layout, "all", marks=pytest.mark.slow)
            for layout in ("pp2", "tp2", "fsdp2", "cp2", "ep2", "pp2.fsdp2")
        ),
    ],
)
def test_a_call_is_as_on_one_device_or_refused_with_a_cure(layout, which):
    found = line_of(2 * len(layout.split(".")), "tests/parallel/surface_script.py", layout, which)
    assert set(found.pop("rest", ["[]"])) == {"[]"}
    assert set(found) == {*ASKED} | ({*DONE} if which == "all" else set())
    wrong = {
        name: said
        for name, said in found.items()
        if any(
            one.startswith(("RAW", "DIFFERENT")) or one != "same" and not any(map(one.__contains__, CURES))
            for one in said
        )
    }
    assert not wrong
    assert {"parameters", "named_parameters", "call", "device", "dtype", "training"} <= {
        name for name, said in found.items() if set(said) == {"same"}
    }
