"""The bytes of an optimizer's state: those of torch's own optimizer after a step with data."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from click import Command
from click.testing import CliRunner

from modular_converter.parallel.advice.memory import (
    OPTIMIZERS,
    LayoutSetting,
    TrainedWeight,
    optimizer_of,
    optimizer_use,
    trained_weights,
)
from modular_converter.parallel.advice.subject import model_in_question
from modular_converter.parallel.commands.advise import advise_command, memory_command
from modular_converter.parallel.costs import CountRequest
from modular_converter.parallel.errors import AdviceError
from modular_converter.parallel.layout import Layout
from modular_converter.parallel.tiny.build import build, target_of


SMALL = ["--devices", "H100-80GB", "--set", "n_layer=1", "--set", "n_embd=16", "--set", "n_head=2", "--sequence", "8"]
TYPES = ["llama", "gpt2", "mixtral", "t5", "bert", "mamba", "vit", "albert", "whisper", "deepseek_v3"]


def real_bytes(name: str, weights: list[torch.nn.Parameter]) -> int:
    """The state after a step, without the numbers of steps, which are on the host."""
    optimizer = OPTIMIZERS[name](weights)
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    tensors = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    return sum(one.numel() * one.element_size() for one in tensors if one.dim())


@pytest.mark.parametrize("name", ["adamw", "adamw-fused", "sgd", "sgd-momentum", "adafactor"])
@pytest.mark.parametrize("kind", TYPES)
def test_state_is_that_of_the_real_optimizer(kind: str, name: str) -> None:
    weights = list({id(one): one for one in build(target_of(kind)).model.parameters()}.values())
    found = optimizer_use(name, Counter(TrainedWeight(tuple(w.shape), tuple(w.shape), w.dtype) for w in weights))
    assert found.state == real_bytes(name, weights)


def test_a_share_of_fully_shard_has_a_share_of_the_state_but_whole_sums_over_rows() -> None:
    part = TrainedWeight((8, 6), (16, 6), torch.float32)
    assert optimizer_use("adamw", {part: 1}).state == 2 * 8 * 6 * 4
    assert optimizer_use("adafactor", {part: 1}).state == (16 + 6) * 4


def test_a_step_of_lists_needs_the_weights_once_more() -> None:
    weight = TrainedWeight((64, 32), (64, 32), torch.bfloat16)
    assert optimizer_use("adamw", {weight: 3}).step == 3 * weight.size
    assert optimizer_use("adamw-fused", {weight: 3}).step == 0


def test_an_unknown_optimizer_names_the_known_ones() -> None:
    with pytest.raises(AdviceError, match="unknown optimizer 'adam'; known: adamw"):
        optimizer_use("adam", {})


def test_weights_divide_over_data_ranks_and_tensor_ranks() -> None:
    small = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 99,
    }
    subject = model_in_question(CountRequest("llama", {**small, "num_key_value_heads": 2}, None, 1, 16))
    setting = LayoutSetting(Layout.parse("fsdp2.tp2"), 1)
    groups = subject.groups("tp", 2)
    shapes = {one.name: one.shape for group in groups for one in group.parts}
    assert shapes["model.layers.0.mlp.up_proj.weight"] == (48, 64)
    assert shapes["model.layers.0.input_layernorm.weight"] == (64,)
    assert shapes["lm_head.weight"] == (50, 64)
    kinds = trained_weights(setting, groups)
    assert kinds[TrainedWeight((25, 64), (99, 64), torch.bfloat16)] == 2
    assert kinds[TrainedWeight((24, 64), (96, 64), torch.bfloat16)] == 4
    assert optimizer_of(setting, groups).state == 2 * sum(one.size * number for one, number in kinds.items())


def test_advice_for_an_unknown_optimizer_is_an_error_and_no_table() -> None:
    done = CliRunner().invoke(advise_command, ["gpt2", "--devices", "H100-80GB", "--train", "adam"])
    assert done.exit_code == 2
    assert "unknown optimizer 'adam'; known: adamw" in done.output
    assert "fits" not in done.output


@pytest.mark.parametrize(
    ("command", "words", "told"),
    [
        (advise_command, "--train sgd --infer", "--train: this is about training, and --infer asks for answers"),
        (advise_command, "--tokens 8", "--tokens: these are tokens of an answer: give --infer"),
        (advise_command, "--processes 2", "--processes: these measure with --calibrate FILE"),
        (memory_command, "--recompute --accumulate 2 --infer", "--recompute, --accumulate: this is about training"),
        (memory_command, "--train sgd --infer", "--optimizer/--train: this is about training"),
        (memory_command, "--layout ddp2 --chunks 2", "2 micro-batches need a layout with pp, such as pp2"),
        (memory_command, "--layout tp2 --offload", "weights on the host need a layout with data ranks"),
    ],
)
def test_an_option_without_effect_is_an_error_that_names_it(command: Command, words: str, told: str) -> None:
    done = CliRunner().invoke(command, ["gpt2", *SMALL, *words.split()], terminal_width=300)
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())
