"""The integers of a call of torch, in the order of the function that it amounts to."""

import torch

from modular_converter.parallel.trace.graph import Source
from modular_converter.parallel.trace.integers import SourcedInt, source_of, stated_integers


def stated(name, *args, **kwargs):
    function, integers = stated_integers(name, args, kwargs, lambda tensor: tensor.shape)
    return function, [one.value for one in integers]


def test_booleans_are_none_and_slices_and_lists_are_taken_apart():
    assert stated("f", 2, True, [3, (4,)], slice(5, None, 6), None, 1.5, dim=7, keepdim=False) == (
        "f",
        [2, 3, 4, 5, 6, 7],
    )


def test_shapes_that_are_taken_over():
    x, y, z = torch.zeros(2, 1), torch.zeros(3), torch.tensor(1.0)
    assert stated("expand_as", y, x) == ("expand", [2, 1]) and stated("view_as", y, other=x) == ("view", [2, 1])
    assert stated("broadcast_tensors", x, y, z) == ("expand", [2, 3])
    assert stated("meshgrid", torch.zeros(2), y, z, indexing="ij") == ("expand", [2, 3, 1])
    assert stated("meshgrid", [torch.zeros(2), y, torch.zeros(4)], indexing="xy") == ("expand", [3, 2, 4])


def test_arguments_by_name():
    x = torch.zeros(2, 3)
    assert stated("narrow", x, length=1, start=2, dim=0) == ("narrow", [2, 1])
    assert stated("narrow", x, 0, torch.tensor(2), 1) == ("narrow", [0, 1])
    assert stated("full", fill_value=9, size=(2, 3)) == ("full", [2, 3])


def test_both_results_of_a_division_remember_what_they_are_of():
    heads = SourcedInt(12, Source("attr", 12, name="heads"))
    for found, wanted in ((divmod(heads, 5), (2, 2)), (divmod(50, heads), (4, 2)), (divmod(-heads, 5), (-3, 3))):
        assert found == wanted
        assert [source_of(one).kind for one in found] == ["floordiv", "mod"]
