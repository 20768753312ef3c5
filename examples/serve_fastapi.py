"""Serve a parallelized model with FastAPI and uvicorn: `python examples/serve_fastapi.py FOLDER --num-gpus 2`.

FOLDER is a saved causal language model with its tokenizer. Requests come in several threads; those to /generate that wait
for a running call run together, by the library's continuous batching, and streams one after the other. The ranks leave
the call of a client that has gone, if it runs alone.

    POST /generate {"text": "…", "max_new_tokens": 16}    {"text": "…"}; 422 with the reason for other requests
    POST /stream   the same                               events: data: {"text": "…"}, and at the end {"done": true}
    GET /health    200 while all ranks run, else 503
    GET /memory    bytes by device
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import iterate_in_threadpool, run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, StrictInt
from serving import Batches, Limits, Stream, command_line, limits_of, model_and_tokenizer

from modular_converter.parallel.errors import RankError


class Prompt(BaseModel):
    """One request; `Limits` has its bounds."""

    text: str
    max_new_tokens: StrictInt = 16


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


def make_app(
    model: Any, encode: Callable[[str], Any], decode: Callable[[Any], str], limits: Limits | None = None
) -> FastAPI:
    """An application around a model that has been parallelized.

    Args:
        encode: from a text to ids, (1, length).
        decode: from ids, (length,), to a text.
        limits: of a request; those of `Limits` if None.
    """
    app, bounds, batches = FastAPI(), limits or Limits(), Batches(model)

    def end_process() -> None:  # the weights are gone: a supervisor starts anew
        os.kill(os.getpid(), signal.SIGTERM)

    @app.exception_handler(RankError)
    def ended(request: Request, error: RankError) -> JSONResponse:
        end_process()
        return JSONResponse({"error": str(error).partition(";")[0]}, status_code=503)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        # Without the values that were given: not all of them can be written as JSON.
        said = [{"loc": one["loc"], "msg": one["msg"]} for one in error.errors()]
        return JSONResponse({"detail": said}, 422)

    @app.exception_handler(ConnectionAbortedError)
    def unheard(request: Request, error: ConnectionAbortedError) -> Response:
        return Response(status_code=499)

    def checked(prompt: Prompt) -> None:
        refusal = bounds.refusal(prompt.text, prompt.max_new_tokens, encode)
        if refusal is not None:
            raise HTTPException(422, refusal)

    @app.post("/generate")
    async def generate(prompt: Prompt, request: Request) -> dict[str, str]:
        await run_in_threadpool(checked, prompt)
        client = Client()
        watching = asyncio.create_task(client.watch(request))
        try:
            found = await run_in_threadpool(batches.run, encode(prompt.text), prompt.max_new_tokens, client)
        finally:
            watching.cancel()
        return {"text": decode(found)}

    @app.post("/stream")
    def stream(prompt: Prompt) -> StreamingResponse:
        checked(prompt)
        pieces = Stream(decode)

        def run() -> None:
            try:
                pieces.run(model.generate, encode(prompt.text), max_new_tokens=prompt.max_new_tokens, do_sample=False)
            except RankError:
                end_process()

        async def events() -> AsyncIterator[str]:
            try:
                async for event in iterate_in_threadpool(pieces.events()):
                    yield event
            finally:  # the client has gone: nobody closes an iterator that a thread waits for
                pieces.gone.set()

        threading.Thread(target=run, daemon=True).start()
        return StreamingResponse(events(), media_type="text/event-stream")

    @app.get("/health")
    def health() -> JSONResponse:
        runs = model.ranks_run()
        return JSONResponse({"status": "ok" if runs else "a rank has ended"}, 200 if runs else 503)

    @app.get("/memory")
    def memory() -> dict[str, int]:
        found: dict[str, int] = model.memory_allocated()
        return found

    return app


def main() -> None:
    import uvicorn

    options = command_line(__doc__)
    model, tokenizer = model_and_tokenizer(options)

    def encode(text: str) -> Any:
        return tokenizer(text, return_tensors="pt").input_ids

    app = make_app(model, encode, tokenizer.decode, limits_of(model, options))
    uvicorn.run(app, host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
