"""The probe runs layers of the caller's own model, which stays as it was."""

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration  # noqa: E402

from modular_converter.parallel.engine.base.trials_of_model import (  # noqa: E402
    norm_error,
    probe_of,
    refuse_difference,
)
from modular_converter.parallel.errors import ApplyError  # noqa: E402
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


class Noisy(Stack):
    """Its answers have noise."""

    more_noise = 0

    def returned(self, hidden):
        torch.rand(self.more_noise)
        return {"hidden": hidden + torch.rand_like(hidden)}


def test_a_model_that_draws_noise_is_compared_from_one_random_state_and_a_difference_is_told_with_its_cause():
    config = DeceptiveConfig(hidden_size=64, intermediate_size=64)
    assert not probe_of(Counting(config).eval()).draws
    model, before = Noisy(config).eval(), torch.get_rng_state()
    probe = probe_of(model)
    assert probe.draws
    with torch.no_grad():
        assert not probe.difference(lambda inputs: probe.model(**inputs), False)
        probe.model.more_noise = 3
        said = probe.difference(lambda inputs: probe.model(**inputs), False)
    assert torch.equal(before, torch.get_rng_state())
    refuse_difference("", "elsewhere", True)
    with pytest.raises(ApplyError, match=r"elsewhere \(output 0 differs by .*; it draws random numbers there"):
        refuse_difference(said, "elsewhere", probe.draws)


def test_the_library_records_hidden_states_of_a_tower_as_before():
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    text = LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=64)
    tower = CLIPVisionConfig(**sizes, num_hidden_layers=3, image_size=16, patch_size=8)
    model = LlavaForConditionalGeneration(
        LlavaConfig(vision_config=tower, text_config=text, image_token_index=63, image_seq_length=4)
    ).eval()
    probe_of(model)
    found = model.model.vision_tower(torch.ones(1, 3, 16, 16), output_hidden_states=True).hidden_states
    assert found is not None and len(found) == 4


def test_places_of_a_maximum_may_differ_in_a_few_ties():
    want = torch.full((100,), 5)
    for wrong, error in ((0, 0.0), (1, 0.0), (30, 1.0)):
        found = want.clone()
        found[:wrong] = 6
        assert norm_error(found, want) == error
    assert norm_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0])) == pytest.approx(0.1)
