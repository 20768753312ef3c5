"""Train a causal model on a text, in any layout: a script to copy.

    torchrun --nproc-per-node 4 examples/train.py path/to/model text.txt --layout fsdp2.tp2 --folder run

The model is a folder with config.json and safetensors files, or a type such as gpt2 with random weights, which reads bytes:
`train.py gpt2 text.txt --settings n_layer=4 n_embd=256 n_head=8`. Started again, it goes on from the last complete checkpoint, in whatever layout it is
started.
"""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

from modular_converter.parallel import AutoLayout, Layout, Training, parallelize, read_chosen
from modular_converter.parallel.errors import PlanError


PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}


def main() -> None:
    """Train, and save a checkpoint every so many steps."""
    options = arguments()
    layout, training = layout_and_training(options)
    if isinstance(layout, Layout) and layout.pp > 1 and options.accumulate > 1:
        raise SystemExit("with pp, give --chunks instead of --accumulate")
    torch.manual_seed(options.seed)
    model, tokenizer = model_and_tokenizer(options)
    tokens = torch.tensor(tokenizer(text_of(options.text))["input_ids"])
    model = parallelize(model, layout=layout, training=training, device=options.device)
    model.train()
    if options.batch % model.layout.data:
        raise SystemExit(
            f"--batch {options.batch} does not divide over the {model.layout.data} data ranks of {model.layout}"
        )
    if len(tokens) < options.length:
        raise SystemExit(
            f"{options.text} has {len(tokens)} tokens, and a sequence is --length {options.length}: give a longer text, "
            "or a shorter length"
        )
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    resumed = model.load_checkpoint(options.folder, optimizer)
    first = resumed.step if resumed else 0
    torch.manual_seed(options.seed + 1000 * model.data_rank + first)
    for step in range(first, options.steps):
        begin = time.perf_counter()
        loss, count = 0.0, 0
        for micro in range(options.accumulate):
            ids = batch(tokens, options, step * options.accumulate + micro, model).to(device)
            last = micro == options.accumulate - 1
            if hasattr(model, "set_requires_gradient_sync"):  # sums between data ranks once a step
                model.set_requires_gradient_sync(last or options.sync_each_batch)
                if options.keep_gathered:  # until the step that changes the weights
                    model.set_reshard_after_backward(last)
            part = forward_and_backward(model, ids, options.accumulate)
            loss, count = loss + float(part), count + ids.numel() * model.layout.data
        norm = float(model.clip_grad_norm_(options.clip))
        optimizer.step()
        optimizer.zero_grad()
        report(step + 1, options.steps, loss, norm, count / (time.perf_counter() - begin), device)
        if (step + 1) % options.save_every == 0 or step + 1 == options.steps:
            model.save_checkpoint(options.folder, optimizer, step + 1)
    if options.export:
        model.save_pretrained(options.export)
        if dist.get_rank() == 0:
            tokenizer.save_pretrained(options.export)
    dist.destroy_process_group()


def layout_and_training(options: argparse.Namespace) -> tuple[Layout | AutoLayout, Training]:
    """The layout and its options, or the question for them; the file of a choice sets batch and length, too."""
    training = Training(
        recompute=options.recompute,
        compile=options.compile,
        compute_type=PRECISIONS[options.precision],
        reshard=not options.keep_gathered,
        sequence_parallel=options.sequence_parallel,
    )
    if options.layout == "auto":
        logging.basicConfig(format="%(message)s")
        logging.getLogger("modular_converter.parallel.tuning").setLevel(logging.INFO)
        return AutoLayout(options.batch, options.length, stages=options.accumulate == 1), training
    if options.layout.endswith(".json"):
        chosen = read_chosen(options.layout)
        options.batch, options.accumulate = chosen.batch // chosen.accumulate, chosen.accumulate
        options.length, options.sync_each_batch = chosen.length, chosen.sync_each_batch
        return chosen.layout, chosen.beside(training)
    layout = Layout.parse(options.layout)
    return layout, replace(training, chunks=options.chunks if layout.pp > 1 else None)


