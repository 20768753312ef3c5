"""Serve a parallelized model with FastAPI and uvicorn: `python examples/serve_fastapi.py FOLDER --num-gpus 2`.

FOLDER is a saved causal language model with its tokenizer. Requests come in several threads; the model takes them in
the order in which they come.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from modular_converter.parallel.errors import RankError


class Prompt(BaseModel):
    """One request."""

    text: str
    max_new_tokens: int = 16


def make_app(model: Any, encode: Callable[[str], Any], decode: Callable[[Any], str]) -> FastAPI:
    """An application around a model that has been parallelized.

    Args:
        encode: from a text to ids, (1, length).
        decode: from ids, (length,), to a text.
    """
    app = FastAPI()

    @app.exception_handler(RankError)
    def ended(request: Request, error: RankError) -> JSONResponse:  # the weights are gone: a supervisor starts anew
        os.kill(os.getpid(), signal.SIGTERM)
        return JSONResponse({"error": str(error).partition(";")[0]}, status_code=503)

    @app.post("/generate")
    def generate(prompt: Prompt) -> dict[str, str]:  # not `async`: FastAPI gives each request a thread
        found = model.generate(encode(prompt.text), max_new_tokens=prompt.max_new_tokens, do_sample=False)
        return {"text": decode(found[0])}

    @app.get("/memory")
    def memory() -> dict[str, int]:
        found: dict[str, int] = model.memory_allocated()
        return found

    return app


def main() -> None:
    import uvicorn
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from modular_converter.parallel import parallelize

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--num-gpus", type=int, default=2)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    model = AutoModelForCausalLM.from_pretrained(options.folder)
    with parallelize(model, num_gpus=options.num_gpus, verbose="simple"):
        app = make_app(model, lambda text: tokenizer(text, return_tensors="pt").input_ids, tokenizer.decode)
        uvicorn.run(app, host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
