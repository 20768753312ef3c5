"""The language server: what an editor says and asks, answered by the functions of this package. One thread does the work,
so that a keystroke waits for no more than the conversion before it, and only the last of several is converted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams, JsonRpcInvalidRequest
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import PositionCodec

from modular_converter.authoring.fixes import with_fix, with_ignores
from modular_converter.files.arguments import has_modular_name
from modular_converter.findings import UNPARSABLE, ConversionError, Edit, Finding, Location, split_lines
from modular_converter.lsp import open_files
from modular_converter.lsp.open_files import OpenFiles, Refusal, renamable, rename
from modular_converter.provenance.generated import LineRange
from modular_converter.reporting.diffs import differing_parts
from modular_converter.settings.load import load_settings_of
from modular_converter.version import __version__


SOURCE = "modular-convert"
NO_ANSWER = (Refusal, ConversionError, *UNPARSABLE)
_SEVERITY = {True: types.DiagnosticSeverity.Error, False: types.DiagnosticSeverity.Warning}


def path_of(uri: str) -> str:
    """The absolute path of a document; "" for one that is no file."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return os.path.abspath(path) if path else ""


def uri_of(path: str) -> str:
    return from_fs_path(path) or ""


@dataclass(frozen=True)
class Values:
    """Makes values of the protocol for one client, which may count columns in UTF-16."""

    codec: PositionCodec
    text: Callable[[str], str]
    """The text of a file as the editor has it; "" for one that cannot be read."""

    def place(self, path: str, position: types.Position) -> tuple[int, int]:
        """Line and column of a position, in characters from 1."""
        found = self.codec.position_from_client_units(split_lines(self.text(path)), position)
        return found.line + 1, found.character + 1

    def position(self, path: str, line: int, column: int) -> types.Position:
        """The position of a line and column, in characters from 1."""
        lines = split_lines(self.text(path))
        if not 0 < line <= len(lines):
            return types.Position(max(line - 1, 0), 0)
        return types.Position(line - 1, self.codec.client_num_units(lines[line - 1][: column - 1]))

    def range(self, location: Location) -> types.Range:
        """The range of a place: one without an end reaches to the end of its line."""
        start = self.position(location.path, location.line, location.column)
        if location.end_line is None or location.end_column is None:
            return types.Range(start, self.position(location.path, location.line, 1_000_000))
        return types.Range(start, self.position(location.path, location.end_line, location.end_column))

    def location(self, place: Location | LineRange) -> types.Location:
        """A place in a file, or some lines of it."""
        if isinstance(place, LineRange):
            place = Location(place.path, place.first, 1, place.last, 1_000_000)
        return types.Location(uri_of(place.path), self.range(place))

    def diagnostic(self, finding: Finding, path: str) -> types.Diagnostic:
        """A finding of a modular file's conversion; one about another file stands at the top, and leads there."""
        own = finding.location.path == path
        others = (*(() if own else (finding.location,)), *finding.related)
        related = [types.DiagnosticRelatedInformation(self.location(one), finding.message) for one in others]
        return types.Diagnostic(
            range=self.range(finding.location if own else Location(path)),
            message=f"{finding.message}\n{finding.help}".rstrip(),
            severity=_SEVERITY[finding.is_error],
            code=finding.code,
            source=SOURCE,
            related_information=related or None,
        )

    def edits(self, path: str, edits: Iterable[Edit]) -> list[types.TextEdit]:
        return [
            types.TextEdit(self.range(Location(path, one.line, one.column, one.end_line, one.end_column)), one.text)
            for one in edits
        ]

    def workspace_edit(self, edits: Mapping[str, Iterable[Edit]]) -> types.WorkspaceEdit:
        """Edits of several files, by path."""
        return types.WorkspaceEdit(changes={uri_of(path): self.edits(path, some) for path, some in edits.items()})


def changed_lines(old: str, new: str) -> list[Edit]:
    """The edits that make one text of another: the lines that differ."""
    before, after = (re.split(r"(?<=\n)", text) for text in (old, new))
    parts = differing_parts(before, after)
    return [Edit(start + 1, 1, end + 1, 1, "".join(after[first:last])) for start, end, first, last in parts]


