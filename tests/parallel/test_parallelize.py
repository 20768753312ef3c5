"""Models through `parallelize` on two CPU ranks: used as before, with the same answers; errors before anything starts."""

import re
import subprocess
import sys

import pytest
import torch


pytest.importorskip("transformers")

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.choice.skeleton import kept_types  # noqa: E402
from modular_converter.parallel.errors import PlanError  # noqa: E402
from modular_converter.parallel.proof.judge import relative_error  # noqa: E402
from modular_converter.parallel.ranks.session import Session  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402
from modular_converter.parallel.trace.record import tensors_in  # noqa: E402


MODELS = {
    "llama": "causal",
    "gpt2": "causal",
    "mixtral": "causal",
    "gemma": "causal",
    "t5": "transformers.T5ForConditionalGeneration",
    "bart": "transformers.BartForConditionalGeneration",
    "bert": "base",
}


ODD = {"vocab_size": 157}
"""No number of ranks divides it."""


def small(name):
    head = MODELS.get(name, "base")
    odd = ODD if name in ("gpt2", "t5", "bart") else {}
    found = build(target_of(head) if "." in head else target_of(name, head), odd)
    if getattr(found.model.config, "is_encoder_decoder", False):
        found.model.generation_config.decoder_start_token_id = 2
    return found


def with_answers(name):
    found = small(name)
    ids = found.inputs["input_ids"]
    answers = {}
    with torch.no_grad():
        answers["forward"] = found.model(**found.inputs)
        if found.model.can_generate():
            answers["greedy"] = found.model.generate(ids, max_new_tokens=6, do_sample=False)
            answers["beams"] = found.model.generate(ids, max_new_tokens=6, num_beams=3)
            torch.manual_seed(4)
            answers["drawn"] = [found.model.generate(ids, max_new_tokens=6, do_sample=True) for _ in range(2)]
    return found, answers


QUICK = ("llama", "gpt2", "bert")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in QUICK else [pytest.mark.slow]) for one in sorted(MODELS)]
)
def test_the_same_answers(ranks, name):
    found, want = with_answers(name)
    model, ids = found.model, found.inputs["input_ids"]
    own, size = type(model), model.num_parameters()
    assert parallelize(model, session=ranks) is model
    got = model(**found.inputs)
    assert type(got) is type(want["forward"]) and isinstance(model, own)
    for one, other in zip(tensors_in(got), tensors_in(want["forward"])):
        assert relative_error(one, other) < 2e-4
    if "greedy" in want:
        assert torch.equal(model.generate(ids, max_new_tokens=6, do_sample=False), want["greedy"])
        assert torch.equal(model.generate(ids, max_new_tokens=6, num_beams=3), want["beams"])
        torch.manual_seed(4)
        drawn = [model.generate(ids, max_new_tokens=6, do_sample=True) for _ in range(2)]
        assert all(torch.equal(one, other) for one, other in zip(drawn, want["drawn"]))
    assert model.num_parameters() == size and model.device.type == "cpu"
    model.cpu()
    assert type(model) is own
    with torch.no_grad():
        again = model(**found.inputs)
    assert all(torch.equal(a, b) for a, b in zip(tensors_in(again), tensors_in(want["forward"])))


def eager_llama():
    found = small("llama")
    found.model.set_attn_implementation("eager")
    return found


def with_inner_outputs(found):
    with torch.no_grad():
        return found.model(**found.inputs, output_attentions=True, output_hidden_states=True)


@pytest.fixture
def llama(ranks):
    """The answers are those of another model: the library's hooks for inner outputs stay, and with hooks nothing is kept."""
    found, want = eager_llama(), with_inner_outputs(eager_llama())
    parallelize(found.model, session=ranks)
    yield found, want
    found.model._placement.end()


def test_a_cache_stays_on_the_ranks_and_can_be_given_back(llama):
    found, want = llama
    ids = found.inputs["input_ids"]
    first = found.model(input_ids=ids[:, :-1], use_cache=True)
    assert first.past_key_values.get_seq_length() == ids.shape[1] - 1
    assert "DynamicCache on the ranks" in repr(first.past_key_values)
    last = found.model(input_ids=ids[:, -1:], past_key_values=first.past_key_values, use_cache=True)
    assert relative_error(last.logits[:, -1], want.logits[:, -1]) < 2e-4
    assert last.past_key_values.get_seq_length() == ids.shape[1]


