"""Refusals of `parallelize` before it starts anything, and the effect of a failed load on other models of a session."""

import dataclasses
import inspect
import multiprocessing
import os

import pytest
import torch
import torch.distributed as dist

import modular_converter.parallel as parallel
from modular_converter.parallel import Session, api, parallelize
from modular_converter.parallel.engine import arguments
from modular_converter.parallel.engine.group import in_process_group
from modular_converter.parallel.engine.remote import place_on_ranks
from modular_converter.parallel.errors import ApplyError, PlanError, RankError  # noqa: E402
from modular_converter.parallel.layout import Training
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.ranks import session as ranks_session
from tests.parallel.launch import launch
from tests.parallel.troubled import PLAN, Troubled


X = torch.ones(2, 16)


def in_group(monkeypatch, answer=True):
    for module in (api, arguments):
        monkeypatch.setattr(module, "in_process_group", lambda: answer)


def fails_on_ranks():
    if dist.is_initialized():
        raise OSError("not on a rank")
    return FailsToLoad()


class FailsToLoad:
    """An attribute of a model that the main process can read, and ranks cannot."""

    def __reduce__(self):
        return fails_on_ranks, ()


class FailsToFinish(Troubled):
    def train(self, mode=True):
        if dist.is_initialized():
            raise OSError("not on a rank")
        return super().train(mode)


@pytest.fixture
def shared(ranks):
    """A session with a model in it, which must still be right when a test ends."""
    torch.manual_seed(0)
    model = Troubled().eval()
    with torch.no_grad():
        want = model(X)
    parallelize(model, plan=PLAN, session=ranks)
    yield ranks
    assert torch.allclose(model(X), want, atol=1e-5)
    model.cpu()
    assert len(ranks.ask(("memory",))) == 2


def test_a_load_that_fails_leaves_the_session_and_the_model(shared):
    model = Troubled().eval()
    model.note = FailsToLoad()
    want = model(X)
    with pytest.raises(RankError, match=r"it is as it was(.|\n)*not on a rank") as caught:
        parallelize(model, plan=PLAN, session=shared)
    assert "load it again" not in str(caught.value)
    assert not shared.ended and type(model) is Troubled and torch.equal(model(X), want)
    del model.note
    parallelize(model, plan=PLAN, session=shared)
    assert torch.allclose(model(X), want, atol=1e-5)
    model.cpu()


def test_a_model_that_fails_after_its_weights_have_gone_has_to_be_loaded_again(shared):
    with pytest.raises(RankError, match=r"load it again(.|\n)*not on a rank"):
        parallelize(FailsToFinish().eval(), plan=PLAN, session=shared)
    assert not shared.ended


def test_parcels_that_fail_leave_no_answer_behind(shared, monkeypatch):
    first = place_on_ranks.parcels

    def of_nothing(items, slot):  # tensors that ranks do not know, in several messages under way at once
        for parcel in first(items, slot):
            yield [
                dataclasses.replace(span, first=span.first + (1 << 40), last=span.last + (1 << 40)) for span in parcel
            ]

    monkeypatch.setattr(place_on_ranks, "parcels", of_nothing)
    with pytest.raises(RankError, match=r"could not be put on the ranks; it is as it was"):
        parallelize(Troubled(256).eval(), plan=PLAN, session=shared)
    assert not shared.ended


def test_what_ranks_kept_of_a_failed_model_is_dropped(shared, monkeypatch):
    sent = []
    send = Session.send
    monkeypatch.setattr(Session, "send", lambda self, message: sent.append(message[:2]) or send(self, message))
    with pytest.raises(RankError):
        parallelize(FailsToFinish().eval(), plan=PLAN, session=shared)
    number = next(one[1] for one in sent if one[0] == "load")
    assert sent[-2:] == [("finish", number), ("forget", [(number, None)])]


