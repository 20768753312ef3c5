"""Which of several plans is taken, from the verdicts of their proofs and the bytes that they leave on a rank."""

import dataclasses
import logging
from types import SimpleNamespace

import pytest
import torch

from modular_converter.parallel.choice import select_plan as module
from modular_converter.parallel.choice.select_plan import Kept, kept, log_kept
from modular_converter.parallel.errors import ApplyError, PlanError
from modular_converter.parallel.plans.plan import Plan


PLAN = Plan.parse("plan x\nrule a colwise\n")
EMPTY = Plan.parse("plan x\n")
WRONG = Plan.parse("plan x\nrule a.b.c colwise\n")


class Model(torch.nn.Module):
    """Of 16 entries that the plan divides, and four times `rest` that stay whole; `c` is `b`."""

    def __init__(self, rest):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, rest, bias=False)
        self.c = self.b


def verdict(reason="", lines=()):
    evidence = SimpleNamespace(lines=lambda tried_later: [*lines] if tried_later else [])
    return SimpleNamespace(passed=not reason, layer="layer" if reason else "", reason=reason, evidence=evidence)


def derived(plan=PLAN, reason="", retreat="", hindrances=(), lines=()):
    return SimpleNamespace(plan=plan, verdict=verdict(reason, lines), retreat=retreat, hindrances=hindrances)


def test_the_bytes_of_a_rank_and_the_names_of_what_is_whole():
    assert kept(Model(5), PLAN, 2) == Kept(144, 32 + 80, ("b.weight",))
    assert kept(Model(3), EMPTY, 2) == Kept(112, 112, ("a.weight", "b.weight"))  # the largest first
    assert kept(Model(5), EMPTY, 2).whole == ("b.weight", "a.weight") and Kept(0, 0, ()).share == 1.0
    assert kept(Model(5), PLAN, 3).rank == 32 + 80  # the largest of the shares 2, 1, 1


@pytest.mark.parametrize(("rest", "ranks", "warned"), [(4, 2, False), (5, 2, True), (5, 1, False)])
def test_more_than_one_and_a_half_equal_parts_are_warned_of(rest, ranks, warned, caplog):
    plan = dataclasses.replace(PLAN, whole=(("b", "as it is"),))
    with caplog.at_level(logging.INFO, "modular_converter"):
        log_kept(Model(rest), plan, ranks)
        log_kept(Model(rest), WRONG, ranks)  # told where it is applied
        module._log_hindrances(Model(rest), derived(plan, hindrances=["a view"]), ranks)
    first, *more = [(one.levelname, one.getMessage()) for one in caplog.records]
    share = {(4, 2): "75.0", (5, 2): "77.8", (5, 1): "100.0"}[rest, ranks]
    assert first == ("INFO", f"Model: each of {ranks} ranks keeps {share} % of the weights")
    told = f"Model: each of {ranks} ranks keeps {share} % of the weights; whole: b.weight (as it is)"
    assert more == [*([("WARNING", told)] * warned), ("WARNING" if warned else "INFO", "Model: a view")]


def test_hindrances_of_a_plan_that_does_not_fit_are_no_warning(caplog):
    with caplog.at_level(logging.INFO, "modular_converter"):
        module._log_hindrances(Model(5), derived(WRONG, hindrances=["a view"]), 2)
    assert [one.levelname for one in caplog.records] == ["INFO"]


@pytest.fixture
def asked(monkeypatch):
    """Answers for the plan in the classes, its verdict, the derived plan, and experts; those of errors are raised."""
    answers = SimpleNamespace(committed=PLAN, verdict=verdict(), derived=derived(), log=[])

    def found(model, name):
        answer = getattr(answers, name)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "target_like", lambda model: SimpleNamespace(name="x"))
    monkeypatch.setattr(module, "small_settings", lambda model: {"a": 1})
    monkeypatch.setattr(module, "committed_plan", lambda model, target, overrides: answers.committed)
    monkeypatch.setattr(module, "verified", lambda target, overrides, ranks, plan: found(None, "verdict"))
    monkeypatch.setattr(module, "derived_plan", lambda target, overrides, ranks: found(None, "derived"))
    return answers


