"""Lengths of packed blocks in a plan, which hold for models of other sizes."""

import pytest
import torch
from torch import nn

from modular_converter.parallel.errors import ApplyError, PlanFormatError
from modular_converter.parallel.plans.parts import checked_parts, lengths_of, look_up_from, reduced, value_of
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


class Fused(nn.Module):
    """Grouped attention with one projection for queries, keys and values, cut by slices or by one split."""

    def __init__(self, heads, groups, how):
        super().__init__()
        self.heads, self.groups, self.width, self.how = heads, groups, 8, how
        self.qkv = nn.Linear(32, (heads + 2 * groups) * self.width)
        self.out = nn.Linear(heads * self.width, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, x):
        fused = self.qkv(self.norm(x))
        border = self.heads * self.width
        if self.how == "slices":
            end = border + self.groups * self.width
            q, k, v = fused[..., :border], fused[..., border:end], fused[..., end:]
        elif self.how == "nested":
            q, both = fused.split([border, 2 * self.groups * self.width], -1)
            k, v = both.split([self.groups * self.width, self.groups * self.width], -1)
        else:
            q, k, v = fused.split([border, self.groups * self.width, self.groups * self.width], -1)
        q, k, v = (t.view(*x.shape[:2], -1, self.width).transpose(1, 2) for t in (q, k, v))
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        mixed = torch.softmax(q @ k.mT, -1) @ v
        return self.norm(x + self.out(mixed.transpose(1, 2).flatten(2)))


class Model(nn.Module):
    def __init__(self, heads, groups, how):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([Fused(heads, groups, how) for _ in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize(
    ("how", "parts"),
    [
        ("slices", ("heads*width", "groups*width", "rest")),
        ("split", ("heads*width", "groups*width", "groups*width")),
        ("nested", ("heads*width", "groups*width", "groups*width")),
    ],
)
def test_a_plan_of_equal_blocks_is_right_for_unequal_ones(how, parts):
    x = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(2))
    plan = plan_of_trace(record(Model(8, 8, how), {"x": x}, "fused"))
    fused = next(rule for rule in plan.rules if rule.pattern == "layers.*.qkv")
    assert fused.style == "packed_colwise" and fused.parts == parts
    assert Plan.parse(str(plan)) == plan and Plan.from_json(plan.to_json()) == plan
    for heads, groups in ((8, 8), (8, 4), (16, 4)):
        verdict = check_model_on_threads(Model(heads, groups, how), plan, {"x": x}, 2)
        assert verdict.passed, (heads, groups, verdict)


def test_an_expression_is_looked_up_in_the_nearest_module():
    outer, inner = nn.Module(), nn.Linear(2, 2)
    outer.inner, outer.heads, outer.sizes = inner, 4, [3, 5]
    look_up = look_up_from("inner", outer.get_submodule)
    assert lengths_of(("heads*8", "sizes[1]", "rest"), 40, look_up, "w") == (32, 5, 3)
    assert lengths_of((1, 1), 40, look_up, "w") == (1, 1)
    with pytest.raises(ApplyError, match="w: part depth: no module around inner has depth"):
        lengths_of(("depth", "rest"), 40, look_up, "w")
    with pytest.raises(ApplyError, match=r"do not add up to 20: heads\*8 = 32, rest = -12"):
        lengths_of(("heads*8", "rest"), 20, look_up, "w")


def test_a_division_by_what_may_be_nothing_is_a_part():
    """Only the model tells: the syntax is checked without values."""
    parts = checked_parts(("n//(h-g)", "rest"), "w")
    assert lengths_of(parts, 40, {"n": 64, "h": 6, "g": 4}.__getitem__, "w") == (4, 1)
    with pytest.raises(ApplyError, match=r"w: part n//\(h-g\): .*by zero"):
        lengths_of(parts, 40, {"n": 64, "h": 4, "g": 4}.__getitem__, "w")
    with pytest.raises(ApplyError, match="40 does not divide into h-g = -2 equal blocks"):
        lengths_of(("h-g",), 40, {"h": 2, "g": 4}.__getitem__, "w")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd()",
        "a[f()]",
        "a if b else c",
        "a/b",
        "'x'",
        "",
        "a b",
        "a[1:2]",
        "a[b]",
        "1 .real",
        "a+f(b)",
        "-f(b)",
    ],
)
def test_nothing_but_attributes_and_sums_is_a_part(text):
    with pytest.raises(PlanFormatError, match="is not a part"):
        checked_parts([text], "w")


