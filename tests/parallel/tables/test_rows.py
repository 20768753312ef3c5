"""The row of a model in the table of coverage, from the verdicts of its proofs and the bytes and collectives of its plans."""

import itertools
from types import SimpleNamespace

import pytest

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.tables import coverage


OURS = Plan.parse("plan x\nrule a colwise_gather_output\nrule b colwise\nrule c rowwise\n")
THEIRS = Plan.parse("plan x\nrule b colwise\nrule c rowwise\n")
WITHIN = Plan.parse("plan x\nrule c rowwise\nrule b colwise\n")
TARGET = SimpleNamespace(name="x", model_class="of.a.Model")


class Proofs:
    """What stands for derivation and proofs: verdicts by plan and way, and the fraction of bytes that a plan shards."""

    def __init__(self, monkeypatch, ours=OURS, theirs=THEIRS):
        self.verdicts, self.lacking, self.here, self.asked = {}, [], True, []
        self.sharded = {str(OURS): 0.75, str(THEIRS): 0.5, str(WITHIN): 0.5, str(Plan.parse("plan x\n")): 0.0}
        self.calls = {str(OURS): 5, str(THEIRS): 3, str(WITHIN): 3}
        self.ours, self.theirs = ours, theirs
        for name in ("prove", "cost", "derive_model", "check_on_threads"):
            monkeypatch.setattr(coverage, name, getattr(self, name))
        monkeypatch.setattr(coverage, "resolve", lambda plan, model: SimpleNamespace(pieces=(plan, model)))
        monkeypatch.setattr(coverage, "inexpressible_for_library", lambda plan: self.lacking)
        monkeypatch.setattr(coverage, "plan_in_classes", lambda model: {"b": "colwise"} if self.theirs else {})
        monkeypatch.setattr(coverage, "types_in", lambda model: [f"types of {model}"])
        monkeypatch.setattr(coverage, "have_row_here", lambda types, model: self.here)
        monkeypatch.setattr(coverage, "from_library", self.from_library)
        monkeypatch.setattr(coverage, "plan_within", lambda trace, most: WITHIN if most == 3 else None)
        monkeypatch.setattr(coverage, "holds_at", lambda target, plan: {2: "", 3: str(plan)})

    def verdict(self, plan, way):
        reason = self.verdicts.get((str(plan), way), "")
        evidence = SimpleNamespace(
            unproven=("w", "v"),
            also=lambda other: SimpleNamespace(to_json=lambda: [way, other.way]),
            lines=list,
            way=way,
        )
        calls = self.calls.get(str(plan), 0)
        return SimpleNamespace(
            passed=not reason,
            layer="layer" if reason else "",
            reason=reason,
            collectives=calls,
            evidence=evidence,
            outcome=reason or "verified",
        )

    def derive_model(self, target, uses):
        assert uses and target is TARGET
        small = SimpleNamespace(model="the model")
        found = {"trace": "the trace", "subject": "the subject", "retreat": "a retreat", "target": target}
        return SimpleNamespace(small=small, plan=self.ours, verdict=self.verdict(self.ours, "derived"), **found)

    def prove(self, derived, plan, pool, way="processes"):
        assert pool == "the pool"
        self.asked.append(way)
        if self.verdicts.get((str(plan), way)) == "raise":
            raise PlanError("no\nplan")
        return self.verdict(plan, way)

    def check_on_threads(self, subject, plan, ranks):
        assert (subject, ranks) == ("the subject", 4)
        return self.verdict(plan, "threads")

    def cost(self, trace, plan, pieces, ranks):
        assert (trace, pieces, ranks) == ("the trace", (plan, "the model"), 2)
        return SimpleNamespace(share=0.123456, sharded=self.sharded[str(plan)] + 0.00001)

    def from_library(self, name, rules, trace):
        assert (name, rules, trace) == ("x", {"b": "colwise"}, "the trace")
        if self.theirs == "wrong":
            raise PlanError("r" * 400)
        return self.theirs

    def row(self, monkeypatch):
        ticks = itertools.count(1.0, 0.1234)
        monkeypatch.setattr(coverage.time, "monotonic", lambda: next(ticks))
        return coverage._row(TARGET, "the pool")


def test_a_row_has_what_was_derived_and_proven(monkeypatch):
    row = Proofs(monkeypatch).row(monkeypatch)
    committed = row.pop("committed")
    assert row == {
        "model": "x",
        "class": "Model",
        "state": "verified",
        "reason": "",
        "derive_s": 0.12,
        "prove_s": 0.12,
        "seconds": 0.49,
        "share": 0.1235,
        "sharded": 0.75,
        "collectives": 5,
        "gathered": 1,
        "unproven": 2,
        "evidence": ["processes", "threads"],
        "retreat": "a retreat",
        "plan": str(OURS),
        "loader": "verified",
        "holds_at": {"2": "", "3": str(OURS)},
    }
    assert committed == {
        "state": "verified",
        "reason": "",
        "sharded": 0.5,
        "collectives": 3,
        "outcome": "same",  # in another order, once the derived plan has no more collectives
        "types": ["types of the model"],
        "loader": "verified",
        "beside": 0.5,
        "beside_collectives": 3,
    }


