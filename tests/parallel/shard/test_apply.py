"""A plan applied in place and undone."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.shard.apply import apply, undo
from modular_converter.parallel.shard.collectives import ThreadBoard, ThreadGroup, run_on_threads
from tests.parallel.solve.test_traps import HIDDEN, Attention


class Shared(nn.Module):
    """One module under two names."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.second = self.first

    def forward(self, x):
        return self.second(self.first(x))


def test_a_module_with_two_names_is_cut_once():
    plan = Plan.parse("plan x\nrule first.0 colwise\nrule first.2 rowwise\n")
    verdict = check_model_on_threads(Shared(), plan, {"x": torch.randn(3, 8)}, 2)
    assert verdict.passed, verdict


class Heads(nn.Module):
    """A norm of each head between a column and a row layer, and two outputs, so that there are two backwards."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.norm, self.down = nn.Linear(8, 16), nn.LayerNorm(4), nn.Linear(16, 8)

    def forward(self, x):
        heads = self.norm(self.up(x).view(*x.shape[:-1], -1, 4))
        found = self.down(heads.flatten(-2))
        return found, found.sin()


HEADS = Plan.parse("plan x\nrule up colwise\nrule norm replicated_with_grad_allreduce\nrule down rowwise\n")


def test_gradients_start_anew_with_each_backward():
    verdict = check_model_on_threads(Heads(), HEADS, {"x": torch.randn(3, 8)}, 2)
    assert verdict.passed, verdict


def test_attributes_are_set_on_the_parameter_itself():
    model = Heads()
    board = ThreadBoard(1)
    with board.turn:
        apply(model, HEADS, ThreadGroup(board, 0))
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        model.zero_grad(set_to_none=True)
        assert all(parameter.grad is None for parameter in model.parameters())
        model.norm.weight.data = torch.full((4,), 3.0)
        assert model.norm.weight.tolist() == [3.0] * 4
        model.norm.weight.requires_grad = False
        assert not model.norm.weight.requires_grad


COPIES = Plan.parse(
    "plan x\nrule q colwise units=2 members=2\nrule k colwise units=2 members=1\nrule v colwise units=2 members=1\n"
    "rule o rowwise units=2 members=2\nattribute :heads\nattribute :groups\n"
)


def test_ranks_with_copies_of_a_head_sum_its_gradient_and_give_it_back_once():
    """Four query heads share two key/value heads, on four ranks."""
    torch.manual_seed(0)
    model = Attention(groups=2)
    assert check_model_on_threads(model, COPIES, {"x": torch.randn(2, 6, HIDDEN)}, 4).passed
    models = [copy.deepcopy(model) for _ in range(4)]

    def work(group):
        applied = apply(models[group.rank], COPIES, group)
        undo(applied)
        return False

    run_on_threads(4, work)
    for found in models:
        assert (found.heads, found.groups) == (4, 2)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in found.state_dict().items())


class Counted(nn.Module):
    """Integers in all places: the module's own, those of a configuration that two modules share, and lists of them."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(heads=4, groups=2, sizes=[8, 3], name="x")
        self.one, self.other = nn.Linear(4, 8), nn.Linear(4, 8)
        for part in (self.one, self.other):
            part.config, part.heads, part.sizes, part.shape = self.config, 4, [8, 3, 6], (3, 8)


def counted(*attributes):
    """Rank 1 of two with a plan of integers."""
    model = Counted()
    lines = [f"attribute {name}\n" for name in attributes]
    return model, apply(
        model, Plan.parse("plan x\nrule one colwise\n" + "".join(lines)), ThreadGroup(ThreadBoard(2), 1)
    )


def test_integers_shrink_where_they_are_kept_and_come_back():
    names = ("one:heads", "one:config.heads", "one:config.groups", "one:config.sizes[0]", "one:sizes[0]", "one:sizes[2]", "one:shape[1]")  # fmt: skip
    model, applied = counted(*names)
    one, other = model.one, model.other
    assert (one.heads, one.sizes, one.shape) == (2, [4, 3, 3], (3, 4))
    assert (one.config.heads, one.config.groups, one.config.sizes) == (2, 1, [4, 3])
    for config in (model.config, other.config):  # a configuration that others share stays as it is
        assert (config.heads, config.groups, config.sizes, config.name) == (4, 2, [8, 3], "x")
    assert (other.heads, other.sizes) == (4, [8, 3, 6])
    applied.resolution.pieces.clear()  # weights need the other rank
    undo(applied)
    assert one.config is model.config and (one.heads, one.sizes, one.shape) == (4, [8, 3, 6], (3, 8))
    assert (model.config.heads, model.config.groups, model.config.sizes) == (4, 2, [8, 3])


