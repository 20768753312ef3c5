# Copyright 2026 The modular-converter authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance
# with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License is distributed
# on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
"""The zoo against transformers: the same weights give the same outputs, gradients and generated tokens."""

from importlib import import_module
from typing import NamedTuple

import pytest
import torch
from transformers.utils.generic import ModelOutput


VOCAB, LENGTH, PAD, EOS = 99, 7, 1, 98
DECODER = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": PAD,
    "bos_token_id": 2,
    "eos_token_id": EOS,
}
ENCODER = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
    "pad_token_id": PAD,
}
TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {**TOWER, "vocab_size": VOCAB, "max_position_embeddings": 20, "projection_dim": 24, "eos_token_id": EOS}
VISION = {**TOWER, "image_size": 12, "patch_size": 4, "projection_dim": 24}
BOTH = {"text_config": TEXT, "vision_config": VISION, "projection_dim": 24}


class Case(NamedTuple):
    """One class of ours beside transformers' own, and the sizes that both are built with."""

    folder: str
    name: str
    oracle_folder: str
    oracle_name: str
    config: str
    oracle_config: str
    sizes: dict

    def __str__(self) -> str:
        return self.name

    def ours(self, kind: str, name: str) -> type:
        return getattr(import_module(f"models.{self.folder}.{kind}_{self.folder}"), name)

    def oracle(self, kind: str, name: str) -> type:
        return getattr(import_module(f"transformers.models.{self.oracle_folder}.{kind}_{self.oracle_folder}"), name)

    def pair(self, **settings) -> tuple[torch.nn.Module, torch.nn.Module]:
        """Our model and transformers' one with the same random weights, in evaluation mode."""
        torch.manual_seed(0)
        config = self.oracle("configuration", self.oracle_config)(**self.sizes, **settings)
        theirs = self.oracle("modeling", self.oracle_name)(config).eval()
        with torch.no_grad():
            for parameter in theirs.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        config = self.ours("configuration", self.config)(**self.sizes, **settings)
        ours = self.ours("modeling", self.name)(config).eval()
        ours.load_state_dict(theirs.state_dict(), strict=True)
        return ours, theirs

    def inputs(self) -> dict:
        """A padded batch that fits this class, with labels when it can compute a loss."""
        generator = torch.Generator().manual_seed(1)
        pixel_values = torch.randn(3, 3, 12, 12, generator=generator)
        if "VisionModel" in self.oracle_name:
            return {"pixel_values": pixel_values}
        input_ids = torch.randint(3, EOS, (3, LENGTH), generator=generator)
        lengths = torch.tensor([[LENGTH], [4], [5]])
        attention_mask = (torch.arange(LENGTH) < lengths).long()
        input_ids = input_ids.scatter(1, lengths - 1, EOS).masked_fill(attention_mask == 0, PAD)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self.oracle_folder in ("bert", "roberta"):
            inputs["token_type_ids"] = (torch.arange(LENGTH) > 2).long().expand(3, -1)
        if self.name.endswith(("ForCausalLM", "ForMaskedLM")):
            inputs["labels"] = input_ids.masked_fill(attention_mask == 0, -100)
        elif self.name.endswith("ForSequenceClassification"):
            inputs["labels"] = torch.tensor([0, 2, 1])
        elif self.name.endswith("ForTokenClassification"):
            inputs["labels"] = (input_ids % 3).masked_fill(attention_mask == 0, -100)
        elif self.name.endswith("ForQuestionAnswering"):
            inputs |= {"start_positions": torch.tensor([1, 0, 3]), "end_positions": torch.tensor([2, 3, LENGTH + 2])}
        elif self.oracle_name == "CLIPModel":
            inputs |= {"pixel_values": pixel_values, "return_loss": True}
        return inputs


def family(folder: str, heads: list[str], sizes: dict, *, prefix: str, oracle: str, oracle_prefix: str) -> list[Case]:
    labels = {"ForSequenceClassification": 3, "ForTokenClassification": 3}
    return [
        Case(
            folder,
            prefix + head,
            oracle,
            oracle_prefix + head,
            f"{prefix}Config",
            f"{oracle_prefix}Config",
            {**sizes, "num_labels": labels.get(head, 2)},
        )
        for head in heads
    ]


