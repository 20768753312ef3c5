"""A model from two others, as authors write most: following the cures of the messages, word for word, leads to files
that convert, can be imported and do what the two parents do."""

from __future__ import annotations

import importlib
import pathlib
import re
import sys

import pytest

from modular_converter.convert.batch import Run
from modular_converter.findings import Conversion, Finding
from modular_converter.settings.load import load_settings


LLAMA = """\
from ...base import Module
from .configuration_llama import LlamaConfig


def eager(x):
    return 2 * x


class LlamaMLP(Module):
    def __init__(self, config):
        self.size = config.hidden_size

    def forward(self, x):
        return x + self.size


class LlamaAttention(Module):
    def forward(self, x):
        return eager(x)


class LlamaLayer(Module):
    def __init__(self, config: LlamaConfig):
        self.attention = LlamaAttention()
        self.mlp = LlamaMLP(config)

    def forward(self, x):
        return self.mlp.forward(self.attention.forward(x))


class LlamaModel(Module):
    def __init__(self, config: LlamaConfig):
        self.layer = LlamaLayer(config)

    def forward(self, x):
        return self.layer.forward(x)
"""
CLIP = """\
from ...base import Module
from .configuration_clip import CLIPTextConfig, CLIPVisionConfig


def eager(x):
    return x - 1


class CLIPMLP(Module):
    def __init__(self, config: CLIPVisionConfig | CLIPTextConfig):
        self.width = config.width

    def forward(self, x):
        return x * self.width


class CLIPAttention(Module):
    def forward(self, x):
        return eager(x)


class CLIPLayer(Module):
    def __init__(self, config: CLIPVisionConfig | CLIPTextConfig):
        self.attention = CLIPAttention()
        self.mlp = CLIPMLP(config)

    def forward(self, x):
        return self.mlp.forward(self.attention.forward(x))


class CLIPEncoder(Module):
    def __init__(self, config):
        self.layer = CLIPLayer(config)

    def forward(self, x):
        return self.layer.forward(x)


class CLIPBase(Module):
    def reset(self):
        return [one.__name__ for one in (CLIPTextModel, CLIPVisionModel)]


class CLIPTextModel(CLIPBase):
    def __init__(self, config: CLIPTextConfig):
        self.encoder = CLIPEncoder(config)


class CLIPVisionModel(CLIPBase):
    def __init__(self, config: CLIPVisionConfig):
        self.encoder = CLIPEncoder(config)

    def forward(self, x):
        return self.encoder.forward(x)
"""
FILES = {
    "base.py": "class Module:\n    pass\n",
    "models/auto/configuration_auto.py": 'CONFIG_MAPPING_NAMES = {"clip": "CLIPConfig"}\n',
    "models/llama/configuration_llama.py": "class LlamaConfig:\n    hidden_size = 5\n",
    "models/llama/modeling_llama.py": LLAMA,
    "models/clip/configuration_clip.py": (
        "class CLIPTextConfig:\n    width = 3\n\n\nclass CLIPVisionConfig:\n    width = 7\n"
    ),
    "models/clip/modeling_clip.py": CLIP,
}
IMPORTS = """\
from ..clip.configuration_clip import CLIPVisionConfig
from ..clip.modeling_clip import CLIPVisionModel
from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import LlamaLayer, LlamaMLP, LlamaModel


class YakConfig(LlamaConfig):
    pass


"""
FIRST_VERSIONS = {
    "both models under the name of the new one": IMPORTS
    + "class YakVisionConfig(CLIPVisionConfig):\n    pass\n\n\nclass YakMLP(LlamaMLP):\n    pass\n\n\n"
    "class YakLayer(LlamaLayer):\n    pass\n\n\nclass YakModel(LlamaModel):\n    pass\n\n\nclass YakVisionModel(CLIPVisionModel):\n    pass\n",
    "a prefix that the other model has": IMPORTS.replace("import CLIPVisionModel", "import CLIPLayer, CLIPVisionModel")
    + "class YakModel(LlamaModel):\n    pass\n\n\nclass YakVisionLayer(CLIPLayer):\n    pass\n\n\n"
    "class YakVisionModel(CLIPVisionModel):\n    pass\n",
}


def convert(root: pathlib.Path, modular: str) -> Conversion:
    file = root / "models" / "yak" / "modular_yak.py"
    file.write_text(modular)
    (conversion,) = Run(load_settings(file.parent), workers=1).convert([str(file)])
    return conversion


def follow(finding: Finding, modular: str) -> str:
    """The modular file as an author changes it who does what a message says."""
    naming = re.match(
        r"Name each class that inherits from (\S+) after its parent, with `(\w+)` in place of `(\w+)`:", finding.help
    )
    if naming:
        for parent in re.search(rf"from {re.escape(naming[1])} import (.*)", modular)[1].split(", "):
            for heir in re.findall(rf"class (\w+)\({parent}\)", modular):
                modular = re.sub(rf"\b{heir}\b", naming[2] + parent.removeprefix(naming[3]), modular)
        return modular
    parent = re.match(r"Define `\w+` in the modular file \(`(from .+?)`, `(class .+?)`\), or", finding.help)
    if parent:
        return f"{parent[1]}\n{modular}\n\n{parent[2]}:\n    pass\n"
    written = re.match(r"Write `(\w+)` out in the modular file under another name, .* in `(\w+)`\.", finding.help)
    assert written, finding.help
    function, classes = written[1], re.findall(r"class (CLIP\w+)", CLIP)
    name = max((one for one in classes if written[2].endswith(one[len("CLIP") :])), key=len)
    copy = re.search(rf"def {function}\(.*?\n\n\n", CLIP, re.DOTALL)[0].replace(function, f"clip_{function}")
    body = re.search(rf"class {name}\(.*?\n(.*?)\n\n\n", CLIP, re.DOTALL)[1].replace(function, f"clip_{function}")
    return f"from ..clip.modeling_clip import {name}\n{modular}\n\n{copy}class {written[2]}({name}):\n{body}\n"


@pytest.mark.parametrize("modular", FIRST_VERSIONS.values(), ids=FIRST_VERSIONS)
def test_following_the_cures_leads_to_a_model_that_runs(
    modular: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "two_models"
    (root / "models" / "yak").mkdir(parents=True)
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    followed = 0
    while findings := convert(root, modular).findings:
        modular = follow(findings[0], modular)
        followed += 1
        assert followed < 12, findings
    assert followed > 2
    for path, text in convert(root, modular).files.items():
        pathlib.Path(path).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        vision = re.search(r"class (\w+)\(CLIPVisionModel\)", modular)[1]
        ours = importlib.import_module("two_models.models.yak.modeling_yak")
        settings = importlib.import_module("two_models.models.yak.configuration_yak")
        llama = importlib.import_module("two_models.models.llama.modeling_llama")
        clip = importlib.import_module("two_models.models.clip.modeling_clip")
        config = settings.YakConfig()
        assert ours.YakModel(config).forward(10) == llama.LlamaModel(config).forward(10)
        config = clip.CLIPVisionConfig()
        assert getattr(ours, vision)(config).forward(10) == clip.CLIPVisionModel(config).forward(10)
        assert len(getattr(ours, vision)(config).reset()) == 2
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "two_models"]:
            del sys.modules[name]
