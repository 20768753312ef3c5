"""Models with adapters of peft: the plan covers their computation, and their outputs are those of one process."""

import json
import multiprocessing

import pytest
import torch


pytest.importorskip("peft")
from peft import (  # noqa: E402
    AdaptionPromptConfig,
    LoraConfig,
    PeftModel,
    PromptTuningConfig,
    get_peft_model,
)
from peft.helpers import rescale_adapter_scale  # noqa: E402
from peft.tuners.lora.config import MontecloraConfig, VeloraConfig  # noqa: E402

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.choice.select_plan import select_plan  # noqa: E402
from modular_converter.parallel.choice.small_instances import (  # noqa: E402
    derived_plan,
    small_settings,
    target_like,
    verified,
)
from modular_converter.parallel.errors import ApplyError, PlanError  # noqa: E402
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.text_checks import SomeLayers
from modular_converter.parallel.tiny.adapters import adapters_of  # noqa: E402
from tests.parallel import adapters_script  # noqa: E402
from tests.parallel.adapted import adapted, drawn, furthest, gpt2, llama, logits, tokens  # noqa: E402


ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
STAYS = "would not reach the weights"


def with_all():
    return adapted(llama(), r=8, target_modules=ALL)


@pytest.fixture(scope="module")
def asked():
    """What the small instance of ``with_all`` is built from, and for how many ranks."""
    base = with_all().get_base_model()
    return target_like(base), small_settings(base), 2


@pytest.fixture(scope="module")
def plan(asked):
    return derived_plan(*asked).plan


@pytest.mark.slow
def test_an_adapter_is_cut_as_its_layer_is(plan):
    styles = {rule.pattern.removeprefix("model.layers.*."): rule.style for rule in plan.rules}
    for name in ALL:
        layer = ("self_attn." if name[0] in "qkvo" and name != "up_proj" else "mlp.") + name
        row = name in ("o_proj", "down_proj")
        assert styles[f"{layer}.base_layer"] == ("rowwise" if row else "colwise")
        assert styles.get(f"{layer}.lora_A.default") == ("rowwise" if row else None)
        assert styles.get(f"{layer}.lora_B.default") == (None if row else "colwise")


def test_a_wrapped_model_is_used_as_before(ranks, tmp_path):
    model = with_all()
    before, said, state = logits(model), tokens(model), {n: v.clone() for n, v in model.state_dict().items()}
    with parallelize(model, session=ranks) as same:
        assert same is model and isinstance(model, PeftModel) and model.memory_allocated()
        assert furthest(logits(model), before) < 1e-5 and torch.equal(tokens(model), said)
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        model.save_pretrained(tmp_path)
        with pytest.raises(PlanError, match="already"):
            parallelize(model, session=ranks)
        with pytest.raises(ApplyError, match="hold adapters"):
            model.get_base_model().save_pretrained(tmp_path)
        layer = model.base_model.model.model.layers[0].self_attn.q_proj
        for change in (
            lambda: model.set_adapter("default"),
            lambda: model.disable_adapter().__enter__(),
            lambda: model.add_adapter("other", LoraConfig(target_modules=["q_proj"])),
            lambda: model.delete_adapter("default"),
            lambda: model.load_state_dict(state),
            lambda: model.merge_adapter(),
            lambda: model.merge_and_unload(),
            lambda: model.unload(),
            lambda: layer.scale_layer(2.0),
        ):
            with pytest.raises(PlanError, match=STAYS):
                change()
        with rescale_adapter_scale(model, 0.5), pytest.raises(PlanError, match="scale of an adapter was changed"):
            logits(model)
        assert furthest(logits(model), before) < 1e-5
    assert torch.equal(logits(model), before) and type(model) is PeftModel
    loaded = PeftModel.from_pretrained(llama(), tmp_path)
    assert torch.equal(logits(loaded.eval()), before)
    model.set_adapter("default")
    assert not any("_refused_of_peft" in vars(module) for module in model.modules())


@pytest.mark.slow
def test_several_adapters_merged_or_not(ranks):
    model = adapted(llama(), r=8, target_modules=["q_proj", "down_proj"])
    model.add_adapter("two", LoraConfig(r=4, use_rslora=True, target_modules=["q_proj", "o_proj"]))
    drawn(model)
    seen = []
    for active in ("two", ["default", "two"]):
        model.base_model.set_adapter(active)
        seen.append(logits(model))
        if active != "two":
            model.merge_adapter()
        parallelize(model, session=ranks, probe=False)
        assert furthest(logits(model), seen[-1]) < 1e-5
        model.cpu()
    assert furthest(*seen) > 1e-2
    model.unmerge_adapter()
    model.base_model.model.model.layers[0].self_attn.q_proj.merge()
    with pytest.raises(ApplyError, match="merged in some layers and not in model.layers.0.self_attn.o_proj"):
        parallelize(model, session=ranks)


