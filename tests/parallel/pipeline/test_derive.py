"""Pipeline plans: derived from flow, cut by cost, and proven stage by stage with only the named tensors handed over."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from modular_converter.parallel.errors import ApplyError, PlanFormatError, ScheduleError
from modular_converter.parallel.pipeline.chain import balanced, cuts_of_balance, spans
from modular_converter.parallel.pipeline.derive import derive_pipelines, pipeline_of_trace
from modular_converter.parallel.pipeline.flow import flow_of
from modular_converter.parallel.pipeline.prove import cuts_of, proven_pipeline_plan, verify_pipeline
from modular_converter.parallel.pipeline.stage import StageModule
from modular_converter.parallel.plans.pipeline_plan import Entry, PipelinePlan, library_text
from modular_converter.parallel.proof.subject import with_mask
from modular_converter.parallel.solve.follow import PARAMETERS, dependence
from modular_converter.parallel.trace.record import record


WIDTH = 16


@pytest.mark.parametrize(
    "costs, stages, head, tail, cuts",
    [
        ([1, 1, 1, 1], 2, 0, 0, (2,)),
        ([1, 1, 1, 1], 2, 2, 0, (1,)),
        ([1, 1, 1, 1], 2, 0, 2, (3,)),
        ([5, 1, 1, 1], 2, 0, 0, (1,)),
        ([1, 1, 1, 1, 1, 1], 3, 0, 0, (2, 4)),
        ([7], 1, 3, 3, ()),
    ],
)
def test_cuts_of_known_costs(costs, stages, head, tail, cuts):
    assert balanced(costs, stages, head, tail) == cuts


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7), st.integers(1, 4), st.integers(0, 30), st.integers(0, 30))
def test_no_other_cut_has_a_cheaper_dearest_stage(costs, stages, head, tail):
    if stages > len(costs):
        with pytest.raises(ValueError, match="cannot be cut"):
            balanced(costs, stages, head, tail)
        return

    def dearest(cuts):
        sums = [sum(costs[i] for i in span) for span in spans(cuts, len(costs))]
        sums[0] += head
        sums[-1] += tail
        return max(sums)

    found = balanced(costs, stages, head, tail)
    assert all(len(span) > 0 for span in spans(found, len(costs)))
    others = itertools.combinations(range(1, len(costs)), stages - 1)
    assert dearest(found) == min(map(dearest, others))


names = st.from_regex(r"[a-z_]{1,9}", fullmatch=True)
entries = st.builds(
    Entry,
    st.from_regex(r"[a-z_]{1,6}(\.[a-z0-9_]{1,6}){0,2}", fullmatch=True),
    st.lists(names, max_size=3).map(tuple),
    st.lists(names, max_size=2).map(tuple),
)
plans = st.builds(PipelinePlan, names, st.lists(entries, max_size=4, unique_by=lambda e: e.module).map(tuple))


@given(plans)
def test_all_forms_lose_nothing(plan):
    assert PipelinePlan.parse(str(plan)) == plan
    assert PipelinePlan.from_json(plan.to_json()) == plan
    assert PipelinePlan.from_library(plan.model, plan.to_library()) == plan


@pytest.mark.parametrize(
    "text, said",
    [
        ("pipeline x\nmodule a b c\n", "line 2"),
        ("pipeline x\nrule a colwise\n", "unknown word 'rule'"),
        ("module a b -> c\n", "begins with a line"),
        ("pipeline x\nmodule a b;c -> d\n", "a list of names expected"),
    ],
)
def test_bad_text_is_named(text, said):
    with pytest.raises(PlanFormatError, match=said):
        PipelinePlan.parse(text)


def test_bad_json_and_library_values_are_named():
    with pytest.raises(PlanFormatError, match="'rules' was unexpected"):
        PipelinePlan.from_json('{"version": 1, "rules": []}')
    with pytest.raises(PlanFormatError, match="norm: .*expected"):
        PipelinePlan.from_library("x", {"norm": [["hidden_states"]]})


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden, mask=None, extra=None):
        inner = torch.tanh(self.up(hidden if extra is None else hidden + extra))
        return hidden + self.down(inner if mask is None else inner * mask)


class Chain(nn.Module):
    """An embedding that is scaled once, three layers with a mask, a norm; switches for what breaks a chain."""

    def __init__(self, trap=""):
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.norm, self.trap = nn.LayerNorm(WIDTH), trap
        self.others = nn.ModuleList([Layer() for _ in range(2)]) if trap in ("two stacks", "idle") else None

    def forward(self, ids, keep, embeds=None):
        embeds = self.embed(ids)
        hidden = start = embeds * 3.0
        mask = keep[..., None].float()
        positions = torch.arange(ids.shape[1])[:, None] * 0.1
        for index, layer in enumerate(self.layers):
            hidden = self.norm(hidden) if self.trap == "between" else hidden
            extra = start if self.trap == "passes by" else start * (index + 1) if self.trap == "made anew" else None
            extra = start if (self.trap, index) == ("to the second", 1) else extra
            hidden = layer(hidden + positions * 0, mask=mask, extra=extra)
        if self.trap == "twice":
            hidden = self.layers[0](hidden)
        for layer in (self.others if self.trap == "two stacks" else None) or ():
            hidden = layer(hidden)
        return self.norm(hidden) + (start if self.trap == "around" else 0)


def chain(trap=""):
    torch.manual_seed(3)
    inputs = {"ids": torch.randint(0, 32, (2, 5)), "keep": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])}
    model = Chain(trap).eval()
    return model, inputs, pipeline_of_trace(record(model, inputs, "chain"))


def test_names_come_from_the_run_and_positions_are_not_handed_over():
    model, inputs, plan = chain()
    assert plan.to_library() == {
        "embed": (["ids"], ["embeds"]),
        "layers": (["hidden", "keep"], ["hidden"]),
        "norm": (["hidden"], ["hidden"]),
    }
    assert library_text(plan).splitlines()[2] == '    "layers": (["hidden", "keep"], ["hidden"]),'


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_stages_give_the_same_outputs_and_gradients(stages):
    model, inputs, plan = chain()
    verdict = verify_pipeline(model, plan, inputs, stages)
    assert verdict.passed and verdict.output_error < 1e-6 and verdict.gradient_error < 1e-6


def test_what_passes_by_unchanged_is_handed_on_by_name():
    model, inputs, plan = chain("passes by")
    assert plan.entries[1].inputs == ("hidden", "keep", "extra")
    assert verify_pipeline(model, plan, inputs, 3).passed
    short = dataclasses.replace(plan.entries[1], inputs=("hidden", "keep"))
    verdict = verify_pipeline(model, PipelinePlan("x", (plan.entries[0], short, plan.entries[2])), inputs)
    assert "cut before layer 1: the outputs use a value that the stages do not hand over" in verdict.reason


def test_each_border_is_cut_however_many_stages_are_asked_for():
    _, inputs, plan = chain()
    verdict = verify_pipeline(Chain("to the second").eval(), plan, inputs, 1)
    assert not verdict.passed and verdict.reason.startswith("cut before layer 1: ")


class Detached(Layer):
    def forward(self, hidden, mask=None, extra=None):
        return super().forward(hidden, mask, extra.detach())


def test_what_is_handed_on_need_have_no_gradient():
    model, inputs, plan = chain("passes by")
    model.layers[2] = Detached()
    assert verify_pipeline(model, plan, inputs, 3).passed


class Behind(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, embeds):
        return self.linear(embeds)


def test_an_expression_has_the_name_of_the_argument_if_the_model_has_one():
    model, inputs, _ = chain()
    model.norm = Behind()
    plan = pipeline_of_trace(record(model, inputs, "chain"))
    assert [entry.inputs for entry in plan.entries] == [("ids",), ("hidden", "keep"), ("hidden",)]
    model.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3)))
    trace = record(Unnamed(model), {"ids": inputs["ids"]}, "unnamed")
    assert [entry.inputs for entry in pipeline_of_trace(trace).entries] == [("ids",), ("input",), ("embeds",)]


class Unnamed(nn.Module):
    """No variable holds what modules give."""

    def __init__(self, parts):
        super().__init__()
        self.embed, self.layers, self.behind = parts.embed, parts.layers, parts.norm

    def forward(self, ids, embeds=None):
        return self.behind(self.layers(self.embed(ids) * 3.0) * 2.0)


class Tower(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(count)])

    def forward(self, hidden):
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


class Towers(nn.Module):
    def __init__(self, *counts):
        super().__init__()
        self.embed, self.first, self.last = nn.Embedding(32, WIDTH), Tower(counts[0]), Tower(counts[1])

    def forward(self, ids):
        return self.last(self.first(self.embed(ids)))


@pytest.mark.parametrize(("counts", "divided"), [((5, 2), "first"), ((4, 2), "last"), ((2, 5), "last")])
def test_the_last_large_stack_is_divided(counts, divided):
    model = Towers(*counts)
    found = derive_pipelines(record(model, {"ids": torch.ones(2, 3, dtype=torch.long)}, "towers"), skips=True)
    assert [entry.module for entry in found[0].entries if entry.module.endswith("layers")] == [f"{divided}.layers"]


@pytest.mark.parametrize(
    ("balance", "said"),
    [
        ([1, 2], "has 2 numbers, there are 3 stages"),
        ([1, 2, 2], "adds up to 5 layers"),
        ([0, 2, 2], "at least one layer"),
    ],
)
def test_a_balance_that_does_not_fit_is_named(balance, said):
    with pytest.raises(ScheduleError, match=said):
        cuts_of_balance(balance, 4, 3)
    assert cuts_of_balance([1, 2, 1], 4, 3) == (1, 3)


def test_a_plan_whose_stages_give_other_numbers_is_none():
    model, inputs, _ = chain()
    model.layers = nn.ModuleList([Counted() for _ in range(3)])
    with pytest.raises(ApplyError, match="chain in stages gives other numbers than whole: cut before layer "):
        proven_pipeline_plan(model, inputs, "chain")


class Lists(Chain):
    """It draws a number for each weight that it finds, in training alone."""

    def forward(self, ids, keep):
        for weight in self.parameters():
            if self.training and not weight.is_meta:
                torch.rand(())
        return super().forward(ids, keep)


def test_a_forward_that_lists_the_weights_of_all_stages_has_no_plan():
    model, inputs, _ = chain()
    model.__class__ = Lists
    with pytest.raises(
        ApplyError, match="the forward lists all parameters or buffers of a Lists, of which a stage has"
    ):
        proven_pipeline_plan(model, inputs, "chain")


class Doubling(Layer):
    """It writes to what it is given, which torch does not allow for leaves, such as a tensor that a stage receives."""

    def forward(self, hidden, mask=None, extra=None):
        return super().forward(hidden.mul_(2.0), mask)


def test_a_layer_may_write_to_what_a_stage_receives():
    model, inputs, plan = chain()
    model.layers = nn.ModuleList([Doubling() for _ in range(3)])
    assert verify_pipeline(model, plan, inputs, 3).passed


def test_a_stage_gives_the_shapes_of_the_run_that_it_knows():
    model, inputs, plan = chain()
    stage = StageModule(model, plan, range(1))
    stage.prepare(flow_of(model, plan, inputs))
    longer = {name: torch.cat([value, value]) for name, value in inputs.items()}
    with pytest.raises(
        ApplyError, match=r"layers: the stage hands over \[\(\(4, 5, 16\), .*were to be \[\(\(2, 5, 16\)"
    ):
        stage(**longer)


class Counted(Layer):
    """Layers say by a number without a tensor, which no stage hands on, what has run before them."""

    before = 0.0

    def forward(self, hidden, mask=None, extra=None):
        Counted.before = (Counted.before + 1.0) % 3
        return super().forward(hidden, mask) * (1.0 + Counted.before)


class OtherNames(Layer):
    def forward(self, states, mask=None, extra=None):
        return super().forward(states, mask, extra)


class Strict(Layer):
    def forward(self, hidden, mask=None, extra=None):
        if extra.isnan().any():
            raise ValueError("no number")
        return super().forward(hidden, mask, extra)


def test_layers_of_several_classes_may_name_what_they_take_otherwise():
    model, inputs, _ = chain()
    model.layers[1] = OtherNames()
    plan = pipeline_of_trace(record(model, inputs, "chain"))
    assert plan.entries[1].outputs == ("states", "hidden") and verify_pipeline(model, plan, inputs, 3).passed


def test_an_error_of_the_models_own_code_in_a_stage_is_told():
    model, inputs, plan = chain("passes by")
    model.layers = nn.ModuleList([Strict() for _ in range(3)])
    short = dataclasses.replace(plan.entries[1], inputs=("hidden", "keep"))
    verdict = verify_pipeline(model, PipelinePlan("x", (plan.entries[0], short, plan.entries[2])), inputs)
    assert (verdict.layer, verdict.reason) == ("a stage", "cut before layer 1: ValueError: no number")


def test_an_input_that_no_module_names_is_not_there():
    model, inputs, plan = chain()
    short = dataclasses.replace(plan.entries[1], inputs=("hidden",))
    verdict = verify_pipeline(model, PipelinePlan("x", (plan.entries[0], short, plan.entries[2])), inputs)
    assert not verdict.passed and verdict.reason.startswith("cut before layer 1: output 0 differs by")
    assert not verdict.evidence.operators  # a failing verdict holds for nothing


@pytest.mark.parametrize(
    "trap, reason",
    [
        ("two stacks", "`layers` and `others` are 2 stacks of layers in one module"),
        ("twice", "`layers.0` runs more than once"),
        ("made anew", "each of `layers` takes a `extra` of its own"),
        ("around", "without passing the layers between"),
        ("idle", "the layers of `others` did not run, so their place in the order is not known"),
        ("between", "the members of `layers` alternate with other modules, so they are not one chain"),
    ],
)
def test_what_is_not_a_chain_is_said(trap, reason):
    assert reason in chain(trap)[2]


def test_plans_that_do_not_fit_are_named():
    model, inputs, plan = chain()
    verdict = verify_pipeline(model, PipelinePlan("x", (Entry("layer", ("hidden",), ("hidden",)),)), inputs)
    assert verdict.reason == "layer: the model has no such module"
    wrong = dataclasses.replace(plan.entries[1], inputs=("hidden_states", "keep"))
    assert "take no `hidden_states`" in verify_pipeline(model, PipelinePlan("x", (wrong,)), inputs).reason
    with pytest.raises(ApplyError, match="3 layers cannot be cut into 4 stages"):
        cuts_of(model, plan, 4)


def test_shapes_are_no_data_and_writes_reach_what_is_viewed():
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x, y):
            board = torch.zeros_like(x)
            board[0] = self.weight
            return board, torch.ones_like(y), y + 1

    trace = record(Written(), {"x": torch.ones(2, 4), "y": torch.ones(2)}, "written")
    depends = [dependence(trace)[number] for number in trace.outputs]
    assert depends == [frozenset({PARAMETERS}), frozenset(), frozenset({"y"})]


transformers = pytest.importorskip("transformers")
from modular_converter.parallel.tables.committed import compare_committed, comparison_table  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


@pytest.mark.parametrize("name", ["llama", "mixtral", "gpt_neox", "phi", "gemma2"])
def test_committed_plans_are_derived(name):
    row = compare_committed("pipeline", name)
    assert (row.outcome, row.derived, row.committed) == ("same", "verified", "verified"), row


def test_a_committed_plan_that_leaves_an_argument_out_is_refused():
    row = compare_committed("pipeline", "glm_moe_dsa")
    assert row.outcome == "differs" and "prev_topk_indices" in row.why
    assert row.derived == "verified" and "cut before layer 1" in row.committed
    assert "1 differ" in comparison_table("pipeline", [row])


@pytest.mark.parametrize("name, layers", [("bert", "encoder.layer"), ("gpt2", "h"), ("vit", "layers")])
def test_models_without_a_committed_plan(name, layers):
    small = build(target_of(name))
    inputs = with_mask(small.model, small.inputs)
    plan = pipeline_of_trace(record(small.model, inputs, name))
    assert layers in plan.to_library()
    assert verify_pipeline(small.model, plan, inputs).passed


@pytest.mark.parametrize(
    "name, whole, layers",
    [
        ("t5", "encoder", "decoder.block"),  # masks that a layer makes for the next one; a dropout before and behind
        ("llava", "vision_tower", "language_model.layers"),  # an output that is computed from another part's result
        ("qwen2_5_vl", "visual", "language_model.layers"),  # a result that the model writes to, and asks for its type
        ("ctrl", "w", "h"),  # a sum in place
        ("clip", "text_model", "vision_model.encoder.layers"),  # the last one is passed by what is used behind it
    ],
)
def test_of_several_stacks_one_is_divided(name, whole, layers):
    small = build(target_of(name))
    inputs = with_mask(small.model, small.inputs)
    plan = pipeline_of_trace(record(small.model, inputs, name))
    assert {whole, layers} <= set(plan.to_library())
    assert verify_pipeline(small.model, plan, inputs, whole_batch=True).passed


@pytest.mark.parametrize(
    "name, reason",
    [
        ("gemma4_text", "takes a `per_layer_input` of its own"),
        ("albert", "runs more than once"),
    ],
)
def test_models_that_are_not_chains(name, reason):
    small = build(target_of(name))
    assert reason in pipeline_of_trace(record(small.model, small.inputs, name))


class Shared(Layer):
    """Layers after the first one take what it has left with their class."""

    first = None

    def forward(self, hidden, mask=None, extra=None):
        Shared.first = hidden.mean() if Shared.first is None else Shared.first
        return super().forward(hidden, mask) + Shared.first


def test_a_stage_has_nothing_that_another_one_keeps_with_its_class():
    model, inputs, plan = chain()
    model.layers = nn.ModuleList([Shared() for _ in range(3)])
    verdict = verify_pipeline(model, plan, inputs)
    assert not verdict.passed and Shared.first is None
