"""Files are put in place whole or not at all."""

from __future__ import annotations

import errno
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from modular_converter.files import write
from modular_converter.files.write import put_in_place, sweep, told_of_path, write_atomically, write_sources
from modular_converter.findings import ConversionError
from modular_converter.settings.load import profile_settings


posix = pytest.mark.skipif(os.name == "nt", reason="modes and signals of POSIX")


@posix
def test_the_standard_output_by_its_name_is_written_to_where_it_goes(tmp_path: pathlib.Path) -> None:
    code = "from modular_converter.files.write import write_result\nprint('a')\nwrite_result('/dev/stdout', 'b\\n')\nprint('c')"
    with open(tmp_path / "out", "wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert ((tmp_path / "out").read_text(), names(tmp_path)) == ("a\nb\nc\n", ["out"])


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def code_of(caught: pytest.ExceptionInfo[ConversionError]) -> str:
    return caught.value.findings[0].code


def test_a_file_is_written_once(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "models" / "new" / "modeling_new.py"
    assert write_atomically(target, "x = 'é'\n", tmp_path)
    assert target.read_bytes() == "x = 'é'\n".encode()
    stamp = target.stat().st_mtime_ns
    assert not write_atomically(target, "x = 'é'\n", tmp_path)
    assert target.stat().st_mtime_ns == stamp
    assert write_atomically(target, "x = 2\n", tmp_path)
    assert target.read_text() == "x = 2\n"
    assert names(target.parent) == ["modeling_new.py"]


@posix
@posix
def test_a_file_of_another_size_is_not_read(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "modeling_new.py"
    with target.open("wb") as file:
        file.truncate(1 << 40)  # more than any memory holds, and no block of a disk
    assert write_atomically(target, "x = 1\n", tmp_path)
    assert target.read_text() == "x = 1\n"


def test_the_mode_is_kept(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "x.py"
    target.write_text("old")
    target.chmod(0o750)
    write_atomically(target, "new", tmp_path)
    assert target.stat().st_mode & 0o777 == 0o750


@posix
def test_a_new_file_has_the_mode_that_the_umask_gives(tmp_path: pathlib.Path) -> None:
    write_atomically(tmp_path / "x.py", "new", tmp_path)
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "x.py").stat().st_mode == (tmp_path / "plain").stat().st_mode


@posix
@pytest.mark.parametrize("what", ["file", "folder"])
def test_read_only_targets_are_refused(tmp_path: pathlib.Path, what: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    target = folder / "x.py"
    target.write_text("old")
    (target if what == "file" else folder).chmod(0o555)
    with pytest.raises(ConversionError, match="read-only") as caught:
        write_atomically(target, "new", tmp_path)
    folder.chmod(0o755)
    assert code_of(caught) == "MC113"
    assert target.read_text() == "old" and names(folder) == ["x.py"]


def test_a_read_only_target_that_is_already_right_is_no_error(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "x.py"
    target.write_bytes(b"same\n")
    target.chmod(0o444)
    assert not write_atomically(target, "same\n", tmp_path)


def test_a_folder_in_the_way_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.py").mkdir()
    with pytest.raises(ConversionError) as caught:
        write_atomically(tmp_path / "x.py", "new", tmp_path)
    assert code_of(caught) == "MC113" and names(tmp_path) == ["x.py"]


@posix
def test_a_pipe_or_a_device_is_neither_read_nor_replaced(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = os.stat(tmp_path / "pipe")
    with pytest.raises(ConversionError) as caught:
        write_atomically(tmp_path / "pipe", "x", tmp_path)
    assert "not a regular file" in str(caught.value)
    assert os.stat(tmp_path / "pipe").st_ino == before.st_ino


@pytest.mark.parametrize(("number", "cure"), [(errno.ENOSPC, "Make room"), (errno.EROFS, "Make it writable")])
def test_a_full_disk_is_told_what_helps(tmp_path: pathlib.Path, number: int, cure: str) -> None:
    with pytest.raises(ConversionError) as caught, told_of_path(tmp_path / "x.py"):
        raise OSError(number, os.strerror(number))
    assert caught.value.findings[0].help.startswith(cure)


def test_a_path_out_of_the_root_is_refused(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for path in (root / ".." / "x.py", tmp_path / "rooted.py"):
        with pytest.raises(ConversionError) as caught:
            write_atomically(path, "new", root)
        assert code_of(caught) == "MC114"
    assert names(tmp_path) == ["root"]


@posix
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_out_of_the_root_is_refused(tmp_path: pathlib.Path, what: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "x.py").write_text("precious")
    if what == "file":
        (root / "x.py").symlink_to(outside / "x.py")
        path = root / "x.py"
    else:
        (root / "new").symlink_to(outside)
        path = root / "new" / "x.py"
    with pytest.raises(ConversionError, match="outside of") as caught:
        write_atomically(path, "new", root)
    assert code_of(caught) == "MC114"
    assert (outside / "x.py").read_text() == "precious"


@posix
def test_a_link_within_the_root_stays_one(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real.py").write_text("old")
    (tmp_path / "link.py").symlink_to("real.py")
    assert write_atomically(tmp_path / "link.py", "new", tmp_path)
    assert (tmp_path / "link.py").is_symlink() and (tmp_path / "real.py").read_text() == "new"


@posix
def test_the_root_itself_may_be_reached_by_a_link(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert write_atomically(tmp_path / "link" / "x.py", "new", tmp_path / "link")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interruption_leaves_the_old_file_and_no_other(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def interrupt(source: str, target: str, **folders: int) -> None:
        (temporary,) = tmp_path.glob(".*.modular-tmp")
        assert temporary.name == pathlib.Path(source).name and temporary.read_text() == "new"
        raise error

    target = tmp_path / "x.py"
    target.write_text("old")
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(error):
        write_atomically(target, "new", tmp_path)
    assert names(tmp_path) == ["x.py"] and target.read_text() == "old"


@posix
@pytest.mark.parametrize("place", ["model", "."])
def test_a_folder_that_becomes_a_link_is_not_followed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Between the look at a path and the writing, the model's folder or that of all models is swapped for a link."""
    root, outside = tmp_path / "root/models", tmp_path / "outside"
    (root / "model").mkdir(parents=True)
    shutil.copytree(root, outside)
    resolve = write.resolve_inside

    def swap(path: str, root_of_it: str) -> str:
        target = resolve(path, root_of_it)
        os.rename(root / place, tmp_path / "away")
        (root / place).symlink_to(outside / place)
        return target

    monkeypatch.setattr(write, "resolve_inside", swap)
    with pytest.raises(ConversionError, match="MC113"):
        write_atomically(root / "model/x.py", "new", root)
    assert names(outside) == ["model"] and names(outside / "model") == []


WRITER = """
import sys
from modular_converter.files.write import write_atomically
target, root, old, new = sys.argv[1], sys.argv[2], "a" * 3_000_000, "b" * 3_000_000
print("ready", flush=True)
while True:
    write_atomically(target, new, root)
    write_atomically(target, old, root)
"""


@posix
@pytest.mark.parametrize("delay", [0.0, 0.003, 0.011, 0.023])
def test_a_kill_leaves_one_whole_file_and_what_is_left_is_swept(tmp_path: pathlib.Path, delay: float) -> None:
    target = tmp_path / "x.py"
    target.write_text("a" * 3_000_000)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(target), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert target.read_text() in ("a" * 3_000_000, "b" * 3_000_000)
    sweep(tmp_path)
    assert names(tmp_path) == ["x.py"]


@posix
def test_only_leftovers_of_the_dead_are_swept(tmp_path: pathlib.Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    mine, gone, aged = (f".x.py.{number}.modular-tmp" for number in (os.getpid(), dead.pid, os.getppid()))
    for name in (mine, gone, aged, "x.py", ".x.py.1.tmp"):
        (tmp_path / name).write_text("")
    past = time.time() - 2 * write.STALE_SECONDS
    os.utime(tmp_path / aged, (past, past))
    sweep(tmp_path)
    assert names(tmp_path) == sorted([mine, "x.py", ".x.py.1.tmp"])


def test_a_leftover_under_our_own_number_is_in_nobodys_way(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_NUMBERS", itertools.count())
    leftover = f".x.py.0.{os.getpid()}.modular-tmp"
    (tmp_path / leftover).write_text("leftover")
    assert write_atomically(tmp_path / "x.py", "new", tmp_path)
    assert names(tmp_path) == [leftover, "x.py"] and (tmp_path / "x.py").read_text() == "new"


def test_threads_may_write_one_file_at_once(tmp_path: pathlib.Path) -> None:
    texts = [letter * 200_000 for letter in "abcdefgh"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write.replace_file(str(tmp_path / "x.py"), text.encode()), texts * 4))
    assert names(tmp_path) == ["x.py"] and (tmp_path / "x.py").read_text() in texts


@posix
def test_a_written_file_sweeps_its_folder(tmp_path: pathlib.Path) -> None:
    modular, target = tmp_path / "modular_x.py", tmp_path / "modeling_x.py"
    for name in (modular.name, f".x.py.{10**12}.modular-tmp"):
        (tmp_path / name).write_text("")
    put_in_place(str(target), "x = 1\n", str(modular), profile_settings())
    assert names(tmp_path) == sorted([modular.name, target.name])


def test_sweeping_a_folder_that_is_not_there_is_nothing(tmp_path: pathlib.Path) -> None:
    sweep(tmp_path / "missing")
    assert names(tmp_path) == []


def test_sources_are_written_all_or_none(tmp_path):
    own, installed = tmp_path / "own.py", tmp_path / "site-packages/its.py"
    installed.parent.mkdir()
    for one in (own, installed):
        one.write_text("x = 1\n")
    with pytest.raises(ConversionError, match="belongs to an installed package"):
        write_sources({str(own): "x = 2\n", str(installed): "x = 2\n"}, profile_settings())
    assert own.read_text() == installed.read_text() == "x = 1\n"
    write_sources({str(own): "x = 2\n"}, profile_settings())
    assert own.read_text() == "x = 2\n"
