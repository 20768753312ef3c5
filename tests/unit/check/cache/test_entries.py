"""Entries of the cache: their form, damage, several runs at once, and limits."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modular_converter.check.cache import lookup, store
from modular_converter.check.cache.key import key_of
from modular_converter.check.cache.lookup import pack_finding, unpack_finding
from modular_converter.check.cache.stale import StaleConversions
from modular_converter.check.cache.store import clear
from modular_converter.check.run import CheckOptions, check
from modular_converter.convert.batch import Run
from modular_converter.convert.source.library import Library
from modular_converter.findings import Finding, Location, Severity
from modular_converter.rules import all_rules
from modular_converter.settings.load import load_settings
from tests.unit.check.cache.test_cache import ROOT, hits, remembered, run


def test_findings_are_remembered(tree):
    modular = tree / "models/first/modular_first.py"
    modular.write_text(modular.read_text().replace("__all__ = [", '__all__ = ["Gone", '))
    options = CheckOptions(root=str(tree), cache=str(tree / "cache"))
    check(options._replace(fix=True))
    fresh = check(CheckOptions(root=str(tree)))
    assert fresh.findings and "first" in hits(tree)
    assert check(options).findings == fresh.findings
    assert check(options._replace(strict=True)).exit_code == 1
    assert check(CheckOptions(root=str(tree), strict=True)).exit_code == 1


@given(data=st.data(), text=st.text(), number=st.integers(1, 99), end=st.none() | st.integers(1, 99))
def test_any_finding_comes_back_as_it_was(data, text, number, end):
    rule = data.draw(st.sampled_from(all_rules()))
    override = data.draw(st.none() | st.sampled_from(Severity))
    finding = Finding(rule, Location(text, number, number, end, end), text, text, text, override)
    assert unpack_finding(pack_finding(finding)) == finding


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\n{}", None])
def test_a_damaged_entry_is_a_miss(tree, damage):
    run(tree)
    for entry in (tree / "cache").glob("*.json"):
        content = entry.read_bytes()
        entry.write_bytes(content.replace(b'"files"', b'"fills"') if damage is None else damage)
    assert hits(tree) == []
    assert run(tree).exit_code == 0
    assert hits(tree) == ["first", "second"]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_flipped_bytes_are_never_trusted(tree, seed):
    kept, places = tree / "kept", random.Random(seed)
    if not kept.exists():
        run(tree)
        kept.write_bytes(remembered(tree).read_bytes())
    content = bytearray(kept.read_bytes())
    content[places.randrange(len(content))] ^= places.randrange(1, 256)
    cut = len(content) if places.random() < 0.7 else places.randrange(len(content))
    remembered(tree).write_bytes(bytes(content[:cut]))
    assert hits(tree) == []


def test_an_entry_of_another_folder_is_a_miss(tree, tmp_path):
    run(tree)
    other = tmp_path / "other"
    shutil.copytree(tree, other, ignore=shutil.ignore_patterns("cache"))
    assert check(CheckOptions(root=str(other), cache=str(other / "cache"))).exit_code == 0
    remembered(other).write_bytes(remembered(tree).read_bytes())
    assert hits(other) == []


def test_processes_that_write_at_once(tree):
    code = f"from modular_converter.check.run import *; print(check(CheckOptions(root={str(tree)!r}, cache={str(tree / 'cache')!r})).exit_code)"
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)]
    assert [process.communicate()[0] for process in running] == ["0\n"] * 3
    assert sorted(path.suffix for path in (tree / "cache").iterdir()) == [".json", ".version"]
    assert hits(tree) == ["first", "second"]


def test_runs_that_write_at_once_and_a_folder_that_cannot_be_written(tree, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        assert {result.exit_code for result in pool.map(run, [tree] * 3)} == {0}
    assert hits(tree) == ["first", "second"]
    (tmp_path / "file").write_text("")
    assert check(CheckOptions(root=str(tree), cache=str(tmp_path / "file"))).exit_code == 0


def test_it_is_bounded_and_can_be_cleared(tree, monkeypatch):
    folder = tree / "cache"
    run(tree)
    for kept_names in ("one", "two"):  # other settings, another entry
        toml = f'[tool.modular-converter]\nruff-config = "profile"\nkept-names = ["{kept_names}"]\n'
        (tree / "pyproject.toml").write_text(toml)
        run(tree)
    assert len(list(folder.glob("*.json"))) == 3
    monkeypatch.setattr(store, "MAX_ENTRIES", 2)
    store.bound(str(folder))
    assert len(list(folder.glob("*.json"))) == 2 and hits(tree) == ["first", "second"]
    monkeypatch.setattr(store, "MAX_BYTES", next(folder.glob("*.json")).stat().st_size + 10)
    store.bound(str(folder))
    assert len(list(folder.glob("*.json"))) == 1 and hits(tree) == ["first", "second"]
    (folder / "package.json").write_text("{}")
    assert clear(str(folder)) == clear(str(folder)) == clear(str(tree / "none")) == ""
    assert [path.name for path in folder.iterdir()] == ["package.json"]


@pytest.mark.parametrize(
    ("owner", "mode", "is_read"), [(0, 0o644, True), (7, 0o644, True), (8, 0o644, False), (7, 0o646, False)]
)
def test_what_another_user_may_have_written_is_not_read(tmp_path, monkeypatch, owner, mode, is_read):
    name = store.digest(b"entry")
    store.write_entry(str(tmp_path), name, b"{}")
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    real = os.stat
    monkeypatch.setattr(
        os,
        "stat",
        lambda path, **how: SimpleNamespace(st_uid=owner, st_mode=stat.S_IFREG | mode)
        if name in str(path)
        else real(path, **how),
    )
    assert store.read_entry(str(tmp_path), name) == (b"{}" if is_read else None)


def test_nothing_is_kept_where_the_version_of_a_formatter_is_unknown(tree, monkeypatch):
    monkeypatch.setattr(lookup, "key_of", lambda *given: "")
    assert run(tree).exit_code == 0 and not list((tree / "cache").glob("*.json"))


def test_conversions_of_stale_files_are_kept_with_their_texts(tree):
    modular = str(tree / "models/first/modular_first.py")
    settings = load_settings(str(tree / "models"))
    (converted,) = Run(settings, workers=1).convert([modular])
    (tree / "models/first/modeling_first.py").write_text("stale = 1\n")
    StaleConversions(str(tree / "cache"), settings).keep([converted])
    found = StaleConversions(str(tree / "cache"), settings).find(modular, Library(settings))
    assert found is not None and dict(found.files) == dict(converted.files)
    base = tree / "models/base/modeling_base.py"
    base.write_text(base.read_text().replace("x + 1", "x + 2"))
    assert StaleConversions(str(tree / "cache"), settings).find(modular, Library(settings)) is None


def test_values_are_bounded_as_results_are(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MAX_ENTRIES", 2)
    for name in "abc":
        store.keep_values(str(tmp_path), store.digest(name.encode()), {"name": name})
    assert len([*tmp_path.iterdir()]) == 2


def test_the_options_of_black_decide_what_is_kept(tree):
    keys = set()
    for length in (88, 99, 99):
        toml = f'[tool.black]\nline-length = {length}\n\n[tool.modular-converter]\nformatter = "black"\n'
        (tree / "pyproject.toml").write_text(toml)
        keys.add(key_of(load_settings(str(tree / "models"))))
    assert len(keys) == 2 and all(keys)


def test_a_run_over_one_file_keeps_what_is_known_of_the_others(tree):
    run(tree)
    modular = tree / "models/second/modular_second.py"
    modular.write_text(modular.read_text().replace("    pass", "    extra = 1"))
    options = CheckOptions((str(modular),), root=str(tree), cache=str(tree / "cache"))
    assert check(options._replace(fix=True)).exit_code == 0
    assert hits(tree) == ["first", "second"]
    shutil.rmtree(tree / "models/second")
    first = tree / "models/first/modular_first.py"
    first.write_text(first.read_text().replace("    pass", "    extra = 1"))
    check(CheckOptions(root=str(tree), cache=str(tree / "cache"), fix=True))
    assert hits(tree) == ["first"]
    assert b"modular_second.py" not in remembered(tree).read_bytes()
