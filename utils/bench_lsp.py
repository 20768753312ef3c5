"""How long an editor waits for the findings of a keystroke, and for the answers that it asks for most.

    python utils/bench_lsp.py [MODEL …] [--keystrokes N]

Starts `modular-convert lsp` as an editor does, opens modular files of the installed transformers, and types into them. A
keystroke is measured from the new text to its findings, warm: the file has been converted once. The CPU time is that of
the server and the formatter, which another program's load changes less than the time on the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import statistics
import sys
import time
from pathlib import Path

import psutil
from lsprotocol import types
from pygls.lsp.client import LanguageClient


MODELS = ("deformable_detr", "phi4_multimodal", "diffusion_gemma", "maskformer")
"""Their modular files have about 1,500 lines."""


class Client(LanguageClient):
    """A client that waits for findings."""

    def __init__(self) -> None:
        super().__init__("bench", "1")
        self.answer: asyncio.Future[int] | None = None

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            if self.answer is not None and not self.answer.done():
                self.answer.set_result(len(params.diagnostics))

    async def findings(self) -> int:
        """The number of findings that come next."""
        self.answer = asyncio.get_running_loop().create_future()
        return await self.answer


def edits(text: str, count: int) -> list[str]:
    """The text with one more letter or word in the body of a method, at places all over the file."""
    lines = text.split("\n")
    places = [number for number, line in enumerate(lines) if line.startswith("        return ")]
    found = []
    for number in range(count):
        place = places[(number * 7) % len(places)]
        lines[place] = lines[place].replace("return ", f"return {number} or ", 1)
        found.append("\n".join(lines))
    return found


def cpu_seconds(server: psutil.Process) -> float:
    """The CPU time of the server so far, that of its formatters included."""
    times = server.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


async def measure(client: Client, path: Path, keystrokes: int) -> tuple[int, list[float]]:
    """Lines of a file; seconds of its first conversion, of a keystroke (median, the slowest of nine in ten, CPU time), and of
    a hover right after one.
    """
    assert client._server
    server = psutil.Process(client._server.pid)
    text = path.read_text(encoding="utf-8")
    started = time.perf_counter()
    client.text_document_did_open(
        types.DidOpenTextDocumentParams(types.TextDocumentItem(path.as_uri(), "python", 1, text))
    )
    await client.findings()
    first, times, before = time.perf_counter() - started, [], cpu_seconds(server)
    for version, new in enumerate(edits(text, keystrokes), 2):
        document = types.VersionedTextDocumentIdentifier(version, path.as_uri())
        change = types.TextDocumentContentChangeWholeDocument(new)
        started = time.perf_counter()
        client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))
        await client.findings()
        times.append(time.perf_counter() - started)
    cpu = (cpu_seconds(server) - before) / keystrokes
    line = next(number for number, one in enumerate(text.split("\n")) if one.startswith("    def "))
    started = time.perf_counter()
    await client.text_document_hover_async(
        types.HoverParams(types.TextDocumentIdentifier(path.as_uri()), types.Position(line, 8))
    )
    hover = time.perf_counter() - started
    slow = sorted(times)[max(0, int(len(times) * 0.9) - 1)]
    return text.count("\n"), [first, statistics.median(times), slow, cpu, hover]


async def run(models: list[str], keystrokes: int) -> None:
    """Print a row for each model."""
    client = Client()
    await client.start_io(sys.executable, "-m", "modular_converter", "lsp")
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities(), process_id=os.getpid()))
    client.initialized(types.InitializedParams())
    spec = importlib.util.find_spec("transformers")
    assert spec is not None and spec.origin is not None
    print("| modular file | lines | opened | keystroke, median | slowest of nine in ten | CPU time | hover |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for model in models:
        path = Path(spec.origin).parent / "models" / model / f"modular_{model}.py"
        lines, seconds = await measure(client, path, keystrokes)
        cells = [f"{lines:,}", *(f"{1000 * one:.0f} ms" for one in seconds)]
        print(f"| `{path.name}` | {' | '.join(cells)} |", flush=True)
    await client.shutdown_async(None)
    client.exit(None)


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--keystrokes", type=int, default=20)
    given = parser.parse_args()
    asyncio.run(run(given.models, given.keystrokes))


if __name__ == "__main__":
    main()
