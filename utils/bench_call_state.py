"""Time the comparison of a model's state before each call on ranks, and after it there, for a model of 1,000 modules.

python utils/bench_call_state.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date

import torch
from torch import nn

from modular_converter.parallel.engine.base.call_state import refuse_modes
from modular_converter.parallel.engine.base.watched_code import WatchedCode
from modular_converter.parallel.engine.base.watched_state import WatchedState
from modular_converter.parallel.torch_switches import TorchSwitches


class Block(nn.Module):
    """Nine modules, one of them its own, with a number and a dictionary beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(4), nn.Dropout()
        self.q, self.k, self.v, self.o, self.up, self.down = (nn.Linear(4, 4) for _ in range(6))
        self.scale, self.options = 1.0, {"gain": 1.0}
        self.register_buffer("shift", torch.zeros(4))


def milliseconds(run: Callable[[], object]) -> float:
    """The median of 200 runs."""
    times = []
    for _ in range(200):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return sorted(times)[100] * 1e3


def main() -> None:
    torch.set_num_threads(1)
    model = nn.Sequential(*(Block() for _ in range(111)))
    state, code = WatchedState(model), WatchedCode(model)
    stored = WatchedState(model, stored_alone=True)

    def before() -> None:
        refuse_modes(torch.device("cpu"))
        code.changed()
        TorchSwitches.here()
        assert not state.differences()

    print(f"{date.today()}, torch {torch.__version__}, {len(list(model.modules()))} modules")
    print(f"before a call {milliseconds(before):.3f} ms, after it on a rank {milliseconds(stored.differences):.3f} ms")


if __name__ == "__main__":
    main()
