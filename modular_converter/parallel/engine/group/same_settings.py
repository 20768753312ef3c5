"""What must stay the same on all processes between calls: settings, modules and weights, and tensors that forwards store.

Each process looks at its own settings before a call, and tells the others what has changed, or why it refuses the call
(`CallsOfAll`).
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, wraps
from operator import attrgetter, is_, is_not
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.base.call_state import (
    HOOKS_OF_ALL,
    pickled,
    random_states,
    settings_changes,
    settings_of,
)
from modular_converter.parallel.engine.base.dropout import draw_as_first
from modular_converter.parallel.engine.base.weights_there import stored_there
from modular_converter.parallel.engine.group.kept_gathered import WATCHED, end_broken, keeps_gathered
from modular_converter.parallel.engine.group.parts_of_batch import PartsOfBatch
from modular_converter.parallel.engine.group.process_grid import ProcessGrid, refuse_sparse, refuse_tables
from modular_converter.parallel.engine.group.same_calls import (
    CALLS,
    CallsOfAll,
    Marks,
    digest_of,
    everywhere,
    meet,
    together,
)
from modular_converter.parallel.engine.group.share_tensors import CacheShares, note_writes
from modular_converter.parallel.engine.group.spread import (
    free_gathered,
    gathered_weights,
    gathering,
    mark_parts,
    refuse_half_frozen,
    weights_of_units,
)
from modular_converter.parallel.errors import MAKE_WHOLE, ApplyError
from modular_converter.parallel.modules import HOOKS, OF_TORCH, is_plain, is_same_value, own_attributes
from modular_converter.parallel.shard.apply import cut_sizes, modules_of_cut_sizes
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.torch_private import functorch_is_active
from modular_converter.parallel.torch_switches import TorchSwitches


_VERSION = attrgetter("_version")
_OURS = ("transformers.", "modular_converter.", "torch.distributed.", "torch.utils.")


def modules_with_shares(model: torch.nn.Module) -> dict[str, bool]:
    """The paths of the modules in which processes compute different things, and whether hooks on them would get these.

    A block that ends in a sum takes and returns whole tensors, and so does a model whose processes share out sequences.
    """
    if "_context" in model.__dict__:
        return {path: bool(path) for path, _ in model.named_modules()}
    pieces = model.__dict__["_applied"].resolution.pieces
    cut = {
        name.rpartition(".")[0]
        for name, piece in pieces.items()
        if piece.dim >= 0 and not any(role.whole_outside for role in piece.roles)
    }
    found = {
        path: path in cut or next(model.get_submodule(path).parameters(), None) is None
        for path in modules_of_cut_sizes(model, [f"{path}.weight" for path in cut])
    }
    found.pop("", None)  # its forward has gathered the numbers
    return found


def _hooks_of(model: torch.nn.Module, paths: Iterable[str]) -> list[tuple[str, Mapping[int, Callable[..., Any]]]]:
    return [(path, vars(model.get_submodule(path))[kind]) for path in paths for kind in HOOKS]


def _callers(hooks: Mapping[int, Callable[..., Any]]) -> int:
    """How many of these hooks are the caller's: the library records outputs with hooks of its own."""
    return sum(not str(getattr(one, "__module__", "")).startswith(_OURS) for one in hooks.values())


def _refuse_heads(block: torch.nn.Module, args: Any, result: Any) -> None:
    more = result[1:] if isinstance(result, (tuple, list)) else ()
    if _callers(block._forward_hooks) and any(isinstance(one, torch.Tensor) and one.dim() == 4 for one in more):
        raise ApplyError(
            f"a hook on a {type(block).__name__} would get attention weights of this process's heads alone: take those of "
            "output_attentions=True"
        )


Show = Callable[[Any], Any]


def as_it_is(result: Any) -> Any:
    """The result itself."""
    return result


