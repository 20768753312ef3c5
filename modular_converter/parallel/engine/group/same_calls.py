"""All processes must make the same calls: one that calls alone is told, and different arguments are refused.

A call that processes compute together begins on all of them, or is refused on all (`CallsOfAll`).
"""

from __future__ import annotations

import builtins
import contextlib
import datetime
import functools
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeVar, cast
from weakref import WeakSet

import torch
import torch.distributed as dist

from modular_converter.parallel.engine.group import let_go
from modular_converter.parallel.engine.group.let_go import Block, ended_processes, tell_process
from modular_converter.parallel.errors import ApplyError, PlanError, one_line
from modular_converter.parallel.modules import bytes_of, is_plain
from modular_converter.parallel.shard.collectives import ProcessGroup, under_transforms
from modular_converter.parallel.torch_private import default_store, pytree


# Seconds in which all processes must call the method.
LIMIT_S = 15.0
# Processes -> the number of their meetings.
_MET: dict[str, int] = {}


def meet(method: str, group: dist.ProcessGroup | None = None) -> None:
    """``meet_of`` for the processes of a group."""
    meet_of(method, dist.get_process_group_ranks(group))


def meet_of(method: str, ranks: list[int]) -> None:
    """Wait until all of these processes have called a method; all of them must call this.

    A process that gives up withdraws, so that the next call of all of them meets again. The second round keeps a process
    from going on that has seen another one just before it withdrew.

    Raises ``ApplyError`` with the missing processes after ``LIMIT_S``, and at once on all if one has called another method.
    """
    rank, store = dist.get_rank(), default_store()
    name = hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]
    met = _MET.setdefault(name, 0)
    for turn in ("here", "go"):
        keys = {number: f"modular_converter/{name}/{met}/{turn}/{number}" for number in ranks}
        store.set(keys[rank], method)
        try:
            store.wait(list(keys.values()), datetime.timedelta(seconds=LIMIT_S))
        except (RuntimeError, ValueError) as error:  # DistStoreError is a RuntimeError
            missing = [number for number, key in keys.items() if not store.check([key])]
            _withdraw(name, met, rank)
            raise ApplyError(
                f"process {rank} has called {method}, and processes {missing} have not within {LIMIT_S:.0f} s: all processes "
                "must call it, since each has a part of the weights; call dist.barrier() before it where one comes later"
            ) from error
    called = dict(zip(ranks, (one.decode() for one in store.multi_get(list(keys.values())))))
    _withdraw(name, met - 1, rank)  # which no process reads any more
    _MET[name] += 1
    other = next((number for number, text in called.items() if text != method), None)
    if other is not None:
        raise ApplyError(
            f"process {rank} has called {method}, and process {other} {called[other]}: all processes must call the same, in "
            "the same order, since each has a part of the weights"
        )


Method = TypeVar("Method", bound=Callable[..., Any])
Made = TypeVar("Made")


def called_by_all(group_of: Callable[[Any], ProcessGroup]) -> Callable[[Method], Method]:
    """A method that all processes must call together, which meet in it.

    Args:
        group_of: from the object to the processes.
    """

    def made(own: Method) -> Method:
        @functools.wraps(own)
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            group = group_of(self).group
            ranks = dist.get_process_group_ranks(group)
            calls: CallsOfAll | None = self.__dict__.get(CALLS)
            stepped = calls is not None and calls.ranks == ranks and calls.stepped
            meet(own.__name__ + (" behind a step of an optimizer" if stepped else ""), group)
            with together():
                return own(self, *args, **kwargs)

        return cast("Method", called)

    return made


def _withdraw(name: str, met: int, rank: int) -> None:
    """Remove a process's keys of a meeting."""
    for turn in ("here", "go"):
        default_store().delete_key(f"modular_converter/{name}/{met}/{turn}/{rank}")


# Seconds in which all must begin a call: those of a collective of NCCL.
CALL_LIMIT_S = 600.0
_MADE: Counter[str] = Counter()
"""The number of models that processes have made, by their ranks."""
_CALLS: WeakSet[CallsOfAll] = WeakSet()
CALLS = "_calls"
"""In the ``__dict__`` of a model, or of a pipeline."""
_NOTED = 2**32
"""What a process with a note adds to the number of those that have begun a call."""


