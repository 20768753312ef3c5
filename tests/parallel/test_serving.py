"""The services of `examples/` under load on loopback: every client gets its own answer."""

import importlib
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.errors import RankError  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS = [f"request {number}" for number in range(24)]


@pytest.fixture(scope="module")
def examples():
    sys.path.insert(0, str(EXAMPLES))
    yield importlib.import_module
    sys.path.remove(str(EXAMPLES))


def encode(text):
    return torch.tensor([list(text.encode())])


def decode(ids):
    return bytes(int(token) % 128 for token in ids).decode()


@pytest.fixture(scope="module")
def served(ranks):
    model = build(target_of("llama", "causal")).model
    with torch.no_grad():
        wants = [decode(model.generate(encode(t), max_new_tokens=4, do_sample=False)[0]) for t in TEXTS]
    parallelize(model, session=ranks)
    yield model, wants
    model._placement.end()


@contextmanager
def uvicorn_server(app):
    uvicorn = pytest.importorskip("uvicorn")
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@contextmanager
def flask_server(app):
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.mark.parametrize("module, serve", [("serve_fastapi", uvicorn_server), ("serve_flask", flask_server)])
def test_many_clients_each_get_their_answer(served, examples, module, serve):
    pytest.importorskip("fastapi" if "fastapi" in module else "flask")
    model, wants = served
    with serve(examples(module).make_app(model, encode, decode)) as url:
        found = examples("load_test").load(url, TEXTS, clients=6, tokens=4)
        with urllib.request.urlopen(f"{url}/memory", timeout=60) as answer:
            assert b"cpu:1" in answer.read()
    assert found.answers == wants
    assert "24 requests" in str(found)


class Ended:
    """Stands for a model whose ranks have ended."""

    def generate(self, *args, **kwargs):
        raise RankError("the ranks have ended: rank 1 died; load the model again and call parallelize")


@pytest.mark.parametrize("module, serve", [("serve_fastapi", uvicorn_server), ("serve_flask", flask_server)])
def test_a_server_without_ranks_says_so_and_ends(examples, monkeypatch, module, serve):
    pytest.importorskip("fastapi" if "fastapi" in module else "flask")
    signals = []
    example = examples(module)
    monkeypatch.setattr(example.os, "kill", lambda *given: signals.append(given))
    with serve(example.make_app(Ended(), encode, decode)) as url:
        request = urllib.request.Request(f"{url}/generate", b'{"text": "a"}', {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=60)
    assert caught.value.code == 503 and b"rank 1 died" in caught.value.read()
    assert signals == [(os.getpid(), signal.SIGTERM)]


class Endless:
    """Stands for a model that generates until its streamer raises."""

    def __init__(self):
        self.began, self.left = threading.Event(), threading.Event()

    def generate(self, ids, streamer, max_new_tokens, do_sample):
        try:
            for _ in range(6000):
                streamer.put(ids)
                self.began.set()
                time.sleep(0.01)
        except ConnectionAbortedError:
            self.left.set()
            raise


@contextmanager
def client_of(url, tokens):
    """A client that has sent its request, and goes at the end without reading an answer."""
    body = b'{"text": "a", "max_new_tokens": %d}' % tokens
    head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
        client.sendall(head.encode() + b"\r\n\r\n" + body)
        yield


def test_the_call_of_a_client_that_has_gone_is_left(examples):
    pytest.importorskip("fastapi")
    model = Endless()
    with uvicorn_server(examples("serve_fastapi").make_app(model, encode, decode)) as url:
        with client_of(url, 6000):
            assert model.began.wait(30.0)
        assert model.left.wait(30.0)


class Slow:
    """Stands for a model that generates as long as its client stays, and then to the last token."""

    def __init__(self):
        self.began, self.gone, self.ended = threading.Event(), threading.Event(), threading.Event()

    def generate(self, ids, max_new_tokens, do_sample):
        self.began.set()
        assert self.gone.wait(30.0)
        self.ended.set()
        return ids


def test_flask_runs_the_call_of_a_client_that_has_gone_and_serves_the_next(examples):
    pytest.importorskip("flask")
    model = Slow()
    with flask_server(examples("serve_flask").make_app(model, encode, decode)) as url:
        with client_of(url, 16):
            assert model.began.wait(30.0)
        model.gone.set()
        assert model.ended.wait(30.0)
        request = urllib.request.Request(f"{url}/generate", b'{"text": "a"}', {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.read() == b'{"text":"a"}\n'
