"""How commands end: interrupted, or on a terminal that lacks a sign."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from modular_converter.commands.options import spread_files


ROOT = Path(__file__).parents[3]
CHECK = [sys.executable, "-c", "from modular_converter.commands.check import main; main()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
SLOW = """
import time
import click
from modular_converter.commands.options import run_command

@click.command()
def slow():
    print("begun", flush=True)
    time.sleep(60)

run_command(slow, [], "slow")
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupted_command_says_so():
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.strip()) == (130, "Interrupted; every file is either as it was or finished.")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_what_an_encoding_lacks_is_escaped(tmp_path, encoding):
    """The banner of a generated file has signs beyond it."""
    (tmp_path / "models/new").mkdir(parents=True)
    (tmp_path / "models/new/modular_new.py").write_text("class NewMLP:\n    pass\n\n\n__all__ = ['NewMLP']\n")
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": encoding, "MODULAR_CONVERTER_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(CHECK, cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 1 and b"MC402" in done.stderr, done.stderr
    assert b"MC199" not in done.stderr and b"\\U0001f6a8" in done.stdout


def test_usage_errors_keep_their_form():
    done = subprocess.run([*CHECK, "--no-such-option"], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 2 and "No such option" in done.stderr and "Usage:" in done.stderr


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (["--files-to-parse", "a", "b"], ["a", "b"]),
        (["-f", "a", "--files=b", "--fix"], ["a", "b", "--fix"]),
        (["--", "--files", "a"], ["--", "--files", "a"]),
    ],
)
def test_files_behind_an_option_are_plain_arguments(given, plain):
    assert spread_files(given) == plain


PRINTS = """
import sys
import click
from modular_converter.commands.options import run_command

@click.command()
def prints():
    {how}

run_command(prints, [], "prints")
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
@pytest.mark.parametrize(
    "how",
    ["click.echo('x')", "print('x')", "sys.stdout.buffer.write(b'x' * 1_000_000)", "raise SystemExit(print('x'))"],
)
def test_a_full_disk_is_no_mistake_of_ours(how):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", PRINTS.format(how=how)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        both = subprocess.run(command, stdout=full, stderr=full, env=ENVIRONMENT)
    said = "Error: the output could not be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)
    assert both.returncode == 2


@pytest.mark.parametrize("how", ["click.echo('x')", "print('x')"])
def test_a_reader_that_has_gone_is_no_finding(how):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        command = [sys.executable, "-c", PRINTS.format(how=how)]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("how", ["raise OSError(5, 'Input/output error')", "open('/no/such/file')"])
def test_other_errors_of_the_system_are_still_ours(how):
    done = subprocess.run(
        [sys.executable, "-c", PRINTS.format(how=how)], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.returncode == 2 and "MC199" in done.stderr


def test_a_closed_output_is_not_written_to():
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *CHECK, "--version"], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="a folder in use cannot be removed")
def test_a_current_folder_that_is_gone_is_an_error(tmp_path):
    script = 'mkdir "$1" && cd "$1" && rmdir "$1" && shift && exec "$@"'
    command = ["sh", "-c", script, "sh", str(tmp_path / "gone"), *CHECK, "--root", str(ROOT)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("Error: the current folder"), done.stderr
    assert "Traceback" not in done.stderr


WATCHED = """
import atexit, sys, types
atexit.register(print, "at the end")
if sys.argv.pop(1) == "measured":
    sys.modules["coverage"] = types.ModuleType("coverage")
from modular_converter.commands.check import main
main()
"""


@pytest.mark.parametrize(("how", "last"), [("measured", "at the end"), ("alone", "")])
def test_a_program_that_has_ended_leaves_at_once_unless_something_waits(how, last, tmp_path):
    command = [sys.executable, "-c", WATCHED, how, str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 2 and "MC103" in done.stdout + done.stderr
    assert done.stdout.strip().endswith(last) and ("at the end" in done.stdout) is bool(last)


ENTERED = """
import inspect, os, sys
from modular_converter.commands.convert import main

entered = set()

def note(frame, event, given):
    code = frame.f_code  # that of a module or the body of a class, which imports run, has no new locals
    if event == "call" and code.co_flags & inspect.CO_NEWLOCALS:
        entered.add(code.co_filename)

os._exit = sys.exit
sys.argv[1:] = ["--dry-run", "gemma"]
sys.setprofile(note)
try:
    main()
finally:
    sys.setprofile(None)
    print(sum("modular_converter" in name for name in entered))
"""


def test_a_conversion_of_gemma_needs_few_modules():
    """A reader who follows it with a debugger goes through these."""
    done = subprocess.run([sys.executable, "-c", ENTERED], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) <= 60