def forward_and_backward(model: Any, ids: torch.Tensor, parts: int) -> torch.Tensor:
    """The loss of one of several parts of a step, whose gradients are added up."""
    if model.layout.pp > 1:
        found: torch.Tensor = model.step(input_ids=ids, labels=ids)
        return found
    loss: torch.Tensor = model(input_ids=ids, labels=ids, use_cache=False).loss / parts
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model's folder, or a type of transformers such as gpt2")
    parser.add_argument("text", type=Path)
    parser.add_argument("--layout", default="tp1", help="such as fsdp2.tp2; auto; or the .json file of a choice")
    parser.add_argument("--folder", type=Path, default=Path("run"), help="of checkpoints")
    parser.add_argument("--export", type=Path, help="a folder for from_pretrained, with the tokenizer, at the end")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8, help="sequences of all data ranks together, in one forward")
    parser.add_argument("--accumulate", type=int, default=1, help="forwards a step")
    parser.add_argument(
        "--sync-each-batch", action="store_true", help="with fsdp: no whole gradients between forwards"
    )
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--recompute", action="store_true", help="less memory, a third more time")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--keep-gathered", action="store_true", help="with fsdp: ZeRO 1 or 2 instead of 3")
    parser.add_argument("--sequence-parallel", action="store_true", help="with tp")
    parser.add_argument("--chunks", type=int, default=8, help="with pp, the micro-batches of a step")
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--settings", nargs="*", default=[], metavar="NAME=VALUE", help="of a model given by its type")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def model_and_tokenizer(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model, or its folder, and its tokenizer. Code in a folder does not run, and nothing is downloaded."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if Path(options.model).is_dir():
        local = {"trust_remote_code": False, "local_files_only": True}
        try:
            tokenizer = AutoTokenizer.from_pretrained(options.model, **local)
        except (OSError, ValueError) as error:
            why = str(error).partition("\n")[0]
            raise SystemExit(
                f"{options.model}: has no tokenizer that can be read ({why}): write model and tokenizer there with their "
                "save_pretrained"
            ) from None
        return options.model, tokenizer  # each process reads its share
    if options.model not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        near = difflib.get_close_matches(options.model, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, 1)
        raise SystemExit(
            f"{options.model}: is no folder, and no type of a causal model of transformers: give the folder that "
            f"save_pretrained has written, or a type such as {(near or ['gpt2'])[0]}"
        )
    config = AutoConfig.for_model(options.model, vocab_size=256, **settings_of(options))
    return AutoModelForCausalLM.from_config(config), tokenizer_of_bytes()


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of the configuration that the command line sets."""
    from transformers import AutoConfig

    usual, found = AutoConfig.for_model(options.model), {}
    for name, _, value in (one.partition("=") for one in options.settings):
        if not hasattr(usual, name):
            near = difflib.get_close_matches(name, usual.to_dict(), 1)
            raise SystemExit(
                f"--settings {name}: {options.model} has no such field"
                + (f": did you mean {near[0]}?" if near else "")
            )
        try:
            found[name] = json.loads(value)
        except ValueError:
            raise SystemExit(
                f"--settings {name}: write a value of JSON, as in n_layer=4 or activation='\"relu\"'"
            ) from None
    return found


def text_of(path: Path) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no UTF-8"
        raise SystemExit(f"{path}: {why}: give a file with the text to train on, in UTF-8") from None


def tokenizer_of_bytes() -> Any:
    """A tokenizer whose ids are the bytes of a text."""
    from tokenizers import Tokenizer, decoders
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(BPE({f"<0x{byte:02X}>": byte for byte in range(256)}, [], byte_fallback=True))
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)


def batch(tokens: torch.Tensor, options: argparse.Namespace, number: int, model: Any) -> torch.Tensor:
    """This process's part of a batch: sequences at places that depend on the number of the batch alone."""
    chance = torch.Generator().manual_seed(options.seed + number)
    places = torch.randint(0, len(tokens) - options.length + 1, (options.batch,), generator=chance)
    mine = places.chunk(model.layout.data)[model.data_rank]
    return torch.stack([tokens[place : place + options.length] for place in mine.tolist()])


def report(step: int, steps: int, loss: float, norm: float, speed: float, device: torch.device) -> None:
    """A line of progress from the first process: the mean loss of all data ranks, tokens a second, memory."""
    mean = torch.tensor([loss], device=device)
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        gpu = device.type == "cuda"
        used = torch.cuda.max_memory_allocated(device) if gpu else psutil.Process().memory_info().rss
        bar = "#" * (20 * step // steps)
        sys.stderr.write(
            f"[{bar:<20}] {step}/{steps} loss {float(mean) / dist.get_world_size():.4f} norm {norm:.3f} "
            f"{speed:.0f} tokens/s {used / 2**20:.0f} MiB\n"
        )


if __name__ == "__main__":
    try:
        main()
    except PlanError as error:  # which says what to write instead
        raise SystemExit(str(error)) from None
