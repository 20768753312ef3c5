"""MC314: a new layer beside layers that an inherited plan splits is found, and no other layer is."""

from __future__ import annotations

import ast
import pathlib

import pytest

from modular_converter.convert.pipeline import convert
from modular_converter.convert.source.library import Library
from modular_converter.findings import Finding
from modular_converter.parallel.lint.plan_entries import linear_layers
from modular_converter.settings.load import profile_settings


PLANNED = """\
class OldConfig:
    base_model_tp_plan = {"layers.*.mlp.up": "colwise", "layers.*.mlp.down": "rowwise"}
"""
PLANNED_MODEL = """\
from torch import nn


class OldMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.inner_size)
        self.down = nn.Linear(config.inner_size, config.hidden_size)


class OldLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mlp = OldMLP(config)
"""


def lint_plan(
    folder: pathlib.Path, layer: str, config: str = "pass", holder: str = "mlp", code: str = "MC314"
) -> list[Finding]:
    """The findings of a rule about a layer that a modular file adds to the MLP of `PLANNED_MODEL`."""
    (folder / "old").mkdir()
    (folder / "new").mkdir()
    (folder / "old" / "configuration_old.py").write_text(PLANNED)
    (folder / "old" / "modeling_old.py").write_text(PLANNED_MODEL.replace("self.mlp", f"self.{holder}"))
    modular = folder / "new" / "modular_new.py"
    modular.write_text(
        "from torch import nn\n\nfrom ..old.configuration_old import OldConfig\n"
        "from ..old.modeling_old import OldLayer, OldMLP\n\n\n"
        f"class NewConfig(OldConfig):\n    {config}\n\n\n"
        "class NewMLP(OldMLP):\n    def __init__(self, config: NewConfig):\n        super().__init__(config)\n"
        f"        {layer}\n\n\nclass NewLayer(OldLayer):\n    pass\n"
    )
    found = convert(str(modular), Library(profile_settings())).findings
    return [finding for finding in found if finding.code == code]


GATE = "self.gate = nn.Linear(config.hidden_size, config.inner_size, bias=False)"


def test_a_new_layer_beside_planned_ones(tmp_path: pathlib.Path) -> None:
    [found] = lint_plan(tmp_path, GATE)
    assert "splits `up` of `NewMLP`, but has no entry for the new `gate`" in found.message
    assert found.source_line == f"        {GATE}"


OWN_NAMES = {
    "an attribute": "self.width = config.hidden_size\n        self.gate = nn.Linear(self.width, config.inner_size)",
    "a variable": "width = config.hidden_size\n        self.gate = nn.Linear(width, config.inner_size)",
    "attributes of attributes": "self.config = config\n        self.width = self.config.hidden_size\n"
    "        self.gate = nn.Linear(in_features=self.width, out_features=self.config.inner_size)",
}


@pytest.mark.parametrize("layer", OWN_NAMES.values(), ids=OWN_NAMES)
def test_sizes_by_names_of_the_class(layer: str, tmp_path: pathlib.Path) -> None:
    [found] = lint_plan(tmp_path, layer)
    assert "splits `up` of `NewMLP`, but has no entry for the new `gate`" in found.message


def test_sizes_by_names_of_the_parent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent's layers are written in names of its own, the new one in the configuration's."""
    own = PLANNED_MODEL.replace(
        "super().__init__()\n        self.up = nn.Linear(config.hidden_size, config.inner_size)",
        "super().__init__()\n        self.hidden_size = config.hidden_size\n        self.inner_size = config.inner_size\n"
        "        self.up = nn.Linear(self.hidden_size, self.inner_size)",
        1,
    )
    assert own != PLANNED_MODEL
    monkeypatch.setitem(globals(), "PLANNED_MODEL", own)
    [found] = lint_plan(tmp_path, GATE)
    assert "has no entry for the new `gate`" in found.message


UNPLANNED = {
    "a name that is set again": {
        "layer": "width = config.hidden_size\n        width = config.experts\n"
        "        self.gate = nn.Linear(width, config.inner_size)"
    },
    "names that stand for each other": {
        "layer": "width = size.x\n        size = width.y\n        self.gate = nn.Linear(width, config.inner_size)"
    },
    "a name of its own part": {
        "layer": "size = size.inner\n        self.gate = nn.Linear(size.hidden_size, config.inner_size)"
    },
    "a layer of other sizes, such as a router": {"layer": "self.gate = nn.Linear(config.hidden_size, config.experts)"},
    "a layer that the plan has": {"layer": "self.up = nn.Linear(config.hidden_size, config.inner_size)"},
    "a layer that is no matrix": {"layer": "self.norm = nn.LayerNorm(config.hidden_size, config.inner_size)"},
    "a plan of one's own": {"layer": GATE, "config": 'base_model_tp_plan = {"layers.*.mlp.up": "colwise"}'},
    "a class that the plan does not reach": {"layer": GATE, "holder": "dense"},
}


@pytest.mark.parametrize("given", UNPLANNED.values(), ids=UNPLANNED)
def test_no_plan_is_missed_with(given: dict[str, str], tmp_path: pathlib.Path) -> None:
    assert not lint_plan(tmp_path, **given)


def test_a_constant_with_the_name_of_a_plan_is_no_class(tmp_path: pathlib.Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "old" / "configuration_old.py").write_text(PLANNED)
    modular = tmp_path / "new" / "modular_new.py"
    modular.write_text(
        "from ..old.configuration_old import OldConfig\n\n\n"
        'base_model_tp_plan = {"layers.*.mlp.up": "colwise"}\n\n\n'
        "class NewConfig(OldConfig):\n    def mark(self):\n        return base_model_tp_plan\n"
    )
    conversion = convert(str(modular), Library(profile_settings()))
    [text] = conversion.files.values()
    assert "\nbase_model_tp_plan = " in text and not conversion.failed


def test_linear_layers_of_a_class_are_attributes_with_sizes():
    text = """\
class Layer:
    def __init__(self, config):
        self.width = config.width
        self.up = nn.Linear(self.width, out_features=config.inner)
        self.wide: int = 3
        self.other = Other(1, 2)
        self.half = nn.Linear(config.width)
        local = nn.Linear(1, 2)
"""
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.ClassDef)
    found = linear_layers(node)
    assert {name: layer.features for name, layer in found.items()} == {"up": ("config.width", "config.inner")}


@pytest.mark.parametrize("layer", ["pass", "self.gate = None", "setattr(self, 'gate', None)"])
def test_an_entry_for_a_layer_that_is_not_there(layer: str, tmp_path: pathlib.Path) -> None:
    """What a class sets, or has in a string, may be the layer."""
    config = 'base_model_tp_plan = {"mlp.up": "colwise", "mlp.gate": "colwise"}'
    found = lint_plan(tmp_path, layer, config, code="MC311")
    assert len(found) == (layer == "pass")
    assert all("has an entry `mlp.gate`, but the generated model has no such" in one.message for one in found)
