"""The measure of the tests is itself measured: each change gives a text that parses and does something else."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import sys
import tempfile

import pytest


PATH = pathlib.Path(__file__).parents[2] / "utils" / "mutate_code.py"
SPEC = importlib.util.spec_from_file_location("mutate_code", PATH)
mutate_code = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = mutate_code  # dataclasses look their module up
sys.path.append(str(PATH.parent))  # it imports a file beside it
SPEC.loader.exec_module(mutate_code)

TEXT = '''"""About."""

from __future__ import annotations


def f(a: Literal[7], b: int) -> Literal[8]:
    """About."""
    total = 0
    while a < 3 and b:
        a += 1
        total = total if b else 5
    return total, True


@lru_cache(maxsize=9)
def g(a):
    assert a > 9
    if TYPE_CHECKING:
        return 9
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.setattr(mutate_code, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(TEXT)
    return path


def test_each_kind_of_change_is_made_once_for_each_place(module):
    found = {str(mutate_code.mutant_at(place)) for place in mutate_code.places(module)}
    assert {
        "module.py:8: total = 0 -> pass",
        "module.py:8: 0 -> 1",
        "module.py:9: while a < 3 and b: -> while not (a < 3 and b):",
        "module.py:9: a < 3 and b -> a < 3 or b",
        "module.py:9: a < 3 -> a >= 3",
        "module.py:10: a += 1 -> pass",
        "module.py:11: total if b else 5 -> total if not b else 5",
        "module.py:12: return (total, True) -> pass",
        "module.py:12: True -> False",
    } < found
    assert not any("About" in one for one in found)


def test_what_no_test_can_tell_is_not_changed(module):
    found = [mutate_code.mutant_at(place) for place in mutate_code.places(module)]
    assert not [str(one) for one in found if one.line < 8 or one.line > 12]


def test_what_makes_no_difference_is_not_changed(module):
    module.write_text(
        "def f(a):\n    return zip(a, strict=True), a.end_lineno or 7\n\n\n"
        "def g(a):\n    if a:\n        return None\n    return False\n\n\ndef h():\n    return 0\n"
    )
    found = {str(mutate_code.mutant_at(place)).partition(":")[2] for place in mutate_code.places(module)}
    assert found == {
        "2: return (zip(a, strict=True), a.end_lineno or 7) -> pass",
        "2: a.end_lineno or 7 -> a.end_lineno and 7",
        "6: if a: -> if not a:",
        "7: return None -> pass",
        "8: False -> True",
        "12: return 0 -> pass",
        "12: 0 -> 1",
    }


def test_each_change_is_another_program(module):
    for place in mutate_code.places(module):
        text = mutate_code.mutant_at(place).text
        compile(text, "<mutant>", "exec")
        assert text != mutate_code.ast.unparse(mutate_code.ast.parse(TEXT)) + "\n"


def test_what_another_run_did_not_notice_is_tried_again(module):
    printed = "survived  module.py:8: 0 -> 1\nsurvived  module.py:9: a < 3 -> a < 4\nother.py:12: True -> False\n"
    found = mutate_code.survivors([*mutate_code.places(module)], printed + "1 of 3 noticed\n")
    assert [str(one) for one in found] == ["module.py:8: 0 -> 1"]


def test_the_tests_of_a_file_are_those_of_its_own_folder():
    def of(path):
        return mutate_code.room_of(mutate_code.ROOT / "modular_converter" / path)

    assert of("parallel/solve/operators/views.py") == "tests/parallel/solve/"
    assert of("parallel/solve/axes.py") == "tests/parallel/solve/"
    assert of("parallel/api.py") == "tests/parallel/"
    assert of("files/root.py") == "tests/unit/files/"


PROJECT = {
    "modular_converter/__init__.py": "",
    "modular_converter/code.py": "def f(a):\n    if a:\n        return 1\n    return 2\n",
    "modular_converter/cached.py": (
        "import functools\n\n\n@functools.lru_cache\ndef g():\n    return 1\n\n\ndef h():\n    return 1\n"
        "\n\ndef i():\n    return 1\n"
    ),
    "tests/test_f.py": (
        "from modular_converter.code import f\n\n\ndef test_one():\n    assert f(True) == 1\n\n\n"
        "def test_two():\n    assert f(False)\n"
    ),
    "modular_converter/late.py": "class A:\n    number = 1\n\n    def f(self):\n        return self.number\n",
    "tests/test_late.py": "".join(
        f"def test_{name}():\n    from modular_converter.late import A\n\n    assert A().f()\n\n\n" for name in "ab"
    ),
    "modular_converter/started.py": "def k():\n    return 1\n\n\ndef m():\n    return 2\n",
    "tests/test_k.py": (
        "import subprocess\nimport sys\n\n\ndef test_k():\n"
        "    code = 'from modular_converter.started import k, m; m(); exit(k())'\n"
        "    assert subprocess.run([sys.executable, '-c', code]).returncode == 1\n"
        "\n\ndef test_other():\n    assert False\n"
    ),
    "tests/test_g.py": (
        "import threading\nimport pytest\nfrom modular_converter.cached import g, h, i\n\n\n"
        "@pytest.fixture(scope='module')\ndef number():\n    return h()\n\n\n"
        "@pytest.mark.parametrize('turn', (1, 2))\ndef test_g(turn):\n    assert g()\n\n\n"
        "@pytest.mark.parametrize('turn', (1, 2))\ndef test_h(turn, number):\n    assert number\n"
        "\n\n@pytest.mark.parametrize('turn', (1, 2))\ndef test_i(turn):\n    found = []\n"
        "    thread = threading.Thread(target=lambda: found.append(i()))\n    thread.start()\n    thread.join()\n"
        "    assert found == [1]\n"
    ),
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A product of one function with its tests, and the plugin."""
    monkeypatch.setattr(mutate_code, "ROOT", tmp_path)
    plugins = [f"utils/lines_of_{name}.py" for name in ("tests", "processes")]
    for name, text in {**PROJECT, **{one: (PATH.parents[1] / one).read_text() for one in plugins}}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.slow
