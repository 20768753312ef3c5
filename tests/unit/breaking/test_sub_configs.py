"""Which configuration a part has by default: what the reader says against what transformers makes of the same text."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

import pytest

from modular_converter.breaking.expressions import Interpreter
from modular_converter.breaking.names import Names
from modular_converter.breaking.older import tree_at
from modular_converter.breaking.values import Either, ObjectValue, Value, plain
from modular_converter.settings.load import profile_settings


transformers = pytest.importorskip("transformers")
MODELS = os.path.join(os.path.dirname(transformers.__file__), "models")
PACKAGE = "transformers.models.vit"
PATH = os.path.join(MODELS, "vit", "configuration_vit.py")
HEAD = """\
import os

from ...backbone_utils import consolidate_backbone_kwargs_to_config
from ...configuration_utils import PreTrainedConfig, SubConfigSpec
from ..auto import AutoConfig
from ..resnet.configuration_resnet import ResNetConfig
from ..swin.configuration_swin import SwinConfig


class Base(PreTrainedConfig):
    model_type = "base"
    sub_configs_defaults = {{"part_config": SubConfigSpec({spec})}}
    part_config: dict | PreTrainedConfig | None = None
{base}

class Probe({bases}):
    model_type = "probe"
{body}
"""
RESNET, SWIN = 'AutoConfig, model_type="resnet"', 'AutoConfig, model_type="swin"'
BACKBONE = """
    sub_configs_defaults = {{"backbone_config": SubConfigSpec({0})}}
    backbone_config: dict | PreTrainedConfig | None = {1}
