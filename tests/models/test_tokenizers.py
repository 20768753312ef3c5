# Copyright 2026 The modular-converter authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance
# with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License is distributed
# on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
"""The tokenizers of the zoo: text comes back, ids are those of transformers, and gemma's lacks what it removes."""

import json
from importlib import import_module
from itertools import chain

import pytest
from transformers.tokenization_python import PythonBackend


SPECIAL = {"llama": ["<unk>", "<s>", "</s>"], "gemma": ["<pad>", "<eos>", "<bos>", "<unk>"]}
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MERGED = ["th", "he", "▁t", "▁th", "▁the", "in", "er", "▁▁", "▁in", "ing", "the", "▁ther", "▁a"]
TEXTS = [
    "the other thing",
    " the  in   front\n\nand\tafter ",
    "Ünïcödé, 漢字 and 🙂🙃",
    "not a piece: <0x41> [INST]",
    "",
]


def pieces(name: str) -> list[str]:
    characters = sorted({*"abcdefghijklmnopqrstuvwxyz,:\n▁", *"".join(MERGED)})
    return [*SPECIAL[name], *BYTES, *MERGED, *characters]


def ours(name: str) -> type:
    module = import_module(f"models.{name}.tokenization_{name}")
    return getattr(module, f"{name.capitalize()}Tokenizer")


def theirs(name: str) -> object:
    """Transformers' tokenizer with the same pieces; every way to cut a merged piece in two is one of its merges."""
    vocab = {piece: index for index, piece in enumerate(pieces(name))}
    cuts = chain.from_iterable(((piece[:i], piece[i:]) for i in range(1, len(piece))) for piece in MERGED)
    merges = [cut for cut in cuts if all(part in vocab for part in cut)]
    module = import_module(f"transformers.models.{name}.tokenization_{name}")
    return getattr(module, f"{name.capitalize()}Tokenizer")(vocab=vocab, merges=merges)


both = pytest.mark.parametrize("name", ["llama", "gemma"])


@both
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("vocab", ["default", "list"])
def test_round_trip(name: str, text: str, vocab: str):
    tokenizer = ours(name)(pieces(name) if vocab == "list" else None)
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


@both
@pytest.mark.parametrize("text", TEXTS)
def test_same_ids(name: str, text: str):
    """Leading spaces aside: transformers' llama adds no prefix to them, sentencepiece and ours do."""
    text = text.lstrip(" ")
    got = ours(name)(pieces(name)).encode(text, add_special_tokens=False)
    assert got == theirs(name).encode(text, add_special_tokens=False)


@both
def test_vocabulary(name: str, tmp_path):
    """A list, a mapping, a file of either and a saved tokenizer are the same vocabulary."""
    listed = pieces(name)
    mapping = {piece: index for index, piece in enumerate(listed)}
    tokenizers = [ours(name)(listed), ours(name)(mapping)]
    for index, vocab in enumerate((listed, mapping)):
        path = tmp_path / f"{index}.json"
        path.write_text(json.dumps(vocab), encoding="utf-8")
        tokenizers.append(ours(name)(vocab_file=str(path)))
    tokenizers[0].save_pretrained(tmp_path)
    tokenizers.append(ours(name).from_pretrained(tmp_path))
    for tokenizer in tokenizers:
        assert tokenizer.get_vocab() == mapping
        assert len(tokenizer) == tokenizer.vocab_size == len(listed)
        assert tokenizer("the ünit")["input_ids"] == tokenizers[0]("the ünit")["input_ids"]


@both
def test_special_tokens_and_padding(name: str):
    tokenizer = ours(name)(pad_token=SPECIAL[name][0])
    eos = tokenizer.eos_token
    assert tokenizer.tokenize(f"{eos}a{eos}") == [eos, "a" if "a" in tokenizer.encoder else "<0x61>", eos]
    batch = tokenizer(["a", "abc"], padding=True)
    assert [len(row) for row in batch["input_ids"]] == [len(batch["input_ids"][1])] * 2
    assert batch["attention_mask"][0][0] == 0
    assert batch["attention_mask"][1][0] == 1


@both
def test_unknown_without_bytes(name: str):
    tokenizer = ours(name)([*SPECIAL[name], "▁", "a"])
    assert tokenizer.tokenize("ab")[-2:] == ["a", "<unk>"]
    assert tokenizer.decode(tokenizer.convert_tokens_to_ids(["a", "<unk>"])) == "a<unk>"


def test_prefix_space():
    llama, gemma = ours("llama")(pieces("llama")), ours("gemma")(pieces("gemma"))
    assert llama.tokenize("the") == ["▁the"]
    assert ours("llama")(pieces("llama"), add_prefix_space=False).tokenize("the") == gemma.tokenize("the") == ["the"]


def test_instruction():
    assert ours("llama")().instruction("Hi") == "[INST] Hi [/INST]"
    assert ours("llama")().instruction("Hi", system="S") == "[INST] <<SYS>>\nS\n<</SYS>>\n\nHi [/INST]"


@pytest.mark.parametrize("method", ["prepare_for_tokenization", "strip_prefix_space", "instruction"])
def test_gemma_lacks(method: str):
    """Removed, not raising: what transformers' base class has is inherited from there."""
    assert method in vars(ours("llama"))
    assert getattr(ours("gemma"), method, None) is getattr(PythonBackend, method, None)