GENERATED = "modular-converter.generated"
"""The command that gives the generated text: of a class, or of all files. Arguments: the URI, and the name or ""."""
PREVIEW = "modular-converter.preview"
"""The command of a code lens, which the editor has: it shows what `GENERATED` gives. The same arguments."""
WATCHED = ("**/*.py", "**/pyproject.toml", "**/ruff.toml", "**/.ruff.toml")
"""The files whose changes on disk the editor reports."""

Given = ParamSpec("Given")
T = TypeVar("T")


class Server(LanguageServer):
    """The server with the files that the editor has open."""

    def __init__(self) -> None:
        super().__init__("modular-convert", __version__, types.TextDocumentSyncKind.Full)
        self.files = OpenFiles()
        self.waiting: dict[str, str | None] = {}
        """Path -> its newest text that was not looked at yet; None for a closed file."""
        self.loop: asyncio.AbstractEventLoop
        self.worker = ThreadPoolExecutor(1, "modular-convert")

    async def ask(self, answer: Callable[Given, T], *given: Given.args, **named: Given.kwargs) -> T:
        """An answer from the thread that knows the files, after all that the editor has said before."""

        def work() -> T:
            self.catch_up()
            return answer(*given, **named)

        return await asyncio.get_running_loop().run_in_executor(self.worker, work)

    def catch_up(self) -> None:
        """Take what the editor has said, and send the findings of what is converted; in the worker's thread."""
        found: set[str] = set()
        while self.waiting:
            path, text = self.waiting.popitem()
            found.update(self.files.close(path) if text is None else self.files.put(path, text))
        self.publish(found)

    def say(self, path: str, text: str | None) -> None:
        """Remember what the editor has said, and look at it as soon as the thread is free."""
        if path:
            self.waiting[path] = text
            self.worker.submit(self.catch_up).add_done_callback(_log)

    def look_again(self, paths: Sequence[str] | None) -> None:
        """Convert what has read some files that changed on disk (None: all); in the worker's thread."""
        self.publish(self.files.changed(paths))

    def publish(self, modular: Iterable[str]) -> None:
        """Send the findings of modular files."""
        for path in sorted(modular):
            if self.files.is_open(path):
                found = [self.values.diagnostic(one, path) for one in self.files.conversion(path).findings]
                self.send(path, found)

    def send(self, path: str, found: list[types.Diagnostic]) -> None:
        """Send what an editor shows for a file."""
        params = types.PublishDiagnosticsParams(uri_of(path), found)
        self.loop.call_soon_threadsafe(self.text_document_publish_diagnostics, params)

    @property
    def values(self) -> Values:
        """Makes the values of the protocol for this client."""
        return Values(self.workspace.position_codec, self.text_of)

    def text_of(self, path: str) -> str:
        """The text of a file as the editor has it; "" for one that cannot be read."""
        try:
            return self.files.texts.get(path) or self.files.library(path).text_if_readable(path) or ""
        except ConversionError:
            return ""


def make_server() -> Server:
    """A server with all features."""
    server = Server()
    _follow_documents(server)
    kinds = types.CodeActionOptions([types.CodeActionKind.QuickFix], resolve_provider=True)
    for feature, answer, options in (
        (types.TEXT_DOCUMENT_DEFINITION, partial(_locations, open_files.definitions, True), None),
        (types.TEXT_DOCUMENT_IMPLEMENTATION, partial(_locations, _of_line(open_files.generated_lines), True), None),
        (types.TEXT_DOCUMENT_DECLARATION, partial(_locations, _of_line(open_files.source_lines), False), None),
        (types.TEXT_DOCUMENT_HOVER, _hover, None),
        (types.TEXT_DOCUMENT_CODE_LENS, _lenses, None),
        (types.TEXT_DOCUMENT_CODE_ACTION, _actions, kinds),
        (types.CODE_ACTION_RESOLVE, _resolved, None),
        (types.TEXT_DOCUMENT_PREPARE_RENAME, _prepared, None),
        (types.TEXT_DOCUMENT_RENAME, _renamed, types.RenameOptions(prepare_provider=True)),
    ):
        server.feature(feature, options)(_asked(server, answer))

    @server.command(GENERATED)
    async def generated(uri: str, name: str = "") -> dict[str, str]:
        return await server.ask(_generated, server, uri, name)

    return server


