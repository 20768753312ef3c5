"""What both services share: the bounds of a request, and the pieces of text of a stream."""

from __future__ import annotations

import argparse
import json
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from modular_converter.parallel.errors import RankError


@dataclass(frozen=True)
class Limits:
    """The bounds of a request.

    Attributes:
        new_tokens: the most tokens of an answer.
        prompt_tokens: the most tokens of a prompt.
        positions: of the model, for prompt and answer together; None if it has no such bound.
        characters: of a prompt, before it is made into tokens.
    """

    new_tokens: int = 1024
    prompt_tokens: int = 8192
    positions: int | None = None
    characters: int = 200_000

    def refusal(self, text: Any, new_tokens: Any, encode: Callable[[str], Any]) -> str | None:
        """Why a request is not served, with the bound that it breaks; None if it is served."""
        if not isinstance(text, str) or not text:
            return "text: give a text that is not empty"
        if any("\ud800" <= one <= "\udfff" for one in text[: self.characters]):
            return "text: has half of a surrogate pair, which is no character"
        if len(text) > self.characters:
            return f"text: has {len(text)} characters, at most {self.characters} are allowed"
        if isinstance(new_tokens, bool) or not isinstance(new_tokens, int) or not 0 < new_tokens <= self.new_tokens:
            return f"max_new_tokens: give a whole number from 1 to {self.new_tokens}"
        count = int(encode(text).shape[-1])
        if not count:
            return "text: has no tokens"
        if count > self.prompt_tokens:
            return f"text: has {count} tokens, at most {self.prompt_tokens} are allowed"
        if self.positions is not None and count + new_tokens > self.positions:
            return (
                f"text: has {count} tokens, and with {new_tokens} new ones more than the {self.positions} positions of the "
                "model"
            )
        return None


def limits_of(model: Any, options: argparse.Namespace) -> Limits:
    """The bounds from the command line, and the positions of the model."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    bound = positions if isinstance(positions, int) and positions > 0 else None
    return Limits(options.max_new_tokens, options.max_prompt_tokens, bound)


def command_line(description: str | None) -> argparse.Namespace:
    """The options of a service."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a saved causal language model with its tokenizer")
    parser.add_argument("--num-gpus", type=int, default=2)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-new-tokens", type=int, default=Limits.new_tokens, help="the most of a request")
    parser.add_argument("--max-prompt-tokens", type=int, default=Limits.prompt_tokens, help="the most of a request")
    return parser.parse_args()


def model_and_tokenizer(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model on its devices, and its tokenizer. Code in the folder does not run, and nothing is downloaded."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from modular_converter.parallel import parallelize

    tokenizer = AutoTokenizer.from_pretrained(options.folder, trust_remote_code=False, local_files_only=True)
    # Each rank reads its own share of the weights; the ranks end with this process.
    how = {"model_class": AutoModelForCausalLM, "verbose": "simple"}
    return parallelize(options.folder, num_gpus=options.num_gpus, **how), tokenizer


class Stream:
    """A streamer of ``generate``, and the pieces of text that a client gets, one event for each.

    Args:
        decode: from ids, (length,), to a text.
    """

    def __init__(self, decode: Callable[[Any], str]) -> None:
        self.gone = threading.Event()
        self._decode, self._sent, self._prompt = decode, "", True
        self._ids: list[int] = []
        self._pieces: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def put(self, value: Any) -> None:
        """Take the prompt, and then each token; an error ends the call once the client has gone."""
        if self.gone.is_set():
            raise ConnectionAbortedError
        if self._prompt:
            self._prompt = False
            return
        self._ids += value.flatten().tolist()
        self._send(whole=False)

    def end(self) -> None:
        """Send what was held back."""
        self._send(whole=True)

    def run(self, generate: Callable[..., Any], ids: Any, **given: Any) -> None:
        """A call of ``generate``, whose last event is an error or the word that it is done."""
        last: dict[str, Any] = {"error": "the call failed"}  # the status of the answer is sent: it is an event
        try:
            generate(ids, streamer=self, **given)
            last = {"done": True}
        except ConnectionAbortedError:
            return
        except RankError as error:
            last = {"error": str(error).partition(";")[0]}
            raise
        finally:
            self._pieces.put(last)
            self._pieces.put(None)

    def events(self) -> Iterator[str]:
        """The events, in the form of ``text/event-stream``; the call ends if they are no longer taken."""
        try:
            while (piece := self._pieces.get()) is not None:
                yield f"data: {json.dumps(piece)}\n\n"
        finally:
            self.gone.set()

    def _send(self, whole: bool) -> None:
        """Send the text since the last piece; a character whose bytes are not complete waits for them."""
        text = self._decode(self._ids)
        if text.endswith("\ufffd") and not whole:
            return
        if piece := text[len(self._sent) :]:
            self._sent = text
            self._pieces.put({"text": piece})