class SameParts:
    """What the dictionaries of all modules hold, and the hooks of those whose hooks would get this process's share."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.modules = list(model.modules())
        self.owners = [
            (path, one) for path, module in model.named_modules() for one in (module._modules, module._parameters)
        ]
        found = [(path, one, name) for path, one in self.owners for name in one]
        self.where = [f"{path}.{name}" if path else name for path, _, name in found]
        self.kept, self.names = [one for _, one, _ in found], [name for _, _, name in found]
        self.dicts = [one for _, one in self.owners]
        shared = modules_with_shares(model)
        sequence = model.__dict__.get("_sequence")
        self.hooks = _hooks_of(model, [path for path in shared if shared[path]])
        self.hooks_with_gradients = _hooks_of(model, [] if sequence is None else sequence.inside)
        self.blocks = [model.get_submodule(path) for path in shared if not shared[path]]
        self.hooks_of_all = HOOKS_OF_ALL if any(shared.values()) else ()
        self.counts, self.values = list(map(len, self.dicts)), self._now()
        self._look_for_weights()

    def _look_for_weights(self) -> None:
        self.weights = [one for one in self.values if isinstance(one, DTensor) and not one.is_inference()]
        self.versions: list[int] = []

    def note_writes(self) -> bool:
        """Before a forward and a backward; whether there were any since."""
        now = list(map(_VERSION, self.weights))
        wrote = now != self.versions
        if wrote:
            note_writes(self.weights)
            self.versions = now
        return wrote

    def _now(self) -> list[Any]:
        return list(map(dict.get, self.kept, self.names))

    def refuse_others(self, model: torch.nn.Module) -> None:
        """Raise ``ApplyError`` with the first module or weight that was set, added or deleted."""
        hooks = [*self.hooks, *self.hooks_with_gradients] if torch.is_grad_enabled() else self.hooks
        for path, one in hooks:
            if one and _callers(one):
                raise ApplyError(
                    f"{path} has a hook, which would get this process's share: put it on a module around it"
                )
        if any(map(_callers, self.hooks_of_all)):
            raise ApplyError(
                "a hook of all modules (register_module_forward_hook and the like) would get this process's shares: remove it, and "
                "put hooks on the modules that you look at"
            )
        for block in self.blocks:
            if (
                block._forward_hooks
                and _callers(block._forward_hooks)
                and _refuse_heads not in block._forward_hooks.values()
            ):
                block.register_forward_hook(_refuse_heads, prepend=True)
        now, counts = self._now(), list(map(len, self.dicts))
        if counts == self.counts and not any(map(is_not, self.values, now)):
            return
        whole, units = gathered_weights(model), {id(one.sharded_param) for one in weights_of_units(model)}
        now = [whole.get(id(one), one) for one in now]
        others = [one for one in zip(self.where, self.values, now) if one[1] is not one[2]]
        # The caller may share out weights with `fully_shard`, too.
        changed = [where for where, old, new in others if id(new) not in units or id(old) in units]
        changed += [path or "the model" for (path, _), old, new in zip(self.owners, self.counts, counts) if old != new]
        if changed:
            raise ApplyError(
                f"modules or weights of {changed[0]} were set, added or deleted after parallelize, which would act on no share "
                "and on no gradient of the processes: change the model before parallelize (torch.func takes no sharded weights)"
            )
        self.values = now
        self._look_for_weights()
        if others:
            mark_parts(model)


class StoredShares:
    """The attributes of modules: between calls, stand-ins take the place of tensors.

    Args:
        modules: path -> a module in which processes compute different things.
        groups: the processes that do.
    """

    def __init__(self, modules: Iterable[tuple[str, torch.nn.Module]], groups: Iterable[ProcessGroup]) -> None:
        self.scopes, self.groups = [(path, vars(module)) for path, module in modules], groups
        self.made = [dict(scope) for _, scope in self.scopes]  # constants that no forward has stored
        self.shown: list[tuple[dict[str, Any], str, Any, Any]] = []
        self.attributes, self.lengths = [scope for _, scope in self.scopes], list(map(len, self.made))
        found = [
            (scope, name, one)
            for scope, made in zip(self.attributes, self.made)
            for name, one in made.items()
            if name not in OF_TORCH and not is_plain(one)
        ]
        self.owners, self.names = [scope for scope, _, _ in found], [name for _, name, _ in found]
        self.objects = [one for _, _, one in found]

    def show(self, changed: bool) -> None:
        """After a call: to other code, tensors that it has stored are those that all processes have alike.

        Args:
            changed: whether a plain attribute of a module has become another.
        """
        changed |= bool(self.shown) or list(map(len, self.attributes)) != self.lengths
        if not changed and all(map(is_, map(dict.get, self.owners, self.names), self.objects)):
            return
        self.shown.clear()
        for (path, scope), made in zip(self.scopes, self.made):
            for name, own in scope.items():
                if isinstance(own, torch.Tensor) and own is not made.get(name):
                    there = stored_there(f"{path}.{name}", partial(self._whole, own, f"{path}.{name}"))
                    self.shown.append((scope, name, there, own))
        for scope, name, there, _ in self.shown:
            scope[name] = there

    def hide(self) -> None:
        """Before a call: its forwards read what they have stored."""
        for scope, name, there, own in self.shown:
            if scope.get(name) is there:
                scope[name] = own

    def _whole(self, own: torch.Tensor, where: str) -> torch.Tensor:
        for group in self.groups:
            meet(f"code that reads {where}", group.group)
            if len(set(everywhere((tuple(own.shape), digest_of(own)), group))) > 1:
                raise ApplyError(
                    f"{where} was stored by a forward and is this process's share, {list(own.shape)}: let forward return it, or "
                    "store it in the module around"
                )
        return own


class SameSettings:
    """Plain attributes of modules, ``training`` among them, its configuration, and torch's settings of this process.

    Attributes of a name that is new since ``parallelize`` are the caller's own, and may differ.

    Args:
        grid: the processes; those of the tensor dimension are compared, and those that share out weights for data ranks.
    """

    def __init__(self, model: torch.nn.Module, grid: ProcessGrid) -> None:
        self.grid, group = grid, grid.everyone if grid.layout.shards > 1 else grid.group
        self.calls = model.__dict__[CALLS] = CallsOfAll(dist.get_process_group_ranks(group.group))
        # The processes of a data rank have the same batch; all that gather weights for each other call the same method.
        self.marks, self.part = Marks(), f"batch {grid.data_rank}"
        self.has_equals, self.gathers = grid.group.size > 1 or grid.context is not None, grid.layout.shards > 1
        found = [
            (path, name, vars(module))
            for path, module in model.named_modules()
            for name, value in own_attributes(module).items()
            if is_plain(value)
        ]
        self.where = [f"{path}.{name}" if path else name for path, name, _ in found]
        self.names, self.owners = [name for _, name, _ in found], [owner for _, _, owner in found]
        pieces = model.__dict__["_applied"].resolution.pieces
        sizes = cut_sizes(model, pieces)
        self.sizes = [(path, name) in sizes for path, name, _ in found]
        self.values, self.inside = self._now(), False
        self.parts = SameParts(model)
        shared = [(path, model.get_submodule(path)) for path in modules_with_shares(model)]
        tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
        self.spread = grid.data is not None
        self.batch: PartsOfBatch | None = None
        if self.spread:
            everyone = self.calls if self.gathers else CallsOfAll(dist.get_process_group_ranks(grid.everyone.group))
            self.batch = PartsOfBatch(model, grid, everyone)
        self.tables = tables
        groups = [one for one in (grid.group, grid.context) if one is not None and one.size > 1]
        self.stored = StoredShares(shared, groups)
        self.switches, self.settings = _switches(), known_settings(model)
        self.caches = CacheShares(model) if grid.group.size > 1 else None

    @contextlib.contextmanager
    def compared(self, model: torch.nn.Module, method: str, args: Any, kwargs: Any) -> Iterator[Show]:
        """A call of the model, outermost; what it yields is to be called with the result.

        Raises ``ApplyError`` before it if processes have other settings or arguments for it, or the model other modules or
        weights.
        """
        if self.inside:
            yield as_it_is
            return
        caches = self.caches.hide((args, kwargs)) if self.caches is not None else []
        self.stored.hide()
        self.parts.note_writes()
        changed = False
        try:
            self._begin(model, method, partial(self.marks.of, method, args, kwargs))
            self.inside = True
            with together([self.calls]), gathering(self.spread), self._drawn_alike(model, method):
                yield partial(self._shown, args, kwargs, caches)
        except BaseException as error:
            if self.batch is not None and self.batch.calls is not self.calls and torch.is_grad_enabled():
                # Processes with copies meet in the backward, which this one does not begin.
                self.batch.calls.left(error)
            end_broken(model)
            raise
        finally:
            if self.inside:
                self.inside, before, self.values = False, self.values, self._now()  # what the call has stored
                changed = any(map(is_not, before, self.values))
                if self.spread:
                    self._free(model)
            self.stored.show(changed)

    @contextlib.contextmanager
    def _drawn_alike(self, model: torch.nn.Module, method: str) -> Iterator[None]:
        """Code whose random numbers are the same on all processes with the same batch: ``generate`` draws the first one's.

        Raises ``ApplyError`` behind a forward that has drawn others on a process before; dropout's are the first one's, too.
        """
        if method == "generate" and self.grid.group.size > 1:
            leave = draw_as_first(self.grid.group.group, self.grid.place)
            try:
                yield
            finally:
                leave()
            return
        if functorch_is_active():  # within `torch.func`, which has no bytes of a state
            yield
            return
        dropout = model.__dict__.get("_dropout")
        before, as_first = random_states()[:2], getattr(dropout, "as_first", 0)
        yield
        drawn = [own for own, now in zip(before, random_states()) if own != now]
        if not drawn or not self.has_equals or getattr(dropout, "as_first", 0) != as_first:
            return
        if self.calls.compare(f"numbers of {self.part}", hashlib.sha256(repr(drawn).encode()).hexdigest()):
            raise ApplyError(
                "this call drew random numbers, and processes that compute the same rows drew others: call torch.manual_seed with "
                "the same number before it on all processes of a data rank"
            )

    def _shown(self, args: Any, kwargs: Any, caches: Any, result: Any) -> Any:
        """What the caller gets of a call's result."""
        if self.batch is not None and torch.is_grad_enabled():
            self.batch.note(result, args, kwargs, self.settings)
        elif self.batch is not None and (error := self.calls.of_other_layers()) is not None:  # it may be the last call
            raise error
        return result if self.caches is None else self.caches.show(result, given=caches)

    def _free(self, model: torch.nn.Module) -> None:
        """After a call without gradients, nothing stays gathered, so that weights can be frozen and given to optimizers."""
        if not self.inside and not torch.is_grad_enabled() and not keeps_gathered(model):
            free_gathered(model)

    def _begin(self, model: torch.nn.Module, method: str, mark: Callable[[], str]) -> None:
        """Begin the call together with all processes, or refuse it on all."""
        before, refused, said = (self.values, self.switches, self.settings), None, dict[str, str]()
        try:
            if self.spread:
                refuse_tables(self.tables)
            elif torch.is_grad_enabled():
                refuse_sparse(self.tables)
            refuse_half_frozen(model)
            self.parts.refuse_others(model)
            if len(self.calls.ranks) > 1:
                said = self._changes(model)
        except ApplyError as error:
            refused = error
        try:
            called = {"call": method} if self.gathers else {}
            called |= {self.part: mark()} if self.has_equals else {}
            self.calls.begin(said, refused, called, self.calls.layers.get(""))
        except ApplyError:
            self.values, self.switches, self.settings = before  # a setting that stays is an error again
            raise

    def _now(self) -> list[Any]:
        return list(map(dict.get, self.owners, self.names))

    def _changes(self, model: torch.nn.Module) -> dict[str, str]:
        """Each setting that is another one than in the last call, with its value.

        Raises ``ApplyError`` for an integer of a module whose sizes are shared out, and takes none over then.
        """
        found, now = {}, self._now()
        for where, is_shared_size, old, new in zip(self.where, self.sizes, self.values, now):
            if old is not new and not is_same_value(old, new):
                if is_shared_size and old != new:
                    raise ApplyError(
                        f"{where} was set, but processes share out the sizes of this module, and where their shares "
                        f"differ they would compute others with it; {MAKE_WHOLE}, change it, and parallelize again"
                    )
                found[where] = repr(new) if is_plain(new) else type(new).__name__
        self.values, old, self.switches = now, self.switches, _switches()
        if old != self.switches:
            after = _switch_values(*self.switches)
            found |= {
                f"torch's {name}": repr(after[name])
                for name, one in _switch_values(*old).items()
                if one != after[name]
            }
        known, self.settings = self.settings, known_settings(model)
        return found if known == self.settings else found | settings_since(known, model)


