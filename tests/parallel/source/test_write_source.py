"""`modular-plan write`: what is derived and proven goes into the source, nothing else does, and nothing else changes."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner


pytest.importorskip("transformers")
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.judge import Verdict  # noqa: E402
from modular_converter.parallel.source import what_to_write as settling  # noqa: E402


ZOO = Path(__file__).parents[3] / "models"
PLANS = re.compile(r"^    (base_model_tp_plan|_tp_plan) = \{.*?\}\n", re.MULTILINE | re.DOTALL)
NUMBERS = itertools.count()


class Zoo:
    """A copy of some of the models in a package of its own; no two have the same name."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.root = folder / f"zoo_{folder.name}_{next(NUMBERS)}".replace("-", "_")
        self.models = self.root / "models"
        for name in (*names, "auto"):
            shutil.copytree(ZOO / name, self.models / name, ignore=shutil.ignore_patterns("__pycache__"))
        for place in (self.root, self.models):
            (place / "__init__.py").write_text("")
        (self.root / "pyproject.toml").write_text('[project]\nname = "zoo"\n')

    def path(self, name: str) -> Path:
        return self.models / re.sub(r"^[a-z]+_|\.py$", "", name) / name

    def text(self, name: str) -> str:
        return self.path(name).read_text()

    def edit(self, name: str, old: str, new: str) -> None:
        assert old in self.text(name)
        self.path(name).write_text(self.text(name).replace(old, new))

    def put(self, name: str, text: str) -> None:
        self.path(name).parent.mkdir(exist_ok=True)
        (self.path(name).parent / "__init__.py").write_text("")
        self.path(name).write_text(text)

    def drop_plans(self, name: str) -> None:
        """Take all plans out of a file."""
        self.path(name).write_text(PLANS.sub("", self.text(name)))

    def files(self) -> dict[str, str]:
        return {str(path): path.read_text() for path in sorted(self.root.rglob("*.py"))}

    def write(self, name: str, *options: str) -> tuple[int, str]:
        """Run the command; the exit code and all that it says."""
        done = CliRunner().invoke(main, ["write", str(self.path(name)), *options])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output


@pytest.fixture
def zoo(tmp_path):
    return lambda *names: Zoo(tmp_path, *names)


UNPROVEN = "--unverified"
EMU = '''\
"""Emu: llama with a plain MLP."""

from torch import nn

from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import LlamaForCausalLM, LlamaMLP, LlamaModel


class EmuConfig(LlamaConfig):
    """Sizes of an Emu."""


class EmuMLP(LlamaMLP):
    def __init__(self, config: EmuConfig):
        super().__init__(config)
        del self.gate_proj
        self.act_fn = nn.GELU()

    def forward(self, hidden_states):
        return self.down_proj(self.act_fn(self.up_proj(hidden_states)))


class EmuModel(LlamaModel):
    pass


class EmuForCausalLM(LlamaForCausalLM):
    pass


__all__ = ["EmuConfig", "EmuForCausalLM", "EmuModel"]
'''


def test_a_modular_file_gets_the_plan_and_its_files_follow(zoo, two_ranks):
    """The inherited plan names a layer that is gone. Nothing of the new model is on disk but its modular file."""
    here = zoo("llama")
    here.put("modular_emu.py", EMU)
    code, said = here.write("modular_emu.py")
    assert code == 0, said
    assert "EmuModel: verified on 2 ranks, by our application and through transformers' loader" in said
    assert "EmuForCausalLM: verified on 2 ranks" in said
    plan = PLANS.search(here.text("modular_emu.py"))[0]
    assert "gate_proj" not in plan and '"layers.*.mlp.up_proj": "colwise",' in plan
    assert PLANS.sub("", here.text("modular_emu.py")).replace('emu."""\n\n\n', 'emu."""\n\n') == EMU
    assert plan in (here.models / "emu" / "configuration_emu.py").read_text()
    assert here.write("modular_emu.py", UNPROVEN)[1].endswith("nothing to write: the source says the same\n")


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("llama", ["configuration_llama.py", "modeling_llama.py"]),
        ("bert", ["configuration_bert.py"]),
        ("clip", ["configuration_clip.py"]),
    ],
)
def test_what_the_zoo_holds_is_what_is_written(folder, files, zoo, two_ranks):
    """Base models, a head, and two towers with configuration classes of their own: byte for byte."""
    here = zoo(folder)
    before = here.files()
    for name in files:
        here.drop_plans(name)
    assert here.files() != before
    code, said = here.write(f"modeling_{folder}.py")
    assert code == 0, said
    assert here.files() == before


@pytest.fixture(scope="module")
def two_ranks():
    """One pool for all tests of this file: the command starts its own otherwise."""
    from modular_converter.parallel.proof import on_processes

    pool = on_processes.RankPool(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_processes, "RankPool", lambda size: Lent(pool))
        yield pool
    pool.stop()


class Lent:
    """A pool that stays when its user leaves."""

    def __init__(self, pool) -> None:
        self.pool, self.size = pool, pool.size

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None

    def run(self, task):
        return self.pool.run(task)


def test_one_wrong_line_is_one_changed_line(zoo):
    here = zoo("llama")
    before = here.files()
    here.edit("configuration_llama.py", 'o_proj": "rowwise",', 'o_proj": "colwise",  # hm')
    assert here.write("modeling_llama.py", UNPROVEN)[0] == 0
    path = str(here.path("configuration_llama.py"))
    assert here.files() == {**before, path: before[path].replace('o_proj": "rowwise",', 'o_proj": "rowwise",  # hm')}


BOM = "\ufeff"


