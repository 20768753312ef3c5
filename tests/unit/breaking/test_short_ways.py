"""After an edit only those classes are merged, and only those models read, that it reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.breaking.facts import ModelTree
from modular_converter.breaking.run import compare_trees
from modular_converter.check.run import CheckOptions
from modular_converter.convert.inherit import build
from tests.unit.breaking.test_compare_trees import convert
from tests.unit.breaking.test_kept_comparisons import committed, compared
from tests.unit.trees import commit


HEADS = """

class LlamaGate(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(2, 2)


class LlamaScale(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.scale_proj = nn.Linear(2, 2)


"""
HEIRS = """class GemmaGate(LlamaGate):
    pass


class GemmaSmallGate(GemmaGate):
    pass


class GemmaScale(LlamaScale):
    pass


class GemmaModel(LlamaModel):
    def __init__(self, config):
        super().__init__(config)
        self.scale, self.gate = GemmaScale(config), GemmaSmallGate(config)
"""


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A committed tree in which two classes of llama have an heir each, and one of these an heir of its own."""
    zoo = committed(tmp_path / "edited")
    path, heir = zoo / "models/llama/modeling_llama.py", zoo / "models/gemma/modular_gemma.py"
    path.write_text(path.read_text().replace("\n\nclass LlamaModel", f"{HEADS}class LlamaModel", 1))
    text = heir.read_text().replace(
        "import LlamaHead, LlamaModel", "import LlamaGate, LlamaHead, LlamaModel, LlamaScale"
    )
    heir.write_text(text.replace("class GemmaModel(LlamaModel):\n    pass\n", HEIRS))
    convert(zoo)
    commit(zoo.parent)
    return zoo


def edited(zoo: Path, old: str, new: str) -> None:
    path = zoo / "models/llama/modeling_llama.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        ("gate_proj", "up_proj", ["GemmaGate"]),
        ("scale_proj", "up_proj", ["GemmaScale"]),
        ("class LlamaScale(nn.Module)", "class LlamaScale(LlamaGate)", ["GemmaScale"]),
        ("from torch import nn\n", "import math\n\nfrom torch import nn\n", []),
    ],
)
def test_only_classes_that_an_edit_reaches_are_merged(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, merged: list[str]
) -> None:
    compared(zoo, Path("HEAD"), tmp_path / "cache")
    edited(zoo, old, new)
    fresh = compared(zoo, Path("HEAD"), None)
    seen: list[str] = []
    merge = build.merge_once
    monkeypatch.setattr(
        build, "merge_once", lambda child, *others: (seen.append(child.name), merge(child, *others))[1]
    )
    assert compared(zoo, Path("HEAD"), tmp_path / "cache") == fresh
    assert seen == merged


@pytest.mark.parametrize(
    ("new", "models"),
    [
        ("class LlamaMore(nn.Module):\n    pass\n\n\nclass LlamaScale", set()),
        ("class GemmaMore(nn.Module):\n    pass\n\n\nclass LlamaScale", set()),
        ("LayerNorm = nn.Identity\n\n\nclass LlamaScale", {"llama", "gemma"}),
    ],
)
def test_a_model_that_reads_nothing_of_a_difference_is_not_read(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: str, models: set[str]
) -> None:
    compared(zoo, Path("HEAD"), tmp_path / "cache")
    edited(zoo, "class LlamaScale", new)
    fresh = compared(zoo, Path("HEAD"), None)
    seen = set[str]()
    facts = ModelTree.facts
    monkeypatch.setattr(ModelTree, "facts", lambda self, model: (seen.add(model), facts(self, model))[1])
    assert compared(zoo, Path("HEAD"), tmp_path / "cache") == fresh
    assert seen & {"llama", "gemma"} == models


def test_warnings_that_a_comparison_has_left_out_are_errors_of_a_strict_one(zoo: Path, tmp_path: Path) -> None:
    heir = zoo / "models/gemma/modular_gemma.py"
    heir.write_text(heir.read_text().replace("\n\n__all__", "\n\ndef unused():\n    return 1\n\n\n__all__"))
    commit(zoo.parent)
    edited(zoo, "gate_proj", "up_proj")
    plain = CheckOptions(root=str(zoo), workers=1, cache=str(tmp_path / "cache"))
    strict = plain._replace(strict=True)
    assert not compare_trees("HEAD", plain).incomplete
    assert compare_trees("HEAD", strict) == compare_trees("HEAD", strict._replace(cache=None))
    assert compare_trees("HEAD", strict).incomplete