def _asked(server: Server, answer: Callable[[Server, Any], T]) -> Callable[[Any], Awaitable[T]]:
    """The function by which a client asks for an answer."""

    async def ask(params: Any) -> T:
        return await server.ask(answer, server, params)

    return ask


def serve_editor() -> None:
    """Serve an editor over the standard input and output until it ends the session."""
    logging.getLogger("pygls.protocol.json_rpc").addFilter(_is_fault)
    with os.fdopen(os.dup(0), "rb") as from_editor, os.fdopen(os.dup(1), "wb") as to_editor:
        os.dup2(2, 1)  # nothing else may write where the editor reads
        make_server().start_io(from_editor, to_editor)


def _is_fault(record: logging.LogRecord) -> bool:
    """Whether a line of the log is about more than an answer that was refused with its reason."""
    return not (record.exc_info and isinstance(record.exc_info[1], JsonRpcException))


def _log(done: Future[None]) -> None:
    """Tell of a fault of the server itself in its log; it goes on."""
    if (error := done.exception()) is not None:
        logging.getLogger(__name__).error("a change was not looked at", exc_info=error)


def _follow_documents(server: Server) -> None:
    """What the editor says about its files."""

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.loop = asyncio.get_running_loop()

    @server.feature(types.INITIALIZED)
    def initialized(params: types.InitializedParams) -> None:
        capabilities = server.client_capabilities.workspace
        watched = capabilities.did_change_watched_files if capabilities else None
        if watched and watched.dynamic_registration:
            options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(one) for one in WATCHED])
            method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
            server.client_register_capability(
                types.RegistrationParams([types.Registration("watched", method, options)])
            )

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        server.say(path_of(params.text_document.uri), params.text_document.text)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        server.say(path_of(uri), server.workspace.get_text_document(uri).source)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        path = path_of(params.text_document.uri)
        server.say(path, None)
        if path:
            server.send(path, [])

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def did_save(params: types.DidSaveTextDocumentParams) -> None:
        path = path_of(params.text_document.uri)
        if path and not has_modular_name(path):  # the texts of modular files are known
            await server.ask(server.look_again, [path])

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def did_change_on_disk(params: types.DidChangeWatchedFilesParams) -> None:
        paths = [path for one in params.changes if (path := path_of(one.uri)) not in server.files.texts and path]
        if any(path.endswith(".toml") for path in paths):
            await server.ask(server.look_again, None)
        elif paths:
            await server.ask(server.look_again, paths)


def _of_line(answer: Callable[[str, int, OpenFiles], Any]) -> Callable[..., Any]:
    """An answer about a line for all its columns."""
    return lambda path, line, column, files: answer(path, line, files)


def _locations(
    answer: Callable[..., Any], is_modular: bool, server: Server, params: types.TextDocumentPositionParams
) -> list[types.Location]:
    """The places that answer a question about a place in a modular or a generated file."""
    path = path_of(params.text_document.uri)
    if not path or has_modular_name(path) != is_modular:
        return []
    line, column = server.values.place(path, params.position)
    try:
        return [server.values.location(one) for one in answer(path, line, column, server.files)]
    except NO_ANSWER as error:
        told = types.ShowMessageParams(types.MessageType.Info, str(error))
        server.loop.call_soon_threadsafe(server.window_show_message, told)
        return []


def _hover(server: Server, params: types.HoverParams) -> types.Hover | None:
    path = path_of(params.text_document.uri)
    if not has_modular_name(path):
        return None
    line, _ = server.values.place(path, params.position)
    try:
        library = server.files.library(path)
        spot = open_files.spot_at(library.module(path), line)
        if spot is None or not (spot.method or line <= spot.statement.header_line):
            return None
        text = open_files.generated_text(spot, server.files.conversion(path), library)
    except NO_ANSWER:
        return None
    return types.Hover(
        types.MarkupContent(types.MarkupKind.Markdown, f"```python\n{open_files.hover_text(text)}\n```")
    )