@pytest.mark.parametrize("way", ["processes", "threads"])
def test_a_plan_that_one_way_refuses_is_refused_and_not_tried_at_published_sizes(way, monkeypatch):
    proofs = Proofs(monkeypatch)
    proofs.verdicts[str(OURS), way] = "differs"
    row = proofs.row(monkeypatch)
    assert (row["state"], row["reason"], "holds_at" in row) == ("refused", "layer: differs", False)


def test_an_empty_plan_and_errors_are_told(monkeypatch):
    proofs = Proofs(monkeypatch, ours=Plan.parse("plan x\n"), theirs=None)
    assert proofs.row(monkeypatch)["state"] == "empty"
    monkeypatch.setattr(coverage, "derive_model", lambda target, uses: 1 / 0)
    row = proofs.row(monkeypatch)
    assert (row["state"], row["reason"], row["seconds"]) == ("failed", "ZeroDivisionError: division by zero", 0.12)
    proofs = Proofs(monkeypatch)
    monkeypatch.setattr(coverage, "holds_at", lambda target, plan: 1 / 0)
    row = proofs.row(monkeypatch)
    assert (row["state"], row["reason"]) == ("verified", "")


def test_a_plan_that_the_vocabulary_lacks_is_not_run_there(monkeypatch):
    proofs = Proofs(monkeypatch)
    proofs.lacking = ["a: first", "second"]
    assert proofs.row(monkeypatch)["loader"] == "not in its vocabulary: a: first" and "library" not in proofs.asked


def committed(monkeypatch, theirs=THEIRS, **facts):
    proofs = Proofs(monkeypatch, theirs=theirs)
    for name, value in facts.items():
        vars(proofs)[name].update(value)
    return coverage._committed(proofs.derive_model(TARGET, True), 0.75, "the pool")


def test_plans_in_classes_that_cannot_be_compared(monkeypatch):
    told = {"state": "not comparable", "outcome": "", "types": ["types of the model"]}
    assert committed(monkeypatch, None) == {**told, "reason": "its rules name no layer of the small instance"}
    assert committed(monkeypatch, "wrong") == {**told, "reason": "r" * 300}
    raised = committed(monkeypatch, verdicts={(str(THEIRS), "processes"): "raise"})
    assert raised == {**told, "reason": "no\nplan"}
    proofs = Proofs(monkeypatch)
    proofs.here = False
    assert coverage._committed(proofs.derive_model(TARGET, True), 0.75, "the pool") is None


@pytest.mark.parametrize(
    ("theirs", "facts", "outcome", "beside"),
    [
        (OURS, {}, "same", None),
        (THEIRS, {"calls": {str(OURS): 3}}, "at least as many bytes, no more collectives", (0.75, 3)),
        (THEIRS, {"calls": {str(OURS): 2}, "sharded": {str(THEIRS): 0.7507}}, "at least as many bytes, no more collectives", (0.75, 2)),
        (THEIRS, {"calls": {str(OURS): 3}, "sharded": {str(THEIRS): 0.76}}, "worse", (0.75, 3)),
        (THEIRS, {"verdicts": {(str(WITHIN), "processes"): "no"}}, "worse", (0.0, 3)),
        (THEIRS, {"calls": {str(WITHIN): 4}}, "worse", (0.5, 4)),
        (THEIRS, {"verdicts": {(str(THEIRS), "processes"): "no"}}, "not said by our styles", None),
        (THEIRS, {"verdicts": {(str(THEIRS), one): "no" for one in ("processes", "committed")}}, "the committed one is refused", None),
    ],
)  # fmt: skip
def test_the_plan_in_classes_beside_the_derived_one(theirs, facts, outcome, beside, monkeypatch):
    found = committed(monkeypatch, theirs, **facts)
    assert found["outcome"] == outcome
    assert (found.get("beside"), found.get("beside_collectives")) == (beside or (None, None))
    refused = (str(THEIRS), "processes") in facts.get("verdicts", {})
    assert (found["state"], found["reason"]) == (("refused", "layer: no") if refused else ("verified", ""))


def test_rows_of_an_earlier_run_stay_and_others_are_added(monkeypatch, tmp_path):
    pools, ticked, asked = [], [], []

    class Pool:
        def __init__(self, *given):
            pools.append([*given])

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pools[-1].append("ended")

        def start(self):
            pools[-1].append("started")

    def rows(name, pool):
        asked.append(name)
        yield from ({"name": name, "state": state} for state in ("failed", "verified"))

    monkeypatch.setattr(coverage, "RankPool", Pool)
    monkeypatch.setattr(coverage, "_rows", rows)
    kept = tmp_path / "rows"
    first = coverage.cover(["a"], kept, 3, ticked.append)
    again = coverage.cover(["a", "b"], kept, 3, ticked.append)
    assert asked == ["a", "b"] and again[:2] == first and [one["name"] for one in again] == ["a", "a", "b", "b"]
    assert ticked == [first[1], again[3]] and coverage.RowFile(kept).rows == again
    assert coverage.cover(["a"], None, 2, ticked.append) == first
    assert pools == [[ranks, 240, "started", "ended"] for ranks in (3, 3, 2)]


def test_all_folders_with_a_modeling_file_are_named():
    found = coverage.folders()
    assert {"llama", "bert", "gpt2"} <= {*found} and "auto" not in found and found == sorted(found)