def towers(folder: str, prefix: str) -> list[Case]:
    kinds = {"": BOTH, "Text": TEXT, "Vision": VISION}
    names = ["Model", "TextModel", "TextModelWithProjection", "VisionModel", "VisionModelWithProjection"]
    return [
        Case(folder, prefix + name, "clip", f"CLIP{name}", f"{prefix}{kind}Config", f"CLIP{kind}Config", kinds[kind])
        for name in names
        for kind in [name.partition("Model")[0]]
    ]


DECODER_HEADS = ["Model", "ForCausalLM", "ForSequenceClassification"]
ENCODER_HEADS = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]
LLAMA_SIZES = {**DECODER, "attention_bias": True, "mlp_bias": True}
GEMMA_SIZES = {**DECODER, "head_dim": 16}
MISTRAL_SIZES = {**DECODER, "sliding_window": 3}
CASES = [
    *family("llama", DECODER_HEADS, LLAMA_SIZES, prefix="Llama", oracle="llama", oracle_prefix="Llama"),
    *family("gemma", DECODER_HEADS, GEMMA_SIZES, prefix="Gemma", oracle="gemma", oracle_prefix="Gemma"),
    *family("mistral", DECODER_HEADS, MISTRAL_SIZES, prefix="Mistral", oracle="mistral", oracle_prefix="Mistral"),
    *family("bert", ENCODER_HEADS, ENCODER, prefix="Bert", oracle="bert", oracle_prefix="Bert"),
    *family("roberta", ENCODER_HEADS, ENCODER, prefix="Roberta", oracle="roberta", oracle_prefix="Roberta"),
    *towers("clip", "CLIP"),
    *towers("gemma_vision", "GemmaVision"),
    *family(
        "gemma_vision",
        ["Model", "ForCausalLM"],
        GEMMA_SIZES,
        prefix="GemmaVisionCaption",
        oracle="gemma",
        oracle_prefix="Gemma",
    ),
]
BY_NAME = {case.name: case for case in CASES}


def of(*names: str) -> pytest.MarkDecorator:
    """Run a test on the cases of these names only."""
    return pytest.mark.parametrize("case", [BY_NAME[name] for name in names], ids=str)


def tensors(output: ModelOutput) -> dict:
    """What can be compared; transformers' encoders add an empty tuple of cross attentions."""
    return {
        name: value for name, value in output.items() if name not in ("past_key_values", "cache", "cross_attentions")
    }


@pytest.mark.parametrize("case", [case for case in CASES if case.name.endswith("Model")], ids=str)
def test_same_defaults(case: Case):
    """Our configuration has no argument that theirs lacks but `embedding_scale`, and the same values.
    Not compared: `classifier_dropout`, which ours fills in at once, theirs when it is used."""
    ours, theirs = case.ours("configuration", case.config)(), case.oracle("configuration", case.oracle_config)()
    names = {"embedding_scale", "classifier_dropout", "text_config", "vision_config", "model_type"}
    expected = {name: theirs.to_dict()[name] for name in ours.to_dict().keys() - names}
    assert {name: ours.to_dict()[name] for name in expected} == expected


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("case", CASES, ids=str)
@torch.no_grad()
def test_same_outputs(case: Case, attention: str):
    ours, theirs = case.pair(attn_implementation=attention)
    options = {"output_hidden_states": True, "output_attentions": attention == "eager"}
    got, expected = ours(**case.inputs(), **options), theirs(**case.inputs(), **options)
    torch.testing.assert_close(tensors(got), tensors(expected))


@of("LlamaForCausalLM", "GemmaForCausalLM", "BertForMaskedLM", "RobertaForQuestionAnswering", "CLIPModel")
def test_same_gradients(case: Case):
    gradients = []
    for model in case.pair():
        model(**case.inputs()).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*gradients)


@of("LlamaForCausalLM", "GemmaForCausalLM", "GemmaVisionCaptionForCausalLM", "MistralForCausalLM")
def test_same_greedy_tokens(case: Case):
    ours, theirs = case.pair()
    prompt = {name: case.inputs()[name].flip(1) for name in ("input_ids", "attention_mask")}
    options = {"do_sample": False, "min_new_tokens": 8, "max_new_tokens": 8}
    got = ours.generate(**prompt, **options)
    assert got.shape == (3, LENGTH + 8)
    torch.testing.assert_close(got, theirs.generate(**prompt, **options))
    torch.testing.assert_close(got, ours.generate(**prompt, **options, use_cache=False))


