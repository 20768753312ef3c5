"""Runs over many files: order, workers and hash seeds change nothing; dependents see what the run regenerates."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from modular_converter import convert_paths, convert_source
from modular_converter.commands.run_convert import ConvertOptions, run
from modular_converter.convert import batch, pipeline
from modular_converter.convert.batch import Run
from modular_converter.settings.load import profile_settings


ROOT = Path(__file__).parents[3]
ZOO = sorted(str(path) for path in (ROOT / "models").glob("*/modular_*.py"))
BASE = """\
from torch import nn


class BaseMLP(nn.Module):
    def forward(self, x):
        return x + 1
"""


def chain(root: Path, *links: tuple[str, str]) -> list[Path]:
    """Models that inherit one from the other: `(model, parent)`."""
    paths = []
    for model, parent in links:
        folder = root / "models" / model
        folder.mkdir(parents=True)
        new, old = model.title(), parent.title()
        text = f"from ..{parent}.modeling_{parent} import {old}MLP\n\n\nclass {new}MLP({old}MLP):\n    pass\n"
        (folder / f"modular_{model}.py").write_text(text + f'\n\n__all__ = ["{new}MLP"]\n')
        paths.append(folder / f"modular_{model}.py")
    base = root / "models" / "base"
    base.mkdir(exist_ok=True)
    (base / "modeling_base.py").write_text(BASE)
    (root / "pyproject.toml").write_text("")
    return paths


def texts(conversions) -> dict[str, str]:
    assert not [str(one) for conversion in conversions for one in conversion.findings if one.is_error]
    return {path: text for conversion in conversions for path, text in conversion.files.items()}


def test_a_chain_that_was_never_generated_is_converted_in_one_run(tmp_path):
    paths = chain(tmp_path, ("third", "second"), ("second", "first"), ("first", "base"))
    generated = texts(convert_paths(paths))
    assert len(generated) == 3
    assert "class ThirdMLP(nn.Module)" in generated[str(paths[0].with_name("modeling_third.py"))]


def test_dependents_see_what_the_run_regenerates_and_the_disk_is_untouched(tmp_path):
    paths = chain(tmp_path, ("third", "second"), ("second", "first"), ("first", "base"))
    for path, text in texts(convert_paths(paths)).items():
        Path(path).write_text(text)
    (tmp_path / "models/base/modeling_base.py").write_text(BASE.replace("x + 1", "x + 2"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.py")}
    generated = texts(convert_paths(paths))
    assert all("x + 2" in text for text in generated.values())
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.py")}


def test_converting_again_changes_nothing(tmp_path):
    paths = chain(tmp_path, ("second", "first"), ("first", "base"))
    first = texts(convert_paths(paths))
    for path, text in first.items():
        Path(path).write_text(text)
    assert texts(convert_paths(paths)) == first


def test_a_cycle_names_its_members_and_stops_no_other_file(tmp_path):
    paths = chain(tmp_path, ("ring", "loop"), ("loop", "ring"), ("free", "base"))
    by_name = {Path(one.path).stem: one for one in convert_paths(paths)}
    for name in ("modular_ring", "modular_loop"):
        (finding,) = by_name[name].findings
        assert finding.rule.name == "cycle"
        assert "modular_ring" in finding.message and "modular_loop" in finding.message
    assert by_name["modular_free"].files


def test_order_and_workers_change_nothing(monkeypatch):
    expected = texts(convert_paths(ZOO, workers=1))
    shuffled = ZOO[:]
    random.Random(0).shuffle(shuffled)
    monkeypatch.setattr(batch, "ITEMS_PER_PROCESS", {"fork": 1, "spawn": 1})
    assert texts(Run(profile_settings_of_zoo(), workers=3).convert(shuffled)) == expected


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_are_started_either_way(monkeypatch, method):
    monkeypatch.setattr(batch, "ITEMS_PER_PROCESS", {"fork": 1, "spawn": 1})
    monkeypatch.setattr(batch, "_start_method", lambda: method)
    run = Run(profile_settings_of_zoo(), workers=2)
    assert texts(run.convert(ZOO)) == texts(convert_paths(ZOO, workers=1))


def test_processes_see_what_earlier_rounds_have_generated(tmp_path, monkeypatch):
    links = [(f"{name}{number}", f"{name}{number - 1}" if number else "base") for name in "abc" for number in range(3)]
    paths = [str(path) for path in chain(tmp_path, *links)]
    expected = texts(convert_paths(paths, workers=1))
    monkeypatch.setattr(batch, "ITEMS_PER_PROCESS", {"fork": 1, "spawn": 1})
    started = []
    begin = batch.Workers._start
    monkeypatch.setattr(batch.Workers, "_start", lambda self, *given: started.append(self) or begin(self, *given))
    assert texts(convert_paths(paths, workers=2)) == expected
    assert (len(expected), len(started), len({*started})) == (9, 3, 1)


def test_a_text_of_a_conversion_that_then_fails_is_withdrawn(tmp_path):
    paths = chain(tmp_path, ("zero", "base"), ("first", "zero"), ("second", "first"))
    paths[0].write_text(paths[0].read_text().replace("ZeroMLP", "ZeroNet"))  # the parent of the next one is gone
    stale = {"zero": "class ZeroMLP:\n    pass\n", "first": "class FirstMLP:\n    written = 1\n"}
    for model, text in stale.items():
        (tmp_path / f"models/{model}/modeling_{model}.py").write_text(text)
    first, second, zero = sorted(convert_paths(map(str, paths), workers=1), key=lambda one: one.path)
    assert first.failed and not zero.failed
    assert "written = 1" in "".join(second.files.values())  # as converted from the file on disk, which stays


def profile_settings_of_zoo():
    from modular_converter import load_settings

    return load_settings(ZOO[0])


def test_hash_seed_changes_nothing():
    code = (
        "import json, sys; from modular_converter import convert_paths;"
        "print(json.dumps([[c.path, dict(c.files), list(map(str, c.findings))] for c in convert_paths(sys.argv[1:])]))"
    )
    outputs = []
    for seed in ("0", "1", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code, *ZOO], capture_output=True, text=True, env=environment, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
        outputs.append(json.loads(done.stdout))
    assert outputs[0] == outputs[1] == outputs[2]


def test_the_committed_models_are_current():
    for path, text in texts(convert_paths(ZOO)).items():
        assert Path(path).read_text(encoding="utf-8") == text, (
            f"{path} is not what its modular file says; run `modular-convert models`"
        )


def test_a_neighbour_is_never_run(tmp_path):
    (path,) = chain(tmp_path, ("first", "base"))
    mark = tmp_path / "was_run"
    hostile = f'open({str(mark)!r}, "w").write("")\nraise SystemExit("imported")\n'
    (tmp_path / "models/base/modeling_base.py").write_text(f"import os\n\n{hostile}\n\n{BASE}")
    (tmp_path / "models/__init__.py").write_text(hostile)
    (tmp_path / "models/base/__init__.py").write_text(hostile)
    assert texts(convert_paths([path]))
    assert not mark.exists()


def test_a_source_that_is_not_on_disk(tmp_path):
    (path,) = chain(tmp_path, ("first", "base"))
    source = path.read_text()
    path.unlink()
    conversion = convert_source(source, path)
    assert list(conversion.files) == [str(path.with_name("modeling_first.py"))]


def test_strict_makes_errors_of_warnings(tmp_path):
    (path,) = chain(tmp_path, ("first", "base"))
    path.write_text(path.read_text().replace("class FirstMLP", "def unused():\n    pass\n\n\nclass FirstMLP"))
    (finding,) = convert_paths([path])[0].findings
    assert finding.rule.name == "unused-definition" and not finding.is_error
    strict = dataclasses.replace(profile_settings(), strict=True)
    conversion = convert_paths([path], strict)[0]
    assert conversion.failed and not conversion.files


def test_an_error_of_our_own_names_the_file_and_the_class_and_stops_no_other(tmp_path, monkeypatch):
    paths = chain(tmp_path, ("first", "base"), ("other", "base"))
    real = pipeline.assemble

    def failing(neighbours, collection, library):
        if neighbours.target.model == "first":
            raise RuntimeError("boom")
        return real(neighbours, collection, library)

    monkeypatch.setattr(pipeline, "assemble", failing)
    first, other = convert_paths(paths, workers=1)
    (finding,) = first.findings
    assert finding.rule.name == "internal-error"
    assert "FirstMLP" in finding.message and "boom" in finding.message
    assert finding.location.path == str(paths[0]) and finding.location.line == 4
    assert other.files
    assert finding.details.startswith("Traceback") and 'raise RuntimeError("boom")' in finding.details


def test_verbose_prints_the_traceback_of_an_error_of_our_own(tmp_path, monkeypatch, capsys):
    def failing(*arguments):
        raise RuntimeError("boom")

    paths = chain(tmp_path, ("first", "base"))
    monkeypatch.setattr(pipeline, "assemble", failing)
    for verbose in (False, True):
        options = ConvertOptions(arguments=tuple(map(str, paths)), verbose=verbose)
        assert run(options) == 2
        shown = capsys.readouterr().err
        assert "modular-convert --verbose" in shown and ("Traceback (most recent call last)" in shown) is verbose


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        pytest.param(b"class Broken(:\n", "syntax-error", id="syntax"),
        pytest.param(b"x = '\xff'\n", "not-utf8", id="encoding"),
        pytest.param(b"x = 1\x00\n", "syntax-error", id="null byte"),
        pytest.param(b"x = " + b"(" * 5000 + b")" * 5000, "syntax-error", id="too deep"),
        pytest.param(b"x = 1\n" * 800_000, "too-large", id="too large"),
    ],
)
@pytest.mark.parametrize("where", ["modular", "neighbour"])
def test_bad_text_is_a_finding_in_its_file(tmp_path, content, rule, where):
    paths = chain(tmp_path, ("first", "base"), ("second", "first"))
    bad = paths[0] if where == "modular" else tmp_path / "models/base/modeling_base.py"
    bad.write_bytes(content)
    conversion = convert_paths(paths)[0]
    assert [finding.rule.name for finding in conversion.findings] == [rule]
    assert conversion.findings[0].location.path == str(bad)
    assert not conversion.files


def test_a_file_that_inherits_from_its_own_output_ends(tmp_path):
    (path,) = chain(tmp_path, ("first", "base"))
    path.with_name("modeling_first.py").write_text(BASE.replace("Base", "First"))
    path.write_text(
        "from ..first.modeling_first import FirstMLP\n\n\nclass FirstOtherMLP(FirstMLP):\n"
        "    def forward(self, x):\n        super().forward(x)\n        x = x + 1\n        return x\n"
    )
    assert len(convert_paths([path])) == 1


HEIR = "from ..base.modeling_base import BaseMLP\n\n\nclass NewMLP(BaseMLP):\n    x = 'é'\n"


@pytest.mark.parametrize("character", ["\ud800", "\udcff", "\udfff"])
@pytest.mark.parametrize("where", ["    x = '{}'\n", "# {}\n", "{}\n"])
def test_a_text_that_no_file_can_hold_is_a_finding_with_its_place(tmp_path, character, where):
    source = HEIR + where.format(character)
    (found,) = convert_source(source, tmp_path / "models/new/modular_new.py").findings
    line = source.split("\n")[found.location.line - 1]
    assert found.code == "MC102" and line[found.location.column - 1] == character


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_text_is_read_as_a_file_is(tmp_path, end, mark):
    (tmp_path / "models/base").mkdir(parents=True)
    (tmp_path / "models/base/modeling_base.py").write_text(BASE)
    path = tmp_path / "models/new/modular_new.py"
    plain, other = (convert_source(text, path) for text in (HEIR, mark + HEIR.replace("\n", end)))
    assert plain.files and plain.files == other.files and plain.findings == other.findings


def test_a_path_that_no_file_can_have_is_a_finding():
    (found,) = convert_paths(["models/a\0b/modular_x.py"])[0].findings
    assert found.code == "MC103"