@pytest.mark.slow
def test_conv1d_and_embeddings_in_place_with_a_tied_head(ranks, monkeypatch):
    # transformers 5.24 asks for peft 0.22, which the package index has not got; what is called is in 0.21.
    monkeypatch.setattr("transformers.integrations.peft.MIN_PEFT_VERSION", "0.21.0")
    model = gpt2()
    model.add_adapter(LoraConfig(r=5, target_modules=["c_attn", "c_proj", "wte"], fan_in_fan_out=True))
    before = logits(drawn(model))
    parallelize(model, session=ranks)
    assert furthest(logits(model), before) < 1e-5
    for change in (lambda: model.disable_adapters(), lambda: model.set_adapter("default")):
        with pytest.raises(PlanError, match=STAYS):
            change()
    model.cpu()
    model.disable_adapters()
    assert furthest(logits(model), before) > 1e-2


@pytest.mark.parametrize(
    "having, number, small, same", [((0,), 1, 2, (0, 1)), ((0,), 3, 2, (0,)), ((2,), 3, 2, (0, 1))]
)
def test_a_small_instance_has_the_adapters_of_layers_that_it_lacks(having, number, small, same):
    """Some layers of a number have adapters; layers that the model or the small instance lacks are like them."""

    def layers(count):
        return torch.nn.ModuleList(torch.nn.ModuleDict({"q": torch.nn.Identity()}) for _ in range(count))

    found = SomeLayers.of([f"{layer}.q" for layer in having], layers(number))
    assert found.same_in(layers(small)) == [f"{layer}.q" for layer in same]


@pytest.mark.parametrize("forgotten", ["self_attn.o_proj.lora_A", "mlp.up_proj.lora_B"])
def test_a_plan_that_forgets_a_sum_of_adapters_is_refused(asked, plan, forgotten):
    """New adapters are zero, which would hide it."""
    assert verified(*asked, plan).passed
    path = f"rule model.layers.*.{forgotten}.default"
    dim = int(forgotten.endswith("A"))
    lines = [f"{path}.weight shard dim={dim}" if line.startswith(path) else line for line in str(plan).splitlines()]
    verdict = verified(*asked, Plan.parse("\n".join(lines) + "\n"))
    assert not verdict.passed and verdict.output_error + verdict.gradient_error > 1e-3


@pytest.mark.slow
def test_training_of_adapters_is_that_of_one_process(tmp_path):
    context = multiprocessing.get_context("forkserver")
    given = (2, str(tmp_path / "meeting"), str(tmp_path))
    processes = [context.Process(target=adapters_script.main, args=(rank, *given), daemon=True) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0, 0]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["same object"] and found["class"] and found["cut"] == [True, True] and found["whole"]
    assert max(found[name] for name in ("outputs", "losses", "weights", "inference")) < 1e-5
    assert found["gradients"] and found["frozen"] and found["saved"] and found["unsharded"]
    assert found["moved"] == 19 and {"lora_A", "lora_B", "modules_to_save"} <= set(found["trained"])
    assert len(found["refused"]) == 5 and found["loaded"]


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"target_modules": ["q_proj"], "layer_replication": [(0, 2), (1, 2)]}, "layer_replication.*merge"),
        ({"target_modules": [], "target_parameters": ["q_proj.weight"]}, "target_parameters.*merge"),
        ({"target_modules": ["q_proj"], "monteclora_config": MontecloraConfig()}, "monteclora_config.*merge"),
        ({"target_modules": ["q_proj"], "velora_config": VeloraConfig(num_groups=4)}, "velora_config.*merge"),
    ],
)
def test_settings_without_a_plan_are_refused(settings, said):
    model = get_peft_model(llama(), LoraConfig(**settings))
    with pytest.raises(ApplyError, match=said):
        select_plan(model.get_base_model(), None, 2)
    with pytest.raises(ApplyError, match=said):
        parallelize(model, plan={"model.layers.*.mlp.up_proj": "colwise_gather_output"}, num_gpus=2, device="cpu")


def test_merged_adapters_that_are_switched_off_are_refused():
    """The first call would unmerge them on the ranks, and the caller's layers would not know."""
    model = adapted(llama(), r=4, target_modules=["q_proj"])
    model.merge_adapter()
    model.base_model.disable_adapter_layers()
    with pytest.raises(ApplyError, match="default are merged and switched off.*unmerge_adapter"):
        adapters_of(model.get_base_model())


def test_a_small_instance_computes_with_the_saved_modules_that_are_active():
    model = adapted(llama(), r=4, target_modules=["q_proj"], modules_to_save=["lm_head"])
    model.add_adapter("two", LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"]))
    for active in ("default", "two"):
        model.set_adapter(active)
        small = llama()
        adapters_of(model.get_base_model()).apply_to(small)
        assert small.lm_head.active_adapters == model.get_base_model().lm_head.active_adapters == [active]
    model.base_model.disable_adapter_layers()
    small = llama()
    adapters_of(model.get_base_model()).apply_to(small)
    assert small.lm_head.disable_adapters


@pytest.mark.parametrize(
    "prompts",
    [
        PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
        AdaptionPromptConfig(task_type="CAUSAL_LM", adapter_len=2, adapter_layers=1),
    ],
)
def test_wrappers_that_compute_are_refused(prompts):
    with pytest.raises(ApplyError, match="PeftModelForCausalLM of peft: .*inside of layers"):
        parallelize(get_peft_model(llama(), prompts), num_gpus=2, device="cpu")
