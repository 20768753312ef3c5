"""The entries of torch's layers: what the reader says against the state dicts that torch makes of the same calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from modular_converter.breaking.facts import ModelFacts
from modular_converter.breaking.states import Key, keys_of
from tests.unit.breaking.test_followed_code import facts


torch = pytest.importorskip("torch")
SHAPED = (
    "Linear(2, 3)",
    "Linear(2, out_features=3, bias=False)",
    "Bilinear(2, 3, 4)",
    "Bilinear(2, 3, 4, bias=False)",
    "Embedding(5, 3, padding_idx=1)",
    "EmbeddingBag(5, 3)",
    "LayerNorm(3)",
    "LayerNorm((2, 3), bias=False)",
    "LayerNorm([2, 3], elementwise_affine=False)",
    "RMSNorm(3)",
    "RMSNorm(3, 1e-6, False)",
    "GroupNorm(2, 4)",
    "GroupNorm(2, 4, affine=False)",
    "BatchNorm1d(3)",
    "BatchNorm2d(3, affine=False)",
    "BatchNorm3d(3, track_running_stats=False)",
    "InstanceNorm1d(3)",
    "InstanceNorm2d(3, affine=True)",
    "SyncBatchNorm(3)",
    "Conv1d(4, 6, 3)",
    "ConvTranspose1d(4, 4, 3, bias=False)",
    "PReLU()",
    "PReLU(3)",
)
"""Layers whose tensors have the shape that is told."""
NAMED = (
    "Conv2d(4, 6, 3, groups=2)",
    "Conv3d(4, 6, 3, 1, 0, 1, 1, False)",
    "ConvTranspose2d(4, 6, 3, 1, 0, 0, 1, False)",
    "LSTM(2, 3)",
    "LSTM(2, 3, bias=False, bidirectional=True)",
    "LSTM(2, 3, 2, True, False, 0.0, True, 1)",
    "LSTM(2, 3, proj_size=1)",
    "RNN(2, 3, 1, 'tanh', False)",
    "GRU(2, 3, 2, bidirectional=True)",
    "RNN(2, 3, bias=False)",
    "LSTMCell(2, 3)",
    "GRUCell(2, 3, False)",
    "RNNCell(2, 3)",
    "MultiheadAttention(4, 2)",
    "MultiheadAttention(4, 2, kdim=3, vdim=3)",
    "MultiheadAttention(4, 2, kdim=4)",
    "MultiheadAttention(4, 2, bias=False)",
    "MultiheadAttention(4, 2, add_bias_kv=True)",
    "ReLU()",
    "AdaptiveAvgPool2d(1)",
    "CrossEntropyLoss()",
    "Identity()",
    "Dropout(0.1)",
)
"""Layers of whose tensors the names are told, and words that change with the sizes."""


def layers_of(calls: tuple[str, ...], folder: Path) -> dict[str, dict[str, Key]]:
    """Call -> the entries of its layer, all of one model."""
    body = "\n".join(f"self.part{chr(97 + number)} = nn.{call}" for number, call in enumerate(calls))
    found: ModelFacts = facts(folder, body)
    state = found.files["modeling_net.py"].classes["NetModel"].state
    assert state is not None
    parts: dict[str, dict[str, Key]] = {call: {} for call in calls}
    for name, key in keys_of(state).items():
        part, _, entry = name.partition(".")
        parts[calls[ord(part[-1]) - 97]][entry] = key
    return parts


def of_torch(call: str) -> dict[str, list[int]]:
    made = eval(f"torch.nn.{call}", {"torch": torch})
    return {re.sub(r"\d+", "*", name): list(one.shape) for name, one in made.state_dict().items()}


def test_the_entries_of_layers_are_those_of_torch(tmp_path: Path) -> None:
    for folder, calls in (("shaped", SHAPED), ("named", NAMED)):
        for call, said in layers_of(calls, tmp_path / folder).items():
            real = of_torch(call)
            assert {name: key.is_certain for name, key in said.items()} == dict.fromkeys(real, True), call
            for name, key in said.items() if calls is SHAPED else ():
                assert key.part.shape is not None and key.part.shape.numbers == str(real[name]), (call, name)


@pytest.mark.parametrize("sized", ["Conv2d({}, 6, 3)", "Conv2d(4, {}, 3)", "Conv2d(4, 6, {})", "LSTM({}, 3)", "GRU(2, {})", "GRUCell({}, 3)", "LSTMCell(2, {})", "MultiheadAttention({}, 2)"])  # fmt: skip
def test_another_size_is_another_shape(sized: str, tmp_path: Path) -> None:
    calls = (sized.format(8), sized.format(16))
    one, other = layers_of(calls, tmp_path).values()
    assert {name: key.part.shape for name, key in one.items()} != {name: key.part.shape for name, key in other.items()}


def test_what_is_not_known_of_a_layer_is_not_certain(tmp_path: Path) -> None:
    calls = (
        "Linear(2, 3, bias=config.other)",
        "LayerNorm(3, elementwise_affine=config.other)",
        "MultiheadAttention(4, 2, kdim=config.other)",
        "LSTM(2, 3, bidirectional=config.other)",
    )
    said = {
        call: sorted(name for name, key in found.items() if not key.is_certain)
        for call, found in layers_of(calls, tmp_path).items()
    }
    assert said == {
        calls[0]: ["bias"],
        calls[1]: ["bias", "weight"],
        calls[2]: ["in_proj_weight", "k_proj_weight", "q_proj_weight", "v_proj_weight"],
        calls[3]: [f"{kind}_{side}_l*_reverse" for kind in ("bias", "weight") for side in ("hh", "ih")],
    }


@pytest.mark.parametrize("tensor", ["empty(2, 3)", "zeros((2, 3))", "ones(size=(2, 3))", "full((2, 3), 1.0)", "rand([2, 3])"])  # fmt: skip
def test_the_shape_of_a_parameter_is_that_of_its_tensor(tensor: str, tmp_path: Path) -> None:
    state = facts(tmp_path, f"self.scale = nn.Parameter(torch.{tensor})").files["modeling_net.py"].classes["NetModel"].state  # fmt: skip
    assert state is not None
    shape = keys_of(state)["scale"].part.shape
    assert shape is not None and shape.numbers == "[2, 3]"
