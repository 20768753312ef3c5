"""What a comparison remembers of an earlier one is what a fresh one finds, whatever is edited in between."""

from __future__ import annotations

import base64
import functools
import json
import os
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from modular_converter.breaking import newer as breaking_newer
from modular_converter.breaking import run as breaking_run
from modular_converter.breaking.facts import ModelTree
from modular_converter.breaking.newer import Edits, edits_since
from modular_converter.breaking.run import BreakingResult, compare_trees
from modular_converter.breaking.signatures import UntoldMethods
from modular_converter.check.cache import stale, store
from modular_converter.check.run import CheckOptions
from modular_converter.convert import batch
from modular_converter.convert.batch import Workers
from modular_converter.convert.schedule import Readings
from modular_converter.convert.source import library as breaking_library
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import ALL, select_files
from modular_converter.settings.load import profile_settings
from tests.unit.breaking.test_compare_trees import CONFIG, LLAMA, convert, library, move
from tests.unit.trees import commit


SIZED = LLAMA.replace("import PreTrainedModel\n", "import SIZE, PreTrainedModel\n").replace("past=None", "past=SIZE")
EDITS = {
    "modeling_utils.py": [("SIZE = 1", "SIZE = 2"), ("folder, size=1", "folder"), ("class PreTrainedModel", "class Other")],
    "configuration_utils.py": [("    pass", "    hidden_size: int = 1")],
    "models/llama/configuration_llama.py": [("hidden_size: int = 8", "hidden_size: int = 4"), ("attention_bias: bool = False", "attention_bias: bool = True")],
    "models/llama/modeling_llama.py": [("self.o_proj", "self.out_proj"), ("past=SIZE", "past=3"), ("nn.LayerNorm", "nn.RMSNorm")],
    "models/gemma/modular_gemma.py": [("class GemmaModel(LlamaModel):\n    pass", "class GemmaModel(LlamaModel):\n    _no_split_modules = []")],
    "models/phi/modeling_phi.py": [("use_cache=True", "use_cache=False")],
}  # fmt: skip


@pytest.fixture
def published(tmp_path: Path) -> Path:
    return tree(tmp_path / "published")


@functools.cache
def texts_of(build: Callable[[Path], None]) -> dict[str, str]:
    """The files of a library that is converted once for all tests, by their names below its folder."""
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        files = (one for one in Path(folder).rglob("*") if one.is_file())
        return {str(one.relative_to(folder)): one.read_text() for one in files}


def written(folder: Path, build: Callable[[Path], None]) -> Path:
    for name, text in texts_of(build).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "zoo"


def _build_tree(folder: Path) -> None:
    zoo = library(folder)
    (zoo / "models/llama/modeling_llama.py").write_text(SIZED)
    utils = zoo / "modeling_utils.py"
    utils.write_text(utils.read_text().replace("\n\n\nclass", "\n\n\nSIZE = 1\n\n\nclass"))
    assert (zoo / "models/llama/configuration_llama.py").read_text() == CONFIG
    convert(zoo)


def tree(folder: Path) -> Path:
    return written(folder, _build_tree)


def compared(zoo: Path, published: Path, cache: Path | None) -> BreakingResult:
    """A comparison; without a cache one that also converts all heirs, whatever they read of what differs."""
    options = CheckOptions(root=str(zoo), workers=1, cache=None if cache is None else str(cache))
    with pytest.MonkeyPatch.context() as patch:
        if cache is None:
            patch.setattr(Readings, "current", lambda self, paths: {})
        return compare_trees(str(published), options)


@pytest.mark.parametrize("seed", range(4))
def test_a_remembered_answer_is_a_fresh_one(seed: int, published: Path, tmp_path: Path) -> None:
    zoo, cache, chance = tree(tmp_path / "edited"), tmp_path / "cache", random.Random(seed)
    seen = set()
    for _ in range(6):
        side = chance.choice([zoo, zoo, published])
        name = chance.choice(list(EDITS))
        old, new = chance.choice(EDITS[name])
        path, text = side / name, (side / name).read_text()
        path.write_text(text.replace(old, new) if old in text else text.replace(new, old))
        if chance.random() < 0.5:
            convert(side)
        first, again, fresh = (compared(zoo, published, one) for one in (cache, cache, None))
        assert first == again == fresh
        seen.add(tuple(one.message for one in fresh.findings))
    assert len(seen) > 1


