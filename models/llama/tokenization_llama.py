# Copyright 2026 The modular-converter authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance
# with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License is distributed
# on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
"""LLaMA: byte-pair tokenizer with byte fallback, in plain Python."""

import json
import math
import re
from collections.abc import Sequence
from itertools import pairwise

from transformers.tokenization_python import PythonBackend


VOCAB_FILES_NAMES = {"vocab_file": "vocab.json"}
WORD_START = "▁"
WORD = re.compile(f"{WORD_START}+[^{WORD_START}]*|[^{WORD_START}]+")
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
INSTRUCTION = "[INST] {} [/INST]"
SYSTEM = "<<SYS>>\n{}\n<</SYS>>\n\n{}"


def byte_pieces(data: bytes) -> list[str]:
    """The pieces `<0x00>` to `<0xFF>` that spell these bytes."""
    return [f"<0x{byte:02X}>" for byte in data]


def read_pieces(
    vocab: dict[str, int] | Sequence[str] | None, vocab_file: str | None, special_tokens: Sequence[str]
) -> dict[str, int]:
    """Piece -> id, from a mapping, a list in the order of ids, or a JSON file of either.
    With neither: the special tokens and one piece for each byte, enough to spell any text."""
    if vocab is None and vocab_file is not None:
        with open(vocab_file, encoding="utf-8") as file:
            vocab = json.load(file)
    if vocab is None:
        vocab = [*special_tokens, *byte_pieces(bytes(range(256)))]
    return dict(vocab) if isinstance(vocab, dict) else {piece: index for index, piece in enumerate(vocab)}


def merge_word(word: str, ranks: dict[str, int]) -> list[str]:
    """Start from characters; join the neighbours whose union has the lowest rank, until no union has one."""
    pieces = list(word)
    while len(pieces) > 1:
        rank, at = min((ranks.get(left + right, math.inf), i) for i, (left, right) in enumerate(pairwise(pieces)))
        if rank == math.inf:
            break
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    return pieces


def join_pieces(pieces: Sequence[str]) -> str:
    """Text of pieces; bytes are decoded together with their neighbours, ill-formed ones as U+FFFD."""
    parts = [(piece, BYTE_PIECE.fullmatch(piece)) for piece in pieces]
    data = b"".join(bytes.fromhex(byte[1]) if byte else part.encode("utf-8") for part, byte in parts)
    return data.decode("utf-8", errors="replace").replace(WORD_START, " ")


class LlamaTokenizer(PythonBackend):
    """Text <-> pieces <-> ids, with `▁` for a space and a beginning-of-sequence token in front.
    A piece's id is also its rank in merging; what the vocabulary lacks is spelled in bytes."""

    vocab_files_names = VOCAB_FILES_NAMES
    model_input_names = ["input_ids", "attention_mask"]
    padding_side = "left"

    def __init__(
        self,
        vocab: dict[str, int] | Sequence[str] | None = None,
        vocab_file: str | None = None,
        unk_token: str = "<unk>",
        bos_token: str = "<s>",
        eos_token: str = "</s>",
        add_prefix_space: bool = True,
        **kwargs,
    ):
        self.encoder = read_pieces(vocab, vocab_file, [str(unk_token), str(bos_token), str(eos_token)])
        self.decoder = {index: piece for piece, index in self.encoder.items()}
        self.add_prefix_space = add_prefix_space
        super().__init__(
            unk_token=unk_token,
            bos_token=bos_token,
            eos_token=eos_token,
            add_prefix_space=add_prefix_space,
            special_tokens_pattern="bos",
            **kwargs,
        )

    @property
    def vocab_size(self) -> int:
        """Number of pieces, tokens added later not counted."""
        return len(self.encoder)

    def get_vocab(self) -> dict[str, int]:
        return {**self.encoder, **self.added_tokens_encoder}

    def prepare_for_tokenization(self, text: str, is_split_into_words: bool = False, **kwargs) -> tuple[str, dict]:
        """A space in front, so that a word is the same pieces at the start of a text as inside it."""
        if self.add_prefix_space and text and not text.startswith(tuple(self.all_special_tokens)):
            text = " " + text
        return text, kwargs

    def strip_prefix_space(self, text: str) -> str:
        """The inverse of `prepare_for_tokenization`."""
        return text.removeprefix(" ") if self.add_prefix_space else text

    def _tokenize(self, text: str, **kwargs) -> list[str]:
        pieces = []
        for word in WORD.findall(text.replace(" ", WORD_START)):
            for piece in merge_word(word, self.encoder):
                spelled = [piece] if piece in self.encoder else byte_pieces(piece.encode("utf-8"))
                pieces += spelled if all(part in self.encoder for part in spelled) else [self.unk_token]
        return pieces

    def _convert_token_to_id(self, token: str) -> int | None:
        return self.encoder.get(token, self.encoder.get(str(self.unk_token)))

    def _convert_id_to_token(self, index: int) -> str:
        return self.decoder.get(index, str(self.unk_token))

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return self.strip_prefix_space(join_pieces(tokens))

    def instruction(self, message: str, system: str | None = None) -> str:
        """The text of a first chat turn, with an optional system message, as chat models of this family expect it."""
        return INSTRUCTION.format(message if system is None else SYSTEM.format(system, message))


__all__ = ["LlamaTokenizer"]
