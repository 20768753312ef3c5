"""The plan value: printed and parsed without loss, in text and JSON; bad input is named."""

import contextlib
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.emit import to_library
from modular_converter.parallel.plans.pipeline_plan import PIPELINE_SCHEMA, PipelinePlan
from modular_converter.parallel.plans.plan import Plan, PlanRule, is_expert_plan, plan_schema
from modular_converter.parallel.plans.text_checks import parse_plan, placed, read_plan, shortened, shown, wildcard
from modular_converter.parallel.solve.derive import from_library
from modular_converter.parallel.styles import STYLES


PLAN = '{"version": 1, "model": "x", "rules": [{"pattern": "a", "style": "colwise", %s}]}'
paths = st.from_regex(r"[a-z_]{1,8}(\.(\*|[a-z_0-9]{1,8})){0,3}", fullmatch=True)
rules = st.builds(
    PlanRule,
    paths,
    st.sampled_from(sorted(STYLES)),
    st.none() | st.integers(0, 3),
    st.lists(st.integers(1, 9), max_size=4).map(tuple),
    st.none() | st.integers(1, 99) | st.sampled_from(["num_heads", "config.n_head*2"]),
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


names = st.text(alphabet="abz_é", min_size=1, max_size=4).filter(str.isidentifier)
blanks = st.sampled_from(["", " ", "  "])
expressions = st.recursive(
    st.integers(0, 99).map(str) | names | st.builds("{}.{}[{}]".format, names, names, st.integers(0, 9)),
    lambda inner: (
        st.builds("{}{}{}{}{}".format, inner, blanks, st.sampled_from(["+", "-", "*", "//"]), blanks, inner)
        | st.builds("({}{})".format, inner, blanks)
        | st.builds("-{}".format, inner)
    ),
    max_leaves=6,
)
texts = st.text(alphabet=st.sampled_from("ab:=.* \t\n\r\x0b\x1c\x85\u2028-[]é#"), max_size=5)
anything = st.builds(
    lambda model, rule, attribute, whole: (model, rule, attribute, whole),
    texts.filter(bool) | st.just("llama"),
    st.tuples(
        paths | texts.filter(bool),
        st.sampled_from(sorted(STYLES)),
        st.none() | st.integers(-1, 70),
        st.lists(st.integers(0, 9) | expressions | texts, max_size=3).map(tuple),
    ),
    attributes | texts,
    st.tuples(paths | texts, texts),
)


@settings(max_examples=400, deadline=None)
@given(anything)
def test_what_can_be_made_survives_text_and_json(given):
    model, rule, attribute, whole = given
    made = []
    for make in (
        lambda: Plan(model, (PlanRule(*rule),), (attribute,), (whole,)),
        lambda: Plan(model, (PlanRule(*rule),)),
        lambda: Plan("x", (), (attribute,)),
        lambda: Plan(model, (), (), (whole,)),
    ):
        with contextlib.suppress(PlanFormatError):
            made.append(make())
    for plan in made:
        assert Plan.parse(str(plan)) == plan
        assert Plan.from_json(plan.to_json()) == plan


def test_parts_are_written_without_blanks():
    rule = PlanRule("x", "colwise", None, ("a + b", "( (c) )", " 3 ", "n // (h - g)", "rest"))
    assert rule.parts == ("a+b", "c", 3, "n//(h-g)", "rest")
    assert PlanRule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    "make",
    [
        lambda: Plan("a\nrule b colwise"),
        lambda: Plan("x", (), (), (("a", "one\nrule b colwise"),)),
        lambda: Plan("x", (), (), (("a", "one\u2028two"),)),
        lambda: Plan("x", (), (), (("a b", "one"),)),
        lambda: Plan("x", (), ("a:b\nrule b colwise",)),
        lambda: PlanRule("a b", "colwise"),
        lambda: PlanRule("a" * 2000, "colwise"),
        lambda: PlanRule("a", "colwise", 64),
        lambda: PipelinePlan("a\nmodule b - -> -"),
        lambda: Plan.from_json(json.dumps({"version": 1, "model": "a\nb", "rules": []})),
        lambda: Plan.from_json(
            json.dumps({"version": 1, "model": "a", "rules": [], "whole": [{"pattern": "a", "reason": "a\rb"}]})
        ),
        lambda: PipelinePlan.from_json(json.dumps({"version": 1, "kind": "pipeline", "model": "a\nb", "modules": []})),
    ],
)
def test_what_the_text_cannot_hold_is_refused(make):
    with pytest.raises(PlanFormatError, match="write it|is not a dimension|an attribute is"):
        make()