def test_where_a_model_has_moved_to_is_found_anew(published: Path, tmp_path: Path) -> None:
    zoo, cache = tree(tmp_path / "edited"), tmp_path / "cache"
    (zoo / "models/phi").rename(tmp_path / "phi")
    for step in ("gone", "moved", "gone", "there"):
        if step == "moved":
            shutil.copytree(tmp_path / "phi", zoo / "models/phi")
            move(zoo)
        elif step == "there":
            shutil.copytree(tmp_path / "phi", zoo / "models/phi")
        else:
            shutil.rmtree(zoo / "models/psi", ignore_errors=True)
        first, again, fresh = (compared(zoo, published, one) for one in (cache, cache, None))
        assert first == again == fresh
        assert ("moves to `psi`" in [one.message for one in fresh.groups]) == (step == "moved")
        assert bool(fresh.findings) == (step != "there")


UNSIZED = (
    SIZED.replace("        return self.norm(input_ids)\n", "        y = input_ids\n        return self.norm(y)\n")
    .replace("def size(self):", "def size(self):\n        '''The size.'''")
    .replace("        super().__init__(config)\n", "        super().__init__(config)\n        self.ready = True\n")
    .replace(
        '\n\n__all__ = ["LlamaModel"]\n',
        "\n\nclass LlamaHead(LlamaModel):\n    def make(self):\n        '''Made.'''\n        size = 3\n"
        "        return nn.Linear(size, 2)\n\n    def run(self):\n        return self.make()\n"
        "\n\ndef made(size=2):\n    linear = nn.Linear(size, 2)\n    return linear\n"
        '\n\n__all__ = ["LlamaModel", "LlamaHead"]\n',
    )
)
BODIES = [
    ("        y = input_ids\n", "        # more\n        y = input_ids + 1\n        y = y * 2\n"),
    ("        return self.norm(y)\n", "        return self.norm(y) if y is not None else nn.Linear(1, 1)\n"),
    ("        return self.norm(y)\n", "        self.late = y\n        return self.norm(y)\n"),
    ("        size = 3\n", "        size = 5\n        size += 1\n"),
    ("        return 8\n", "        return 9\n"),
    ("'''Made.'''", "'''Made anew.'''"),
    ("self.ready = True", "self.ready = nn.Linear(self.size, 1)"),
    ("self.ready = True", "self.ready = LlamaHead.make(self)"),
    ("self.ready = True", "self.ready = made()"),
    ("def made(size=2):", "def made(size=4, more=1):"),
    ("    return linear\n", "    linear.late = size\n    return linear\n"),
    ("linear = nn.Linear(size, 2)", "linear = nn.Embedding(size, 2)"),
    ("nn.LayerNorm", "nn.RMSNorm"),
    ("past=SIZE", "past=3"),
]
"""Edits of bodies, some of which the comparison follows only once another edit calls them."""


def _build_heirs(folder: Path) -> None:
    zoo = tree(folder)
    (zoo / "models/llama/modeling_llama.py").write_text(UNSIZED)
    heir = zoo / "models/gemma/modular_gemma.py"
    text = heir.read_text().replace("import LlamaModel", "import LlamaHead, LlamaModel")
    heir.write_text(
        text.replace("\n\n__all__ = [", "\n\nclass GemmaHead(LlamaHead):\n    pass\n\n\n__all__ = ['GemmaHead', ")
    )
    convert(zoo)


def committed(folder: Path) -> Path:
    """A tree in which heirs take all that `UNSIZED` has."""
    zoo = written(folder, _build_heirs)
    commit(folder, new=True)
    return zoo


def test_heirs_of_a_file_that_the_commit_lacks_are_converted(tmp_path: Path) -> None:
    zoo = written(tmp_path / "edited", _build_heirs)
    path = zoo / "models/llama/modeling_llama.py"
    text = path.read_text()
    path.unlink()
    commit(zoo.parent, new=True)
    path.write_text(text.replace("past=SIZE", "past=3"))
    found, fresh = (compared(zoo, Path("HEAD"), one) for one in (tmp_path / "cache", None))
    assert found == fresh and any("gemma" in one.location.path for one in fresh.findings)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_edits_of_bodies_are_told_as_by_a_fresh_comparison(seed: int, published: Path, tmp_path: Path) -> None:
    zoo, cache, chance = committed(tmp_path / "edited"), tmp_path / "cache", random.Random(seed)
    path = zoo / "models/llama/modeling_llama.py"
    for _ in range(7):
        text = path.read_text()
        old, new = chance.choice(BODIES)
        path.write_text(text.replace(new, old) if new in text else text.replace(old, new))
        first, again, fresh = (compared(zoo, published, one) for one in (cache, cache, None))
        assert first == again == fresh