def test_a_session_of_its_own_ends_when_its_model_cannot_be_put_on_it():
    made = []

    class Watched(Session):
        def start(self):
            made.append(self)
            super().start()
            self.pids = [rank.process.pid for rank in self.ranks]

    model = Troubled().eval()
    model.note = FailsToLoad()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RankError, match="it is as it was"):
        patch.setattr(place_on_ranks, "Session", Watched)
        parallelize(model, plan=PLAN, init_method="forkserver")
    assert made[0].ended and not made[0].ranks
    assert not any(os.path.exists(f"/proc/{pid}") for pid in made[0].pids)


@pytest.mark.parametrize(
    "plan, said",
    [
        (Plan("", (PlanRule("up", "colwise"), PlanRule("down", "rowwise"))), "begins with a line"),
    ],
)
def test_a_plan_that_ranks_could_not_read_costs_nothing(monkeypatch, plan, said):
    monkeypatch.setattr(Session, "_begin_all", lambda self: None)
    monkeypatch.setattr(Session, "start", lambda self: pytest.fail("the ranks were waited for"))
    with pytest.raises(ApplyError, match=said):
        parallelize(Troubled().eval(), plan=plan)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"timeout": -3}, "timeout=-3: .*above 0"),
        ({"timeout": 0.0}, "timeout=0.0: .*above 0"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"timeout": None}, "timeout=None"),
        ({"device": "tpu"}, "device='tpu': give 'cpu' or 'cuda'"),
        ({"verbose": "loud"}, "verbose='loud'"),
        ({"dtype": torch.int8}, "dtype=torch.int8: give a floating type"),
        ({"dtype": "float17"}, "dtype='float17': give a floating type"),
    ],
)
@pytest.mark.parametrize("group", [False, True])
def test_arguments_that_mean_nothing_anywhere(monkeypatch, group, given, said):
    in_group(monkeypatch, group)
    with pytest.raises(ApplyError, match=said):
        parallelize(Troubled(), plan=PLAN, **given)


@pytest.mark.parametrize(
    "name, value", [("num_gpus", "2"), ("num_gpus", 2.0), ("num_gpus", True), ("master_port", "29500")]
)
def test_numbers_are_whole_numbers(name, value):
    with pytest.raises(ApplyError, match=f"{name}={value!r}: give a whole number"):
        parallelize(Troubled(), plan=PLAN, **{name: value})


def test_the_number_of_processes_may_be_given_where_they_run(monkeypatch):
    in_group(monkeypatch)
    monkeypatch.setattr(in_process_group, "parallelize_here", lambda given: "sharded")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert parallelize(Troubled(), plan=PLAN, num_gpus=3) == "sharded"
    with pytest.raises(ApplyError, match="num_gpus=4: no effect here"):
        parallelize(Troubled(), plan=PLAN, num_gpus=4)


@pytest.mark.parametrize("word", ["bf16", "bfloat16", torch.bfloat16])
def test_a_type_of_weights_may_be_a_word(monkeypatch, word):
    in_group(monkeypatch)
    monkeypatch.setattr(in_process_group, "parallelize_here", lambda given: given.weight_type)
    assert parallelize(Troubled(), plan=PLAN, dtype=word) is torch.bfloat16


