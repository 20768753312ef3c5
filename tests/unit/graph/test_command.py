"""The command, as it is called."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest

from modular_converter.commands.convert import main
from modular_converter.convert.source import library


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["graph", *arguments])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


@pytest.mark.parametrize(
    ("format", "start"), [("text", "model "), ("dot", "digraph"), ("json", "{"), ("html", "<!doctype html>")]
)
def test_every_format_goes_to_the_standard_output(zoo, capsys, format, start):
    code, out, err = call(capsys, "--root", str(zoo), "--format", format)
    assert (code, err) == (0, "")
    assert out.startswith(start) and out.endswith("\n")


def forget_texts() -> None:
    """Forget what other commands of this process have read."""
    for known in (library._index_of, library._statements_of):
        known.cache_clear()


def test_a_second_graph_parses_nothing(zoo, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(tmp_path / "cache"))
    forget_texts()
    first = call(capsys, "--root", str(zoo), "--format", "json")
    forget_texts()
    with monkeypatch.context() as patched:
        patched.setattr(library, "index_module", lambda *_: pytest.fail("parsed again"))
        assert call(capsys, "--root", str(zoo), "--format", "json") == first
    (zoo / "echo" / "modular_echo.py").write_text("X = 1\n")
    assert call(capsys, "--root", str(zoo), "--format", "json") != first


def test_a_file_is_written_and_its_size_told(zoo, tmp_path, capsys):
    path = tmp_path / "graph.json"
    code, out, err = call(capsys, "llama", "gemma", "--root", str(zoo), "--format", "json", "-o", str(path))
    assert (code, out) == (0, "")
    assert err.startswith(f"{path}: ")
    assert json.loads(path.read_text())["selected"] == ["gemma", "llama"]


@pytest.mark.parametrize(
    ("name", "start"),
    [("a.html", "<!doctype html>"), ("a.dot", "digraph"), ("a.JSON", "{"), ("a", "model "), ("a.txt", "model ")],
)
def test_the_name_of_the_file_says_the_format(zoo, tmp_path, capsys, name, start):
    assert call(capsys, "--root", str(zoo), "-o", str(tmp_path / name))[0] == 0
    assert (tmp_path / name).read_text().startswith(start)
    assert call(capsys, "--root", str(zoo), "-o", "-", "--format", "dot")[1].startswith("digraph")


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_a_pipe_is_written_to_and_stays_one(zoo, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(SystemExit) as end:
        main(["graph", "--root", str(zoo), "-o", str(tmp_path / "pipe")])
    assert not end.value.code and os.read(reader, 6) == b"model "
    os.close(reader)
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


def test_a_link_that_leads_elsewhere_is_not_written_through(zoo, tmp_path, capsys):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (zoo / "graph.txt").symlink_to(precious)
    code, _, err = call(capsys, "--root", str(zoo), "-o", str(zoo / "graph.txt"))
    assert (code, precious.read_text()) == (2, "mine")
    assert "MC114" in err


def test_a_bad_file_is_named_and_the_rest_is_shown(zoo, capsys):
    (zoo / "echo" / "modular_echo.py").write_text("class (")
    code, out, err = call(capsys, "--root", str(zoo))
    assert code == 2
    assert "MC101" in err and "modular_echo.py" in err
    assert "gemma2" in out
    code, out, err = call(capsys, "gemma2", "nothing_like_it", "--root", str(zoo))
    assert (code, err.count("MC101"), err.count("no such model")) == (2, 1, 1)
    assert "gemma2" in out


@pytest.mark.parametrize("arguments", [("nothing_like_it",), ("--root", "/nowhere"), ("--package", "no_such_package")])
def test_what_there_is_not_is_a_finding(zoo, monkeypatch, capsys, arguments):
    monkeypatch.chdir(zoo.parent)
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert "MC1" in err


SHOW_ALL = """\
import sys
from modular_converter.commands.convert import main
from modular_converter.convert.source.library import Library
for format in ("text", "dot", "json", "html"):
    try:
        main(["graph", "--root", sys.argv[1], "--format", format])
    except SystemExit as end:
        assert not end.code
"""


def test_hash_seeds_change_no_byte(zoo):
    found = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", SHOW_ALL, zoo], capture_output=True, check=True, env=environment)
        found.add(done.stdout)
    assert len(found) == 1 and b"digraph" in found.pop()


def test_help_imports_only_click():
    code = "import sys; from modular_converter.commands.convert import main\ntry: main(['graph', '-h'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "modular_converter.commands.subcommands" in loaded
    assert not loaded & {"rich", "modular_converter.graph", "modular_converter.settings.load"}


def test_a_model_called_graph_is_converted_by_its_path(write, capsys, monkeypatch):
    root = write(
        {
            "graph/modular_graph.py": "from ..old.modeling_old import Old\n\n\nclass Graph(Old):\n    pass\n",
            "old/modeling_old.py": "class Old:\n    pass\n",
        }
    )
    monkeypatch.chdir(root)
    with pytest.raises(SystemExit) as end:
        main(["./graph", "--formatter", "none"])
    assert end.value.code == 0
    assert (root / "graph" / "modeling_graph.py").is_file()


@pytest.mark.parametrize("name", ["no/such/dir/x.html", "file/x.html"])
def test_no_folder_is_made_for_the_output(zoo, tmp_path, capsys, name):
    (tmp_path / "file").write_text("")
    code, out, err = call(capsys, "--root", str(zoo), "-o", str(tmp_path / name))
    assert (code, out) == (2, "") and "there is no folder" in err and "--output" in err
    assert not (tmp_path / "no").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
@pytest.mark.parametrize("format", ["html", "text"])
def test_a_full_disk_is_told(zoo, format):
    code = f"from modular_converter.commands.convert import main; main(['graph', '--root', {str(zoo)!r}, '--format', {format!r}])"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.startswith("Error: the output could not be written")
