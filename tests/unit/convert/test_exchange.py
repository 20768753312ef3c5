"""Definitions exchanged in the generated files of heirs: what whole conversions give, and only where they would give no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.breaking.newer import edits_since
from modular_converter.convert.batch import Run
from modular_converter.convert.exchange import DefinitionExchange
from modular_converter.convert.schedule import Readings, required_files
from modular_converter.convert.source.library import Library
from modular_converter.settings.load import profile_settings
from tests.unit.trees import commit, fix


PARENT = """\
import torch
from torch import nn


def scaled(x):
    return x * 2


class LlamaNorm(nn.Module):
    pass


class LlamaMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.size, 4)
        self.norm = LlamaNorm()
        self.spare = nn.Identity()

    def forward(self, x, size: int = 1):
        return self.norm(self.up(scaled(x)))
"""
HEIR = """\
from ..llama.modeling_llama import LlamaMLP


class GemmaMLP(LlamaMLP):
{body}


__all__ = ["GemmaMLP"]
"""
PLAIN = "    pass"
OWN_NORM = "    def __init__(self, config):\n        super().__init__(config)\n        self.norm = torch.nn.Tanh()"
WITHOUT = "    def __init__(self, config):\n        super().__init__(config)\n        del self.spare"
OTHER = PARENT.replace("Llama", "Bert")
OF_TWO = """\
    pass


class GemmaHead(BertMLP):
    pass"""
CASES = {
    "a layer renamed": (PLAIN, "self.up", "self.upper", True),
    "a parameter added": (PLAIN, "size: int = 1", "size: int = 1, more: float = 2.0", True),
    "a function that is copied": (PLAIN, "x * 2", "x * 3", True),
    "a layer that the heir has as another": (OWN_NORM, "self.up", "self.upper", True),
    "a layer that the heir has as another, which it does not replace now": (
        OWN_NORM,
        "self.norm",
        "self.norms",
        False,
    ),
    "a layer that the heir removes": (WITHOUT, "self.spare", "self.spares", False),
    "a name of the module": (PLAIN, "scaled(x)", "torch.relu(x)", False),
    "a base": (PLAIN, "class LlamaMLP(nn.Module)", "class LlamaMLP(LlamaNorm)", False),
    "a definition of which another neighbour gives a copy, too": (OF_TWO, "x * 2", "x * 3", False),
    "a constant beside it": (PLAIN, "\n\ndef scaled", "\nSIZE = 1\n\n\ndef scaled", False),
}


@pytest.mark.parametrize("case", CASES)
def test_an_heir_is_what_its_conversion_gives(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, old, new, is_exchanged = CASES[case]
    models = tmp_path / "zoo/models"
    parent, heir, heirs_heir = (
        models / one for one in ("llama/modeling_llama.py", "gemma/modular_gemma.py", "phi/modular_phi.py")
    )
    start = "import torch\n\n" if "torch" in body else ""
    start += "from ..bert.modeling_bert import BertMLP\n" if "Bert" in body else ""
    below = HEIR.format(body=PLAIN).replace("gemma", "phi").replace("Gemma", "Phi")
    texts = {parent: PARENT, heir: start + HEIR.format(body=body), tmp_path / "zoo/__init__.py": ""}
    texts[models / "bert/modeling_bert.py"] = OTHER
    texts[heirs_heir] = below.replace("llama", "gemma").replace("Llama", "Gemma")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    commit(tmp_path, new=True)
    fix(models)
    commit(tmp_path)
    parent.write_text(PARENT.replace(old, new))
    found = set[str]()
    exchange = DefinitionExchange.conversions

    def noting(self: DefinitionExchange, paths: list[str], library: Library) -> object:
        made = exchange(self, paths, library)
        found.update(Path(path).name for path in made)
        return made

    monkeypatch.setattr(DefinitionExchange, "conversions", noting)
    given = converted([heir, heirs_heir], tmp_path / "zoo")
    monkeypatch.setattr(DefinitionExchange, "conversions", lambda self, paths, library: {})
    assert given == converted([heir, heirs_heir], tmp_path / "zoo")
    assert ("modular_gemma.py" in found) == is_exchanged


def converted(paths: list[Path], zoo: Path) -> list[object]:
    settings = profile_settings().with_any_formatter
    library, edits = Library(settings), edits_since("HEAD", str(zoo), ())
    required = {str(path): required_files(str(path), library) for path in paths}
    readings = Readings(required, edits.read, edits.before, library)
    made = Run(settings, workers=1, stale=readings).convert(required, readings.current(required))
    return [(one.path, one.files, [str(it) for it in one.findings if it.is_error]) for one in made]
