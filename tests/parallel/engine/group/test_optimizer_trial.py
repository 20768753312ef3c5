"""Whether an optimizer computes with several weights together is found by what its steps do, and nothing real changes."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import optim
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from modular_converter.parallel.engine.group.optimizer_steps import (
    TriedOptimizer,
    _check,
    couples_weights,
    norm_of_whole,
    refuse_unplaced,
)
from modular_converter.parallel.engine.group.share_tensors import mark
from modular_converter.parallel.errors import ApplyError


class OfLists(optim.Optimizer):
    """Momentum in a list of its own, and a constructor of its own."""

    def __init__(self, weights):
        super().__init__(list(weights), {})
        self.momentum = [torch.zeros_like(one) for one in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self):
        for one, momentum in zip(self.param_groups[0]["params"], self.momentum):
            momentum.lerp_(one.grad, 0.1)
            one.sub_(momentum.sign(), alpha=0.01)


class Ahead(optim.Optimizer):
    """Slow weights around another optimizer, in every second step."""

    def __init__(self, weights):
        self.base = optim.AdamW(weights)
        super().__init__(self.base.param_groups, {})
        self.slow = {one: one.detach().clone() for group in self.param_groups for one in group["params"]}
        self.count = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.base.step()
        self.count += 1
        for one, slow in self.slow.items() if self.count % 2 == 0 else ():
            one.copy_(slow.lerp_(one, 0.5))


class ByWeight(optim.Optimizer):
    """Each update is divided by a norm of the weight's own, as in LAMB, above a limit."""

    def __init__(self, weights, lr=1e-2, limit=0.0, rows=False):
        super().__init__(weights, {"lr": lr})
        self.limit, self.rows = limit, rows

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for one in group["params"]:
                norm = one.grad.norm(dim=-1, keepdim=True) if self.rows else one.grad.norm()
                one.sub_(one.grad / norm if float(norm.max()) > self.limit else one.grad, alpha=group["lr"])


class Late(optim.SGD):
    """Statistics of rows that no step uses yet."""

    def step(self, closure=None):
        for one in self.param_groups[0]["params"]:
            self.state[one]["rows"] = self.state[one].get("rows", 0) + one.grad.pow(2).flatten(1).mean(1)
        return super().step(closure)


class OfLargeWeights(optim.SGD):
    """Another step for weights above a size."""

    @torch.no_grad()
    def step(self, closure=None):
        for one in self.param_groups[0]["params"]:
            if min(one.shape) >= 128:
                one.grad.sub_(one.grad.mean())
        return super().step(closure)


class Together(optim.SGD):
    """One norm of all gradients."""

    @torch.no_grad()
    def step(self, closure=None):
        weights = self.param_groups[0]["params"]
        norm = torch.stack([one.grad.norm() for one in weights]).norm()
        for one in weights:
            one.sub_(one.grad / norm, alpha=0.1)


class Noisy(optim.SGD):
    """Steps with noise, as in sampling by Langevin's equation."""

    @torch.no_grad()
    def step(self, closure=None):
        for one in self.param_groups[0]["params"]:
            one.sub_(one.grad + torch.randn_like(one), alpha=0.1)


class NoNumbers(optim.SGD):
    """Its steps end in values that are no numbers, in some entries."""

    @torch.no_grad()
    def step(self, closure=None):
        for one in self.param_groups[0]["params"]:
            one.sub_(one.grad.sqrt())


class OfModel(optim.SGD):
    """It clips the gradients of a model that it holds, not those of its groups."""

    def __init__(self, weights):
        super().__init__(weights)
        self.model = torch.nn.ParameterList(weights)

    @torch.no_grad()
    def step(self, closure=None):
        for one in self.model:
            one.grad.clamp_(-1, 1)
        return super().step(closure)


def weights_of(*shapes):
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    for one in weights:
        one.grad = torch.randn_like(one)
    return weights