@pytest.mark.parametrize("wrong", [10_000, -1])
def test_a_token_that_is_not_in_the_vocabulary_is_an_error(llama, wrong):
    found, _ = llama
    ids = found.inputs["input_ids"].clone()
    ids[1, 2] = wrong
    said = rf"index out of range: {wrong} at \[1, 2\] of the ids of model.embed_tokens, which has 160 rows"
    for call in (found.model, found.model.generate):
        with pytest.raises(IndexError, match=said):
            call(input_ids=ids)


def test_attention_weights_come_whole(ranks):
    found = eager_llama()
    want = with_inner_outputs(found)
    parallelize(found.model, session=ranks)
    got = found.model(**found.inputs, output_attentions=True, output_hidden_states=True)
    assert len(got.attentions) == len(want.attentions) > 0
    for name in ("attentions", "hidden_states"):
        assert all(relative_error(a, b) < 2e-4 for a, b in zip(got[name], want[name]))
    found.model._placement.end()


def test_a_streamer_gets_the_tokens_here(llama):
    class Streamer:
        def __init__(self):
            self.seen, self.ended = [], False

        def put(self, value):
            self.seen += value.flatten().tolist()

        def end(self):
            self.ended = True

    found, _ = llama
    streamer = Streamer()
    ids = found.inputs["input_ids"][:1]
    got = found.model.generate(ids, max_new_tokens=5, do_sample=False, streamer=streamer)
    assert streamer.ended and streamer.seen == got.flatten().tolist()


def test_state_and_methods(llama, tmp_path):
    found, _ = llama
    model = found.model
    for figures in (model.memory_allocated(), model.memory_reserved(), model.memory_cached(), model.memory_chached()):
        assert list(figures) == ["cpu:0", "cpu:1"] and min(figures.values()) > 1 << 20
    fresh = build(target_of("llama", "causal")).model.state_dict()
    state = model.state_dict()
    assert state.keys() == fresh.keys() and all(torch.equal(state[name], fresh[name]) for name in fresh)
    model.save_pretrained(tmp_path)
    loaded = type(model).__bases__[1].from_pretrained(tmp_path)
    assert all(torch.equal(loaded.state_dict()[name], fresh[name]) for name in fresh)
    assert model.eval() is model
    with pytest.raises(PlanError, match="torchrun"):
        model.train()
    with torch.no_grad():
        hidden = build(target_of("llama", "causal")).model.model(**found.inputs).last_hidden_state
    assert relative_error(model.model(**found.inputs).last_hidden_state, hidden) < 2e-4
    with pytest.raises(ValueError, match="input_ids"):
        model()


@pytest.mark.slow
def test_other_methods_of_a_model_run_on_the_ranks(ranks):
    found = build(target_of("transformers.CLIPModel"))
    pixels = found.inputs["pixel_values"]
    with torch.no_grad():
        want = tensors_in(found.model.get_image_features(pixel_values=pixels))
    parallelize(found.model, session=ranks)
    got = tensors_in(found.model.get_image_features(pixel_values=pixels))
    assert all(relative_error(a, b) < 2e-4 for a, b in zip(got, want)) and len(got) == len(want)
    found.model.cpu()


def test_the_number_of_labels_reaches_a_loss_through_keywords_without_names(ranks):
    """As transformers' ``Trainer`` gives it to GPT-2, whose forward takes ``**kwargs``."""
    found = build(target_of("transformers.GPT2LMHeadModel"))
    ids = found.inputs["input_ids"]
    given = {"input_ids": ids, "labels": ids, "num_items_in_batch": torch.tensor(7)}
    with torch.no_grad():
        want = found.model(**given).loss
        parallelize(found.model, session=ranks)
        assert relative_error(found.model(**given).loss, want) < 1e-5
    found.model.cpu()


def test_half_precision(ranks):
    found = small("llama")
    with torch.no_grad():
        want = found.model(**found.inputs).logits
    parallelize(found.model, session=ranks, dtype=torch.bfloat16)
    got = found.model(**found.inputs).logits
    assert got.dtype == torch.bfloat16 and (got.float() - want).abs().max() < 0.1 * want.abs().max()
    found.model.cpu()
    assert found.model.lm_head.weight.dtype == torch.bfloat16


