"""The time that a model type may take in the table of coverage."""

import time

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel.errors import PlanError  # noqa: E402
from modular_converter.parallel.proof.precision import in_float64  # noqa: E402
from modular_converter.parallel.tables.coverage import limited  # noqa: E402


def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


class Slow(torch.nn.Linear):
    """Takes long in float64."""

    def forward(self, x):
        work(3 if x.dtype is torch.float64 else 0)
        return super().forward(x)


def test_the_end_of_the_time_is_no_error_of_the_model():
    """Otherwise a model without time for float64 would count as one that cannot run in it, and go on in float32."""
    with pytest.raises(PlanError, match="^took more than 0.5 s$"), limited(0.5, 20):
        in_float64(Slow(2, 2), {"x": torch.ones(1, 2)})


def test_waiting_takes_no_time_of_the_processor():
    with limited(0.3, 20):
        time.sleep(0.5)
    with pytest.raises(PlanError, match="^took more than 0.6 s$"), limited(0.3, 0.6):
        time.sleep(4)


def test_a_limit_ends_with_its_context():
    with limited(0.2):
        pass
    work(0.3)
    time.sleep(0.3)