class CallsOfAll:
    """The calls of a model that processes compute together: each begins on all of them, or is refused on all.

    Otherwise those that were not refused would wait in the call's first collective, and the one that was refused would meet
    them there with its next call, of another batch. Before a call each process counts itself in the store, with a note if
    it refuses, has changed settings, or was refused something since the last call. The notes are read if there are any.

    Args:
        ranks: all of them make it, in the same order.

    Attributes:
        stepped: whether an optimizer has made a step since the last call; None while there was none.
        layers: stage of this process ("" for a whole model) -> the layers that the call under way has entered in it, where each
            gathers weights from all, or averages gradients over them.
        broken: why the connections of these processes are closed; None if they are not.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks, self.own = list(ranks), dist.get_rank()
        name = hashlib.sha256(repr(self.ranks).encode()).hexdigest()[:16]
        _MADE[name] += 1  # processes make their models together; each model has its own keys in the store
        self.key, self.number, self.noted = f"modular_converter/calls/{name}/{_MADE[name]}", 0, 0
        self.refused_before, self.failures, self.times, self.agreed = "", 0, 0, dict[str, str]()
        self.whose = self.own  # the process whose error that is
        self.stepped: bool | None = None
        self.broken: ApplyError | None = None
        self.layers: dict[str, list[str]] = {}
        if len(self.ranks) > 1:
            tell_process(default_store(), self.own)
        _CALLS.add(self)

    def begin(
        self,
        said: Mapping[str, str],
        refused: Exception | None = None,
        called: Mapping[str, str] | None = None,
        layers: Sequence[str] | None = None,
    ) -> None:
        """Wait until all begin the next call.

        Args:
            said: what this process has set since the last call.
            refused: the error of this process, which it raises.
            called: name -> the method, and what is known of its arguments where all that give this name must be given the
                same, which those of a data rank must.
            layers: those of the last forward, which are the same on all where each gathers weights from all.

        Raises ``ApplyError`` (or Python's own error of that process) on all processes if one refuses, was refused something alone, has set something else, calls
        another method, was given another batch, or has made a step that another one has not.
        """
        if self.broken is not None:
            raise self.broken
        if len(self.ranks) > 1:
            steps = {} if layers is None else {_LAYERS: json.dumps([*layers])}
            for name, text in (steps | dict(called or {})).items():
                refused = refused or self._other(name, text)
            if self.stepped is not None:
                refused = refused or self._other("steps", "a step of its optimizer" if self.stepped else "none")
            own = {"refused": str(refused or ""), "before": self.refused_before, "said": dict(said)}
            note = own | {"kind": type(refused).__name__} if any(own.values()) else {}
            try:
                notes = self._met(json.dumps(note) if note else "", refused)
            except ApplyError as error:
                self.left(error)
                raise
            self._clear()
            if refused is None and notes:
                _refuse_notes(notes, self.own)
        if refused is not None:
            raise refused
        self.stepped = None if self.stepped is None else False

    def compare(self, name: str, text: str) -> tuple[int, str] | None:
        """The first process that has begun the next call, and what it has of this name; None if that is the same, or this one's."""
        own, place = f"{self.number + 1} {self.own} {text}", f"{self.key}/{name}"
        found, before = default_store().compare_set(place, self.agreed.get(name, ""), own).decode(), ""
        while found != before and not found.startswith(
            f"{self.number + 1} "
        ):  # of a call that this process has refused
            found, before = default_store().compare_set(place, found, own).decode(), found
        self.agreed[name] = found
        _, first, other = found.split(" ", 2)
        return None if other == text else (int(first), other)

    def of_other_layers(self) -> ApplyError | None:
        """Behind a call: the error if a process that has ended it before has entered other layers in it."""
        for stage, layers in self.layers.items() if len(self.ranks) > 1 else ():
            text = json.dumps(layers)
            if found := self.compare(_COMPUTED + stage, text):
                return _of_layers(found[0], json.loads(found[1]), layers)
        return None

    def _other(self, name: str, text: str) -> ApplyError | None:
        """The error of this process if another one has begun the call with something else of this name."""
        found = self.compare(name, text)
        if found is None:
            return None
        first, other = found
        if name == _LAYERS:
            return _of_layers(first, json.loads(other), json.loads(text))
        if name == COUNTS:
            return ApplyError(
                f"data ranks have {text}, and {other}, and the mean of their losses is not that of the batch: give parts with as many "
                "rows, and labels that count"
            )
        if name == "steps":
            return ApplyError(
                f"process {self.own} has made {text} since the last call, and process {first} {other}: their weights would "
                "be of different steps; make it on all processes, or on none (a GradScaler may have skipped it on one alone)"
            )
        own_method, others = text.partition(":")[0], other.partition(":")[0]
        if own_method != others:
            return ApplyError(
                f"process {self.own} calls {own_method}, and process {first} {others}: they compute a call together, so all must "
                "make the same, in the same order"
            )
        return ApplyError(
            f"processes {min(first, self.own)} and {max(first, self.own)} divide the same layers, stages or sequences and were given different batches: give both "
            "the same batch, in the same order; in a layout, part model.data_rank of model.layout.data, which is the same for both"
        )

    def ended(self, error: Exception | None) -> None:
        """Wait until all have computed a call to its end, which processes with an error of their own have done, too.

        Raises the error, and on all other processes one with its words, of its class if that is Python's own.
        """
        if len(self.ranks) > 1:
            own = {"failed": one_line(error, 600), "kind": type(error).__name__} if error else {}
            notes = self._met(json.dumps(own) if own else "", None)
            rank = next((rank for rank, note in notes.items() if note.get("failed")), None)
            if error is None and rank is not None:
                note = notes[rank]
                raise _as_there(
                    note, f"process {rank} failed in this call, which all compute together: {note['failed']}"
                )
        if error is not None:
            raise error

    def left(self, error: BaseException, inside: bool = False) -> None:
        """Note an error by which this process has left what all do; if it was alone, the next call is refused on all.

        Args:
            inside: of what processes compute together; those that wait there for this one end, unless they leave it, too.
        """
        seen = error.__dict__.setdefault("_noted_in", set())
        if len(self.ranks) == 1 or self.key in seen:
            return
        seen.add(self.key)
        if inside or not self.refused_before:
            self.whose, self.refused_before = getattr(error, "of_process", (self.own, one_line(error, 600)))
        self.failures, self.times = self.failures + inside, self.times + 1
        note = [self.number, self.failures, self.times, self.whose, self.refused_before]
        with contextlib.suppress(RuntimeError):  # the store has ended with the process that has it
            default_store().set(f"{self.key}/refused/{self.own}", json.dumps(note))

    def _clear(self) -> None:
        if self.refused_before:
            self.refused_before, self.failures, self.times = "", 0, 0
            default_store().delete_key(f"{self.key}/refused/{self.own}")

    def _met(self, note: str, refused: Exception | None) -> dict[int, dict[str, Any]]:
        """The notes of all processes, once all begin this call; empty if no process has one."""
        store, place = default_store(), f"{self.key}/{self.number + 1}"
        if note:
            store.set(f"{place}/{self.own}", note)
        term = 1 + _NOTED * bool(note)
        noted, begun = divmod(store.add(f"{self.key}/begun", term), _NOTED)
        if begun == (self.number + 1) * len(self.ranks):  # the last one
            store.set(f"{place}/go", str(noted))
            store.delete_key(f"{self.key}/{self.number}/go")
        else:
            self._wait(place, term, refused)
            noted = int(store.get(f"{place}/go"))
        self.number += 1
        if noted == self.noted:
            return {}
        self.noted = noted
        keys = {rank: f"{place}/{rank}" for rank in self.ranks}
        return {rank: json.loads(store.get(key)) if store.check([key]) else {} for rank, key in keys.items()}

    def _wait(self, place: str, term: int, refused: Exception | None) -> None:
        """Until the last process begins. Raises ``ApplyError``, also that of this process, if one does not come."""
        store, start = default_store(), time.monotonic()
        told = start + let_go.REFUSED_LIMIT_S
        while not store.check([f"{place}/go"]):
            now = time.monotonic()
            if now > told:
                told = now + 1.0
                found = refused or self._of_missing(now - start)
                if found and self._withdrawn(term):
                    raise found
            time.sleep(min(max((now - start) / 8, 5e-5), 0.01))

    def _of_missing(self, waited_s: float) -> ApplyError | None:
        """The error about processes that do not come; None if they still may."""
        store = default_store()
        if store.check([f"{self.key}/broken"]):
            return ApplyError(store.get(f"{self.key}/broken").decode())
        found = self._refused(store)
        alone = len(found) < len(self.ranks)  # else the same has happened to all
        own = found[self.own][2] if self.own in found else 0
        others = [note for rank, note in found.items() if rank != self.own and (alone or note[2] > own)]
        if others:
            return _alone(*others[0][3:])
        if ended := ended_processes(store, self.ranks, killed_only=False):
            return _has_ended(ended[0])
        if found and alone:
            return _alone(*found[self.own][3:])
        if waited_s > CALL_LIMIT_S:
            return ApplyError(
                f"not all of processes {self.ranks} have called the model within {CALL_LIMIT_S:.0f} s, and this one has"
            )
        return None

    def _refused(self, store: Any) -> dict[int, tuple[int, int, int, int, str]]:
        """Process -> the call in which it noted an error, how many were inside of it, how many in all, whose it is, and the error."""
        keys = {rank: f"{self.key}/refused/{rank}" for rank in self.ranks}
        return {rank: tuple(json.loads(store.get(key))) for rank, key in keys.items() if store.check([key])}

    def of_left(self, store: Any) -> ApplyError | None:
        """The error about a process that does not compute this call any more, which this one does; None if all may."""
        if store.check([f"{self.key}/broken"]):
            return ApplyError(store.get(f"{self.key}/broken").decode())
        for rank, (number, failures, _, whose, text) in self._refused(store).items():
            if rank != self.own and failures and (number, failures) > (self.number, self.failures):
                return _alone(whose, text)
        if ended := ended_processes(store, self.ranks, killed_only=True):
            return _has_ended(ended[0])
        return self._of_computed(store) or self._of_entered(store)

    def _of_computed(self, store: Any) -> ApplyError | None:
        """The error of a process that waits in a layer which another one, that is through with this forward, has not entered."""
        places = [(_LAYERS, one) for stage, one in self.layers.items() if not stage]
        places += [(_COMPUTED + stage, one) for stage, one in self.layers.items()]
        for name, layers in places:
            place = f"{self.key}/{name}"
            if not store.check([place]):
                continue
            own = [*layers]
            number, first, text = store.get(place).decode().split(" ", 2)
            theirs = json.loads(text)
            if int(number) == self.number + 1 and int(first) != self.own and theirs[: len(own)] != own:
                return _of_layers(int(first), theirs, own)
        return None

    def _of_entered(self, store: Any) -> ApplyError | None:
        """The error if another process, which waits in this call, too, has come into other layers; the others see those of this one."""
        if not self.layers:
            return None
        own = {stage: [*one] for stage, one in self.layers.items()}
        store.set(f"{self.key}/entered/{self.own}", json.dumps([self.number, own]))
        for rank in self.ranks:
            place = f"{self.key}/entered/{rank}"
            number, other = json.loads(store.get(place)) if store.check([place]) else (-1, {})
            for stage in own if number == self.number else ():
                theirs = other.get(stage, [])
                if any(a != b for a, b in zip(own[stage], theirs)):
                    return _of_layers(rank, theirs, own[stage])
        return None

    def _withdrawn(self, term: int) -> bool:
        """Whether this process was in time to begin this call no more."""
        store = default_store()
        begun = store.add(f"{self.key}/begun", -term) % _NOTED
        if begun < (self.number + 1) * len(self.ranks) - 1:
            return True
        store.add(f"{self.key}/begun", term)
        return False


_LAYERS, _COMPUTED = "layers", "computed"
COUNTS = "counts"
"""Of a call: what the mean of its loss divides by."""


def _of_layers(first: int, theirs: Sequence[str], own: Sequence[str]) -> ApplyError:
    pairs = zip_longest(theirs, own, fillvalue="no other")
    their, this = next((pair for pair in pairs if pair[0] != pair[1]), ("others", "these"))
    return ApplyError(
        f"process {first} computed layer {their} of its part of a batch where this one computed {this}: each layer gathers "
        "weights from all processes, or averages gradients over them, so all must compute the same: choose layers by what does not "
        "depend on the part, or take a layout without ddp, fsdp and cp, such as tp2"
    )


def _alone(rank: int, text: str) -> ApplyError:
    found = ApplyError(
        f"process {rank} was refused something alone, and no longer makes the same calls as the others: {text}"
    )
    found.__dict__["of_process"] = rank, text
    return found


def _closed(calls: Iterable[CallsOfAll]) -> ApplyError:
    """Why another process has closed its connection, which it does before it can be seen to have ended."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        for one in calls:
            if found := one._of_missing(0.0):
                return found
        time.sleep(0.05)
    return ApplyError("a process that computes with this one has ended, or closed its connections: see its own error")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _as_there(note: Mapping[str, Any], words: str) -> Exception:
    """An error of another process, of its class if that is Python's own."""
    own = vars(builtins).get(note["kind"])
    if isinstance(own, type) and issubclass(own, Exception):
        with contextlib.suppress(TypeError):  # it is made of other values
            return own(words)
    return ApplyError(words)


def _has_ended(rank: int) -> ApplyError:
    return ApplyError(
        f"process {rank} has ended, and the others have calls that all compute together: see its own error"
    )


_CLOSED = ("closed by peer", "reset by peer", "remote process exited", "caused pair closure", "Broken pipe")
"""In torch's errors of a collective in which a process waits for one that has ended, or was let go."""


@contextlib.contextmanager
def together(calls: Iterable[CallsOfAll] | None = None) -> Iterator[None]:
    """What processes compute together: an error by which one leaves it is told to all, also to those that wait for it.

    Forwards, backwards, steps, ``generate``, and methods that all processes call are in such a block, and no other code tells
    errors to other processes.

    Args:
        calls: of the models that compute; those of all models of this process if None.
    """
    own = [one for one in (_CALLS if calls is None else calls) if len(one.ranks) > 1]
    block = Block(own)
    try:
        with block:
            yield
    except BaseException as error:
        told = block.found
        if told is None and any(text in str(one) for one in _causes(error) for text in _CLOSED):
            told = _closed(own)
        for one in own:
            one.broken = one.broken or told
            one.left(told or error, inside=True)
        ours = next((one for one in _causes(error) if isinstance(one, ApplyError)), error)
        if told is None and ours is not error:
            raise ours  # noqa: B904  # which torch's error is made of
        if told is None or told is error:
            raise
        raise told from error


def _refuse_notes(notes: Mapping[int, Mapping[str, Any]], own: int) -> None:
    """Raise ``ApplyError`` if a process refuses the call, was refused something alone, or has set something else."""
    refused = next((rank for rank, note in notes.items() if note.get("refused")), None)
    if refused is not None:
        note = notes[refused]
        raise _as_there(note, f"process {refused} refuses this call, which all compute together: {note['refused']}")
    before = [rank for rank, note in notes.items() if note.get("before")]
    if before and len(before) < len(notes):
        raise ApplyError(
            f"process {before[0]} alone was refused something since the last call, so that it may have done less than the others: "
            f"{notes[before[0]]['before']} (an error must end a step on all processes, or on none; the next call goes on)"
        )
    said = {rank: note.get("said", {}) for rank, note in notes.items()}
    one = own if said[own] else next((rank for rank in said if said[rank]), own)
    other = next((rank for rank in said if said[rank] != said[one]), None)
    if other is not None:
        others = {name: value for name, value in said[one].items() if said[other].get(name) != value} or said[one]
        found = ", ".join(f"{name} to {value}" for name, value in list(others.items())[:3])
        raise ApplyError(
            f"process {one} has set {found}, and process {other} has {'set others' if said[other] else 'not'}: they compute "
            "this call together, so settings must be the same on all"
        )


def refused_here(words: str) -> ApplyError:
    """An error about weights that other code has, which this process may get alone; the next call tells the others."""
    found = ApplyError(words)
    if dist.is_initialized():
        for one in list(_CALLS):
            one.left(found)
    return found


def everywhere(value: Any, group: ProcessGroup) -> list[Any]:
    """The values of all processes of a group, in order; all must call it."""
    found: list[Any] = [None] * group.size
    dist.all_gather_object(found, value, group=group.group)
    return found


def from_first_process(make: Callable[[], Made], group: ProcessGroup, on_all: str = "") -> Made:
    """What ``make`` returns on the first process, on all processes; all must call it.

    Args:
        on_all: what ``make`` does, if all processes run it. One that fails raises its own error.

    Raises ``ApplyError`` on all processes for any error on the first process: the others would wait for ever.
    """
    found: list[Any] = [(None, "")]
    cause: Exception | None = None
    if on_all or group.rank == 0:
        try:
            found = [(make(), "")]
        except Exception as error:
            cause = error
            found = [(None, str(error) if isinstance(error, PlanError) else one_line(error, 300))]
    dist.broadcast_object_list(found, group=group.group, group_src=0)
    if on_all and cause is not None:
        raise cause
    made: Made
    made, failure = found[0]
    if failure:
        raise ApplyError(f"process 0 could not {on_all}: {failure}" if on_all else failure) from cause
    return made


def refuse_other_options(said: str) -> None:
    """Raise ``ApplyError`` on all processes if one of them was given other options; all processes must call it."""
    found = everywhere(said, ProcessGroup(None))
    other = next((rank for rank, text in enumerate(found) if text != found[0]), None)
    if other is not None:
        raise ApplyError(
            f"process {other} was given {found[other]}, and process 0 {found[0]}: give the same everywhere"
        )


class Marks:
    """What can be known of the batches that a process is given, without waiting for a GPU.

    Whole numbers on a GPU are summed there; their sums are part of what is known in the next call.
    """

    def __init__(self) -> None:
        self.before: tuple[torch.Tensor, Any] | None = None

    def of(self, method: str, args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
        """The method of a call, and its arguments in short. Of a cache, a process may have the part of its own heads."""
        leaves, inside, last, self.before = list[Any](), set[int](), self.before, None
        for value in (*args, *(part for name in sorted(kwargs) for part in (name, kwargs[name]))):
            found = pytree.tree_leaves(value)
            leaves += found
            inside.update(id(one) for one in found if one is not value)
        known: list[Any] = []
        if last is not None:
            last[1].synchronize()
            known.append(last[0].tolist())
        there = [
            one for one in leaves if isinstance(one, torch.Tensor) and one.is_cuda and not one.is_floating_point()
        ]
        if there:
            sums = torch.stack([part for one in there for part in _sums(one)]).to("cpu", non_blocking=True)
            self.before = sums, torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.before[1].record()
        known += [
            (tuple(one.shape), str(one.dtype)) if any(one is some for some in there) else _mark(one, id(one) in inside)
            for one in leaves
        ]
        return f"{method}:{hashlib.sha256(repr(known).encode()).hexdigest()}"


def _sums(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two sums of whole numbers, the second of which depends on their order."""
    flat = tensor.detach().reshape(-1).long()
    return flat.sum(), (flat * (torch.arange(len(flat), device=flat.device) % 8191)).sum()


def _mark(leaf: Any, inside: bool) -> Any:
    """The facts of one input that must be equal."""
    if not isinstance(leaf, torch.Tensor):
        settings = getattr(leaf, "to_dict", None)  # of a configuration
        return type(leaf).__name__, repr(leaf) if is_plain(leaf) else repr(settings()) if settings else ""
    about = tuple(leaf.shape), str(leaf.dtype)
    if leaf.is_floating_point() or leaf.is_complex() or leaf.is_meta or under_transforms():
        return (
            (leaf.dim(), about[1]) if inside else about
        )  # computed values may be rounded differently on other devices, and rows of `vmap` have no numbers
    return *about, digest_of(leaf)


def digest_of(tensor: torch.Tensor) -> str:
    """A tensor's numbers in short."""
    return hashlib.sha256(bytes_of(tensor)).hexdigest()