LESS = Plan.parse("plan x\nrule a colwise\nrule b colwise\n")
IN_CLASSES = "the plan in Model's classes, verified on 2 ranks of a small instance"
DERIVED = "the derived plan, verified on 2 ranks of a small instance"
LEAVES = "the plan in its classes leaves 75.0% of the weights on each of 2 ranks"


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ({}, (PLAN, IN_CLASSES, True)),
        ({"verdict": verdict(lines=["u", "v"])}, (PLAN, f"{IN_CLASSES} (u; v)", True)),
        ({"derived": derived(LESS)}, (LESS, f"{DERIVED}; {LEAVES}", False)),
        ({"derived": derived(LESS, "no")}, (PLAN, IN_CLASSES, True)),
        ({"derived": derived(EMPTY)}, (PLAN, IN_CLASSES, True)),
        ({"derived": PlanError("no\nplan")}, (PLAN, IN_CLASSES, True)),
        ({"committed": "none there", "derived": derived(retreat="r", lines=["u"])},
         (PLAN, f"{DERIVED} (u); a plan that shards more weights is refused (r); none there", False)),
        ({"verdict": verdict("differs")}, (PLAN, f"{DERIVED}; the plan in its classes is refused (layer: differs)", False)),
        ({"committed": "none there", "derived": derived(reason="no")},
         "Model has no plan: none there, and the derived plan does not hold (layer: no); give one as plan="),
        ({"committed": "none there", "derived": derived(EMPTY)},
         "Model has no plan: none there, and the derived plan does not hold (nothing can be sharded); give one as plan="),
    ],
)  # fmt: skip
def test_the_plan_in_classes_or_the_derived_one(answers, wanted, asked, caplog):
    vars(asked).update(answers)
    found = answers.get("derived", asked.derived)
    if not isinstance(found, Exception):
        found.hindrances = ["a view"]
    with caplog.at_level(logging.INFO, "modular_converter"):
        if isinstance(wanted, str):
            with pytest.raises(ApplyError) as raised:
                module._own_or_derived(Model(4), 2)
            assert str(raised.value) == wanted
        else:
            assert module._own_or_derived(Model(4), 2) == wanted
    assert ("Model: a view" in caplog.messages) == (not isinstance(wanted, str) and not wanted[2])
    compared = "no derived plan to compare with the plan in the model's classes: no"
    assert (compared in caplog.messages) == isinstance(answers.get("derived"), PlanError)


def test_experts_are_divided_by_a_plan_of_experts_that_holds(asked, monkeypatch):
    class Mixture(Model):
        pass

    plan = Plan.parse("plan x\nrule a colwise\nrule lacking colwise\n")
    small = SimpleNamespace(model="the model", inputs="the inputs")
    monkeypatch.setattr(module, "small_instance", lambda target, overrides: small)
    monkeypatch.setattr(module, "record", lambda *given: given)
    monkeypatch.setattr(module, "derive_experts", lambda trace: plans[trace == ("the model", "the inputs", "x")])
    ranks = []
    monkeypatch.setattr(
        module, "verified", lambda target, overrides, count, plan: ranks.append(count) or asked.verdict
    )
    plans = [None, plan]
    for size, tried in ((2, 2), (4, 4), (6, 2), (8, 4)):
        found = module._selected_experts(Mixture(4), None, size)
        assert found.plan == PLAN and ranks.pop() == tried and not found.restricted
        assert found.origin == f"the derived plan of experts, verified on {tried} ranks of a small instance"
    asked.verdict = verdict("differs")
    with pytest.raises(
        ApplyError, match=r"^Mixture with divided experts gives other numbers \(layer: differs\): take "
    ):
        module._selected_experts(Mixture(4), None, 2)
    for whole, why in (((("e", "odd"), ("f", "even")), "e: odd; f: even"), ((), "it has no stacked experts")):
        plans[1] = dataclasses.replace(EMPTY, whole=whole)
        with pytest.raises(ApplyError) as raised:
            module._selected_experts(Mixture(4), None, 2)
        assert str(raised.value).startswith(f"the experts of Mixture cannot be divided ({why}): take a layout with tp")
    with pytest.raises(ApplyError, match="^the given plan divides no experts: "):
        module._selected_experts(Mixture(4), PLAN, 2)
    monkeypatch.setattr(module, "is_expert_plan", lambda plan: plan == LESS)
    assert module._selected_experts(Mixture(4), LESS, 2) == (LESS, "the given plan of experts", False)


