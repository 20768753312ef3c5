"""Expert plans: the axis of experts found by its look-up, and the traps of routing refused by their numbers."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel.plans.plan import Plan, PlanRule, is_expert_plan
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.solve.experts import derive_experts
from modular_converter.parallel.styles.forward import routing_of
from modular_converter.parallel.trace.record import record


WIDTH, INNER, NUMBER, CHOSEN = 16, 24, 8, 2


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(NUMBER, WIDTH))

    def forward(self, tokens):
        weights, index = torch.topk(torch.softmax(F.linear(tokens, self.weight), -1), CHOSEN, -1)
        return weights, index


class Experts(nn.Module):
    """Stacked experts in two ways of computing them: a loop over those that were hit, and one batched product."""

    def __init__(self, loop, number=NUMBER):
        super().__init__()
        self.num_experts, self.loop = number, loop
        self.up = nn.Parameter(torch.randn(number, INNER, WIDTH) / 4)
        self.up_bias = nn.Parameter(torch.randn(number, INNER))
        self.down = nn.Parameter(torch.randn(number, WIDTH, INNER) / 4)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens, index, weights):
        if not self.loop:
            flat = index.flatten()
            inner = torch.bmm(self.up[flat], tokens.repeat_interleave(CHOSEN, 0)[..., None])[..., 0]
            found = torch.bmm(self.down[flat], torch.tanh(inner + self.up_bias[flat])[..., None])[..., 0]
            return (self.norm(found).view(-1, CHOSEN, WIDTH) * weights[..., None]).sum(1)
        result = torch.zeros_like(tokens)
        hits = F.one_hot(index, self.num_experts).permute(2, 1, 0)
        for expert in hits.sum((1, 2)).nonzero():
            expert = expert[0]
            place, token = torch.where(hits[expert])
            inner = torch.tanh(F.linear(tokens[token], self.up[expert]) + self.up_bias[expert])
            found = self.norm(F.linear(inner, self.down[expert])) * weights[token, place, None]
            result.index_add_(0, token, found)
        return result


class Mixture(nn.Module):
    def __init__(self, loop=True, number=NUMBER):
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.router, self.experts = Router(), Experts(loop, number)

    def forward(self, ids):
        tokens = self.embed(ids).flatten(0, 1)
        weights, index = self.router(tokens)
        return tokens + self.experts(tokens, index, weights)


def mixture(loop=True, **options):
    torch.manual_seed(1)
    model = Mixture(loop, **options).eval()
    inputs = {"ids": torch.randint(0, 32, (2, 12))}
    return model, inputs, derive_experts(record(model, inputs, "mixture"))


@pytest.mark.parametrize("loop", [True, False])
def test_the_stacks_and_their_module_are_found_and_nothing_else(loop):
    _, _, plan = mixture(loop)
    assert [str(rule) for rule in plan.rules] == [
        "experts.up grouped_gemm",
        "experts.up_bias grouped_gemm",
        "experts.down grouped_gemm",
        "experts.norm replicated_with_grad_allreduce",
        "experts ep_dispatch_experts",
    ]
    assert is_expert_plan(plan) and Plan.parse(str(plan)) == plan == Plan.from_json(plan.to_json())


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("loop", [True, False])
def test_outputs_and_gradients_on_ranks(loop, ranks):
    model, inputs, plan = mixture(loop)
    verdict = check_model_on_threads(model, plan, inputs, ranks)
    assert verdict.passed and verdict.gradient_error < 1e-4, verdict


def refused(plan, loop=True):
    model, inputs, _ = mixture(loop)
    verdict = check_model_on_threads(model, plan, inputs, 2)
    assert verdict.layer or verdict.reason
    return not verdict.passed


def test_sliced_scores_with_indices_of_all_experts_are_refused():
    """The router's scores are sharded, so each rank ranks its own experts; every shape fits."""
    _, _, plan = mixture()
    whole_dispatch = PlanRule("experts", "moe_tp_experts")
    stacks = tuple(rule for rule in plan.rules if rule.style != "ep_dispatch_experts")
    sliced = (PlanRule("router.weight", "colwise"), *stacks, whole_dispatch)
    assert refused(dataclasses.replace(plan, rules=sliced))
    assert refused(dataclasses.replace(plan, rules=(PlanRule("router.weight", "colwise"), *plan.rules)))


@pytest.mark.parametrize("loop", [True, False])
def test_indices_of_all_experts_on_local_stacks_are_refused(loop):
    _, _, plan = mixture(loop)
    rules = (*plan.rules[:-1], PlanRule("experts", "moe_tp_experts"))
    assert refused(dataclasses.replace(plan, rules=rules), loop)
    assert refused(dataclasses.replace(plan, rules=plan.rules[:-1]), loop)


