"""Findings at the edges: what must be said with an exact place, and what must not be said at all."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from modular_converter.convert.batch import Run
from modular_converter.findings import Finding, Severity
from modular_converter.settings.load import profile_settings


OLD = """\
from functools import partial

from torch import nn


class OldBase(nn.Module):
    scale = 1

    def rescale(self, x):
        return x

    def helper(self, x):
        return x


class OldPlain:
    width = partial(max, 1)

    async def load(self, x):
        return x


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


class OldEmbed(nn.Embedding):
    def forward(self, x):
        return x


class OldModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mlp = OldMLP(config)

    def forward(self, x):
        return self.mlp(x)
"""


def lint(folder: pathlib.Path, body: str, severity: Severity = Severity.ERROR) -> tuple[Finding, ...]:
    """The findings of a modular file that imports everything from `OLD`."""
    (folder / "old").mkdir()
    (folder / "new").mkdir()
    (folder / "old" / "modeling_old.py").write_text(OLD)
    modular = folder / "new" / "modular_new.py"
    modular.write_text(
        "from torch import nn\n\n"
        "from ..old.modeling_old import OldBase, OldEmbed, OldMLP, OldModel, OldNarrow, OldPlain\n\n\n" + body
    )
    settings = dataclasses.replace(profile_settings(), replaced_dependency=severity)
    (conversion,) = Run(settings, workers=1).convert([str(modular)])  # with the examination of the generated text
    return conversion.findings


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
    "an awaited call": "class NewPlain(OldPlain):\n    async def load(self, x):\n        return await super().load(x)\n",
    "a call that skips a class, of what only the bases have": (
        "class NewMLP(OldMLP):\n    pass\n\n\nclass NewMore(NewMLP):\n    def helper(self, x):\n"
        "        return super(NewMLP, self).helper(x)\n"
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
    "a deletion of what the parent sets in a block, which stays": (
        "class NewMLP(OldMLP):\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        del self.inner\n"
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
        'class NewEmbed(OldEmbed):\n    def forward(self, x):\n        return ("é", super().forward(x))\n',
        ("MC302", 8, 22, '        return ("é", super().forward(x))'),
    ),
    "a call of an attribute of the parent": (
        "class NewPlain(OldPlain):\n    def area(self, x):\n        return super().width(x)\n",
        ("MC302", 8, 16, "        return super().width(x)"),
    ),
    "a call of an attribute of the parent that is overridden": (
        "class NewPlain(OldPlain):\n    def width(self, x):\n        return super().width(x)\n",
        ("MC301", 8, 16, "        return super().width(x)"),
    ),
    "a call that skips another class": (
        "class NewMLP(OldMLP):\n    pass\n\n\nclass NewMore(NewMLP):\n    def forward(self, x):\n"
        "        return super(NewMLP, self).forward(x)\n",
        ("MC302", 12, 16, "        return super(NewMLP, self).forward(x)"),
    ),
    "a second call": (
        "class NewEmbed(OldEmbed):\n    def forward(self, x):\n        super().forward(x)\n"
        "        return super().forward(x)\n",
        ("MC302", 9, 16, "        return super().forward(x)"),
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
        "class NewEmbed(OldEmbed):\n    @property\n    def helper(self):\n        return [super().rescale(1), super().forward(2)]"
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
    "a class in __all__ that is only inherited from": (
        'class NewMLP(OldMLP):\n    pass\n\n\n__all__ = ["NewMLP", "OldMLP"]\n',
        ("MC310", 10, 23, '__all__ = ["NewMLP", "OldMLP"]'),
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
