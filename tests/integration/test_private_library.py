"""A private library on top of an installed package: converted, imported and run where it lies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from modular_converter import convert_file


MODULAR = """\
import torch
from torch import nn

from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM, LlamaMLP, LlamaRMSNorm
from transformers.utils import auto_docstring


@auto_docstring(checkpoint="acme/acme-7b")
class AcmeConfig(LlamaConfig):
    model_type = "acme"
    gate_scale: float = 0.5


class AcmeRMSNorm(LlamaRMSNorm):
    pass


class AcmeMLP(LlamaMLP):
    def __init__(self, config):
        super().__init__(config)
        self.gate_scale = config.gate_scale

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_scale * self.gate_proj(x)) * self.up_proj(x))


class AcmeForCausalLM(LlamaForCausalLM):
    pass


__all__ = ["AcmeConfig", "AcmeForCausalLM"]
"""
RUN = """\
import torch
from acme.models.acme.configuration_acme import AcmeConfig
from acme.models.acme.modeling_acme import AcmeForCausalLM
config = AcmeConfig(vocab_size=11, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2)
model = AcmeForCausalLM(config).eval()
assert model.model.layers[1].mlp.gate_scale == 0.5
print(tuple(model(torch.arange(6)[None]).logits.shape))
"""


def test_generated_code_imports_and_runs_in_another_library(tmp_path: Path) -> None:
    folder = tmp_path / "acme" / "models" / "acme"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").write_text("")
    (folder / "modular_acme.py").write_text(MODULAR)
    (tmp_path / "pyproject.toml").write_text("")

    conversion = convert_file(folder / "modular_acme.py")
    assert not conversion.findings
    for path, text in conversion.files.items():
        Path(path).write_text(text)
        assert "\nfrom ..." not in text, "relative imports of the neighbours became absolute"
    modeling = (folder / "modeling_acme.py").read_text()
    assert "from transformers.activations import ACT2FN" in modeling
    assert "from .configuration_acme import AcmeConfig" in modeling
    assert modeling.splitlines()[1].endswith("generated from acme/models/acme/modular_acme.py.")

    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "(1, 6, 11)"