INTERFACES = [
    ("modeling_llama.py", "self.o_proj", "self.out_proj"),
    ("modeling_llama.py", "past=SIZE", "past=SIZE, cache=None"),
    ("modeling_llama.py", "past=SIZE, ", ""),
    ("modeling_llama.py", "nn.LayerNorm", "nn.RMSNorm"),
    ("modeling_llama.py", "class LlamaHead(LlamaModel):", "class LlamaHead(PreTrainedModel):"),
    (
        "modeling_llama.py",
        "    def run(self):\n        return self.make()\n",
        "    def rest(self, x=1):\n        return x\n",
    ),
    ("modeling_llama.py", "from torch import nn\n", "import torch\nfrom torch import nn\n"),
    ("modeling_llama.py", "from torch import nn\n", "from torch import nn, zeros\n"),
    ("modeling_llama.py", "nn.LayerNorm(", "LlamaExtra("),
    (
        "modeling_llama.py",
        "\n\nclass LlamaModel(",
        "\n\nclass LlamaExtra(nn.Module):\n    pass\n\n\nclass LlamaModel(",
    ),
    ("modeling_llama.py", "class LlamaHead", "class LlamaTop"),  # the heir cannot be converted
    ("configuration_llama.py", "hidden_size: int = 8", "hidden_size: int = 4"),
    ("configuration_llama.py", "attention_bias: bool = False\n", "attention_bias: bool = False\n    more: int = 3\n"),
    (
        "modular_gemma.py",
        "class GemmaModel(LlamaModel):\n    pass",
        "class GemmaModel(LlamaModel):\n    def size(self):\n        return 1",
    ),
]
"""Edits of what heirs read, of which some leave the generated file of the nearest heir as it is."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_edits_of_interfaces_are_told_as_by_a_fresh_comparison(seed: int, published: Path, tmp_path: Path) -> None:
    zoo, cache, chance = committed(tmp_path / "edited"), tmp_path / "cache", random.Random(seed)
    if chance.random() < 0.7:  # heirs of heirs are then known to be current, too
        check(zoo, cache)
    for _ in range(6):
        name, old, new = chance.choice(INTERFACES)
        (path,) = zoo.rglob(name)
        text = path.read_text()
        path.write_text(text.replace(new, old) if new in text else text.replace(old, new))
        first, again, fresh = (compared(zoo, published, one) for one in (cache, cache, None))
        assert first == again == fresh
        if chance.random() < 0.2:
            convert(zoo)


FORWARD = "    def forward(self, x, mask=None):\n        y = x\n        return y\n"
INNER = [
    ("llama/modeling_llama.py", "def forward(self, x, mask=None):", "def forward(self, x, mask=None, more: int = 1):"),
    ("llama/modeling_llama.py", "def forward(self, x, mask=None", "def forward(self, mask=None, x=3"),
    ("llama/modeling_llama.py", '"LlamaHead"]', '"LlamaHead", "LlamaAttention"]'),
    ("llama/modeling_llama.py", "class LlamaHead(LlamaModel):", "class LlamaHead(LlamaAttention, LlamaModel):"),
    ("gemma/modular_gemma.py", "__all__ = [", "__all__ = ['GemmaAttention', "),
    ("gemma/modular_gemma.py", "class GemmaAttention(LlamaAttention):\n    pass", "class GemmaInner(LlamaAttention):\n    pass"),
    ("gemma/modular_gemma.py", "__all__ = [", "__all__ = ['GemmaInner', "),
    ("gemma/modular_gemma.py", "(LlamaAttention):\n    pass", "(LlamaAttention):\n    def forward(self, x, mask=None):\n        return super().forward(x, mask)"),
    ("phi/modular_phi.py", "\n\n__all__ = [", "\n\nclass PhiTop(GemmaAttention):\n    pass\n\n\n__all__ = ['PhiTop', "),
]  # fmt: skip
"""Edits of the parameters of a class that no model exports, and those by which one does."""


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 12))])
def test_parameters_that_nobody_is_told_of_are_told_as_by_a_fresh_comparison(seed: int, tmp_path: Path) -> None:
    zoo, cache, chance = committed(tmp_path / "edited"), tmp_path / "cache", random.Random(seed)
    models = zoo / "models"
    path = models / "llama/modeling_llama.py"
    path.write_text(path.read_text().replace("\n\n\nclass LlamaModel", f"\n\n{FORWARD}\n\nclass LlamaModel"))
    for name, one in (("gemma", "Llama"), ("phi", "Gemma")):
        path = models / name / f"modular_{name}.py"
        text = path.read_text().replace(f"{one}Model\n", f"{one}Attention, {one}Model\n", 1)
        path.write_text(
            text.replace(
                "\n\n__all__", "\n\nclass GemmaAttention(LlamaAttention):\n    pass\n\n\n__all__", name == "gemma"
            )
        )
    for _ in range(6):
        convert(zoo)
        commit(zoo.parent)
        compared(zoo, Path("HEAD"), cache)
        for name, old, new in chance.sample(INNER, 2):
            path = models / name
            text = path.read_text()
            path.write_text(text.replace(new, old) if new in text else text.replace(old, new))
            first, again, fresh = (compared(zoo, Path("HEAD"), one) for one in (cache, cache, None))
            assert first == again == fresh


def test_parameters_that_nobody_is_told_of_convert_no_heir(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, cache = committed(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    text = path.read_text().replace("\n\n\nclass LlamaModel", f"\n\n{FORWARD}\n\nclass LlamaModel")
    path.write_text(text)
    check(zoo, cache)
    made: list[str] = []
    really = batch.convert_safely
    compared(zoo, Path("HEAD"), cache)
    monkeypatch.setattr(batch, "convert_safely", lambda path, library: made.append(path) or really(path, library))
    path.write_text(text.replace("mask=None", "mask=None, more: int = 1"))
    assert (compared(zoo, Path("HEAD"), cache).findings, made) == ([], [])


def check(zoo: Path, cache: Path) -> None:
    """Commit current files, and leave in the cache what `check-modular-conversion` does."""
    selection = select_files((ALL,), package=None, root=str(zoo), overrides={"strict": False})
    settings = selection.settings.with_any_formatter
    for one in breaking_newer.find_conversions(selection.paths, settings, str(cache)).all:
        for path, text in one.files.items():
            Path(path).write_text(text)
    commit(zoo.parent)


def test_heirs_of_an_heir_that_is_known_to_be_current_are_converted_with_it(published: Path, tmp_path: Path) -> None:
    zoo, cache = committed(tmp_path / "edited"), tmp_path / "cache"
    check(zoo, cache)
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(path.read_text().replace("self.o_proj", "self.out_proj"))
    told = compared(zoo, published, cache)
    assert told == compared(zoo, published, None)
    assert {"gemma", "llama", "phi"} in [set(one.models) for one in told.groups]


@pytest.mark.parametrize(
    "harm", ["text", *(pytest.param(harm, marks=pytest.mark.slow) for harm in ("other", "long", "shape"))]
)
def test_damaged_conversions_of_stale_files_count_as_absent(
    harm: str, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, cache = committed(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(path.read_text().replace("self.o_proj", "self.out_proj"))
    fresh = compared(zoo, published, None)
    assert compared(zoo, published, cache) == fresh
    harmed = 0
    for entry in cache.glob("*.json"):
        content = store.read_entry(str(cache), entry.stem)
        assert content is not None
        try:
            entries, texts = json.loads(zlib.decompress(content))
        except (zlib.error, ValueError):
            entry.unlink()  # so that the comparison itself is made anew
            continue
        body = {
            "text": json.dumps([entries, dict.fromkeys(texts, "class GemmaModel:\n    pass\n")]),
            "other": json.dumps([entries, {}]),
            "long": " " * (2 * stale.MOST_BYTES),
            "shape": json.dumps([{"key": 1}, [texts]]),
        }[harm]
        store.write_entry(str(cache), entry.stem, zlib.compress(body.encode()))
        harmed += 1
    assert (harmed, compared(zoo, published, cache)) == (1, fresh)


def test_what_was_made_of_stale_files_is_made_once(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, cache = committed(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(path.read_text().replace("self.o_proj", "self.out_proj"))
    made: list[str] = []
    most: list[int] = []
    begin = Workers.__init__
    monkeypatch.setattr(Workers, "__init__", lambda self, *given: most.append(given[1]) or begin(self, *given))
    really = batch.convert_safely
    monkeypatch.setattr(batch, "convert_safely", lambda path, library: made.append(path) or really(path, library))
    first = compared(zoo, published, cache)
    assert [Path(one).name for one in made] == ["modular_gemma.py", "modular_phi.py"]
    assert (compared(zoo, published, cache), len(made)) == (first, 2)
    heir = zoo / "models/phi/modular_phi.py"
    heir.write_text(heir.read_text() + "\n\nSIZE = 1\n")
    compared(zoo, published, cache)
    assert [Path(one).name for one in made[2:]] == ["modular_phi.py"]
    assert {*most} == {1}  # as the option says, of the comparison and of conversions


@pytest.mark.parametrize(
    ("old", "new", "converted"),
    [
        ("size = 3", "size = 4; self.wide = size", ["modular_gemma.py"]),  # of the heir's own heir nothing differs
        ("self.o_proj", "self.out_proj", ["modular_gemma.py", "modular_phi.py"]),
        ("from torch import nn\n", "import torch\nfrom torch import nn\n", []),
        ("import nn\n", "import nn, zeros\n", ["modular_gemma.py"]),  # another statement gives `nn`
        ("\n\nclass LlamaHead", "\n\nclass LlamaExtra(nn.Module):\n    pass\n\n\nclass LlamaHead", []),
        ("return linear", "return linear, 1", []),  # of a function that nothing calls
        ("def made(size=2)", "def made(size: int = 3)", []),
    ],
)
def test_heirs_that_read_nothing_of_what_differs_are_not_converted(
    old: str, new: str, converted: list[str], published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, cache = committed(tmp_path / "edited"), tmp_path / "cache"
    check(zoo, tmp_path / "other")  # formatted as here
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(path.read_text().replace(old, new))
    fresh = compared(zoo, published, None)
    made: list[str] = []
    really = batch.convert_safely
    monkeypatch.setattr(batch, "convert_safely", lambda path, library: made.append(path) or really(path, library))
    assert (compared(zoo, published, cache), [Path(one).name for one in made]) == (fresh, converted)


def test_models_that_are_asked_for_are_those_of_the_whole_answer(published: Path, tmp_path: Path) -> None:
    zoo, cache = committed(tmp_path / "edited"), str(tmp_path / "cache")
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(path.read_text().replace("self.o_proj", "self.out_proj"))
    for asked in ("llama", "phi", "gemma", ALL):
        options = CheckOptions((asked,), root=str(zoo), workers=1, cache=cache)
        told = [one.models for one in compare_trees(str(published), options).groups]
        assert told == [["gemma", "llama", "phi"]], asked


def test_an_edit_that_nothing_reads_converts_no_heir(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, cache = committed(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    before = compared(zoo, published, cache)
    reached: list[str] = []
    really = breaking_newer.find_conversions
    monkeypatch.setattr(
        breaking_newer,
        "find_conversions",
        lambda paths, *_, **more: reached.extend(paths) or really(paths, *_, **more),
    )
    path.write_text(UNSIZED.replace("y = input_ids", "y = input_ids + 1"))
    assert (compared(zoo, published, cache).models, reached) == (before.models, [])
    path.write_text(UNSIZED.replace("nn.LayerNorm", "nn.RMSNorm"))
    assert compared(zoo, published, cache) != before
    assert [Path(one).name for one in reached] == ["modular_gemma.py", "modular_phi.py"]


COMMENTS = {
    "\n\nclass LlamaHead": ("\n\n# The head.\nclass LlamaHead", False),
    "        y = input_ids\n": ("        # as given\n        y = input_ids\n", False),
    "class LlamaHead": ("# modular: ignore[MC201]\nclass LlamaHead", True),
    "Linear(self.head_dim * 4, ": ("Linear(\n            # of all heads\n            self.head_dim * 4, ", True),
    "from torch import nn\n": ("# Copyright\nfrom torch import nn\n", True),
    "'''The size.'''": ("'''The size.\n\n        # of it\n        '''", True),
}  # fmt: skip
"""Text -> the same with a comment, or what looks like one, and whether a comparison reads it."""


@pytest.mark.parametrize("text", COMMENTS)
def test_comments_are_read_only_where_they_may_mean_something(text: str, tmp_path: Path) -> None:
    zoo, cache = committed(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(UNSIZED)
    convert(zoo)
    commit(zoo.parent)
    assert compared(zoo, Path("HEAD"), cache).findings == []
    (edited, is_read), before = COMMENTS[text], path.read_text()
    assert text in before
    path.write_text(before.replace(text, edited, 1))
    edits = edits_since("HEAD", str(zoo), UntoldMethods({"__init__"}, (), Library(profile_settings())))
    assert ({*edits.read}, {*edits.unread}) == (({str(path)}, set()) if is_read else (set(), {str(path)}))
    assert compared(zoo, Path("HEAD"), cache) == compared(zoo, Path("HEAD"), None)


def test_only_modular_files_that_say_a_class_are_indexed_for_its_heirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["class B(A): ...", "class C(B): ...", "class D(Other): ...", '# A_ and "AB"\nclass E(Other): ...']
    paths = [str(tmp_path / f"modular_{number}.py") for number in range(len(texts))]
    for path, text in zip(paths, texts):
        Path(path).write_text(text)
    indexed: list[str] = []
    really = Library.module
    monkeypatch.setattr(Library, "module", lambda self, path: (indexed.append(path), really(self, path))[1])
    assert UntoldMethods({"class Told"}, paths, Library(profile_settings())).marks("llama.py", "A") >= {"class C"}
    assert {*indexed} == {*paths[:2]}


def test_heirs_that_an_edit_of_a_body_leaves_unconvertible_are_told(tmp_path: Path) -> None:
    zoo, cache = committed(tmp_path / "edited"), tmp_path / "cache"
    heir, path = zoo / "models/gemma/modular_gemma.py", zoo / "models/llama/modeling_llama.py"
    body = "    def run(self):\n        made = super().run()\n        return made, size\n"
    heir.write_text(
        heir.read_text().replace("class GemmaHead(LlamaHead):\n    pass\n", f"class GemmaHead(LlamaHead):\n{body}")
    )
    path.write_text(UNSIZED.replace("        return self.make()\n", "        size = 1\n        return self.make()\n"))
    convert(zoo)
    commit(zoo.parent)
    assert compared(zoo, Path("HEAD"), cache).findings == []
    for text in (
        UNSIZED,
        UNSIZED.replace("        return self.make()\n", "        more = 1\n        return self.make()\n"),
    ):
        path.write_text(text)
        first, again, fresh = (compared(zoo, Path("HEAD"), one) for one in (cache, cache, None))
        assert first == again == fresh
        assert [(one.code, Path(one.location.path).name) for one in first.findings] == [("MC313", "modular_gemma.py")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    zoo = committed(tmp_path / "edited")
    path = zoo / "models/llama/modeling_llama.py"
    path.unlink()
    os.mkfifo(path)
    edits = edits_since("HEAD", str(zoo), UntoldMethods({"__init__"}, (), Library(profile_settings())))
    assert edits._replace(before={}) == Edits(frozenset({str(path)}))


def test_another_order_of_settings_or_trees_is_not_taken_for_the_same(published: Path, tmp_path: Path) -> None:
    zoo, cache = tree(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(SIZED.replace("self.o_proj", "self.out_proj"))
    convert(zoo)
    there, back = compared(zoo, published, cache), compared(published, zoo, cache)
    assert ("renames `o_proj`" in there.findings[0].message, "renames `out_proj`" in back.findings[0].message) == (
        True,
        True,
    )


def test_no_text_is_parsed_for_its_index_twice(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a process that knows nothing yet only the edited texts are parsed; a damaged entry counts as absent."""
    zoo, cache, parsed = tree(tmp_path / "edited"), tmp_path / "cache", list[str]()
    whole = breaking_library.index_module
    monkeypatch.setattr(
        breaking_library, "index_module", lambda text, path: (parsed.append(text), whole(text, path))[1]
    )
    counts = []
    for name in ("self.o_proj", "self.out_proj", "self.k_proj"):
        breaking_library._statements_of.cache_clear()
        breaking_library._index_of.cache_clear()
        parsed.clear()
        path = zoo / "models/llama/modeling_llama.py"
        path.write_text(SIZED.replace("self.o_proj", name))
        assert compared(zoo, published, cache) == compared(zoo, published, None)
        breaking_library._statements_of.cache_clear()
        breaking_library._index_of.cache_clear()
        parsed.clear()
        path.write_text(SIZED.replace("self.o_proj", f"{name}_2"))
        compared(zoo, published, cache)
        counts.append(len(parsed))
        assert all(f"{name}_2" in text for text in parsed)
        for entry in cache.glob("*.json"):
            if b'"class"' in (content := entry.read_bytes()):
                body = content[65:].replace(b'["class",', b'["claas",')
                entry.write_bytes(store.digest(body).encode() + b"\n" + body)
    assert 0 < max(counts) < 5


