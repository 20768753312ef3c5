"""Models from folders, against `from_pretrained` on the same folder: weights, types, buffers, settings, and answers."""

from __future__ import annotations

import pytest
import torch


pytest.importorskip("transformers")
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.engine.checkpoint.model_files import (  # noqa: E402
    open_checkpoint,  # noqa: E402
    save_model,
    saved_names,
)
from modular_converter.parallel.errors import PlanError  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


MODELS = {
    "llama": ("llama", "causal"),
    "gpt2": ("gpt2", "causal"),
    "mixtral": ("mixtral", "causal"),
    "qwen3_moe": ("qwen3_moe", "causal"),
    "gpt_oss": ("gpt_oss", "causal"),
    "bert": ("transformers.BertForMaskedLM",),
    "t5": ("transformers.T5ForConditionalGeneration",),
    "whisper": ("transformers.WhisperForConditionalGeneration",),
    "clip": ("clip",),
    "llava": ("transformers.LlavaForConditionalGeneration",),
    "bamba": ("bamba", "causal"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """From a name to a small model of it, and the folder that it is saved in."""
    made = {}

    def get(name):
        if name not in made:
            small = build(target_of(*MODELS[name]))
            folder = tmp_path_factory.mktemp(name)
            small.model.save_pretrained(folder, max_shard_size="200KB" if name == "llama" else "1GB")
            made[name] = small, folder
        return made[name]

    return get


def assert_same(got, want):
    one, other = got.state_dict(), want.state_dict()
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].dtype == other[key].dtype and torch.equal(one[key], other[key]), key
    assert [name for name, _ in got.named_parameters()] == [name for name, _ in want.named_parameters()]  # ties
    for (name, buffer), (known, wanted) in zip(got.named_buffers(), want.named_buffers()):
        assert name == known and buffer.dtype == wanted.dtype and torch.equal(buffer, wanted), name
    assert got.config.to_dict() == want.config.to_dict() and got.training == want.training
    assert getattr(got, "generation_config", None) == getattr(want, "generation_config", None)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, None) for name in sorted(MODELS)),
        ("mixtral", torch.bfloat16),
        ("bamba", torch.float16),
        ("t5", torch.float16),
    ],
)
def test_the_weights_are_those_of_from_pretrained(saved, name, dtype):
    small, folder = saved(name)
    found = open_checkpoint(folder, dtype)
    assert type(found.model) is type(small.model)
    assert all(parameter.is_meta for parameter in found.model.parameters())
    assert all(recipe.piecewise for recipe in found.recipes.values())
    assert_same(found.filled(found.model), type(small.model).from_pretrained(folder, dtype=dtype or "auto"))


