"""The mistakes that authors make first: each is named at its line, with the cure that works."""

from __future__ import annotations

import pathlib

import pytest

from modular_converter.convert.batch import Run
from modular_converter.findings import Finding
from modular_converter.settings.load import load_settings


LLAMA = """\
from dataclasses import dataclass

from torch import nn

from ...modeling_utils import PreTrainedModel
from .configuration_llama import LlamaConfig


class LlamaMLP(nn.Module):
    scale = 2
    sizes = {"llama_small": 1}

    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, 8, bias=config.mlp_bias)

    def forward(self, x):
        return self.gate_proj(x)


@dataclass
class LlamaSizes:
    width: int = 8

    def area(self) -> int:
        return self.width


class LlamaEmbedding(nn.Embedding):
    def forward(self, x):
        return x


class LlamaAttention(nn.Module):
    def __init__(self, config: LlamaConfig, layer_idx: int):
        super().__init__()
        self.layer_idx = layer_idx

    def forward(self, x):
        return x


class LlamaPreTrainedModel(PreTrainedModel):
    config: LlamaConfig


class LlamaModel(LlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.mlp = LlamaMLP(config)


__all__ = ["LlamaPreTrainedModel", "LlamaModel"]
"""
CONFIGURATION = """\
from ...configuration_utils import PreTrainedConfig


class LlamaConfig(PreTrainedConfig):
    model_type = "llama"
    hidden_size: int = 8
    mlp_bias: bool = False


__all__ = ["LlamaConfig"]
"""
FILES = {
    "acme/__init__.py": "",
    "acme/modeling_utils.py": "class PreTrainedModel: ...\n",
    "acme/configuration_utils.py": "class PreTrainedConfig: ...\n",
    "acme/models/__init__.py": "",
    "acme/models/llama/modeling_llama.py": LLAMA,
    "acme/models/llama/configuration_llama.py": CONFIGURATION,
    "pyproject.toml": '[tool.modular-converter]\npackage = "acme"\n',
}
MODELING = "from ..llama.modeling_llama import "
CONFIG = "from ..llama.configuration_llama import LlamaConfig\n"
EXPORTS = '\n\n__all__ = ["YakConfig"]\n\n\n'
PASS = ":\n    pass\n\n\n"

