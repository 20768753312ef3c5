"""The same service with Flask: `python examples/serve_flask.py FOLDER --num-gpus 2`.

WSGI does not tell an application that its client has gone before the answer is sent: such a call runs to its end.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from typing import Any

from flask import Flask, jsonify, request

from modular_converter.parallel.errors import RankError


def make_app(model: Any, encode: Callable[[str], Any], decode: Callable[[Any], str]) -> Flask:
    """An application around a model that has been parallelized.

    Args:
        encode: from a text to ids, (1, length).
        decode: from ids, (length,), to a text.
    """
    app = Flask(__name__)

    @app.errorhandler(RankError)
    def ended(error: RankError) -> Any:  # the weights are gone: a supervisor starts this anew
        os.kill(os.getpid(), signal.SIGTERM)
        return jsonify(error=str(error).partition(";")[0]), 503

    @app.post("/generate")
    def generate() -> Any:
        prompt = request.get_json()
        length = int(prompt.get("max_new_tokens", 16))
        found = model.generate(encode(prompt["text"]), max_new_tokens=length, do_sample=False)
        return jsonify(text=decode(found[0]))

    @app.get("/memory")
    def memory() -> Any:
        return jsonify(model.memory_allocated())

    return app


def main() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from modular_converter.parallel import parallelize

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--num-gpus", type=int, default=2)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    # Each rank reads its own share of the weights; the ranks end with this process.
    how = {"model_class": AutoModelForCausalLM, "verbose": "simple"}
    model = parallelize(options.folder, num_gpus=options.num_gpus, **how)
    app = make_app(model, lambda text: tokenizer(text, return_tensors="pt").input_ids, tokenizer.decode)
    app.run(host="127.0.0.1", port=options.port, threaded=True)


if __name__ == "__main__":
    main()
