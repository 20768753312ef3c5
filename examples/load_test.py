"""Many clients at once against a service on this machine: `python examples/load_test.py http://127.0.0.1:8000`."""

from __future__ import annotations

import argparse
import json
import statistics
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What a load test found: answers in the order of the texts, and seconds of each request."""

    answers: list[str]
    seconds: list[float]
    total_s: float

    def __str__(self) -> str:
        late = sorted(self.seconds)[int(0.95 * (len(self.seconds) - 1))]
        rate = len(self.seconds) / self.total_s
        middle = statistics.median(self.seconds)
        return f"{len(self.seconds)} requests, {rate:.1f} a second, median {middle * 1e3:.0f} ms, 95 % {late * 1e3:.0f} ms"


def ask(url: str, text: str, tokens: int) -> tuple[str, float]:
    """One request; the answer and its seconds. Raises what `urllib` raises for anything but success."""
    data = json.dumps({"text": text, "max_new_tokens": tokens}).encode()
    headers = {"Content-Type": "application/json"}
    start = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/generate", data, headers), timeout=120) as answer:
        return json.load(answer)["text"], time.perf_counter() - start


def load(url: str, texts: list[str], clients: int, tokens: int = 8) -> Load:
    """Send all texts, so many at a time."""
    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(lambda text: ask(url, text, tokens), texts))
    return Load([text for text, _ in found], [took for _, took in found], time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    print(load(options.url, [f"request {number}" for number in range(options.requests)], options.clients))


if __name__ == "__main__":
    main()
