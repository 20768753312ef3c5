"""The results of operations without data, taken from a table."""

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from modular_converter.parallel.choice.skeleton import Guesses
from modular_converter.parallel.trace.record import KnownResults, RunsWithoutData


def test_a_known_result_has_the_type_of_the_default_that_is_set() -> None:
    known, one = KnownResults(), torch.ones(2, dtype=torch.int64, device="meta")
    types = []
    for kind in (torch.float32, torch.float64, torch.float32):
        before = torch.get_default_dtype()
        torch.set_default_dtype(kind)
        try:
            types.append(known.result(torch.ops.aten.mul.Tensor, (one, 0.5), {}).dtype)
        finally:
            torch.set_default_dtype(before)
    assert types == [torch.float32, torch.float64, torch.float32]


class _Seen(TorchDispatchMode):
    """The operations that it is handed."""

    def __init__(self) -> None:
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def _shape():
    return nn.functional.normalize(nn.functional.gelu(torch.ones(3, 7, device="meta"))).shape


def test_a_context_around_a_run_sees_all_that_it_would_without_the_table():
    with _Seen() as alone:
        _shape()
    for _ in range(2):
        with _Seen() as around, Guesses():
            _shape()
        assert around.names == alone.names


def test_a_context_within_a_run_sees_all_and_a_second_run_computes_no_shape(monkeypatch):
    monkeypatch.setattr(RunsWithoutData, "known", KnownResults())
    with _Seen() as alone:
        _shape()
    with Guesses(), _Seen() as within:
        _shape()
    assert within.names == alone.names and RunsWithoutData.known
    known = dict(RunsWithoutData.known)
    with Guesses():
        assert _shape() == (3, 7)
    assert RunsWithoutData.known == known


def test_objects_of_torch_that_are_equal_to_none_are_not_looked_up(monkeypatch):
    monkeypatch.setattr(RunsWithoutData, "known", KnownResults())
    for _ in range(50):
        with Guesses(), torch.profiler.record_function("a part"):
            assert _shape() == (3, 7)
    assert "_RecordFunction" not in repr([*RunsWithoutData.known])
