"""What both services share: the bounds of a request, and the pieces of text of a stream."""

from __future__ import annotations

import argparse
import copy
import json
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from modular_converter.parallel.errors import PlanError, RankError


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

    try:
        tokenizer = AutoTokenizer.from_pretrained(options.folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise SystemExit(
            f"{options.folder}: has no tokenizer that can be read ({why}): give a folder into which model and tokenizer were "
            "written with their save_pretrained"
        ) from None
    # Each rank reads its own share of the weights; the ranks end with this process.
    how = {"model_class": AutoModelForCausalLM, "verbose": "simple"}
    try:
        return parallelize(options.folder, num_gpus=options.num_gpus, **how), tokenizer
    except PlanError as error:  # which says what to write instead
        raise SystemExit(str(error)) from None


@dataclass
class Waiting:
    """A request for the tokens behind a prompt, (1, length), and its answer: prompt and new tokens, or an error."""

    ids: Any
    new_tokens: int
    client: Any
    found: list[int] | None = None
    error: BaseException | None = None


class Batches:
    """The most probable tokens for requests of several threads: those that wait for a running call run as one batch.

    One request alone runs with ``generate``, whose call ends once its client has gone.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._turn = threading.Lock()
        self._waiting: queue.SimpleQueue[Waiting] = queue.SimpleQueue()

    def run(self, ids: Any, new_tokens: int, client: Any) -> list[int]:
        """The prompt with its new tokens.

        Args:
            ids: of the prompt, (1, length).
            client: a streamer whose event ``gone`` is set once nobody waits for the answer.

        Raises ``ConnectionAbortedError`` once the client has gone, and the error of the model.
        """
        own = Waiting(ids, new_tokens, client)
        self._waiting.put(own)
        with self._turn:  # whoever comes first runs what all others wait for
            batch = [self._waiting.get() for _ in range(self._waiting.qsize())]
            try:
                self._answer([one for one in batch if not one.client.gone.is_set()])
            except BaseException as error:
                for one in batch:
                    one.error = error
        if own.error is not None:
            raise own.error
        if own.found is None:
            raise ConnectionAbortedError
        return own.found

    def _answer(self, batch: list[Waiting]) -> None:
        if len(batch) == 1:
            (one,) = batch
            how = {"max_new_tokens": one.new_tokens, "do_sample": False, "streamer": one.client}
            one.found = self._model.generate(one.ids, **how)[0].tolist()
        elif batch:
            answers = self._model.generate_batch([one.ids[0].tolist() for one in batch], **self._settings(batch))
            if len(answers) != len(batch):
                raise RuntimeError(f"{len(batch) - len(answers)} of {len(batch)} prompts have no answer")
            for one, answer in zip(batch, answers.values()):
                one.found = one.ids[0].tolist() + answer.generated_tokens[: one.new_tokens]
                if answer.error is not None:  # the library logs it, and returns the tokens so far
                    one.error = RuntimeError(answer.error)

    def _settings(self, batch: list[Waiting]) -> dict[str, Any]:
        """As many tokens as the longest answer needs, and a cache that holds this batch."""
        from transformers import ContinuousBatchingConfig

        most = max(one.new_tokens for one in batch)
        settings = copy.copy(self._model.generation_config)
        settings.update(max_new_tokens=most, do_sample=False)
        paged = ContinuousBatchingConfig(
            max_batch_tokens=min(4096, sum(one.ids.shape[1] for one in batch) + len(batch))
        )
        paged.num_blocks = sum(-(-(one.ids.shape[1] + most) // paged.page_size) for one in batch) + 1
        return {"generation_config": settings, "continuous_batching_config": paged}


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
