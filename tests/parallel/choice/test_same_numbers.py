"""Numbers that code computes from shapes agree on a small instance's ranks, and differ on those of the user's model."""

import copy
import logging

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from modular_converter.parallel.choice import same_numbers  # noqa: E402
from modular_converter.parallel.choice.same_numbers import _Shown  # noqa: E402
from modular_converter.parallel.choice.select_plan import select_plan  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.proof.judge import Verdict  # noqa: E402
from modular_converter.parallel.proof.numbers import Decided, differences, numbers_of  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_model_on_threads  # noqa: E402
from modular_converter.parallel.trace.graph import Comparison, Source  # noqa: E402
from tests.parallel import numbers_of_shapes  # noqa: E402
from tests.parallel.deceptive import DeceptiveConfig  # noqa: E402


IDS = torch.arange(5, 29).view(2, 12)
PLAN = "plan x\nrule layers.*.up colwise\nrule layers.*.down rowwise\n"


def model_of(name, **settings):
    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 96}
    return getattr(numbers_of_shapes, name)(DeceptiveConfig(**sizes | settings)).eval()


def holds(model, plan):
    return check_model_on_threads(copy.deepcopy(model), plan, {"input_ids": IDS}, 2).passed


@pytest.mark.parametrize("name", ["Scaled", "Filled", "Named", "Typed"])
def test_a_part_whose_numbers_differ_on_a_rank_stays_whole(name, caplog):
    model = model_of(name)
    with caplog.at_level(logging.WARNING):
        plan, origin, _ = select_plan(model, None, 2)
    assert "; whole, as their code computes numbers from shapes: layers.*" in origin and holds(model, plan)
    assert "layers.* stays whole on each of 2 ranks: its code computes " in caplog.text
    assert "(numbers_of_shapes.py:" in caplog.text


@pytest.mark.parametrize("name", ["Deeper", "Wider"])
def test_a_single_layer_whose_numbers_differ_is_found_among_many(name, caplog):
    model = model_of(name, num_hidden_layers=6)
    with caplog.at_level(logging.WARNING):
        plan, origin, _ = select_plan(model, None, 2)
    assert "; whole, as their code computes numbers from shapes: layers.*" in origin and holds(model, plan)
    assert "its code computes " in caplog.text


@pytest.mark.parametrize("name", ["Bordered", "Narrowed"])
def test_layers_that_are_cut_where_no_small_instance_is_stay_whole(name, caplog):
    with caplog.at_level(logging.WARNING):
        plan, *_ = select_plan(model_of(name), None, 2)
    assert "these parts stay whole, since no small instance has their kind: layers.0 (has cut slice 2)" in caplog.text
    assert "embed" in str(plan.rules) and "layers" not in str(plan.rules)


def test_numbers_of_the_model_itself_and_a_plan_that_is_wrong_without_a_part_are_refused(monkeypatch, nothing_kept):
    with pytest.raises(ApplyError, match="ScaledBehind cannot be sharded: the model: its code computes "):
        select_plan(model_of("ScaledBehind"), None, 2)
    monkeypatch.setattr(same_numbers, "verified", lambda *_: Verdict(2, 1.0, 0.0, "embed", "output 0 differs"))
    with pytest.raises(ApplyError, match=r"Scaled: the plan is wrong with layers\.\* whole: embed: output 0 differs"):
        select_plan(model_of("Scaled"), None, 2)


def test_a_given_plan_stays_as_it_is_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        plan, *_ = select_plan(model_of("Scaled"), PLAN, 2)
    assert len(plan.rules) == 2 and "a given plan changes the model's numbers: layers.0" in caplog.text


def test_numbers_that_differ_on_the_small_instance_too_are_proven():
    model = model_of("Cancelled")
    plan, origin, _ = select_plan(model, None, 2)
    assert "numbers of shapes" not in origin and holds(model, plan)
    assert "layers.*.up" in str(plan)


def test_the_numbers_of_a_run():
    linear = torch.nn.Linear(4, 4)
    runs = [numbers_of(linear, lambda n=n: linear(torch.ones(8, 4)) * n + torch.full((1,), 3.0)) for n in (0.5, 0.25)]
    assert [text for place, texts in sorted(runs[0].items()) for text in texts if place[2] in ("mul", "full")]
    ((place, pair),) = differences(*runs).items()
    assert place[2] == "mul" and pair == ("0.5", "0.25")
    assert differences(runs[0], {}).keys() == runs[0].keys() and not differences(runs[0], runs[0])


def test_a_comparison_lacks_a_result_only_where_it_runs():
    """Code that no small instance runs has been proven elsewhere: it lacks nothing."""

    def decided(left):
        return Decided(Comparison("lt", Source("shape", left), Source("const", 8)))

    place, elsewhere = ("layers.0", "file.py:3", "lt"), ("layers.0", "file.py:4", "lt")
    shown = _Shown(iter([({place: [decided(4)]}, {place: [decided(2)]}, ())]))
    assert not shown.lacks(place, True) and shown.lacks(place, False)
    assert not shown.lacks(("layers.7", *place[1:]), True) and shown.lacks(("layers.7", *place[1:]), False)
    assert not shown.lacks(elsewhere, True) and not shown.lacks(elsewhere, False)