def test_the_tests_of_a_line_decide(project):
    tests = mutate_code.recorded(project, ["tests"], 60)
    path = project / "modular_converter/code.py"
    found = {str(one): one for one in (mutate_code.mutant_at(place) for place in mutate_code.places(path))}
    noticed = found["modular_converter/code.py:3: 1 -> 2"]
    assert tests.of(noticed) == ["tests/test_f.py::test_one"]
    both = ["tests/test_f.py::test_one", "tests/test_f.py::test_two"]
    assert sorted(tests.of(found["modular_converter/code.py:2: if a: -> if not a:"])) == both
    seconds = dict.fromkeys(both, 20.0)
    assert mutate_code.noticed_by(noticed, project, [{}, seconds]) == 1
    assert mutate_code.noticed_by(found["modular_converter/code.py:4: 2 -> 3"], project, [seconds]) is None
    endless = found["modular_converter/code.py:4: return 2 -> pass"].text.replace("pass", "while True:\n        pass")
    assert mutate_code.noticed_by(dataclasses.replace(noticed, text=endless), project, [dict.fromkeys(both, 0.2)]) == 0
    assert path.read_text() == PROJECT["modular_converter/code.py"]


def test_what_a_cache_a_shared_fixture_or_a_thread_gives_is_each_tests_own(project):
    tests = mutate_code.recorded(project, ["tests"], 60)
    found = [mutate_code.mutant_at(place) for place in mutate_code.places(project / "modular_converter/cached.py")]
    for name, line in (("g", 6), ("h", 10), ("i", 14)):
        chosen = {test for one in found if one.line == line for test in tests.of(one)}
        assert chosen == {f"tests/test_g.py::test_{name}[{turn}]" for turn in (1, 2)}


@pytest.mark.slow
def test_the_body_of_a_class_is_no_test_s_own(project):
    """The tests that import it come first; another may read a table that is made there."""
    tests = mutate_code.recorded(project, ["tests"], 60)
    found = [mutate_code.mutant_at(place) for place in mutate_code.places(project / "modular_converter/late.py")]
    [chosen] = [tests.of(one) for one in found if str(one).endswith(":2: 1 -> 2")]
    assert {*chosen[:2]} == {"tests/test_late.py::test_a", "tests/test_late.py::test_b"}
    assert {*chosen} == {*tests.lines}
    [inner] = [one for one in found if one.line == 5]
    assert {*tests.of(dataclasses.replace(inner, header=range(0)))} == {*chosen[:2]}  # in a function that none enters


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_several_are_tried_with_the_lines_of_processes_and_without_tests_that_fail(
    project, capfd, monkeypatch, workers
):
    """In one tree, none meets the bytecode that a process has written for another of the same size."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    path = project / "modular_converter/started.py"
    found = [mutate_code.mutant_at(place) for place in mutate_code.places(path)]
    with tempfile.TemporaryDirectory() as folder:
        noticed = mutate_code.tried_at_once(found, ["tests/test_k.py"], workers, pathlib.Path(folder), 20, 60)
    said = capfd.readouterr().out.splitlines()
    assert sorted(one is None for one in noticed) == [False, False, True, True]
    assert {*said} == {
        "fails without any change: tests/test_k.py::test_other",
        "survived  modular_converter/started.py:6: 2 -> 3",
        "survived  modular_converter/started.py:6: return 2 -> pass",
    }


def test_a_file_of_tests_that_cannot_be_imported_is_named(project, capfd):
    (project / "tests/test_broken.py").write_text("import nothing_of_this_name\n")
    mutate_code.recorded(project, ["tests/test_broken.py"], 60)
    assert capfd.readouterr().out == "fails without any change: tests/test_broken.py\n"


def test_a_process_notes_its_lines_for_each_test(project):
    with tempfile.TemporaryDirectory() as folder:
        tree = mutate_code.copy_of_repository(pathlib.Path(folder))
        tests = mutate_code.recorded(tree, ["tests/test_k.py"], 60)
    assert tests.lines["tests/test_k.py::test_k"]["modular_converter/started.py"] == [2, 6]
