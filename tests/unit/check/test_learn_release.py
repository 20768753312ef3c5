"""What `utils/learn_release.py` says of a release with conventions that no profile has."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.trees import edit, fix


UTILS = Path(__file__).parents[3] / "utils"
VERSION = "999.0.0"
MODELS = ("ant", "bee", "cat", "dog", "eel", "fox")
PARENT = '''\
from decorators import first, second
from torch import nn


class {New}Layer(nn.Module):
    """A layer."""

    def __init__(self, config):
        super().__init__()
        self.size = config.size
        self.post_init()

    @first
    @second
    def forward(self, x):
        return x + 1
'''
HEIR = """\
from decorators import kept

from ..{old}.modeling_{old} import {Old}Layer


class {New}Layer({Old}Layer):
    @kept("x")
    def forward(self, x):
        return x + 2


__all__ = ["{New}Layer"]
"""
PLAIN = """\
from ..{old}.modeling_{old} import {Old}Layer


class {New}Layer({Old}Layer):
    pass


__all__ = ["{New}Layer"]
"""
BOTH = HEIR.replace(
    '    @kept("x")\n',
    """\
    def __init__(self, config):
        super().__init__(config)
        self.more = config.more

    @kept("x")
""",
)


@pytest.fixture
def learn_release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(UTILS))
    for name in ("learn_release", "check_releases", "profile_switches", "release_examples", "marked_pages"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import learn_release

    return learn_release


def publish(cache: Path, heirs: dict[str, str], settings: str = "") -> Path:
    """The package of a release, unpacked: heirs, each with a parent of its own, generated under some settings."""
    package = cache / "tree" / VERSION / "transformers"
    for new, text in heirs.items():
        old = f"{new}base"
        names = {"new": new, "New": new.title(), "old": old, "Old": old.title()}
        for path, source in (
            (f"{new}/modular_{new}.py", text.format(**names)),
            (f"{old}/modeling_{old}.py", PARENT.format(**{**names, "New": old.title()})),
        ):
            (package / "models" / path).parent.mkdir(parents=True, exist_ok=True)
            (package / "models" / path).write_text(source)
    table = f'[tool.modular-converter]\nruff-config = "profile"\n{settings}'
    (package / "pyproject.toml").write_text(table)
    fix(package)
    (package / "pyproject.toml").unlink()
    (package / "__init__.py").write_text(f'__version__ = "{VERSION}"\n')
    return package


def learn(module: ModuleType, cache: Path) -> tuple[str, list[str]]:
    models = module.models_of(VERSION, str(cache))
    lesson = module.Lesson(VERSION, models, VERSION, workers=1)
    return "\n".join(lesson.lines()), [Path(one).name for one in lesson.left]


def section(report: str, title: str) -> str:
    return report.partition(f"## {title}")[2].partition("\n## ")[0]


def test_a_switch_is_found_and_the_rest_is_shown(learn_release, tmp_path: Path) -> None:
    heirs = {**dict.fromkeys(MODELS[:4], HEIR), **dict.fromkeys(MODELS[4:], PLAIN)}
    package = publish(tmp_path, heirs, 'added-decorators = ["deprecate_kwarg", "kept"]\n')
    edit(package, "modeling_eel.py", '    """A layer."""\n\n', "")
    edit(package, "modeling_fox.py", "x + 1", "x + 3")
    report, left = learn(learn_release, tmp_path)
    assert f"transformers {VERSION} under the conventions of {VERSION}: 6 of" in report
    assert "6 generated files differ: 6 by themselves, 0 refused," in report
    kind = section(report, "1. 4 files: the conversion leaves out decorators of methods")
    assert "modeling_ant.py, modeling_bee.py, modeling_cat.py, modeling_dog.py\n" in kind
    assert "`kept` stands in 4 of 4 of these definitions in modular files, and in 0 of 8 others." in kind
    parts = kind.strip().split("\n\n")
    example = [part for part in parts if part.startswith(("before", "after", "published"))]
    code = {head: parts[parts.index(head) + 1] for head in example}
    override = '```python\n    @kept("x")\n    def forward(self, x):\n        return x + 2\n```'
    assert [(head, code[head]) for head in example] == [
        ("before, ant/modular_ant.py:7:", override),
        (
            "before, antbase/modeling_antbase.py:13:",
            "```python\n    @first\n    @second\n    def forward(self, x):\n        return x + 1\n```",
        ),
        ("after, as converted, ant/modeling_ant.py:19:", override),
        ("published, ant/modeling_ant.py:19:", override.replace("    @kept", "    @first\n    @second\n    @kept")),
    ]
    found = section(report, "What explains them")
    assert "* added-decorators with `kept`: 4 of 6 files become equal, 0 equal" in found and found.count("* ") == 1
    assert left == ["modeling_eel.py"]
    rest = section(report, "What is left")
    assert "* 1 file: the conversion adds docstrings of classes\n" in rest
    assert "* 1 file: the conversion writes `1` for `3`: no source\n" in rest and "`return x + 3`, is in none" in rest
    row = f"| {VERSION} | 6 | 6 | 0 | 1 no source, 5 unexplained |"
    assert section(report, "The row for docs/corpus.md").strip() == row


def test_a_pair_of_switches_is_found(learn_release, tmp_path: Path) -> None:
    publish(
        tmp_path,
        dict.fromkeys(MODELS[:3], BOTH),
        'added-decorators = ["deprecate_kwarg", "kept"]\nlast-statement = ""\n',
    )
    report, left = learn(learn_release, tmp_path)
    found = section(report, "What explains them")
    assert "added-decorators with `kept` and last-statement off: 3 of 3" in found, found
    assert left == [] and section(report, "What is left").strip() == "nothing"


def test_a_switch_that_damages_more_than_it_explains_is_none(learn_release, tmp_path: Path) -> None:
    package = publish(tmp_path, {**dict.fromkeys(MODELS[:5], BOTH), "fox": BOTH})
    text = (package / "models/fox/modeling_fox.py").read_text()
    moved = "        self.more = config.more\n        self.post_init()\n"
    assert moved in text
    changed = "        self.post_init()\n        self.more = config.more\n"
    (package / "models/fox/modeling_fox.py").write_text(text.replace(moved, changed))
    report, left = learn(learn_release, tmp_path)
    assert "last-statement off: 1 of 1 files become equal, 5 equal" in report and "no explanation" in report
    assert left == ["modeling_fox.py"]


def test_a_release_that_is_exact_teaches_nothing(learn_release, tmp_path: Path) -> None:
    publish(tmp_path, dict.fromkeys(MODELS[:2], HEIR))
    report, left = learn(learn_release, tmp_path)
    assert left == [] and "0 of" in report and "What explains" not in report
    assert f"| {VERSION} | 2 | 2 | 2 | – |" in report
