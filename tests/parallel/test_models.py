"""Models of the library: derived plans pass their screen, and a mutated plan is refused with a layer named."""

import dataclasses
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from tests.parallel.mutations import mutations


pytest.importorskip("transformers")
from modular_converter.parallel.errors import BuildError, UnknownModel  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model, prove  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


MODELS = [
    *("llama", "bert", "gpt2", "t5", "mixtral", "albert", "deberta", "xlnet", "gpt_neox", "bart", "vit", "olmoe"),
    *("phi3", "deepseek_v3", "qwen3_5_text", "funnel", "reformer"),
]


QUICK = ("llama", "t5", "vit")
EACH = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in MODELS]


@pytest.fixture(scope="module", params=EACH)
def derived(request):
    return derive_model(target_of(request.param))


def test_derived_plan_passes(derived):
    assert derived.verdict.passed, derived.verdict
    assert derived.plan.rules


@settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_random_mutation_is_refused_with_the_layer_named(derived, data):
    what, plan = data.draw(st.sampled_from(mutations(derived.plan)))
    verdict = check_model_on_threads(derived.small.model, plan, derived.small.inputs, 2)
    assert not verdict.passed, what
    assert verdict.layer


def test_the_same_plan_each_time():
    assert derive_model(target_of("t5")).plan == derive_model(target_of("t5")).plan


def test_processes_and_the_library_loader(pool):
    for name in ("gpt2", "llama"):
        found = derive_model(target_of(name))
        assert prove(found, found.plan, pool).passed
    wrong = dataclasses.replace(found.plan, rules=found.plan.rules[:-1])
    assert not prove(found, wrong, pool).passed


def test_unknown_types_list_the_nearest():
    with pytest.raises(UnknownModel, match="did you mean.*llama"):
        target_of("lama")


def test_a_model_that_cannot_be_built_says_why():
    with pytest.raises(BuildError, match="cannot be built small"):
        build(target_of("llama"), {"num_attention_heads": 7})


def test_help_and_solver_import_no_torch():
    code = (
        "import sys, modular_converter.parallel.cli, modular_converter.parallel.solve.derive;"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