def test_a_daemonic_process_is_told_that_it_may_not_start_others(monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(RankError, match="daemonic"):
        parallelize(Troubled(), plan=PLAN, init_method="fork")


def test_a_models_name_is_no_model():
    with pytest.raises(
        PlanError, match="gpt2: is not a folder; give the folder of a saved model .nothing is downloaded"
    ):
        parallelize("gpt2")
    with pytest.raises(ApplyError, match="model is of type int: give a torch.nn.Module, or the path"):
        parallelize(2)


IDLE_IN_GROUP = {
    "num_gpus": 3,
    "master_port": 29500,
    "init_method": "fork",
    "timeout": 5.0,
    "session": object(),
}


@pytest.mark.parametrize("name", sorted(IDLE_IN_GROUP))
def test_arguments_without_effect_in_a_process_group(monkeypatch, name):
    in_group(monkeypatch)
    with pytest.raises(ApplyError, match=rf"^{name}=.*: no effect here, leave it out; in a process group"):
        parallelize(Troubled(), plan=PLAN, **{name: IDLE_IN_GROUP[name]})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"mesh": object(), "training": Training()},
            "^training= needs layout=, such as layout='fsdp2.tp2'; with mesh=",
        ),
        ({"mesh": object(), "layout": "tp2"}, "^give layout=, which makes a mesh, or mesh="),
        (
            {"layout": "tp2", "inference": True},
            "^layout= is for training, but inference= and compile= are without gradients",
        ),
        ({"training": Training(), "compile": True}, "^training= is for training, but inference= and compile="),
    ],
)
def test_arguments_that_do_not_go_together_in_a_process_group(monkeypatch, given, said):
    in_group(monkeypatch)
    with pytest.raises(ApplyError, match=said):
        parallelize(Troubled(), plan=PLAN, **given)


IDLE_IN_SESSION = {
    "num_gpus": 3,
    "master_port": 29500,
    "device": "cpu",
    "init_method": "fork",
    "timeout": 5.0,
}


@pytest.mark.parametrize("name", sorted(IDLE_IN_SESSION))
def test_arguments_without_effect_on_a_session(name):
    session = Session(("cpu", "cpu"))
    with pytest.raises(ApplyError, match=rf"^{name}=.*: no effect here, leave it out; .*Session\(\.\.\.\)"):
        parallelize(Troubled(), plan=PLAN, session=session, **{name: IDLE_IN_SESSION[name]})
    session.end()


def test_all_arguments_without_effect_are_named_together():
    with pytest.raises(ApplyError, match="^num_gpus=3, device='cpu', timeout=1.0: no effect"):
        parallelize(Troubled(), session=Session(("cpu",)), num_gpus=3, device="cpu", timeout=1.0)


def test_a_session_that_has_ended_is_refused_and_nothing_is_started():
    session = Session(("cpu", "cpu"))
    session.end("it was enough")
    model = Troubled().eval()
    with pytest.raises(RankError, match="it was enough; make another Session"):
        parallelize(model, plan=PLAN, session=session)
    assert type(model) is Troubled and not session.ranks


def test_a_session_that_does_not_run_yet_is_started_once():
    with Session(("cpu", "cpu"), init_method="forkserver") as session:
        one = parallelize(Troubled().eval(), plan=PLAN, session=session)
        pids = [rank.process.pid for rank in session.ranks]
        two = parallelize(Troubled().eval(), plan=PLAN, session=session)
        assert [rank.process.pid for rank in session.ranks] == pids
        assert one(X).shape == two(X).shape == (2, 16)


VERBOSE = """
import torch
from modular_converter.parallel import parallelize
from tests.parallel.troubled import PLAN, Troubled
torch.manual_seed(0)
parallelize(Troubled(), plan=PLAN, device="cpu", verbose="detail")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_verbose_in_a_process_group_prints_the_first_process_share(tmp_path):
    (tmp_path / "main.py").write_text(VERBOSE)
    found = launch(2, tmp_path / "main.py")
    assert found.code == 0, found.errors
    assert found.output.count("Troubled: ") == 1 and "share of 2" in found.output
    assert found.output.count("MiB allocated") == 1


def test_a_session_can_be_imported_from_the_package():
    assert "Session" in parallel.__all__ and parallel.Session is ranks_session.Session


def test_the_class_of_arguments_has_the_defaults_of_the_call():
    usual = {name: one.default for name, one in inspect.signature(parallelize).parameters.items() if name != "model"}
    assert usual == {one.name: one.default for one in dataclasses.fields(arguments.Arguments) if one.name != "model"}
