"""The probe runs layers of the caller's own model, which stays as it was."""

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from modular_converter.parallel.engine.base.probe import probe_of  # noqa: E402
from tests.parallel.deceptive import DeceptiveConfig, Stack  # noqa: E402


class Counting(Stack):
    """Keeps the mean of what it has seen, and the last one."""

    def more(self, config):
        self.register_buffer("mean", torch.zeros(config.hidden_size))
        self.last = None

    def returned(self, hidden):
        self.mean.mul_(0.9).add_(0.1 * hidden.mean((0, 1)))
        self.last = hidden if self.last is None else self.last
        return {"hidden": hidden - self.mean}


def test_what_a_forward_keeps_is_as_it_was():
    model = Counting(DeceptiveConfig(hidden_size=64, intermediate_size=64)).eval()
    answers = [probe_of(model).answers for _ in range(2)]
    assert model.last is None and not model.mean.any()
    assert all(torch.equal(one[0], other[0]) for one, other in zip(*answers))