def judged(make, shapes=((12, 20), (7, 5), (4, 3, 3, 3)), args=()):
    """Whether it couples weights; all that is real must be as before."""
    weights = weights_of(*shapes)
    optimizer = make(weights)
    numbers = torch.get_rng_state()
    before = [one.detach().clone() for one in weights], [one.grad.clone() for one in weights]
    kept = str(optimizer.state_dict())
    copies = []
    coupled = couples_weights(TriedOptimizer(optimizer, args, {}, copies.append))
    assert all(map(torch.equal, before[0], weights)) and all(
        torch.equal(a, b.grad) for a, b in zip(before[1], weights)
    )
    assert kept == str(optimizer.state_dict()) and torch.equal(numbers, torch.get_rng_state())
    assert optimizer not in copies and len(copies) >= 2
    return coupled


ALONE = [
    lambda w: optim.SGD(w, lr=0.1, momentum=0.9, weight_decay=0.1),
    lambda w: optim.SGD(w, lr=0.0),
    optim.AdamW,
    lambda w: optim.AdamW(w, lr=torch.tensor(0.0), amsgrad=True),
    lambda w: optim.Adam(w, foreach=True, capturable=False),
    lambda w: optim.Adam(w, fused=True),
    optim.Adagrad,
    optim.Adadelta,
    optim.Adamax,
    optim.NAdam,
    optim.RAdam,
    lambda w: optim.RMSprop(w, momentum=0.9, centered=True),
    optim.Rprop,
    optim.ASGD,
    OfLists,
    Ahead,
    OfModel,
]
OF_WHOLE = [
    lambda w: ByWeight(w, lr=0.0),
    lambda w: ByWeight(w, limit=1e3),
    lambda w: ByWeight(w, limit=1e-2, rows=True),
    optim.Adafactor,
    lambda w: optim.Muon(w[:1]),
    OfLargeWeights,
    Late,
]


@pytest.mark.parametrize("make", [*ALONE, *OF_WHOLE, Noisy, NoNumbers])
def test_optimizers_that_treat_each_weight_alone(make):
    assert not judged(make, ((130, 150), (140, 129)))


def test_optimizers_of_all_weights_together():
    assert judged(Together)
    assert judged(optim.LBFGS, args=(lambda: 1 / 0,))  # the caller's closure is not called


class Hardly(optim.SGD):
    """Steps that depend on the other gradients by less than a type of half precision shows."""

    @torch.no_grad()
    def step(self, closure=None):
        weights = self.param_groups[0]["params"]
        share = 1e-3 * torch.stack([one.grad.double().norm() for one in weights]).norm().atan()
        for one in weights:
            one.sub_(one.grad / one.grad.norm() * (1 + share).to(one.dtype))


def test_what_half_precision_does_not_show_is_found():
    weights = [torch.nn.Parameter(one.detach().bfloat16()) for one in weights_of((6, 4), (3, 5))]
    assert couples_weights(TriedOptimizer(Hardly(weights), (), {}, lambda copy: None))


def test_a_schedule_and_a_state_change_nothing():
    def make(weights):
        optimizer = optim.AdamW(weights)
        schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step > 3))
        optimizer.step()
        schedule.step()
        return optimizer

    assert not judged(make)


@pytest.mark.parametrize("write", [lambda one: one.add_(1.0), lambda one: torch.add(one, 1.0, out=one)])
def test_a_trial_writes_to_no_weight_that_it_cannot_copy(write):
    def make(weights):
        class OfClosure(optim.SGD):
            @torch.no_grad()
            def step(self, closure=None):
                write(weights[0])

        return OfClosure(weights)

    assert not judged(make)  # no trial runs
    with pytest.raises(ApplyError, match="not in its groups or state"):
        refuse_unplaced(TriedOptimizer(make(weights_of((3, 4))), (), {}, lambda copy: None))


def shares():
    """Half of the rows of two weights."""
    found = weights_of((65, 150), (70, 129))
    for one in found:
        mark(one, ("up.weight", (2 * len(one), one.shape[1]), (0, 1)))
    return found


