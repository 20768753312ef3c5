"""Messages between the processes: what travels, once, and comes back the same."""

import torch

from modular_converter.parallel.engine.packing import pack, state_bytes, state_tensor, unpack
from modular_converter.parallel.engine.shared_memory import Arena


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


def test_random_states_come_back():
    state = torch.get_rng_state()
    assert torch.equal(state_tensor(state_bytes(state)), state)
