"""A look at a model's state finds every write to its tensors, also one that leaves their versions as they are."""

import functools
import types

import pytest
import torch

from modular_converter.parallel.engine.base.watched_state import WatchedState


class Holder(torch.nn.Module):
    def __init__(self, entries, dtype):
        super().__init__()
        self.register_buffer("held", torch.zeros(entries, dtype=dtype))
        self.plain, self.inside = torch.zeros(entries, dtype=dtype), [torch.zeros(entries, dtype=dtype)]


WRITES = {
    "data": lambda t: t.data[-1:].fill_(1),
    "numpy": lambda t: t.numpy().__setitem__(0, 1),
    "storage": lambda t: t.untyped_storage().fill_(1),
    "in place": lambda t: t.add_(1),
    "other data": lambda t: setattr(t, "data", t.data + 1),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("entries, dtype", [(1, torch.float64), (7, torch.int64), (1 << 20, torch.float32)])
@pytest.mark.parametrize("place", ["held", "plain", "inside"])
def test_every_write_is_seen_once(write, entries, dtype, place):
    model = Holder(entries, dtype)
    state = WatchedState(model)
    assert not state.differences()
    tensor = getattr(model, place)
    WRITES[write](tensor[0] if place == "inside" else tensor)
    found = state.differences()
    assert [one.where for one in found] == [place] and found[0].is_buffer == (place == "held")
    assert not state.differences()


def test_buffers_that_go_come_or_are_replaced():
    model = Holder(3, torch.float32)
    model.register_buffer("later", None)
    state = WatchedState(model)
    model.later = torch.zeros(2)
    model.held = model.held.clone()
    assert {one.where for one in state.differences()} == {"later", "held"} and not state.differences()
    del model.held
    assert [one.where for one in state.differences()] == ["held"] and not state.differences()


def test_functions_and_objects_without_an_inside_cost_nothing_between_calls():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    for module in model:  # as on each module of a model whose modules run elsewhere
        module.forward = functools.partial(torch.relu)
    state = WatchedState(model)
    assert not state.inside and not state.differences()
    model[0].forward = functools.partial(torch.relu)
    assert [one.where for one in state.differences()] == ["0.forward"]


def test_an_object_on_many_modules_is_looked_into_once_and_its_change_seen_on_all(monkeypatch):
    """As the decoder's copy of a configuration on each layer of T5."""
    model = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(20)])
    shared, other = types.SimpleNamespace(size=2), types.SimpleNamespace(size=2)
    for n, module in enumerate(model):
        module.config = other if n == 7 else shared
    state, looked = WatchedState(model), []
    inside = state._inside
    monkeypatch.setattr(state, "_inside", lambda value: (looked.append(value), inside(value))[1])
    assert not state.differences() and looked == [shared, other]
    shared.size = 3
    assert [one.where for one in state.differences()] == [f"{n}.config" for n in range(20) if n != 7]
    assert not state.differences()
    other.size = 3
    assert [one.where for one in state.differences()] == ["7.config"] and not state.differences()


def _again(model, value):
    for _ in range(200):  # until the interpreter has a store of its own for this line
        model.number = value


SETS = {
    "setattr": lambda m: setattr(m, "number", 2),
    "as object": lambda m: object.__setattr__(m, "number", 2),
    "item": lambda m: vars(m).__setitem__("number", 2),
    "update": lambda m: vars(m).update(number=2),
    "merge": lambda m: vars(m).__ior__({"number": 2}),
    "pop": lambda m: vars(m).pop("number"),
    "popitem": lambda m: vars(m).popitem(),
    "delete": lambda m: delattr(m, "number"),
    "new": lambda m: vars(m).setdefault("other", 2),
    "equal": lambda m: setattr(m, "number", True),
    "again and again": lambda m: _again(m, 2),
    "a pair": lambda m: (vars(m).pop("number"), vars(m).__setitem__("other", 1)),
}


@pytest.mark.parametrize("stored_alone", [False, True])
@pytest.mark.parametrize("way", SETS)
def test_every_way_to_set_an_attribute_is_seen_once(way, stored_alone):
    model = torch.nn.Sequential(Holder(3, torch.float32), Holder(3, torch.float32))
    for holder in model:
        holder.number = 1
    state = WatchedState(model, stored_alone=stored_alone)
    _again(model[0], 1)
    assert not state.differences()
    SETS[way](model[1])
    found = state.differences()
    assert found and {one.path for one in found} == {"1"} and {one.name for one in found} <= {"number", "other"}
    assert not state.differences()
    vars(model[1]).update(number=3)
    assert [one.where for one in state.differences()] == ["1.number"] and not state.differences()


def test_the_state_after_an_accepted_change_is_compared_too():
    model = Holder(3, torch.float32)
    model.number, model.options = 1, {"gain": 1}
    state = WatchedState(model)
    state.accept("", "number", 2)
    state.accept("", "options", {"gain": 2})
    assert model.number == 2 and not state.differences()
    model.options["gain"] = 3
    model.number = 3
    assert {one.where for one in state.differences()} == {"number", "options"} and not state.differences()


@pytest.mark.parametrize("value", [True, 1.0, (1,), [1], torch.ones(2)], ids=str)
@pytest.mark.parametrize(
    "made", [lambda: {"gain": 1}, lambda: [1], lambda: {"gain": [1]}], ids=["dict", "list", "deep"]
)
def test_an_equal_value_of_another_type_inside_is_a_change(made, value):
    model = Holder(3, torch.float32)
    model.options = made()
    state = WatchedState(model)
    key = 0 if type(model.options) is list else "gain"
    inner = model.options[key] if type(model.options[key]) is list else model.options
    inner[0 if type(inner) is list else key] = value
    assert [one.where for one in state.differences()] == ["options"] and not state.differences()
    model.options.clear()
    assert [one.where for one in state.differences()] == ["options"] and not state.differences()


def test_a_look_does_not_hinder_that_storage_is_resized():
    """Sharded weights free theirs after each forward, and a model's own code may call ``resize_``."""
    model = Holder(3, torch.float32)
    state = WatchedState(model)
    for tensor in (model.plain, model.inside[0], model.held):
        tensor.untyped_storage().resize_(0)
    assert {one.where for one in state.differences()} == {"plain", "inside", "held"}
    model.plain.resize_(50).fill_(2)
    assert [one.where for one in state.differences()] == ["plain"] and not state.differences()
