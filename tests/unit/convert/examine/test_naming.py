"""Names after renaming: the cure for two neighbours whose parts get one name, and the name of the model in quotes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from modular_converter.convert.batch import Run
from modular_converter.findings import Finding
from modular_converter.settings.load import profile_settings


ROOT = "/nowhere/package/models"
NEIGHBOUR = "class {0}Part:\n    size = {2}\n\n\nclass {0}{1}:\n    def f(self):\n        return {0}Part.size\n"
TOWER = "from ..older.modeling_older import OlderTower\n\n\nclass NewTower(OlderTower):\n    pass\n\n\n"
MLP = "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    pass\n\n\n"


def findings(texts: dict[str, str]) -> Sequence[Finding]:
    overlay = {os.path.normpath(f"{ROOT}/{path}"): text for path, text in texts.items()}
    settings = replace(profile_settings(), formatter="none")
    [conversion] = Run(settings, overlay, workers=1).convert([f"{ROOT}/new/modular_new.py"])
    return conversion.findings


@pytest.mark.parametrize(
    ("modular", "cure"),
    [(MLP + TOWER, "class NewOlderTower(OlderTower)"), (TOWER + MLP, "class NewOldMLP(OldMLP)")],
)
def test_the_parent_in_the_cure_is_of_the_neighbour_that_loses(modular: str, cure: str) -> None:
    texts = {
        "old/modeling_old.py": NEIGHBOUR.format("Old", "MLP", 1),
        "older/modeling_older.py": NEIGHBOUR.format("Older", "Tower", 2),
        "new/modular_new.py": modular,
    }
    [finding] = findings(texts)
    assert finding.code == "MC320" and cure in finding.help


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ("    kind = 'old'\n\n    def f(self):\n        return LOADERS[self.kind]\n", []),
        ("    def f(self):\n        return LOADERS['old']\n", ["MC328"]),
    ],
    ids=["the value of an attribute", "a key"],
)
def test_the_model_in_quotes_is_a_word_of_other_code_but_for_the_value_of_an_attribute(
    body: str, codes: list[str]
) -> None:
    texts = {
        "../loaders.py": "LOADERS = {'old': 1}\n",
        "old/modeling_old.py": f"from ...loaders import LOADERS\n\n\nclass OldMLP:\n{body}",
        "new/modular_new.py": MLP,
    }
    assert [one.code for one in findings(texts)] == codes
