"""Names that mean something else in a generated file than where their code was written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modular_converter.convert.batch import Run
from modular_converter.settings.load import profile_settings


ROOT = "/nowhere/package"
LIBRARY = {
    "one.py": "def limit(x):\n    return x\n\n\nclass Base:\n    pass\n",
    "other.py": "def limit(x):\n    return 2 * x\n",
    "utils/__init__.py": "from . import numbers\nfrom ..one import limit\n",
    "utils/numbers.py": "",
}
MODULAR = """\
from ...{} import limit
from ..old.modeling_old import OldMLP, old_scale
from ..older.modeling_older import older_scale


class NewMLP(OldMLP):
    def own(self, x):
        return limit(x)
"""
USER = "class OldMLP:\n    def f(self, x):\n        return limit(x)\n"


def findings(modular: str, old: str) -> list[tuple[str, str]]:
    """The codes and messages of findings about changed meanings."""
    texts = LIBRARY | {
        "models/old/modeling_old.py": old,
        "models/older/modeling_older.py": "def older_scale(x):\n    return 3 * x\n",
        "models/new/modular_new.py": modular,
    }
    overlay = {f"{ROOT}/{path}": text for path, text in texts.items()}
    settings = replace(profile_settings(), formatter="none")
    [conversion] = Run(settings, overlay, workers=1).convert([f"{ROOT}/models/new/modular_new.py"])
    return [(one.code, one.message) for one in conversion.findings if one.rule.is_meant_by("MC320")]


@pytest.mark.parametrize(
    ("own", "neighbour", "is_one"),
    [
        ("one", "one", True),
        ("one", "other", False),
        ("one", "utils", True),
        ("utils", "one", True),
        ("utils", "other", False),
        ("nowhere", "nowhere.deep", True),  # where nothing can be followed, the last name decides
        ("/unknown.one", "/unknown.deep", True),  # and the package, which is not installed
        ("/unknown.one", "/unseen.one", False),
        ("/unknown.one", "one", False),
    ],
)
def test_a_name_of_two_modules_is_one_where_they_hand_on_one_definition(
    own: str, neighbour: str, is_one: bool
) -> None:
    old = f"from ...{neighbour} import limit\n\n\n{USER}\n\ndef old_scale(x):\n    return x\n"
    modular, old = (text.replace(".../", "") for text in (MODULAR.format(own), old))
    found = findings(modular, old)
    assert bool(found) is not is_one
    assert all("would use `limit`" in message for _, message in found)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("super().f(x)\n        return limit(x)", True),  # the parent's line is in it
        ("return limit(x)", False),  # nothing is left of the parent's
        ("return x", False),
    ],
)
def test_a_name_in_the_lines_of_both(override: str, told: bool) -> None:
    modular = f"from ...other import limit\nfrom ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    def f(self, x):\n        {override}\n"
    assert bool(findings(modular, f"from ...one import limit\n\n\n{USER}")) is told


LEFT = {
    "an alias of what is replaced": ("g = 1\ndef f(self, x):\n    return x\n\ndef use(self): return limit(1)", True),
    "a decorator": ("def d(self, x):\n    return limit(x)", True),
    "a decorator that gives way": ("@staticmethod\ndef d(x):\n    return limit(x)", False),
    "a value that gives way": ("v = limit(2)", False),
    "a value for an annotation": ("v: int\ndef use(self): return limit(1)", True),
}


@pytest.mark.parametrize(("own", "told"), LEFT.values(), ids=LEFT)
def test_what_is_left_of_the_parent_beside_an_override(own: str, told: bool) -> None:
    """A name in the lines of both, which the parent has in one member alone."""
    bodies = {
        "f": "def f(self, x):\n    return limit(x)\n\nalias = f",
        "d": "@limit\ndef d(self, x):\n    return x",
        "v": "v: int = limit(3)",
    }
    body = next(text for name, text in bodies.items() if f"def {name}(" in own or own.startswith(name))
    own, body = (text.replace("\n", "\n    ") for text in (own, body))
    modular = (
        f"from ...other import limit\nfrom ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    {own}\n"
    )
    assert bool(findings(modular, f"from ...one import limit\n\n\nclass OldMLP:\n    {body}\n")) is told


def test_decorators_and_bases_of_a_class_are_left() -> None:
    modular = (
        MODULAR.format("other")
        .replace(", old_scale", "")
        .replace("from ..older.modeling_older import older_scale\n", "")
    )
    for header in ("@limit\nclass OldMLP:", "class OldMLP(limit):"):
        assert findings(modular, f"from ...one import limit\n\n\n{header}\n    pass\n")


@pytest.mark.parametrize(
    ("used", "scale", "told"),
    [("old_scale", "x", False), ("older_scale", "x", True), ("older_scale", "3 * x", False)],
)
def test_two_imports_with_one_new_name(used: str, scale: str, told: bool) -> None:
    old = f"class OldMLP:\n    pass\n\n\ndef old_scale(x):\n    return {scale}\n"
    found = findings(MODULAR.format("one").replace("limit(x)", f"{used}(x)"), old)
    assert [message.partition("`older_scale` of")[1] != "" for _, message in found] == ([True] if told else [])


@pytest.mark.parametrize("own", ["from math import pow\n", "def pow(x):\n    return x\n"])
@pytest.mark.parametrize("override", ["g", "f"])
def test_a_name_of_python_that_both_use_and_the_modular_file_binds(own: str, override: str) -> None:
    modular = f"{own}from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    def {override}(self, x):\n        return pow(x)\n"
    found = findings(modular, "class OldMLP:\n    def f(self, x):\n        return pow(x, 2, 5)\n")
    assert bool(found) is (override == "g")  # of the parent's method nothing is left otherwise
    assert all("not of `builtins.pow`" in message for _, message in found)


LAYERS = """\
class {0}MLP:
    n = {1}


class {0}Layer:
    def __init__(self):
        self.mlp = {0}MLP()


class {0}Model:
    def __init__(self):
        self.layer = {0}Layer()


class {0}Tower:
    def __init__(self):
        self.model = {0}Model()
"""


@pytest.mark.parametrize(
    ("number", "own", "told"),
    [
        (1, "", []),
        (2, "", ["EmuLayer"]),
        (1, "class EmuMLP(LlamaMLP):\n    n = 5\n\n\n", ["EmuLayer"]),
        (1, "class EmuMLP(LlamaMLP):\n    pass\n\n\n", []),
    ],
)
def test_classes_of_two_models_are_compared_with_what_their_names_mean(number: int, own: str, told: list[str]) -> None:
    """The copy `EmuModel` of bert would get the layer of llama, whose code is that of bert's."""
    path = "/deep/models/emu/modular_emu.py"
    heirs = "".join(
        f"class Emu{name}:\n    pass\n\n\n" for name in ("Layer(LlamaLayer)", "Stack(LlamaModel)", "Tower(BertTower)")
    )
    texts = {
        "/deep/models/llama/modeling_llama.py": LAYERS.format("Llama", 1),
        "/deep/models/bert/modeling_bert.py": LAYERS.format("Bert", number),
        path: "from ..llama.modeling_llama import LlamaLayer, LlamaMLP, LlamaModel\n"
        f"from ..bert.modeling_bert import BertTower\n\n\n{own}{heirs}",
    }
    [conversion] = Run(replace(profile_settings(), formatter="none"), texts, workers=1).convert([path])
    found = [one.message.split("`")[3] for one in conversion.findings if one.code == "MC320"]
    assert found == told