@pytest.mark.parametrize("make", ALONE)
def test_entries_of_shares_are_computed_alone(make):
    weights, alone = shares(), weights_of((65, 150), (70, 129))
    for each in (weights, alone):
        optimizer = make(each)
        optimizer.step()
        optimizer.step()
    assert all(torch.equal(one.as_subclass(torch.Tensor), two) for one, two in zip(weights, alone))


@pytest.mark.parametrize("make", [*OF_WHOLE, Together, optim.LBFGS])
def test_statistics_of_shares_are_errors(make):
    args = (lambda: torch.ones(()),) if make is optim.LBFGS else ()
    weights = shares()
    optimizer = make(weights)
    before = [one.clone().as_subclass(torch.Tensor) for one in weights]
    said = "of up.weight, of its gradient or of their state: a process has its share"
    with pytest.raises(ApplyError, match=said):
        refuse_unplaced(TriedOptimizer(optimizer, args, {}, lambda copy: None))
    assert all(torch.equal(one, two.as_subclass(torch.Tensor)) for one, two in zip(before, weights))
    with pytest.raises(ApplyError, match=said):
        optimizer.step(*args)


class StateBesideWeight(optim.Optimizer):
    """Makes its state without its weight, as `transformers.Adafactor` does."""

    def __init__(self, weights):
        super().__init__(weights, {})

    @torch.no_grad()
    def step(self, closure=None):
        for weight in self.param_groups[0]["params"]:
            rows = self.state[weight].setdefault("rows", torch.zeros(weight.shape[:-1]).to(weight))
            rows.add_(weight.grad.pow(2).mean(-1))
            weight.sub_(weight.grad * rows.rsqrt()[:, None])


@pytest.fixture
def distributed():
    """Makes a DTensor of a weight."""
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    yield lambda one: torch.nn.Parameter(distribute_tensor(one.detach(), mesh, [Shard(0)]))
    dist.destroy_process_group()


def test_a_state_that_is_no_dtensor_is_an_error_before_any_weight_has_changed(distributed):
    weights = [distributed(one) for one in weights_of((65, 150), (70, 129))]
    before = [one.full_tensor().clone() for one in weights]
    for one in weights:
        one.grad = torch.ones_like(one)
    tried = TriedOptimizer(StateBesideWeight(weights), (), {}, lambda copy: None)
    for checked in (refuse_unplaced, lambda tried: _check(torch.nn.Linear(1, 1), [], tried)):
        with pytest.raises(ApplyError, match=r"aten.add_.Tensor of a DTensor and a plain tensor of 1 dimensions"):
            checked(tried)
    assert all(torch.equal(one, two.full_tensor()) for one, two in zip(before, weights))


@pytest.mark.parametrize("make", [*ALONE, *OF_WHOLE, Together])
def test_other_optimizers_of_dtensors_are_none(make, distributed):
    weights = [distributed(one) for one in weights_of((65, 150), (70, 129))]
    refuse_unplaced(TriedOptimizer(make(weights), (), {}, lambda copy: None))


@pytest.mark.parametrize("share", [True, False])
def test_a_norm_of_shares_that_are_plain_tensors_is_an_error_each_time(share):
    model, (weight, whole) = torch.nn.Linear(1, 1), weights_of((3, 4), (2, 2))
    spreads = [SimpleNamespace(name="up.weight", stored=weight, is_part=share)]
    spreads.append(SimpleNamespace(name="norm.weight", stored=whole, is_part=False))
    model._trained = lambda: SimpleNamespace(weights=spreads)
    own = torch.nn.utils.get_total_norm
    for _ in range(2):
        if share:
            with pytest.raises(ApplyError, match="would be that of its share of up.weight"):
                norm_of_whole([model], own, [weight.grad, whole.grad])
        assert norm_of_whole([model], own, [whole.grad]) == whole.grad.norm()
