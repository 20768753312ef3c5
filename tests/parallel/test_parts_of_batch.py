"""What processes compute from parts of a batch is that of the whole batch, or an error that says what to write."""

import pytest


pytest.importorskip("transformers")
from tests.parallel.launch import line_of  # noqa: E402


@pytest.fixture(scope="module")
def found():
    return line_of(2, "tests/parallel/parts_script.py")


@pytest.mark.parametrize(
    "use",
    [
        "all count",
        "some count, and how many",
        "three rows, weighted",
        "batch norm in eval mode",
        "counter",
        "writes in place",
        "writes in place, copies",
        "own mean",
        "mean",
        "sum",
        "sum of labels that count",
        "experts",
    ],
)
def test_parts_give_the_gradient_of_the_whole(found, use):
    assert isinstance(found[use], float) and found[use] < 1e-5, found[use]


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("some count", "data ranks have 3 to 16 labels that count"),
        ("three rows", "give the model num_items_in_batch="),
        ("batch norm", "a forward wrote norm.running_mean from its part of the batch"),
        ("batch norm in micro-batches", "forwards wrote norm.running_mean from parts of the batch"),
        ("mean of labels that count", "rows count otherwise in loss= together than alone"),
        ("weights of classes", "return a sum over rows, divided by a number of the whole batch"),
        ("own sum", "a number that Scored returns, such as its loss, is not the mean of those of its rows"),
        ("own weights of classes", "a number that Scored returns, such as its loss"),
        ("own comparison", "a number that Scored returns, such as its loss"),
        ("own mean of other rows", "data ranks have 3 to 4 labels that count"),
        ("writes in place, compiled", "a compiled layer writes in place to what it gets"),
        ("writes to its input", "WritesToInput writes in place to its input x"),
        ("hook of all modules", "register_module_forward_hook and the like) would get this process's shares"),
        ("whole in place", "unshard() does not go with data ranks"),
        ("balance of experts", "the model's loss is not the mean of the losses of parts of the batch"),
        ("comparison of rows", "rows count otherwise in loss= together than alone"),
    ],
)
def test_what_parts_cannot_give_is_an_error(found, use, words):
    assert words in str(found[use])
