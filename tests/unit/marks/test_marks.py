"""`modular-convert marks`: verdicts on copies, and copies put right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modular_converter.commands.subcommands import marks_command
from modular_converter.convert.source.library import Library
from modular_converter.marks.audit import Audited, audit
from modular_converter.settings.load import profile_settings


SOURCE = '''\
from torch import nn


def scale(x):
    return 2 * x


class BaseLayer(nn.Module):
    """A layer of Base."""

    size = 3

    def __init__(self, config):
        super().__init__()
        self.base = nn.Linear(config.size, config.size)

    def forward(self, x):
        return self.base(x)  # BASE

    @property
    def width(self):
        return self.size

    @width.setter
    def width(self, value):
        self.size = value
'''
MARK = "# Copied from transformers.models.base.modeling_base.BaseLayer with Base->New,base->new,BASE->NEW"
COPY = SOURCE.partition("class ")[2].replace("Base", "New").replace("base", "new").replace("BASE", "NEW")


def write(root: Path, model: str, text: str) -> Path:
    path = root / f"models/{model}/modeling_{model}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def copy_of(text: str, mark: str = MARK) -> str:
    return f"from torch import nn\n\n\n{mark}\nclass {text}"


def judged(path: Path) -> list[Audited]:
    return list(audit([str(path)], Library(profile_settings())).marks)


def verdict(path: Path) -> str:
    (one,) = judged(path)
    return one.verdict.value


def marks(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(marks_command, ["--root", str(root), *arguments])


def test_a_copy_with_replacements_is_identical(library: Path) -> None:
    assert verdict(write(library, "new", copy_of(COPY))) == "identical"
    assert marks(library).exit_code == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.new(x)", "self.new(x) + 1"),
        ("(nn.Module)", "(nn.Linear)"),
        ("size = 3", "size = 4"),
        ("# NEW", "# OLD"),
        ("a layer of New", "another layer of New"),
        ("self.size = value", "self.size = 2 * value"),
        ("    @width.setter\n", ""),
    ],
)
def test_every_change_of_a_copy_is_a_drift(old: str, new: str, library: Path) -> None:
    text = COPY.replace("A layer", "a layer")
    write(library, "base", SOURCE.replace("A layer", "a layer"))
    assert verdict(write(library, "new", copy_of(text))) == "identical"
    assert old in text
    assert verdict(write(library, "new", copy_of(text.replace(old, new)))) == "drifted"


TEXT = '''\
class BaseText:
    """A text.

    Of Base.
    """

    def text(self):
        return """one

