"""Faults are told at the place in the modular file that they come from, with what its author has to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.convert.batch import Run
from modular_converter.convert.examine.faults import place_in_modular
from modular_converter.findings import Conversion, Origin, Severity
from modular_converter.settings.load import profile_settings


NEIGHBOUR = """\
from torch import nn


def scale(x):
    return x * factor


class OldMLP(nn.Module):
    def forward(self, x, layer):
        return self.up(x)


class OldTower(nn.Module):
    def forward(self, x):
        return scale(x)
"""


def convert(folder: Path, modular: str, neighbour: str = NEIGHBOUR, **changes: str) -> Conversion:
    from dataclasses import replace

    for name, text in (("old/modeling_old.py", neighbour), ("new/modular_new.py", modular)):
        path = folder / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    [conversion] = Run(replace(profile_settings(), **changes)).convert([str(folder / "models/new/modular_new.py")])
    return conversion


HEAD = "from ..old.modeling_old import OldMLP, OldTower\n\n\n"
CASES = {
    "a parameter of the parent": (
        HEAD + "class NewMLP(OldMLP):\n    def forward(self, x):\n        return layer(x)\n",
        (6, 16, "MC313", "It is a parameter of the parent's `forward`"),
    ),
    "a parent that is not imported": (
        "from ..old.modeling_old import OldTower\n\n\nclass NewMLP(OldMLP):\n    pass\n",
        (4, 14, "MC313", "Import it: `from ..old.modeling_old import OldMLP`."),
    ),
    "a misspelt parent that is imported": (
        HEAD + "class NewMLP(OldMPL):\n    pass\n",
        (4, 14, "MC313", "Did you mean `OldMLP`?"),
    ),
    "defined further down": (
        HEAD + "class NewMLP(OldMLP):\n    def forward(self, x: NewZoo):\n        return x\n\n\nclass NewZoo: ...\n",
        (5, 26, "MC313", 'If it is an annotation, write `"NewZoo"` in quotes; otherwise define it above its use.'),
    ),
    "imported from where it is not": (
        "from ..old.modeling_old import OldMLP, scael\n\n\nclass NewMLP(OldMLP):\n    def forward(self, x, layer):\n"
        "        return scael(x)\n",
        (6, 16, "MC313", "Did you mean `scale`? `..old.modeling_old` has no `scael`."),
    ),
    "super_kwargs as a name": (
        HEAD + "class NewMLP(OldMLP):\n    def forward(self, **super_kwargs):\n        return super_kwargs['x']\n",
        (5, 25, "MC313", "The parent's parameters take the place of `**super_kwargs`"),
    ),
    "in what comes along": (
        HEAD + "class NewTower(OldTower):\n    pass\n",
        (1, 12, "MC313", "Import or define `factor` in the modular file."),
    ),
    "a misspelt name": (
        HEAD + "class NewMLP(OldMLP):\n    def forward(self, x, layer):\n        return NewLMP\n",
        (6, 16, "MC313", "Did you mean `NewMLP`?"),
    ),
}


@pytest.mark.parametrize(
    ("origin", "word", "line"),
    [
        (Origin("m.py", 4, "NewA", "merged"), "y", 5),
        (Origin("m.py", 4, "NewA", "merged"), "z", 4),  # of the next class: the class itself is meant
        (Origin("m.py", 4, "NewA", "merged"), "", 4),
        (Origin("old/modeling_old.py", 9, "NewB", "copied"), "y", 1),
        (Origin("old/modeling_unseen.py", 9, "NewB", "copied"), "y", None),
        (None, "z", 9),
        (None, "x, y", None),
    ],
)
def test_the_place_in_the_modular_file(origin: Origin | None, word: str, line: int | None) -> None:
    text = "from ..old.modeling_old import OldA\n\n\nclass NewA(OldA):\n    y = 1\n\n\nclass NewB:\n    z = 2\n"
    found = place_in_modular("m.py", text, origin, word)
    assert (found.line if found.end_line else None) == line


@pytest.mark.parametrize("formatter", ["ruff", "black", "none"])
@pytest.mark.parametrize(("modular", "expected"), CASES.values(), ids=CASES)
def test_place_and_cure(tmp_path, modular, expected, formatter):
    conversion = convert(tmp_path, modular, formatter=formatter)
    assert conversion.files == {} and conversion.failed
    [finding] = conversion.findings
    place = finding.location
    assert place.path.endswith("modular_new.py")
    assert (place.line, place.column, finding.code) == expected[:3]
    assert expected[3] in finding.help
    assert finding.source_line == modular.splitlines()[place.line - 1]


GUARDED = """\
import importlib.util

OLD_HAS = importlib.util.find_spec("json") is not None
if OLD_HAS:
    import json


class OldMLP:
    def forward(self, x):
        return json.dumps(x)