def test_a_mark_before_the_text_stays(zoo):
    """Some editors put it there; in the modular file, and in the files that are not generated."""
    here = zoo("llama")
    here.put("modular_emu.py", BOM + EMU)
    code, said = here.write("modular_emu.py", UNPROVEN)
    assert code == 0, said
    text = here.text("modular_emu.py")
    assert text.startswith(BOM + '"""Emu') and text.count(BOM) == 1 and PLANS.search(text)
    before = here.text("configuration_llama.py")
    here.put("configuration_llama.py", BOM + PLANS.sub("", before))
    assert here.write("modeling_llama.py", UNPROVEN)[0] == 0
    assert here.text("configuration_llama.py") == BOM + before


def test_a_removed_plan_is_put_back(zoo):
    here = zoo("llama", "gemma")
    here.edit("modular_gemma.py", "    mlp_bias = ", "    base_model_tp_plan = AttributeError()\n    mlp_bias = ")
    assert here.write("modular_gemma.py", UNPROVEN)[0] == 0
    assert '    base_model_tp_plan = {\n        "layers.*.self_attn.q_proj"' in here.text("modular_gemma.py")


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_nothing_is_written_when_only_asked(option, zoo):
    here = zoo("llama")
    here.put("modular_emu.py", EMU)
    before = here.files()
    code, said = here.write("modular_emu.py", UNPROVEN, option)
    assert code == 1
    assert here.files() == before
    assert ("modular_emu.py: would change" in said) == (option == "--dry-run")
    assert ('+        "layers.*.mlp.up_proj": "colwise",' in said) == (option == "--diff")


def test_generated_files_can_be_left(zoo):
    here = zoo("llama")
    here.put("modular_emu.py", EMU)
    assert here.write("modular_emu.py", UNPROVEN, "--no-convert")[0] == 0
    assert "base_model_tp_plan" in here.text("modular_emu.py")
    assert not (here.models / "emu" / "configuration_emu.py").exists()


def test_a_refused_plan_is_not_written(zoo, two_ranks, monkeypatch):
    here = zoo("bert")
    here.drop_plans("configuration_bert.py")
    before = here.files()
    monkeypatch.setattr(
        settling, "prove", lambda *a, **k: Verdict(2, 1.0, 1.0, "encoder.layer.0.output.dense", "it differs by 1")
    )
    code, said = here.write("modeling_bert.py")
    assert code == 2
    assert "BertModel: the plan is refused on its ranks: encoder.layer.0.output.dense: it differs by 1" in said
    assert "--unverified" in said
    assert here.files() == before


def test_a_vocabulary_tied_to_a_head_that_the_library_cannot_run_stays_whole(zoo, two_ranks):
    here = zoo("bert")
    here.drop_plans("configuration_bert.py")
    code, said = here.write("modeling_bert.py", "--diff")
    assert code == 1
    assert "BertForMaskedLM: the plan is refused through transformers' loader" in said
    assert "the vocabulary stays whole for it" in said
    assert "word_embeddings" not in said


def test_heirs_are_named(zoo):
    here = zoo("bert", "roberta")
    here.drop_plans("configuration_bert.py")
    code, said = here.write("modeling_bert.py", UNPROVEN)
    assert code == 0
    assert f"modular-plan write {Path(said.split('modular-plan write ')[1].split('`')[0])}" in said
    assert said.rstrip().endswith("modular_roberta.py`")


BORROWED = """\
from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import LlamaModel


class EmuModel(LlamaModel):
    config_class = LlamaConfig
"""


def test_a_configuration_of_another_model_is_left_alone(zoo):
    here = zoo("llama")
    here.put("modeling_emu.py", BORROWED)
    here.drop_plans("configuration_llama.py")
    before = here.files()
    code, said = here.write("modeling_emu.py", UNPROVEN)
    assert code == 2
    assert "LlamaConfig.base_model_tp_plan: the class is defined in" in said
    assert "which other models use as well" in said
    assert here.files() == before


def test_what_does_not_convert_is_not_written(zoo):
    here = zoo("llama")
    here.put("modular_emu.py", EMU.replace("modeling_llama", "modeling_lama"))
    before = here.files()
    code, said = here.write("modular_emu.py", UNPROVEN)
    assert code == 2
    assert "it cannot be converted" in said and "modeling_lama" in said
    assert here.files() == before


def test_a_link_out_of_the_folder_is_not_followed(zoo, tmp_path):
    here = zoo("bert")
    here.drop_plans("configuration_bert.py")
    outside = tmp_path / "configuration_bert.py"
    shutil.move(here.path("configuration_bert.py"), outside)
    here.path("configuration_bert.py").symlink_to(outside)
    before = outside.read_text()
    code, said = here.write("modeling_bert.py", UNPROVEN)
    assert code == 2, said
    assert outside.read_text() == before


def test_an_installed_package_is_never_written():
    done = CliRunner().invoke(main, ["write", "bert"])
    assert done.exit_code == 2
    assert "belongs to an installed package" in done.output


def test_a_plan_beyond_the_librarys_vocabulary_goes_to_json(zoo, tmp_path, two_ranks):
    """Heads stored as an integer that must shrink: no style says so."""
    here = zoo("bert")
    here.drop_plans("configuration_bert.py")
    here.edit("modeling_bert.py", "heads = (batch_size, length, -1,", "heads = (batch_size, length, self.number,")
    here.edit(
        "modeling_bert.py",
        "        self.scaling = ",
        "        self.number = config.num_attention_heads\n        self.scaling = ",
    )
    code, said = here.write("modeling_bert.py")
    assert code == 2
    assert "transformers' vocabulary cannot say this plan; `--json FILE` writes it" in said
    assert "an integer that must shrink" in said
    target = tmp_path / "plan.json"
    code, said = here.write("modeling_bert.py", "--json", str(target))
    assert code == 0, said
    assert Plan.from_json(target.read_text()).attributes
