"""Calls that two processes begin together, as two threads with one store."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from modular_converter.parallel.engine.group import let_go, same_calls
from modular_converter.parallel.engine.group.same_calls import CallsOfAll, Marks, from_first_process
from modular_converter.parallel.errors import ApplyError


@pytest.fixture
def pair(monkeypatch):
    """The calls of two processes."""
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr(let_go, "REFUSED_LIMIT_S", 0.05)
    monkeypatch.setattr(same_calls, "ended_processes", lambda *args, **kwargs: [])
    found = CallsOfAll([0, 1]), CallsOfAll([0, 1])
    found[1].own, found[1].key = 1, found[0].key
    yield found
    dist.destroy_process_group()


def both(*calls):
    """What both are told, "" for nothing."""

    def told(call):
        try:
            call()
            return ""
        except Exception as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(told, calls))


def begin(pair, *given):
    return both(*(lambda one=one, own=own: one.begin({}, None, own) for one, own in zip(pair, given or ({}, {}))))


def test_a_call_begins_on_all_or_is_refused_on_all(pair):
    zero, one = pair
    assert begin(pair) == ["", ""]
    told = both(lambda: zero.begin({}), lambda: one.begin({"config.x": "2"}))
    assert told[0] == told[1] and told[0].startswith("process 1 has set config.x to 2, and process 0 has not")
    assert begin(pair) == ["", ""]
    told = both(lambda: zero.begin({}), lambda: one.begin({}, ApplyError("no labels")))
    assert told == ["process 1 refuses this call, which all compute together: no labels", "no labels"]
    assert begin(pair) == begin(pair) == ["", ""]
    assert zero.noted == one.noted == 2


def test_a_process_that_has_refused_a_call_may_be_first_in_the_next(pair):
    zero, one = pair
    assert begin(pair, {"batch": "forward:a"}, {"batch": "forward:a"}) == ["", ""]
    refused = ApplyError("no labels")
    both(lambda: zero.begin({}, None, {"batch": "forward:b"}), lambda: one.begin({}, refused, {"batch": "forward:b"}))
    assert one.compare("batch", "forward:c") is None
    assert zero.compare("batch", "forward:d") == (1, "forward:c")


def test_all_call_the_same_with_the_same_batch(pair):
    assert begin(pair, {"call": "forward"}, {"call": "forward"}) == ["", ""]
    told = begin(pair, {"call": "a step"}, {"call": "a forward"})
    others = (
        "0 calls a step, and process 1 a forward: they compute",
        "1 calls a forward, and process 0 a step: they compute",
    )
    assert all(any(other in text for other in others) for text in told), told
    assert begin(pair, {"call": "a step"}, {"call": "a step"}) == ["", ""]
    told = begin(pair, {"batch 0": "forward:1"}, {"batch 0": "forward:2"})
    assert all("processes 0 and 1 divide the same layers" in one for one in told), told
    assert begin(pair, {"batch 0": "forward:1"}, {"batch 1": "forward:2"}) == ["", ""]


def test_an_error_that_one_has_caught_alone_is_told_once(pair):
    zero, one = pair
    error = ApplyError("a write")
    one.left(error)
    one.left(ApplyError("another"))  # behind the first, which is told
    told = begin(pair)
    assert all("process 1 alone was refused something" in text and "a write" in text for text in told), told
    assert begin(pair) == ["", ""]
    one.left(error)  # the same error is told once
    assert begin(pair) == ["", ""]
    zero.left(ApplyError("of both"))
    one.left(ApplyError("of both"))
    assert begin(pair) == ["", ""]


def test_those_that_compute_with_a_process_that_has_failed_inside_see_why(pair):
    zero, one = pair
    one.left(ValueError("caught before"))
    assert zero.of_left(dist.distributed_c10d._get_default_store()) is None
    one.left(ValueError("inside"), inside=True)
    store = dist.distributed_c10d._get_default_store()
    assert "process 1 was refused something alone" in str(zero.of_left(store))
    store.set(
        f"{zero.key}/broken", "why the connections were closed"
    )  # by the first that noticed, which others repeat
    assert str(zero.of_left(store)) == "why the connections were closed"


def test_one_that_does_not_come_is_told_to_the_other_which_withdraws(pair):
    zero, one = pair
    one.left(ValueError("elsewhere"))
    with pytest.raises(ApplyError, match="process 1 was refused something alone.*elsewhere"):
        zero.begin({})
    told = begin(pair)
    assert told == ["", ""] or all("elsewhere" in text for text in told)


def test_one_that_comes_too_late_is_told_and_does_not_meet_the_next_call(pair, monkeypatch):
    zero, _ = pair
    monkeypatch.setattr(same_calls, "CALL_LIMIT_S", 0.05)
    with pytest.raises(ApplyError, match=r"not all of processes \[0, 1\] have called the model"):
        zero.begin({})
    monkeypatch.undo()
    told = begin(pair)
    assert all("process 0 alone was refused something" in text for text in told), told
    assert begin(pair) == ["", ""]


def test_the_end_of_a_call_tells_the_error_of_one_to_all(pair):
    zero, one = pair
    told = both(lambda: zero.ended(None), lambda: one.ended(ApplyError("of a stage")))
    assert told == ["process 1 failed in this call, which all compute together: ApplyError: of a stage", "of a stage"]
    told = both(lambda: zero.ended(None), lambda: one.ended(IndexError("of an id")))
    assert told == ["process 1 failed in this call, which all compute together: IndexError: of an id", "of an id"]
    for error in (UnicodeDecodeError("utf8", b"a", 0, 1, "of bytes"), torch.OutOfMemoryError("of memory")):
        told = both(lambda: zero.ended(None), lambda error=error: one.ended(error))
        assert told[0].startswith("process 1 failed in this call, which all compute together: ")
    assert both(lambda: zero.ended(None), lambda: one.ended(None)) == ["", ""]


def test_marks_tell_batches_apart_but_not_rounded_numbers_and_parts_of_caches():
    def mark(*args, **kwargs):
        return Marks().of("forward", args, kwargs)

    ids, floats = torch.arange(6).view(2, 3), torch.ones(2, 3)
    assert mark(ids).startswith("forward:") and mark(ids) == mark(ids.clone())
    assert len({mark(ids), mark(ids + 1), mark(ids.int()), mark(ids[:1]), mark(input_ids=ids), mark(labels=ids)}) == 6
    assert mark(floats) == mark(floats + 1e-7) != mark(floats[:1])
    assert mark((floats,)) == mark((torch.ones(4, 5),)) != mark((floats[0],))
    assert mark([ids]) != mark([ids + 1])
    assert mark(3) != mark(4) != mark("4") and mark(True) != mark(1)
    assert Marks().of("generate", (ids,), {}) != mark(ids)


def test_a_method_that_all_call_says_whether_a_step_was_made(pair, monkeypatch):
    met = []
    monkeypatch.setattr(same_calls, "meet", lambda method, group: met.append(method))
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: [0, 1])

    class Model:
        @same_calls.called_by_all(lambda _: SimpleNamespace(group=None))
        def clip(self, number):
            return number + 1

    model, other = Model(), Model()
    model.__dict__[same_calls.CALLS], other.__dict__[same_calls.CALLS] = (
        pair[0],
        SimpleNamespace(ranks=[2], stepped=True),
    )
    assert model.clip(1) == other.clip(number=1) == Model().clip(1) == 2
    pair[0].stepped = True
    assert model.clip(1) == 2 and met == ["clip"] * 3 + ["clip behind a step of an optimizer"]


def test_what_the_first_process_alone_could_not_do_is_told(monkeypatch):
    """As a process that the first one tells that its disk is full."""
    other = SimpleNamespace(rank=1, group=None)
    for said in ((None, "OSError: full"), ("of the first", "")):
        monkeypatch.setattr(dist, "broadcast_object_list", lambda found, said=said, **_: found.__setitem__(0, said))
        for make, on_all, begin in (
            (lambda: 1, "save the model", "process 0 could not save the model: "),
            (None, "", ""),
        ):
            if said[0]:
                assert from_first_process(make, other, on_all) == "of the first"
                continue
            with pytest.raises(ApplyError, match=f"^{begin}OSError: full"):
                from_first_process(make, other, on_all)


class Event:
    """Behind the work of a GPU."""

    def __init__(self, over):
        self.query = lambda: over


@pytest.mark.parametrize("over", [False, True])
def test_a_gpu_that_computes_on_behind_a_block_is_let_go(pair, monkeypatch, over):
    zero, one = pair
    closed, store = [], dist.distributed_c10d._get_default_store()
    monkeypatch.setattr(let_go, "_close", closed.append)
    monkeypatch.setattr(let_go, "_work_of_gpu", lambda: Event(over))
    monkeypatch.setattr(let_go, "REFUSED_LIMIT_S", 0.0)
    assert begin(pair) == ["", ""]
    with same_calls.together([zero]):
        pass
    one.left(ValueError("inside"), inside=True)
    for block in let_go._running():
        block.look(store)
    assert closed == ([] if over else [{0, 1}])
    assert not over or not let_go._ON_GPU
    let_go._ON_GPU.clear()
    if not over:
        with pytest.raises(ApplyError, match="process 1 was refused something alone.*inside"):
            zero.begin({})


def test_groups_of_gpus_end_at_once(monkeypatch):
    order = []

    class Group:
        """Of which the backend is a part, for short."""

        def __init__(self, name, *ranks):
            self.abort, self.ranks, self._device_types = lambda: order.append(name), ranks, [torch.device("cuda")]

        def _get_backend(self, device):
            return self

        def _group_start(self):
            order.append("start")

        def _group_end(self):
            order.append("end")

    groups = Group("all", 0, 1), Group("a part", 0, 1), Group("others", 0, 2), Group("alone", 0)
    monkeypatch.setattr(let_go, "world", SimpleNamespace(pg_map=dict.fromkeys(groups)))
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: group.ranks)
    let_go._close({0, 1})
    assert order == ["start", "all", "a part", "end"]
