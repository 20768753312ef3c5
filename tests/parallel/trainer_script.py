"""The work of each process of `test_trainer.py` under torchrun; the first one prints its results as JSON."""

from __future__ import annotations

import copy
import json
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, default_data_collator

from modular_converter.parallel import parallelize


SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
STEPS, BATCH, MAX_NORM = 3, 4, 0.05
# Rows with other numbers of labels that count: the mean is over all of a batch.
ROWS = [
    {"input_ids": ids, "labels": torch.where(torch.arange(9) < 3 + 2 * (n % 3), ids, -100)}
    for n, ids in enumerate(torch.arange(1, 9 * STEPS * BATCH + 1).remainder(61).view(-1, 9))
]


class LayoutTrainer(Trainer):
    """The `Trainer` of the page: each data rank reads its own rows, the processes of a tensor group the same."""

    def get_train_dataloader(self):
        data, ranks = self.train_dataset, (self.model.layout.data, self.model.data_rank)
        sampler = DistributedSampler(data, *ranks, shuffle=False)
        return DataLoader(data, self.args.per_device_train_batch_size, sampler=sampler, collate_fn=self.data_collator)


def trained(model, accumulate=1):
    """The norms that the trainer logs."""
    options = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=BATCH // model.layout.data,
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
    )
    trainer = LayoutTrainer(model=model, args=options, train_dataset=ROWS, data_collator=default_data_collator)
    trainer.train()
    return [one["grad_norm"] for one in trainer.state.log_history if "grad_norm" in one]


def alone(model):
    """The norms of one process with the batches of all data ranks together."""
    optimizer, norms = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0), []
    model.train()
    for step in range(STEPS):
        rows = ROWS[step * BATCH : (step + 1) * BATCH]
        model(**default_data_collator(rows)).loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)))
        optimizer.step()
        optimizer.zero_grad()
    return norms


def main(layouts):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    whole = LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=4))
    start, found = copy.deepcopy(whole), {}
    norms = alone(whole)
    for layout in layouts:
        model = parallelize(copy.deepcopy(start), layout=layout, device="cpu", probe=False)
        said = trained(model)
        full = model.full_state_dict()
        worst = max(float((full[name] - one).abs().max()) for name, one in whole.state_dict().items())
        found[layout] = {"weights": worst, "norms": max(abs(a - b) / b for a, b in zip(said, norms, strict=True))}
    copies = LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2))
    found["plain shares"] = refused(lambda: trained(parallelize(copies, layout="tp4", device="cpu", probe=False)))
    spread = parallelize(copy.deepcopy(start), layout="ddp4", device="cpu", probe=False)
    found["accumulated"] = refused(lambda: trained(spread, accumulate=2))
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()  # threads of gloo that outlive the interpreter can crash it


def refused(call):
    try:
        return f"no error: {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1].split(","))
