"""The plans in the zoo equal those that `modular-plan write` writes, and hold for every class that runs with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.parallel.plans.class_settings import gathered_plan
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.solve.derive import from_library
from modular_converter.parallel.source import changes, settings_to_write
from modular_converter.parallel.tiny.build import build
from modular_converter.parallel.tiny.target import base_classes, open_file


ZOO = Path(__file__).parents[2] / "models"
QUICK = "llama/"
FILES = [
    "bert/modeling_bert.py",
    "clip/modeling_clip.py",
    "gemma/modular_gemma.py",
    "gemma_vision/modular_gemma_vision.py",
    "llama/modeling_llama.py",
    "mistral/modular_mistral.py",
    "roberta/modular_roberta.py",
]
EACH = [pytest.param(name, marks=[] if name.startswith(QUICK) else [pytest.mark.slow]) for name in FILES]


def test_every_model_of_the_zoo_is_here():
    modular = {path.parent.name for path in ZOO.glob("*/modular_*.py")}
    flat = {path.parent.name for path in ZOO.glob("*/modeling_*.py")} - modular
    assert {name.partition("/")[0] for name in FILES if "modular_" in name} == modular
    assert {name.partition("/")[0] for name in FILES if "modeling_" in name} == flat


@pytest.mark.parametrize("name", EACH)
def test_plans_are_current_and_verified(name, pool):
    """Derived again and proven on two processes, by our application and through transformers' loader."""
    file = open_file(str(ZOO / name))
    said: list[str] = []
    settings = settings_to_write(file, base_classes(file), {}, pool, said.append)
    assert settings and all(setting.entries for setting in settings)
    assert [f"{one.owner.__name__}.{one.attribute}" for one in settings if not one.is_current] == []
    assert changes(file, settings) == []
    assert not [line for line in said if "left as it is" in line]


@pytest.mark.parametrize("name", EACH)
def test_every_other_class_runs_with_what_the_library_gathers_for_it(name):
    """Towers alone, and the heads that add nothing to the plan."""
    file = open_file(str(ZOO / name))
    for model_class in sorted(set(file.classes()) - set(base_classes(file)), key=lambda one: one.__name__):
        padded = model_class.__name__.endswith("ForSequenceClassification")
        small = build(file.target(model_class), {"pad_token_id": 0} if padded else {})
        plan = from_library(model_class.__name__, gathered_plan(small.model))
        assert plan.rules, model_class
        verdict = check_model_on_threads(small.model, plan, small.inputs, 2)
        assert verdict.passed, (model_class, verdict)
