"""The training script to copy: it learns, continues in another layout, and exports a model that the library loads."""

from __future__ import annotations

import re
import runpy
import sys

import pytest
import torch


pytest.importorskip("transformers")

from tests.parallel.launch import ROOT, launch  # noqa: E402


SETTINGS = ("n_layer=2", "n_embd=32", "n_head=2")
SMALL = ("--settings", *SETTINGS)


def train(tmp_path, processes, *more, model="gpt2"):
    """The losses by step, from the lines of progress."""
    given = [model, tmp_path / "text.txt", "--folder", tmp_path / "run", "--lr", 0.003, "--length", 16]
    given += ["--batch", 4, "--device", "cpu", *(SMALL if model == "gpt2" else ()), *more]
    done = launch(processes, "examples/train.py", *given)
    assert done.code == 0, done.errors[-3000:]
    lines = re.findall(r"(\d+)/\d+ loss (\S+) norm \S+ \d+ tokens/s \d+ MiB", done.errors)
    return {int(step): float(loss) for step, loss in lines}


def test_a_text_that_is_too_short_is_told(tmp_path):
    (tmp_path / "text.txt").write_text("to be")
    with pytest.raises(AssertionError, match="text.txt has 5 tokens, and a sequence is --length 16: give a longer"):
        train(tmp_path, 1, "--steps", "1")


@pytest.mark.parametrize("script", ["examples/train.py", "examples/search.py"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gpt3", "text.txt"], "gpt3: is no folder, and no type of a causal model of transformers: .* such as \\w+$"),
        (["vit", "text.txt"], "vit: is no folder, and no type of a causal model of transformers"),
        (["empty", "text.txt"], "empty: has no tokenizer that can be read .* with their save_pretrained"),
        (["gpt2", "nowhere.txt", *SMALL], "nowhere.txt: No such file or directory: give a file with the text"),
        (["gpt2", ".", *SMALL], ".: Is a directory: give a file with the text"),
        (["gpt2", "bytes", *SMALL], "bytes: is no UTF-8: give a file with the text"),
        (
            ["gpt2", "text.txt", "--settings", "n_layers=1"],
            "--settings n_layers: gpt2 has no such field: did you mean n_layer",
        ),
        (
            ["gpt2", "text.txt", "--settings", "n_layer=one"],
            "--settings n_layer: write a value of JSON, as in n_layer=4",
        ),
        (["gpt2", "text.txt", "--layout", "zero3", *SMALL], "layout .zero3.: .* such as fsdp2"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_line(tmp_path, monkeypatch, capfd, script, arguments, said):
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(sys, "argv", [script, *arguments, *(["--cpu"] if "search" in script else ["--device", "cpu"])])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert re.match(said, ended.value.code) and "\n" not in ended.value.code, ended.value.code


def test_the_script_learns_and_exports(tmp_path):
    from transformers import AutoModelForCausalLM

    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    losses = train(tmp_path, 2, "--layout", "fsdp2", "--steps", "4", "--export", str(tmp_path / "model"))
    assert list(losses) == [1, 2, 3, 4] and losses[4] < losses[1]
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "model").config.vocab_size == 256


@pytest.mark.slow
def test_the_script_learns_resumes_and_exports(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    more = ("--accumulate", "2", "--precision", "bfloat16", "--save-every", "3")
    before = train(tmp_path, 2, "--layout", "fsdp2", "--steps", "4", *more)
    staged = train(tmp_path, 2, "--layout", "pp2", "--chunks", "2", "--steps", "6")
    after = train(tmp_path, 1, "--layout", "tp1", "--steps", "8", "--export", str(tmp_path / "model"))
    assert [list(losses) for losses in (before, staged, after)] == [[1, 2, 3, 4], [5, 6], [7, 8]]
    assert after[8] < staged[5] < before[1]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert model.config.vocab_size == 256
    text = "to be, né €\U0001f600"
    ids = tokenizer(text, return_tensors="pt").input_ids
    assert ids[0].tolist() == list(text.encode()) and tokenizer.decode(ids[0]) == text
    assert model.generate(ids, max_new_tokens=2, do_sample=False).shape[1] == ids.shape[1] + 2
    again = train(tmp_path, 2, "--layout", "tp2", "--steps", "10", model=tmp_path / "model")
    assert list(again) == [9, 10] and again[10] < before[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved model with a tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("model")
    words = {word: number for number, word in enumerate(["?", *TEXT.split()[:8]])}
    made = Tokenizer(models.WordLevel(words, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?").save_pretrained(path)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "vocab_size": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
    LlamaForCausalLM(LlamaConfig(**sizes, **heads)).save_pretrained(path)
    return path


TEXT = "to be or not to be , that is the question . " * 40
LAYOUTS = (
    (1, "tp1", ()),
    (2, "tp2", ("--sequence-parallel",)),
    (2, "fsdp2", ("--keep-gathered", "--accumulate", "2", "--batch", "2")),
    (2, "pp2", ("--chunks", "2")),
    (4, "pp2.tp2", ("--chunks", "2")),
)


@pytest.mark.slow
def test_every_layout_trains_a_folder_alike(tmp_path, folder):
    (tmp_path / "text.txt").write_text(TEXT)
    found = {}
    for processes, layout, more in LAYOUTS:
        (tmp_path / layout).mkdir()
        (tmp_path / layout / "text.txt").write_text(TEXT)
        found[layout] = train(tmp_path / layout, processes, "--layout", layout, "--steps", "2", *more, model=folder)
    whole = found.pop("tp1")
    del found["fsdp2"]  # whose accumulated batches are of other places
    assert all(abs(losses[step] - whole[step]) < 2e-3 for losses in found.values() for step in (1, 2)), (whole, found)


@pytest.mark.slow
def test_a_run_goes_on_in_stages_which_read_the_folder_and_are_exported(tmp_path, folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (tmp_path / "text.txt").write_text(TEXT)
    before = train(tmp_path, 2, "--layout", "fsdp2", "--steps", "3", model=folder)
    more = ("--precision", "bfloat16", "--export", str(tmp_path / "staged"))
    staged = train(tmp_path, 2, "--layout", "pp2", "--chunks", "2", "--steps", "6", *more, model=folder)
    assert [list(before), list(staged)] == [[1, 2, 3], [4, 5, 6]] and staged[6] < before[1]
    train(tmp_path, 1, "--layout", "tp1", "--steps", "6", "--export", str(tmp_path / "whole"), model=folder)
    one, other = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("staged", "whole"))
    assert one.dtype == other.dtype == torch.float32 and AutoTokenizer.from_pretrained(tmp_path / "staged")
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())