MISTAKES = {
    "a misspelt model": (
        "from ..lama.modeling_lama import LlamaMLP\n\n\nclass YakMLP(LlamaMLP)" + PASS,
        (1, "MC104", "Did you mean `..llama.modeling_llama`?"),
    ),
    "a removed setting beside one whose name holds its name": (
        CONFIG
        + MODELING
        + "LlamaMLP\n\n\nclass YakConfig(LlamaConfig):\n    mlp_bias = AttributeError()\n    lm_mlp_bias: bool = False\n\n\n"
        "class YakMLP(LlamaMLP)" + PASS + EXPORTS.strip() + "\n",
        (6, "MC318", "keep the attribute"),
    ),
    "a parent in the wrong case": (
        MODELING + "LlamaMlp\n\n\nclass YakMLP(LlamaMlp)" + PASS,
        (4, "MC105", "Did you mean `LlamaMLP`?"),
    ),
    "two parents": (
        MODELING + "LlamaAttention, LlamaMLP\n\n\nclass YakMLP(LlamaMLP, LlamaAttention)" + PASS,
        (4, "MC108", "Keep one of them as the parent"),
    ),
    "a configuration from the modeling file": (
        MODELING + "LlamaConfig\n\n\nclass YakConfig(LlamaConfig)" + PASS,
        (1, "MC106", "from ..llama.configuration_llama import LlamaConfig"),
    ),
    "a configuration from the root of the package": (
        "from acme import LlamaConfig\n\n\nclass YakConfig(LlamaConfig)" + PASS,
        (1, "MC107", "`from acme.models.llama.configuration_llama import LlamaConfig`"),
    ),
    "a base of the library from the root of the package": (
        "from acme import PreTrainedModel\n\n\nclass YakModel(PreTrainedModel)" + PASS,
        (1, "MC107", "`from acme.modeling_utils import PreTrainedModel`"),
    ),
    "a parent that is not imported": (
        MODELING + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP)" + PASS + "class YakAttention(LlamaAttention)" + PASS,
        (8, "MC313", "Import it: `from ..llama.modeling_llama import LlamaAttention`."),
    ),
    "a deleted attribute that is misspelt": (
        MODELING + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    def __init__(self, config):\n"
        "        super().__init__(config)\n        del self.gate_projj\n",
        (7, "MC303", "Did you mean `gate_proj`?"),
    ),
    "a call of super in an expression": (
        MODELING + "LlamaEmbedding\n\n\nclass YakEmbedding(LlamaEmbedding):\n    def forward(self, x):\n"
        "        return 2 * super().forward(x)\n",
        (6, "MC302", "make the call a statement: `super().forward(…)`"),
    ),
    "a call of super under a condition": (
        MODELING
        + "LlamaEmbedding\n\n\nclass YakEmbedding(LlamaEmbedding):\n    def forward(self, x):\n        if x:\n"
        "            return super().forward(x)\n        return x\n",
        (7, "MC302", "Write the lines of `LlamaEmbedding.forward` out"),
    ),
    "a call of super for another method": (
        MODELING + "LlamaEmbedding\n\n\nclass YakEmbedding(LlamaEmbedding):\n    def twice(this, x):\n"
        "        return super().forward(2 * x)\n",
        (6, "MC302", "Write `this.forward(…)`, which your class does not override, or write the lines"),
    ),
    "a call of super for another method that is overridden": (
        MODELING + "LlamaEmbedding\n\n\nclass YakEmbedding(LlamaEmbedding):\n    def twice(self, x):\n"
        "        return super().forward(2 * x)\n\n    def forward(self, x):\n        return x\n",
        (6, "MC302", "Write the lines of `LlamaEmbedding.forward` out."),
    ),
    "a new head that is not exported": (
        MODELING
        + "LlamaPreTrainedModel\n\n\nclass YakPreTrainedModel(LlamaPreTrainedModel)"
        + PASS
        + "class YakForTagging(YakPreTrainedModel)"
        + PASS
        + '__all__ = ["YakPreTrainedModel"]\n',
        (8, "MC309", 'Add `"YakForTagging"` to `__all__`.'),
    ),
    "a class that nothing uses, since its name is misspelt": (
        MODELING
        + "LlamaMLP, LlamaModel\n\n\nclass YackMLP(LlamaMLP):\n    size = 1\n\n\nclass YakModel(LlamaModel)"
        + PASS,
        (4, "MC201", "name it `YakMLP`"),
    ),
    "a removed setting that is still read": (
        CONFIG + MODELING + "LlamaMLP\n\n\nclass YakConfig(LlamaConfig):\n    mlp_bias = AttributeError()\n\n\n"
        "class YakMLP(LlamaMLP)" + PASS,
        (6, "MC318", "without `config.mlp_bias`"),
    ),
    "an override that lacks a parameter": (
        MODELING + "LlamaAttention\n\n\nclass YakAttention(LlamaAttention):\n    def __init__(self, config):\n"
        "        super().__init__(config)\n",
        (6, "MC210", "Add `layer_idx` to the parameters"),
    ),
    "a stub directly below its class": (
        MODELING + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    def forward(self, x):\n"
        '        raise AttributeError("not needed")\n',
        (5, "MC317", "Put one blank line above it"),
    ),
    "a removal without parentheses": (
        MODELING + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    scale = AttributeError\n",
        (5, "MC330", "Write `scale = AttributeError()`."),
    ),
    "a removal of a misspelt name, below a base that cannot be read": (
        MODELING + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    scael = AttributeError()\n",
        (5, "MC202", "Did you mean `scale`?"),
    ),
    "no exports at all": (
        CONFIG
        + MODELING
        + "LlamaModel\n\n\nclass YakConfig(LlamaConfig)"
        + PASS
        + "class YakModel(LlamaModel)"
        + PASS,
        (5, "MC309", 'Write `__all__ = ["YakConfig", "YakModel"]` at the end'),
    ),
    "the model type of the parent": (
        CONFIG + '\n\nclass YakConfig(LlamaConfig):\n    model_type = "llama"\n',
        (5, "MC331", "Drop the line"),
    ),
    "a class that is listed and does not exist": (
        MODELING + "LlamaMLP, LlamaPreTrainedModel\n\n\nclass YakMLP(LlamaMLP)" + PASS + "class YakPreTrainedModel"
        '(LlamaPreTrainedModel):\n    _no_split_modules = ["LlamaDecoderLayer", "YakMPL"]\n',
        (9, "MC332", "Did you mean `YakMLP`?"),
    ),
    "a setting that is misspelt": (
        CONFIG + "\n\nclass YakConfig(LlamaConfig):\n    gate_rank: int = 4\n\n\nclass YakGate:\n"
        "    def __init__(self, config):\n        self.rank = config.gate_rnk\n",
        (10, "MC333", "Did you mean `gate_rank`?"),
    ),
    "a parent from the folder of its model": (
        "from ..llama import LlamaConfig\n\n\nclass YakConfig(LlamaConfig)" + PASS,
        (4, "MC504", "Write `from ..llama.configuration_llama import LlamaConfig`"),
    ),
    "a parent by its module under a condition": (
        "if True:\n    from ..llama import modeling_llama as ml\n\n\nclass YakMLP(ml.LlamaMLP)" + PASS,
        (5, "MC504", "Write `class YakMLP(LlamaMLP)`"),
    ),
    "a function that a neighbour's decorator enters somewhere": (
        MODELING
        + "TABLE, LlamaMLP\n\n\n@TABLE.register\ndef yak_act(x):\n    return x\n\n\nclass YakMLP(LlamaMLP)"
        + PASS,
        (5, "MC308", "Write the table into the modular file with all that it holds"),
    ),
    "a module's `__getattr__` that names no class": (
        MODELING
        + "LlamaMLP\n\n\ndef __getattr__(name):\n    raise AttributeError(name)\n\n\nclass YakMLP(LlamaMLP)"
        + PASS,
        (4, "MC308", "name it in `__all__`"),
    ),
    "a key of a table in the parent's class": (
        MODELING + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    size = LlamaMLP.sizes['llama_small']\n",
        (5, "MC324", "Write `yak_small`."),
    ),
    "a star import of what is not exported": (
        MODELING + "*\n\n\nclass YakMLP(LlamaMLP)" + PASS,
        (4, "MC313", "from ..llama.modeling_llama import LlamaMLP"),
    ),
    "tabs and spaces": (
        MODELING + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    size = 1\n\theight = 2\n",
        (6, "MC101", ""),
    ),
    "no colon": (MODELING + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP)\n    pass\n", (4, "MC101", "")),
    "a field without its annotation": (
        MODELING + "LlamaSizes\n\n\nclass YakSizes(LlamaSizes):\n    width = 2\n",
        (5, "MC323", "Write `width: int = …`"),
    ),
    "an annotation that an override takes is read": (
        MODELING + "LlamaSizes\n\n\nclass YakSizes(LlamaSizes):\n    def area(self):\n        return 2\n\n"
        "    def kind(self):\n        return self.area.__annotations__\n",
        (9, "MC342", "Write the annotation of the result of `area`"),
    ),
}

