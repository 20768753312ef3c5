"""Training with dropout under torchrun, with another seed in each process, beside one process; see `test_training.py`."""

from __future__ import annotations

import copy
import json
import sys

import torch
import torch.distributed as dist
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaMLP

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.proof.judge import relative_error


IDS = torch.arange(1, 33).view(2, 16)


class DropsByNumber(LlamaMLP):
    def forward(self, x):
        inner = torch.nn.functional.dropout(self.act_fn(self.gate_proj(x)) * self.up_proj(x), 0.2, self.training)
        return torch.nn.functional.dropout(self.down_proj(inner), 0.1, self.training)


class LlamaThatDropsByNumber(LlamaForCausalLM):
    """No module or configuration of it holds a rate above 0."""

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp.__class__ = DropsByNumber


def model_of(name, attention):
    torch.manual_seed(0)
    if name == "gpt2":
        config = GPT2Config(n_embd=64, n_layer=2, n_head=8, vocab_size=96, n_positions=64)
        model_class = GPT2LMHeadModel
    elif name == "bart":
        sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
        rates = {"attention_dropout": 0.2, "encoder_layerdrop": 0.3, "decoder_layerdrop": 0.3}
        heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
        config, model_class = BartConfig(vocab_size=96, **sizes, **heads, **rates), BartForConditionalGeneration
    elif name == "mixtral":
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_local_experts": 4}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "attention_dropout": 0.2}
        config, model_class = MixtralConfig(vocab_size=96, **sizes, **heads), MixtralForCausalLM
    elif name == "llama":
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        config, model_class = LlamaConfig(vocab_size=96, **sizes), LlamaThatDropsByNumber
    else:
        config = BertConfig(
            vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=8, intermediate_size=96
        )
        model_class = BertForMaskedLM
    config._attn_implementation = attention
    return model_class(config).train()


def trained(model, checkpoints):
    """The losses of three steps, the last of another length."""
    if checkpoints:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for ids in (IDS, IDS, IDS[:, :11].contiguous()):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def compared(name, attention, checkpoints):
    """How training differs from one process, on each process."""
    rank = dist.get_rank()
    whole = model_of(name, attention)
    sharded = parallelize(copy.deepcopy(whole), device="cpu").train()
    torch.manual_seed(1000)
    want = trained(whole, checkpoints)
    after_whole = torch.rand(3)
    torch.manual_seed(1000 + rank)
    got = trained(sharded, checkpoints)
    after = torch.rand(3)
    full, state = sharded.full_state_dict(), whole.state_dict()
    found = {"losses": max(abs(a - b) for a, b in zip(got, want))}
    found["weights"] = max(
        relative_error(full[n].float(), state[n].float(), max(float(state[n].abs().max()), 1e-3)) for n in state
    )
    torch.manual_seed(1000 + rank)
    found["caller's numbers"] = torch.equal(after, after_whole if rank == 0 else torch.rand(3))
    everywhere = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, found)
    return everywhere


def refused(attention):
    """What a model that drops says in a layout whose layers are compiled."""
    model = parallelize(model_of("llama", attention), layout="tp2", training=Training(compile=True), device="cpu")
    try:
        model.train()(input_ids=IDS, labels=IDS)
    except ApplyError as error:
        return str(error)


def woken():
    """A rate that is set after a first call: a part that is called then is refused, and the model drops as one process."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    whole = LlamaForCausalLM(LlamaConfig(vocab_size=96, **sizes)).train()
    sharded = parallelize(copy.deepcopy(whole), device="cpu").train()
    for model in (whole, sharded):
        model(input_ids=IDS)
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.2
    found = {"hooked": len(sharded.model.layers[0]._forward_hooks)}
    try:
        sharded.model(IDS)
    except ApplyError as error:
        found["part"] = str(error)
    torch.manual_seed(7)
    want = whole(input_ids=IDS, labels=IDS).loss.item()
    torch.manual_seed(7 + dist.get_rank())
    found["error"] = abs(sharded(input_ids=IDS, labels=IDS).loss.item() - want)
    return found


def main(names, attention, checkpoints):
    dist.init_process_group("gloo")
    found = [one for name in names.split(",") for one in compared(name, attention, checkpoints)]
    compiled = refused(attention) if "llama" in names else None
    late = woken()
    if dist.get_rank() == 0:
        print(json.dumps({"all": found, "compiled": compiled, "woken": late}), flush=True)
    dist.barrier()
    dist.destroy_process_group()  # threads of gloo that outlive the interpreter can crash it


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], len(sys.argv) > 3)