@pytest.mark.parametrize(("settings", "fits"), [({}, True), ({"h": 4}, True), ({"h": 4}, False)])
def test_a_given_plan_is_tried_on_a_small_instance_with_wider_heads_if_it_can_be_built(settings, fits, asked, monkeypatch, caplog):  # fmt: skip
    tried = []
    small = SimpleNamespace(model=SimpleNamespace(config="the configuration"))
    monkeypatch.setattr(module, "small_instance", lambda target, overrides: small)
    monkeypatch.setattr(module, "wider_heads", lambda config, overrides: settings)
    monkeypatch.setattr(module, "builds", lambda target, overrides: fits)
    monkeypatch.setattr(module, "scope_of_proof", lambda model, plan, ranks: " in scope")
    monkeypatch.setattr(
        module, "verified", lambda target, overrides, ranks, plan: tried.append(overrides) or asked.verdict
    )
    assert module._tried(Model(4), PLAN, 2) == (
        PLAN,
        "the given plan, verified on 2 ranks of a small instance in scope",
    )
    assert tried == [{"a": 1, **(settings if fits else {})}]
    asked.verdict = verdict("differs")
    with caplog.at_level(logging.WARNING, "modular_converter"):
        found = module._tried(Model(4), PLAN, 2)
    assert found == (PLAN, "the given plan, which a small instance refuses (layer: differs)")
    assert caplog.messages == ["the given plan is refused by a small instance of the model: layer: differs"]
    monkeypatch.setattr(module, "target_like", _raise)
    assert module._tried(Model(4), PLAN, 2) == (PLAN, "the given plan, not verified: no configuration")


def _raise(*_):
    raise PlanError("no configuration; give one\nmore")


def test_an_answer_is_kept_unless_a_plan_is_given(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "kept_answer", lambda model, question, values: asked.append(question) or values())
    monkeypatch.setattr(module, "_selected", lambda *given: module.SelectedPlan(PLAN, f"all {given[1:]}", True))
    monkeypatch.setattr(module, "_selected_experts", lambda *given: module.SelectedPlan(PLAN, f"experts {given[1:]}"))
    assert module.select_plan(Model(4), None, 2) == (PLAN, "all (None, 2)", True)
    assert module.select_plan(Model(4), None, 3, experts=True) == (PLAN, "experts (None, 3)", False)
    assert asked == ["plan for 2", "plan of experts for 3"]
    assert module.select_plan(Model(4), "given", 2) == (PLAN, "all ('given', 2)", True) and len(asked) == 2


@pytest.mark.parametrize(("size", "ranks"), [(2, 2), (3, 2), (4, 4), (6, 2), (8, 4)])
def test_a_plan_is_restricted_to_what_the_model_and_the_ranks_allow(size, ranks, monkeypatch):
    steps = {"own_instance": None, "_warn_of_branches": None, "log_kept": None}
    steps |= {"_own_or_derived": (LESS, "where", True), "_tried": (LESS, "given")}
    steps |= {"restricted_to_layers": (LESS, "of layers"), "restricted_to_numbers": (PLAN, " in scope")}
    calls = {}
    for name, answer in steps.items():
        monkeypatch.setattr(
            module, name, lambda *given, name=name, answer=answer: calls.update({name: given}) or answer
        )
    monkeypatch.setattr(module, "fitted", lambda *given: calls.update(fitted=given) or (given[1], "that fit"))
    model = Model(4)
    assert module._selected(model, None, size) == (PLAN, "that fit in scope", True)
    assert calls["_own_or_derived"] == (model, ranks) and calls["_warn_of_branches"] == (model,)
    assert calls["restricted_to_layers"] == (model, LESS, "where", ranks, True)
    assert calls["fitted"] == (model, LESS, "of layers", size, ranks, False)
    assert calls["restricted_to_numbers"] == (model, LESS, size, ranks, False)
    assert calls["log_kept"] == (model, PLAN, size)
    calls.pop("restricted_to_layers")
    given = str(PLAN)
    assert module._selected(model, given, size).restricted and "restricted_to_layers" not in calls
    assert calls["fitted"][2:] == ("given", size, ranks, True) and calls["restricted_to_numbers"][-1] is True
    steps = (EMPTY, "; b left whole, since not proven: a reason")
    monkeypatch.setattr(module, "restricted_to_numbers", lambda *given: steps)
    assert module._selected(model, given, size).plan == EMPTY and module._selected(model, None, 1).plan == EMPTY
    with pytest.raises(ApplyError, match=f"^Model: nothing would be shared out, each of {size} devices would hold the whole model: a reason; use"):  # fmt: skip
        module._selected(model, None, size)


