"""An output of a command is taken again only where nothing that it has read has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest


SCRIPT = """
import sys, time
from pathlib import Path
from modular_converter.parallel.commands.kept_output import Output, kept_output

def compute():
    print("computed")
    open("written/text", "w").close()
    Path("written/text").unlink()
    import beside
    return Output(Path(sys.argv[1]).read_text() + beside.WORD + "\\n", 3, "and this\\n")

now = time.time_ns
time.time_ns = lambda: now() + int(sys.argv[2]) * 10**9
found = kept_output("a question", compute)
print(found.text, found.code, found.errors)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a script, what it imports, and what it reads."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("WORD = 'word'\n")
    (tmp_path / "read").mkdir()
    (tmp_path / "written").mkdir()
    (tmp_path / "read" / "text").write_text("one ")
    return tmp_path


def run(place: Path, later: int = 10, **environment: str) -> tuple[bool, str]:
    """Whether the script has computed its output, and the output; its clock is ahead by so many seconds."""
    done = subprocess.run(
        [sys.executable, "-B", "script.py", "read/text", str(later)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.getcwd(), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    first, _, rest = done.stdout.partition("\n")
    return (True, rest) if first == "computed" else (False, done.stdout)


def test_the_same_command_again_prints_the_same_and_computes_nothing(place: Path) -> None:
    computed, text = run(place)
    assert computed and text == "one word\n 3 and this\n\n"
    assert run(place) == (False, text)


@pytest.mark.parametrize("file", ["read/text", "beside.py"])
def test_a_file_that_was_read_or_imported_counts(place: Path, file: str) -> None:
    """Also one of the same size, whose time of change is set back."""
    assert run(place)[0] and not run(place)[0]
    path, before = place / file, (place / file).stat()
    path.write_text(path.read_text().replace("one", "two").replace("word", "WORD"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    computed, text = run(place)
    assert computed and ("two" in text or "WORD" in text)


def test_a_new_file_beside_them_counts(place: Path) -> None:
    assert run(place)[0] and not run(place)[0]
    (place / "new.py").write_text("")
    assert run(place)[0]


def test_what_has_changed_since_the_start_is_not_kept(place: Path) -> None:
    (place / "read" / "text").write_text("two ")
    assert run(place, 0)[0] and run(place, 0)[0]


def test_variables_count_but_those_of_shells(place: Path) -> None:
    assert run(place)[0]
    assert not run(place, SHLVL="7")[0]
    assert run(place, HF_HOME="elsewhere")[0]


@pytest.mark.slow
def test_memory_again_imports_no_library(tmp_path: Path) -> None:
    """The third call: the first ones may write compiled files beside what they import."""
    config = tmp_path / "model" / "config.json"
    config.parent.mkdir()
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config.write_text(json.dumps({"model_type": "llama", "vocab_size": 128, **sizes}))
    words = ["memory", str(config.parent), "--layout", "tp2", "--sequence", "16", "--format", "json"]
    code = (
        "import sys\nfrom modular_converter.parallel.cli import main\n"
        f"try: main({words})\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    time.sleep(2.1)
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(3)]
    assert len({(one.returncode, one.stdout) for one in runs}) == 1 and json.loads(runs[0].stdout)
    assert runs[-1].stderr.split()[-1] == "False"
    config.write_text(config.read_text().replace("96", "48"))
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert again.stdout != runs[0].stdout