@pytest.mark.parametrize(
    "text, said",
    [
        ("plan x\nrule a colwise dim=²\n", "line 2: a: dim=² is not a dimension"),
        (f"plan x\nrule a colwise dim={'9' * 5000}\n", "line 2: a: dim=9.* is not a dimension"),
        ("plan x\nrule a colwise parts=²:1\n", "line 2: a: '²' is not a part"),
        ("plan x\nrule a colwise parts=9:1:b[1:2]\n", "line 2: a: 'b\\[1' is not a part"),
        ("[" * 200_000, "line 1: unknown word '"),
        ("plan x\nrule a colwise " + "z" * 200_000, "line 2: a: unknown option"),
        (PLAN % '"dim": 64', r"\$.rules\[0\].dim: 64 is greater than the maximum of 63"),
        (PLAN % f'"dim": {"9" * 6000}', "a number in it is too large"),
        (PLAN % f'"dim": {"[" * 200_000}', "nested too deep"),
        (PLAN % f'"parts": ["{"(" * 100_000}n"]', "a: '.* is not a part"),
        (PLAN % f'"parts": ["{"n+" * 50_000}n"]', "a: '.* is not a part"),
        (PLAN % f'"parts": ["{"1" * 5000}"]', "a: '.* is not a part"),
        (PLAN % f'"parts": ["{"ﬃ" * 200}"]', "a: '.* is not a part"),  # three letters each in Python's normal form
        (PLAN % f'"parts": [{2**63}]', "a: 9223372036854775808 is not a part"),
        (PLAN % f'"style": "{"z" * 200_000}"', r"\$.rules\[0\].style"),
    ],
    ids=itertools.count(),
)
def test_what_is_too_large_is_named_and_not_echoed(text, said):
    with pytest.raises(PlanFormatError, match=said) as caught:
        parse_plan(text, Plan)
    assert len(str(caught.value)) < 1200


def test_what_json_takes_for_integers_are_some():
    [rule] = parse_plan(PLAN % '"dim": 0.0, "parts": [2.0]', Plan).rules
    assert (rule.dim, rule.parts) == (0, (2,)) and type(rule.dim) is type(rule.parts[0]) is int


@pytest.mark.parametrize("text", [str(Plan("x")), Plan("x").to_json()])
def test_a_mark_before_the_text_is_skipped(text, tmp_path):
    path = tmp_path / "plan"
    path.write_text(text, encoding="utf-8-sig")
    assert read_plan(path, Plan) == Plan("x")


@pytest.mark.parametrize(
    "text, said",
    [
        ("plan x\nrule a.b sideways\n", "unknown style 'sideways'"),
        ("plan x\nrule a.b colwise width=3\n", "unknown option"),
        ("plan x\nrule a.b colwise members=3\n", "a.b: members=3 is of a unit: give units= too"),
        ("plan x\nrule a.b colwise units=2 members=n\n", "a.b: members='n' is not a number"),
        ("plan x\nrule a.b colwise units=0\n", "a.b: 0 is not a part"),
        ("plan x\nlayers a.b colwise\n", "line 2"),
        ("rule a colwise\n", "begins with a line"),
        ("plan x\nattribute heads\n", "line 2: .*module pattern:name"),
        ("plan x\nrule\n", "line 2: a rule is"),
        ("plan x\nrule a colwise dim=x\n", "line 2: a: dim=x is not a dimension"),
        ("plan x\nrule a colwise dim=-1\n", "line 2: a: dim=-1 is not a dimension"),
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

    for schema in (plan_schema(), PIPELINE_SCHEMA):
        Draft202012Validator.check_schema(schema)


def test_layer_numbers_become_stars():
    assert wildcard("model.layers.11.mlp.w1") == "model.layers.*.mlp.w1"
    assert wildcard("h.0") == "h.*"


def test_the_library_form():
    plan = from_library("x", {"layers.*.up": "colwise", "layers.*.down": "rowwise"})
    assert to_library(plan) == {"layers.*.up": "colwise", "layers.*.down": "rowwise"}
    with pytest.raises(PlanFormatError, match="must shrink"):
        to_library(Plan("x", plan.rules, ("layers.*:heads",)))


def test_a_reason_is_said_with_its_place():
    assert placed("a.b", "so") == "a.b: so" and placed("", "so") == "so" and placed("a.b", "") == "a.b"
    assert placed("", "") == ""


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(b"plan x\xff\n")
    for path in (tmp_path / "gone", tmp_path, bad):
        with pytest.raises(PlanFormatError, match=f"^{path}: it cannot be read"):
            read_plan(path, Plan)
    bad.write_text("plan x\nlayers a\n")
    with pytest.raises(PlanFormatError, match=f"^{bad}: line 2: unknown word 'layers'"):
        read_plan(bad, Plan)
    bad.write_text(' \n{"version": 1, "model": "x", "rules": []}')
    assert read_plan(bad, Plan) == Plan("x") == read_plan(str(bad), Plan)


def test_members_are_written_with_their_units():
    rule = PlanRule("a", "colwise", None, (), 2, 3)
    assert str(rule) == "a colwise units=2 members=3" and PlanRule.parse(str(rule)) == rule
    plan = Plan("x", (rule,))
    assert Plan.from_json(plan.to_json()) == plan == Plan.parse(str(plan))
    assert "members" not in Plan("x", (PlanRule("a", "colwise", None, (), 2),)).to_json()
    with pytest.raises(PlanFormatError, match="a: members=-1 is of a unit"):
        PlanRule("a", "colwise", None, (), 2, -1)


def test_a_plan_with_a_style_of_experts_is_one_of_experts():
    assert is_expert_plan(Plan("x", (PlanRule("a", "colwise"), PlanRule("b", "grouped_gemm"))))
    assert not is_expert_plan(Plan("x", (PlanRule("a", "colwise"),))) and not is_expert_plan(Plan("x"))


def test_values_that_have_no_text_are_shown_by_their_type():
    class Odd:
        def __repr__(self):
            raise ValueError

    assert shown(Odd()) == "a value of type Odd" and shown([1]) == "[1]" and shown("a") == "'a'"
    assert shortened("ab" * 200) == f"{'ab' * 60}… (400 characters) …{'ab' * 30}"
    assert shortened("a" * 240) == "a" * 240 and shortened("a" * 241) != "a" * 241