@pytest.mark.parametrize("value", [0, True, 1.5, None])
def test_a_length_is_a_positive_number(value):
    with pytest.raises(PlanFormatError, match="is not a part"):
        checked_parts([value], "w")


class Blocks(nn.Module):
    """Several feed-forwards whose weights lie in one matrix: how many, the code says in one way or another."""

    def __init__(self, number, width, how):
        super().__init__()
        self.number, self.width, self.how = number, width, how
        self.up = nn.Parameter(torch.randn(number * width, 32) * 0.2)
        self.down = nn.Parameter(torch.randn(number * width, 32) * 0.2)
        self.norm = nn.LayerNorm(32)

    def cut(self, weight):
        if self.how == "chunk":
            return weight.chunk(self.number)
        if self.how == "number":
            return weight.view(self.number, -1, 32).unbind()
        if self.how == "width":
            return weight.view(-1, self.width, 32).unbind()
        return weight.chunk(weight.shape[0] // 24)

    def forward(self, x):
        normed = self.norm(x)
        for up, down in zip(self.cut(self.up), self.cut(self.down)):
            x = x + torch.nn.functional.gelu(normed @ up.T) @ down
        return x


class Stacked(nn.Module):
    def __init__(self, number, width, how):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([Blocks(number, width, how) for _ in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize(
    ("how", "parts"), [("chunk", ("number",)), ("number", ("number",)), ("width", ("length//width",))]
)
def test_a_plan_of_some_blocks_is_right_for_more(how, parts):
    x = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(2))
    plan = plan_of_trace(record(Stacked(4, 24, how), {"x": x}, "blocks"))
    up = next(rule for rule in plan.rules if rule.pattern == "layers.*.up")
    assert up.style == "packed_colwise" and up.parts == parts
    assert Plan.parse(str(plan)) == plan and Plan.from_json(plan.to_json()) == plan
    for number, width in ((4, 24), (6, 16), (2, 8)):
        verdict = check_model_on_threads(Stacked(number, width, how), plan, {"x": x}, 2)
        assert verdict.passed, (number, width, verdict)


def test_blocks_that_the_code_does_not_name_stay_whole():
    x = torch.randn(2, 6, 32)
    plan = plan_of_trace(record(Stacked(4, 24, "computed"), {"x": x}, "blocks"))
    assert not plan.rules and {"layers.*.up", "layers.*.down"} <= set(dict(plan.whole))


def test_a_number_of_blocks_that_does_not_divide_is_refused():
    assert lengths_of(("length//8",), 40, {}.__getitem__, "w") == (1, 1, 1, 1, 1)
    with pytest.raises(ApplyError, match="w: 40 does not divide into heads = 3 equal blocks"):
        lengths_of(("heads",), 40, {"heads": 3}.__getitem__, "w")


def test_what_a_model_says_of_a_name_must_be_an_integer():
    outer, inner = nn.Module(), nn.Linear(2, 2)
    outer.inner, inner.heads, outer.heads, outer.rates = inner, "two", 4, [0.5]
    look_up = look_up_from("inner", outer.get_submodule)
    assert look_up("heads") == 4 and look_up("in_features") == 2
    for name in ("rates[0]", "rates[1]", "heads.more", "heads[0]"):
        with pytest.raises(LookupError, match=f"no module around inner has {name}".replace("[", r"\[")):
            look_up(name)
    assert look_up_from("", outer.get_submodule)("heads") == 4


def test_a_part_may_be_negative_on_the_way_but_no_length():
    assert lengths_of(("-h+n", "rest"), 40, {"n": 30, "h": 6}.__getitem__, "w") == (3, 2)
    with pytest.raises(ApplyError, match="w: 40 does not divide into rest = None equal blocks"):
        lengths_of(("rest",), 40, {}.__getitem__, "w")
    with pytest.raises(ApplyError, match=r"do not add up to 40: n = 40, rest = 0"):
        lengths_of(("n", "rest"), 40, {"n": 40}.__getitem__, "w")
    assert lengths_of((4, "rest"), 40, {}.__getitem__, "w") == (1, 9) and reduced([]) == ()


def test_a_number_of_units_is_one_at_least():
    assert value_of("h*2", {"h": 3}.__getitem__, "w") == 6 == value_of(6, {}.__getitem__, "w")
    for part in ("h-3", "rest"):
        with pytest.raises(ApplyError, match=f"w: {part} = .* is not a number of units"):
            value_of(part, {"h": 3}.__getitem__, "w")
