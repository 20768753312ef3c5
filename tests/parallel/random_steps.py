"""Random training steps of a model in shares, each line compared with the same line on one device.

Each process of a group has the whole model, and its share of the same model in a layout. Lines of Python run on both:
losses, backwards, clipping, optimizers of many kinds, settings, writes, checkpoints. Whole values, weights and flags must
be equal after each line, or all processes refuse it with a reason. All is computed in double precision, also what code asks
to compute in another one, so that a difference is no rounding: of a loss in single precision, processes with parts of a batch
get other roundings, which an optimizer may make large.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import random
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.api import parallelize
from modular_converter.parallel.engine.base.call_state import settings_of
from modular_converter.parallel.engine.remote.caller_state import configs_in
from modular_converter.parallel.errors import ApplyError, PlanError, RankError, one_line
from modular_converter.parallel.layout import Training
from modular_converter.parallel.modules import is_plain
from tests.parallel.random_lines import MACHINERY, named_configs
from tests.parallel.random_uses import (
    DIFFERENT,
    EQUAL,
    ERROR,
    HALF,
    REFUSED,
    TYPES,
    Outcome,
    copied,
    difference,
    mapped,
    plus,
    reloaded,
    subject_named,
)


# The layouts of a number of processes; an option of `Training` follows a plus.
LAYOUTS = {
    2: ("tp2", "fsdp2", "ddp2", "tp2+recompute", "tp2+sequence_parallel", "fsdp2+recompute", "fsdp2+offload"),
    3: ("tp3", "fsdp3", "ddp3", "tp3+recompute"),
    4: ("fsdp2.tp2", "ddp2.tp2", "fsdp4"),
}
TRAINED = [name for name in TYPES if name not in ("clip", "handy", "remembering")]


def layouts_of(ranks: int, number: int) -> tuple[str, ...]:
    """The layouts of one of many models: the first of this number of ranks, and one of the others in turn."""
    first, *others = LAYOUTS[ranks]
    return first, others[number % len(others)]


_BOTH = "both raise"
_EXACT = 1e-8  # relative; where autocast, which the lines ask for, rounds to half, it is `HALF`
_NARROW = frozenset((torch.float32, torch.float16, torch.bfloat16))
_WIDE = {"float": torch.Tensor.double, "half": torch.Tensor.double, "bfloat16": torch.Tensor.double}
_ROWS = 12  # which 2, 3, 4 and 6 divide
# Of gradients that are zero but for rounding, a smaller epsilon makes steps of any size.
_OPTIMIZERS = (
    "SGD({p}, lr=0.1, momentum=0.9, weight_decay=0.01)",
    "AdamW({p}, lr=1e-2, eps=1e-4)",
    "AdamW({p}, lr=1e-2, foreach=False, amsgrad=True, eps=1e-4)",
    "AdamW([{{'params': [w], 'lr': 1e-2 / (1 + n % 3)}} for n, w in enumerate({p})], eps=1e-4)",
    "AdamW([w for w in {p} if w.dim() > 1], lr=1e-2, maximize=True, eps=1e-4)",
    "Adagrad({p}, lr=1e-2, eps=1e-4)",
    "RMSprop({p}, lr=1e-3, eps=1e-4)",
    "NAdam({p}, lr=1e-2, eps=1e-4)",
    "RAdam({p}, lr=1e-2, eps=1e-4)",
    "Adamax({p}, lr=1e-2, eps=1e-4)",
    "Adadelta({p}, lr=1.0)",
    "ASGD({p}, lr=1e-2)",
    "Adafactor({p}, lr=1e-2, eps=(1e-4, 1e-3))",
    "Muon([w for w in {p} if w.dim() == 2], lr=1e-2)",
    "LBFGS({p}, lr=0.1, max_iter=2)",
)


class AllDouble(TorchFunctionMode):
    """Code computes in double precision where it asks for another one; a scaler's numbers, which are powers of 2, stay."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == "backward":  # computes forwards again, which need the mode, too
            with patch.object(
                torch.autograd, "_engine_run_backward", self._within(torch.autograd._engine_run_backward)
            ):
                return func(*args, **kwargs)
        if sys._getframe(1).f_globals.get("__name__") != "torch.amp.grad_scaler":
            func = _WIDE.get(getattr(func, "__name__", ""), func)
            args = tuple(_widened(one) for one in args)
            kwargs = {name: _widened(one) for name, one in kwargs.items()}
        return func(*args, **kwargs)

    def _within(self, engine: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return engine(*args, **kwargs)

        return run


def _widened(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


class Trainees:
    """A whole model and its share; every process makes one, and computes in double precision from then on."""

    def __init__(self, name: str, layout: str) -> None:
        torch.set_default_dtype(torch.float32)  # small models of the library's experts run in no wider type
        subject = subject_named(name)
        self.name, self.layout = name, layout
        parts, _, option = layout.partition("+")
        self.one = subject.model
        batch = {key: mapped(value, _longer) for key, value in subject.inputs[0].items()}
        if "tp" not in parts or "fsdp" in parts or "ddp" in parts:  # processes draw other numbers for other rows
            _without_dropout(self.one)
        training = Training(**{option: True}) if option else None  # type: ignore[arg-type]
        more = {} if hasattr(self.one, "config") else {"example_inputs": subject.inputs[0]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.there = parallelize(copy.deepcopy(self.one), layout=parts, training=training, device="cpu", **more)
        torch.set_default_dtype(torch.float64)
        self.models = self.one, self.there
        self.handles: list[Any] = []
        self.data, self.data_rank = self.there.layout.data, self.there.data_rank
        self.batches = [batch, {key: mapped(value, self._part) for key, value in batch.items()}]
        self.start = {key: value.clone() for key, value in self.one.state_dict().items()}
        # Integers that a plan shares out are other ones in the share.
        self.plain, self.plain_there = (
            [(path, name, vars(m)[name]) for path, name, m in _plain(model)] for model in self.models
        )
        self.configs = [
            (config, copied(config))
            for model in self.models
            for config in configs_in(vars(settings_of(model)).values())
        ]
        self.hooks = [(m, {n: len(vars(m)[n]) for n in _HOOKS}) for model in self.models for m in model.modules()]

    def _part(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.chunk(self.data)[self.data_rank] if tensor.dim() else tensor

    def restore(self) -> None:
        """Set weights, flags, settings and hooks back."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        unwrap()
        for model, plain in zip(self.models, (self.plain, self.plain_there)):
            for path, name, value in plain:
                module = model.get_submodule(path)
                if name not in vars(module) or vars(module)[name] is not value:
                    setattr(module, name, value)
            model.eval().zero_grad()
            for weight in model.parameters():
                weight.requires_grad = True
        for module, lengths in self.hooks:
            for name, length in lengths.items():
                while len(vars(module)[name]) > length:
                    vars(module)[name].popitem()
        for config, values in self.configs:
            vars(config).clear()
            vars(config).update(values)
        self.one.load_state_dict(self.start)
        self.there.load_full_state_dict(self.start)

    def spaces(self, folder: Path) -> list[dict[str, Any]]:
        """The names that lines may use, for the whole model and for the share."""
        found = []
        for number, (model, batch) in enumerate(zip(self.models, self.batches)):
            side = _Side(model, batch, folder / str(number), self.data if number else 1)
            names = (
                "loss_of",
                "clip",
                "whole",
                "total",
                "poison",
                "save",
                "resume",
                "exported",
                "wrapped",
                "kept_share",
            )
            found.append(
                {name: getattr(side, name) for name in names}
                | {
                    "m": model,
                    "at": model.get_submodule,
                    "batch": batch,
                    "torch": torch,
                    "nn": nn,
                    "F": F,
                    "plus": plus,
                }
            )
        return found


def _plain(model: Any) -> Iterator[tuple[str, str, Any]]:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if is_plain(value) and name not in MACHINERY and not name.startswith("_"):
                yield path, name, module


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class _Side:
    """What one model of two does in a way of its own."""

    def __init__(self, model: Any, batch: dict[str, Any], folder: Path, data: int) -> None:
        self.model, self.batch, self.folder, self.data = model, batch, folder, data
        self.sharded = hasattr(model, "full_state_dict")
        kind = type(model).__name__
        labelled = kind.endswith(("CausalLM", "LMHeadModel", "ConditionalGeneration"))
        self.labels = labelled and "labels" in inspect.signature(type(model).forward).parameters

    def loss_of(self, model: Any, rows: slice = slice(None), **more: Any) -> torch.Tensor:
        """A mean over rows, so that the mean over parts is that of the whole."""
        batch = {key: mapped(value, lambda t: t[rows] if t.dim() else t) for key, value in self.batch.items()}
        if self.labels:
            more["labels"] = batch.get("decoder_input_ids", batch.get("input_ids"))
        out = model(**{**batch, **more})
        if self.labels:
            loss: torch.Tensor = out.loss if hasattr(out, "loss") else out[0]
            return loss
        first = out if isinstance(out, torch.Tensor) else next(iter(out.values())) if isinstance(out, dict) else out[0]
        return first.pow(2).mean()

    def clip(self, norm: float, kind: float = 2.0) -> torch.Tensor:
        if self.sharded:
            found: torch.Tensor = self.model.clip_grad_norm_(norm, kind)
            return found
        return nn.utils.clip_grad_norm_(self.model.parameters(), norm, kind)

    def whole(self, value: torch.Tensor) -> torch.Tensor:
        """The mean over data ranks of a number, or all their rows."""
        value = value.detach()
        value = value.full_tensor() if isinstance(value, DTensor) else value  # type: ignore[no-untyped-call]
        if self.data == 1:
            return value
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, (self.model.data_rank, value))
        parts = [
            part for _, part in sorted({rank: (rank, part) for rank, part in found}.values(), key=lambda one: one[0])
        ]
        return torch.cat(parts) if value.dim() else torch.stack(parts).mean(0)

    def total(self, values: Iterable[torch.Tensor]) -> torch.Tensor:
        """A sum of numbers, as docs/train/how-it-is-built.md has it for penalties of weights."""
        found: Any = [one.full_tensor() if isinstance(one, DTensor) else one for one in values]  # type: ignore[no-untyped-call]
        return torch.stack(found).sum()

    def poison(self, number: int) -> None:
        """Make one entry of a gradient infinite; of a share that is a plain tensor, in the last process alone."""
        found = [one for one in self.model.parameters() if one.grad is not None]
        if not found:
            return
        gradient: Any = found[number % len(found)].grad
        if isinstance(gradient, DTensor):
            whole = gradient.full_tensor()  # type: ignore[no-untyped-call]
            whole.view(-1)[0] = float("inf")
            gradient.copy_(distribute_tensor(whole, gradient.device_mesh, gradient.placements))
        elif not self.sharded or dist.get_rank() == dist.get_world_size() - 1:
            gradient.as_subclass(torch.Tensor).view(-1)[0] = float("inf")

    def wrapped(self, owner: Any, name: str) -> None:
        """Wrap a function of torch as another library does, until everything is set back."""
        own = getattr(owner, name)
        WRAPPED.append((owner, name, own))

        @functools.wraps(own)
        def outer(*args: Any, **kwargs: Any) -> Any:
            return own(*args, **kwargs)

        setattr(owner, name, outer)

    def kept_share(self) -> None:
        """Raise ``AssertionError`` if a process holds more of the weights than the layout says, but for what stays whole."""
        if not self.sharded or self.model.layout.dp_shard == 1:
            return
        with torch.no_grad():
            self.loss_of(self.model)
        held = sum(one.untyped_storage().nbytes() for one in _storages(self.model))
        ranks = self.model.layout.dp_shard
        share = sum(
            -(-len(one) // ranks) * (one.numel() // len(one)) * one.element_size() for one in self.model.parameters()
        )
        assert held <= share + 4096, f"{held} bytes held, where the largest share is {share}"

    def save(self, optimizer: Any) -> None:
        if self.sharded:
            self.model.save_checkpoint(_agreed(self.folder), optimizer, 1)
        else:
            self.kept = copy.deepcopy((self.model.state_dict(), optimizer.state_dict()))

    def resume(self, optimizer: Any) -> None:
        if self.sharded:
            self.model.load_checkpoint(_agreed(self.folder), optimizer)
        else:
            state, of_optimizer = copy.deepcopy(self.kept)
            self.model.load_state_dict(state)
            optimizer.load_state_dict(of_optimizer)

    def exported(self) -> dict[str, torch.Tensor]:
        folder = _agreed(self.folder)
        self.model.save_pretrained(folder)  # of a whole model, too, the library lets the first process alone save
        dist.barrier()
        return reloaded(folder)


WRAPPED: list[tuple[Any, str, Any]] = []
"""What `wrapped` has wrapped: owner, name and own function."""


def unwrap() -> None:
    """Undo `wrapped`."""
    while WRAPPED:
        owner, name, own = WRAPPED.pop()
        setattr(owner, name, own)


def _storages(model: Any) -> list[torch.Tensor]:
    """A tensor for each memory of weights, shares and whole ones that a forward has gathered."""
    found = {}
    for weight in model.parameters():
        local = weight.to_local() if isinstance(weight, DTensor) else weight
        found[local.untyped_storage().data_ptr()] = local
    for module in model.modules():
        for weight in module._parameters.values():
            if weight is not None and not isinstance(weight, DTensor):
                plain = weight.as_subclass(torch.Tensor)
                found[plain.untyped_storage().data_ptr()] = plain
    return list(found.values())


def _agreed(folder: Path) -> Path:
    """The first process's folder."""
    found = [folder]
    dist.broadcast_object_list(found)
    return found[0]


def _longer(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.dim():
        return tensor
    rows = [tensor.roll(n, -1) for n in range(_ROWS // tensor.shape[0])]
    return torch.cat(rows)


def _without_dropout(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    for config in configs_in(vars(settings_of(model)).values()):
        for name, value in vars(config).items():
            if "drop" in name and isinstance(value, float):
                setattr(config, name, 0.0)


class Steps:
    """Random lines for a model that is trained."""

    def __init__(self, trainees: Trainees, choice: random.Random) -> None:
        self.trainees, self.choice, model = trainees, choice, trainees.one
        self.paths = [path for path, _ in model.named_modules() if path]
        self.weights = len(list(model.parameters()))
        self.numbers = [(p, n, v) for p, n, v in trainees.plain if type(v) in (float, bool) and n != "training"]
        self.settings = [
            (where, name, value)
            for where, config in named_configs(model)
            for name, value in vars(config).items()
            if type(value) in (float, bool, int) and not name.startswith("_")
        ]

    def one(self, *forms: str) -> str:
        return self.choice.choice(forms)

    def sequence(self, number: int) -> list[str]:
        """Lines that end with a step."""
        optimizer = self.one(*_OPTIMIZERS[:4], *_OPTIMIZERS).format(p="m.parameters()")
        lines = [f"opt = torch.optim.{optimizer}"]
        closure = "LBFGS" in optimizer
        for _ in range(number):
            lines += self.one_of(closure)
        return [*lines, self.backward(), self.step(closure), "out = whole(loss_of(m))"]

    def one_of(self, closure: bool) -> list[str]:
        kinds = [self.setting, self.written, self.other, self.flag, self.gradient]
        if self.choice.random() < 0.5:
            return [self.choice.choice(kinds)()]
        lines = [self.backward()]
        if self.choice.random() < 0.6:
            lines.append(self.gradient())
        return [*lines, self.step(closure)]

    def backward(self) -> str:
        half = f"slice({_ROWS // 2})"
        where = "with torch.autocast('cpu', dtype=torch.bfloat16): " if self.choice.random() < 0.08 else ""
        if where:
            return f"{where}loss = loss_of(m)\nloss.backward(); out = whole(loss)"
        return self.one(
            "loss = loss_of(m); loss.backward(); out = whole(loss)",
            "loss = loss_of(m); loss.backward(); out = whole(loss)",
            "loss = loss_of(m); (loss / 2).backward(); (loss_of(m) / 2).backward(); out = whole(loss)",
            "m.zero_grad(); loss = loss_of(m) * 3; loss.backward(); out = whole(loss)",
            "(loss_of(m) + loss_of(m, slice(1))).backward()" if self.trainees.data == 1 else "loss_of(m).backward()",
            "(loss_of(m) + 1e-3 * total(w.pow(2).sum() for w in m.parameters())).backward()",
            f"(loss_of(m) + 1e-3 * total([list(m.parameters())[{self.choice.randrange(self.weights)}].norm()])).backward()",
            "torch.autograd.backward([loss_of(m)])",
            "loss = loss_of(m); loss.backward(retain_graph=True); m.zero_grad(); loss.backward()",
            "with torch.no_grad(): out = whole(loss_of(m))",
            "loss_of(m, use_cache=False).backward()",
            "loss_of(m, output_hidden_states=True).backward()",
            f"loss_of(m, {half}).backward()" if self.trainees.data == 1 else "loss_of(m).backward()",
        )

    def gradient(self) -> str:
        number = self.choice.randrange(self.weights)
        return self.one(
            "out = clip(0.05)", "out = clip(0.05)", "out = clip(1.0, float('inf'))", "out = clip(0.1, 1.0)",
            "nn.utils.clip_grad_value_(m.parameters(), 1e-3)",
            "out = whole(nn.utils.clip_grad_norm_(m.parameters(), 0.05))",
            "out = whole(nn.utils.get_total_norm([w.grad for w in m.parameters() if w.grad is not None]))",
            "[nn.utils.clip_grad_norm_(w, 1e-2) for w in m.parameters()]",
            "[w.grad.mul_(0.5) for w in m.parameters() if w.grad is not None]",
            "torch._foreach_mul_([w.grad for w in m.parameters() if w.grad is not None], 0.5)",
            f"poison({number}); scaler = torch.amp.GradScaler('cpu', init_scale=4.0); scaler.scale(torch.ones(()));"
            " scaler.unscale_(opt); scaler.step(opt); scaler.update(); out = scaler.get_scale(); opt.zero_grad()",
            f"list(m.parameters())[{number}].grad = None",
            "out = whole(sum(w.grad.pow(2).sum() for w in m.parameters() if w.grad is not None))",
            "out = [w.grad is None for w in m.parameters()]",
            f"out = whole(list(m.parameters())[{number}].grad.norm())",
        )  # fmt: skip

    def step(self, closure: bool) -> str:
        if closure:
            return (
                "def again():\n    opt.zero_grad(); loss = loss_of(m); loss.backward(); return loss\nopt.step(again)"
            )
        return self.one(
            "opt.step(); opt.zero_grad()", "opt.step()", "opt.step(); m.zero_grad()", "opt.step(); opt.zero_grad(set_to_none=False)",
            "scaler = torch.amp.GradScaler('cpu', init_scale=8.0); opt.zero_grad(); scaler.scale(loss_of(m)).backward();"
            " scaler.unscale_(opt); out = clip(0.1); scaler.step(opt); scaler.update()",
            "scaler = torch.amp.GradScaler('cpu', init_scale=8.0); opt.zero_grad(); scaler.scale(loss_of(m)).backward();"
            " scaler.step(opt); scaler.update(); out = scaler.get_scale()",
            "torch.optim.lr_scheduler.StepLR(opt, 1, 0.5); opt.step()",
        )  # fmt: skip

    def setting(self) -> str:
        if self.settings and self.choice.random() < 0.3:
            where, name, value = self.choice.choice(self.settings)
            return f"m.{where}.{name} = {not value if type(value) is bool else value * 2}"
        if not self.numbers:
            return self.flag()
        path, name, value = self.choice.choice(self.numbers)
        return f"at('{path}').{name} = {not value if type(value) is bool else self.one(repr(value * 2), repr(value + 0.25))}"

    def flag(self) -> str:
        path = self.choice.choice(self.paths)
        return self.one(
            "m.train()", "m.eval()", f"at('{path}').train()", f"at('{path}').requires_grad_(False)", "m.requires_grad_(True)",
            f"at('{path}').eval()", "m.gradient_checkpointing_enable()",
            f"list(m.parameters())[{self.choice.randrange(self.weights)}].requires_grad_(False)",
        )  # fmt: skip

    def written(self) -> str:
        weight = f"list(m.parameters())[{self.choice.randrange(self.weights)}]"
        return "with torch.no_grad(): " + self.one(
            f"{weight}.mul_(1.5)", f"{weight}.data.mul_(1.5)", f"{weight}.add_(0.01)", "[w.mul_(0.99) for w in m.parameters()]",
            f"nn.init.zeros_({weight})", f"{weight}.copy_({weight} * 2)", f"{weight}.data = {weight}.data * 2",
            "torch._foreach_mul_(list(m.parameters()), 0.9)", f"{weight}.clamp_(-0.05, 0.05)",
            "nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(m.parameters()) * 0.9, m.parameters())",
            "[b.mul_(1.5) for b in m.buffers() if b.is_floating_point()]", f"nn.init.constant_({weight}, 0.02)",
        )  # fmt: skip

    def other(self) -> str:
        path, weight = self.choice.choice(self.paths), f"list(m.parameters())[{self.choice.randrange(self.weights)}]"
        return self.one(
            "save(opt)", "save(opt); opt.step(); resume(opt)", "out = exported()", "m.register_forward_hook(lambda s, a, r: None)",
            f"handles.append({weight}.register_hook(lambda g: g * 2))",
            f"handles.append({weight}.register_post_accumulate_grad_hook(lambda w: w.grad.mul_(0.5)))",
            "opt.param_groups[0]['lr'] *= 2", "opt.load_state_dict(opt.state_dict())", "ema = torch.optim.swa_utils.AveragedModel(m)",
            "out = m.num_parameters()", "out = sum(w.numel() for w in m.parameters())", f"out = whole({weight}.norm())",
            f"out = tuple({weight}.shape)", "out = [n for n, _ in m.named_parameters()]", "out = [w.requires_grad for w in m.parameters()]",
            "out = m.training", "out = list(m.state_dict())", f"at('{path}').register_forward_hook(lambda s, a, r: None)",
            "copied = __import__('copy').deepcopy(m)", "out = m.dtype", "m.load_state_dict(m.state_dict())",
            "m.tie_weights()", "opt.add_param_group({'params': [nn.Parameter(torch.ones(2))]})",
            # functions of torch that other libraries wrap, beside what is patched here
            "wrapped(torch.amp.GradScaler, '_unscale_grads_')", "wrapped(torch.autograd, 'backward')",
            "wrapped(torch.nn.utils.clip_grad, '_get_total_norm')", "wrapped(torch.optim.Optimizer, 'zero_grad')",
            # memory: a process keeps no more than its share between steps
            "kept_share()", "kept_share()",
            # parts of a model, and weights that forwards leave
            f"with torch.no_grad(): at('{path}').weight.data.mul_(1.1)", "loss_of(m)",
            f"opt.add_param_group({{'params': [w for w in at('{path}').parameters()][:1]}})",
            f"late = torch.optim.SGD(at('{path}').parameters(), lr=0.1); late.step()",
            f"weight_norm = nn.utils.parametrizations.weight_norm(at('{path}'))",
            f"at('{path}').load_state_dict(at('{path}').state_dict())",
            "out = m.generate(batch['input_ids'], max_new_tokens=2)[0].shape[-1]",
        )  # fmt: skip


def run_steps(trainees: Trainees, lines: list[str]) -> Outcome:
    """Run lines on both models; all processes must call it with the same lines."""
    trainees.restore()
    found = Outcome(EQUAL)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spaces = trainees.spaces(Path(folder))
        tolerance = _EXACT
        for at, line in enumerate(lines):
            half = "bfloat16" in line
            tolerance = HALF if half else tolerance
            with contextlib.nullcontext() if half else AllDouble():
                answers = [_attempt(line, space, at) for space in spaces]
            kind, said = _together(*_judged(answers[0], answers[1], tolerance))
            if kind == EQUAL and any(word in line for word in ("step", "no_grad", "resume", "load_state")):
                kind, said = _together(*_same_weights(trainees, tolerance))
            if kind == _BOTH:
                return found
            if kind != EQUAL:
                return Outcome(kind, at, said)
        return found


def _attempt(line: str, space: dict[str, Any], seed: int) -> Any:
    torch.manual_seed(seed)
    space.pop("out", None)
    try:
        exec(line, space)
        out = space.get("out")
        return out.detach().clone() if isinstance(out, torch.Tensor) else out
    except Exception as error:  # of the model's code, of torch or a refusal
        return error


def _judged(wanted: Any, got: Any, tolerance: float) -> tuple[str, str]:
    if isinstance(got, Exception):
        said = one_line(got, 300)
        if isinstance(wanted, Exception):
            return _BOTH, ""
        if isinstance(got, (PlanError, ApplyError)) and not isinstance(got, RankError):
            return REFUSED, said
        return ERROR, f"{type(got).__name__}: {said}"
    if isinstance(wanted, Exception):
        return DIFFERENT, f"one device raises {type(wanted).__name__}: {one_line(wanted, 200)}"
    said = difference(wanted, got, tolerance)
    return (DIFFERENT, said) if said else (EQUAL, "")


def _same_weights(trainees: Trainees, tolerance: float) -> tuple[str, str]:
    wanted, got = trainees.one.state_dict(), trainees.there.full_state_dict()
    said = difference(dict(sorted(wanted.items())), dict(sorted(got.items())), tolerance, "weights")
    return (DIFFERENT, said) if said else (EQUAL, "")


def _together(kind: str, said: str) -> tuple[str, str]:
    """The worst of all processes' outcomes."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, (kind, said))
    kinds = {one for one, _ in found}
    worst = next(one for one in (ERROR, DIFFERENT, REFUSED, _BOTH, EQUAL) if one in kinds)
    said = next(text for one, text in found if one == worst)
    if worst in (REFUSED, _BOTH) and len(kinds) > 1:
        return ERROR, f"some processes alone: {worst} {said}"
    return worst, said
