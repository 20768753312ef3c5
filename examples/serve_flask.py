"""The same service with Flask: `python examples/serve_flask.py FOLDER --num-gpus 2`.

WSGI does not tell an application that its client has gone before the answer is sent: such a call of `/generate` runs to
its end. A stream ends at the next token.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from flask import Flask, Response, jsonify, request
from serving import Limits, Stream, command_line, limits_of, model_and_tokenizer

from modular_converter.parallel.errors import RankError


def make_app(
    model: Any, encode: Callable[[str], Any], decode: Callable[[Any], str], limits: Limits | None = None
) -> Flask:
    """An application around a model that has been parallelized.

    Args:
        encode: from a text to ids, (1, length).
        decode: from ids, (length,), to a text.
        limits: of a request; those of `Limits` if None.
    """
    app, bounds = Flask(__name__), limits or Limits()

    def end_process() -> None:  # the weights are gone: a supervisor starts this anew
        os.kill(os.getpid(), signal.SIGTERM)

    @app.errorhandler(RankError)
    def ended(error: RankError) -> Any:
        end_process()
        return jsonify(error=str(error).partition(";")[0]), 503

    def asked() -> tuple[str, dict[str, Any], str | None]:
        """The text of this request, the arguments of ``generate``, and why it is not served."""
        prompt = request.get_json(silent=True)
        if not isinstance(prompt, dict):
            return "", {}, "give a JSON object with text and max_new_tokens"
        text, length = prompt.get("text"), prompt.get("max_new_tokens", 16)
        return text or "", {"max_new_tokens": length, "do_sample": False}, bounds.refusal(text, length, encode)

    @app.post("/generate")
    def generate() -> Any:
        text, given, refusal = asked()
        if refusal is not None:
            return jsonify(detail=refusal), 422
        return jsonify(text=decode(model.generate(encode(text), **given)[0]))

    @app.post("/stream")
    def stream() -> Any:
        text, given, refusal = asked()
        if refusal is not None:
            return jsonify(detail=refusal), 422
        pieces = Stream(decode)

        def run() -> None:
            try:
                pieces.run(model.generate, encode(text), **given)
            except RankError:
                end_process()

        threading.Thread(target=run, daemon=True).start()
        return Response(pieces.events(), mimetype="text/event-stream")

    @app.get("/health")
    def health() -> Any:
        runs = model.ranks_run()
        return jsonify(status="ok" if runs else "a rank has ended"), 200 if runs else 503

    @app.get("/memory")
    def memory() -> Any:
        return jsonify(model.memory_allocated())

    return app


def main() -> None:
    options = command_line(__doc__)
    model, tokenizer = model_and_tokenizer(options)

    def encode(text: str) -> Any:
        return tokenizer(text, return_tensors="pt").input_ids

    app = make_app(model, encode, tokenizer.decode, limits_of(model, options))
    app.run(host="127.0.0.1", port=options.port, threaded=True)


if __name__ == "__main__":
    main()
