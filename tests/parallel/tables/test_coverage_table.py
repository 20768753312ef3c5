"""The tables of a coverage run agree with its rows."""

from types import SimpleNamespace

import pytest

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.tables import coverage
from modular_converter.parallel.tables import summary as of_layers
from modular_converter.parallel.tables.coverage import committed_section, markdown, summary


ROWS = [
    {
        "name": "folder:a",
        "folder": "a",
        "model": "a",
        "state": "verified",
        "reason": "",
        "derive_s": 0.2,
        "prove_s": 4.0,
    },
    {"name": "folder:a", "folder": "a", "model": "a_text", "state": "verified", "reason": "", "derive_s": 0.4},
    {"name": "folder:b", "folder": "b", "model": "b", "state": "failed", "reason": "BuildError: b | c"},
    {"name": "folder:c", "folder": "c", "model": "c", "state": "refused", "reason": "c.d: e", "derive_s": 7.0},
]


def test_counts_and_times():
    assert summary(ROWS, "torch 2", "2026-01-01") == (
        "2 of 4 model types verified, 1 of 3 model folders have a verified plan (torch 2, 2026-01-01). "
        "Deriving took 0.40 s in the median, 1 of 3 more than 3 s. "
        "Proving on processes took 4.00 s in the median, 1 of 1 more than 3 s."
    )
    assert "took" not in summary([{**ROWS[2]}], "torch 2", "2026-01-01")


def test_every_row_is_a_line_and_keeps_its_columns():
    lines = markdown(ROWS, "torch 2", "2026-01-01").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert {line.split("|")[1].strip() for line in table[2:]} >= {"a", "a_text", "b", "c"}


def test_models_with_other_numbers_in_the_loader_are_named():
    wrong = "refused: outputs through the library's loader differ by 6.4"
    rows = [
        {"model": name, "committed": {"state": "verified", "reason": "", "outcome": "same", "loader": loader}}
        for name, loader in (("b", wrong), ("a", "verified"), ("c", "refused: ValueError: no"))
    ]
    said = committed_section(rows)
    assert "1 run in transformers' loader. It gives other outputs or gradients, without an error, for b.\n" in said
    assert "| b | verified | outputs through the library's loader differ by 6.4 |" in said


def test_plans_in_classes_are_counted_by_their_outcomes():
    given = {"b": ("verified", "same"), "a": ("verified", "same"), "c": ("not comparable", "")}
    rows = [
        {"model": name, "committed": {"state": state, "reason": "why", "outcome": outcome, "loader": "verified"}}
        for name, (state, outcome) in given.items()
    ]
    said = committed_section([*rows, {"model": "d", "committed": None}])
    assert said.startswith("3 model types carry a `base_model_tp_plan`, of their own or in their parts: ")
    assert ": 2 same, 1 not comparable. 3 run in transformers' loader.\n" in said
    assert said.splitlines()[-3:] == [
        "| a | verified | yes |  |  |  | same |",
        "| b | verified | yes |  |  |  | same |",
        "| c | not comparable: why | yes |  |  |  | not comparable |",
    ]


def test_a_state_is_told_with_its_reason_and_notes():
    given = [("verified", {}), ("empty", {}), ("refused", {"unproven": 2}), ("verified", {"retreat": "r" * 70})]
    told = [
        "verified",
        "empty",
        "refused: " + "x" * 110 + " (outputs alone for 2 weights)",
        f"verified (after {'r' * 60})",
    ]
    assert [coverage._state({"state": state, "reason": "x" * 120, **more}) for state, more in given] == told


@pytest.mark.parametrize(
    ("names", "states", "told"),
    [
        (["a", "b"], ["failed", "verified"], ["failed", "verified"]),
        (["a", "a", "a"], ["failed", "verified", "verified"], ["verified"]),
        (["a", "a"], ["failed", "refused"], ["refused"]),
    ],
)
def test_a_folder_has_a_row_for_each_type_or_for_its_first_class_that_works(monkeypatch, names, states, told):
    targets, left = [SimpleNamespace(name=one) for one in names], iter(states)
    monkeypatch.setattr(coverage, "targets_of_folder", {"f": targets}.__getitem__)
    monkeypatch.setattr(coverage, "_row", lambda target, pool: {"model": target.name, "state": next(left)})
    found = list(coverage._rows("folder:f", None))
    assert [one["state"] for one in found] == told
    assert all((one["name"], one["folder"]) == ("folder:f", "f") for one in found)
    [lost] = coverage._rows("folder:g", None)
    assert lost == {"name": "folder:g", "folder": "g", "model": "g", "state": "failed", "reason": "KeyError: 'g'"}


def test_a_plan_that_the_loader_refuses_or_cannot_say_is_told():
    def refuse():
        raise PlanError("a reason\nof two lines")

    assert coverage._outcome(lambda: SimpleNamespace(outcome="verified")) == "verified"
    assert coverage._outcome(refuse).startswith("refused: PlanError: a reason")
    given = ({}, {"loader": "verified"}, {"loader": "not in its vocabulary: x: y"}, {"loader": "refused: " + 90 * "z"})
    assert [*map(coverage._loader, given)] == ["", "verified", "its vocabulary lacks it", "refused: " + 71 * "z"]


def test_weights_and_patterns_are_of_the_same_kind_of_layer():
    for name in ("layers.0.mlp.up.weight", "layers.*.mlp.up", "layers.1"):
        assert of_layers._group(name) == "layers.*"
    assert of_layers._group("encoder.layers.3.experts.4.weight") == "encoder.layers.*"
    assert of_layers._group("lm_head.weight") == of_layers.OUTSIDE
