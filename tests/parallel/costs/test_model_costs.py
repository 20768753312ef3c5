"""The work of models, counted without data: as much as a run with data does, and as the formulas say."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from modular_converter.parallel import costs as model_costs
from modular_converter.parallel.costs import CountRequest, chain_work, count_chain
from modular_converter.parallel.errors import BuildError, PlanError, ScheduleError
from modular_converter.parallel.schedule.forecast import PipelineSetting, forecast
from modular_converter.parallel.schedule.stage_costs import ChainWork


LLAMA = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
GEMMA = {**LLAMA, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8}
ROWS, LENGTH = 2, 16


def counted(model: str, overrides: dict, **sizes) -> ChainWork:
    return chain_work(CountRequest(model, overrides, None, **{"samples": ROWS, "length": LENGTH, **sizes}))


def test_the_formulas_of_llama():
    work = counted("llama", LLAMA)
    tokens, hidden, between, half = ROWS * LENGTH, 64, 96, 32
    matrices = 2 * hidden * hidden + 2 * hidden * half + 3 * hidden * between
    assert (work.model, work.path, len(work.layers)) == ("LlamaForCausalLM", "model.layers", 4)
    for layer in work.layers:
        assert layer.parameters == matrices + 2 * hidden
        assert layer.weight_flops == 2 * tokens * matrices
        assert layer.other_flops == 4 * tokens * LENGTH * hidden / 2  # causal: half of the pairs
    assert (work.before.weight_flops, work.after.weight_flops) == (0, 2 * tokens * hidden * 100)
    assert (work.before.parameters, work.after.parameters, work.shared) == (6400, 6400 + hidden, 0)
    assert work.output == tokens * hidden * 2
    products, norms = 3 * hidden + 2 * half + 2 * between, 2 * hidden
    assert {layer.weight_results for layer in work.layers} == {tokens * (products + norms) * 2}
    assert [part.temporary for part in (work.before, *work.layers)] == [0.0] * 5
    assert work.after.temporary == 2 * tokens * 100 * 4  # the loss is computed in float32


def test_what_is_kept_of_results():
    work = counted("llama", LLAMA, trains=False)
    costs = work.costs(1.0, 1.0, bytes_per_parameter=2)
    chunks, weights = 4, 2 * work.parameters
    one, two = forecast(PipelineSetting("GPipe", 2, 1, chunks, trains=False), costs).timeline.uses
    assert one.peak + two.peak == weights + chunks * (2 * work.output + 2 * work.result)
    (alone,) = forecast(PipelineSetting("LoopedBFS", 1, 2, chunks, trains=False), costs).timeline.uses
    assert alone.peak == weights + chunks * (work.output + 2 * work.result)  # nothing is received


def test_tied_embeddings_are_held_at_both_ends_or_once():
    work = counted("llama", {**LLAMA, "tie_word_embeddings": True})
    assert (work.before.parameters, work.after.parameters, work.shared) == (6400, 6400 + 64, 6400)
    costs = work.costs(1.0, 1.0, bytes_per_parameter=8)
    far = forecast(PipelineSetting("1F1B", 2, 1, 2), costs).timeline.uses
    assert sum(use.state for use in far) == 8 * (work.parameters + 6400)
    for setting in (PipelineSetting("ZBVZeroBubble", 2, 2, 4), PipelineSetting("1F1B", 1, 1, 2)):
        assert sum(use.state for use in forecast(setting, costs).timeline.uses) == 8 * work.parameters


@pytest.mark.parametrize("name", ["bloom", "gemma2"])
def test_as_a_run_with_data(name):
    """Attention that is written out, so that nothing is fused: the same products, and the same bytes are kept."""
    overrides = {"n_layer": 3} if name == "bloom" else GEMMA
    work = counted(name, overrides, dtype="float32")
    kind = getattr(transformers, work.model)
    config = kind.config_class(**overrides)
    model = kind(config).train()
    own = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.arange(ROWS * LENGTH).reshape(ROWS, LENGTH) % 90
    with FlopCounterMode(display=False) as flops, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        model(input_ids=ids, labels=ids, use_cache=False)
    assert work.flops == flops.get_total_flops()
    assert work.parameters == sum(p.numel() for p in model.parameters())
    parts = (work.before, *work.layers, work.after)
    want = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert sum(part.activations for part in parts) == pytest.approx(want, rel=0.01)


def test_experts_count_with_the_tokens_that_they_get():
    sizes = {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2}
    layer = counted("mixtral", sizes).layers[0]
    attention, expert, router = 2 * 64 * 64 + 2 * 64 * 32, 3 * 64 * 96, 64 * 8
    assert layer.weight_flops == 2 * ROWS * LENGTH * (attention + 2 * expert + router)
    assert layer.parameters == attention + 8 * expert + router + 2 * 64


def test_inference_keeps_nothing_and_images_have_a_size_of_their_own():
    assert counted("llama", LLAMA, trains=False).layers[0].activations == 0
    work = counted(
        "vit", {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    )
    assert (work.path, len(work.layers), work.length) == ("layers", 2, 0)
    assert work.output == ROWS * (14 * 14 + 1) * 32 * 2


def test_a_configuration_in_a_folder(tmp_path):
    values = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **LLAMA, "num_hidden_layers": 6}
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert len(counted(str(tmp_path), {}).layers) == 6
    assert len(counted(str(tmp_path / "config.json"), {"num_hidden_layers": 5}).layers) == 5
    with pytest.raises(BuildError, match="no value 'num_hiden_layers'; did you mean num_hidden_layers"):
        counted(str(tmp_path), {"num_hiden_layers": 5})


def test_the_length_is_that_of_the_positions():
    assert counted("gpt2", {"n_layer": 2, "n_embd": 64, "n_head": 2}, length=None).length == 1024


@pytest.mark.parametrize(
    ("model", "overrides", "more", "said"),
    [
        ("llamma", {}, {}, "did you mean .*llama"),
        ("albert", {}, {}, "runs more than once.*--layer-times"),
        (
            "gpt2",
            {"n_layer": 2, "n_embd": 64, "n_head": 2},
            {"length": 2000},
            "longer than the 1024 positions .* give at most 1024, or --set",
        ),
        ("none/config.json", {}, {}, "config.json: cannot be read"),
        ("llama", {"hidden_size": 63}, {}, "llama: "),
        ("llama", {"hidden": 64}, {}, "hidden"),
    ],
)
def test_refusals(model, overrides, more, said):
    with pytest.raises(PlanError, match=said):
        counted(model, overrides, **more)


def test_layers_are_set_by_the_field_of_the_configuration():
    for name in ("llama", "gpt2"):
        small = {"hidden_size": 64, "num_attention_heads": 2} if name == "llama" else {"n_embd": 64, "n_head": 2}
        work = chain_work(CountRequest(name, {**small, "vocab_size": 50}, 3, 1, 8))
        assert len(work.layers) == 3
    with pytest.raises(PlanError, match=r"`encoder.layers` has 4 layers, not 3; give the field .* with --set"):
        chain_work(CountRequest("swin", {}, 3, 1, None))


class Choosing(torch.nn.Module):
    """A layer whose work depends on data."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.expert = how, torch.nn.Linear(4, 4)

    def forward(self, x):
        if self.how == "branch":
            return self.expert(x) if (x > 0).any() else x
        if self.how == "rows":
            return x + self.expert(x[(x > 0).any(-1).nonzero()[:, 0]]).sum(0)
        for row in range(x.shape[0]):
            x = x + self.expert(x[row])
        return x