@pytest.mark.parametrize("left_out", ["experts.up", "experts.up_bias", "experts.down", "experts.norm"])
def test_each_rule_is_needed(left_out):
    _, _, plan = mixture()
    assert refused(dataclasses.replace(plan, rules=tuple(r for r in plan.rules if r.pattern != left_out)))


def test_a_module_without_sharded_stacks_is_named():
    model, inputs, _ = mixture()
    verdict = check_model_on_threads(model, Plan.parse("plan x\nrule experts ep_dispatch_experts\n"), inputs, 2)
    assert verdict.layer == "experts" and "none of its parameters is sharded" in verdict.reason


def test_experts_that_do_not_divide_stay_whole_with_the_reason():
    _, _, plan = mixture(number=10)
    assert plan.rules == () and plan.whole == (("experts", "10 experts do not divide by 4"),)


class Odd(nn.Module):
    """Stacks that are picked from by computed indices, in ways that no rank could have a part of."""

    def __init__(self, how):
        super().__init__()
        self.embed, self.how, self.experts = nn.Embedding(32, WIDTH), how, nn.Module()
        stack = nn.Parameter(torch.randn(*((NUMBER, WIDTH, WIDTH) if how != "second" else (WIDTH, NUMBER, WIDTH))))
        self.experts.up, self.experts.more = stack, nn.Parameter(torch.randn(2 * NUMBER, WIDTH))
        self.experts.forward = lambda tokens, index: self.pick(tokens, index)

    def pick(self, tokens, index):
        stack = self.experts.up[:, index].transpose(0, 1) if self.how == "second" else self.experts.up[index]
        found = torch.bmm(stack, tokens[..., None])[..., 0]
        return found + self.experts.more[index] if self.how == "numbers" else found

    def forward(self, ids):
        tokens = self.embed(ids).flatten(0, 1)
        index = (tokens @ self.experts.more[:NUMBER].T.detach()).argmax(-1)
        return self.pick(tokens, index) if self.how == "outside" else self.experts(tokens, index)


@pytest.mark.parametrize(
    "how, said",
    [
        ("second", "the experts are dimension 1 of up, not the first"),
        ("numbers", "its weights hold different numbers of experts: 8, 16"),
        ("outside", "its weights are used outside its own forward"),
        ("inside", "it takes no index of experts with weights of the same shape"),
    ],
)
def test_experts_that_cannot_be_divided_are_named_with_the_reason(how, said):
    torch.manual_seed(1)
    plan = derive_experts(record(Odd(how).eval(), {"ids": torch.randint(0, 32, (2, 12))}, "odd"))
    assert plan.rules == () and plan.whole == (("experts", said),)


def test_tables_that_are_looked_up_are_no_experts():
    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.codes = nn.Embedding(32, WIDTH), nn.Embedding(8, WIDTH)

        def forward(self, ids):
            hidden = self.embed(ids)
            return self.codes((hidden @ self.codes.weight.T).argmax(-1))

    assert derive_experts(record(Tables(), {"ids": torch.arange(6)[None]}, "tables")).rules == ()


def test_routing_is_an_index_with_weights_of_its_shape():
    tokens, index, weights = torch.zeros(6, 4), torch.zeros(6, 2, dtype=torch.long), torch.zeros(6, 2)
    found = routing_of({0: tokens, 1: index, "scores": weights})
    assert found is not None and (found.index, found.weights) == (1, "scores")
    assert routing_of({0: tokens, 1: index}) is None
    assert routing_of({0: tokens, 1: index, 2: weights, 3: weights}) is None


pytest.importorskip("transformers")
from modular_converter.parallel.tables.committed import compare_committed  # noqa: E402


@pytest.mark.parametrize(
    "name",
    [
        *("gpt_oss", "granitemoe"),
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("muse_spark_text", "nemotron_h", "openai_privacy_filter")
        ),
    ],
)
def test_committed_plans_are_derived(name):
    row = compare_committed("expert", name)
    assert (row.outcome, row.derived, row.committed) == ("same", "verified", "verified"), row


@pytest.mark.slow
def test_the_loader_runs_a_derived_plan(pool):
    row = compare_committed("expert", "mixtral", pool)
    assert (row.outcome, row.loader) == ("same", "verified"), row
    eager = compare_committed("expert", "openai_privacy_filter", pool)
    assert "Class values must be smaller" in eager.loader


class Fixed(nn.Module):
    """A stack of matrices that the code takes one by one, and none by what it computes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stack, self.norm = nn.Parameter(torch.randn(4, 8, 8)), nn.LayerNorm(8)

    def forward(self, x):
        first = self.stack[int(torch.tensor(1))]
        return self.norm(
            x @ first + sum(x @ self.stack[number] for number in range(2)) + x @ self.stack[torch.tensor([2])][0]
        )


def test_matrices_that_are_taken_in_turn_are_no_experts():
    plan = derive_experts(record(Fixed(), {"x": torch.randn(3, 8)}, "fixed"))
    assert plan.rules == () and plan.whole == ()
