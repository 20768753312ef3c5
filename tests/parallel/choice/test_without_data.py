"""Runs without data of code that makes new tensors without a device: beside a model without data they have data."""

import threading

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from torch import nn  # noqa: E402
from transformers import DynamicCache  # noqa: E402
from transformers.modeling_outputs import BaseModelOutput  # noqa: E402

from modular_converter.parallel.choice.skeleton import (  # noqa: E402
    Guesses,
    on_meta,
    run_without_data,
    skeleton_of,  # noqa: E402
    tried_without_data,
)
from modular_converter.parallel.choice.trials import traced_kinds  # noqa: E402
from modular_converter.parallel.engine.remote.loaded import Called, Loaded  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from tests.parallel.deceptive import DeceptiveConfig, _Model  # noqa: E402


class Masked(_Model):
    """Its mask is made on the default device, and it returns a number of a shape."""

    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([nn.Linear(config.hidden_size, config.hidden_size)])

    def forward(self, input_ids):
        mask = torch.ones(input_ids.shape[1], input_ids.shape[1]).tril()
        hidden = mask @ self.layers[0](self.embed(input_ids))
        return BaseModelOutput(last_hidden_state=hidden, attentions=hidden.shape[-1])


@pytest.fixture
def model():
    return Masked(DeceptiveConfig(hidden_size=32)).eval()


def test_layers_of_such_a_model_have_kinds_by_their_operations(model):
    assert any(fact[0] == "operation" for fact in traced_kinds(model)["layers.0"])


def test_its_answers_are_held_against_the_whole_model(model):
    skeleton = skeleton_of(model)
    called = Called("", "forward", (), {"input_ids": torch.arange(12).view(2, 6)})
    found = Loaded(model, skeleton, {}, {}).facts(called, None).whole
    assert found[("last_hidden_state",)] == (2, 6, 32) and found[("attentions",)] == 32


def test_the_error_of_the_first_try_is_told(model):
    with pytest.raises(AttributeError, match="shape"):
        tried_without_data(lambda: run_without_data(model.to("meta"), (None,)))


def test_caches_stay_as_they_are_and_outputs_keep_their_class():
    cache, tied = DynamicCache(), torch.ones(1, 2, 3, 4, requires_grad=True) * 2
    cache.update(tied, tied, 0)
    bare = on_meta({"cache": cache, "output": BaseModelOutput(last_hidden_state=tied), "lists": [(tied, 1)]})
    layer = bare["cache"].layers[0]
    layer.update(*[torch.ones(1, 2, 1, 4, device="meta")] * 2)
    own = cache.layers[0].keys
    assert layer.keys.is_meta and layer.keys.shape[2] == 4 and own.shape[2] == 3 and torch.equal(own, tied)
    assert type(bare["output"]) is BaseModelOutput and bare["output"].last_hidden_state.is_meta
    assert bare["lists"][0][0].is_meta and bare["lists"][0][1] == 1


@pytest.mark.parametrize("value", [threading.Lock(), nn.Linear(2, 2)])
def test_an_object_that_cannot_be_copied_is_not_used_in_a_run_without_data(value):
    with pytest.raises(ApplyError, match=f"{type(value).__name__} has no copy for a run without data"):
        on_meta([value])


def test_tensors_without_data_have_no_entry_but_zero():
    values = torch.ones(3, 2, device="meta")
    with Guesses() as guessing:
        rows, columns = values.nonzero(as_tuple=True)
        assert rows.shape == columns.shape == (0,) and values.nonzero().shape == (0, 2)
        assert not guessing.guessed and not bool(values.any()) and guessing.guessed
