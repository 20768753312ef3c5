"""The plan value: printed and parsed without loss, in text and JSON; bad input is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.emit import to_library, to_torch
from modular_converter.parallel.plans.patterns import wildcard
from modular_converter.parallel.plans.plan import STYLES, Plan, Rule
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
        ("plan x\nattribute heads\n", "module pattern:name"),
    ],
)
def test_bad_text_is_named(text, said):
    with pytest.raises(PlanFormatError, match=said):
        Plan.parse(text)


def test_unknown_keys_of_json_are_named():
    with pytest.raises(PlanFormatError, match="unknown keys layers"):
        Plan.from_json('{"version": 1, "model": "x", "rules": [], "layers": []}')


def test_layer_numbers_become_stars():
    assert wildcard("model.layers.11.mlp.w1") == "model.layers.*.mlp.w1"
    assert wildcard("h.0") == "h.*"


def test_library_and_torch_forms():
    plan = from_library("x", {"layers.*.up": "colwise", "layers.*.down": "rowwise"})
    assert to_library(plan) == {"layers.*.up": "colwise", "layers.*.down": "rowwise"}
    assert sorted(to_torch(plan)) == ["layers.*.down", "layers.*.up"]
    with pytest.raises(PlanFormatError, match="must shrink"):
        to_library(Plan("x", plan.rules, ("layers.*:heads",)))