@pytest.mark.parametrize("staged", [False, True])
def test_the_plan_of_example_inputs_is_the_first_that_holds_at_this_number_of_ranks(staged, monkeypatch, caplog):
    model, own, logged = Model(4), SimpleNamespace(target="a target"), []
    found = derived(LESS, lines=["u"])
    found.checked = lambda plan, size: verdict("differs" if plan in refused else "", [f"on {size}"])
    monkeypatch.setattr(module, "own_instance", lambda model: own)
    monkeypatch.setattr(module, "derive_model", lambda *given, **named: logged.append((given, named)) or found)
    for name in ("log_kept", "_log_hindrances", "_warn_of_branches"):
        monkeypatch.setattr(module, name, lambda *given, name=name: logged.append((name, *given)))
    monkeypatch.setattr(module, "skeleton_of", lambda model: "a skeleton")
    monkeypatch.setattr(module, "fit", lambda skeleton, plan, size: SimpleNamespace(plan=plan, whole={"b": "odd"}))
    monkeypatch.setattr(module, "is_staged", lambda model: staged)
    monkeypatch.setattr(module, "whole_between_layers", lambda model, found, size: iter(between))
    refused, between = [], [LESS, PLAN]
    origin = "the plan derived from example inputs, verified on 6 ranks of a copy of the model (on 6)"
    with caplog.at_level(logging.WARNING, "modular_converter"):
        assert module._selected(model, None, 6) == (LESS, origin, True)
    assert caplog.messages == ["Model: b stays whole on each of 6 ranks: odd"]
    assert logged == [
        (("a target", {}, 2), {"ratios": False, "uses": True, "known": own}),
        ("_log_hindrances", model, found, 6),
        ("_warn_of_branches", model),
        ("log_kept", model, LESS, 6),
    ]
    assert module._selected(model, None, 1).origin.endswith(" (u)")  # proven already
    refused = [LESS]
    if staged:
        assert module._selected(model, None, 2).plan == PLAN
        between = []
    why = "layers would hand over shares to the next stage" if staged else r"the plan is refused \(layer: differs\)"
    with pytest.raises(ApplyError, match=f"^2 shares do not fit Model: {why}$"):
        module._selected(model, None, 2)
    for plan, reason, why in ((EMPTY, "", "v; w"), (LESS, "no", "layer: no")):
        found = derived(plan, reason, hindrances=["v", "w"])
        with pytest.raises(ApplyError, match=f"^Model has no plan: {why}; give one as plan=$"):
            module._selected(model, None, 2)
    found = derived(EMPTY)
    with pytest.raises(ApplyError, match="^Model has no plan: nothing can be sharded; give"):
        module._selected(model, None, 2)


def test_branches_of_other_code_that_no_run_has_tried_are_warned_of(monkeypatch, caplog):
    for untried, ours in ((["a", "b"], False), ([], False), (["a"], True)):
        monkeypatch.setattr(module, "untried_branches_of", lambda model, untried=untried: untried)
        monkeypatch.setattr(module, "is_of_the_library", lambda model, ours=ours: ours)
        module._warn_of_branches(Model(4))
    assert caplog.messages == [
        "Model: no run of the proof has tried a; b: compare answers with the answers of one device"
    ]


def test_the_plan_in_classes_has_rules_for_layers_that_are_there(monkeypatch):
    model, target = Model(4), SimpleNamespace(name="x")
    monkeypatch.setattr(module, "small_instance", lambda target, overrides: 1 / 0)  # no rule needs a trace
    assert module.committed_plan(model, target, {}) == "its classes have no plan"
    for name in ("_tp_plan", "tp_plan"):  # what the library gathers goes before the class's own
        setattr(model, name, {"lacking": "colwise", {"_tp_plan": "b", "tp_plan": "a"}[name]: "colwise"})
        found = module.committed_plan(model, target, {})
        assert [rule.pattern for rule in found.rules] == [{"_tp_plan": "b", "tp_plan": "a"}[name]]
    model.tp_plan = {"a": "of_no_kind"}
    assert module.committed_plan(model, target, {}).startswith("the plan in its classes cannot be used here (")
