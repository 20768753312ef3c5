"""Under torchrun: weights that code reads outside of a forward are whole or refused, and optimizers hold what a step changes."""

import pytest


pytest.importorskip("transformers")
from tests.parallel.test_training import run_under_torchrun  # noqa: E402


NUMBERS = ("late", "all", "norms", "cut", "product", "rows", "layer", "tensor")


@pytest.mark.parametrize("layouts, processes", [(("tp2", "fsdp2"), 2), (("fsdp2.tp2",), 4)])
def test_penalties_and_late_optimizers_are_those_of_one_process(layouts, processes):
    found = run_under_torchrun(processes, "tests/parallel/weights_script.py", *layouts)
    uneven = found.pop("uneven")
    for run, one in found.items():
        assert not {name: one[name] for name in NUMBERS if one[name] >= 1e-5}, run
        assert "add the whole number, penalty.full_tensor()" in one["mixed"]
        assert "torch.autograd.grad of model.embed" in one.get("grad", "torch.autograd.grad of model.embed"), run
        assert "backward(inputs=) of model.embed" in one.get("inputs", "backward(inputs=) of model.embed"), run
        assert run == "tp2 True" or "lm_head.weight is a copy that was gathered for products" in one["late and inside"]
    if uneven is not None:
        assert uneven["counts"][0] == uneven["counts"][1]
        assert uneven["shape"] == [24, 24] and "is this process's share" in uneven["read"]