@pytest.mark.parametrize(
    "name, said",
    [
        ("one:gone", "one:gone: the module has no such integer"),
        ("one:config.gone", "one:gone: the module has no such integer"),
        ("one:config.name", "one:name: the module has no such integer"),
        ("one:gone.heads", "one:gone.heads: the module has no such attribute"),
        ("one:sizes[3]", r"one:sizes\[3\]: no such entry"),
        ("one:heads[0]", r"one:heads\[0\]: no such entry"),
        ("one:sizes[1]", r"one:sizes\[1\] is 3, which does not divide over 2 ranks"),
    ],
)
def test_integers_that_there_are_not_are_named(name, said):
    with pytest.raises(ApplyError, match=said):
        counted(name)


class Hooked(nn.Module):
    """A key that all heads share, a part of it alone in one of them, and a sum at the border of a module."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.both = nn.Linear(8, 16), nn.Linear(8, 4), nn.Linear(8, 12)
        self.pair = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 8, bias=False))

    def forward(self, x):
        x = torch.tanh(x)
        own, shared = self.both(x).split([8, 4], -1)
        heads = self.query(x).view(*x.shape[:-1], -1, 4) * self.key(x).unsqueeze(-2) * shared.unsqueeze(-2)
        return self.pair(heads.flatten(-2)) + own


HOOKED = """plan x
rule query colwise
rule key enter_output
rule both mla_kv_a_proj parts=2:1
rule pair.0 rowwise
"""


def test_modules_communicate_until_the_plan_is_undone():
    x = {"x": torch.randn(3, 8, generator=torch.Generator().manual_seed(1))}
    plan = Plan.parse(HOOKED)
    assert check_model_on_threads(Hooked(), plan, x, 2).passed
    for line in ("rule key enter_output\n", "rule both mla_kv_a_proj parts=2:1\n"):
        verdict = check_model_on_threads(Hooked(), Plan.parse(str(plan).replace(line, "")), x, 2)
        assert not verdict.passed and "gradient" in verdict.reason
    models, wanted = [Hooked() for _ in range(2)], Hooked()(**x)

    def work(group):
        applied = apply(models[group.rank], plan, group)
        assert len(applied.handles) == 2
        undo(applied)
        return False

    run_on_threads(2, work)
    assert all(torch.equal(model(**x), wanted) and not model.key._forward_hooks for model in models)


def test_a_reason_against_a_plan_is_found_before_anything_is_changed():
    model = Hooked()
    plan = Plan.parse("plan x\nrule query colwise\nrule key colwise units=3\n")
    with pytest.raises(ApplyError, match=r"^key\.weight: a block of length 4 is not made of 3 equal units"):
        apply(model, plan, ThreadGroup(ThreadBoard(2), 0))
    assert model.query.weight.shape == (16, 8) and type(model.query.weight) is nn.Parameter


class Grouped(nn.Module):
    """Its own integer says how many query heads share a key/value head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.o = nn.Linear(8, 16), nn.Linear(8, 8), nn.Linear(16, 8)
        self.num_key_value_groups = 2

    def forward(self, x):
        q, k = self.q(x).view(*x.shape[:-1], -1, 4), self.k(x).view(*x.shape[:-1], -1, 4)
        return self.o((q * k.repeat_interleave(self.num_key_value_groups, -2)).flatten(-2))


def test_the_size_of_a_group_shrinks_with_the_heads_in_it():
    rules = "rule q colwise units=2 members=2\nrule k colwise units=2 members=1\nrule o rowwise units=2 members=2\n"
    x = {"x": torch.randn(3, 8, generator=torch.Generator().manual_seed(1))}
    assert check_model_on_threads(Grouped(), Plan.parse(f"plan x\n{rules}"), x, 4).passed
    model, board = Grouped(), ThreadBoard(4)
    assert apply(model, Plan.parse(f"plan x\n{rules}"), ThreadGroup(board, 0)).model.num_key_value_groups == 1
