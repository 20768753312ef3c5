"""Plans in transformers' vocabulary; where they leave out how an output is cut, the trace of the model tells."""

import pytest
import torch
from torch import nn

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.emit import to_library
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.solve.derive import from_library
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace
from tests.parallel.solve.test_traps import HIDDEN, Stack
from tests.parallel.solve.test_traps_in_modules import Latent


X = {"x": torch.randn(2, 6, HIDDEN, generator=torch.Generator().manual_seed(0))}
CUT = "the cut of its output is unknown; it needs a trace of the model"


@pytest.fixture(scope="module")
def trace():
    torch.manual_seed(0)
    return record(Stack(Latent).eval(), X, "latent")


def test_a_derived_plan_comes_back(trace):
    plan = plan_of_trace(trace)
    found = from_library("latent", to_library(plan), trace)
    assert found.rules == plan.rules
    assert {rule.parts for rule in found.rules if rule.style == "mla_kv_a_proj"} == {("rank", "tail")}


def test_a_cut_that_no_trace_shows_is_an_error(trace):
    with pytest.raises(PlanFormatError, match=rf"layers\.\*\.down: {CUT}"):
        from_library("latent", {"layers.*.down": "mla_kv_a_proj"})
    for pattern in ("layers.*.gone", "layers.*.q", "layers.*.o"):  # not there, a view, nothing behind it
        with pytest.raises(PlanFormatError, match=CUT):
            from_library("latent", {"layers.*.q": "colwise", pattern: "mla_kv_a_proj"}, trace)


class Halves(nn.Module):
    """Two layers whose outputs are cut, one at numbers and one in equal parts; a third one is used without a cut first."""

    def __init__(self):
        super().__init__()
        self.numbers, self.chunks, self.late = (nn.Linear(8, 12) for _ in range(3))
        self.width = 4

    def forward(self, x):
        first, last = self.numbers(x).split([8, 4], -1)
        one, other = self.chunks(x).chunk(2, -1)
        late = self.late(x)
        behind = torch.tanh(late), *late.split([self.width, 2 * self.width], -1)
        return first.sum() + last.sum() + (one * other).sum() + sum(part.sum() for part in behind)


def test_the_parts_are_those_of_the_code():
    trace = record(Halves(), {"x": torch.randn(2, 8)}, "halves")
    assert from_library("x", {"chunks": "mla_kv_a_proj"}, trace).rules[0].parts == (1, 1)
    assert from_library("x", {"late": "mla_kv_a_proj"}, trace).rules[0].parts == ("width", "2*width")
    with pytest.raises(PlanFormatError, match=f"numbers: {CUT}"):
        from_library("x", {"numbers": "mla_kv_a_proj"}, trace)


def test_styles_without_parts_need_no_trace():
    rules = {"a": "colwise", "b": "packed_rowwise", "c": "replicate", "d": "local_params"}
    wanted = (PlanRule("a", "colwise"), PlanRule("b", "packed_rowwise", None, (1, 1)))
    assert from_library("x", rules) == Plan("x", wanted)
    with pytest.raises(PlanFormatError, match="unknown style 'sideways'"):
        from_library("x", {"a": "sideways", "b": "colwise"})