@pytest.mark.slow
def test_the_plans_that_can_be_given(ranks, tmp_path):
    derived = "plan llama\nrule model.layers.*.mlp.gate_proj colwise\nrule model.layers.*.mlp.up_proj colwise\n"
    derived += "rule model.layers.*.mlp.down_proj rowwise\n"
    from modular_converter.parallel.plans.plan import Plan

    plan = Plan.parse(derived)
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    rules = {rule.pattern: rule.style for rule in plan.rules}
    found = small("llama")
    with torch.no_grad():
        want = found.model(**found.inputs).logits
    for given in (plan, derived, plan.to_json(), path, str(path), rules):
        parallelize(found.model, session=ranks, plan=given)
        assert found.model._placement.plan.rules == plan.rules
        assert relative_error(found.model(**found.inputs).logits, want) < 2e-4
        found.model.cpu()


def test_the_choice_is_said(ranks, caplog, capsys):
    found = small("gpt2")
    with caplog.at_level("INFO", "modular_converter.parallel"):
        parallelize(found.model, session=ranks, verbose="detail")
    assert "the derived plan, verified on 2 ranks" in caplog.text
    said = capsys.readouterr()
    assert "cpu:1: " in said.out and said.err.splitlines()[0] == "choosing a plan"
    found.model.cpu()
    parallelize(found.model, session=ranks, verbose="simple")
    (line,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"GPT2\w+: \d\d\.\d% of the weights on each device; cpu:0 \d+, cpu:1 \d+ MiB allocated", line)
    assert list(found.model.memory_allocated()) == ["cpu:0", "cpu:1"]
    found.model.cpu()
    assert found.model.memory_allocated() == found.model.memory_chached() == {}


def refused(said, model, **options):
    with pytest.raises(PlanError, match=said):
        parallelize(model, **options)


def test_errors_before_anything_starts(monkeypatch):
    monkeypatch.setattr(Session, "begin", lambda self: pytest.fail("processes were started"))
    model = small("llama").model
    refused("at least one device", model, num_gpus=0)
    refused("give 'cpu' or 'cuda'", model, device="tpu")
    refused("init_method='thread'", model, init_method="thread")
    refused("verbose='loud'", model, verbose="loud")
    refused("give only one", model, fp16=True, dtype=torch.bfloat16)
    refused("mesh= needs a process group", model, mesh=object())
    refused("start the script with torchrun --nproc-per-node 4 ", model, layout="fsdp2.cp2")
    refused("cannot be read", model, plan="no/such/plan.json")
    refused("no weights", torch.nn.Linear(4, 4, device="meta"), plan="plan x\nrule weight shard\n")
    if not torch.cuda.is_available():
        refused("this machine has 0", model, device="cuda")


def test_what_the_plan_shows_is_refused_before_the_ranks_have_joined(monkeypatch):
    """They start while the plan is chosen, and none is left."""
    begun = []
    monkeypatch.setattr(Session, "_begin_all", lambda self: begun.append(self))
    monkeypatch.setattr(Session, "start", lambda self: pytest.fail("the ranks were waited for"))
    model = small("llama").model
    heads = "".join(f"rule model.layers.*.self_attn.{name}_proj colwise\n" for name in "qkv")
    heads = f"plan x\n{heads}rule model.layers.*.self_attn.o_proj rowwise\n"
    refused(
        "num_gpus=16 does not fit.* 8 units are too few for 16 .*nothing would be left", model, plan=heads, num_gpus=16
    )
    refused("matches no module", model, plan={"layers.*.nothing": "colwise"})
    refused("no configuration of transformers", torch.nn.Linear(4, 4))
    assert len(begun) == 3 and all(one.ended for one in begun)


def test_types_on_the_devices():
    model = small("t5").model
    kept = kept_types(model, torch.float16)
    names = {name: kept(name, tensor) for name, tensor in model.named_parameters()}
    assert names["encoder.block.0.layer.1.DenseReluDense.wo.weight"] == torch.float32
    assert names["shared.weight"] == torch.float16
    assert kept("", torch.zeros(1)) == torch.float32


def test_importing_the_package_imports_no_torch():
    code = "import sys, modular_converter.parallel; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
