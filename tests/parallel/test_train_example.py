"""The training script to copy: it learns, continues in another layout, and exports a model that the library loads."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


pytest.importorskip("transformers")

from tests.parallel.test_training import ROOT  # noqa: E402


def train(tmp_path, processes, *more):
    """The losses by step, from the lines of progress."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "examples/train.py", "gpt2"]
    command += [str(tmp_path / "text.txt"), "--folder", str(tmp_path / "run"), "--lr", "0.003", "--length", "16"]
    command += ["--batch", "4", "--device", "cpu", "--settings", "n_layer=2", "n_embd=32", "n_head=2", *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = re.findall(r"(\d+)/\d+ loss (\S+) norm \S+ \d+ tokens/s \d+ MiB", done.stderr)
    return {int(step): float(loss) for step, loss in lines}


def test_a_text_that_is_too_short_is_told(tmp_path):
    (tmp_path / "text.txt").write_text("to be")
    with pytest.raises(AssertionError, match="text.txt has 5 tokens, and a sequence is --length 16: give a longer"):
        train(tmp_path, 1, "--steps", "1")


def test_the_script_learns_resumes_and_exports(tmp_path):
    from transformers import AutoModelForCausalLM

    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    more = ("--accumulate", "2", "--precision", "bfloat16", "--save-every", "3")
    before = train(tmp_path, 2, "--layout", "fsdp2", "--steps", "4", *more)
    staged = train(tmp_path, 2, "--layout", "pp2", "--chunks", "2", "--steps", "6")
    after = train(tmp_path, 1, "--layout", "tp1", "--steps", "8", "--export", str(tmp_path / "model"))
    assert [list(losses) for losses in (before, staged, after)] == [[1, 2, 3, 4], [5, 6], [7, 8]]
    assert after[8] < staged[5] < before[1]
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "model").config.vocab_size == 256
