"""Pipeline plans as values: text, JSON and transformers' form without loss; faults are named."""

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.pipeline_plan import Entry, PipelinePlan, library_text


NAMES = st.lists(st.from_regex(r"[A-Za-z_][a-z0-9_]{0,5}", fullmatch=True), max_size=3).map(tuple)
MODULES = st.from_regex(r"[a-z0-9_]{1,5}(\.[a-z0-9_]{1,5}){0,2}", fullmatch=True)
PLANS = st.lists(st.builds(Entry, MODULES, NAMES, NAMES), max_size=4, unique_by=lambda one: one.module).map(
    lambda entries: PipelinePlan("x", tuple(entries))
)
PLAN = PipelinePlan("x", (Entry("embed", ("input_ids",), ("hidden",)), Entry("layers", ("hidden", "mask"), ())))
TEXT = "pipeline x\nmodule embed input_ids -> hidden\nmodule layers hidden,mask -> -\n"


@given(PLANS)
def test_text_json_and_the_library_form_lose_nothing(plan):
    assert PipelinePlan.parse(str(plan)) == plan == PipelinePlan.from_json(plan.to_json())
    assert PipelinePlan.from_library("x", plan.to_library()) == plan
    assert ast.literal_eval(library_text(plan)) == plan.to_library()


def test_the_text_has_a_line_for_each_module_and_blank_ones_do_not_count():
    assert str(PLAN) == TEXT and PipelinePlan.parse(TEXT.replace("\n", "\n\n ")) == PLAN
    assert PLAN.to_library() == {"embed": (["input_ids"], ["hidden"]), "layers": (["hidden", "mask"], [])}
    assert library_text(PLAN).splitlines()[1] == '    "embed": (["input_ids"], ["hidden"]),'
    assert json.loads(PLAN.to_json())["kind"] == "pipeline" and json.loads(PLAN.to_json())["version"] == 1


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "begins with a line `pipeline MODEL`"),
        ("module a x -> y\n", "begins with a line `pipeline MODEL`"),
        ("pipeline x\nstage a x -> y\n", "line 2: unknown word 'stage'; known: pipeline, module"),
        ("pipeline x\nmodule a x y\n", r"line 2: `module PATH inputs -> outputs` expected, not 'a x y'"),
        ("pipeline x\nmodule a x = y\n", "line 2: `module PATH"),
        ("pipeline x\n\nmodule a x -> y z\n", "line 3: `module PATH"),
        ("pipeline x\nmodule a..b x -> y\n", "line 2: a module path expected, not 'a..b'"),
        ("pipeline x\nmodule a x,,y -> y\n", r"line 2: a: a list of names expected, not \('x', '', 'y'\)"),
        ("pipeline x\nmodule a x -> 1y\n", r"line 2: a: a list of names expected, not \('1y',\)"),
    ],
)
def test_what_is_no_text_of_a_plan_is_named(text, said):
    with pytest.raises(PlanFormatError, match=said):
        PipelinePlan.parse(text)


def entry(**changes):
    return {"module": "a", "inputs": ["x"], "outputs": ["y"]} | changes


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"version": 2}, r"\$.version: 1 was expected"),
        ({"kind": "tensor"}, r"\$.kind: 'pipeline' was expected"),
        ({"model": ""}, r"\$.model"),
        ({"more": 1}, "'more' was unexpected"),
        ({"modules": [entry(more=1)]}, "'more' was unexpected"),
        ({"modules": [{"module": "a", "inputs": []}]}, "'outputs' is a required property"),
        ({"modules": [entry(module=3)]}, r"\$.modules\[0\].module: 3 is not of type 'string'"),
        ({"modules": [entry(module="a b")]}, "a module path expected, not 'a b'"),
        ({"modules": [entry(inputs="x")]}, r"\$.modules\[0\].inputs: 'x' is not of type 'array'"),
        ({"modules": [entry(outputs=["1"])]}, r"\$.modules\[0\].outputs\[0\]"),
        ({"modules": {}}, r"\$.modules"),
    ],
)
def test_what_does_not_fit_the_schema_is_named(changes, said):
    value = json.loads(PLAN.to_json())
    assert PipelinePlan.from_json(json.dumps(value)) == PLAN
    with pytest.raises(PlanFormatError, match=said):
        PipelinePlan.from_json(json.dumps(value | changes))


@pytest.mark.parametrize(
    "sides, said",
    [
        ((["x"],), r"a: \(input names, output names\) expected"),
        ((["x"], ["y"], ["z"]), r"a: \(input names, output names\) expected"),
        ("xy", r"a: \(input names, output names\) expected, not 'xy'"),
        (("x", "y"), "a: a list of names expected, not 'x'"),
        ((["x"], [1]), r"a: a list of names expected, not \[1\]"),
    ],
)
def test_what_is_no_plan_of_the_library_is_named(sides, said):
    assert PipelinePlan.from_library("x", {"a": (["x"], ("y",))}).entries == (Entry("a", ("x",), ("y",)),)
    with pytest.raises(PlanFormatError, match=said):
        PipelinePlan.from_library("x", {"a": sides})
    with pytest.raises(PlanFormatError, match="a module path expected, not 5"):
        PipelinePlan.from_library("x", {5: (["x"], ["y"])})
