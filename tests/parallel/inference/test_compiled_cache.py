"""A step with a static cache is compiled once for all counts of tokens."""

import re
import subprocess
import sys

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers.cache_utils")
from modular_converter.parallel.inference.generation import counts_vary  # noqa: E402


SCRIPT = """
import torch, torch._dynamo
from transformers import CompileConfig, Gemma3ForCausalLM, Gemma3TextConfig
from modular_converter.parallel.inference.generation import counts_vary

sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, head_dim=16)
config = Gemma3TextConfig(**sizes, num_key_value_heads=2, vocab_size=64, sliding_window=24, layer_types=
    ["sliding_attention", "full_attention"], bos_token_id=1, eos_token_id=None, pad_token_id=0)
torch.manual_seed(0)
model = Gemma3ForCausalLM(config).eval()
ids = torch.arange(1, 9).reshape(1, 8)
more = dict(attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False)
expected = model.generate(ids, **more)
compiled = CompileConfig(backend="eager", mode=None)
compiled._compile_all_devices = True

def graphs():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        found = model.generate(ids, **more, cache_implementation="static", compile_config=compiled)
    assert found.equal(expected)
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]

before = graphs()
with counts_vary():
    print(before, graphs())
"""


def test_what_an_update_of_a_static_layer_assigns_is_a_count() -> None:
    with torch.compiler.config.patch(dynamic_sources=""):
        with counts_vary():
            counts, layer = torch.compiler.config.dynamic_sources, "L['past_key_values'].layers[12]"
        assert torch.compiler.config.dynamic_sources == ""  # the caller's own again
    assert re.fullmatch(counts, f"{layer}.cumulative_length_int")
    assert not re.fullmatch(counts, f"{layer}.keys") and not re.fullmatch(counts, "L['self'].cumulative_length_int")


@pytest.mark.slow
def test_a_sliding_window_takes_no_second_compilation() -> None:
    """A version of the library in which it takes none without the choice needs no such choice."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["2", "1"]
