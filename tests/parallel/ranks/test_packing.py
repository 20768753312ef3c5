"""Messages between the processes: values are sent once, and come back unchanged."""

import copy
import pickle

import pytest
import torch

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.ranks.packing import (
    COPY,
    OnRanks,
    handle_for,
    own_names,
    pack,
    public_names,
    stand_in,
    unpack,
)
from modular_converter.parallel.ranks.protocol import Arena


def test_a_tensor_that_is_named_several_times_travels_once():
    from transformers.modeling_outputs import BaseModelOutput

    area = Arena.create()
    try:
        large = torch.randn(64, 1024)
        data = pack({"one": BaseModelOutput(last_hidden_state=large), "two": large}, area)
        found = unpack(data, area, torch.device("cpu"), resolve=lambda pid: pid)
        assert torch.equal(found["two"], large) and found["one"].last_hidden_state is found["two"]
        assert found["one"]["last_hidden_state"] is found["two"]
        assert len(data) < 2000
    finally:
        area.close()


class Counter:
    """Something on the ranks."""

    def __init__(self):
        self.value, self._hidden = 3, 4

    def grow(self, by=1):
        return self.value + by

    def __len__(self):
        return self.value


def over(value, asked):
    """A handle of ``value`` whose questions are noted and answered here."""

    def call(number, name, args, kwargs):
        asked.append((number, name))
        if name == COPY:
            return "copied there"
        return getattr(value, name) if args is None else getattr(value, name)(*args, **kwargs)

    return handle_for(type(value), 7, public_names(type(value), own_names(value)), call)


def test_a_handle_knows_names_and_asks_for_values():
    asked = []
    handle = over(Counter(), asked)
    assert isinstance(handle, Counter) and isinstance(handle, OnRanks) and repr(handle) == "<Counter on the ranks>"
    assert hasattr(handle, "grow") and not hasattr(handle, "nonsense") and not hasattr(handle, "_hidden")
    assert (handle.value, handle.grow(by=2), len(handle)) == (3, 5, 3)
    assert asked == [(7, "value"), (7, "grow"), (7, "__len__")]
    assert copy.deepcopy(handle) == "copied there" and asked[-1] == (7, COPY)
    for wrong in (lambda: pickle.dumps(handle), lambda: copy.copy(handle), lambda: setattr(handle, "value", 1)):
        with pytest.raises(PlanError, match="Counter on the ranks"):
            wrong()


def test_a_handle_travels_as_its_number_and_comes_back_with_its_names():
    area, value = Arena.create(), Counter()
    data = pack([over(value, []), value], area, held={id(value): 9})
    found = unpack(data, area, torch.device("cpu"), resolve=lambda pid: pid)
    assert found == [("held", 7), ("handle", 9, Counter, "value")]
    assert public_names(Counter, "value") == {"value": False, "grow": True, "__len__": True}
    area.close()


def test_the_callers_own_object_becomes_the_handle():
    there, here = Counter(), Counter()
    stand_in(here, 5, lambda number, name, args, kwargs: getattr(there, name))
    there.value = 12
    assert here.value == 12 and isinstance(here, Counter) and type(Counter()) is Counter
