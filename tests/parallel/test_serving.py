"""The services of `examples/` under load on loopback: every client gets its own answer."""

import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch


pytest.importorskip("transformers")
from transformers import GenerationConfig  # noqa: E402

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
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def flask_server(app):
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


SERVICES = pytest.mark.parametrize("module, serve", [("serve_fastapi", uvicorn_server), ("serve_flask", flask_server)])


@SERVICES
def test_many_clients_each_get_their_answer(served, examples, module, serve):
    pytest.importorskip("fastapi" if "fastapi" in module else "flask")
    model, wants = served
    with serve(examples(module).make_app(model, encode, decode)) as url:
        found = examples("load_test").load(url, TEXTS, clients=6, tokens=4)
        with urllib.request.urlopen(f"{url}/memory", timeout=60) as answer:
            assert b"cpu:1" in answer.read()
    assert found.answers == wants
    assert "24 requests" in str(found)


def posted(url, path, body):
    """The status and the text of an answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/{path}", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@SERVICES
def test_wrong_requests_are_told_the_bound_and_cost_no_call(examples, module, serve):
    pytest.importorskip("fastapi" if "fastapi" in module else "flask")
    example, calls = examples(module), []

    class Counting:
        def generate(self, *args, **kwargs):
            calls.append(args)

    limits = example.Limits(new_tokens=20, prompt_tokens=50, positions=60, characters=100)
    wrong = [
        ({"text": ""}, "text"),
        ({}, "text"),
        ({"text": None}, "text"),
        ({"text": 7}, "text"),
        ({"text": ["a"]}, "text"),
        ({"text": "a\ud800"}, "half of a surrogate pair"),
        ({"text": ["\ud800"]}, "text"),
        ({"text": "a", "max_new_tokens": float("nan")}, "max_new_tokens"),
        ({"text": "a", "max_new_tokens": 0}, "max_new_tokens"),
        ({"text": "a", "max_new_tokens": -3}, "max_new_tokens"),
        ({"text": "a", "max_new_tokens": 21}, "max_new_tokens"),
        ({"text": "a", "max_new_tokens": 10**30}, "max_new_tokens"),
        ({"text": "a", "max_new_tokens": 2.5}, "max_new_tokens"),
        ({"text": "a", "max_new_tokens": "many"}, "max_new_tokens"),
        ({"text": "a", "max_new_tokens": None}, "max_new_tokens"),
        ({"text": "a" * 51}, "51 tokens, at most 50"),
        ({"text": "a" * 50, "max_new_tokens": 11}, "more than the 60 positions"),
        ({"text": "a" * 101}, "101 characters, at most 100"),
        (b"[1]", ""),
        (b"{", ""),
        (b"", ""),
    ]
    with serve(example.make_app(Counting(), encode, decode, limits)) as url:
        for path in ("generate", "stream"):
            for body, said in wrong:
                status, text = posted(url, path, body)
                assert status == 422 and said in text, (body, status, text)
    assert not calls


@SERVICES
def test_the_pieces_of_a_stream_are_the_answer(served, examples, module, serve):
    pytest.importorskip("fastapi" if "fastapi" in module else "flask")
    model, wants = served
    with serve(examples(module).make_app(model, encode, decode)) as url:
        status, text = posted(url, "stream", {"text": TEXTS[3], "max_new_tokens": 4})
        with urllib.request.urlopen(f"{url}/health", timeout=60) as answer:
            assert answer.status == 200 and b"ok" in answer.read()
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]
    assert status == 200 and events[-1] == {"done": True}
    assert TEXTS[3] + "".join(one["text"] for one in events[:-1]) == wants[3]
    assert len(events) == 5


def test_a_character_of_several_bytes_is_one_piece(examples):
    stream = examples("serving").Stream(lambda ids: bytes(ids).decode(errors="replace"))
    for token in [b"prompt", *(bytes([one]) for one in "né€😀".encode()), b"\xff"]:
        stream.put(torch.tensor(list(token)))
    stream.end()
    stream.run(lambda ids, streamer: None, None)
    events = [json.loads(event.removeprefix("data: ")) for event in stream.events()]
    assert events == [*({"text": one} for one in ["n", "é", "€", "😀", "\ufffd"]), {"done": True}]


class Ended:
    """Stands for a model whose ranks have ended."""

    def ranks_run(self):
        return False

    def generate(self, *args, **kwargs):
        raise RankError("the ranks have ended: rank 1 died; load the model again and call parallelize")


@SERVICES
def test_a_server_without_ranks_says_so_and_ends(examples, monkeypatch, module, serve):
    pytest.importorskip("fastapi" if "fastapi" in module else "flask")
    signals = []
    example = examples(module)
    monkeypatch.setattr(example.os, "kill", lambda *given: signals.append(given))
    with serve(example.make_app(Ended(), encode, decode)) as url:
        request = urllib.request.Request(f"{url}/generate", b'{"text": "a"}', {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=60)
        with pytest.raises(urllib.error.HTTPError) as ill:
            urllib.request.urlopen(f"{url}/health", timeout=60)
        status, events = posted(url, "stream", {"text": "a"})
    assert caught.value.code == 503 and b"rank 1 died" in caught.value.read()
    assert ill.value.code == 503 and b"a rank has ended" in ill.value.read()
    assert status == 200 and events == 'data: {"error": "the ranks have ended: rank 1 died"}\n\n'
    assert signals == [(os.getpid(), signal.SIGTERM)] * 2


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
def client_of(url, tokens, path="generate"):
    """A client that has sent its request, and goes at the end without reading an answer."""
    body = b'{"text": "a", "max_new_tokens": %d}' % tokens
    head = f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
        client.sendall(head.encode() + b"\r\n\r\n" + body)
        yield


@pytest.mark.parametrize(
    "module, serve, path",
    [
        ("serve_fastapi", uvicorn_server, "generate"),
        ("serve_fastapi", uvicorn_server, "stream"),
        ("serve_flask", flask_server, "stream"),
    ],
)
def test_the_call_of_a_client_that_has_gone_is_left(examples, module, serve, path):
    pytest.importorskip("fastapi" if "fastapi" in module else "flask")
    example, model = examples(module), Endless()
    with serve(example.make_app(model, encode, decode, example.Limits(6000))) as url:
        with client_of(url, 6000, path):
            assert model.began.wait(30.0)
        assert model.left.wait(30.0)


def test_a_folder_without_a_tokenizer_is_told_in_a_line(examples, tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(
            SystemExit, match=r"^.*: has no tokenizer that can be read \(.*\): give a folder into which"
        ):
            examples("serving").model_and_tokenizer(SimpleNamespace(folder=str(folder), num_gpus=2))


class Batched:
    """Stands for a model whose second call has several prompts, of which the first fails."""

    def __init__(self):
        self.generation_config = GenerationConfig()
        self.began, self.go_on = threading.Event(), threading.Event()

    def generate(self, ids, streamer, max_new_tokens, do_sample):
        self.began.set()
        assert self.go_on.wait(30.0)
        return ids

    def generate_batch(self, prompts, generation_config, continuous_batching_config):
        tokens = range(generation_config.max_new_tokens)
        failed = {"0": SimpleNamespace(generated_tokens=[], error="no room")}
        return failed | {
            str(n): SimpleNamespace(generated_tokens=[*tokens], error=None) for n in range(1, len(prompts))
        }


def test_a_prompt_that_fails_in_a_batch_has_an_error_and_the_others_their_answers(examples):
    model = Batched()
    batches, client = examples("serving").Batches(model), SimpleNamespace(gone=threading.Event())
    with ThreadPoolExecutor(3) as pool:
        alone = pool.submit(batches.run, torch.tensor([[1]]), 1, client)
        assert model.began.wait(30.0)
        found = []
        for number, new in ((2, 1), (3, 2)):
            found.append(pool.submit(batches.run, torch.tensor([[number]]), new, client))
            while batches._waiting.qsize() < len(found):
                time.sleep(0.01)
        model.go_on.set()
        assert alone.result(30.0) == [1]
        with pytest.raises(RuntimeError, match="no room"):
            found[0].result(30.0)
        assert found[1].result(30.0) == [3, 0, 1]


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
