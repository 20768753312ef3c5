"""Small models with adapters of peft, none of whose weights are zero."""

from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


IDS = torch.arange(3, 17).view(2, 7)
# Three key/value heads: two ranks have unequal shares.
_LLAMA = {"hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 6, "num_key_value_heads": 3}


def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**_LLAMA, vocab_size=51, num_hidden_layers=2, pad_token_id=0)).eval()


def gpt2():
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 51, "n_positions": 32}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, pad_token_id=0)).eval()


def drawn(model, among="lora_"):
    """The model with adapters of random numbers: lora_B is zero at first, and would hide a wrong plan."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if among in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model.eval()


def adapted(base, **settings):
    return drawn(get_peft_model(base, LoraConfig(**settings)))


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def tokens(model):
    return model.generate(input_ids=IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=5, do_sample=False)


def furthest(one, other):
    return float((one - other).abs().max() / other.abs().max())