two\x20\x20
three""" + "four\\
five"
'''


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("one\n\ntwo", "one\ntwo", "drifted"),
        ("one\n\ntwo", "one\n\n\ntwo", "drifted"),
        ("two  \n", "two\n", "drifted"),
        ("four\\\n", "four\\\n\\\n", "drifted"),
        ("A text.\n\n", "A text.\n", "drifted"),
        ("A text.\n\n", "A text.  \n\n", "identical"),
        ("    def text(self):\n", "    def text(self):\n\n", "identical"),
        ('    """\n\n    def', '    """\n    def', "identical"),
    ],
)
def test_blank_lines_count_in_strings_alone(old: str, new: str, expected: str, library: Path) -> None:
    write(library, "base", TEXT)
    copy = TEXT.replace("Base", "New").partition("class ")[2]
    mark = "# Copied from transformers.models.base.modeling_base.BaseText with Base->New"
    assert verdict(write(library, "new", copy_of(copy, mark))) == "identical"
    assert old in copy
    assert verdict(write(library, "new", copy_of(copy.replace(old, new), mark))) == expected


def test_a_change_of_the_source_is_a_drift_that_a_fix_cures(library: Path) -> None:
    path = write(library, "new", copy_of(COPY))
    write(library, "base", SOURCE.replace("self.base(x)", "self.base(x) + 1"))
    found = marks(library)
    assert found.exit_code == 1 and "MC411" in found.stderr and "`forward`" in found.stderr
    shown = marks(library, "--diff")
    assert shown.exit_code == 1 and "+        return self.new(x) + 1  # NEW" in shown.stdout.replace("    + ", "+ ")
    assert path.read_text() == copy_of(COPY)
    fixed = marks(library, "--write")
    assert fixed.exit_code == 0 and "1 put right" in fixed.stderr
    assert path.read_text() == copy_of(COPY.replace("self.new(x)", "self.new(x) + 1"))


def test_copies_of_copies_are_put_right_in_turn(library: Path) -> None:
    write(library, "new", copy_of(COPY))
    again = "# Copied from transformers.models.new.modeling_new.NewLayer with New->Last,new->last,NEW->LAST"
    last = write(
        library, "last", copy_of(COPY.replace("New", "Last").replace("new", "last").replace("NEW", "LAST"), again)
    )
    write(library, "base", SOURCE.replace("size = 3", "size = 5"))
    assert "2 put right" in marks(library, "--write").stderr
    assert "size = 5" in last.read_text() and "LastLayer" in last.read_text()


def test_what_is_meant_to_differ_may_differ_and_stays(library: Path) -> None:
    text = COPY.replace(
        "    def forward(self, x):\n        return", "    # Ignore copy\n    def forward(self, x):\n        return 7 *"
    )
    path = write(library, "new", copy_of(text))
    assert verdict(path) == "identical"
    write(library, "base", SOURCE.replace("size = 3", "size = 4"))
    assert verdict(path) == "drifted"
    assert marks(library, "--write").exit_code == 0
    assert path.read_text() == copy_of(text.replace("size = 3", "size = 4"))


def test_an_ignored_statement_stands_for_statements_alone(library: Path) -> None:
    text = COPY.replace("    size = 3\n", "    # Ignore copy\n    size = 9\n    more = 1\n")
    assert verdict(write(library, "new", copy_of(text))) == "identical"
    write(
        library, "base", SOURCE.replace("    def __init__", "    def added(self):\n        pass\n\n    def __init__")
    )
    assert verdict(write(library, "new", copy_of(text))) == "drifted"


def test_marks_on_methods_and_functions(library: Path) -> None:
    text = (
        "from torch import nn\n\n\n# Copied from transformers.models.base.modeling_base.scale\ndef doubled(x):\n    return 2 * x\n\n\n"
        "class New(nn.Module):\n"
        "    # Copied from transformers.models.base.modeling_base.BaseLayer.forward with base->new, BASE->x\n"
        "    def forward(self, x):\n        return self.new(x)  # x\n\n"
        "    # Copied from transformers.models.base.modeling_base.BaseLayer.__init__ with base->new\n"
        "    def __init__(self, config):\n        super().__init__()\n"
        "        self.new = nn.Linear(config.size, config.size)\n        # End copy\n        self.own = 1\n"
    )
    path = write(library, "new", text)
    assert [one.verdict.value for one in judged(path)] == ["identical"] * 3
    write(
        library,
        "base",
        SOURCE.replace("self.base(x)", "-self.base(x)")
        .replace("2 * x", "3 * x")
        .replace("Linear(config.size", "Linear(1"),
    )
    assert [one.verdict.value for one in judged(path)] == ["drifted"] * 3
    assert marks(library, "--write").exit_code == 0
    fixed = (
        text.replace("self.new(x)", "-self.new(x)").replace("2 * x", "3 * x").replace("Linear(config.size", "Linear(1")
    )
    assert path.read_text() == fixed


def test_identity_is_judged_after_formatting(library: Path) -> None:
    long = "an_argument_with_a_name, another_argument_with_a_name"
    call = f"        return self.base({long}, a_third_argument_of_base)"
    write(library, "base", SOURCE.replace("        return self.base(x)  # BASE", call))
    name = "new" * 12
    wrapped = f"        return self.{name}(\n            {long}, a_third_argument_of_{name}\n        )"
    copy = SOURCE.partition("class ")[2].replace("        return self.base(x)  # BASE", wrapped)
    copy = copy.replace("self.base", f"self.{name}").replace("Base", "New")
    mark = f"# Copied from transformers.models.base.modeling_base.BaseLayer with Base->New,base->{name}"
    assert verdict(write(library, "new", copy_of(copy, mark))) == "identical"


def test_marks_of_generated_files_are_left_out(tree: Path) -> None:
    heir = tree / "models/heir/modeling_heir.py"
    heir.write_text(
        heir.read_text().replace("class Heir", "# Copied from transformers.models.x.modeling_x.X\nclass Heir")
    )
    found = marks(tree)
    assert found.exit_code == 0 and "0 marks" in found.stderr and "1 in generated files left out" in found.stderr


def test_a_fix_that_needs_a_name_that_the_file_lacks_is_refused(library: Path) -> None:
    path = write(library, "new", copy_of(COPY))
    write(library, "base", SOURCE.replace("return self.base(x)", "return scale(self.base(x))"))
    found = marks(library, "--write")
    assert found.exit_code == 1 and "the file lacks `scale`" in found.stderr
    assert path.read_text() == copy_of(COPY)


CALLED = """\
class NewPipe:
    # Copied from transformers.models.base.modeling_base.BasePipe.steps
    def steps(self, n, strength):
        return n

    def run(self):
        return self.steps(10, 0.5)
