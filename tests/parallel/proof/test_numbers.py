"""The numbers in a forward's operations: those that are noted, and the places where two runs differ."""

import pytest
import torch
from torch import nn

from modular_converter.parallel.proof import numbers
from modular_converter.parallel.proof.numbers import LINE, differences, numbers_of


class Model(nn.Module):
    """A layer, and what is computed with a factor and with a tensor of few or many numbers."""

    def __init__(self, run):
        super().__init__()
        self.inner, self.run = nn.Linear(4, 4), run

    def forward(self, x):
        return self.run(self.inner(x))


def texts(run):
    """The numbers of each operator of the model's own, beside a layer's output of 32 entries."""
    model = Model(run)
    found = numbers_of(model, lambda: model(torch.ones(8, 4)))
    assert all(site.rpartition(":")[0].endswith("test_numbers.py") for _, site, _ in found)
    assert {path for path, _, _ in found} <= {"", "inner"}
    found = {place: [str(fact) for fact in facts if isinstance(fact, str)] for place, facts in found.items()}
    return {name: given for (path, _, name), given in found.items() if not path}


def test_numbers_of_python_and_tensors_of_few_entries_are_noted():
    assert texts(lambda x: x * 0.5)["mul"] == ["0.5"]
    assert texts(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]))["add"] == ["1.0 2.0 3.0 4.0"]
    assert texts(lambda x: torch.clamp(x, min=-1.0, max=2))["clamp"] == ["-1.0 2"]
    assert texts(lambda x: torch.addcmul(x, x, x, value=3))["addcmul"] == ["3"]
    assert texts(lambda x: x * 2 + (x * 3) * 4)["mul"] == ["2", "3", "4"]


@torch.library.custom_op("numbers::branching", mutates_args=())
def branching(x: torch.Tensor) -> torch.Tensor:
    for _ in range(x.shape[0]):
        x = x + 1
    return x


def counted(run):
    model = Model(run)
    return {
        site: facts
        for (_, site, name), facts in numbers_of(model, lambda: model(torch.ones(8, 4))).items()
        if name == LINE
    }


@pytest.mark.parametrize("pauses", [True, False])
def test_lines_are_counted_behind_and_in_operations(monkeypatch, pauses):
    """Tracing pauses in torch's own operations, and not in those of a model."""
    monkeypatch.setattr(numbers, "_PAUSES_ARE_CHEAP", pauses)

    def run(x):
        for _ in range(3):
            x = x * 2 + x.mean(-1, keepdim=True)
        return branching(x)

    found = [facts[0] for facts in counted(run).values()]
    assert sorted(found).count("3 times") == 1 and "4 times" in found and "8 times" in found, found


def test_sizes_are_none_of_them_but_what_a_tensor_is_filled_with_is():
    found = texts(lambda x: x.view(4, 8) + torch.full((4, 8), 7.0))
    assert not found["view"] and found["full"][0].split()[0] == "7.0"
    assert texts(lambda x: x + x.new_full((8, 4), 5))["new_full"][0].split()[0] == "5"
    assert texts(lambda x: torch.full_like(x, 6))["full_like"][0].split()[0] == "6"


def test_more_entries_than_a_few_are_data():
    for few, noted in ((16, [" ".join(["1.0"] * 16)]), (17, [])):
        found = texts(lambda x, few=few: x.sum() + torch.ones(few).cos().round() * 0 + torch.ones(few).abs())
        assert found.get("abs", []) == noted


def test_runs_differ_where_one_has_other_numbers_or_more():
    place, other = ("", "f.py:1", "mul"), ("", "f.py:2", "add")
    assert differences({place: ["1", "2"]}, {place: ["1", "2"]}) == {}
    assert differences({place: ["1", "2"]}, {place: ["1", "3"]}) == {place: ("2", "3")}
    assert differences({place: ["1", "2"]}, {place: ["1"]}) == {place: ("2", "nothing")}
    assert differences({place: ["1"]}, {place: ["1", "2"], other: ["4"]}) == {
        place: ("nothing", "2"),
        other: ("nothing", "4"),
    }


def test_a_result_without_data_is_that_of_an_earlier_operation_with_the_same_shapes():
    """Also after other shapes, strides, types and numbers, and where torch refuses the operands."""
    x = torch.ones(4, 6, device="meta")
    programs = [
        lambda x=x: x * 2,
        lambda: x.half() * 2,
        lambda: x[:, ::2] * 2,
        lambda: x.t() * 2,
        lambda: x.t().contiguous() * 2,
        lambda: x.t() * 2.0,
    ]
    programs += [
        lambda: torch.cat([x, x], 1),
        lambda: x.sum(1),
        lambda: x.sum(0),
        lambda: x.cumsum(1, dtype=torch.int64),
    ]
    plain = [program() for program in programs]
    for _ in range(2):
        found = []
        numbers_of(torch.nn.Identity(), lambda found=found: found.extend(program() for program in programs))
        assert [(a.shape, a.stride(), a.dtype, a.device) for a in found] == [
            (a.shape, a.stride(), a.dtype, a.device) for a in plain
        ]
        with pytest.raises(RuntimeError):
            numbers_of(torch.nn.Identity(), lambda: x + x.t())
