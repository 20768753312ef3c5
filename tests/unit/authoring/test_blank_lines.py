"""The empty lines below the licence of several generated files follow from the imports of one modular file."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.authoring.flat_model import read_flat_model
from modular_converter.authoring.library_index import read_index
from modular_converter.authoring.modularize import modularize
from modular_converter.authoring.proof import gap_of
from modular_converter.convert.batch import Run
from modular_converter.convert.source.library import Library
from modular_converter.settings.load import load_settings


LICENCE = "# Copyright 2021 New.\n"
IMPORTS = """\
import math

import numpy as np
import torch
from hub import strict


"""
CLASSES = """\
@strict
class NewConfig:
    size = 3


class NewModel:
    def forward(self, x):
        return math.sqrt(torch.ones(x))
"""
ARRAYS = "\n\nclass NewProcessor:\n    def __call__(self, x):\n        return np.ones(x)\n"
TORCH = "\n\nclass NewProcessor:\n    def __call__(self, x):\n        return torch.ones(x)\n"


@pytest.mark.parametrize(
    ("header", "classes", "gaps"),
    [
        ("\n", CLASSES, {"configuration": 2, "modeling": 2}),
        ('\n"""A model."""\n\n', CLASSES, {"configuration": 2, "modeling": 3}),
        ('"""A model."""\n\n', CLASSES, {"configuration": 1, "modeling": 2}),
        ("\n", CLASSES + ARRAYS, {"configuration": 2, "modeling": 2, "processing": 3}),
        ("", CLASSES + ARRAYS, {"configuration": 1, "modeling": 1, "processing": 2}),
        ("", CLASSES.replace("math.sqrt", "") + TORCH, {"configuration": 1, "modeling": 1, "processing": 1}),
        ('"""A model."""\n\n', CLASSES.replace("math.sqrt", "") + TORCH, {"configuration": 1, "modeling": 1}),
    ],
)
def test_different_gaps_come_back(header: str, classes: str, gaps: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    modular = tmp_path / "models" / "new" / "modular_new.py"
    modular.parent.mkdir(parents=True)
    library = Library(load_settings(str(modular.parent)))
    unused = IMPORTS.replace("as np", "as np  # noqa: F401").replace("import math\n", "import math  # noqa: F401\n")
    text = LICENCE + header + unused + classes
    (conversion,) = Run(library.settings, {str(modular): text}, workers=1).convert([str(modular)])
    for path, generated in conversion.files.items():
        Path(path).write_text(generated)
    flat = read_flat_model(str(modular.parent), "new", library)
    found = {one.kind: gap_of(one.module) for one in flat.files}
    assert {kind: found[kind] for kind in gaps} == gaps
    result = modularize(flat, read_index(str(modular.parent.parent), library, cached=False), library)
    assert result.proof is not None and result.proof.conversion.files == conversion.files


def test_an_import_line_stays_broken_for_a_name_that_was_removed(tmp_path: Path) -> None:
    """As muse_glimmer's: with the test of a conditional import the line was too long; the import was not needed there."""
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    modular = tmp_path / "models/new/modular_new.py"
    modular.parent.mkdir(parents=True)
    library = Library(load_settings(str(modular.parent)))
    names = ", ".join(f"name_of_a_helper_{number}" for number in range(5))
    human = (
        f"{LICENCE}import torch\n\nfrom ...utils import is_torch_available, {names}\n\n\nif is_torch_available():\n"
    )
    human += f"    import torch\n\n\nclass NewModel:\n    parts = (torch, {names})\n"
    (conversion,) = Run(library.settings, {str(modular): human}, workers=1).convert([str(modular)])
    ((path, generated),) = conversion.files.items()
    assert "from ...utils import (\n" in generated and "is_torch_available" not in generated
    Path(path).write_text(generated)
    flat = read_flat_model(str(modular.parent), "new", library)
    result = modularize(flat, read_index(str(modular.parent.parent), library, cached=False), library)
    assert result.proof is not None and result.proof.conversion.files == conversion.files


def test_conditional_imports_stand_as_far_apart_as_in_one_of_the_parents(tmp_path: Path) -> None:
    """As grounding_dino's: two parents have the class, and their files differ in an empty line between two imports."""
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    models = tmp_path / "models"
    head = "# Copyright {}.\nfrom utils import is_a, is_b\n\n\nif is_a():\n    import torch\n{}if is_b():\n    import numpy\n"
    body = "\n\nclass {}Model:\n    def forward(self, x):\n        return torch.ones(numpy.ones(x))\n"
    body += "".join(f"\n    def step_{number}(self, x):\n        return x + {number}\n" for number in range(4))
    for name, year, gap in (("old", 2020, ""), ("third", 2021, "\n")):
        (models / name).mkdir(parents=True)
        text = head.format(year, gap) + body.format(name.capitalize())
        (models / name / f"modeling_{name}.py").write_text(text)
    modular = models / "new/modular_new.py"
    modular.parent.mkdir()
    library = Library(load_settings(str(models)))
    for parent in ("Old", "Third"):
        human = f"from ..{parent.lower()}.modeling_{parent.lower()} import {parent}Model\n\n\n"
        human += f"class NewModel({parent}Model):\n    pass\n"
        (conversion,) = Run(library.settings, {str(modular): human}, workers=1).convert([str(modular)])
        (generated,) = conversion.files.items()
        Path(generated[0]).write_text(generated[1])
        own = Library(library.settings)
        flat = read_flat_model(str(modular.parent), "new", own)
        result = modularize(flat, read_index(str(models), own, cached=False), own)
        assert result.proof is not None and result.proof.conversion.files == conversion.files
        assert f"class NewModel({parent}Model)" in result.proof.text
