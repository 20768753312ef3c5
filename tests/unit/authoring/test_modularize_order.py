"""The search for a proof: shorter definitions, and the order of definitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modular_converter.authoring import proof as proof_module
from modular_converter.authoring.draft import Draft, How
from modular_converter.authoring.sources import Placed, inherit_from, open_source
from modular_converter.commands import run_authoring
from modular_converter.convert.batch import Run
from modular_converter.settings.load import load_settings
from tests.unit.authoring.test_modularize import library_of, modularized, opened


def test_a_definition_may_become_short_after_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As hubert's convolutions: the first may come along only when the second does, so one pass is not enough."""

    def shortest(name: str, start: Any, found: Any, settings: Any) -> Any:
        how = {**found.draft.how, name: How.ALONG}
        holds = name == "second" or found.draft.how["second"] is How.ALONG
        return _proof(how) if holds else found

    def _proof(how: dict[str, How]) -> Any:
        return SimpleNamespace(draft=SimpleNamespace(how=how), lines=list(how.values()).count(How.HEIR))

    monkeypatch.setattr(proof_module, "_shortest", shortest)
    short, long = (dict.fromkeys(("first", "second"), how) for how in (How.ALONG, How.HEIR))
    found = proof_module._shortened(["first", "second"], SimpleNamespace(how=short), _proof(long), None)  # type: ignore[arg-type]
    assert found.draft.how == short


def test_two_heirs_together_give_an_order_that_neither_gives_alone(tmp_path: Path) -> None:
    """As edgetam's block stands above what it uses: one more heir alone would not do, and nothing is written out."""
    body = "    def __init__(self, config):\n        super().__init__()\n        self.inner = {}\n"
    classes = (("OldFeed", "nn.Linear(2, 2)"), ("OldBlock", "OldFeed(config)"), ("OldModel", "OldBlock(config)"))
    old = "from torch import nn\n" + "".join(
        f"\n\nclass {name}(nn.Module):\n{body.format(inner)}" for name, inner in classes
    )
    models = library_of(tmp_path, old=old)
    human = "from ..old.modeling_old import OldBlock, OldFeed, OldModel\n" + "".join(
        f"\n\nclass {name.replace('Old', 'New')}({name}):\n    pass\n" for name in ("OldBlock", "OldFeed", "OldModel")
    )
    modular = models / "new" / "modular_new.py"
    modular.parent.mkdir()
    (conversion,) = Run(load_settings(str(models)), {str(modular): human}, workers=1).convert([str(modular)])
    (models / "new" / "modeling_new.py").write_text(conversion.files[str(models / "new" / "modeling_new.py")])
    result = modularized(models, "new")
    assert result.proof is not None and result.proof.round_trips
    assert result.proof.text.rstrip() == human.rstrip()


def test_a_generated_file_may_come_back_with_other_line_breaks(tmp_path: Path) -> None:
    """As deformable_detr's: imports stand in broken lines, where a name that was removed had made them long."""
    old = "from torch import nn\n\n\nclass OldFeed(nn.Linear):\n    pass\n"
    models = library_of(tmp_path, old=old)
    modular = models / "new" / "modular_new.py"
    modular.parent.mkdir()
    human = "from ..old.modeling_old import OldFeed\n\n\nclass NewFeed(OldFeed):\n    pass\n"
    (conversion,) = Run(load_settings(str(models)), {str(modular): human}, workers=1).convert([str(modular)])
    path = models / "new" / "modeling_new.py"
    text = conversion.files[str(path)]
    path.write_text(text.replace("import nn\n", "import (\n    nn,\n)\n"))
    result = modularized(models, "new")
    assert result.proof is not None and not result.proof.round_trips and not result.left
    assert result.proof.rewritten == {str(path): "other empty lines or line breaks between the definitions"}
    assert "modeling_new.py: other empty lines or line breaks" in run_authoring.modularized_text(result)
    path.write_text(text.replace("pass", "size = 1"))
    changed = modularized(models, "new").proof
    assert changed is None or not changed.rewritten


THREE = "from torch import nn\n" + "".join(
    f"\n\nclass Old{name}(nn.Module):\n    def run(self, x):\n        return x + {number}\n"
    for number, name in enumerate(("First", "Feed", "Last"))
)


def test_what_a_conversion_refuses_is_written_out_and_nothing_else(tmp_path: Path) -> None:
    models = library_of(tmp_path, old=THREE, new=THREE.replace("Old", "New"))
    flat, _, library = opened(models, "new")
    names = [*flat.definitions]
    old = str(models / "old/modeling_old.py")
    source = open_source(old, [(name, name.replace("New", "Old")) for name in names], flat, library)
    assert source is not None
    placed: dict[str, Placed] = {}
    for name in names:
        found = inherit_from(flat.definitions[name][1], source, name, flat, library)
        assert found is not None
        placed[name] = found
    text = "class NewFeed(OldFeed):\n    def run(self, x):\n        return unheard(x)\n"
    placed["NewFeed"] = replace(placed["NewFeed"], heir=replace(placed["NewFeed"].heir, text=text))
    found = proof_module.prove_draft(Draft(flat, dict.fromkeys(names, How.HEIR), placed, {}, {}), library)
    assert found.round_trips
    assert found.draft.how == {"NewFirst": How.HEIR, "NewFeed": How.WRITTEN, "NewLast": How.HEIR}
    (reason,) = found.reasons.items()
    assert reason[0] == "NewFeed" and "uses `unheard`, which is neither defined nor imported" in reason[1]
