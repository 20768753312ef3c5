"""Serve a parallelized model with FastAPI and uvicorn: `python examples/serve_fastapi.py FOLDER --num-gpus 2`.

FOLDER is a saved causal language model with its tokenizer. Requests come in several threads; the model takes them in
the order in which they come. The ranks leave the call of a client that has gone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from modular_converter.parallel.errors import RankError


class Prompt(BaseModel):
    """One request."""

    text: str
    max_new_tokens: int = 16


class Client:
    """A streamer that ends its call, by an error at the next token, once its client has gone."""

    def __init__(self) -> None:
        self.gone = threading.Event()

    def put(self, value: Any) -> None:
        if self.gone.is_set():
            raise ConnectionAbortedError

    def end(self) -> None:
        """There is nothing to do at the last token."""

    async def watch(self, request: Request) -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(0.1)
        self.gone.set()


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

    @app.exception_handler(ConnectionAbortedError)
    def unheard(request: Request, error: ConnectionAbortedError) -> Response:
        return Response(status_code=499)

    @app.post("/generate")
    async def generate(prompt: Prompt, request: Request) -> dict[str, str]:
        client = Client()
        watching = asyncio.create_task(client.watch(request))
        given = {"max_new_tokens": prompt.max_new_tokens, "do_sample": False, "streamer": client}
        try:
            found = await run_in_threadpool(model.generate, encode(prompt.text), **given)
        finally:
            watching.cancel()
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
    # Each rank reads its own share of the weights; the ranks end with this process.
    how = {"model_class": AutoModelForCausalLM, "verbose": "simple"}
    model = parallelize(options.folder, num_gpus=options.num_gpus, **how)
    app = make_app(model, lambda text: tokenizer(text, return_tensors="pt").input_ids, tokenizer.decode)
    uvicorn.run(app, host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
