"""Functions that exchange the parts of a module after it is made, and arguments that automatic classes hand on."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.breaking.facts import PublicClass
from modular_converter.breaking.older import tree_at
from modular_converter.breaking.states import keys_of
from modular_converter.settings.load import profile_settings


MODEL = """\
import torch
from torch import nn

from ...modeling_utils import PreTrainedModel
from ..auto.modeling_auto import AutoModel
from .configuration_net import NetConfig, HolderConfig


class FrozenNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Buffer(torch.ones(n))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.conv = nn.Conv2d(3, config.width, 1)
        self.norm = nn.BatchNorm2d(config.width)
        self.parts = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm2d(config.width))


def freeze(model):
    for name, module in model.named_children():
        if isinstance(module, nn.BatchNorm2d):
            model._modules[name] = FrozenNorm(module.num_features)
        if len(list(module.children())) > 0:
            freeze(module)


class NetModel(PreTrainedModel):
    config: NetConfig

    def __init__(self, config, without_head=False):
        super().__init__(config)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.depth)])
        self.head = nn.Linear(1, 1, bias=False) if not without_head else None


class NetFrozen(NetModel):
    def __init__(self, config):
        super().__init__(config, True)
        freeze(self)


class NetThawed(NetModel):
    pass


class NetHolder(PreTrainedModel):
    config: HolderConfig

    def __init__(self, config):
        super().__init__(config)
        self.one = AutoModel.from_config(config.net, without_head=True)
        self.other = AutoModel.from_config(config.net)


__all__ = ["NetModel", "NetFrozen", "NetThawed", "NetHolder"]
"""
CONFIG = """\
from ...configuration_utils import PreTrainedConfig


class NetConfig(PreTrainedConfig):
    model_type = "net"
    width: int = 8
    depth: int = 2


class HolderConfig(PreTrainedConfig):
    model_type = "holder"

    def __post_init__(self):
        self.net = NetConfig()
        self.text_config = self.net
"""
AUTO = """\
from collections import OrderedDict

from .auto_factory import _BaseAutoModelClass, _LazyAutoMapping
from .configuration_auto import CONFIG_MAPPING_NAMES


NAMES = OrderedDict([("net", "NetModel")])
MAPPING = _LazyAutoMapping(CONFIG_MAPPING_NAMES, NAMES)


class AutoModel(_BaseAutoModelClass):
    _model_mapping = MAPPING
"""
TEXTS = {
    "__init__.py": "",
    "modeling_utils.py": "from torch import nn\n\n\nclass PreTrainedModel(nn.Module):\n    pass\n",
    "configuration_utils.py": "class PreTrainedConfig:\n    pass\n",
    "models/__init__.py": "",
    "models/auto/modeling_auto.py": AUTO,
    "models/auto/auto_factory.py": "class _BaseAutoModelClass:\n    _model_mapping = None\n",
    "models/auto/configuration_auto.py": 'CONFIG_MAPPING_NAMES = {"net": "NetConfig"}\n'
    "CONFIG_MAPPING = _LazyConfigMapping(CONFIG_MAPPING_NAMES)\n\n\nclass AutoConfig:\n    pass\n",
    "models/net/configuration_net.py": CONFIG,
}
PARTS = ["conv.weight", "conv.bias", "parts.*.weight", "parts.*.bias"]
NORM = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]


def entries(folder: Path, model: str = MODEL) -> dict[str, dict[str, bool]]:
    """The entries of each class, and whether they are certain."""
    for name, text in {**TEXTS, "models/net/modeling_net.py": model}.items():
        path = folder / "zoo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    classes = tree_at(str(folder / "zoo" / "models"), profile_settings()).facts("net").files["modeling_net.py"].classes
    return {name: _entries(one) for name, one in classes.items()}


def _entries(one: PublicClass) -> dict[str, bool]:
    assert one.state is not None
    return {name: key.is_certain for name, key in keys_of(one.state).items()}


def test_exchanged_layers_hold_what_they_now_are(tmp_path: Path) -> None:
    found = entries(tmp_path)
    frozen = [*PARTS, "norm.weight"]
    plain = {*PARTS, *(f"norm.{name}" for name in NORM), *(f"parts.*.{name}" for name in NORM)}
    assert found["NetFrozen"] == {f"blocks.*.{name}": True for name in frozen}
    assert (
        found["NetModel"]
        == found["NetThawed"]
        == {"head.weight": True, **{f"blocks.*.{name}": True for name in plain}}
    )


def test_a_condition_that_is_not_known_leaves_both(tmp_path: Path) -> None:
    found = entries(tmp_path, MODEL.replace("isinstance(module, nn.BatchNorm2d)", "chosen(module)"))
    assert found["NetFrozen"]["blocks.*.norm.num_batches_tracked"] is False
    assert found["NetFrozen"]["blocks.*.norm.weight"] is False
    assert found["NetFrozen"]["blocks.*.parts.*.num_batches_tracked"] is False


def test_a_function_that_calls_itself_for_the_same_module_ends(tmp_path: Path) -> None:
    found = entries(tmp_path, MODEL.replace("freeze(module)", "freeze(model)"))
    assert found["NetFrozen"]["blocks.*.conv.weight"] is True


def test_what_an_automatic_class_is_given_reaches_the_model(tmp_path: Path) -> None:
    found = entries(tmp_path)["NetHolder"]
    assert ("one.head.weight" in found, found["other.head.weight"]) == (False, True)


def test_the_size_of_an_exchanged_layer_is_compared(tmp_path: Path) -> None:
    entries(tmp_path)
    tree = tree_at(str(tmp_path / "zoo" / "models"), profile_settings())
    state = tree.facts("net").files["modeling_net.py"].classes["NetFrozen"].state
    assert state is not None
    shape = keys_of(state)["blocks.*.norm.weight"].part.shape
    assert shape is not None and (shape.text, shape.numbers) == ("(config.width)", "[8]")


HOLDS = {
    "the class itself": ("NetModel.from_config(config.net)", True),
    "the class itself by name": ("NetModel._from_config(config=config.net, without_head=True)", False),
    "a type of model": ('AutoModel.from_config(AutoConfig.for_model("net"))', True),
    "an entry of the table": ('AutoModel.from_config(CONFIG_MAPPING["net"]())', True),
    "the configuration by name": ("AutoModel.from_config(config=config.net)", True),
    "the text's configuration": ("AutoModel.from_config(config.get_text_config())", True),
    "the text's configuration of a text": ("AutoModel.from_config(config.net.get_text_config())", True),
    "one configuration or none": ("AutoModel.from_config(config.net if config.rest else None)", True),
    "one or another": ("AutoModel.from_config(config.net if config.rest else config.other)", None),
    "a type that is not known": ("AutoModel.from_config(config)", None),
    "a configuration that is not known": ("AutoModel.from_config(config.rest)", None),
}


@pytest.mark.parametrize("case", HOLDS)
def test_which_model_a_call_of_the_library_makes(case: str, tmp_path: Path) -> None:
    call, has_head = HOLDS[case]
    text = MODEL.replace("self.other = AutoModel.from_config(config.net)", f"self.other = {call}").replace(
        "import AutoModel\n",
        "import AutoModel\nfrom ..auto.configuration_auto import CONFIG_MAPPING, AutoConfig\n",
    )
    found = entries(tmp_path, text)["NetHolder"]
    body = [f"other.blocks.*.{name}" for name in PARTS]
    if has_head is not None:
        assert all(found[name] for name in body) and found.get("other.head.weight", False) is has_head
    elif "one or" in case:
        assert not any(found[name] for name in body)
    else:
        assert not any(name.startswith("other.") for name in found)