"""
BEGIN = "    def __post_init__(self, **kwargs):\n"
SUPER = "        super().__post_init__(**kwargs)\n"
OWN = BEGIN + "        {0}\n" + SUPER
CONSOLIDATED = (
    "self.backbone_config, kwargs = consolidate_backbone_kwargs_to_config(\n"
    "            backbone_config=self.backbone_config, default_config_type='swin', **kwargs)"
)
HEIR = '\n    sub_configs_defaults = {{**Base.sub_configs_defaults, "part_config": {0}}}\n'
CASES = {
    "the default": (RESNET, "", "", "ResNetConfig"),
    "given before": (RESNET, "", OWN.format("self.part_config = SwinConfig()"), "SwinConfig"),
    "given by the library before": (RESNET, "", BACKBONE.format(RESNET, None) + OWN.format(CONSOLIDATED), "SwinConfig"),
    "given after": (RESNET, "", BEGIN + SUPER + "        self.part_config = SwinConfig()\n", "SwinConfig"),
    "given where nothing is": (RESNET, "", BEGIN + SUPER + "        if self.part_config is None:\n            self.part_config = SwinConfig()\n", "ResNetConfig"),
    "optional": (RESNET + ", optional=True", "", "", "None"),
    "optional and given": (RESNET + ", optional=True", "", OWN.format("self.part_config = SwinConfig()"), "SwinConfig"),
    "of no keyword": ('AutoConfig, "swin"', "", "", "SwinConfig"),
    "a class and another type": ('ResNetConfig, "swin"', "", "", "ResNetConfig"),
    "a backbone and another type": (RESNET, "", BACKBONE.format('ResNetConfig, model_type="swin"', None), "SwinConfig"),
    "a dict of another type": (RESNET, "", OWN.format('self.part_config = {"model_type": "swin"}'), "SwinConfig"),
    "a dict without a type": (RESNET, "", OWN.format('self.part_config = {"depths": [1]}'), "ResNetConfig"),
    "a dict for a class": ("ResNetConfig", "", OWN.format('self.part_config = {"model_type": "swin"}'), "ResNetConfig"),
    "a dict that is written to": (RESNET, "", OWN.format('self.part_config = {"depths": [1]}; self.part_config["model_type"] = self.part_config.get("model_type", "swin")'), "SwinConfig"),
    "a dict within one": ('AutoConfig, model_type="llava", init_kwargs={"vision_config": {"model_type": "siglip_vision_model", "vision_use_head": False}}', "", BEGIN + SUPER + "        if not self.part_config.vision_config.vision_use_head:\n            self.part_config = SwinConfig()\n", "SwinConfig"),
    "an heir's class": (RESNET, "", HEIR.format("SwinConfig"), "SwinConfig"),
    "an heir's specification": (RESNET, "", HEIR.format(f"SubConfigSpec({SWIN})"), "SwinConfig"),
    "the base's method by its name": (RESNET, OWN.format("self.part_config = SwinConfig()"), BEGIN + "        PreTrainedConfig.__post_init__(self, **kwargs)\n", "ResNetConfig"),
    "the heir's __init__": (RESNET, OWN.format("self.part_config = SwinConfig()"), "    def __init__(self, **kwargs):\n        super().__init__(**kwargs)\n", "SwinConfig"),
    "an unknown condition": (RESNET, "", OWN.format('if os.environ.get("NONE"):\n            self.part_config = SwinConfig()'), "?"),
    "an unknown value": (RESNET, "", OWN.format('self.part_config = SwinConfig() if os.environ.get("NONE") else None'), "?"),
    "an unknown type": ('AutoConfig, model_type=os.environ.get("NONE", "swin")', "", "", "?"),
    "unknown defaults": (RESNET, "", "\n    sub_configs_defaults = Base.sub_configs_defaults | {}\n", "?"),
}  # fmt: skip


def _said(value: Value) -> str:
    """The class of a configuration, "None", or "?" for one that is not known."""
    if isinstance(value, ObjectValue):
        return value.cls.name
    return "None" if not isinstance(value, Either) and plain(value) is None else "?"


@pytest.mark.parametrize("case", CASES)
def test_the_configuration_of_a_part(case: str) -> None:
    spec, base, body, expected = CASES[case]
    text = HEAD.format(spec=spec, base=base, bases="Base", body=body)
    names: dict[str, Any] = {"__package__": PACKAGE, "__name__": f"{PACKAGE}.configuration_vit"}
    exec(compile(text, PATH, "exec", dont_inherit=True), names)  # noqa: S102 - the text above
    name = "backbone_config" if "backbone_config" in body else "part_config"
    real = getattr(names["Probe"](), name)
    said = _said(_configuration({PATH: text}, PATH, "Probe").attributes[name])
    assert said == expected
    assert said in ("?", type(real).__name__.removesuffix("Type"))


@pytest.mark.slow
def test_no_configuration_of_transformers_is_said_wrongly() -> None:
    tree = _tree()
    said = {}
    for model in sorted(tree.names):
        for path in tree.files_in(os.path.join(MODELS, model)):
            if not os.path.basename(path).startswith("configuration_"):
                continue
            module = importlib.import_module(f"transformers.models.{model}.{os.path.basename(path)[:-3]}")
            for name in module.__all__:
                cls = getattr(module, name)
                if specs := getattr(cls, "sub_configs_defaults", None):
                    said |= {f"{model}.{name}.{part}": found for part, found in _both(path, name, cls, specs)}
    wrong = {part: both for part, both in said.items() if both[0] not in ("?", both[1])}
    assert wrong == {}
    known = [part for part, both in said.items() if both[0] != "?"]
    assert len(known) > 0.98 * len(said) > 300


def _both(path: str, name: str, cls: Any, specs: Any) -> list[tuple[str, tuple[str, str]]]:
    try:
        real = cls()
    except Exception:  # it needs something that is not installed
        return []
    parts = _configuration({}, path, name).attributes
    return [(one, (_said(parts[one]), type(getattr(real, one)).__name__.removesuffix("Type"))) for one in specs]


@functools.cache
def _tree() -> Any:
    return tree_at(MODELS, profile_settings())


def _configuration(texts: dict[str, str], path: str, name: str) -> ObjectValue:
    tree = tree_at(MODELS, profile_settings(), texts) if texts else _tree()
    names = Names(tree.library, MODELS) if texts else tree._names_in_files
    found = names.class_named(path, name)
    assert found is not None
    made = Interpreter(names, MODELS, tree.files_in).instantiate(found, [], {}, "config")
    assert isinstance(made, ObjectValue)
    return made