def _lenses(server: Server, params: types.CodeLensParams) -> list[types.CodeLens]:
    """What stands above classes."""
    uri = params.text_document.uri
    path = path_of(uri)
    if not has_modular_name(path):
        return []
    try:
        found = [*open_files.lenses(path, server.files)]
    except NO_ANSWER:
        return []
    return [
        types.CodeLens(
            server.values.range(Location(path, one.line, 1, one.line, 1)),
            types.Command(one.title, PREVIEW, None, [uri, one.name]),
        )
        for one in found
    ]


def _generated(server: Server, uri: str, name: str) -> dict[str, str]:
    """The text that a modular file generates: of one class, or of all files."""
    path = path_of(uri)
    if not has_modular_name(path):
        raise JsonRpcInvalidParams(f"not a modular file: {uri}")
    with _reason_for_none():
        conversion = server.files.conversion(path)
        if not name:
            if conversion.failed:
                raise Refusal(conversion.findings[0].message)
            return {"name": os.path.basename(path), "text": "\n\n".join(conversion.files.values())}
        library = server.files.library(path)
        statement = library.module(path).definitions.get(name)
        if statement is None:
            raise Refusal(f"{os.path.basename(path)} has no `{name}`")
        text = open_files.generated_text(open_files.CodeSpot(statement), conversion, library)
        return {"name": name, "text": f"{text}\n"}


@contextlib.contextmanager
def _reason_for_none() -> Iterator[None]:
    """Tell the client why there is no answer, as an error of the protocol."""
    try:
        yield
    except NO_ANSWER as error:
        raise JsonRpcInvalidRequest(str(error)) from None


def _prepared(server: Server, params: types.PrepareRenameParams) -> types.PrepareRenameResult | None:
    path = path_of(params.text_document.uri)
    with _reason_for_none():
        word, _ = renamable(path, *server.values.place(path, params.position), server.files)
        return types.PrepareRenameDefaultBehavior(bool(word))


def _renamed(server: Server, params: types.RenameParams) -> types.WorkspaceEdit:
    path = path_of(params.text_document.uri)
    with _reason_for_none():
        place = server.values.place(path, params.position)
        return server.values.workspace_edit(rename(path, *place, params.new_name, server.files))


def _key(finding: Finding) -> list[Any]:
    return [finding.code, finding.message, finding.location.line, finding.location.column]


def _actions(server: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
    """The fix of each finding at a place, and a comment that silences it. The texts follow when one is chosen."""
    path = path_of(params.text_document.uri)
    if not has_modular_name(path):
        return []
    lines = range(params.range.start.line + 1, params.range.end.line + 2)
    found: list[types.CodeAction] = []
    for one in server.files.conversion(path).findings:
        place = one.location
        if place.path != path or place.line >= lines.stop or (place.end_line or place.line) < lines.start:
            continue
        titles = [("fix", f"{one.code}: {one.fix.title}")] if one.fix else []
        titles += [("ignore", f"{one.code}: ignore it here")] if one.rule.can_be_ignored else []
        for kind, title in titles:
            action = types.CodeAction(title, types.CodeActionKind.QuickFix, [server.values.diagnostic(one, path)])
            action.is_preferred = kind == "fix" and one.applicability == "safe"
            action.data = {"path": path, "kind": kind, "finding": _key(one)}
            found.append(action)
    return found


def _resolved(server: Server, action: types.CodeAction) -> types.CodeAction:
    """An action with its edit. A fix is proven by a conversion."""
    data: Any = action.data
    path, files = data["path"], server.files
    conversion = files.conversion(path)
    finding = next((one for one in conversion.findings if _key(one) == data["finding"]), None)
    text = files.texts.get(path)
    if finding is None or text is None:
        raise JsonRpcInvalidRequest("the text has changed meanwhile")
    if data["kind"] == "ignore":
        new = with_ignores(text, [finding])
    elif fixed := with_fix(finding, conversion, load_settings_of([path]), files.overlay(without=path)):
        new = fixed[0]
    else:
        raise JsonRpcInvalidRequest(f"the fix of {finding.code} would change other lines too, so it is not applied")
    action.edit = server.values.workspace_edit({path: changed_lines(text, new)})
    return action
