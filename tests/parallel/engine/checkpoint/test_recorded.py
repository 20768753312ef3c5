"""Operations on recorded tensors, against torch's own on the same tensors: whole and in every kind of range."""

from __future__ import annotations

import os
import pickle

import pytest
import torch


pytest.importorskip("transformers")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from modular_converter.parallel.engine.checkpoint import reader  # noqa: E402
from modular_converter.parallel.engine.checkpoint.folder import stored_tensors  # noqa: E402
from modular_converter.parallel.engine.checkpoint.reader import (
    Reader,  # noqa: E402
    RecordedTensor,  # noqa: E402
    read_share,  # noqa: E402
)
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.plans.resolve import Piece  # noqa: E402


@pytest.fixture(scope="module")
def tensors(tmp_path_factory):
    """Plain tensors, and the same as recorded ones of a file."""
    folder = tmp_path_factory.mktemp("stored")
    torch.manual_seed(1)
    plain = {"a": torch.randn(6, 4, 8), "b": torch.randn(6, 4, 8), "c": torch.randn(()).double(), "d": torch.randn(5)}
    save_file(plain, folder / "model.safetensors")
    return plain, {key: RecordedTensor(one) for key, one in stored_tensors(folder).items()}


@pytest.mark.parametrize("cut", [None, 0, 1])
@pytest.mark.parametrize("key", ["a", "c"])
def test_shares_are_read_in_small_parts(tensors, monkeypatch, key, cut):
    """A number, and a tensor whose rows are read two at a time."""
    plain, recorded = (one[key] for one in tensors)
    monkeypatch.setattr(reader, "CHUNK_BYTES", 2 * 4 * 8 * 4)
    piece = Piece(frozenset(), cut, (1,), "", plain.shape[cut]) if cut is not None and plain.dim() else None
    shares = []
    with Reader() as one:
        for rank in range(2 if piece else 1):
            shares.append(torch.empty_like(plain if piece is None else plain.chunk(2, cut)[rank]))
            read_share(one, recorded.recipe, piece, rank, 2, shares[-1])
    assert torch.equal(shares[0] if piece is None else torch.cat(shares, cut), plain)


STEPS = {
    "transpose": lambda x: x.transpose(0, -1),
    "permute": lambda x: x.permute(*reversed(range(x.dim()))),
    "chunk": lambda x: x.chunk(2, dim=-1)[1].contiguous(),
    "split": lambda x: torch.split(x, [1, x.shape[0] - 1])[1],
    "narrow": lambda x: x.narrow(1, 1, x.shape[1] - 1),
    "negative": lambda x: x[-2:],
    "select": lambda x: torch.stack([x[1], x.unbind(0)[-1]]),
    "stack": lambda x: torch.stack([x, x * 2], dim=1)[:, 1],
    "cat": lambda x: torch.cat([x, x], dim=1),
    "squeeze": lambda x: x[:, :1].squeeze(1).unsqueeze(-1),
    "unsqueeze": lambda x: x.unsqueeze(0).squeeze(),
    "double": lambda x: x.to(torch.float64),
    "half": lambda x: x.to(torch.bfloat16),
    "reshape": lambda x: x.transpose(0, 1).reshape(x.shape[1], -1).view(x.shape[1], x.shape[0], -1),
    "computed": lambda x: -torch.exp(x.float()),
    "dots": lambda x: x[...],
    "movedim": lambda x: x.movedim(0, -1),
    "flat": lambda x: x.view(1, -1),
    "expand": lambda x: x[:1].expand(2, *x.shape[1:]),
    "every other": lambda x: x[:, ::2],
    "flip": lambda x: x.flip(0),
    "diagonal": lambda x: x.diagonal(),
    "windows": lambda x: x.unfold(0, 2, 1),
}


@settings(max_examples=int(os.environ.get("CHECKPOINT_EXAMPLES", "60")), derandomize=True, deadline=None)
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=4), draw=st.randoms(use_true_random=False))
def test_ranges_equal_those_of_torch(tensors, steps, draw):
    plain, recorded = tensors
    want, got = plain["a"], recorded["a"]
    for name in steps:
        try:
            made = STEPS[name](want)
        except (RuntimeError, IndexError):  # the step is for other shapes
            continue
        if made.numel():
            want, got = made, STEPS[name](got)
    assert type(got) is RecordedTensor and got.shape == want.shape and got.dtype == want.dtype
    box = []
    for length in want.shape:
        first = draw.randrange(length)
        box.append((first, draw.randrange(1, length - first + 1)))
    expected = want
    for dim, (first, length) in enumerate(box):
        expected = expected.narrow(dim, first, length)
    with Reader() as reader:
        recipe = pickle.loads(pickle.dumps(got.recipe))
        assert torch.equal(reader.read(recipe, tuple(box)), expected)
        assert torch.equal(reader.whole(recipe), want)
        rows = torch.cat([rows for _, rows in reader.chunks(recipe, recipe.whole())])
        assert torch.equal(rows, want)


def test_only_the_bytes_of_a_range_are_read(tensors):
    _, recorded = tensors
    merged = torch.cat([torch.stack([recorded["a"], recorded["b"]]), torch.stack([recorded["b"], recorded["a"]])], 2)
    with Reader() as reader:
        part = reader.read(merged.transpose(1, 3).recipe, ((1, 1), (0, 4), (2, 3), (0, 6)))
    assert part.numel() * 4 == reader.bytes == 1 * 4 * 3 * 6 * 4
    assert merged[None].movedim(1, -1).recipe.piecewise
    assert not any(
        one.recipe.piecewise for one in (merged + 1, merged.flip(0), merged.unfold(1, 2, 1), merged[:, ::2])
    )


def test_numbers_and_comparisons_are_read(tensors):
    plain, recorded = tensors
    assert recorded["c"].item() == plain["c"].item()
    assert torch.equal(recorded["a"], recorded["a"].clone()) and not torch.equal(recorded["a"], recorded["b"])
    assert not torch.equal(recorded["a"], recorded["d"])
    parameter = torch.nn.Parameter(recorded["d"])
    assert type(parameter) is RecordedTensor and isinstance(parameter, torch.nn.Parameter)


def test_writes_are_noted_where_they_would_be_seen(tensors):
    one = tensors[1]["d"].clone()
    one.clone().zero_()
    (one * 2).normal_()
    assert not one.writes
    one[1:].unsqueeze(0).zero_()
    assert one.writes == one.detach().writes == ["aten::zero_"]
    with pytest.raises(ApplyError, match="copies a weight that has not been read"):
        torch.zeros(5).copy_(one)


def test_each_of_several_results_is_read(tensors):
    plain, recorded = tensors
    for want, got in zip(plain["d"].sort(descending=True), recorded["d"].sort(descending=True), strict=True):
        with Reader() as reader:
            assert torch.equal(reader.whole(got.recipe), want)
