"""`modular-plan write`: only derived and proven plans are written into the source, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parallel.source.conftest import PLANS


pytest.importorskip("transformers")


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


@pytest.mark.slow
def test_a_modular_file_gets_the_plan_and_its_files_follow(zoo, one_pool):
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
    assert here.write("modular_emu.py", UNPROVEN)[1].endswith("nothing to write: the source already has this plan\n")


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("llama", ["configuration_llama.py", "modeling_llama.py"]),
        pytest.param("bert", ["configuration_bert.py"], marks=pytest.mark.slow),
        pytest.param("clip", ["configuration_clip.py"], marks=pytest.mark.slow),
    ],
)
def test_what_the_zoo_holds_is_what_is_written(folder, files, zoo, one_pool):
    """Base models, a head, and two towers with configuration classes of their own: byte for byte."""
    here = zoo(folder)
    before = here.files()
    for name in files:
        here.drop_plans(name)
    assert here.files() != before
    code, said = here.write(f"modeling_{folder}.py")
    assert code == 0, said
    assert here.files() == before


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


@pytest.mark.slow
def test_a_vocabulary_tied_to_a_head_that_the_library_cannot_run_stays_whole(zoo, one_pool):
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
