"""The caller's side of a model: settings that change later, refusals, hooks, and blocks that end early."""

import pytest
import torch


pytest.importorskip("transformers")
from transformers import CLIPConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM  # noqa: E402

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.engine.base.call_state import (  # noqa: E402
    apply_changes,
    settings_changes,
    settings_of,
)
from modular_converter.parallel.engine.remote.proxy import _routed_class  # noqa: E402
from modular_converter.parallel.errors import ApplyError, PlanError  # noqa: E402
from modular_converter.parallel.proof.judge import relative_error  # noqa: E402
from tests.parallel.troubled import PLAN, Troubled  # noqa: E402


IDS = torch.arange(1, 19).view(2, 9)


def llama():
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    model = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=2)).eval()
    model.generation_config.pad_token_id = 0
    return model


@pytest.fixture(scope="module")
def model(ranks):
    """A model that no test changes for good."""
    found = parallelize(llama(), session=ranks)
    yield found
    found._placement.end()


def test_changes_of_the_settings_reach_the_ranks(ranks):
    model = parallelize(llama(), session=ranks)
    model.generation_config.max_new_tokens = 3
    assert model.generate(IDS).shape[1] == 12
    model.config.output_hidden_states = True
    assert len(model(IDS).hidden_states) == 3
    del model.config.output_hidden_states
    assert model(IDS).get("hidden_states") is None
    model.generation_config = GenerationConfig(max_new_tokens=5, pad_token_id=0)
    assert model.generate(IDS).shape[1] == 14
    model.config._attn_implementation = "eager"
    assert len(model(IDS, output_attentions=True).attentions) == 2
    model.config.own = lambda: None
    with pytest.raises(ApplyError, match="settings cannot be sent.*lambda"):
        model(IDS)
    model._placement.end()


def test_settings_that_stay_are_not_sent(model, monkeypatch):
    model(IDS)
    monkeypatch.setattr(model._placement, "send", lambda *given: pytest.fail("settings were sent"))
    model(IDS)


def test_changes_of_nested_settings_keep_what_is_a_ranks_own():
    class Model:
        config = CLIPConfig()

    old, new = CLIPConfig(), CLIPConfig()
    new.text_config.output_attentions = True
    new.vision_config.num_attention_heads, new.own = 3, 1
    changes = list(settings_changes(old, new, ("config",)))
    assert [path for path, _, _ in changes] == [("config", "text_config"), ("config", "vision_config"), ("config",)]
    share = CLIPConfig().vision_config
    share.num_attention_heads //= 2
    vision = Model.config.vision_config
    apply_changes(Model, [(vision, share)], changes)
    assert (
        vision.num_attention_heads == 3 and share.num_attention_heads == 6 == old.vision_config.num_attention_heads / 2
    )
    assert Model.config.text_config.output_attentions and Model.config.own == 1
    share.num_attention_heads = 3
    apply_changes(
        Model, [(vision, share)], [(("config", "vision_config"), {"num_attention_heads": 4}, ["hidden_act"])]
    )
    assert share.num_attention_heads == vision.num_attention_heads == 4 and "hidden_act" not in vars(share)


def test_a_model_without_settings_has_none(ranks):
    model = parallelize(Troubled(), plan=PLAN, session=ranks)
    assert not vars(settings_of(model)) and model(torch.ones(2, 16)).shape == (2, 16)
    assert not hasattr(model, "add_adapter")
    model._placement.end()


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.load_state_dict({}),
        lambda model: model.resize_token_embeddings(80),
        lambda model: model.set_attn_implementation("eager"),
        lambda model: model.add_adapter(None),
        lambda model: model.load_adapter("folder"),
        lambda model: model.requires_grad_(True),
    ],
)
def test_what_would_not_reach_the_weights_is_refused(model, change):
    with pytest.raises(PlanError, match=r"would not reach the weights.*\.cpu\(\)"):
        change(model)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda model: setattr(model, "lm_head", torch.nn.Linear(2, 2)), "lm_head would not reach the ranks"),
        (lambda model: model.model.norm.register_forward_hook(print), "put the hook on the parallelized model"),
        (lambda model: model.model.register_forward_pre_hook(print), "put the hook on the parallelized model"),
        (lambda model: model.gradient_checkpointing_enable(), "would not reach the weights"),
    ],
)
def test_what_no_rank_would_hear_of_is_refused(model, change, said):
    with pytest.raises(PlanError, match=said):
        change(model)


def test_an_assistant_on_the_same_ranks_helps_to_generate(ranks, model):
    want = model.generate(IDS[:1], max_new_tokens=8)
    small = parallelize(llama(), session=ranks)
    small.generation_config.num_assistant_tokens = 3
    assert torch.equal(model.generate(IDS[:1], max_new_tokens=8, assistant_model=small), want)
    with pytest.raises(Exception, match=r"cannot travel.*parallelize\(other, session=ranks\)"):
        model.generate(IDS[:1], max_new_tokens=8, assistant_model=llama())
    small._placement.end()


