"""The language server, asked over stdio by a real client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from modular_converter.api import convert_source
from modular_converter.commands.convert import convert_command
from tests.unit.lsp.editor import Editor


OLD = """\
from torch import nn


class OldMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first = nn.Linear(config.size, config.size)

    def forward(self, x):
        return self.first(x)


class OldLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mlp = OldMLP(config)

    def forward(self, x):
        return x + self.mlp(x)
"""
MID = """\
from torch import nn

from ..old.modeling_old import OldLayer, OldMLP


class MidMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        self.smile = "😀"; self.second = MidGate()  # two units of UTF-16 before `MidGate`

    def twice(self, x):
        return self.forward(self.forward(x))


class MidGate(nn.Module):
    '''A gate: `MidGate`.'''

    def forward(self, x):
        return x * 2


class MidLayer(OldLayer):
    def __init__(self, config):
        super().__init__(config)
        self.gate = MidGate()


__all__ = ["MidGate", "MidLayer", "MidMLP"]
"""
NEW = """\
from ..mid.modeling_mid import MidGate, MidLayer, MidMLP


class NewMLP(MidMLP):
    pass


class NewGate(MidGate):
    def forward(self, x):
        return x * 3


class NewLayer(MidLayer):
    pass


__all__ = ["NewGate", "NewLayer", "NewMLP"]
"""
TEXTS = {"old/modeling_old.py": OLD, "mid/modular_mid.py": MID, "new/modular_new.py": NEW}
MODULAR, HEIR = "modular_mid.py", "modular_new.py"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("edited")
    (root / "pyproject.toml").write_text(
        '[tool.modular-converter]\nruff-config = "profile"\nmax-file-bytes = 1_000_000\n'
    )
    for name, text in TEXTS.items():
        path = root / "lib/models" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert CliRunner().invoke(convert_command, [str(root / "lib/models"), "--quiet"]).exit_code == 0
    return root / "lib/models"


@pytest.fixture(scope="module")
def session(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    session = Editor(models, tmp_path_factory.mktemp("cache"))
    yield session
    assert session.end() == 0


@pytest.fixture
def editor(session: Editor) -> Iterator[Editor]:
    session.messages.clear()
    session.open(MODULAR)
    session.open(HEIR)
    yield session
    for uri in list(session.texts):
        session.close(uri.rpartition("/")[2])
    session.texts.clear()


def document(editor: Editor, name: str) -> types.TextDocumentIdentifier:
    return types.TextDocumentIdentifier(editor.uri(name))


def test_findings_are_those_of_the_unsaved_text(editor: Editor) -> None:
    assert editor.codes(MODULAR) == []
    editor.type(MODULAR, "import OldLayer, OldMLP", "import OldLayers, OldMLP")
    codes = editor.codes(MODULAR)
    converted = convert_source(editor.texts[editor.uri(MODULAR)], next(editor.folder.rglob(MODULAR)))
    assert codes and codes == [one.code for one in converted.findings]
    (found,) = editor.findings[editor.uri(MODULAR)]
    (finding,) = converted.findings
    assert found.severity is types.DiagnosticSeverity.Error
    assert found.range.start.line == finding.location.line - 1
    assert finding.message in found.message and finding.help in found.message
    editor.type(MODULAR, "OldLayers", "OldLayer")
    assert editor.codes(MODULAR) == []


def test_an_heir_sees_the_unsaved_parent(editor: Editor) -> None:
    editor.type(MODULAR, "return x * 2", "return x * 5")
    assert "return x * 5" not in editor.hover(HEIR, 8, 8)
    editor.type(MODULAR, "def twice", "def thrice")
    assert "def thrice" in editor.hover(HEIR, 4, 8)
    editor.close(MODULAR)
    del editor.texts[editor.uri(MODULAR)]
    assert "def twice" in editor.hover(HEIR, 4, 8)


def test_a_change_of_what_is_written_by_hand_reaches_open_heirs(editor: Editor) -> None:
    editor.open("modeling_old.py")
    editor.type("modeling_old.py", "return self.first(x)", "return self.first(x) + 7")
    assert "self.first(x) + 7" in editor.hover(HEIR, 4, 8)


def test_a_change_on_disk_reaches_open_heirs(editor: Editor, models: Path) -> None:
    path, written = models / "old/modeling_old.py", "return self.first(x) + 8"
    assert written not in editor.hover(HEIR, 4, 8)
    for text in (OLD.replace("return self.first(x)", written), OLD):
        path.write_text(text)
        editor.changed_on_disk(path.name)
        assert (written in editor.hover(HEIR, 4, 8)) is (written in text)


def test_hover_shows_the_merged_method(editor: Editor) -> None:
    line = editor.position(MODULAR, "super().__init__").line + 1
    shown = editor.hover(MODULAR, line, 12)
    assert "self.first = nn.Linear" in shown and "self.second = MidGate()" in shown and "def twice" not in shown
    assert not editor.hover(MODULAR, 1, 1)


@pytest.mark.parametrize(
    ("mark", "offset", "expected"),
    [
        ("MidMLP(", 2, "modeling_old.py:OldMLP"),
        ("OldLayer, ", 2, "modeling_old.py:OldLayer"),
        ("super().__init__", 9, "modeling_old.py:__init__"),
        ("__init__(self", 2, "modeling_old.py:__init__"),
        ("MidGate()", 2, "modular_mid.py:MidGate"),
    ],
)
def test_definition_leads_to_the_parent(editor: Editor, mark: str, offset: int, expected: str) -> None:
    assert editor.places("definition", MODULAR, mark, offset) == [expected]


def test_from_a_line_to_the_generated_line_and_back(editor: Editor) -> None:
    line = 'modeling_mid.py:self.smile = "😀"'
    assert editor.places("implementation", MODULAR, "self.smile")[0] == line
    assert editor.places("declaration", "modeling_mid.py", "self.smile")[0].startswith("modular_mid.py:self.smile")
    assert editor.places("declaration", "modeling_mid.py", "self.first =")[0].startswith("modeling_old.py:self.first")
    editor.type(MODULAR, "return x * 2", "return x * 5")
    assert editor.places("declaration", "modeling_mid.py", "return x * 2") == []
    assert "convert it first" in " ".join(editor.messages)


def test_lenses_and_the_preview(editor: Editor) -> None:
    params = types.CodeLensParams(document(editor, MODULAR))
    found = editor.wait(editor.client.text_document_code_lens_async(params))
    titles = [one.command.title for one in found]
    assert titles[0].startswith("generates modeling_mid.py: ") and len(titles) == 3
    assert titles[1] == "inherits from OldMLP of old: 5 lines saved"
    command = types.ExecuteCommandParams("modular-converter.generated", found[2].command.arguments)
    preview = editor.wait(editor.client.workspace_execute_command_async(command))
    assert preview["name"] == "MidLayer" and "self.mlp = MidMLP(config)" in preview["text"]
    command = types.ExecuteCommandParams("modular-converter.generated", found[0].command.arguments)
    preview = editor.wait(editor.client.workspace_execute_command_async(command))
    assert preview["name"] == MODULAR and all(f"class {one}(" in preview["text"] for one in ("MidGate", "MidLayer"))


def actions(editor: Editor, name: str, mark: str) -> dict[str, types.CodeAction]:
    place = editor.position(name, mark)
    context = types.CodeActionContext([])
    params = types.CodeActionParams(document(editor, name), types.Range(place, place), context)
    found = editor.wait(editor.client.text_document_code_action_async(params))
    return {one.title: one for one in found}


def test_a_cure_and_a_comment_that_silences(editor: Editor) -> None:
    editor.type(MODULAR, "class MidLayer(OldLayer):", "class MidLayer(OldLayer):  # modular: ignore[MC302]")
    assert editor.codes(MODULAR) == ["MC391"]
    (cure,) = [one for title, one in actions(editor, MODULAR, "class MidLayer").items() if "ignore it" not in title]
    done = editor.wait(editor.client.code_action_resolve_async(cure))
    assert editor.apply(done.edit) == {MODULAR: MID}


def test_a_warning_is_silenced_by_a_comment(editor: Editor) -> None:
    method = "    def forward(self, x):\n        y = (lambda: super().forward(x))()\n        return y\n\n"
    editor.type(MODULAR, "    def twice", f"{method}    def twice")
    (code,) = editor.codes(MODULAR)
    ((title, action),) = actions(editor, MODULAR, "super().forward").items()
    assert title == f"{code}: ignore it here"
    done = editor.wait(editor.client.code_action_resolve_async(action))
    editor.put(MODULAR, editor.apply(done.edit)[MODULAR])
    assert editor.codes(MODULAR) == []


def rename(editor: Editor, name: str, mark: str, new: str) -> dict[str, str]:
    params = types.RenameParams(
        text_document=document(editor, name), position=editor.position(name, mark), new_name=new
    )
    return editor.apply(editor.wait(editor.client.text_document_rename_async(params)))


def test_rename_changes_the_heirs_too(editor: Editor) -> None:
    renamed = {MODULAR: MID.replace("MidGate", "MidValve")}
    renamed[HEIR] = NEW.replace("MidGate", "MidValve").replace("NewGate", "NewValve")
    assert rename(editor, HEIR, "MidGate", "MidValve") == renamed


@pytest.mark.parametrize(
    ("mark", "new", "reason"),
    [
        ("MidMLP(", "MidFeedForward", "`MidMLP` anew"),
        ("OldMLP", "OldFeedForward", "written by hand"),
        ("MidGate", "MidMLP", "already has"),
        ("MidGate", "not a name", "not a name"),
        ("twice", "thrice", "no definition"),
    ],
)
def test_a_rename_that_would_change_more_is_refused(editor: Editor, mark: str, new: str, reason: str) -> None:
    with pytest.raises(JsonRpcException, match=reason):
        rename(editor, MODULAR, mark, new)


def test_a_rename_leaves_no_file_behind(editor: Editor, models: Path) -> None:
    user = models / "mid/processing.py"
    user.write_text("from .modeling_mid import MidGate\n")
    try:
        with pytest.raises(JsonRpcException, match="written by hand also have the name: .*processing.py"):
            rename(editor, MODULAR, "MidGate", "MidValve")
    finally:
        user.unlink()


def test_what_code_prints_does_not_reach_the_editor() -> None:
    code = (
        "from types import SimpleNamespace\nfrom modular_converter.lsp import server\n"
        "server.make_server = lambda: SimpleNamespace(start_io=lambda source, to: (print('noise'), to.write(b'answer')))\n"
        "server.serve_editor()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("answer", "noise\n")


@pytest.mark.parametrize("text", ["\0", "(" * 5000, "class A(\n", "\ud800", "#" * 1_100_000], ids=range(5))
def test_the_server_survives_any_text(editor: Editor, text: str) -> None:
    editor.put(MODULAR, text)
    assert editor.codes(MODULAR)
    assert not editor.hover(MODULAR, 1, 1)
    assert not editor.places("definition", MODULAR, text[:1])
    editor.put(MODULAR, MID)
    assert editor.codes(MODULAR) == []
