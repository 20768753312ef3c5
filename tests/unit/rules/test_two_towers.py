"""Two towers of a model from one neighbour: inherited code that would get the other tower's class is named (MC306)."""

from __future__ import annotations

import pathlib

import pytest

from modular_converter.convert.batch import Run
from modular_converter.settings.load import load_settings


LLAMA = """\
class LlamaMLP:
    n = 1


class LlamaNorm:
    e = 1


class LlamaLayer:
    def __init__(self):
        self.mlp = LlamaMLP()
        self.norm = LlamaNorm()
"""
IMPORT = "from ..llama.modeling_llama import LlamaLayer, LlamaMLP, LlamaNorm\n"


def class_of(name: str, body: str = "pass") -> str:
    parent = next(f"Llama{kind}" for kind in ("MLP", "Norm", "Layer") if name.endswith(kind))
    return f"\n\nclass {name}({parent}):\n    {body}\n"


def exchanged(root: pathlib.Path, *classes: str, neighbour: str = LLAMA, names: str = "") -> list[str]:
    own = IMPORT.replace("\n", f"{names}\n") + "".join(classes)
    for name, text in {"llama/modeling_llama.py": neighbour, "emu/modular_emu.py": own}.items():
        path = root / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    modular = root / "models/emu/modular_emu.py"
    (conversion,) = Run(load_settings(modular.parent), workers=1).convert([str(modular)])
    return [one.message for one in conversion.findings if "would use" in one.message]


VISION = (class_of("EmuVisionMLP", "n = 2"), class_of("EmuVisionLayer"))
TEXT = (class_of("EmuTextMLP", "n = 3"), class_of("EmuTextLayer"))
WRONG = "the generated `Emu{}Layer` would use `Emu{}MLP` in place of `LlamaMLP`, not `Emu{}MLP`"


@pytest.mark.parametrize(
    ("classes", "wrong"),
    [
        ((*VISION, *TEXT), [("Vision", "Text", "Vision")]),
        ((*TEXT, *VISION), [("Text", "Vision", "Text")]),
        ((*VISION, *TEXT, class_of("EmuAudioMLP", "n = 4"), class_of("EmuAudioLayer")), "two"),
        ((*VISION, TEXT[0], class_of("EmuTextLayer", "x = EmuTextMLP")), [("Vision", "Text", "Vision")]),
    ],
)
def test_the_other_towers_class_is_named(
    classes: tuple[str, ...], wrong: list[tuple[str, ...]] | str, tmp_path: pathlib.Path
) -> None:
    found = exchanged(tmp_path, *classes)
    if wrong == "two":
        assert found == [WRONG.format("Vision", "Audio", "Vision"), WRONG.format("Text", "Audio", "Text")]
    else:
        assert found == [WRONG.format(*names) for names in wrong]


@pytest.mark.parametrize(
    "classes",
    [
        VISION,  # one tower
        (*VISION, TEXT[0]),  # of the other tower only a part, which is used by nobody else
        (VISION[0], class_of("EmuVisionLayer", "def __init__(self):\n        self.mlp = EmuVisionMLP()"), *TEXT),
        (VISION[0], class_of("EmuVisionLayer", "shared = EmuTextMLP"), *TEXT),  # the author names it
    ],
)
def test_what_the_author_wants_is_not_named(classes: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    assert exchanged(tmp_path, *classes) == []


MODEL = "\n\nclass LlamaModel:\n    def __init__(self):\n        self.layer = LlamaLayer()\n"


@pytest.mark.parametrize(
    ("model", "found"),
    [("EmuTextModel", ["EmuVisionLayer"]), ("EmuVisionModel", []), ("EmuModel", []), ("EmuVisionSmallModel", [])],
)
def test_a_class_of_one_tower_in_another_is_named(model: str, found: list[str], tmp_path: pathlib.Path) -> None:
    """Where the modular file has no class of its own for that tower."""
    own = f"\n\nclass {model}(LlamaModel):\n    pass\n"
    told = exchanged(tmp_path, *VISION, own, neighbour=LLAMA + MODEL, names=", LlamaModel")
    assert [one.split("`")[3] for one in told] == found