def test_trees_without_a_common_model_are_refused(published: Path, tmp_path: Path) -> None:
    other = tree(tmp_path / "edited")
    for model in ("llama", "gemma", "phi"):
        (other / "models" / model).rename(other / "models" / f"my_{model}")
    result = compared(other, published, None)
    assert (result.incomplete, [one.rule.code for one in result.findings]) == (True, ["MC121"])
    assert "no model of those in" in result.findings[0].message


def only(cache: Path, kept: Path) -> None:
    """Remove all entries but one."""
    for entry in cache.glob("*.json"):
        if entry != kept:
            entry.unlink()


OTHER: dict[str, object] = {
    "nothing": {},
    "a list": {"models": [], "followed": []},
    "another version": {"models": {"llama": {"reads": {}}}, "followed": None},
    "no records": {"models": {"llama": None, "gemma": 1}, "followed": []},
    "no changes": {"models": {"llama": {"changes": 1, "new": {}, "old": {}}}, "followed": []},
    "other changes": {"models": {"llama": {"changes": [[1, 2]], "new": {}, "old": {}}}, "followed": []},
}


@pytest.mark.parametrize("case", [*OTHER, "half of it"])
def test_damaged_facts_and_those_of_another_form_count_as_absent(
    case: str, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, cache = tree(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(path.read_text().replace("self.o_proj", "self.out_proj"))
    fresh = compared(zoo, published, cache)
    entries = [one for one in cache.iterdir() if b'"followed"' in one.read_bytes()]
    assert len(entries) == 1 and fresh.findings
    only(cache, entries[0])
    body = json.dumps(OTHER[case]).encode() if case in OTHER else store.read_entry(str(cache), entries[0].stem)[:-9]  # type: ignore[index]
    store.write_entry(str(cache), entries[0].stem, body)
    assert compared(zoo, published, cache) == fresh


def test_of_trees_that_stay_the_same_nothing_is_read_again(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, cache = committed(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(path.read_text().replace("self.o_proj", "self.out_proj"))
    read: list[str] = []
    really = breaking_run.older_tree
    monkeypatch.setattr(breaking_run, "older_tree", lambda ref, *rest: read.append(ref) or really(ref, *rest))
    for against in (str(published), "HEAD"):
        read.clear()
        first, again = (compared(zoo, Path(against), cache) for _ in range(2))
        assert (first == again, read, bool(first.findings)) == (True, [against], True)
    heir = zoo / "models/gemma/modular_gemma.py"
    for side in (
        heir,
        published / "models/llama/configuration_llama.py",
        published / "models/llama/modeling_llama.py",
    ):
        read.clear()
        side.write_text(side.read_text().replace("SIZE", "WIDTH") + "\n\nSIZE = 1\n")
        assert (compared(zoo, published, cache) == compared(zoo, published, None), len(read)) == (True, 2)
    commit(zoo.parent)
    read.clear()
    assert (compared(zoo, Path("HEAD"), cache).findings, read) == ([], ["HEAD"])


def test_another_library_or_setting_is_not_answered_by_what_is_kept(published: Path, tmp_path: Path) -> None:
    cache, told = tmp_path / "cache", []
    for name, new in (("one", "self.out_proj"), ("two", "self.oo_proj")):
        zoo = tree(tmp_path / name)
        path = zoo / "models/llama/modeling_llama.py"
        path.write_text(path.read_text().replace("self.o_proj", new))
        told.append([compared(zoo, published, one) for one in (cache, cache, None)])
    for three in told:
        assert three[0] == three[1] == three[2]
    assert told[0][0].findings != told[1][0].findings
    strict = compare_trees(str(published), CheckOptions(root=str(zoo), strict=True, cache=str(cache)))
    assert [one.message for one in strict.findings] == [one.message for one in told[1][0].findings]
    assert all(one.is_error for one in strict.findings)
    (tmp_path / "two/pyproject.toml").write_text('[tool.modular-converter]\nignore = ["MC6"]\n')
    assert compared(zoo, published, cache).findings == []


@pytest.mark.parametrize("harm", ["none", "states", "causes", "half"])
def test_a_damaged_answer_counts_as_absent(harm: str, published: Path, tmp_path: Path) -> None:
    zoo, cache = tree(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(path.read_text().replace("self.o_proj", "self.out_proj"))
    fresh = compared(zoo, published, cache)
    (entry,) = (
        one for one in cache.iterdir() if b'"causes":[[' in one.read_bytes() and b'"states"' in one.read_bytes()
    )
    only(cache, entry)
    body = store.read_entry(str(cache), entry.stem)
    assert body is not None
    values = json.loads(body) | ({} if harm == "half" else {harm: [[1]]})
    written = body[:-9] if harm == "half" else json.dumps({} if harm == "none" else values).encode()
    store.write_entry(str(cache), entry.stem, written)
    assert compared(zoo, published, cache) == fresh


def test_models_that_are_as_before_again_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo, cache = committed(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    before = compared(zoo, Path("HEAD"), cache)
    path.write_text(UNSIZED.replace("self.o_proj", "self.out_proj"))
    assert compared(zoo, Path("HEAD"), cache).findings
    path.write_text(UNSIZED)
    read: list[str] = []
    really = ModelTree.facts
    monkeypatch.setattr(ModelTree, "facts", lambda self, one: read.append(one) or really(self, one))
    assert (compared(zoo, Path("HEAD"), cache), read) == (before, [])


@pytest.mark.parametrize("harm", ["", "text", "shape", "files"])
def test_facts_of_the_older_tree_are_made_once(
    harm: str, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, cache = tree(tmp_path / "edited"), tmp_path / "cache"
    path = zoo / "models/llama/modeling_llama.py"
    made: list[str] = []
    really = ModelTree.facts
    monkeypatch.setattr(ModelTree, "facts", lambda self, one: made.append(self.models) or really(self, one))
    for new in ("self.out_proj", "self.oo_proj"):
        made.clear()
        path.write_text(SIZED.replace("self.o_proj", new))
        convert(zoo)
        fresh, told = compared(zoo, published, None), (made.clear(), compared(zoo, published, cache))[1]
        assert (told, str(published / "models") in made) == (fresh, new == "self.out_proj" or bool(harm))
        for entry in cache.glob("*.json"):
            values = store.read_values(str(cache), entry.stem) if harm else {}
            if not all(
                isinstance(one, list) and len(one) == 4 and isinstance(one[0], list) for one in values.values()
            ):
                continue
            for model, (files, reads, followed, facts) in values.items():
                values[model] = {
                    "text": [files, reads, followed, facts[:-9]],
                    "shape": [files, reads, followed, base64.b64encode(zlib.compress(b'{"nodes": [[1]]}')).decode()],
                    "files": [[*files, "modeling_other.py"], reads, followed, facts],
                }[harm]
            if values:
                store.write_entry(str(cache), entry.stem, json.dumps(values).encode())


@pytest.mark.parametrize(
    "text",
    [
        "class Told(LlamaAttention): ...",
        "class Told(Mixin,\n    modeling_llama.LlamaAttention[int]): ...",
        "if True:\n    class Told(LlamaAttention): ...",
        "from ..llama.modeling_llama import LlamaAttention as Other\n\n\nclass Told(Other): ...",
        "Told = LlamaAttention",
        "Other = modeling_llama.LlamaAttention  # a name of its own\n\n\nclass Told(Other): ...",
    ],
)
def test_parameters_are_told_of_an_heir_however_it_is_written(text: str, tmp_path: Path) -> None:
    path = tmp_path / "modular_gemma.py"
    path.write_text(text)
    untold = UntoldMethods({"class Told"}, [str(path)], Library(profile_settings()))
    assert not untold.marks("models/llama/modeling_llama.py", "LlamaAttention")
    assert untold.marks("models/llama/modeling_llama.py", "LlamaMLP")


@pytest.mark.parametrize(
    ("body", "depends"),
    [
        ("depth = AttributeError()", True),
        ("def step(self):\n        raise NotImplementedError('no step')", True),
        ("def __init__(self):\n        super().__init__()\n        del self.depth", True),
        ("def step(self):\n        return super().forward()", True),
        ("width = AttributeError()", False),
        ("def walk(self):\n        raise NotImplementedError('no walk')", False),
        ("def step(self):\n        # not super().forward()\n        return 'self.forward()'", False),
        (
            "def step(self):\n        try:\n            return self.depth\n        except AttributeError:\n            return 0",
            False,
        ),
        ("def step(self):\n        self.depth = 1\n        del self.depth", False),
    ],
)
def test_conversions_depend_on_a_parents_method_by_calls_and_by_what_is_taken_away(
    body: str, depends: bool, tmp_path: Path
) -> None:
    path = tmp_path / "modular_gemma.py"
    path.write_text(f"class GemmaMLP(LlamaMLP):\n    {body}\n")
    untold = UntoldMethods((), [str(path)], Library(profile_settings()))
    assert bool(untold.callers("LlamaMLP", "forward", {"self", "step", "depth"})) is depends


def test_warnings_that_a_comparison_has_left_out_are_errors_of_a_strict_one(tmp_path: Path) -> None:
    zoo = committed(tmp_path / "edited")
    heir, path = zoo / "models/gemma/modular_gemma.py", zoo / "models/llama/modeling_llama.py"
    heir.write_text(heir.read_text().replace("\n\n__all__", "\n\ndef unused():\n    return 1\n\n\n__all__"))
    commit(zoo.parent)
    text = path.read_text()
    path.write_text(text.replace("past=SIZE", "past=3"))
    assert path.read_text() != text
    plain = CheckOptions(root=str(zoo), workers=1, cache=str(tmp_path / "cache"))
    strict = plain._replace(strict=True)
    assert not compare_trees("HEAD", plain).incomplete
    assert compare_trees("HEAD", strict) == compare_trees("HEAD", strict._replace(cache=None))
    assert compare_trees("HEAD", strict).incomplete