@of("LlamaForCausalLM", "GemmaForCausalLM", "GemmaVisionCaptionForCausalLM")
@torch.no_grad()
def test_same_logits_in_half_precision(case: Case):
    ours, theirs = case.pair()
    for parameter in (*ours.parameters(), *theirs.parameters()):  # not the buffers: rotary frequencies stay float32
        parameter.data = parameter.data.bfloat16()
    torch.testing.assert_close(ours(**case.inputs()).logits, theirs(**case.inputs()).logits)


@of("BertModel", "RobertaModel", "LlamaModel", "GemmaModel")
@torch.no_grad()
def test_same_outputs_from_embeddings(case: Case):
    inputs = {"inputs_embeds": torch.randn(2, 5, 32), "attention_mask": torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])}
    ours, theirs = case.pair()
    torch.testing.assert_close(ours(**inputs).last_hidden_state, theirs(**inputs).last_hidden_state)


@of("CLIPModel", "GemmaVisionModel")
@torch.no_grad()
def test_legacy_end_of_text(case: Case):
    sizes = {**BOTH, "text_config": {**TEXT, "eos_token_id": 2}}
    ours, theirs = case._replace(sizes=sizes).pair()
    torch.testing.assert_close(ours(**case.inputs()).text_embeds, theirs(**case.inputs()).text_embeds)


@of("LlamaForCausalLM", "GemmaForCausalLM", "BertForMaskedLM", "RobertaForMaskedLM", "CLIPModel", "GemmaVisionModel")
@torch.no_grad()
def test_save_and_load(case: Case, tmp_path):
    model, _ = case.pair()
    model.save_pretrained(tmp_path)
    loaded, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    torch.testing.assert_close(tensors(loaded(**case.inputs())), tensors(model(**case.inputs())))


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("BertForMaskedLM", "cls.predictions.bias", 0.0),
        ("RobertaForMaskedLM", "lm_head.bias", 0.0),
        ("LlamaModel", "norm.weight", 1.0),
        ("GemmaModel", "norm.weight", 0.0),
        ("GemmaVisionCaptionModel", "norm.weight", 0.0),
        ("CLIPModel", "logit_scale", 2.6592),
        ("GemmaVisionModel", "logit_scale", 2.6592),
    ],
)
def test_initial_weights(name: str, parameter: str, value: float, tmp_path):
    """New, and loaded from a checkpoint that lacks the parameter."""
    case = BY_NAME[name]
    model = case.ours("modeling", name)(case.ours("configuration", case.config)(**case.sizes))
    partial = {key: tensor for key, tensor in model.state_dict().items() if not key.endswith(parameter)}
    model.save_pretrained(tmp_path, state_dict=partial)
    for each in (model, type(model).from_pretrained(tmp_path)):
        weight = each.get_parameter(parameter).detach()
        torch.testing.assert_close(weight, torch.full_like(weight, value))


def test_gemma_configuration():
    """One argument less than llama's, one more; the one more does what it says."""
    case = BY_NAME["GemmaModel"]
    config = case.ours("configuration", "GemmaConfig")(**case.sizes)
    assert not hasattr(config, "mlp_bias")
    assert config.embedding_scale == 32**0.5
    model = case.ours("modeling", "GemmaModel")(config)
    assert not hasattr(model.layers[0].mlp, "use_bias")
    doubled = case.ours("modeling", "GemmaModel")(type(config)(**case.sizes, embedding_scale=2 * 32**0.5))
    doubled.load_state_dict(model.state_dict())
    ids = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(doubled.embed_tokens(ids), 2 * model.embed_tokens(ids))


@torch.no_grad()
def test_gemma_vision_captions():
    """What is not in either oracle: cosines without the scale, and captions that begin with an image."""
    case, decoder_case = BY_NAME["GemmaVisionModel"], BY_NAME["GemmaVisionCaptionForCausalLM"]
    (model, theirs), (decoder, _) = case.pair(), decoder_case.pair()
    inputs = {name: value for name, value in case.inputs().items() if name != "return_loss"}
    expected = theirs(**inputs).logits_per_image / theirs.logit_scale.exp()
    torch.testing.assert_close(model.similarity(**inputs), expected)
    embeddings = decoder.embed_caption(torch.randn(3, 32), inputs["input_ids"])
    assert decoder(inputs_embeds=embeddings).logits.shape == (3, 1 + LENGTH, VOCAB)