"""


@pytest.mark.parametrize("formatter", ["ruff", "black", "none"])
def test_an_import_of_a_neighbour_under_a_condition_that_is_defined_there(tmp_path, formatter):
    modular = "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    pass\n"
    for head in ("", "import json\n", "try:\n    import json\nexcept ImportError:\n    pass\n"):
        found = convert(tmp_path, head + modular, GUARDED, formatter=formatter)
        [text] = found.files.values()
        assert not found.findings and text.index("NEW_HAS = ") < text.index("if NEW_HAS:\n    import json\n")


WRONG = {  # texts that parse and do not compile
    "two parameters": "def forward(self, x, x):\n        return x",
    "a parameter that is not local": "def forward(self, x):\n        nonlocal x\n        return x",
    "outside of a loop": "def forward(self, x):\n        break",
    "two keywords": "def forward(self, x):\n        return dict(x=1, x=2)",
}


@pytest.mark.parametrize("formatter", ["ruff", "none"])
@pytest.mark.parametrize("method", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("in_neighbour", [False, True])
def test_a_file_that_parses_and_does_not_compile_is_named_itself(tmp_path, method, in_neighbour, formatter):
    head = "from torch import nn\n\n\n"
    wrong, right = f"    {method}\n", "    def forward(self, y):\n        return y\n"
    old = f"{head}class OldMLP(nn.Module):\n{wrong if in_neighbour else right}"
    new = "    def prepare(self, y):\n        return OldTower\n" if in_neighbour else wrong
    modular = f"from ..old.modeling_old import OldMLP\n\n\nOldTower = 1\n\n\nclass NewMLP(OldMLP):\n{new}"
    conversion = convert(tmp_path, modular, old, formatter=formatter)
    assert conversion.files == {} and conversion.failed
    [finding] = [one for one in conversion.findings if one.severity is Severity.ERROR]
    assert finding.code == "MC101"
    assert Path(finding.location.path).name == ("modeling_old.py" if in_neighbour else "modular_new.py")
    with pytest.raises(SyntaxError) as python:
        compile(Path(finding.location.path).read_text(), "", "exec")
    assert (finding.location.line, finding.location.column) == (python.value.lineno, python.value.offset)
    assert ("modular_new.py" in finding.message) == in_neighbour


def test_what_is_on_disk_already_is_not_parsed_again(tmp_path, monkeypatch):
    modular = HEAD + "class NewMLP(OldMLP):\n    pass\n"
    conversion = convert(tmp_path, modular)
    for path, text in conversion.files.items():
        Path(path).write_text(text)
    monkeypatch.setattr("modular_converter.convert.examine.report.find_faults", None)
    assert convert(tmp_path, modular).files == conversion.files
    with pytest.raises(TypeError):
        convert(tmp_path, modular + "\n\nclass NewHead(OldMLP):\n    pass\n")


OTHER = """\
import logging

from torch import nn


FACTOR = 3.0


def scale(x):
    return x / 1000


class OtherNorm(nn.Module):
    eps = 1e-2


class OtherHead(nn.Module):
    def forward(self, x):
        return FACTOR * scale(OtherNorm()(x))

    def warn(self):
        logging.warning("x")
"""
FIRST = """\
from torch import nn

from ...utils import logging


def scale(x):
    return x * 2


class OldNorm(nn.Module):
    eps = 1e-6


class OldMLP(nn.Module):
    def forward(self, x):
        logging.warning("x")
        return scale(OldNorm()(x))
"""
TWO = "from ..old.modeling_old import OldMLP\nfrom ..other.modeling_other import OtherHead\n\n\n"
BOTH = "class NewMLP(OldMLP):\n    pass\n\n\nclass NewHead(OtherHead):\n    pass\n"


def changes(tmp_path, modular, first=FIRST, other=OTHER):
    (tmp_path / "models/other").mkdir(parents=True)
    (tmp_path / "models/other/modeling_other.py").write_text(other)
    conversion = convert(tmp_path, modular, neighbour=first)
    assert not conversion.failed
    return [one for one in conversion.findings if one.rule.is_meant_by("MC320")]


def test_two_neighbours_that_give_one_name_two_meanings(tmp_path):
    found = changes(tmp_path, TWO + BOTH)
    assert sorted(one.message.split("`")[3] for one in found) == ["NewNorm", "logging", "scale"]
    assert {one.location.line for one in found} == {9}  # the class that gets what it was not written for


@pytest.mark.parametrize(
    "other",
    [
        OTHER.replace("x / 1000", "x * 2")
        .replace("1e-2", "1e-6")
        .replace("import logging", "from ...utils import logging"),
        """from torch import nn\n\n\nclass OtherHead(nn.Module):\n    def forward(self, x, scale=1):\n        return self.scale(x, scale=scale)\n""",
    ],
    ids=["the same code", "attributes, parameters and keywords"],
)
def test_names_that_mean_the_same_are_no_finding(tmp_path, other):
    assert changes(tmp_path, TWO + BOTH, other=other) == []


def test_other_prefixes_keep_classes_apart(tmp_path):
    modular = TWO + BOTH.replace("NewHead", "NewTextHead")
    assert sorted(one.message.split("`")[3] for one in changes(tmp_path, modular)) == ["logging", "scale"]


def test_a_constant_of_the_modular_file_that_gives_way(tmp_path):
    modular = TWO + "FACTOR = 8.0\n\n\n" + BOTH.replace("NewHead", "NewTextHead")
    found = changes(tmp_path, modular, first=OTHER.replace("Other", "Old").replace("OldHead", "OldMLP"))
    assert [one.message for one in found if "is replaced by" in one.message][0].startswith(
        "`FACTOR` of the modular file"
    )


def test_what_the_modular_file_writes_itself_is_meant_to_replace(tmp_path):
    modular = TWO + "def scale(x):\n    return x\n\n\n" + BOTH.replace("NewHead", "NewTextHead")
    assert [one.message.split("`")[3] for one in changes(tmp_path, modular)] == ["logging"]


def test_parent_in_modular_file_of_other_model(tmp_path: Path) -> None:
    """A modular file is no part of the library: a class of it has to come from the generated file."""
    base = tmp_path / "models" / "older" / "modular_older.py"
    base.parent.mkdir(parents=True)
    base.write_text("class OlderMLP:\n    pass\n")
    modular = "from ..older.modular_older import OlderMLP\n\n\nclass NewMLP(OlderMLP):\n    pass\n"
    [finding] = convert(tmp_path, modular).findings
    assert (finding.code, finding.location.line, finding.location.column) == ("MC504", 4, 14)