class Chain(torch.nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Choosing(how) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_work_that_depends_on_data_is_refused(monkeypatch):
    x = torch.empty(5, 4, device="meta")
    with torch.device("meta"):
        models = {how: Chain(how) for how in ("branch", "rows", "loop")}
    with pytest.raises(ScheduleError, match=r"`layers.0.expert.weight` does not run without data.*--layer-times"):
        count_chain(models["branch"], "layers", {"x": x})
    with pytest.raises(BuildError, match=r"its forward fails without data.*--layer-times"):
        count_chain(models["rows"], "layers", {"x": x})
    work = count_chain(models["loop"], "layers", {"x": x})
    assert [layer.weight_flops for layer in work.layers] == [2 * 5 * 16, 2 * 5 * 16]
    monkeypatch.setattr(model_costs, "MOST_OPERATIONS", 20)
    with pytest.raises(ScheduleError, match="loops over its tokens; give a smaller --length"):
        count_chain(models["loop"], "layers", {"x": x})
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in models["loop"].modules())


class _Flops(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if found := model_costs.flops_of(func, args, kwargs or {}, result):
            self.found.append(found)
        return result


def test_products_of_experts_have_the_work_of_their_own_rows_in_both_directions():
    """Also the gradients of the matrices, of which each sums over the rows of its expert alone."""
    rows, inner, outer, experts = 16, 32, 48, 4
    with torch.device("meta"):
        given = torch.empty(rows, inner, dtype=torch.bfloat16, requires_grad=True)
        weights = torch.empty(experts, inner, outer, dtype=torch.bfloat16, requires_grad=True)
        ends = torch.empty(experts, dtype=torch.int32)
    with _Flops() as counted_flops:
        result = torch._grouped_mm(given, weights, offs=ends)
        result.backward(torch.empty_like(result))
    assert counted_flops.found == [2 * rows * inner * outer] * 3
