"""Plans checked on ranks: quickly with threads of this process, and finally with gloo processes.

The processes are started once, used for many models, and ended in any case. Each builds the small model itself from the
same seed, so only names and plan texts are sent. They also run plans, those for experts too, by the library's own loaders.
"""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.errors import PlanError, RankError, one_line
from modular_converter.parallel.plans.emit import to_library, to_torch
from modular_converter.parallel.plans.plan import Plan, is_expert_plan
from modular_converter.parallel.plans.resolve import Resolution
from modular_converter.parallel.proof.compare import check_on_rank, reference, run_model
from modular_converter.parallel.proof.judge import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    WITH_GRADIENTS,
    Evidence,
    Reference,
    Verdict,
    both_draws,
    errors_of_backwards,
    proves_nothing,
    refused,
    worst_error,
)
from modular_converter.parallel.proof.precision import Subject, without_unstable
from modular_converter.parallel.proof.subject import situation_of, subject_of
from modular_converter.parallel.ranks.answering import Answering
from modular_converter.parallel.ranks.session import RemoteError, Session
from modular_converter.parallel.shard.apply import Applied
from modular_converter.parallel.shard.collectives import ProcessGroup, ThreadGroup, run_on_threads
from modular_converter.parallel.shard.shares import plan_for_ranks
from modular_converter.parallel.tiny.build import Small, build, copy_of, seed_cpu
from modular_converter.parallel.tiny.target import Target
from modular_converter.parallel.torch_private import world
from modular_converter.parallel.torch_switches import one_thread
from modular_converter.parallel.trace.record import tensors_in
from modular_converter.parallel.trace.unchanged import shared_state


# ``auto``, the default, is an all-reduce without gradients, and an all-to-all with gradients.
IMPLEMENTATIONS = ("auto", "all_reduce", "all_to_all")


