"""The results of operations without data, taken from a table."""

import torch

from modular_converter.parallel.trace.record import KnownResults


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
