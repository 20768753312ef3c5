"""Names of a call in the words of its caller, read off a run."""

import torch
from torch import nn

from modular_converter.parallel.trace.record import bound_arguments, forward_names, record


class Inner(nn.Module):
    def forward(self, hidden, mask=None, **more):
        return hidden * 2


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        kept = alias = self.inner(x)
        first = self.inner(kept, mask=x)[0]
        del alias
        return self.inner(first, bias=x) + 1


def test_a_call_knows_its_arguments_its_caller_and_where_its_result_goes():
    trace = record(Outer(), {"x": torch.ones(2, 3)}, "outer")
    calls = [call for call in trace.modules if call.path == "inner"]
    assert [[name for name, _ in call.arguments] for call in calls] == [
        ["hidden"],
        ["hidden", "mask"],
        ["hidden", "bias"],
    ]
    assert [call.caller for call in calls] == ["", "", ""]
    assert dict(calls[0].local_names) == {calls[0].inputs[0]: ("x",)}
    assert dict(calls[1].local_names)[calls[1].inputs[0]] == ("alias", "kept")
    assert [call.result for call in calls[1:]] == ["", ""]  # an entry of it is taken, or it is computed with


def test_a_result_that_is_assigned_has_the_name_of_its_variable():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            hidden_states = self.inner(x)
            return hidden_states

    trace = record(Plain(), {"x": torch.ones(2)}, "plain")
    assert trace.modules[0].result == "hidden_states"


def test_keyword_arguments_have_their_own_names():
    module = Inner()
    assert forward_names(module) == ("hidden", "mask")
    assert bound_arguments(module, (1,), {"mask": 2, "bias": 3}) == {"hidden": 1, "mask": 2, "bias": 3}