def check_library_experts(folder: str, small: Small, plan: Plan, ranks: int, whole: Reference) -> Verdict:
    """Load the saved small model with the plan on this rank and compare its outputs, without and with gradients.

    Args:
        folder: of the saved whole model.
        small: the same model, for its class and inputs.
        plan: an expert-parallel plan in the library's vocabulary.
    """
    from transformers.distributed import DistributedConfig

    if reason := proves_nothing(whole):
        return refused(ranks, "the outputs", reason)
    model: Any = small.model
    given = dict.fromkeys(model.ep_plan or {}, "replicate")
    given.update(to_library(plan))
    # transformers 5.23.0 refuses ``tp_plan={}`` beside ``tp_size``, which its documentation gives for experts only.
    first = next(name for name, _ in model.named_children())
    dense = dict.fromkeys(model.tp_plan or (first,), "replicate")
    worst = 0.0
    for name in IMPLEMENTATIONS:
        config = DistributedConfig(tp_size=ranks, tp_plan=dense, ep_size=ranks, ep_plan=given, ep_implementation=name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loaded = type(model).from_pretrained(folder, distributed_config=config).eval()
            for gradients in (False, True):
                error = worst_error(outputs_of(loaded, small, gradients), whole.outputs)
                worst = max(worst, error)
                if not error <= OUTPUT_TOLERANCE:
                    said = f"ep_implementation={name!r}, {'with' if gradients else 'without'} gradients"
                    return Verdict(ranks, worst, 0.0, "the outputs", f"through {said} they differ by {error:.2g}")
        except Exception as error:
            reason = f"the library's loader, ep_implementation={name!r}: {type(error).__name__}: {str(error)[:200]}"
            return Verdict(ranks, math.inf, 0.0, "", reason)
    return Verdict(ranks, worst, 0.0)


def outputs_of(model: Any, small: Small, gradients: bool) -> list[torch.Tensor]:
    """The whole outputs of a model that the library has loaded.

    The state of its classes and files is restored, since the next run may be of the whole model.
    """
    seed_cpu(11)
    before = shared_state(small.model)
    with torch.set_grad_enabled(gradients):
        outputs = tensors_in(model(**small.inputs))
    before.give_back()
    return [gathered_tensor(tensor).detach() for tensor in outputs]


def gathered_tensor(tensor: Any) -> torch.Tensor:
    """The whole tensor of a tensor that may be distributed."""
    found: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found


def check_library(folder: str, small: Small, plan: Plan, ranks: int, whole: Reference) -> Verdict:
    """Load the saved small model with the plan on this rank; compare its outputs and gradients.

    Outputs are compared with and without gradients, because the loader's code differs.

    Args:
        folder: of the saved whole model.
        small: the same model, for its class and inputs.
        plan: a plan in the library's vocabulary.
    """
    if is_expert_plan(plan):
        return check_library_experts(folder, small, plan, ranks, whole)
    own: Any = small.model
    given = dict.fromkeys(own.tp_plan or {}, "replicate")  # sub-models and the loader add entries of their own
    given.update(to_library(plan))
    return check_loaded(folder, small, given, ranks, whole)


def check_torch(small: Small, plan: Plan, ranks: int, whole: Reference) -> Verdict:
    """Shard a copy of the small model with ``parallelize_module`` on this rank; compare its outputs and gradients.

    Args:
        plan: a plan that torch's styles can express.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    def shard() -> Any:
        model = copy_of(small.model)
        return parallelize_module(model, init_device_mesh("cpu", (ranks,)), to_torch(plan, model))

    return _check("parallelize_module", shard, lambda: copy_of(small.model), small, ranks, whole)


def check_loaded(folder: str, small: Small, plan: dict[str, str] | str, ranks: int, whole: Reference) -> Verdict:
    """Load the saved small model with the entries of a plan (``"auto"``: with that of its own classes), and compare it."""
    from transformers.distributed import DistributedConfig

    model: Any = type(small.model)
    config = DistributedConfig(tp_size=ranks, tp_plan=plan)

    def load(**options: Any) -> Any:
        return model.from_pretrained(folder, **options).eval()

    return _check("transformers' loader", lambda: load(distributed_config=config), load, small, ranks, whole)


def _check(
    through: str, load: Callable[[], Any], plain: Callable[[], Any], small: Small, ranks: int, whole: Reference
) -> Verdict:
    """Compare the model that ``load`` shards with the whole model's numbers, or with those of the ``plain`` model."""
    if reason := proves_nothing(whole):
        return refused(ranks, "the outputs", reason)
    try:
        loaded = load()
        found = [outputs_of(loaded, small, gradients) for gradients in (False, True)]
        worst = max(worst_error(outputs, whole.outputs) for outputs in found)
        if worst > OUTPUT_TOLERANCE:  # loading may change a model, such as its buffers
            alone = outputs_of(plain(), small, gradients=False)
            worst = min(worst, max(worst_error(outputs, alone) for outputs in found))
            whole = reference(plain(), small.inputs)
        if worst > OUTPUT_TOLERANCE:
            return refused(ranks, "the outputs", f"outputs through {through} differ by {worst:.2g}")
        return replace(_with_gradients(through, loaded, small, whole, ranks), output_error=worst)
    except Exception as error:
        return refused(ranks, "", one_line(error, 200))


def _with_gradients(through: str, loaded: Any, small: Small, whole: Reference, ranks: int) -> Verdict:
    """The verdict on the whole gradients of the parameters."""
    scope = Evidence(ranks=(ranks,), places=(through,), forms=(WITH_GRADIENTS,), gaps=whole.gaps)
    if not whole.gradients:
        return Verdict(ranks, 0.0, 0.0, evidence=scope)
    found = run_model(
        loaded, small.inputs, start=whole.start, together=len(whole.gradients) == 1, scales=whole.scales
    ).gradients
    full = [{key: gathered_tensor(gradient) for key, gradient in got.items()} for got in found]
    errors = errors_of_backwards(full, whole.gradients)
    name = max(errors, key=lambda key: errors[key], default="")
    worst = errors.get(name, 0.0)
    if worst <= GRADIENT_TOLERANCE:
        return Verdict(ranks, 0.0, worst, evidence=scope)
    reason = f"the gradient of {name} through {through} differs by {worst:.2g}"
    return Verdict(ranks, 0.0, worst, name, reason, evidence=scope)


def end_groups() -> None:
    """End all process groups but the default group: each load makes new ones, with threads, and never ends them."""
    for group in [group for group in world.pg_map if group is not dist.group.WORLD]:
        dist.destroy_process_group(group)


# Classes of models whose runs change state that all copies share: attributes of classes, variables of files. Each rank
# gets its own state, which takes time at each collective.
_CHANGING: set[str] = set()


def check_model_on_threads(model: torch.nn.Module, plan: Plan, inputs: Mapping[str, Any], ranks: int) -> Verdict:
    """Check one plan of a model; see ``check_on_threads``."""
    return check_on_threads(subject_of(model, inputs), plan, ranks)


@one_thread()
def check_on_threads(
    subject: Subject, plan: Plan | Resolution, ranks: int, also: Callable[[Applied], object] = lambda applied: None
) -> Verdict:
    """Run a plan on threads, each with a copy of the model, and compare with the whole model's numbers.

    Args:
        also: called with each sharded copy before its runs.

    Returns:
        The first failing verdict of a rank, else the first rank's; of both draws of weights.
    """
    first, again = _checked(subject, plan, ranks, also), subject.again
    if not first.passed or again is None:
        return first
    second = _checked(again, plan, ranks, also)
    if not second.passed:  # perhaps because of rounding, which takes time to check
        second = _checked(without_unstable(again), plan, ranks, also)
    return both_draws(first, second, situation_of(again))


def _checked(subject: Subject, plan: Plan | Resolution, ranks: int, also: Callable[[Applied], object]) -> Verdict:
    if isinstance(plan, Plan):
        plan = plan_for_ranks(plan, subject.model, subject.inputs, ranks)
    kind = f"{type(subject.model).__module__}.{type(subject.model).__qualname__}"
    before = shared_state(subject.model)
    done = [] if kind in _CHANGING else _verdicts(subject, plan, ranks, also)
    if before.give_back() or not done:
        _CHANGING.add(kind)
        done = _verdicts(subject, plan, ranks, also, apart=True)
    failed = [v for v in done if not v.passed and "another rank failed" not in v.reason]
    return next(iter(failed or [v for v in done if not v.passed] or done))


def _verdicts(
    subject: Subject, plan: Plan | Resolution, ranks: int, also: Callable[[Applied], object], apart: bool = False
) -> list[Verdict]:
    """The verdicts of the ranks; ``apart``: each has its own state of the model's classes and files."""
    verdicts: list[Verdict | None] = [None] * ranks
    copies = [copy_of(subject.model) for _ in range(ranks)]
    evidence = replace(subject.evidence, places=("threads",))

    def work(group: ThreadGroup) -> bool:
        model = copies[group.rank]
        verdict = check_on_rank(model, plan, subject.inputs, group, subject.whole, evidence, apart, also)
        verdicts[group.rank] = verdict
        return not verdict.passed

    run_on_threads(ranks, work, functools.partial(shared_state, subject.model) if apart else None)
    return [verdict for verdict in verdicts if verdict is not None]


TASK_LIMIT_S = 60.0
LATE_S = 3.0
"""A rank that has not answered so long after a refusal waits for the rank that refused, in a collective."""


@dataclass(frozen=True)
class Task:
    """One verification: the model to build, the plan as text, and how to apply it.

    ``route`` is ``ours``, ``library`` (transformers' loader), ``committed`` (the same with the model's own plan), or
    ``torch`` (``parallelize_module``).
    """

    target: Target
    strategy: str
    overrides: tuple[tuple[str, Any], ...]
    plan: str
    route: str = "ours"
    folder: str = ""


class Refused(Exception):
    """A plan that does not hold on a rank: an error, so that no other rank waits for this one in a collective."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class RankPool:
    """Gloo ranks on this machine; a context manager that ends all processes.

    Args:
        size: the number of ranks.
        limit_s: seconds for a task, after which all ranks are killed.
    """

    def __init__(self, size: int, limit_s: float = TASK_LIMIT_S) -> None:
        self.size = size
        self.limit_s = limit_s
        self.session: Session | None = None

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> Session:
        """The running ranks; started if they do not run. Raises ``RankError`` if one does not join in time."""
        if self.session is None or self.session.ended:
            devices, worker = ("cpu",) * self.size, f"{__name__}:Prover"
            self.session = Session(devices, "forkserver", None, self.limit_s, worker, leave_s=0.0, late_s=LATE_S)
        self.session.start()
        return self.session

    def stop(self) -> None:
        """Kill all ranks."""
        if self.session is not None:
            self.session.end(grace_s=0.0)

    def run(self, task: Task) -> list[Verdict]:
        """The verdicts of all ranks, in order, or that of the first rank that refuses.

        Raises ``RankError`` if a rank died or the time limit passed; the next call starts new ranks.
        """
        session = self.start()
        try:
            with session.lock:
                return session.ask(("prove", task), self.limit_s)
        except (RemoteError, RankError) as error:
            refusal = error.error if isinstance(error, RemoteError) else error.__cause__
            if isinstance(refusal, Refused):
                return [refusal.verdict]
            raise error if isinstance(error, RankError) else RankError(str(error)) from error


class Prover(Answering):
    """The worker of one rank."""

    def __init__(self, *given: Any) -> None:
        from transformers.utils import logging

        super().__init__(*given)
        self.group = ProcessGroup(meet=self.progress.meet)
        names = {"RANK": self.group.rank, "LOCAL_RANK": self.group.rank, "WORLD_SIZE": self.group.size}
        os.environ.update({name: str(value) for name, value in names.items()})  # for the library's loader
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.set_num_threads(1)
        torch.set_grad_enabled(True)

    def on_prove(self, task: Task) -> None:
        """Answer with the verdict on a plan that holds. Raises ``Refused`` for any other."""
        verdict = verdict_on(task, self.group)
        if not verdict.passed:
            raise Refused(verdict)
        self.answer(verdict)


def verdict_on(task: Task, group: ProcessGroup) -> Verdict:
    """The verdict of one rank, whatever the model's code does."""
    try:
        small = build(task.target, dict(task.overrides), task.strategy)
        plan = Plan.parse(task.plan)
        if task.route != "ours":
            return _through_loader(task, small, plan, group.size)
        plan = plan_for_ranks(plan, small.model, small.inputs, group.size)
        subject = subject_of(small.model, small.inputs)
        scope = replace(subject.evidence, places=("gloo processes",))
        verdict = check_on_rank(subject.model, plan, subject.inputs, group, subject.whole, scope)
        if not verdict.passed or subject.again is None:
            return verdict
        other = without_unstable(subject.again)
        second = check_on_rank(other.model, plan, other.inputs, group, other.whole, other.evidence)
        return both_draws(verdict, second, situation_of(other))
    except PlanError as error:
        return refused(group.size, "", str(error))
    except Exception as error:  # each task must get an answer
        return refused(group.size, "", f"{type(error).__name__}: {str(error)[:200]}")


def _through_loader(task: Task, small: Small, plan: Plan, size: int) -> Verdict:
    whole = reference(small.model, small.inputs)
    try:
        if task.route == "committed":
            return check_loaded(task.folder, small, "auto", size, whole)
        if task.route == "torch":
            return check_torch(small, plan, size, whole)
        return check_library(task.folder, small, plan, size, whole)
    finally:
        end_groups()