def test_generate_with_a_part_in_training_mode_has_its_own_cache_alone(model):
    """Ranks look for dropout in a run without data, which wrote to the cache of the first forward."""
    want = model.generate(IDS, max_new_tokens=3, do_sample=False)
    model.lm_head.training = True
    try:
        assert torch.equal(model.generate(IDS, max_new_tokens=3, do_sample=False), want)
    finally:
        model.lm_head.training = False


def test_an_assistant_on_other_ranks_is_refused(model):
    class Elsewhere:
        session, number = None, 1

    small = llama()
    small.__dict__["_placement"] = Elsewhere()
    small.__class__ = _routed_class(type(small))
    with pytest.raises(PlanError, match="is on other ranks"):
        model.generate(IDS[:1], assistant_model=small)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")
def test_a_model_that_checkpoints_can_be_sent(ranks):
    model = llama()
    with torch.no_grad():
        want = model(IDS).logits
    model.gradient_checkpointing_enable()
    parallelize(model, session=ranks)
    assert relative_error(model(IDS).logits, want) < 2e-4
    model._placement.end()


def test_what_was_refused_works_on_the_model_taken_back(ranks):
    model = parallelize(llama(), session=ranks)
    state = {name: value + 1 for name, value in model.state_dict().items()}
    model.cpu()
    model.load_state_dict(state)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    model.lm_head = model.lm_head
    model.model.norm.register_forward_hook(print)


def twice(module, args, result):
    result.logits = result.logits * 2
    return result


def double(module, args, result):
    return result * 2


def test_hooks_of_the_model_run_once(ranks):
    model = llama()
    with torch.no_grad():
        want = model(IDS).logits * 2
    model.register_forward_hook(twice)
    parallelize(model, session=ranks)
    assert relative_error(model(IDS).logits, want) < 2e-4
    given = {"max_new_tokens": 1, "output_logits": True, "return_dict_in_generate": True}
    assert relative_error(model.generate(IDS, **given).logits[0], want[:, -1]) < 2e-4
    handle = model.register_forward_hook(twice)
    assert relative_error(model(IDS).logits, want * 2) < 2e-4
    with pytest.raises(PlanError, match="one was put on it or removed since"):
        model.generate(IDS, **given)
    handle.remove()
    assert relative_error(model.generate(IDS, **given).logits[0], want[:, -1]) < 2e-4
    model._placement.end()


def test_hooks_of_a_module_run_where_it_is_called_and_not_with_its_forward(ranks):
    model = Troubled()
    x, hooked = torch.ones(2, 16), model.up
    hooked.register_forward_hook(double)
    want = hooked.forward(x).detach()
    parallelize(model, plan="plan whole\n", session=ranks)
    torch.testing.assert_close(model.up.forward(x), want)
    torch.testing.assert_close(model.up(x), 2 * want)
    model._placement.end()


def test_a_block_in_which_the_model_is_taken_back_ends_quietly(ranks):
    with parallelize(Troubled(), plan=PLAN, session=ranks) as model:
        model.cpu()
    assert type(model) is Troubled


class Odd(Troubled):
    @staticmethod
    def public_static():
        return 1

    @staticmethod
    def _private_static():
        return 2

    @classmethod
    def made(cls):
        return cls

    @classmethod
    def _made(cls):
        return cls

    @torch.no_grad()
    def decorated(self):
        return 3


def test_methods_without_an_instance_stay_here(ranks):
    model = parallelize(Odd(), plan=PLAN, session=ranks)
    assert (model.public_static(), model._private_static(), model.decorated()) == (1, 2, 3)
    assert issubclass(model.made(), Odd) and issubclass(type(model)._made(), Odd)
    model._placement.end()


@pytest.mark.slow
def test_a_model_that_was_compiled_can_be_sent_and_a_compiled_one_on_ranks_is_called(ranks):
    from transformers import CompileConfig

    one = llama()
    with torch.no_grad():
        want = one(IDS).logits
    one.get_compiled_call(CompileConfig())
    one.compile()
    wrapped = torch.compile(one)
    model = parallelize(wrapped, session=ranks)
    assert model is one and relative_error(wrapped(input_ids=IDS).logits, want) < 2e-4
    assert relative_error(torch.compile(model)(input_ids=IDS).logits, want) < 2e-4
    model._placement.end()


def test_a_compiled_module_inside_is_refused():
    model = llama()
    model.model.layers[0] = torch.compile(model.model.layers[0])
    with pytest.raises(ApplyError, match=r"model.layers.0 is compiled.*_orig_mod"):
        parallelize(model, num_gpus=2, device="cpu")
