"""Which file of the new model a class of a neighbour goes into."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modular_converter.convert.batch import Run
from modular_converter.settings.load import profile_settings


ROOT = "/nowhere/package/models"
OLD = (
    "class OldVisionConfig:\n    size = 1\n\n\n"
    "class OldMLP:\n    def forward(self, x):\n        return OldVisionConfig.size * x\n"
)
HEIR = "class NewConfig(OldConfig):\n    pass\n\n\n"


@pytest.mark.parametrize("heir", [HEIR, ""])
def test_a_class_stays_in_the_kind_of_file_that_defines_it(heir: str) -> None:
    """By its name `NewVisionConfig` belongs to the configurations, but the neighbour defines it with its models."""
    imports = "from ..old.configuration_old import OldConfig\nfrom ..old.modeling_old import OldMLP\n\n\n"
    texts = {
        "old/configuration_old.py": "class OldConfig:\n    size = 2\n",
        "old/modeling_old.py": OLD,
        "new/modular_new.py": f"{imports}{heir}class NewMLP(OldMLP):\n    pass\n",
    }
    overlay = {f"{ROOT}/{path}": text for path, text in texts.items()}
    settings = replace(profile_settings(), formatter="none")
    [conversion] = Run(settings, overlay, workers=1).convert([f"{ROOT}/new/modular_new.py"])
    assert not conversion.findings
    assert conversion.files[f"{ROOT}/new/modeling_new.py"].endswith(OLD.replace("Old", "New"))
    assert len(conversion.files) == 1 + bool(heir)
