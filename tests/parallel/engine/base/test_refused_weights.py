"""Quantised models and adapters are refused by name, with a remedy."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
import torch


pytest.importorskip("transformers")
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402
from transformers.utils import quantization_config as schemes  # noqa: E402

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.engine.base.preflight import REMEDIES  # noqa: E402
from modular_converter.parallel.errors import ApplyError, PlanError  # noqa: E402
from modular_converter.parallel.int8 import SCHEME  # noqa: E402


SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "vocab_size": 40,
    "num_hidden_layers": 1,
}
NAMES = ("gate", "up", "down")
PAGE = Path(__file__).parents[4] / "docs/parallelize/saved-models.md"
METHODS = [one.value for one in schemes.QuantizationMethod]


@pytest.fixture(scope="module")
def model():
    return LlamaForCausalLM(LlamaConfig(**SIZES))


@pytest.mark.parametrize("method", METHODS)
def test_every_scheme_of_the_library_is_refused_by_name(model, tmp_path, method):
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": {"quant_method": method}}))
    with pytest.raises(ApplyError) as error:
        parallelize(tmp_path, num_gpus=2, device="cpu")
    assert f"quantised ({method})" in str(error.value)
    assert str(error.value).endswith(REMEDIES.get(method, "load the weights from before they were quantised"))
    if method == SCHEME:  # in memory the weights decide
        return
    model.config.quantization_config = {"quant_method": schemes.QuantizationMethod(method)}
    try:
        with pytest.raises(ApplyError, match=r"^LlamaForCausalLM: its weights are quantised"):
            parallelize(model, num_gpus=2, device="cpu")
    finally:
        del model.config.quantization_config


def test_the_page_has_a_row_for_each_scheme():
    rows: dict[str, list[str]] = {}
    section = (
        PAGE.read_text(encoding="utf-8").partition("\n## Adapters and quantised weights")[2].partition("\n## ")[0]
    )
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        for method in set(cells[0].split("`")[1::2]).intersection(METHODS) if len(cells) == 2 else ():
            rows.setdefault(method, []).append(cells[1])
    assert rows.keys() == set(METHODS)
    for method, said in rows.items():
        assert len(said) == 1 + (method == SCHEME)
        for mark in ("dequantize=True", "model.dequantize()"):
            assert (mark in said[-1]) == (mark in REMEDIES.get(method, ""))
        assert said[-1].startswith("refused; ") and (said[0].startswith("supported") == (method == SCHEME))


def test_the_remedies_are_those_of_the_library():
    assert set(METHODS) >= REMEDIES.keys()
    for method, remedy in REMEDIES.items():
        if "dequantize=True" in remedy:
            kind = remedy.partition("quantization_config=")[2].partition("(")[0]
            assert "dequantize" in inspect.signature(getattr(schemes, kind)).parameters, method


@pytest.mark.slow
def test_no_layer_is_exchanged_while_the_ranks_have_it(ranks):
    own = LlamaForCausalLM(LlamaConfig(**SIZES))
    before = own.state_dict()["model.layers.0.mlp.up_proj.weight"].clone()
    plan = {f"model.layers.*.mlp.{name}_proj": "rowwise" if name == "down" else "colwise" for name in NAMES}
    parallelize(own, plan=plan, session=ranks, probe=False)
    inner = own.model.layers[0]
    with pytest.raises(PlanError, match="up_proj would not reach the ranks"):
        inner.mlp.up_proj = torch.nn.Linear(32, 48)  # what injecting an adapter does
    with pytest.raises(PlanError, match="weight would not reach the ranks"):
        inner.mlp.up_proj.weight = torch.nn.Parameter(torch.zeros(48, 32))
    with pytest.raises(PlanError, match="mlp would not reach the ranks"):
        del inner.mlp
    own.cpu()
    inner.mlp.up_proj = inner.mlp.up_proj
    assert torch.equal(own.state_dict()["model.layers.0.mlp.up_proj.weight"], before)
