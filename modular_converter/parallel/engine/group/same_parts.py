"""The modules and weights of a model stay those of ``parallelize``: others have neither shares nor averaged gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_not
from typing import Any

import torch

from modular_converter.parallel.engine.group.spread import gathered_weights
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.apply import modules_of_cut_sizes


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OURS = ("transformers.", "modular_converter.", "torch.distributed.")


def modules_with_shares(model: torch.nn.Module) -> dict[str, bool]:
    """The paths of the modules in which processes compute different things, and whether hooks on them would get these.

    A block that ends in a sum takes and returns whole tensors.
    """
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


def _callers(hooks: Mapping[int, Callable[..., Any]]) -> bool:
    """Whether one of these hooks is the caller's: the library records outputs with hooks of its own."""
    return any(not str(getattr(one, "__module__", "")).startswith(_OURS) for one in hooks.values())


def _refuse_heads(block: torch.nn.Module, args: Any, result: Any) -> None:
    more = result[1:] if isinstance(result, (tuple, list)) else ()
    if _callers(block._forward_hooks) and any(isinstance(one, torch.Tensor) and one.dim() == 4 for one in more):
        raise ApplyError(
            f"a hook on a {type(block).__name__} would get attention weights of this process's heads alone: take those of "
            "output_attentions=True"
        )


class SameParts:
    """What the dictionaries of all modules hold, and the hooks of those whose hooks would get this process's share."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.owners = [
            (path, one) for path, module in model.named_modules() for one in (module._modules, module._parameters)
        ]
        found = [(path, one, name) for path, one in self.owners for name in one]
        self.where = [f"{path}.{name}" if path else name for path, _, name in found]
        self.kept, self.names = [one for _, one, _ in found], [name for _, _, name in found]
        self.dicts = [one for _, one in self.owners]
        shared = modules_with_shares(model)
        self.hooks = [
            (path, vars(model.get_submodule(path))[kind]) for path in shared if shared[path] for kind in _HOOKS
        ]
        self.blocks = [model.get_submodule(path) for path in shared if not shared[path]]
        self.hooked = [len(one) for _, one in self.hooks]
        self.counts, self.values = list(map(len, self.dicts)), self._now()

    def _now(self) -> list[Any]:
        return list(map(dict.get, self.kept, self.names))

    def refuse_others(self, model: torch.nn.Module) -> None:
        """Raise ``ApplyError`` with the first module or weight that was set, added or deleted."""
        for (path, one), before in zip(self.hooks, self.hooked):
            if len(one) > before and _callers(one):
                raise ApplyError(
                    f"{path} has a hook, which would get this process's share: put it on a module around it"
                )
        for block in self.blocks:
            if _callers(block._forward_hooks) and _refuse_heads not in block._forward_hooks.values():
                block.register_forward_hook(_refuse_heads, prepend=True)
        now, counts = self._now(), list(map(len, self.dicts))
        if counts == self.counts and not any(map(is_not, self.values, now)):
            return
        whole = gathered_weights(model)  # which `fully_shard` puts in place for products
        both = zip(self.where, self.values, now)
        changed = [where for where, old, new in both if old is not new and whole.get(id(new)) is not old]
        changed += [path or "the model" for (path, _), old, new in zip(self.owners, self.counts, counts) if old != new]
        if changed:
            raise ApplyError(
                f"modules or weights of {changed[0]} were set, added or deleted after parallelize, which would act on no share "
                "and on no gradient of the processes: change the model before parallelize"
            )
