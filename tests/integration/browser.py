"""A browser to try pages in: headless Chromium, spoken to over a pipe, with nothing but the standard library.

The DevTools protocol runs over two file descriptors (`--remote-debugging-pipe`), one JSON text after the other, each
ended by a null byte. That gives real keys, mouse moves, media features and screenshots, and what the console said.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "microsoft-edge")
SECONDS = 60.0
KEYS = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "/": 191}


def find_browser() -> str | None:
    """The first Chromium-like browser on the path; none on Windows, which hands pipes over in another way."""
    return None if os.name == "nt" else next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Page:
    """An open page."""

    send_to: int
    read_from: int
    session: str = ""
    complaints: list[str] = field(default_factory=list)
    """The messages of the console, of the security policy and of uncaught exceptions."""
    _number: int = 0
    _rest: bytes = b""

    def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol; returns its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.send_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            self._note(answer)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            if not select.select([self.read_from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.read_from, 1 << 20)
            if not got:
                raise ConnectionError("the browser has ended")
            self._rest += got
        first, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(first))

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif message.get("method") == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(parameters["args"]))
        elif message.get("method") == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])

    def open(
        self, path: Path, fragment: str = "", *, width: int = 1280, height: int = 800, dark: bool = False
    ) -> None:
        """Load a file and wait until it has been drawn."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.as_uri() + fragment)
        end = time.monotonic() + SECONDS
        while self.evaluate("location.protocol + document.readyState") != "file:complete":
            if time.monotonic() > end:
                raise TimeoutError(f"{path} does not load")
            time.sleep(0.02)
        self.settle()

    def settle(self) -> None:
        """Wait until the last events are visible on the screen."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key: a letter, or one of `KEYS`."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self.settle()

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)
        self.settle()

    def hover(self, selector: str) -> None:
        """Move the mouse onto the middle of the first element of a selector."""
        x, y = self._middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, selector: str) -> None:
        """Click the first element of a selector."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def _middle(self, selector: str) -> tuple[float, float]:
        place = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            "e.scrollIntoView({block: 'nearest'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        if place is None:
            raise LookupError(f"nothing on the page is {selector}")
        return place[0], place[1]

    def screenshot(self, scale: float = 1.0) -> bytes:
        """The screen, as PNG."""
        x, y, width, height = self.evaluate("[scrollX, scrollY, innerWidth, innerHeight]")
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": scale}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", clip=clip)["data"])


@contextlib.contextmanager
def browser_page(browser: str, profile: Path) -> Iterator[Page]:
    """Start a browser with an empty profile and hand out its one page; the browser ends with the context."""
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()
    command = [
        *(browser, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run"),
        *("--disable-gpu", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars"),
        *("--disable-dev-shm-usage", "--disable-component-update", "--disable-sync"),
        *(["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []),
    ]

    def place_pipes() -> None:  # the browser reads commands from 3 and writes answers to 4
        reading, writing = os.dup(to_browser), os.dup(to_us)
        os.dup2(reading, 3)
        os.dup2(writing, 4)

    process = subprocess.Popen(
        command, preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_browser)
    os.close(to_us)
    page = Page(from_us, from_browser)
    try:
        target = page.call("Target.createTarget", url="about:blank")["targetId"]
        page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        yield page
    finally:
        page.session = ""
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            page.call("Browser.close")
        os.close(from_us)
        os.close(from_browser)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def pixels(png: bytes) -> list[list[tuple[int, int, int]]]:
    """The rows of a PNG with eight bits a channel and no interlacing, as browsers make it."""
    place, packed, header = 8, b"", b""
    while place < len(png):
        (size,) = struct.unpack(">I", png[place : place + 4])
        kind, body = png[place + 4 : place + 8], png[place + 8 : place + 8 + size]
        header = body if kind == b"IHDR" else header
        packed += body if kind == b"IDAT" else b""
        place += 12 + size
    width, height, depth, color = struct.unpack(">IIBB", header[:10])
    assert depth == 8 and color in (2, 6), "an unusual PNG"
    channels = 3 if color == 2 else 4
    data, row_size = zlib.decompress(packed), width * channels
    rows, above = [], bytearray(row_size)
    for number in range(height):
        start = number * (row_size + 1)
        row = _unfiltered(data[start], bytearray(data[start + 1 : start + 1 + row_size]), above, channels)
        rows.append([(row[at], row[at + 1], row[at + 2]) for at in range(0, row_size, channels)])
        above = row
    return rows


def _unfiltered(kind: int, row: bytearray, above: bytearray, channels: int) -> bytearray:
    for at in range(len(row)):
        left = row[at - channels] if at >= channels else 0
        corner = above[at - channels] if at >= channels else 0
        guess = (0, left, above[at], (left + above[at]) // 2, _paeth(left, above[at], corner))[kind]
        row[at] = (row[at] + guess) & 0xFF
    return row


def _paeth(left: int, above: int, corner: int) -> int:
    estimate = left + above - corner
    return min((left, above, corner), key=lambda one: abs(estimate - one))