"""


@pytest.mark.parametrize(
    ("signature", "fits"),
    [
        ("self, n, strength, device", False),
        ("self, n, strength, device=None", True),
        ("self, n", False),
        ("self, n, *, strength", False),
        ("self, n, *args", True),
    ],
)
def test_a_signature_that_calls_would_not_fit_is_left_to_people(library: Path, signature: str, fits: bool) -> None:
    write(library, "base", f"class BasePipe:\n    def steps({signature}):\n        return n\n")
    path = write(library, "new", CALLED)
    audited = marks(library)
    assert "the signature of `NewPipe.steps` alone differs from its source" in audited.stderr + audited.stdout
    done = marks(library, "--write")
    assert (path.read_text() != CALLED) is fits
    if not fits:
        assert (
            "the call of `steps` at" in done.stderr and "modeling_new.py:7 would not fit its parameters" in done.stderr
        )
        assert marks(library, "--write-unsafe").exit_code == 0
    assert f"def steps({signature}):" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "fits"), [("*sizes, strength=0.5", False), ("*sizes", True), ("10, **rest", True)]
)
def test_a_call_that_unpacks_arguments_fits_where_it_may(library: Path, arguments: str, fits: bool) -> None:
    write(library, "base", "class BasePipe:\n    def steps(self, n):\n        return n\n")
    path = write(library, "new", CALLED.replace("10, 0.5", arguments))
    assert ("modeling_new.py:7 would not fit" in marks(library, "--write").stderr) is not fits
    assert ("def steps(self, n):" in path.read_text()) is fits


@pytest.mark.parametrize("decorator", ["staticmethod", "property"])
def test_a_decorator_that_decides_what_is_called_is_left_to_people(library: Path, decorator: str) -> None:
    body = "    def steps(self, n):\n        return n\n"
    write(library, "base", f"class BasePipe:\n    @{decorator}\n{body}")
    mark = "# Copied from transformers.models.base.modeling_base.BasePipe with Base->New"
    text = f"{mark}\nclass NewPipe:\n{body}\n\nprint(NewPipe().steps(1))\n"
    path = write(library, "new", text)
    assert "would not fit its parameters" in marks(library, "--write").stderr
    assert path.read_text() == text


def test_calls_in_other_files_count_and_those_of_other_classes_do_not(library: Path) -> None:
    source = "class BasePipe:\n    def steps(self, n, device):\n        return n\n"
    write(library, "base", source)
    own = CALLED.replace("n, strength):", "n):").replace("self.steps(10, 0.5)", "0")
    other = "\n\nclass Other:\n    def steps(self, n):\n        return n\n\n    def run(self):\n        return self.steps(1)\n"
    path = write(library, "new", own + other)
    user = write(library, "user", "from ..new.modeling_new import NewPipe\n\n\nNewPipe().steps(1)\n")
    assert "modeling_user.py:4 would not fit" in marks(library, "--write").stderr
    user.write_text("from ..new.modeling_new import NewPipe\n\n\nNewPipe().steps(1, None)\n")
    assert marks(library, "--write").exit_code == 0
    assert path.read_text() == (own + other).replace("n):", "n, device):", 1)


def test_a_fix_keeps_marks_within_and_line_ends(library: Path) -> None:
    inner = "    # Copied from transformers.models.base.modeling_base.BaseLayer.forward with base->new,BASE->NEW\n    def forward"
    text = copy_of(COPY.replace("    def forward", inner)).replace("\n", "\r\n")
    path = write(library, "new", text)
    write(library, "base", SOURCE.replace("self.base(x)", "self.base(x) + 1"))
    assert marks(library, "--write").exit_code == 0
    assert path.read_bytes().decode() == text.replace("self.new(x)", "self.new(x) + 1")


def test_a_mark_between_a_decorator_and_its_method_stays(library: Path) -> None:
    source = SOURCE.replace("    @property", "    @staticmethod\n    def zero():\n        return 0\n\n    @property")
    inner = "    @staticmethod\n    # Copied from transformers.models.base.modeling_base.BaseLayer.zero\n    def zero"
    copy = COPY.replace("    @property", "    @staticmethod\n    def zero():\n        return 0\n\n    @property")
    text = copy_of(copy.replace("    @staticmethod\n    def zero", inner))
    write(library, "base", source.replace("return 0", "return 1"))
    path = write(library, "new", text)
    assert marks(library, "--write").exit_code == 0
    assert path.read_text() == text.replace("return 0", "return 1")


def test_findings_for_programs(library: Path) -> None:
    write(library, "new", copy_of(COPY.replace("size = 3", "size = 4")))
    (finding,) = json.loads(marks(library, "--format", "json").stdout)
    assert finding["code"] == "MC411" and finding["line"] == 4 and "`size`" in finding["message"]
    assert marks(library, "none").exit_code == 2


def test_a_file_is_looked_at_alone_with_the_settings_above_it(
    library: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(library, "new", copy_of(COPY.replace("size = 3", "size = 4")))
    write(library, "other", copy_of(COPY.replace("size = 3", "size = 5")))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    done = CliRunner().invoke(marks_command, [str(path)])
    assert (done.exit_code, "1 mark, " in done.stderr, "1 drifted" in done.stderr) == (1, True, True), done.output
    (library / "pyproject.toml").write_text('[tool.modular-converter]\nrequired-version = "0.0.1"\n')
    done = CliRunner().invoke(marks_command, [str(path)])
    assert done.exit_code == 2 and "MC116 this project requires" in done.stderr


def test_a_method_of_ones_own_stays_where_a_formatter_makes_other_statements(tmp_path: Path) -> None:
    options = "[tool.isort]\nforce_single_line = true\n"  # which makes two imports of one, in the body of a class too
    formatters = '[tool.modular-converter]\nformatter = "none"\npost-format = ["isort"]\n'
    (tmp_path / "pyproject.toml").write_text(formatters + options)
    body = "    from math import cos, sin\n\n    def first(self, x):\n        return x + 1\n\n    {}def last(self, x):\n        return x{}\n"
    write(tmp_path, "base", f"from torch import nn\n\n\nclass BaseLayer(nn.Module):\n{body.format('', '')}")
    own = body.replace("x + 1", "x + 2").format("# Ignore copy\n    ", " * 7")
    path = write(tmp_path, "new", copy_of(f"NewLayer(nn.Module):\n{own}", MARK.partition(",")[0]))
    CliRunner().invoke(marks_command, [str(path), "--write"])
    assert "    # Ignore copy\n    def last(self, x):\n        return x * 7\n" in path.read_text()
    assert "return x + 1" in path.read_text()