def with_new_parts(own: Callable[..., Any]) -> Callable[..., Any]:
    """A method such as ``_apply``, which may replace all weights."""

    def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = own(self, *args, **kwargs)
        if WATCHED in self.__dict__:
            self.__dict__[WATCHED].parts = SameParts(self)
        return found

    return applied


def compared(model: torch.nn.Module, method: str, args: Any, kwargs: Any) -> contextlib.AbstractContextManager[Show]:
    """The block of a call of a model; compiled code is not compared."""
    found: SameSettings | None = None if torch.compiler.is_compiling() else model.__dict__.get(WATCHED)
    return contextlib.nullcontext(as_it_is) if found is None else found.compared(model, method, args, kwargs)


def compared_call(own: Callable[..., Any]) -> Callable[..., Any]:
    """``__call__``, compared before the hooks: those of ``fully_shard`` gather weights, in which processes must meet."""

    @wraps(own)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with compared(self, "forward", args, kwargs) as show:
            return show(own(self, *args, **kwargs))

    return call


def settings_of_modules(model: torch.nn.Module) -> list[tuple[str, str]]:
    """The numbers and switches that modules inside a model have, and its mode; the model's own others may be the caller's."""
    found = [("training", str(model.training))]
    for path, module in model.named_modules():
        if path:
            own = own_attributes(module).items()
            found += [(f"{path}.{name}", repr(value)) for name, value in own if isinstance(value, (bool, int, float))]
    return found


def _switches() -> tuple[TorchSwitches, bool]:
    return TorchSwitches.here(), torch.is_grad_enabled()


def _switch_values(switches: TorchSwitches, gradients: bool) -> dict[str, Any]:
    return switches.as_dict() | {"grad mode": gradients}


def known_settings(model: torch.nn.Module) -> bytes:
    """The settings of a model (`settings_of`), to be compared with later."""
    try:
        return pickled(settings_of(model))
    except ApplyError:  # an object in them that only this process can have
        return pickle.dumps(None)


def settings_since(known: bytes, model: torch.nn.Module) -> dict[str, str]:
    """Each setting that is another one than it was, such as ``config.use_cache``, with its value; those that are gone, too."""
    found: dict[str, str] = {}
    old = None if known == known_settings(model) else pickle.loads(known)
    for path, values, gone in settings_changes(old, settings_of(model)) if old is not None else ():
        now = {name: repr(value)[:200] for name, value in values.items()} | dict.fromkeys(gone, "gone")
        found |= {".".join((*path, name)): value for name, value in now.items()}
    return found
