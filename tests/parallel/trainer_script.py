"""The work of each process of `test_trainer.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import copy
import json
import sys
import tempfile

import torch
import torch.distributed as dist
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

from modular_converter.parallel import LayoutTrainer, Training, parallelize


SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
STEPS, BATCH, MAX_NORM = 3, 8, 0.05
# Rows with other numbers of labels that count: the mean is over all of a batch.
ROWS = [
    {"input_ids": ids, "labels": torch.where(torch.arange(9) < 3 + 2 * (n % 3), ids, -100)}
    for n, ids in enumerate(torch.arange(1, 9 * STEPS * BATCH + 1).remainder(61).view(-1, 9))
]
HELD_OUT = ROWS[:14]  # the last batch of two is that of the first data rank alone


def whole(key_value_heads=4, kind="llama"):
    torch.manual_seed(0)
    if kind == "gpt2":  # whose forward does not name its keywords
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "n_positions": 16}
        return GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).eval()
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=key_value_heads)).eval()


def options(data, accumulate=1, **more):
    return TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=BATCH // data // accumulate,
        per_device_eval_batch_size=2,
        max_steps=STEPS,
        gradient_accumulation_steps=accumulate,
        learning_rate=1e-2,
        max_grad_norm=MAX_NORM,
        lr_scheduler_type="constant",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1,
        **more,
    )


def trained(kind, model, given):
    """What the trainer logs, what it finds in rows that are held out, and the weights."""
    metrics = {"compute_metrics": lambda found: {"rows": len(found.label_ids), "labels": int(found.label_ids.sum())}}
    data = {"train_dataset": ROWS, "eval_dataset": HELD_OUT, "data_collator": default_data_collator}
    trainer = kind(model=model, args=given, **data, **metrics)
    trainer.train()
    found = trainer.evaluate()
    if kind is LayoutTrainer:
        trainer.save_model()  # which gives `save_pretrained` arguments of its own
    state = model.full_state_dict() if kind is LayoutTrainer else model.state_dict()
    return {
        "norms": [one["grad_norm"] for one in trainer.state.log_history if "grad_norm" in one],
        "losses": [one["loss"] for one in trainer.state.log_history if "loss" in one],
        "held out": [found["eval_loss"], found["eval_rows"], found["eval_labels"]],
        "weights": torch.cat([one.detach().flatten() for one in state.values()]),
    }


def in_layout(layout, accumulate=1, training=None, probe=False, **more):
    model = parallelize(whole(**more), layout=layout, training=training, device="cpu", probe=probe)
    return trained(LayoutTrainer, model, options(model.layout.data, accumulate))


def classifier():
    """How far the loss and the norm of a step are from those of the batch, of a model that takes ``num_items_in_batch`` and leaves it."""
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 64,
    }
    whole = BertForSequenceClassification(
        BertConfig(**sizes, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    )
    rows = [{"input_ids": one["input_ids"], "labels": n % 3} for n, one in enumerate(ROWS[:BATCH])]
    model = parallelize(copy.deepcopy(whole), layout="fsdp2", device="cpu", probe=False)
    trainer = LayoutTrainer(model, options(2), data_collator=default_data_collator, train_dataset=rows)
    trainer.args.max_steps = 1
    trainer.train()
    loss = whole.train()(**default_data_collator(rows)).loss
    loss.backward()
    norm = torch.nn.utils.get_total_norm([one.grad for one in whole.parameters() if one.grad is not None])
    logged = trainer.state.log_history[0]
    return max(abs(logged["loss"] - float(loss)), abs(logged["grad_norm"] - float(norm)))


def mean_of_rows(outputs, labels, num_items_in_batch=None):
    return torch.nn.functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def in_ddp(given=None, **more):
    model = parallelize(whole(), layout="ddp4", device="cpu", probe=False)
    return LayoutTrainer(
        model, options(4, **given or {}), data_collator=default_data_collator, train_dataset=ROWS, **more
    )


REFUSED = {
    "plain shares": lambda: in_layout("tp4", key_value_heads=2),
    "shares of joined projections": lambda: in_layout("ddp2.tp2", kind="gpt2"),
    "not parallelized": lambda: trained(LayoutTrainer, whole(), options(1)),
    "stages": lambda: in_layout("pp2.tp2", training=Training(chunks=2)),
    "other rows": lambda: in_ddp(
        {"accelerator_config": {"dispatch_batches": True}, "average_tokens_across_devices": False}
    ),
    "best model": lambda: in_ddp({"load_best_model_at_end": True, "eval_strategy": "no"}),
    "loss of a mean": lambda: in_ddp(compute_loss_func=mean_of_rows).train(),
}


def main(path, asked):
    if not asked:
        torch.save(trained(Trainer, whole(), options(1)), path)
        return
    dist.init_process_group("gloo")
    want, found = torch.load(path), {}
    for name in asked:
        if name == "refused":
            found |= {case: error_of(call) for case, call in REFUSED.items()}
            continue
        if name == "classifier":
            found[name] = classifier()
            continue
        layout, _, accumulate = name.partition("/")
        one = in_layout(layout, int(accumulate or 1), probe=layout == "tp4")
        found[name] = {
            key: float((torch.tensor(one[key]) - torch.tensor(want[key])).abs().max())
            for key in ("norms", "losses", "held out")
        }
        found[name]["weights"] = float((one["weights"] - want["weights"]).abs().max())
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()  # threads of gloo that outlive the interpreter can crash it


def error_of(call):
    try:
        return f"no error: {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
