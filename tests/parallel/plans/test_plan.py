"""The plan value: printed and parsed without loss, in text and JSON; bad input is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.emit import to_library, to_torch
from modular_converter.parallel.plans.patterns import wildcard
from modular_converter.parallel.plans.pipeline_plan import PIPELINE_SCHEMA
from modular_converter.parallel.plans.plan import SCHEMA, STYLES, Plan, Rule
from modular_converter.parallel.solve.read_library import from_library


paths = st.from_regex(r"[a-z_]{1,8}(\.(\*|[a-z_0-9]{1,8})){0,3}", fullmatch=True)
rules = st.builds(
    Rule,
    paths,
    st.sampled_from(sorted(STYLES)),
    st.none() | st.integers(0, 3),
    st.lists(st.integers(1, 9), max_size=4).map(tuple),
)
attributes = st.builds(lambda path, name: f"{path}:{name}", paths, st.from_regex(r"[a-z_]{1,9}", fullmatch=True))
whole = st.tuples(paths, st.from_regex(r"[a-z]+( [a-z]+){0,4}", fullmatch=True))
plans = st.builds(
    Plan,
    st.from_regex(r"[a-z0-9_.-]{1,12}", fullmatch=True),
    st.lists(rules, max_size=5).map(tuple),
    st.lists(attributes, max_size=3).map(tuple),
    st.lists(whole, max_size=3).map(tuple),
)


@given(plans)
def test_text_and_json_lose_nothing(plan):
    assert Plan.parse(str(plan)) == plan
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "text, said",
    [
        ("plan x\nrule a.b sideways\n", "unknown style 'sideways'"),
        ("plan x\nrule a.b colwise width=3\n", "unknown option"),
        ("plan x\nlayers a.b colwise\n", "line 2"),
        ("rule a colwise\n", "begins with a line"),
        ("plan x\nattribute heads\n", "line 2: .*module pattern:name"),
        ("plan x\nrule\n", "line 2: a rule is"),
        ("plan x\nrule a colwise dim=x\n", "line 2: a: dim=x is no dimension"),
        ("plan x\nrule a colwise dim=-1\n", "line 2: a: dim=-1 is no dimension"),
    ],
)
def test_bad_text_is_named(text, said):
    with pytest.raises(PlanFormatError, match=said):
        Plan.parse(text)


RULE = {"pattern": "a", "style": "colwise"}


@pytest.mark.parametrize(
    "value, said",
    [
        ({}, r"\$: '(version|model|rules)' is a required property"),
        ({"version": 99, "model": "x", "rules": []}, r"\$.version: 1 was expected"),
        ({"version": 1, "model": "", "rules": []}, r"\$.model"),
        ({"version": 1, "model": "x", "rules": [], "layers": []}, "'layers' was unexpected"),
        ({"version": 1, "model": "x", "rules": 5}, r"\$.rules: 5 is not of type 'array'"),
        ({"version": 1, "model": "x", "rules": [5]}, r"\$.rules\[0\]"),
        ({"version": 1, "model": "x", "rules": [{"style": "colwise"}]}, "'pattern' is a required property"),
        ({"version": 1, "model": "x", "rules": [{**RULE, "pattern": 7}]}, r"\$.rules\[0\].pattern"),
        ({"version": 1, "model": "x", "rules": [{**RULE, "style": [1]}]}, r"\$.rules\[0\].style"),
        ({"version": 1, "model": "x", "rules": [{**RULE, "dim": "1"}]}, r"\$.rules\[0\].dim"),
        ({"version": 1, "model": "x", "rules": [{**RULE, "dim": -1}]}, r"\$.rules\[0\].dim"),
        ({"version": 1, "model": "x", "rules": [{**RULE, "parts": [0]}]}, r"\$.rules\[0\].parts"),
        ({"version": 1, "model": "x", "rules": [], "attributes": ["heads"]}, r"\$.attributes\[0\]"),
        ([], "not of type 'object'"),
    ],
)
def test_what_does_not_fit_the_schema_is_named_with_its_place(value, said):
    with pytest.raises(PlanFormatError, match=said):
        Plan.from_json(json.dumps(value))
    with pytest.raises(PlanFormatError, match="not JSON"):
        Plan.from_json("{")


def test_the_schemas_are_schemas_and_hold_for_what_is_written():
    from jsonschema import Draft202012Validator

    for schema in (SCHEMA, PIPELINE_SCHEMA):
        Draft202012Validator.check_schema(schema)


def test_layer_numbers_become_stars():
    assert wildcard("model.layers.11.mlp.w1") == "model.layers.*.mlp.w1"
    assert wildcard("h.0") == "h.*"


def test_library_and_torch_forms():
    plan = from_library("x", {"layers.*.up": "colwise", "layers.*.down": "rowwise"})
    assert to_library(plan) == {"layers.*.up": "colwise", "layers.*.down": "rowwise"}
    assert sorted(to_torch(plan)) == ["layers.*.down", "layers.*.up"]
    with pytest.raises(PlanFormatError, match="must shrink"):
        to_library(Plan("x", plan.rules, ("layers.*:heads",)))