def test_the_same_answers_on_ranks(saved, ranks, tmp_path):
    small, folder = saved("mixtral")
    want = type(small.model).from_pretrained(folder)
    model = parallelize(folder, session=ranks)
    with torch.no_grad():
        expected = want(**small.inputs)
    got = model(**small.inputs)
    torch.testing.assert_close(got[0], expected[0], rtol=1e-4, atol=1e-5)
    how = {"inputs": small.inputs["input_ids"], "max_new_tokens": 5, "do_sample": False}
    assert torch.equal(model.generate(**how), want.generate(**how))
    assert sum(model._placement.read) > 0
    (tmp_path / "model.safetensors").write_bytes(b"of an earlier model")
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    want.save_pretrained(tmp_path / "library")
    again = type(want).from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(again[key], value) for key, value in want.state_dict().items())
    for name in ("config.json", "generation_config.json"):
        assert (tmp_path / name).read_text() == (tmp_path / "library" / name).read_text()
    stored = {key: value for path in sorted(tmp_path.glob("*.safetensors")) for key, value in load_file(path).items()}
    expected = load_file(tmp_path / "library" / "model.safetensors")
    assert stored.keys() == expected.keys() and all(torch.equal(stored[key], expected[key]) for key in stored)
    assert len(list(tmp_path.glob("model-*"))) > 2 and not (tmp_path / "model.safetensors").exists()
    assert_same(model.cpu(), want)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_is_saved_is_what_the_library_saves(saved, tmp_path, name):
    small, folder = saved(name)
    state, fetched = saved_names(small.model), []
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())

    def fetch(name):
        fetched.append(name)
        return state[name].detach()

    save_model(small.model, state, fetch, tmp_path, 3)
    files = [load_file(path) for path in sorted(tmp_path.glob("*.safetensors"))]
    stored = {key: value for file in files for key, value in file.items()}
    expected = {key: value for path in folder.glob("*.safetensors") for key, value in load_file(path).items()}
    assert stored.keys() == expected.keys() and all(torch.equal(stored[key], expected[key]) for key in stored)
    largest = max(tensor.numel() * tensor.element_size() for tensor in stored.values())
    sizes = [sum(tensor.numel() * tensor.element_size() for tensor in file.values()) for file in files]
    assert len(files) > 1 and max(sizes) <= max(total // 3 + 1, largest)
    assert len(fetched) <= len(set(fetched)) + len(files)  # a weight that two files share is fetched twice


def test_a_file_that_cannot_be_written_is_said_after_all_have_been_fetched(saved, tmp_path):
    small, _ = saved("gpt2")
    (tmp_path / "file").write_text("in the way")
    state, fetched = saved_names(small.model), []
    with pytest.raises(OSError, match="file"):
        save_model(small.model, state, lambda name: fetched.append(name) or state[name], tmp_path / "file", 2)
    assert fetched and set(fetched) == set(state)


def test_a_base_model_read_with_a_head_and_the_reverse(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "vocab_size": 40, "pad_token_id": 0}
    config = transformers.LlamaConfig(num_hidden_layers=1, tie_word_embeddings=True, **sizes)
    transformers.LlamaModel(config).save_pretrained(tmp_path / "base")
    kinds = transformers.LlamaModel, transformers.LlamaForCausalLM
    for given in (kinds[1], transformers.AutoModelForCausalLM):
        found = open_checkpoint(tmp_path / "base", None, given)
        assert_same(found.filled(found.model), kinds[1].from_pretrained(tmp_path / "base"))
    kinds[1](config).save_pretrained(tmp_path / "head")
    found = open_checkpoint(tmp_path / "head", None, kinds[0])
    assert_same(found.filled(found.model), kinds[0].from_pretrained(tmp_path / "head"))
    bert = transformers.BertConfig(num_hidden_layers=1, **sizes)
    transformers.BertModel(bert).save_pretrained(tmp_path / "bert")
    with pytest.raises(PlanError, match="lack weights of BertForMaskedLM: cls.predictions"):
        open_checkpoint(tmp_path / "bert", None, transformers.BertForMaskedLM)


def test_tied_weights_that_the_files_hold_twice(saved, tmp_path):
    small, folder = saved("gpt2")
    state = load_file(folder / "model.safetensors")
    embeddings = next(key for key in state if key.endswith("wte.weight"))
    small.model.config.save_pretrained(tmp_path)
    for change in (0, 1):  # the library ties them only if they are equal
        save_file(state | {"lm_head.weight": state[embeddings] + change}, tmp_path / "model.safetensors")
        found = open_checkpoint(tmp_path, None)
        assert_same(found.filled(found.model), type(small.model).from_pretrained(tmp_path))
        assert ("lm_head.weight" in dict(found.model.named_parameters())) == bool(change)


class OwnWay(transformers.GPT2LMHeadModel):
    """A class with loading code of its own."""

    @classmethod
    def from_pretrained(cls, *args, config, **more):
        report = {"missing_keys": set(), "unexpected_keys": set(), "mismatched_keys": set()}
        return cls(config), report


def test_a_class_that_reads_other_weights_is_refused(saved):
    with pytest.raises(PlanError, match="OwnWay fills transformer.wte.weight in its own way, not from the files"):
        open_checkpoint(saved("gpt2")[1], None, OwnWay)


class Makes(OwnWay):
    """It says that its weights need not be in files."""

    _keys_to_ignore_on_load_missing = (r"^transformer\.", "lm_head")


def test_weights_that_a_class_makes_by_its_own_word_are_taken(saved):
    assert type(open_checkpoint(saved("gpt2")[1], None, Makes).model) is Makes


class Writes(transformers.GPT2LMHeadModel):
    """A class whose initialisation writes to a weight that has been loaded, or to a buffer."""

    __module__ = "transformers.models.gpt2.own"  # the library protects the weights of other code

    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("own", torch.zeros(4))
        self.post_init()

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, Writes) and hasattr(module, "own"):
            (module.own if self.config.summary_type == "buffer" else module.transformer.ln_f.weight)[1:].fill_(2)


@pytest.mark.parametrize(("place", "name"), [("buffer", "own"), ("weight", "transformer.ln_f.weight")])
def test_code_that_writes_to_a_loaded_tensor_is_refused(tmp_path, place, name):
    config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11, summary_type=place)
    Writes(config).save_pretrained(tmp_path)
    with pytest.raises(PlanError, match=rf"{name}: the model's own code changes it when it is loaded \(aten::fill_"):
        open_checkpoint(tmp_path, None, Writes)


def test_old_names_and_keys_that_nobody_wants(saved, tmp_path, caplog):
    small, folder = saved("bert")
    state = load_file(folder / "model.safetensors")
    old = {key.replace("LayerNorm.weight", "LayerNorm.gamma"): value for key, value in state.items()}
    save_file(old | {"stray.weight": torch.zeros(2)}, tmp_path / "model.safetensors", {"format": "pt"})
    small.model.config.save_pretrained(tmp_path)
    transformers.logging.get_logger("transformers").addHandler(caplog.handler)
    with caplog.at_level("WARNING", logger="transformers"):  # other tests may have set another level
        found = open_checkpoint(tmp_path, None)
    transformers.logging.get_logger("transformers").removeHandler(caplog.handler)
    assert_same(found.filled(found.model), type(small.model).from_pretrained(tmp_path))
    assert "stray.weight" in caplog.text and "UNEXPECTED" in caplog.text


def test_settings_of_generate_are_taken(saved, tmp_path):
    small, folder = saved("whisper")
    kept = transformers.GenerationConfig.from_pretrained(folder)
    kept.max_length, kept.num_beams = 77, 3
    small.model.save_pretrained(tmp_path)
    kept.save_pretrained(tmp_path)
    found = open_checkpoint(tmp_path, None).model.generation_config
    assert vars(found) == vars(type(small.model).from_pretrained(tmp_path).generation_config)
    assert (found.max_length, found.num_beams) == (77, 3)
