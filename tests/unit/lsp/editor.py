"""An editor for the tests: pygls's own client, which starts the server as a process and talks to it over stdio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient


PATIENCE = 60.0
"""Seconds after which an answer that does not come fails a test."""


class Editor:
    """A client with an event loop of its own; the methods wait for the answers."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.client = LanguageClient("tests", "1")
        self.versions: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.findings: dict[str, list[types.Diagnostic]] = {}
        self.published: dict[str, int] = {}
        self.messages: list[str] = []
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self._published(params))
        self.client.feature(types.WINDOW_SHOW_MESSAGE)(lambda params: self._told(params.message))
        self.client.feature(types.CLIENT_REGISTER_CAPABILITY)(lambda params: None)
        environment = {**os.environ, "MODULAR_CONVERTER_CACHE": str(cache)}
        command = [sys.executable, "-m", "modular_converter", "lsp", "--stdio"]
        self.wait(self.client.start_io(*command, env=environment))
        watched = types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True)
        capabilities = types.ClientCapabilities(types.WorkspaceClientCapabilities(did_change_watched_files=watched))
        params = types.InitializeParams(capabilities, process_id=os.getpid(), root_uri=folder.as_uri())
        self.started = self.wait(self.client.initialize_async(params))
        self.client.initialized(types.InitializedParams())

    def wait(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(awaitable, PATIENCE))

    def _published(self, params: types.PublishDiagnosticsParams) -> None:
        self.findings[params.uri] = list(params.diagnostics)
        self.published[params.uri] = self.published.get(params.uri, 0) + 1

    def _told(self, message: str) -> None:
        self.messages.append(message)

    def uri(self, name: str) -> str:
        return next(self.folder.rglob(name)).as_uri()

    def open(self, name: str, text: str | None = None) -> None:
        uri = self.uri(name)
        self.texts[uri] = next(self.folder.rglob(name)).read_text() if text is None else text
        self.versions[uri] = 1
        item = types.TextDocumentItem(uri, "python", 1, self.texts[uri])
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def type(self, name: str, old: str, new: str) -> None:
        uri = self.uri(name)
        assert old in self.texts[uri]
        self.put(name, self.texts[uri].replace(old, new, 1))

    def put(self, name: str, text: str) -> None:
        uri = self.uri(name)
        self.texts[uri], self.versions[uri] = text, self.versions[uri] + 1
        document = types.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def close(self, name: str) -> None:
        document = types.TextDocumentIdentifier(self.uri(name))
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    def changed_on_disk(self, name: str) -> None:
        """As an editor tells what another program has written."""
        event = types.FileEvent(self.uri(name), types.FileChangeType.Changed)
        self.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))

    def codes(self, name: str) -> list[str]:
        """The codes of the findings of a file, after all that was said so far."""
        self.hover(name, 1, 1)  # any question is answered after the changes before it
        self.wait(asyncio.sleep(0.05))
        return [str(one.code) for one in self.findings.get(self.uri(name), [])]

    def position(self, name: str, mark: str, offset: int = 0) -> types.Position:
        """The position of the first place with a text, in UTF-16."""
        text = self.texts.get(self.uri(name)) or next(self.folder.rglob(name)).read_text()
        before = text[: text.index(mark) + offset]
        column = len(_units(before[before.rfind("\n") + 1 :])) // 2
        return types.Position(before.count("\n"), column)

    def hover(self, name: str, line: int, column: int) -> str:
        document = types.TextDocumentIdentifier(self.uri(name))
        params = types.HoverParams(document, types.Position(line - 1, column - 1))
        found = self.wait(self.client.text_document_hover_async(params))
        return found.contents.value if found else ""

    def places(self, request: str, name: str, mark: str, offset: int = 0) -> list[str]:
        """`file:text` of each place that `definition`, `declaration` or `implementation` leads to."""
        document = types.TextDocumentIdentifier(self.uri(name))
        params = types.DefinitionParams(document, self.position(name, mark, offset))
        found = self.wait(getattr(self.client, f"text_document_{request}_async")(params))
        return [self._shown(one) for one in found or ()]

    def _shown(self, place: types.Location) -> str:
        path = next(one for one in self.folder.rglob("*.py") if one.as_uri() == place.uri)
        lines = self.texts.get(place.uri, path.read_text()).split("\n")
        start, end = place.range.start, place.range.end
        text = _text(
            _units(lines[start.line])[2 * start.character : 2 * end.character if end.line == start.line else None]
        )
        return f"{path.name}:{text.strip()}"

    def apply(self, edit: types.WorkspaceEdit) -> dict[str, str]:
        """Name -> text of the files that an edit changes."""
        found = {}
        for uri, edits in (edit.changes or {}).items():
            path = next(one for one in self.folder.rglob("*.py") if one.as_uri() == uri)
            lines = self.texts.get(uri, path.read_text()).split("\n")
            for one in sorted(edits, key=lambda one: (-one.range.start.line, -one.range.start.character)):
                start, end = one.range.start, one.range.end
                tail = _units(lines[end.line])[2 * end.character :] if end.line < len(lines) else b""
                new = _text(_units(lines[start.line])[: 2 * start.character] + _units(one.new_text) + tail)
                lines[start.line : end.line + 1] = new.split("\n")
            found[path.name] = "\n".join(lines)
        return found

    def end(self) -> int:
        """Shut the server down, and return its exit code."""
        self.wait(self.client.shutdown_async(None))
        self.client.exit(None)
        process = self.client._server
        assert process is not None
        code: int = self.wait(process.wait())
        with contextlib.suppress(asyncio.CancelledError):
            self.wait(self.client.stop())
        self.loop.close()
        return code


def _units(text: str) -> bytes:
    """A text in the units in which the client counts columns: two bytes each."""
    return text.encode("utf-16-le")


def _text(units: bytes) -> str:
    return units.decode("utf-16-le")