RIGHT = {
    "a text that begins with a key of the parent's table": MODELING
    + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    def hint(self):\n        return 'llama_small.cpp'\n",
    "an alias": MODELING + "LlamaMLP as Base\n\n\nclass YakMLP(Base)" + PASS,
    "super with arguments": MODELING
    + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    def forward(self, x):\n        return super(YakMLP, self).forward(x)\n",
    "a setting that is read under a condition": CONFIG
    + EXPORTS
    + "class YakConfig(LlamaConfig):\n    mlp_bias = AttributeError()\n\n\nclass YakMLP:\n"
    "    def __init__(self, config, bias=None):\n        self.bias = config.mlp_bias if bias is None else bias\n",
    "a setting with another name": CONFIG
    + EXPORTS
    + 'class YakConfig(LlamaConfig):\n    attribute_map = {"mlp_bias": "bias"}\n    mlp_bias = AttributeError()\n\n\n'
    "class YakMLP:\n    def __init__(self, config):\n        self.bias = config.mlp_bias\n",
    "a setting of the parent, a method of the library's base, a class of another model": CONFIG
    + MODELING
    + "LlamaPreTrainedModel"
    + EXPORTS.replace("]", ', "YakPreTrainedModel"]')
    + "class YakConfig(LlamaConfig):\n    text_configs: int = 4\n    model_type = 'yak'\n\n\n"
    "class YakPreTrainedModel(LlamaPreTrainedModel):\n    _no_split_modules = ['LlamaDecoderLayer', 'YakGate']\n\n\n"
    "class YakGate:\n    def __init__(self, config):\n        self.size = config.get_text_configs().hidden_size\n",
    "the output of a head": "class YakForTaggingOutput(dict)"
    + PASS
    + "class YakModel"
    + PASS
    + '__all__ = ["YakModel"]\n',
    "a class of its own file alone that inherits from an exported one": MODELING
    + "LlamaMLP\n\n\nclass _YakMLP(LlamaMLP)"
    + PASS
    + "class YakModel"
    + PASS
    + '__all__ = ["YakModel"]\n',
    "calls of super in an expression, under a condition, and for another method": MODELING
    + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    def forward(self, x):\n        if x is None:\n"
    "            return super().forward(0)\n        return 2 * super().forward(x)\n\n"
    "    def twice(self, x):\n        return super().forward(2 * x)\n",
    "a property that raises": MODELING
    + "LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    @property\n    def forward(self):\n"
    '        raise AttributeError("not needed")\n',
}


def findings(folder: pathlib.Path, modular: str) -> tuple[Finding, ...]:
    """The findings of the modular file of `yak` beside a small llama."""
    for name, text in {**FILES, "acme/models/yak/modular_yak.py": modular}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    file = folder / "acme" / "models" / "yak" / "modular_yak.py"
    (conversion,) = Run(load_settings(file.parent), workers=1).convert([str(file)])
    return conversion.findings


@pytest.mark.parametrize(("modular", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_cure(
    modular: str, expected: tuple[int, str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    line, code, cure = expected
    found = [(one.location.line, one.code) for one in findings(tmp_path, modular) if cure in one.help]
    assert (line, code) in found, [str(one) + one.help for one in findings(tmp_path, modular)]


def test_a_name_in_a_quoted_annotation_alone_is_a_warning(tmp_path: pathlib.Path) -> None:
    text = MODELING + 'LlamaMLP\n\n\nclass YakMLP(LlamaMLP):\n    def other(self, x: "Tensr"):\n        return {}\n'
    for value, is_error in (("x", False), ("Tensr(x)", True)):
        found = [one.is_error for one in findings(tmp_path, text.format(value)) if one.code == "MC313"]
        assert is_error in found and (is_error or found == [False])


@pytest.mark.parametrize("modular", RIGHT.values(), ids=RIGHT)
def test_nothing_is_said_of(modular: str, tmp_path: pathlib.Path) -> None:
    assert not findings(tmp_path, modular)
