"""A call can be left before its end: the ranks stop at the next token, and take the next call."""

import signal
import threading

import pytest
import torch


pytest.importorskip("transformers")
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM  # noqa: E402

from modular_converter.parallel import parallelize  # noqa: E402


IDS = torch.arange(1, 19).view(2, 9)
LONG = {"max_new_tokens": 4000, "min_new_tokens": 4000, "do_sample": False}
SHORT = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": -1}
PLAN = """plan LlamaForCausalLM
rule model.layers.*.mlp.gate_proj colwise
rule model.layers.*.mlp.up_proj colwise
rule model.layers.*.mlp.down_proj rowwise
"""


@pytest.fixture(scope="module")
def model(ranks):
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    found = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=4, max_position_embeddings=8192)).eval()
    found.generation_config.pad_token_id = 0
    with torch.no_grad():
        found.want = found.generate(IDS, **SHORT)
    yield parallelize(found, session=ranks, plan=PLAN, probe=False)
    found._placement.end()


class Leaves:
    """A streamer whose reader goes away."""

    def __init__(self, after, error):
        self.left, self.error = after, error

    def put(self, value):
        self.left -= 1
        if self.left == 0:
            raise self.error

    def end(self):
        pass


@pytest.mark.parametrize("after, error", [(1, ConnectionError("gone")), (4, KeyboardInterrupt()), (4, SystemExit(3))])
def test_a_streamer_whose_reader_has_gone_ends_its_call(model, after, error):
    streamer, ids = Leaves(after, error), IDS[:1]
    with pytest.raises(type(error)):
        model.generate(ids, streamer=streamer, **LONG)
    steps = [rank.progress.cells[1] for rank in model._placement.session.ranks]
    assert steps[0] == steps[1] < 2000 and streamer.left == 0
    assert torch.equal(model.generate(IDS, **SHORT), model.want)
    assert not model._placement.session.ended and not model._placement.handles


def test_ctrl_c_ends_a_call_and_not_the_ranks(model):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for seconds in (0.05, 0.2, 0.5):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            with pytest.raises(KeyboardInterrupt):
                model.generate(IDS, past_key_values=DynamicCache(config=model.config), **LONG)
            assert torch.equal(model.generate(IDS, **SHORT), model.want)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not model._placement.session.ended


def test_who_waits_for_a_call_that_is_left_gets_its_answer(model):
    found = []
    began = threading.Event()

    class Waits(Leaves):
        def put(self, value):
            began.set()
            other.join(0.2)
            super().put(value)

    other = threading.Thread(target=lambda: began.wait() and found.append(model.generate(IDS, **SHORT)))
    other.start()
    with pytest.raises(ConnectionError):
        model.generate(IDS[:1], streamer=Waits(3, ConnectionError("gone")), **LONG)
    other.join()
    assert torch.equal(found[0], model.want)
