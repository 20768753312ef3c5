"""Findings at the edges: what must be said with an exact place, and what must not be said at all."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from modular_converter.convert.pipeline import convert
from modular_converter.convert.source.library import Library
from modular_converter.diagnostics import Diagnostic, Severity
from modular_converter.settings.load import profile_settings


OLD = """\
from torch import nn


class OldBase(nn.Module):
    scale = 1

    def rescale(self, x):
        return x

    def helper(self, x):
        return x


class OldPlain:
    width = 1


class OldNarrow(OldPlain):
    height = 2


class OldMLP(OldBase):
    def __init__(self, config, bias=False):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.drop: nn.Module = nn.Dropout()
        if bias:
            self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return self.drop(self.up(x))


class OldModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mlp = OldMLP(config)

    def forward(self, x):
        return self.mlp(x)
"""


def lint(folder: pathlib.Path, body: str, severity: Severity = Severity.ERROR) -> tuple[Diagnostic, ...]:
    """The findings of a modular file that imports everything from `OLD`."""
    (folder / "old").mkdir()
    (folder / "new").mkdir()
    (folder / "old" / "modeling_old.py").write_text(OLD)
    modular = folder / "new" / "modular_new.py"
    modular.write_text(
        "from torch import nn\n\n"
        "from ..old.modeling_old import OldBase, OldMLP, OldModel, OldNarrow, OldPlain\n\n\n" + body
    )
    settings = dataclasses.replace(profile_settings(), replaced_dependency=severity)
    return convert(str(modular), Library(settings)).diagnostics


SILENT = {
    "an attribute of a visible ancestor": "class NewNarrow(OldNarrow):\n    width = AttributeError()\n",
    "an attribute that an unseen base may have": "class NewMLP(OldMLP):\n    training = AttributeError()\n",
    "a call over several lines": (
        "class NewMLP(OldMLP):\n    def __init__(self, config):\n        super().__init__(\n            config,\n"
        "            bias=len([1]) > 0,\n        )\n        self.more = 1\n"
    ),
    "a call to another method that the parent inherits": (
        "class NewMLP(OldMLP):\n    def forward(self, x):\n        return super().rescale(x)\n"
    ),
    "super in a string": 'class NewMLP(OldMLP):\n    note = "x = super().forward(x)"\n',
    "a deleted attribute assigned again": (
        "class NewMLP(OldMLP):\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        del self.drop\n        self.set(nn.Identity())\n\n"
        "    def set(self, drop):\n        self.drop = drop\n"
    ),
    "a stub for a method that only others have": (
        "class NewMLP(OldMLP):\n    size = 1\n\n    def rescale(self, x):\n"
        '        raise AttributeError("no")\n\n    def forward(self, x):\n        return x\n'
    ),
    "a deleted attribute registered under its name": (
        "class NewMLP(OldMLP):\n    def __init__(self, config):\n        super().__init__(config)\n"
        '        del self.drop\n        self.register_buffer("drop", None)\n'
    ),
    "a logger that nothing uses": "logger = None\n\n\nclass NewMLP(OldMLP):\n    pass\n",
    "a changed class that is used beside the copy": (
        "class NewSpecial(OldMLP):\n    def forward(self, x):\n        return x\n\n\nclass NewModel(OldModel):\n"
        "    def __init__(self, config):\n        super().__init__(config)\n        self.extra = NewSpecial(config)\n"
    ),
    "the parent under another name, unchanged": (
        "class NewSpecial(OldMLP):\n    pass\n\n\nclass NewModel(OldModel):\n    pass\n"
    ),
    "a name in a comment of __all__": (
        'class NewMLP(OldMLP):\n    pass\n\n\n__all__ = [\n    "NewMLP",\n    # "NewOther",\n]\n'
    ),
}


@pytest.mark.parametrize("body", SILENT.values(), ids=SILENT)
def test_nothing_is_said_of(body: str, tmp_path: pathlib.Path) -> None:
    assert lint(tmp_path, body) == ()


SAID = {
    "a removal with no unseen base": (
        "class NewNarrow(OldNarrow):\n    hieght = AttributeError()\n",
        ("MC202", 7, 5, "    hieght = AttributeError()"),
    ),
    "super_kwargs without a parent": (
        "class NewThing(nn.Module):\n    def forward(self, **super_kwargs):\n        return 1\n",
        ("MC203", 7, 25, "    def forward(self, **super_kwargs):"),
    ),
    "a call that the parent only inherits": (
        "class NewMLP(OldMLP):\n    def rescale(self, x):\n        return super().rescale(x)\n",
        ("MC301", 8, 16, "        return super().rescale(x)"),
    ),
    "a call behind text that is not ASCII": (
        'class NewMLP(OldMLP):\n    def forward(self, x):\n        return ("é", super().forward(x))\n',
        ("MC302", 8, 22, '        return ("é", super().forward(x))'),
    ),
    "a second call": (
        "class NewMLP(OldMLP):\n    def forward(self, x):\n        super().forward(x)\n"
        "        return super().forward(x)\n",
        ("MC302", 9, 16, "        return super().forward(x)"),
    ),
    "a deletion within a block of the parent": (
        "class NewMLP(OldMLP):\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        del self.inner\n",
        ("MC303", 9, 13, "        del self.inner"),
    ),
    "a deletion of an attribute with the name of a local variable": (
        "class NewMLP(OldMLP):\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        del self.drop\n\n    def forward(self, x):\n        drop = self.drop\n        return drop(x)\n",
        ("MC304", 9, 13, "        del self.drop"),
    ),
    "a deletion of an attribute that a statement calls": (
        "class NewMLP(OldMLP):\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        del self.drop\n\n    def forward(self, x):\n        self.drop(x)\n",
        ("MC304", 9, 13, "        del self.drop"),
    ),
    "a call in a getter whose setter follows": (
        "class NewMLP(OldMLP):\n    @property\n    def helper(self):\n        return [super().rescale(1), super().forward(2)]"
        "\n\n    @helper.setter\n    def helper(self, x):\n        pass\n",
        ("MC302", 9, 37, "        return [super().rescale(1), super().forward(2)]"),
    ),
    "a deletion of what is annotated and read": (
        "class NewMLP(OldMLP):\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        del self.drop\n",
        ("MC304", 9, 13, "        del self.drop"),
    ),
    "a name that __all__ makes up": (
        'class NewMLP(OldMLP):\n    pass\n\n\n__all__ = ["NewMLP", "NewMPL"]\n',
        ("MC310", 10, 23, '__all__ = ["NewMLP", "NewMPL"]'),
    ),
}


@pytest.mark.parametrize(("body", "expected"), SAID.values(), ids=SAID)
def test_the_place_is_exact(body: str, expected: tuple[str, int, int, str], tmp_path: pathlib.Path) -> None:
    [found] = lint(tmp_path, body)
    assert (found.code, found.location.line, found.location.column, found.source_line) == expected


REPLACED = """\
class NewSpecial(OldMLP):
    def forward(self, x):
        return x


class NewModel(OldModel):
    pass
"""


@pytest.mark.parametrize("severity", list(Severity))
def test_a_setting_weighs_a_replaced_dependency(severity: Severity, tmp_path: pathlib.Path) -> None:
    [found] = lint(tmp_path, REPLACED, severity)
    assert (found.code, found.severity) == ("MC201", severity)
    assert "`NewModel` goes on using an untouched `NewMLP`" in found.message


def test_an_exported_class_may_be_meant_for_others(tmp_path: pathlib.Path) -> None:
    [found] = lint(tmp_path, REPLACED + '\n\n__all__ = ["NewModel", "NewSpecial"]\n')
    assert (found.code, found.severity) == ("MC201", Severity.WARNING)


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


def lint_plan(folder: pathlib.Path, layer: str, config: str = "pass", holder: str = "mlp") -> list[Diagnostic]:
    """What MC314 finds about a layer that a modular file adds to the MLP of `PLANNED_MODEL`."""
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
    found = convert(str(modular), Library(profile_settings())).diagnostics
    return [diagnostic for diagnostic in found if diagnostic.code == "MC314"]


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
