"""The models on one rank: built from a skeleton and shares, run, timed, given back share by share, dropped."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import Skeleton, assemble_model
from modular_converter.parallel.engine.base.attention_heads import WholeAttentions, local_modules, wants_attentions
from modular_converter.parallel.engine.base.call_state import (
    Change,
    Changes,
    Held,
    adopt,
    apply_changes,
    changed_since,
    settings_of,
)
from modular_converter.parallel.engine.base.dropout import SharedDropout
from modular_converter.parallel.engine.base.memory import usage
from modular_converter.parallel.engine.base.watched_code import CodeFacts, take_over
from modular_converter.parallel.engine.base.watched_state import StateChange, WatchedState
from modular_converter.parallel.engine.checkpoint.reader import Reader, Recipe, read_share
from modular_converter.parallel.engine.remote.caller_state import apply_difference, configs_in
from modular_converter.parallel.engine.remote.loaded import Called, Loaded, fill_whole
from modular_converter.parallel.engine.remote.placement import Span, copy_rows, moves_of
from modular_converter.parallel.engine.remote.remote_values import StoredTensor, as_on_rank, check_plain, hold
from modular_converter.parallel.engine.remote.same_answers import (
    WholeFacts,
    compare_answers,
    different_text,
    shares_that_stay,
)
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.inference.fused import unfuse
from modular_converter.parallel.inference.generation import (
    GENERATE_BATCH,
    choose_cache,
    counts_vary,
    make_agree,
    paged_batches,
    tokens_of,
)
from modular_converter.parallel.inference.plain_forwards import DirectGroup, make_inference, put_on_modules
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece, resolve
from modular_converter.parallel.ranks.answering import Answering, DifferentAnswers
from modular_converter.parallel.ranks.packing import COPY, read_tensor
from modular_converter.parallel.ranks.protocol import EVENT
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.forwards import check_ids
from modular_converter.parallel.shard.shares import share_shape
from modular_converter.parallel.torch_switches import TorchSwitches


class Worker(Answering):
    """The state of one rank between messages."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.group = DirectGroup(meet=self.progress.meet)
        self.models: dict[int, Loaded] = {}
        self.casting: Callable[[torch.device], Any] = lambda device: contextlib.nullcontext()

    def resolve(self, pid: Any) -> Any:
        number = pid[1]
        for loaded in self.models.values():
            if number in loaded.held:
                return loaded.held[number]
        raise ApplyError("a cache among the arguments is no longer on these ranks: its model has been taken back")

    def on_load(self, number: int, skeleton: Skeleton, plan: str, tried: int, there: dict[int, int]) -> None:
        """Build a model without weights and allocate this rank's shares, except those that a tried model has."""
        model, made = assemble_model(skeleton, self.device)
        check_ids(model)
        resolution = resolve(Plan.parse(plan), model)
        pieces = {n: resolution.pieces[i.name] for n, i in enumerate(skeleton.items) if i.name in resolution.pieces}
        shares = {}
        for index, item in enumerate(skeleton.items):
            if index in there:
                shares[index] = self.models[tried].shares[there[index]]
                continue
            piece = pieces.get(index)
            shape = share_shape(item.shape, piece, self.group.rank, self.group.size)
            shares[index] = torch.empty(shape, dtype=item.kept, device=self.device) if item.parameter else made[index]
        self.models[number] = Loaded(model, skeleton, shares, pieces, resolution)
        self.answer(None)

    def on_parcel(self, number: int, base: int, spans: list[Span]) -> None:
        """Copy this rank's part of the rows in the shared area."""
        loaded = self.models[number]
        for span in spans:
            item = loaded.skeleton.items[span.number]
            shape = (span.last - span.first, *item.shape[1:])
            chunk = read_tensor(self.down, base + span.offset, item.dtype, shape)
            piece = loaded.pieces.get(span.number)
            target = loaded.shares[span.number]
            target = target if item.shape else target.view(1)
            moves = moves_of(piece, item.shape, self.group.rank, self.group.size)
            copy_rows(chunk, span.first, target, piece.dim if piece else 0, moves)
        self.answer(None)

    def on_read(self, number: int, recipes: dict[int, Recipe]) -> None:
        """Read this rank's shares of some weights from files; answer with the number of bytes read."""
        loaded, group = self.models[number], self.group
        with Reader() as reader:
            for index, recipe in recipes.items():
                read_share(reader, recipe, loaded.pieces.get(index), group.rank, group.size, loaded.shares[index])
        self.answer(reader.bytes)

    def on_finish(self, number: int, plan: str, compile: bool) -> None:
        """Give the model its shares, and the form for inference."""
        loaded = self.models[number]
        model = loaded.model
        numbers = {item.name: index for index, item in enumerate(loaded.skeleton.items) if item.parameter}
        by_identity = {id(p): numbers[name] for name, p in model.named_parameters()}

        def share(parameter: torch.nn.Parameter, piece: Piece, group: Any) -> torch.Tensor:
            return loaded.shares[by_identity[id(parameter)]]

        keep = list(model.parameters())  # alive, so that identities stay unique
        loaded.plan = Plan.parse(plan)
        applied = apply(model, loaded.plan, self.group, share)
        fill_whole(model, loaded, by_identity)
        loaded.local = local_modules(model, applied.resolution.pieces)
        loaded.copies = applied.copies()
        make_inference(applied, self.group, compile)
        del keep
        loaded.compiled = compile
        make_agree(model, self.group, self.progress.step)
        loaded.attentions = WholeAttentions(model, loaded.resolution.pieces if loaded.resolution else {}, self.group)
        settings = vars(settings_of(model))
        left_out = [*configs_in(settings.values()), *put_on_modules(model)]
        loaded.state = WatchedState(model, settings, left_out, stored_alone=True)
        paths = {id(module): path for path, module in model.named_modules()}
        self.answer([(paths[id(of)], name) for of, name, _ in applied.integers if id(of) in paths])

    def on_call(
        self, number: int, path: str, method: str, args: Any, kwargs: Any, states: Any, share: bool, name: int
    ) -> None:
        """Run a method of a model, or of a module in it, under the caller's random state; the first rank answers.

        Hooks on the model itself run in the main process around ``forward``, but here inside of other methods.
        """
        loaded = self.models[number]
        adopt(states, self.device)
        changes = Changes((args, kwargs), (held for one in self.models.values() for held in one.held.values()))
        args, kwargs = as_on_rank(args, kwargs, self._event, lambda other: self.models[other].model)
        called = Called(path, method, args, kwargs)
        if loaded.compiled and method != GENERATE_BATCH:
            choose_cache(loaded.model, kwargs)
        if loaded.dropout is not None and called.is_forward:
            loaded.dropout.given, loaded.dropout.whole = (args, kwargs), None
        # A token needs no gradients. A static cache may also be asked for by a call.
        varying = counts_vary() if method == "generate" else contextlib.nullcontext()
        with torch.inference_mode(), varying, self._form_of(loaded, called), self.casting(self.device):
            result = called.on(loaded.model)
            # Before the run without data of a check, which draws numbers, too.
            drawn, changed = changed_since(states, self.device), changes.now()
            stays, check = self._agreed(loaded, called, tokens_of(result) if method == GENERATE_BATCH else result)
        stored = self._stored(loaded, called, name)
        answer = None if self.group.rank else (result, drawn, stored, changed)
        self._answer_and_hold(loaded, result, answer, name, share and not self.group.rank, stays, check)

    def _agreed(self, loaded: Loaded, called: Called, result: Any) -> tuple[list[Any], Callable[[], None]]:
        """The values of a result that stay here because they hold shares, and a check of all other values.

        The check waits for the device. Its errors are the same on all ranks.
        """
        compared = compare_answers(result, self.group.size, self.group.gather, self.device)
        kind = loaded.kind_of(called, compared.tensors)
        whole = functools.cache(lambda: loaded.facts(called, self.group if compared.plain else None))
        facts = WholeFacts() if kind in loaded.seen else whole()
        stays: dict[str, Any] = {}
        if any(len(path) > 1 for path in compared.tensors):
            takes = inspect.signature(type(called.target(loaded.model)).forward).parameters
            known = [path for path in compared.tensors if path and path[0] in loaded.seen.get(kind, ())]
            shares = [*known, *compared.different(), *facts.shares_in(compared)]
            stays = shares_that_stay(result, shares, takes)

        def check() -> None:
            left = {path: tensor for path, tensor in compared.tensors.items() if not path or path[0] not in stays}
            facts.refuse_shares(compared, left)
            if different := [path for path in compared.different() if path in left]:
                whole().refuse_shares(compared, left)
                # The plan's proof says that the ranks have the same answer of the model itself.
                apart = not called.path and not loaded.trial and not compared.plain.keys() >= set(different)
                raise (DifferentAnswers if apart else ApplyError)(different_text(different[0]))
            loaded.seen.setdefault(kind, frozenset(stays))

        return list(stays.values()), check

    def _stored(self, loaded: Loaded, called: Called, call: int) -> list[StateChange]:
        """What the call has stored on modules: plain values, new contents of buffers, and marks for tensors."""
        found = loaded.stored_since(called, call) if loaded.state is not None and not loaded.trial else []
        buffers = {one.where: one.value for one in found if one.is_buffer and isinstance(one.value, torch.Tensor)}
        with torch.inference_mode():
            compared = compare_answers(buffers, self.group.size, self.group.gather, self.device)
        apart = {path[0] for path in compared.different()}
        return [loaded.without_shares(one, call, called, one.where in apart, self.group) for one in found]

    def on_stored(self, number: int, stored: StoredTensor) -> None:
        """Answer with a tensor that the last call has stored on a module."""
        loaded = self.models[number]
        value, facts = loaded.stored_value(stored)
        with torch.inference_mode():
            compared = compare_answers(value, self.group.size, self.group.gather, self.device)

        def check() -> None:
            try:
                facts.refuse_shares(compared, compared.tensors)
                if compared.different():
                    raise ApplyError(different_text(()))
            except ApplyError as error:
                raise ApplyError(f"{stored.where} was stored by the call on the ranks: {error}") from None

        self.answer(None if self.group.rank else value, check=check)

    def on_switches(self, switches: TorchSwitches) -> None:
        """Take over torch's settings of the caller's process."""
        switches.take_over(self.device)
        self.casting = switches.casting
        self.answer(None)

    def on_code(self, facts: CodeFacts) -> None:
        """Take over constants of the caller's code; answer with the names of functions that are other ones here."""
        self.answer(take_over(facts))

    def on_state(self, number: int, changes: list[tuple[StateChange, bool]]) -> None:
        """Repeat the caller's changes of modules."""
        loaded = self.models[number]
        for one, in_place in changes:
            apply_difference(loaded.model, one, in_place)
            if one.name != "training":
                unfuse(loaded.model.get_submodule(one.path))
            loaded.changed[one.path, one.name, one.is_buffer] = one
        if any(one.name == "training" for one, _ in changes):
            self._share_dropout(loaded)
        loaded.seen.clear()  # the form of results may be another one
        if loaded.state is not None:
            loaded.state.note()
        self.answer(None)

    def _share_dropout(self, loaded: Loaded) -> None:
        """Let shares drop what the whole model would drop, while some module is in training mode."""
        trains = any(module.training for module in loaded.model.modules())
        if trains and loaded.compiled:
            raise ApplyError("a model on ranks with compile=True has no training mode; leave compile= out")
        if trains and loaded.dropout is None:
            loaded.dropout = SharedDropout(loaded.model, loaded.skeleton, None, self.device)
        elif not trains and loaded.dropout is not None:
            loaded.dropout.detach()
            loaded.dropout = None

    def _form_of(self, loaded: Loaded, called: Called) -> Any:
        """What a call changes for its time: the caches of batches are each rank's own, attention weights are whole."""
        if called.method == GENERATE_BATCH:
            return paged_batches(loaded.model, type(loaded.model), self.group, self.device, loaded.copies)
        if not wants_attentions(loaded.model, called.args, called.kwargs):
            return contextlib.nullcontext()
        return loaded.attentions.everywhere()

    def on_trial(self, number: int) -> None:
        """From now on, answers of this model that differ between the ranks are an ordinary error."""
        self.models[number].trial = True
        self.answer(None)

    def _answer_and_hold(
        self,
        loaded: Loaded,
        result: Any,
        answer: Any,
        name: int,
        share: bool = False,
        stays: Sequence[Any] = (),
        check: Callable[[], None] | None = None,
    ) -> None:
        """Send an answer with the caches of a result as handles; keep the caches if the answer was sent."""
        held = hold([result, *map(Held, stays)], name, loaded.held)
        new = held.keys() - loaded.held.keys()
        loaded.held.update(held)
        if not self.answer(answer, {id(v): k for k, v in held.items()}, share, check):
            for unnamed in new:
                del loaded.held[unnamed]

    def _event(self, kind: str, value: Any) -> None:
        if self.group.rank == 0:
            value = value.cpu() if isinstance(value, torch.Tensor) else value
            self.pipe.send_bytes(EVENT + pickle.dumps((kind, value)))

    def on_hold(self, number: int, held: int, value: Any) -> None:
        """Keep an object of the caller."""
        self.models[number].held[held] = value
        self.answer(None)

    def on_method(self, number: int, held: int, method: str, args: Any, kwargs: Any, name: int) -> None:
        """Run a method of an object that stays here, or read an attribute if ``args`` is None."""
        if number not in self.models:
            raise ApplyError("the model of this cache has been taken back, and its cache with it")
        loaded = self.models[number]
        value = loaded.held[held]
        with torch.inference_mode():  # static caches are written in place, and were made in this mode
            if method == COPY:
                result = copy.deepcopy(value)
            else:
                result = getattr(value, method) if args is None else getattr(value, method)(*args, **kwargs)
        check_plain(result, f"{type(value).__name__}.{method}")
        self._answer_and_hold(loaded, result, None if self.group.rank else result, name)

    def on_settings(self, number: int, changes: list[Change]) -> None:
        """Repeat the caller's changes of settings."""
        loaded = self.models[number]
        apply_changes(loaded.model, loaded.copies, changes)
        self.answer(None)

    def on_rows(self, number: int, index: int, first: int, last: int) -> None:
        """Answer with rows of this rank's share of a tensor; for a whole tensor only on the first rank."""
        loaded = self.models[number]
        share = loaded.shares[index]
        wanted = self.group.rank == 0 or index in loaded.pieces and loaded.pieces[index].dim >= 0
        self.answer((share.view(1) if share.dim() == 0 else share)[first:last] if wanted else None)

    def on_memory(self) -> None:
        """Answer with the memory of this rank's device."""
        self.answer(usage(self.device))

    def on_forget(self, unneeded: list[tuple[int, range | None]]) -> None:
        """Drop models, or objects that are kept for the caller. There is no answer."""
        for number, objects in unneeded:
            if objects is None:
                self.models.pop(number, None)
            elif number in self.models:
                held = self.models[number].held
                for key in [key for key in held if key in objects]:
                    del held[key]
        if self.device.type == "cuda" and any(objects is None for _, objects in unneeded):
            with contextlib.suppress(torch.AcceleratorError):  # the next call has it, too
                torch.cuda.empty_cache()
