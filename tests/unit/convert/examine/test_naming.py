"""The cure for two neighbours whose parts get one name: names for the heirs of the one that loses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modular_converter.convert.batch import Run
from modular_converter.settings.load import profile_settings


ROOT = "/nowhere/package/models"
NEIGHBOUR = "class {0}Part:\n    size = {2}\n\n\nclass {0}{1}:\n    def f(self):\n        return {0}Part.size\n"
TOWER = "from ..older.modeling_older import OlderTower\n\n\nclass NewTower(OlderTower):\n    pass\n\n\n"
MLP = "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    pass\n\n\n"


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
    overlay = {f"{ROOT}/{path}": text for path, text in texts.items()}
    settings = replace(profile_settings(), formatter="none")
    [conversion] = Run(settings, overlay, workers=1).convert([f"{ROOT}/new/modular_new.py"])
    [finding] = conversion.findings
    assert finding.code == "MC320" and cure in finding.help
